//! The manual pages: complete, and troff without a warning.

#[path = "../examples/man/pages.rs"]
mod pages;

use std::process::Command;

use support::skip;

#[test]
fn each_verb_has_a_page_that_renders_without_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let pages = pages::render(runner::cli::args::command()).expect("rendered");
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for name in [
        "runner.1",
        "runner-exec.1",
        "runner-why.1",
        "runner-source-build.1",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let is_installed = Command::new("groff").arg("--version").output().is_ok();
    if !is_installed {
        return skip("groff is not installed");
    }
    for (name, page) in &pages {
        let file = directory.path().join(name);
        std::fs::write(&file, page).expect("written");
        let output = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-P-cbou"])
            .arg(&file)
            .output()
            .expect("groff starts");
        let (text, warnings) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{name}");
        assert_eq!(warnings, "", "{name}");
        let verb = name.trim_end_matches(".1").replace('-', " ");
        assert!(
            text.contains("SYNOPSIS") && text.contains(&verb),
            "{name}: {text}"
        );
        // The flags of these are those of another program.
        let of_another = ["mcp", "serve", "worker", "submit", "result"];
        if of_another
            .iter()
            .any(|verb| name == &format!("runner-{verb}.1"))
        {
            assert!(text.contains("--help lists them"), "{name}: {text}");
        }
        // An example stays on a line of its own.
        if name == "runner-why.1" {
            let mut lines = text.lines().map(str::trim);
            assert!(
                lines.any(|line| line == "runner why --path /etc/shadow"),
                "{text}"
            );
        }
    }
}
