//! What each tool answers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::{Client, text};
use crate::host::Host;
use support::invariants::eventually;

#[test]
fn a_command_has_its_exit_code_both_streams_and_the_files_of_earlier_ones() {
    let host = Host::new();
    let mut client = Client::start(&host, &["--rw", "."]);
    let first = client.shell("echo out; echo err >&2; echo kept > file; exit 7");
    assert_eq!(first["exit_code"], 7);
    assert_eq!(
        (&first["stdout"], &first["stderr"]),
        (&json!("out\n"), &json!("err\n"))
    );
    assert_eq!(client.shell("cat file")["stdout"], "kept\n");
    let on_host = std::fs::read_to_string(host.ground.workspace().join("file"));
    assert_eq!(on_host.expect("there"), "kept\n");
    // The output is there, and the result an error.
    let failed = client.call("execute_command", &json!({"command": "echo out; exit 1"}));
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"][1]["text"], "out\n");
    // No shell reads an array.
    let words = json!({"command": ["printf", "%s|", "a b", "$HOME", ";"]});
    let words = client.call("execute_command", &words);
    assert_eq!(words["structuredContent"]["stdout"], "a b|$HOME|;|");
    let there = client.call("execute_command", &json!({"command": "pwd", "cwd": "/usr"}));
    assert_eq!(there["structuredContent"]["stdout"], "/usr\n");
    assert_eq!(client.close().code, 0);
}

#[test]
fn a_command_ends_with_its_timeout_and_what_it_left_behind_holds_up_nobody() {
    let host = Host::new();
    let mut client = Client::start(&host, &["--grace", "100ms"]);
    let arguments = json!({"command": "echo on; sleep 1000", "timeout": 1});
    let ended = client.call("execute_command", &arguments)["structuredContent"].clone();
    assert_eq!(
        (&ended["exit_code"], &ended["timed_out"]),
        (&json!(124), &json!(true))
    );
    assert_eq!(ended["stdout"], "on\n");
    // A command may say 124 itself.
    let own = client.shell("exit 124");
    assert_eq!(
        (&own["exit_code"], &own["timed_out"]),
        (&json!(124), &json!(false))
    );
    assert_eq!(client.shell("sleep 1000 & echo left")["stdout"], "left\n");
    for (arguments, problem) in [
        (
            json!({"command": "true", "timeout": 0}),
            "expected 1 to 3600",
        ),
        (
            json!({"command": "true", "timeout": 3601}),
            "expected 1 to 3600",
        ),
        (
            json!({"command": "true", "timeout": 86401, "background": true}),
            "1 to 86400",
        ),
        (json!({"command": []}), "`command` is empty"),
        (json!({}), "missing field `command`"),
    ] {
        let refusal = client.refused("execute_command", &arguments);
        assert!(refusal.contains(problem), "{refusal}");
    }
}

#[test]
fn output_is_bounded_and_says_what_is_left_out() {
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    let long = client.call(
        "execute_command",
        &json!({"command": "echo first; yes | head -c 50000000; echo last; echo fault >&2"}),
    );
    // Of 50 MB it keeps what it returns.
    assert!(client.peak_kib() < 48 << 10, "{} KiB", client.peak_kib());
    let document = &long["structuredContent"];
    let stdout = document["stdout"].as_str().expect("text");
    assert!(stdout.starts_with("first\ny\n") && stdout.ends_with("y\nlast\n"));
    assert!(stdout.len() < 40_000 && long.to_string().len() < 200_000);
    let left_out = document["left_out_bytes"].as_u64().expect("a number");
    assert_eq!(left_out, 50_000_011 - (32 << 10));
    assert!(stdout.contains(&format!("[… {left_out} bytes left out …]")));
    assert_eq!(document["stderr"], "fault\n");
    let tail = json!({"command": "seq 100000; seq 5 >&2", "tail": 2});
    let tail = client.call("execute_command", &tail)["structuredContent"].clone();
    assert_eq!(
        (&tail["stdout"], &tail["stderr"]),
        (&json!("99999\n100000\n"), &json!("4\n5\n"))
    );
}

#[test]
fn a_command_in_the_background_is_read_and_killed_by_its_id() {
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    let ends = client.background("echo out; echo err >&2; exit 4");
    let stays = client.background("seq 1000; exec sleep 1000");
    let output = |client: &mut Client, id: &Value| {
        let result = client.call("get_process_output", &json!({"id": id, "tail": 1}));
        result["structuredContent"].clone()
    };
    let client = std::cell::RefCell::new(client);
    eventually("the first one has ended", || {
        output(&mut client.borrow_mut(), &ends)["running"] == false
    });
    let mut client = client.into_inner();
    let ended = output(&mut client, &ends);
    assert_eq!(ended["exit_code"], 4);
    assert_eq!(
        (&ended["stdout"], &ended["stderr"]),
        (&json!("out\n"), &json!("err\n"))
    );
    let running = output(&mut client, &stays);
    assert_eq!(
        (&running["running"], &running["stdout"]),
        (&json!(true), &json!("1000\n"))
    );
    let sent = client.call("kill_process", &json!({"id": stays, "signal": "TERM"}));
    assert_eq!(
        sent["structuredContent"],
        json!({"id": stays, "signal": "TERM"})
    );
    let client = std::cell::RefCell::new(client);
    eventually("the second one has ended", || {
        output(&mut client.borrow_mut(), &stays)["exit_code"] == 143
    });
    let mut client = client.into_inner();
    for (tool, arguments) in [
        ("kill_process", json!({"id": stays})),
        ("kill_process", json!({"id": 99})),
        ("kill_process", json!({"id": ends, "signal": "NONSENSE"})),
        ("get_process_output", json!({"id": 99})),
    ] {
        let refusal = client.refused(tool, &arguments);
        assert!(refusal.contains("runner: "), "{refusal}");
    }
}

