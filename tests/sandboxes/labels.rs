//! `create --label` and `ls --filter`.

use serde_json::json;

use crate::host::{Host, said};

/// Names of the sandboxes that `ls --json FLAGS…` prints.
fn names(host: &Host, flags: &[&str]) -> Vec<String> {
    let listed = host.say(&[&["sandbox", "ls", "--json"], flags].concat());
    assert_eq!(listed.code, 0, "{listed:?}");
    let listing: serde_json::Value = serde_json::from_str(&listed.stdout).expect("a document");
    let sandboxes = listing["sandboxes"].as_array().expect("a list");
    let names = sandboxes.iter().map(|state| state["name"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

#[test]
fn labels_are_listed_and_filter_the_list() {
    let host = Host::new();
    let file = host
        .ground
        .write("labels", "# a comment\nowner=file\ntwo=lines");
    let nul = host.ground.write("nul", "text=one\ntwo\0 #=\0");
    let [file, nul] = [&file, &nul].map(|path| path.to_str().expect("a plain path"));
    let files = ["--label-file", file, "--label-file", nul];
    host.create(
        "a",
        &[&files[..], &["--label", "owner=me", "-l", "empty"]].concat(),
    );
    host.create("b", &["--label", "owner=you"]);
    host.create("c", &[]);
    assert_eq!(
        host.list()[0]["labels"],
        json!({" #": "", "empty": "", "owner": "me", "text": "one\ntwo", "two": "lines"})
    );
    assert_eq!(host.list()[2]["labels"], json!({}));
    for (filters, expected) in [
        (&["label=owner"][..], &["a", "b"][..]),
        (&["label=owner=me"], &["a"]),
        (&["label=owner", "label=empty="], &["a"]),
        (&["label=owner=me", "label=owner=you"], &[]),
        (&["label=text=one\ntwo"], &["a"]),
        (&["label=owne"], &[]),
    ] {
        let flags: Vec<&str> = filters
            .iter()
            .flat_map(|filter| ["--filter", filter])
            .collect();
        assert_eq!(names(&host, &flags), expected, "{filters:?}");
        let table = host.say(&[&["sandbox", "ls"], &flags[..]].concat()).stdout;
        assert_eq!(table.lines().count(), expected.len().max(1), "{table}");
    }
    let refused = host.say(&["sandbox", "ls", "--filter", "name=a"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    // A list in a variable has one entry a line, as values may have commas.
    let mut command = host.command(&["sandbox", "create", "--name", "d"]);
    command.env("RUNNER_OPT_LABEL", "list=1,2\nother=3");
    assert_eq!(said(command.output().expect("started")).code, 0);
    assert_eq!(
        host.list()[3]["labels"],
        json!({"list": "1,2", "other": "3"})
    );
}

#[test]
fn named_sandboxes_are_listed_alone() {
    let host = Host::new();
    for name in ["one", "two", "three"] {
        host.create(name, &["--label", name]);
    }
    let listed = |words: &[&str]| {
        let said = host.say(&[&["sandbox", "ls"], words].concat());
        let names = said
            .stdout
            .lines()
            .filter_map(|line| line.split(' ').next());
        (said.code, names.map(str::to_owned).collect::<Vec<_>>())
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed(&["two", "one"]), (0, names(&["two", "one"])));
    let filtered = ["one", "two", "--filter", "label=two"];
    assert_eq!(listed(&filtered), (0, names(&["two"])));
    let missing = host.say(&["sandbox", "ls", "one", "nine"]);
    assert_eq!((missing.code, &*missing.stdout), (125, ""));
    assert!(missing.stderr.contains("(no_sandbox)"), "{missing:?}");
    assert_eq!(host.say(&["sandbox", "ls", "../x"]).code, 125);
}

/// A-78.
#[test]
fn hostile_labels_reach_no_terminal_as_they_are() {
    let host = Host::new();
    let evil = "\u{1b}[2J\u{7f}\u{9b}2J\u{202e}\n\r";
    host.create("one", &["--label", &format!("{evil}={evil}")]);
    assert_eq!(host.list()[0]["labels"], json!({ evil: evil }));
    for words in [
        &["sandbox", "ls"][..],
        &["sandbox", "ls", "--json"],
        &["sandbox", "ls", "--filter", &format!("label={evil}=\u{9b}")],
        &["sandbox", "ls", "--filter", evil],
        &["sandbox", "create", "--label", &format!("={evil}")],
    ] {
        let said = host.say(words);
        let text = said.stdout.replace('\n', "") + &said.stderr.replace('\n', "");
        let hidden = ['\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\r'];
        assert!(!text.contains(hidden), "{words:?}: {text:?}");
    }
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    for labels in [
        vec!["--label".to_owned(), format!("a={}", "x".repeat(16 << 10))],
        (0..65).map(|number| format!("--label={number}")).collect(),
        vec!["--label=".to_owned()],
        vec!["--label==x".to_owned()],
        vec!["--label-file=/nonexistent".to_owned()],
    ] {
        let refused = host.say(&[vec!["sandbox".to_owned(), "create".to_owned()], labels].concat());
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(refused.stderr.len() < 1_000, "{refused:?}");
    }
    host.assert_empty();
}
