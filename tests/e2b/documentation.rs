//! docs/e2b.md, followed by a reader.

use std::path::Path;
use std::process::Command;

use support::runner;

use crate::host::Host;
use crate::sdks::python_sdk;

/// The blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = text.split(&*fence).skip(1);
    let blocks = parts.map(|part| part.split("```").next().unwrap_or_default().to_owned());
    blocks.collect()
}

#[test]
fn the_commands_of_the_document_work_as_printed() {
    let Some(sdk) = python_sdk() else {
        return;
    };
    let host = Host::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let text = include_str!("../../docs/e2b.md").replace("3000", &port);
    let (commands, programs) = (blocks(&text, "sh"), blocks(&text, "python"));
    let ([serve, client], [hello]) = (&commands[..], &programs[..]) else {
        panic!("not two blocks of commands and a program");
    };
    host.ground.write("hello.py", hello);
    let script = format!(
        "set -e\ncd \"$1\"\n{serve}\nuntil curl -sf http://127.0.0.1:{port}/health; do sleep 0.05; done\n\
         {client}\nkill %1\nwait\n"
    );
    let program = runner();
    let programs = Path::new(&program)
        .parent()
        .expect("a directory")
        .display()
        .to_string();
    let mut bash = Command::new("timeout");
    bash.args(["--kill-after=5", "60", "bash", "-c", &script, "bash"])
        .arg(host.ground.path(""))
        .env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin"))
        .env("HOME", host.ground.path(""))
        .env("TMPDIR", host.ground.path(""))
        .env("PYTHONPATH", sdk)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", host.runtime_directory())
        .env("RUNNER_OPT_STATE_DIRECTORY", host.ground.path("state"));
    let output = bash.output().expect("started");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let [expected] = &blocks(&text, "text")[..] else {
        panic!("not one block of output");
    };
    assert_eq!(&*printed, expected, "{errors}");
    assert!(host.list().is_empty());
}