#[test]
fn files_are_written_read_in_parts_and_listed() {
    let host = Host::new();
    let mut client = Client::start(&host, &["--rw", "."]);
    let path = "new/dir/file.txt";
    let written = json!({"path": path, "content": "ä€𝄞\n"});
    let written = client.call("write_file", &written);
    assert_eq!(
        written["structuredContent"],
        json!({"path": path, "size": 10})
    );
    // In parts of at most four bytes, of which none cuts a character.
    let (mut offset, mut parts) = (json!(0), Vec::new());
    while !offset.is_null() {
        let part = json!({"path": path, "offset": offset, "limit": 4});
        let part = client.call("read_file", &part)["structuredContent"].clone();
        assert_eq!(
            (&part["encoding"], &part["size"]),
            (&json!("utf-8"), &json!(10))
        );
        parts.push(part["content"].as_str().expect("text").to_owned());
        offset = part["next_offset"].clone();
    }
    assert_eq!(parts, ["ä", "€", "𝄞", "\n"]);
    // It is written in place: the mode stays.
    client.shell("chmod 755 new/dir/file.txt; ln -s file.txt new/dir/link; mkfifo new/fifo");
    client.call(
        "write_file",
        &json!({"path": "new/dir/link", "content": ""}),
    );
    assert_eq!(
        client.shell("stat -c %a:%s new/dir/file.txt")["stdout"],
        "755:0\n"
    );
    let empty = client.call("read_file", &json!({"path": path}));
    assert_eq!(empty["structuredContent"]["content"], "");
    let listed = client.call("list_files", &json!({"path": "new", "depth": 3}));
    assert_eq!(
        listed["content"][1]["text"],
        "dir/\ndir/file.txt\ndir/link@\nfifo=\n"
    );
    client.shell("touch $(seq 20)");
    let cut = client.call("list_files", &json!({"limit": 5}));
    assert_eq!(cut["structuredContent"]["truncated"], true);
    assert_eq!(
        cut["structuredContent"]["entries"]
            .as_array()
            .expect("a list")
            .len(),
        5
    );
    for (tool, arguments, problem) in [
        ("read_file", json!({"path": "none"}), "not found"),
        ("read_file", json!({"path": "new"}), "not a regular file"),
        (
            "read_file",
            json!({"path": "new/fifo"}),
            "not a regular file",
        ),
        (
            "read_file",
            json!({"path": "/dev/zero"}),
            "not a regular file",
        ),
        (
            "read_file",
            json!({"path": path, "limit": 262_145}),
            "expected 1 to 262144",
        ),
        (
            "write_file",
            json!({"path": "new/fifo", "content": ""}),
            "not a regular file",
        ),
        (
            "write_file",
            json!({"path": "new", "content": ""}),
            "not a regular file",
        ),
        (
            "write_file",
            json!({"path": "/usr/new", "content": ""}),
            "Read-only file system",
        ),
        (
            "write_file",
            json!({"path": "a", "content": "?", "encoding": "base64"}),
            "not base64",
        ),
        ("list_files", json!({"path": path}), "not a directory"),
        ("list_files", json!({"depth": 17}), "expected 1 to 16"),
    ] {
        let refusal = client.refused(tool, &arguments);
        assert!(refusal.contains(problem), "{tool} {arguments}: {refusal}");
    }
}

#[test]
fn a_large_file_is_written_as_a_whole() {
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    let content = "0123456789abcde\n".repeat(4 << 16);
    client.call(
        "write_file",
        &json!({"path": "/tmp/large", "content": content}),
    );
    let sum = client.shell("tr -d '0-9a-e\\n' < /tmp/large | wc -c; wc -c < /tmp/large");
    assert_eq!(sum["stdout"], "0\n4194304\n");
    let more = json!({"path": "/tmp/more", "content": content + "x"});
    let refusal = client.refused("write_file", &more);
    assert!(refusal.contains("expected at most 4194304"), "{refusal}");
    // A disk that is too small is an error, not a short file that passes for the whole.
    let mut small = Client::start(&host, &["--tmpfs", "/small:64k"]);
    let content = "x".repeat(100_000);
    let refusal = small.refused(
        "write_file",
        &json!({"path": "/small/a", "content": content}),
    );
    assert!(refusal.contains("No space left on device"), "{refusal}");
}

