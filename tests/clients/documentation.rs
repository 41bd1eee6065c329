//! The examples of docs/clients.md, run as a reader would; those in TypeScript by `crate::typescript`.

use crate::place::{Place, shown};
use crate::python::{installed, python};

pub const DOCUMENT: &str = include_str!("../../docs/clients.md");

/// A block of code, and the block of text after it.
#[derive(Debug)]
pub struct Example {
    pub code: String,
    pub output: Option<String>,
}

/// The blocks of this language.
pub fn examples(document: &str, language: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut awaits_output = false;
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(of) = line.strip_prefix("```") else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| *line != "```");
        let block: String = block.map(|line| format!("{line}\n")).collect();
        match (of, found.last_mut()) {
            ("text", Some(example)) if awaits_output => example.output = Some(block),
            _ if of == language => found.push(Example {
                code: block,
                output: None,
            }),
            _ => (),
        }
        awaits_output = of == language;
    }
    found
}

#[test]
fn every_example_in_python_prints_what_the_guide_shows() {
    let place = Place::new();
    let Some(packages) = installed(&place) else {
        return;
    };
    let (tests, programs): (Vec<_>, Vec<_>) = examples(DOCUMENT, "python")
        .into_iter()
        .partition(|example| example.code.contains("def test_"));
    assert_eq!((tests.len(), programs.len()), (1, 5));
    for (number, Example { code, output }) in programs.into_iter().enumerate() {
        let file = place
            .host
            .ground
            .write(&format!("example-{number}.py"), &code);
        let mut python = python(&place, &packages);
        python.arg(file);
        assert_eq!(Some(place.succeed(python)), output, "{code}");
    }
    let [Example { code, output }] = &tests[..] else {
        panic!("not one example of pytest");
    };
    let file = place.host.ground.write("test_example.py", code);
    let mut pytest = python(&place, &packages);
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]);
    pytest
        .arg(format!("--basetemp={}", place.path("pytest").display()))
        .arg(file);
    let output_of_pytest = place.output(pytest);
    let printed = shown(&output_of_pytest);
    assert_eq!(output_of_pytest.status.code(), Some(1), "{printed}");
    let mut rest = &*printed;
    for line in output.as_deref().expect("an output").lines() {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("`{line}` is missing in:\n{printed}");
        };
        rest = after;
    }
}
