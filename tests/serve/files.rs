//! Files of a sandbox, through paths and names of strangers.

use serde_json::json;

use crate::api::{Api, reply, url};

const FILES: &str = "/v1/sandboxes/one/files";

fn at(path: &str) -> String {
    format!("{FILES}?path={path}")
}

fn one() -> Api {
    let api = Api::new();
    api.create("one");
    api
}

/// Directories of calls in progress. There are none between calls.
fn left(api: &Api) -> usize {
    let uid = rustix::process::geteuid().as_raw();
    let common = api.host.ground.path(&format!(".runner-serve-{uid}"));
    let servers = std::fs::read_dir(common).expect("the directory of servers");
    servers
        .map(|server| {
            std::fs::read_dir(server.expect("listed").path())
                .expect("read")
                .count()
        })
        .sum()
}

#[test]
fn a_file_is_written_read_listed_moved_and_removed() {
    let api = one();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    api.send("PUT", &at("/scratch/new/a.bin&mode=755"), &[], &bytes)
        .expect(204);
    let read = api.get(&at("/scratch/new/a.bin")).expect(200);
    assert!(read.body == bytes, "{} bytes", read.body.len());
    assert!(
        read.head.contains("content-length: 300000\r\n"),
        "{}",
        read.head
    );
    assert!(
        read.head.contains("x-content-type-options: nosniff"),
        "{}",
        read.head
    );
    assert_eq!(
        api.shell("stat -c '%a %n' /scratch/new/*")["stdout"]["text"],
        "755 /scratch/new/a.bin\n"
    );
    // What is there is replaced, and the directory keeps its mode.
    api.shell("chmod 700 /scratch/new");
    api.send("PUT", &at("/scratch/new/a.bin"), &[], b"short")
        .expect(204);
    assert_eq!(api.get(&at("/scratch/new/a.bin")).body, b"short");
    api.send("PUT", &at("/scratch/empty"), &[], b"").expect(204);
    assert_eq!(api.get(&at("/scratch/empty")).expect(200).body, b"");
    let stat = api
        .get(&format!("{FILES}/stat?path=/scratch/new"))
        .expect(200)
        .json();
    assert_eq!(
        (&stat["kind"], &stat["mode"]),
        (&json!("directory"), &json!("700")),
        "{stat}"
    );
    let moved = api.call(
        "POST",
        &format!("{FILES}/move?from=/scratch/new/a.bin&to=/scratch/b"),
    );
    moved.expect(204);
    let list = api
        .get(&format!("{FILES}/list?path=/scratch"))
        .expect(200)
        .json();
    let mut names: Vec<&str> = list["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["b", "empty", "new"]);
    api.call("DELETE", &at("/scratch/b")).expect(204);
    assert_eq!(api.get(&at("/scratch/b")).expect(404).code(), "no_file");
    assert_eq!(
        api.call("DELETE", &at("/scratch/b")).expect(404).code(),
        "no_file"
    );
    assert_eq!(
        api.get(&format!("{FILES}/list?path=/scratch/b"))
            .expect(404)
            .code(),
        "no_file"
    );
    api.shell("mkdir -p /scratch/tree/deep; touch /scratch/tree/deep/x");
    assert_eq!(
        api.call("DELETE", &at("/scratch/tree")).expect(409).code(),
        "file_kind"
    );
    api.call("DELETE", &at("/scratch/tree&recursive=true"))
        .expect(204);
    assert_eq!(
        api.call("DELETE", &at("/usr/bin&recursive=true"))
            .expect(403)
            .code(),
        "file_denied"
    );
    assert_eq!(left(&api), 0);
}

#[test]
fn a_name_is_any_bytes() {
    let api = one();
    for name in [
        "-rf",
        "--help",
        "a%20b",
        "a%0ab",
        "%ff",
        "%22%27%60$(id)",
        "a+b",
        "%c3%a4",
        "*",
        "a%2fb/../c%2f",
    ] {
        let path = format!("/scratch/{name}");
        let put = api.send("PUT", &at(&path), &[], name.as_bytes());
        if name.contains("..") {
            assert_eq!(put.expect(400).code(), "path");
            continue;
        }
        put.expect(204);
        assert_eq!(
            api.get(&at(&path)).expect(200).body,
            name.as_bytes(),
            "{name}"
        );
    }
    let list = api
        .get(&format!("{FILES}/list?path=/scratch"))
        .expect(200)
        .json();
    let entries = list["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), 8, "{list}");
    for name in ["-rf", "--help", "a b", "a\nb", "\"'`$(id)", "\u{e4}", "*"] {
        assert!(
            entries.iter().any(|entry| entry["name"] == name),
            "{name:?}: {list}"
        );
    }
    assert!(
        entries
            .iter()
            .any(|entry| entry["name"].is_null() && entry["name_base64"] == "/w=="),
        "{list}"
    );
    api.call(
        "POST",
        &format!("{FILES}/move?from=/scratch/-rf&to=/scratch/--no"),
    )
    .expect(204);
    api.call("DELETE", &at("/scratch/--no")).expect(204);
    api.call("DELETE", &at("/scratch/%ff")).expect(204);
}

/// A path of a call names a file of the sandbox, and never one of the host.
#[test]
fn paths_and_links_do_not_lead_to_the_host() {
    let api = one();
    let secret = api.host.ground.write("secret", "of the host");
    let secret = secret.to_str().expect("a plain path");
    for path in [
        "",
        "x",
        "..",
        "../x",
        "/../x",
        "/scratch/../../x",
        "%2e%2e/x",
        "/a%00b",
        "/scratch/%2e%2e%2f%2e%2e%2fx",
    ] {
        for (method, route) in [
            ("GET", FILES.to_owned()),
            ("PUT", FILES.to_owned()),
            ("DELETE", FILES.to_owned()),
            ("GET", format!("{FILES}/list")),
            ("GET", format!("{FILES}/stat")),
        ] {
            let refused = api.call(method, &format!("{route}?path={path}"));
            assert_eq!(refused.status, 400, "{method} {path}: {}", refused.text());
        }
    }
    for path in ["/", "/scratch/.", "/."] {
        api.send("PUT", &at(path), &[], b"x").expect(400);
    }
    // The sandbox resolves its links itself, and does not have that file.
    api.shell(&format!("ln -s {secret} /scratch/link; ln -s /scratch/file /scratch/good; echo text > /scratch/file; ln -s / /scratch/root"));
    assert_eq!(api.get(&at("/scratch/link")).expect(404).code(), "no_file");
    assert_eq!(api.get(&at(secret)).expect(404).code(), "no_file");
    assert_eq!(api.get(&at("/scratch/good")).expect(200).body, b"text\n");
    // A file of that path in the sandbox, which has a /tmp of its own.
    api.send(
        "PUT",
        &at(&format!("/scratch/root{secret}")),
        &[],
        b"overwritten",
    );
    // Writing to a link replaces the link, and not what it leads to.
    api.send("PUT", &at("/scratch/link"), &[], b"new")
        .expect(204);
    assert_eq!(
        std::fs::read_to_string(secret).expect("read"),
        "of the host"
    );
    for (make, path) in [
        ("mkfifo /scratch/fifo", "/scratch/fifo"),
        ("mkdir /scratch/dir", "/scratch/dir"),
        ("true", "/dev/null"),
    ] {
        api.shell(make);
        let refused = api.get(&at(path));
        assert!(
            [409, 422].contains(&refused.status),
            "{path}: {} {}",
            refused.status,
            refused.text()
        );
    }
    assert_eq!(
        api.send("PUT", &at("/scratch/dir"), &[], b"x")
            .expect(422)
            .code(),
        "copy_failed"
    );
    assert_eq!(left(&api), 0);
}

///
#[test]
fn files_have_a_largest_size_in_both_directions() {
    let api = Api::with(&["--max-file", "1m"]);
    api.create("one");
    api.send("PUT", &at("/scratch/a"), &[], &vec![b'x'; 1 << 20])
        .expect(204);
    assert_eq!(api.get(&at("/scratch/a")).expect(200).body.len(), 1 << 20);
    let larger = vec![b'x'; (1 << 20) + 1];
    for words in [&[][..], &["-H", "Transfer-Encoding: chunked"]] {
        let refused = api
            .send("PUT", &at("/scratch/b"), words, &larger)
            .expect(413);
        assert_eq!(refused.code(), "too_large");
    }
    assert_eq!(
        api.get(&format!("{FILES}/stat?path=/scratch/b"))
            .expect(404)
            .code(),
        "no_file"
    );
    // A hole costs the sandbox nothing, and may not cost the host more.
    api.shell("truncate -s 200M /scratch/hole; mkdir /scratch/many; cd /scratch/many; seq 500 | xargs touch");
    api.get(&at("/scratch/hole")).expect(413);
    // Copied before the server looks.
    api.shell("head -c 1048577 /dev/zero > /scratch/one-more");
    api.get(&at("/scratch/one-more")).expect(413);
    let refused = api.get(&at("/scratch/many"));
    assert!([413, 409].contains(&refused.status), "{}", refused.text());
    assert_eq!(left(&api), 0);
}

/// A program of the sandbox may print anything.
#[test]
fn what_a_program_of_the_sandbox_prints_is_checked() {
    let host = crate::host::Host::new();
    // The first directory of the sandbox's PATH is that of the stranger.
    let fake = host.ground.write(
        "bin/find",
        "#!/bin/sh\nprintf '%s' '[{\"name\":\"forged\"}]'\n",
    );
    let bin = fake
        .parent()
        .expect("above")
        .to_str()
        .expect("a plain path")
        .to_owned();
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("set");
    std::fs::set_permissions(&bin, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("set");
    let server = crate::api::Server::start(&host, &[]);
    let api = Api { server, host };
    let flags = ["--ro", &bin, "-e", &format!("PATH={bin}:/usr/bin:/bin")];
    api.post("/v1/sandboxes", &json!({ "name": "one", "flags": flags }))
        .expect(201);
    let listed = api.get(&format!("{FILES}/list?path=/scratch"));
    assert_eq!(listed.expect(502).code(), "program_output");
    // Without the program the call says so.
    api.call("DELETE", "/v1/sandboxes/one").expect(204);
    api.post(
        "/v1/sandboxes",
        &json!({ "name": "one", "flags": ["-e", "PATH=/nowhere"] }),
    )
    .expect(201);
    let listed = api.get(&format!("{FILES}/list?path=/scratch"));
    assert_eq!(listed.expect(501).code(), "no_program");
    api.send("PUT", &at("/scratch/a"), &[], b"x").expect(204);
    assert_eq!(api.get(&at("/scratch/a")).expect(200).body, b"x");
}

#[test]
fn a_client_that_leaves_while_it_reads_leaves_nothing() {
    let api = one();
    api.shell("head -c 60000000 /dev/zero > /scratch/large");
    let slow = [
        "--limit-rate",
        "100k",
        "--max-time",
        "1",
        "-o",
        "/dev/null",
        &url(&at("/scratch/large")),
    ];
    let mut curl = api.curl(&slow);
    curl.args(["-w", "%{size_download}"]);
    let output = curl.output().expect("started");
    assert!(!output.status.success());
    support::invariants::eventually("nothing is left", || left(&api) == 0);
    drop(reply(api.curl(&[&url("/health")]), None).expect(200));
}
