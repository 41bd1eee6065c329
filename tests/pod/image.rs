//! `scripts/image`: an OCI layout that others read, and the same bytes for the same programs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::bodies::compile;
use support::packages::{has, succeed, tool};
use support::{Ground, images, source_path};

use crate::container::{Container, IMAGE, can_make_containers, said, stripped};
use crate::manifest::Pod;
use crate::runs::JOB;

fn image(output: &Path, programs: &Path, base: Option<&Path>) -> Output {
    let mut command = Command::new(source_path("scripts/image"));
    command.arg("--output").arg(output).arg(programs);
    if let Some(base) = base {
        command.arg("--base").arg(base);
    }
    command.output().expect("python3 starts")
}

#[test]
fn the_same_programs_give_the_same_image() {
    let ground = Ground::new();
    let output = image(&ground.path("again"), &IMAGE.path().join("programs"), None);
    assert!(output.status.success(), "{}", said(&output));
    let mut compare = Command::new("diff");
    compare.arg("--recursive").arg(IMAGE.path().join("image"));
    succeed(compare.arg(ground.path("again"))).expect("no difference");
}

/// skopeo reads it independently.
#[test]
fn the_image_has_the_user_and_the_entry_point_of_the_containerfile() {
    if !has("skopeo") {
        return;
    }
    let mut inspect = tool("skopeo");
    inspect.args(["inspect", "--config"]);
    inspect.arg(format!(
        "oci:{}:runner",
        IMAGE.path().join("image").display()
    ));
    let config = succeed(&mut inspect).expect("a configuration");
    let config: Value = serde_json::from_str(&config).expect("JSON");
    assert_eq!(
        config["config"],
        json!({
            "User": "65532:65532",
            "Env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "RUNNER_OPT_RUNTIME_DIRECTORY=/dev/shm/runner",
                "RUNNER_OPT_OCI_DIRECTORY=/dev/shm/runner-images",
            ],
            "Entrypoint": ["/usr/bin/runner"],
        })
    );
}

#[test]
fn a_program_that_needs_libraries_is_refused() {
    let ground = Ground::new();
    let programs = ground.path("programs");
    stripped(&programs);
    let dynamic = programs.join("runner-worker");
    std::fs::remove_file(&dynamic).expect("removed");
    compile("int main(void) { return 0; }", &dynamic, &[]);
    let output = image(&ground.path("image"), &programs, None);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("runner-worker: linked dynamically"), "{said}");
}

#[test]
fn bodies_see_the_programs_of_the_base_that_is_named() {
    if !can_make_containers() {
        return;
    }
    let Some(base) = images::tiny() else {
        return;
    };
    let ground = Ground::new();
    let layout = ground.path("image");
    let programs = IMAGE.path().join("programs");
    let output = image(&layout, &programs, Some(&base.layout));
    assert!(output.status.success(), "{}", said(&output));
    let container = Container::with_image(Pod::of(JOB), &layout);
    let files = [
        ("manifest.yaml", "name: base\nrun: body\n"),
        ("body", "#!/bin/sh\necho from a shell\n"),
    ];
    let bundle = std::fs::read(ground.bundle(&files)).expect("a bundle");
    container.put("work", "bundle.tar.gz", bundle);
    let output = container.run(&[]);
    assert_eq!(output.stdout, b"from a shell\n", "{}", said(&output));
}

#[test]
fn a_run_in_a_pod_has_a_small_image_as_its_root() {
    if !can_make_containers() {
        return;
    }
    let Some(small) = images::tiny() else {
        return;
    };
    let container = Container::new(Pod::of(JOB));
    let layout = container.volume("work").join("tiny");
    let mut copy = tool("cp");
    succeed(copy.arg("-r").arg(&small.layout).arg(&layout)).expect("copied");
    let mut open = tool("chmod");
    succeed(open.args(["-R", "a+rX"]).arg(&layout)).expect("readable");
    let output = container.run(&[
        "run",
        "--image=oci:/work/tiny:tiny",
        "--",
        "/bin/echo",
        "from an image",
    ]);
    assert_eq!(output.stdout, b"from an image\n", "{}", said(&output));
}
