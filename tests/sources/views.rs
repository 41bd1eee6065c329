//! What a body sees of a source, and what it may do to it.

use crate::artifact::Artifact;
use crate::host::{Host, Wanted, one, said};
use support::images::tiny;

const WRITABLE: &str = "writable: true";

fn backend() -> Artifact {
    Artifact::of(&[
        ("README", "read me\n"),
        ("services/api/main.txt", "api\n"),
        ("services/api/tool", "#!/bin/sh\necho tool\n"),
        ("services/web/main.txt", "web\n"),
    ])
}

#[test]
fn a_source_is_readable_executable_and_read_only() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let bundle = host.bundle(
        &one(artifact.nowhere(), ""),
        "cd /workspace/backend; cat README; services/api/tool; stat -c '%u %g %a' README services\n\
         for try in 'echo x >README' 'echo x >new' 'rm README' 'mkdir d' 'chmod 777 README' \
         'mv services s' 'touch -d @0 README'; do\n\
         (eval \"$try\") 2>/dev/null && echo \"did $try\"; done; ls",
    );
    let done = host.exec(&[], &bundle);
    done.assert_exited(0);
    assert_eq!(
        said(&done),
        "read me\ntool\n1000 1000 644\n1000 1000 755\nREADME\nservices\n"
    );
    let source = &done.report["workspace_sources"][0];
    assert_eq!(source["digest"], artifact.digest());
    assert_eq!(source["view"], "read_only");
    assert_eq!(source["mount_path"], "/workspace/backend");
    assert_eq!(source["found"], "pulled");
    let again = host.exec(&[], &bundle);
    assert_eq!(said(&again), said(&done));
    assert_eq!(again.report["workspace_sources"][0]["found"], "store");
    assert_eq!(host.trees().len(), 1);
}

const CHANGE: &str = "cd /workspace/backend; cat README; echo changed >README; rm -r services/web\n\
     echo new >services/api/new; chmod 600 README; mv services/api/tool .; ./tool\n\
     cat README; stat -c '%u %h' README; find . -type f | sort";
const CHANGED: &str = "read me\ntool\nchanged\n1000 1\n./README\n./services/api/main.txt\n\
     ./services/api/new\n./tool\n";

#[test]
fn writes_to_a_source_are_discarded_and_never_reach_the_store() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let bundle = host.bundle(&one(artifact.nowhere(), WRITABLE), CHANGE);
    for _run in 0..2 {
        let done = host.exec(&[], &bundle);
        done.assert_exited(0);
        assert_eq!(said(&done), CHANGED);
        assert_eq!(done.report["workspace_sources"][0]["view"], "overlayfs");
    }
    let tree = host.trees()[0].join("tree");
    let kept = |name: &str| std::fs::read_to_string(tree.join(name)).expect("kept");
    assert_eq!(kept("README"), "read me\n");
    assert_eq!(kept("services/web/main.txt"), "web\n");
    assert!(!tree.join("services/api/new").exists());
}

#[test]
fn a_writable_source_is_no_part_of_what_is_learned() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let copy = host.policy("oci: {copy: true}\n");
    host.ground.write("work/out/old", "1");
    let work = host.ground.workspace();
    let body = format!("echo 2 >'{}/out/new'\n{CHANGE}", work.display());
    let bundle = host.bundle(&one(artifact.nowhere(), WRITABLE), &body);
    for (number, (flags, view)) in [(&[][..], "overlayfs"), (&["--policy", &copy], "copy")]
        .into_iter()
        .enumerate()
    {
        let policy = host.ground.path(&format!("learned-{number}.yaml"));
        let learn = ["learn", "-o", support::text(&policy), "--grant=sources"];
        let mut case = host.command(&[&learn, flags, &[&bundle]].concat());
        case.command.current_dir(&work);
        let done = case.done();
        done.assert_exited(0);
        assert_eq!(said(&done), CHANGED);
        assert_eq!(done.report["workspace_sources"][0]["view"], view);
        assert!(!work.join("out/new").exists());
        let learned = std::fs::read_to_string(policy).expect("a policy");
        let entries: Vec<&str> = learned
            .lines()
            .filter(|line| line.contains("    - "))
            .collect();
        assert_eq!(
            entries,
            [format!("    - \"{}/out\"", work.display())],
            "{learned}"
        );
    }
}

#[test]
fn a_copy_is_the_same_to_a_body_as_an_overlayfs() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let policy = host.policy("oci: {copy: true}\n");
    let bundle = host.bundle(&one(artifact.nowhere(), WRITABLE), CHANGE);
    for _run in 0..2 {
        let done = host.exec(&["--policy", &policy], &bundle);
        done.assert_exited(0);
        assert_eq!(said(&done), CHANGED);
        assert_eq!(done.report["workspace_sources"][0]["view"], "copy");
    }
}

