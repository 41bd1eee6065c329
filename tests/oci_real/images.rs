//! Images: pushed by skopeo, pulled by the runner with TLS, a login and a credential helper, and run.

use crate::host::Host;
use support::images::{debian, tiny};

#[test]
fn a_program_runs_on_an_image_that_skopeo_pushed() {
    let Some(image) = tiny() else { return };
    let Some(mut host) = Host::new() else { return };
    image.push(&host.registry, "images/tiny:1");
    let place = host.docker(&format!("images/tiny@{}", image.digest()));
    let script = "pwd; echo $GREETING; cat changed kept /lib/first /lib/second; ls /data /opaque";
    let words = ["run", "--image", &place, "--", "sh", "-c", script];
    let done = host.command(&words).done();
    done.assert_exited(0);
    let wanted =
        "/data\nhello\nupper\nlower\nfirst\nsecond\n/data:\nchanged\nkept\n\n/opaque:\nnew\n";
    assert_eq!(done.text(), wanted);
    assert_eq!(done.report["image"]["digest"], image.digest().as_str());
    assert_eq!(done.report["image"]["found"], "pulled");
    // From then on no request is sent.
    host.registry.stop();
    let done = host.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), wanted);
    assert_eq!(done.report["image"]["found"], "store");
}

#[test]
fn a_short_name_is_of_the_default_registry_as_docker_and_podman_have_it() {
    let Some(image) = tiny() else { return };
    let Some(host) = Host::new() else { return };
    image.push(&host.registry, "library/tiny:1");
    image.push(&host.registry, "team/tiny:1");
    for (short, long) in [("tiny:1", "library/tiny:1"), ("team/tiny:1", "team/tiny:1")] {
        let place = format!("docker://{short}");
        let words = [
            "run",
            "--allow-tags",
            "--image",
            &place,
            "--",
            "sh",
            "-c",
            "echo $GREETING",
        ];
        let done = host.command(&words).done();
        done.assert_exited(0);
        assert_eq!(done.text(), "hello\n");
        assert_eq!(done.report["image"]["place"], host.docker(long).as_str());
    }
}

#[test]
fn nothing_of_the_host_s_file_system_is_in_an_image() {
    let Some(image) = tiny() else { return };
    let Some(host) = Host::new() else { return };
    let place = image.place();
    let script = "for name in /usr/bin/env /etc/debian_version /etc/ssl /usr/share /var; do\n\
                  [ ! -e $name ] || echo $name; done; cat /etc/passwd | grep -c guest";
    let words = ["run", "--image", &place, "--", "sh", "-c", script];
    let done = host.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "1\n");
}

#[test]
fn a_template_of_the_host_gives_a_manifest_its_image() {
    let Some(image) = debian() else { return };
    let Some(mut host) = Host::new() else { return };
    image.push(&host.registry, "images/debian:1");
    let place = host.docker(&format!("images/debian@{}", image.digest()));
    host.allow(&format!(
        "images: [{{id: of-the-host, languages: [python], native: [], cost_tier: 1, source: '{place}'}}]\n"
    ));
    host.ground.write(
        "bundle/manifest.yaml",
        "run: main.py\nrunner: {engine: sandbox, image: of-the-host}\n",
    );
    host.ground.write(
        "bundle/main.py",
        "import os, pathlib, sys\n\
         print(sys.executable, os.getuid(), pathlib.Path('/etc/debian_version').exists())\n",
    );
    let directory = host.ground.path("bundle");
    let done = host
        .command(&["exec", directory.to_str().expect("plain")])
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "/usr/bin/python3 1000 True\n");
    assert_eq!(done.report["image"]["id"], "of-the-host");
}