#[test]
fn a_denial_is_explained_by_the_flags_of_the_server() {
    let host = Host::new();
    let directory = host.ground.workspace();
    // The first flag is unknown to `why`.
    let flags = [
        "--idle-timeout",
        "50s",
        "--ro",
        ".",
        "--allow-net=example.com",
    ];
    let mut client = Client::start(&host, &flags);
    let file = directory.join("file").display().to_string();
    std::fs::write(&file, "").expect("written");
    let mut verdict = |arguments: Value| {
        let result = client.call("explain_denial", &arguments);
        let answer = &result["structuredContent"]["answer"];
        assert!(
            text(&result).contains(answer["rule"].as_str().expect("a rule")),
            "{result}"
        );
        answer["verdict"].as_str().expect("a verdict").to_owned()
    };
    assert_eq!(verdict(json!({"path": file})), "allowed");
    assert_eq!(
        verdict(json!({"path": file, "operation": "write"})),
        "denied"
    );
    assert_eq!(verdict(json!({"path": "/etc/shadow"})), "denied");
    assert_eq!(verdict(json!({"host": "example.com"})), "allowed");
    assert_eq!(verdict(json!({"host": "example.org:80"})), "denied");
    assert_eq!(verdict(json!({"syscall": "ptrace"})), "denied");
    for (arguments, problem) in [
        (json!({}), "at its end only"),
        (json!({"path": "/a", "host": "a.com"}), "expected one of"),
        (
            json!({"host": "a.com", "operation": "read"}),
            "expected one of",
        ),
        (json!({"syscall": "nonsense"}), "unknown system call"),
        (json!({"host": "--rw=/"}), "--host"),
    ] {
        let refusal = client.refused("explain_denial", &arguments);
        assert!(refusal.contains(problem), "{refusal}");
    }
}

/// `exec` and `why` get the flags of `create` but these (`OF_CREATE_ALONE`).
#[test]
fn create_has_no_other_flags_than_run_but_those_that_the_server_knows() {
    let host = Host::new();
    let flags = |words: &[&str]| {
        let help = host.say(&[words, &["--help"]].concat()).stdout;
        let words = help.lines().filter_map(|line| {
            let flag = line.trim_start();
            let flag = flag.split_once(", ").map_or(flag, |(_short, long)| long);
            flag.starts_with("--")
                .then(|| flag.split(' ').next().map(str::to_owned))?
        });
        words.collect::<BTreeSet<String>>()
    };
    let alone = &flags(&["sandbox", "create"]) - &flags(&["run"]);
    let known = [
        "--idle-timeout",
        "--label",
        "--label-file",
        "--name",
        "--pause-after-idle",
    ];
    assert_eq!(alone, known.map(str::to_owned).into());
}

#[test]
fn progress_is_told_while_a_command_runs() {
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    let id = client.request(
        "tools/call",
        &json!({
            "name": "execute_command",
            "arguments": {"command": "printf 12345; sleep 2.5"},
            "_meta": {"progressToken": "token"},
        }),
    );
    assert_eq!(client.answer(id)["result"]["isError"], false);
    let told: Vec<&Value> = client.notifications.iter().collect();
    assert!((1..=3).contains(&told.len()), "{told:?}");
    for progress in told {
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "token");
        let message = progress["params"]["message"].as_str().expect("text");
        assert!(message.contains("5 bytes of output"), "{message}");
    }
}

/// The scripts of the file tools use nothing of GNU.
#[test]
fn in_an_image_the_tools_need_no_more_than_busybox() {
    let Some(image) = support::images::tiny() else {
        return;
    };
    let host = Host::new();
    let mut client = Client::start(&host, &["--image", &image.place()]);
    assert_eq!(
        client.shell("pwd; echo $GREETING")["stdout"],
        "/data\nhello\n"
    );
    let path = "/tmp/a/ä%s\n-x";
    let content = "0123456789\u{0}";
    client.call("write_file", &json!({"path": path, "content": content}));
    let read = client.call("read_file", &json!({"path": path, "offset": 3, "limit": 4}));
    let read = &read["structuredContent"];
    assert_eq!(
        (&read["content"], &read["next_offset"]),
        (&json!("3456"), &json!(7))
    );
    assert_eq!(read["size"], 11);
    let listed = client.call("list_files", &json!({"path": "/tmp", "depth": 2}));
    let expected = json!([
        {"path": "a", "kind": "directory", "exact": true},
        {"path": "a/ä%s\n-x", "kind": "file", "exact": true},
    ]);
    assert_eq!(listed["structuredContent"]["entries"], expected);
    let id = client.background("echo up; exec sleep 1000");
    client.call("kill_process", &json!({"id": id}));
    for path in ["/tmp/none", "/tmp", "/dev/zero"] {
        let refusal = client.refused("read_file", &json!({"path": path}));
        assert!(refusal.contains("not "), "{refusal}");
    }
}