#[test]
fn the_layers_of_a_writable_source_are_hidden_from_the_body() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let copy = host.policy("oci: {copy: true}\n");
    for flags in [&[][..], &["--policy", &copy]] {
        let looks = "ls -A /runner/overlays; echo looked";
        let bundle = host.bundle(&one(artifact.nowhere(), WRITABLE), looks);
        let done = host.exec(flags, &bundle);
        done.assert_exited(0);
        assert_eq!(said(&done), "looked\n", "{flags:?}");
    }
}

#[test]
fn a_directory_of_a_source_appears_without_the_rest() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let copy = host.policy("oci: {copy: true}\n");
    for (flags, keys) in [
        (&[][..], "subpath: services/api"),
        (&[], "subpath: services/api, writable: true"),
        (
            &["--policy", &copy],
            "subpath: services/api, writable: true",
        ),
    ] {
        let bundle = host.bundle(
            &one(artifact.nowhere(), keys),
            "find /workspace -type f | sort; ls -a /workspace/backend/..",
        );
        let done = host.exec(flags, &bundle);
        done.assert_exited(0);
        assert_eq!(
            said(&done),
            "/workspace/backend/main.txt\n/workspace/backend/tool\n.\n..\nbackend\n",
            "{keys} {flags:?}"
        );
        let source = &done.report["workspace_sources"][0];
        assert_eq!(source["subpath"], "services/api");
    }
}

#[test]
fn a_subpath_that_is_no_directory_is_refused_with_directories_like_it() {
    let artifact = backend();
    let host = Host::with(&artifact);
    for (subpath, says, hint) in [
        (
            "service/api",
            "is missing from its snapshot",
            "services/api",
        ),
        ("api", "is missing from its snapshot", "services/api"),
        ("README", "is a file in its snapshot", "inspect"),
        ("README/x", "is missing from its snapshot", "inspect"),
    ] {
        let keys = format!("subpath: {subpath}");
        let bundle = host.bundle(&one(artifact.nowhere(), &keys), "");
        let done = host.exec(&[], &bundle);
        done.assert_error("refused", "source_subpath_missing");
        assert_eq!(done.text(), "", "the body ran");
        let error = &done.report["error"];
        let text = |key: &str| error[key].as_str().expect("text").to_owned();
        assert!(text("message").contains(says), "{error}");
        assert!(text("hint").contains(hint), "{error}");
    }
}

/// Three nested sources, with a mounted file and a mounted directory of the host in them.
#[test]
fn sources_lie_in_one_another_and_mounts_in_them() {
    let outer = backend();
    let inner = Artifact::of(&[("inner.txt", "inner\n")]);
    let host = Host::with(&outer);
    inner.keep(&host.store());
    host.ground.write("lent/file", "lent\n");
    let lent = host.ground.path("lent");
    let lent = lent.to_str().expect("plain");
    let copy = host.policy("oci: {copy: true}\n");
    let entry = |artifact: &Artifact, at: &'static str, keys: &'static str| Wanted {
        reference: artifact.nowhere(),
        at,
        keys,
    };
    let bundle = host.bundle(
        &[
            entry(&inner, "/w/a/vendor/c", ""),
            entry(&outer, "/w/a", ""),
            entry(&inner, "/w/a/services/x/y", WRITABLE),
        ],
        include_str!("../bodies/sources/sources_lie_in_one_another_and_mounts_in_them.sh"),
    );
    for policy in [&[][..], &["--policy", &copy]] {
        let mounts = [
            format!("--mount={lent}:/w/a/services/x/y/lent:ro"),
            format!("--mount={lent}/file:/w/a/file:ro"),
        ];
        let flags = [policy, &[&mounts[0], &mounts[1]]].concat();
        let done = host.exec(&flags, &bundle);
        done.assert_exited(0);
        assert_eq!(
            said(&done),
            "read me\ninner\ninner\napi\nlent\nlent\nwrote\ninner.txt\nlent\nnew\nrefused\n"
        );
        let view = match policy {
            [] => "overlayfs",
            _ => "copy",
        };
        let views = [0, 1, 2].map(|at| done.report["workspace_sources"][at]["view"].clone());
        assert_eq!(views, ["read_only", view, view]);
    }
}

