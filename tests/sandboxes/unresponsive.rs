//! Lists while the supervisor of a sandbox does not answer, and a runtime directory that cannot be used.

use std::os::fd::OwnedFd;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::authority::connect_at_once;
use crate::host::Host;

/// What `ls --json FLAGS…` prints: the names of `sandboxes`, and `unresponsive`.
fn listed(host: &Host, flags: &[&str]) -> (Vec<String>, Value, String) {
    let said = host.say(&[&["sandbox", "ls", "--json"], flags].concat());
    assert_eq!(said.code, 0, "{said:?}");
    let listing: Value = serde_json::from_str(&said.stdout).expect("a document");
    let sandboxes = listing["sandboxes"].as_array().expect("a list").iter();
    let names = sandboxes.map(|state| state["name"].as_str().expect("a name").to_owned());
    (
        names.collect(),
        listing["unresponsive"].clone(),
        said.stderr,
    )
}

#[test]
fn a_list_names_sandboxes_whose_supervisors_do_not_answer() {
    let host = Host::new();
    host.create("b-silent", &["--label", "one"]);
    let silent = host.supervisor();
    let [socket] = &host.files("sandboxes")[..] else {
        panic!("not one socket");
    };
    let run_id = socket.split_once('@').expect("a run id").1.to_owned();
    host.create("a", &["--label", "one"]);
    host.create("c", &[]);
    kill_process(silent, Signal::STOP).expect("stopped");
    let unresponsive = json!([{ "name": "b-silent", "run_id": run_id }]);
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let all = (names(&["a", "c"]), unresponsive.clone(), String::new());
    // Each takes 5 s.
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(listed(&host, &[]), all));
        scope.spawn(|| {
            let named = (names(&["c"]), unresponsive, String::new());
            assert_eq!(listed(&host, &["b-silent", "c"]), named);
        });
        scope.spawn(|| {
            let table = host.say(&["sandbox", "ls"]);
            let lines: Vec<_> = table.stdout.lines().collect();
            let row = format!("{:<24}  {run_id}  unresponsive", "b-silent");
            assert!(lines.len() == 3 && lines.contains(&&*row), "{table:?}");
            assert_eq!((table.code, &*table.stderr), (0, ""));
        });
        scope.spawn(|| {
            let warning = "runner: warning: the supervisor of the sandbox b-silent does not answer: \
                           its labels are not known (sandbox_unresponsive)\n";
            let found = (names(&["a"]), json!([]), warning.to_owned());
            assert_eq!(listed(&host, &["--filter", "label=one"]), found);
        });
    });

    // Not even a connection: as many wait as listen(2) allows.
    let mut waiting: Vec<OwnedFd> = Vec::new();
    while let Some(connection) = connect_at_once(&host, socket) {
        waiting.push(connection);
    }
    assert_eq!(listed(&host, &[]), all);
    drop(waiting);

    kill_process(silent, Signal::CONT).expect("continued");
    assert_eq!(listed(&host, &[]).0, names(&["a", "b-silent", "c"]));
    // Nobody waits for the answer to a request that was given up.
    assert_eq!(
        host.shell("b-silent", "echo it goes on").stdout,
        "it goes on\n"
    );
}

#[test]
fn a_runtime_directory_that_cannot_be_used_is_named_as_by_run() {
    let host = Host::new();
    std::fs::write(host.runtime_directory(), "").expect("written");
    let errors = [
        &["run", "--", "true"][..],
        &["sandbox", "ls"],
        &["sandbox", "exec", "a", "--", "true"],
    ]
    .map(|words| {
        let said = host.say(words);
        assert_eq!(said.code, 125, "{said:?}");
        let (_how, error) = said
            .stderr
            .split_once("the runtime directory ")
            .expect("an error");
        error.to_owned()
    });
    let expected = format!(
        "{} is not safe: found a link or a file, expected a directory; change that, or name another \
         runtime directory (runtime_directory_unusable)\nrunner: hint: set \
         RUNNER_OPT_RUNTIME_DIRECTORY to a directory of your own\n",
        host.runtime_directory().display()
    );
    assert_eq!(errors, [(); 3].map(|()| expected.clone()));
    std::fs::remove_file(host.runtime_directory()).expect("removed");
}
