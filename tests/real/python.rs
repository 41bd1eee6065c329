//! Python: wheels unpacked in a bundle, pip without the network, a server on loopback, processes.

use std::path::PathBuf;

use crate::bundling::exec_bundled;
use support::bundles::pack;
use support::packages::{succeed, tool, wheels};
use support::{Ground, random};

const MAIN: &str = include_str!("../bodies/real/python_main.py");

const SERVER: &str = include_str!("../bodies/real/python_server.py");

/// The program with its wheels unpacked.
fn program(ground: &Ground) -> Option<PathBuf> {
    let wheels = wheels()?;
    let folder = ground.path(&format!("python-{}", random()));
    std::fs::create_dir(&folder).expect("made");
    for wheel in std::fs::read_dir(wheels).expect("readable") {
        let wheel = wheel.expect("readable").path();
        let mut unzip = tool("python3");
        unzip.args(["-m", "zipfile", "-e"]);
        succeed(unzip.arg(&wheel).arg(folder.join("lib"))).expect("unpacked");
    }
    std::fs::write(folder.join("main.py"), MAIN).expect("written");
    std::fs::write(folder.join("manifest.yaml"), "name: marks\nrun: main.py\n").expect("written");
    Some(folder)
}

#[test]
fn a_python_program_with_wheels_unpacked_in_it_runs_from_a_plain_tar() {
    let ground = Ground::new();
    let Some(folder) = program(&ground) else {
        return;
    };
    let done = ground.exec(&[], &pack(&folder));
    done.assert_exited(0);
    assert_eq!(done.text(), "text &lt;b&gt; &lt;i&gt;\n");
}

#[test]
fn a_python_program_with_wheels_unpacked_in_it_runs_from_a_made_bundle() {
    let ground = Ground::new();
    let Some(folder) = program(&ground) else {
        return;
    };
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "text &lt;b&gt; &lt;i&gt;\n");
}

#[test]
fn wheels_are_found_through_a_variable_of_the_caller() {
    let ground = Ground::new();
    let Some(folder) = program(&ground) else {
        return;
    };
    let run = r#"["python3", "-c", "import six; print(six.__file__)"]"#;
    let flags = ["--run", run, "-e", "PYTHONPATH=/bundle/lib"];
    let done = exec_bundled(&ground, &flags, &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "/bundle/lib/six.py\n");
}

#[test]
fn a_version_switchers_shim_on_the_callers_path_is_not_taken_for_python() {
    let ground = Ground::new();
    let shim = ground.write("shims/python", "#!/bin/sh\nexec /nonexistent/switcher\n");
    succeed(tool("chmod").arg("755").arg(&shim)).expect("executable");
    let bundle = ground.bundle(&[("main.py", "print('run by', __import__('sys').executable)")]);
    let bundle = bundle.to_str().expect("a plain path");
    let path = format!("{}:/usr/bin:/bin", ground.path("shims").display());
    let done = ground
        .command(&["exec", "--run", "main.py", bundle])
        .env("PATH", &path)
        .done();
    done.assert_exited(0);
    assert!(done.text().starts_with("run by /usr/"), "{done:#?}");
}

#[test]
fn pip_installs_a_local_wheel_without_the_network() {
    let ground = Ground::new();
    let Some(wheels) = wheels() else {
        return;
    };
    let wheels = wheels.to_str().expect("a plain path");
    let script = format!(
        "python3 -m pip list --format=freeze >/dev/null
         python3 -m pip install --quiet --no-index --find-links {wheels} --target /tmp/lib six
         PYTHONPATH=/tmp/lib python3 -c 'import six; print(six.__version__)'
         python3 -m venv --without-pip /tmp/venv
         /tmp/venv/bin/python -c 'import sys; print(sys.prefix)'"
    );
    let done = ground.run(&["--ro", wheels], &["sh", "-euc", &script]);
    done.assert_exited(0);
    assert_eq!(done.text(), "1.16.0\n/tmp/venv\n");
}

#[test]
fn a_python_server_answers_on_loopback() {
    let ground = Ground::new();
    let done = ground.run(&[], &["python3", "-c", SERVER]);
    done.assert_exited(0);
    assert_eq!(done.text(), "served /y\n");
    let manifest = ("manifest.yaml", "name: served\nrun: server.py\n");
    let folder = ground.folder(&[manifest, ("server.py", SERVER)]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "served /y\n");
}

#[test]
fn python_starts_processes_and_threads_that_share_locks() {
    let ground = Ground::new();
    let pool =
        include_str!("../bodies/real/python_starts_processes_and_threads_that_share_locks.py");
    let manifest = ("manifest.yaml", "name: pool\nrun: pool.py\n");
    let folder = ground.folder(&[manifest, ("pool.py", pool)]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "[1, 2, 3]\n55\n");
}