#[test]
fn two_concurrent_bodies_share_a_snapshot_but_no_writes() {
    let artifact = backend();
    let host = Host::with(&artifact);
    // Each one waits until the other has written.
    host.ground.write("meet/.keep", "");
    let meet = host.ground.path("meet");
    let mount = format!("--mount={}:/meet", meet.display());
    let bundle = host.bundle(
        &one(artifact.nowhere(), WRITABLE),
        "me=$1; other=$2; cd /workspace/backend; echo $me >mine; echo $me >README\n\
         touch /meet/$me; while ! [ -e /meet/$other ]; do sleep 0.01; done\n\
         cat mine README; ls | wc -l",
    );
    let start = |me: &str, other: &str| {
        let words = ["exec", "--grant=sources", &mount, &bundle, "--", me, other];
        host.command(&words).start()
    };
    let (one, two) = (start("a", "b"), start("b", "a"));
    assert_eq!(said(one.done().assert_exited(0)), "a\na\n3\n");
    assert_eq!(said(two.done().assert_exited(0)), "b\nb\n3\n");
    assert_eq!(host.trees().len(), 1);
}

#[test]
fn the_disk_limit_counts_writes_to_a_source_but_not_the_source() {
    let noise = "0123456789abcdef".repeat(1 << 16);
    let artifact = Artifact::of(&[("large", &noise), ("small", "small\n")]);
    let host = Host::with(&artifact);
    let copy = host.policy("oci: {copy: true}\n");
    let bundle = host.bundle(
        &one(artifact.nowhere(), WRITABLE),
        "cd /workspace/backend; wc -c <large; echo x >>small && cat small\n\
         head -c 3000000 /dev/zero >new 2>/dev/null || echo full; rm new; echo y >>small && cat small",
    );
    for flags in [&[][..], &["--policy", &copy]] {
        let done = host.exec(&[flags, &["--disk", "2m"]].concat(), &bundle);
        done.assert_exited(0);
        assert_eq!(said(&done), "1048576\nsmall\nx\nfull\nsmall\nx\ny\n");
    }
}

#[test]
fn a_path_in_use_is_refused_before_anything_is_unpacked() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let bundle = host.bundle(&one(artifact.nowhere(), ""), "");
    let mount = format!(
        "--mount={}:/workspace/backend",
        host.ground.path("canary").display()
    );
    for flag in ["--tmpfs=/workspace/backend", &mount, &format!("{mount}:ro")] {
        let done = host.exec(&[flag], &bundle);
        done.assert_error("refused", "mount_duplicate");
        assert_eq!(done.text(), "");
    }
    assert!(host.trees().is_empty());
}

#[test]
fn a_mount_through_which_the_store_could_be_written_is_refused() {
    let artifact = backend();
    let host = Host::with(&artifact);
    let bundle = host.bundle(&one(artifact.nowhere(), ""), "ls /lent");
    let store = host.store();
    let above = store.parent().expect("a ground").to_owned();
    for lent in [&store, &above, &store.join("1")] {
        let done = host.exec(&[&format!("--mount={}:/lent", lent.display())], &bundle);
        done.assert_error("refused", "mount_holds_cache");
    }
    let read_only = format!("--mount={}:/lent:ro", store.display());
    let done = host.exec(&[&read_only], &bundle);
    done.assert_exited(0);
}

/// The root of the body is an image, with nested sources in it.
#[test]
fn sources_are_seen_in_an_image_as_they_are_without_one() {
    let Some(image) = tiny() else { return };
    let image = image.place();
    let artifact = backend();
    let host = Host::with(&artifact);
    let copy = host.policy("oci: {copy: true}\n");
    let entry = |at, keys| Wanted {
        reference: artifact.nowhere(),
        at,
        keys,
    };
    let bundle = host.bundle(
        &[
            entry("/workspace/read", ""),
            entry("/workspace/read/deep/own", WRITABLE),
            entry("/opt/own", WRITABLE),
        ],
        "cat /workspace/read/README; /opt/own/services/api/tool\n\
         for at in /workspace/read /workspace/read/deep /workspace/read/deep/own /opt/own; do\n\
         (echo x >$at/new) 2>/dev/null && echo \"wrote $at\"; done\n\
         ls /runner/overlays; ls /workspace/read; cat /opt/own/new",
    );
    for policy in [&[][..], &["--policy", &copy]] {
        for _run in 0..2 {
            let done = host.exec(&[policy, &["--image", &image]].concat(), &bundle);
            done.assert_exited(0);
            assert_eq!(
                said(&done),
                "read me\ntool\nwrote /workspace/read/deep/own\nwrote /opt/own\n\
                 README\ndeep\nservices\nx\n"
            );
        }
    }
}
