//! Hostile manifests through the program: each is refused with its position, and leaves nothing.

use super::inputs::make_fifo;
use support::text;
use support::{Done, Ground, skip};

/// Runs a bundle with this manifest, and the same with `--manifest`; both are refused in the same way.
#[track_caller]
fn refused(manifest: impl AsRef<[u8]>) -> Done {
    let ground = Ground::new();
    let own = ground.write("own.yaml", manifest.as_ref());
    let folder = ground.path("folder");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("manifest.yaml"), manifest.as_ref()).expect("written");
    std::fs::write(folder.join("body.sh"), "echo ran\n").expect("written");
    let done = ground.exec(&[], &support::bundles::pack(&folder));
    assert_eq!((done.outcome(), done.code), ("refused", 125), "{done:#?}");
    done.assert_nothing_ran();
    let plain = ground.script("run: body.sh\n", "echo ran\n");
    let of_caller = ground.exec(&["--manifest", text(&own)], &plain);
    assert_eq!(of_caller.error(), done.error(), "{of_caller:#?}");
    of_caller.assert_nothing_ran();
    done
}

#[track_caller]
fn refused_at(manifest: impl AsRef<[u8]>, code: &str, place: &str) {
    let done = refused(manifest);
    done.assert_error("refused", code).assert_message(place);
}

/// G-01, G-02, G-03.
#[test]
fn aliases_that_multiply_or_contain_themselves_are_refused() {
    let mut bomb = "run: body.sh\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let one = format!("*a{}", level - 1);
        let all = vec![one; 9].join(", ");
        bomb.push_str(&format!("  a{level}: &a{level} [{all}]\n"));
    }
    let done = refused(&bomb);
    assert!(
        done.report["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("manifest.yaml"))
    );
    let done = refused("run: body.sh\nmetadata: &a [*a]\n");
    done.assert_message("manifest.yaml:2:");
}

/// G-04.
#[test]
fn a_hundred_thousand_levels_do_not_overflow_the_stack() {
    let flow = format!("run: body.sh\nmetadata: {}\n", "[".repeat(100_000));
    refused(&flow).assert_message("manifest.yaml");
    let json = format!(
        "{{\"run\": \"body.sh\", \"metadata\": {}",
        "[".repeat(100_000)
    );
    let ground = Ground::new();
    let own = ground.write("own.json", json);
    let done = ground.exec(
        &["--manifest", text(&own)],
        &ground.script("run: body.sh\n", ""),
    );
    assert_eq!(done.outcome(), "refused", "{done:#?}");
}

/// G-06.
#[test]
fn a_duplicate_key_is_refused_with_both_positions() {
    refused_at(
        "run: body.sh\nname: x\nrun: other.sh\n",
        "duplicate_key",
        "manifest.yaml:3:1",
    );
    refused_at(
        "run: body.sh\nrunner: {limits: {timeout_ms: 1, timeout_ms: 2}}\n",
        "duplicate_key",
        "manifest.yaml:2:",
    );
    refused_at(
        "run: body.sh\nmetadata: {<<: {a: 1}}\n",
        "merge_key_refused",
        "manifest.yaml:2:",
    );
}

/// G-07.
#[test]
fn an_unknown_field_is_refused_with_the_one_that_was_meant() {
    let done = refused("run: body.sh\nrunner:\n  limits:\n    timeuot_ms: 1\n");
    done.assert_error("refused", "unknown_key")
        .assert_message("manifest.yaml:4:5")
        .assert_hint("timeout_ms");
}

/// G-08, G-09, G-10.
#[test]
fn a_limit_that_is_no_whole_number_in_range_is_refused_with_its_place() {
    for value in [
        "\"10\"",
        "true",
        "[]",
        "null",
        "{}",
        "-1",
        "0",
        "1e309",
        ".nan",
        ".inf",
        "0x10",
        "0o17",
        "010",
        "1_000",
        "9223372036854775808",
        "18446744073709551616",
        "1.5",
        "12:30:00",
    ] {
        let done = refused(format!(
            "run: body.sh\nrunner:\n  limits:\n    timeout_ms: {value}\n"
        ));
        done.assert_message("manifest.yaml:4:");
    }
    let done = refused("run: body.sh\nrunner: {limits: {memory_mb: 18446744073709551615}}\n");
    done.assert_message("manifest.yaml:2:");
}

/// G-12, G-13, G-14.
#[test]
fn other_encodings_documents_and_tags_are_refused() {
    refused_at(
        b"run: body.sh\nname: \xff\n",
        "manifest_not_utf8",
        "manifest.yaml",
    );
    refused_at(b"\xff\xfer\0u\0n\0", "manifest_not_utf8", "manifest.yaml");
    refused_at(
        "run: body.sh\nname: \"a\0b\"\n",
        "manifest_nul_character",
        "manifest.yaml",
    );
    refused_at(
        "run: body.sh\n---\nrun: x\n",
        "manifest_second_document",
        "manifest.yaml",
    );
    refused_at("", "manifest_empty", "manifest.yaml");
    refused_at("# words\n", "manifest_empty", "manifest.yaml");
    refused_at(
        "run: !!python/object/apply:os.system [id]\n",
        "tag_refused",
        "manifest.yaml:1:",
    );
    refused_at(
        "run: !include /etc/passwd\n",
        "tag_refused",
        "manifest.yaml:1:",
    );
}

/// G-05, G-19.
#[test]
fn an_oversized_or_special_manifest_file_is_refused_without_blocking() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "echo ran\n");
    let fifo = ground.path("fifo.yaml");
    make_fifo(&fifo);
    let large = ground.write(
        "large.yaml",
        format!("run: body.sh\n#{}\n", "x".repeat(2 << 20)),
    );
    let gibibyte = ground.write("gibibyte.yaml", "");
    let hole = std::fs::File::options().write(true).open(&gibibyte);
    hole.and_then(|file| file.set_len(1 << 30)).expect("a hole");
    let missing = ground.path("missing.yaml");
    for path in [
        text(&fifo),
        text(&large),
        text(&missing),
        text(&gibibyte),
        "/dev/zero",
        "/proc/self",
        "/",
    ] {
        let done = ground.exec(&["--manifest", path], &bundle);
        done.assert_error("refused", "manifest_unreadable")
            .assert_message(path)
            .assert_nothing_ran();
    }
    // A stream without an end, through a link to it.
    let mut case = ground.command(&["exec", "--manifest", "/dev/stdin", text(&bundle)]);
    let zeros = std::fs::File::open("/dev/zero").expect("opened");
    case.command.stdin(zeros);
    case.done()
        .assert_error("refused", "manifest_unreadable")
        .assert_nothing_ran();
    // The caller may name a link: the path is the caller's choice.
    let real = ground.write("real.yaml", "run: [echo, linked]\n");
    let link = ground.path("link.yaml");
    std::os::unix::fs::symlink(real, &link).expect("linked");
    let done = ground.exec(&["--manifest", text(&link)], &bundle);
    done.assert_exited(0);
    assert_eq!(done.text(), "linked\n");
    // In the bundle as well, it is read only up to the limit.
    let long = format!("run: body.sh\n#{}\n", "x".repeat(2 << 20));
    let done = ground.exec(&[], &ground.script(&long, "echo ran\n"));
    done.assert_error("refused", "manifest_unreadable")
        .assert_nothing_ran();
}

/// G-16.
#[test]
fn a_command_that_cannot_be_started_is_refused_before_the_kernel_says_so() {
    for run in [
        "''",
        "[]",
        "['']",
        "['a', \"b\\0\"]",
        "{shell: ''}",
        "{file: ''}",
        "{exec: []}",
        "3",
        "true",
        "null",
    ] {
        let done = refused(format!("run: {run}\n"));
        done.assert_message("manifest.yaml:1:");
    }
    let long = "x".repeat(200_000);
    refused(format!("run: [echo, {long}]\n")).assert_error("refused", "run_invalid");
}

/// G-16: each argument is short enough, but together with the caller's they exceed the limit of execve(2).
#[test]
fn a_command_line_beyond_the_kernels_limit_is_reported() {
    let ground = Ground::new();
    let many = vec!["x".repeat(1_000); 900].join(", ");
    let bundle = ground.script(&format!("run: [echo, {many}]\n"), "");
    let word = "y".repeat(120_000);
    let mut words = vec!["exec", text(&bundle), "--"];
    words.extend([word.as_str(); 12]);
    let done = ground.command(&words).done();
    done.assert_error("failed", "program_not_executable")
        .assert_message("Argument list too long");
    let hint = done.report["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("as an input file"), "{hint}");
    assert_eq!(done.code, 126, "{done:#?}");
}

/// G-15, G-17.
#[test]
fn paths_and_hosts_that_mean_something_else_are_refused() {
    for path in [
        "~/x",
        "file:///etc/passwd",
        "https://example.com/x",
        "$HOME/../x",
        "a\\b",
    ] {
        let ground = Ground::new();
        let manifest = format!("run: body.sh\ninputsFiles: {{a: {{path: '{path}'}}}}\n");
        let done = ground.exec_script(&[], &manifest, "cat /scratch/a\n");
        assert_eq!(done.outcome(), "refused", "{path}: {done:#?}");
        done.assert_nothing_ran();
    }
    for host in [
        "'*'",
        "''",
        "' host'",
        "'host:99999'",
        "'http://h'",
        "'h/'",
        "'0x7f.1'",
        "'127.1'",
        "'0177.0.0.1'",
        "'10.0.0.0/8'",
    ] {
        let done = refused(format!("run: body.sh\nnetwork: {{egress: [{host}]}}\n"));
        done.assert_error("refused", "egress_invalid")
            .assert_message("manifest.yaml:2:");
    }
}

/// G-20.
#[test]
fn terminal_control_characters_are_escaped() {
    let ground = Ground::new();
    for manifest in [
        "run: \"gone\\e[31m\\u0007.sh\"\n",
        "\"ru\\e]0;title\\u0007n\": x\nrun: body.sh\n",
        "run: body.sh\nrunner: {limits: {timeout_ms: \"\\e[2J\"}}\n",
        "run: body.sh\noutputsFiles: {\"k\\e[1m\": {path: x}}\n",
        "run: body.sh\nnetwork: {egress: [\"\\e[1m\"]}\n",
        "run: body.sh\nname: \"\\u202e\\u009b31m\"\nname: x\n",
    ] {
        let done = ground.exec_script(&[], manifest, "echo ran\n");
        assert_eq!(done.outcome(), "refused", "{manifest}: {done:#?}");
        let bad = |sign: char| sign != '\n' && (sign.is_control() || sign == '\u{202e}');
        assert!(!done.stderr.contains(bad), "{manifest}: {:?}", done.stderr);
    }
    // A name of the archive, a path of the command line and text of the body in an error.
    let bundle = ground.bundle(&[("manifest.yaml", "run: x.sh\n"), ("x\u{1b}[1m.sh", "")]);
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "run_target_missing");
    assert!(!done.stderr.contains('\u{1b}'), "{:?}", done.stderr);
    let manifest = "run: body.sh\noutputs: {type: object, properties: {n: {type: integer}}}\n";
    let done = ground.exec(
        &[],
        &ground.script(
            manifest,
            "printf '{\"n\": \"\\\\u001b[1m\"}' > $RUNNER_OUTPUT\n",
        ),
    );
    done.assert_error("failed", "invalid-output");
    assert!(!done.stderr.contains('\u{1b}'), "{:?}", done.stderr);
}

/// G-24.
#[test]
fn a_hostile_schema_is_refused_or_bounded() {
    for schema in [
        "{$ref: 'http://127.0.0.1:9/x'}",
        "{$ref: 'file:///etc/passwd'}",
        "{type: nonsense}",
        "{properties: {a: {pattern: '(?=x)'}}}",
    ] {
        let done = refused(format!("run: body.sh\noutputs: {schema}\n"));
        done.assert_error("refused", "schema_invalid");
    }
    let ground = Ground::new();
    let manifest = "run: body.sh\ninputs: {type: object, properties: {a: {pattern: '^(a+)+$'}}}\n";
    let inputs = format!("{{\"a\": \"{}!\"}}", "a".repeat(50_000));
    let done = ground.exec(
        &["--inputs", &inputs],
        &ground.script(manifest, "echo ran\n"),
    );
    done.assert_error("refused", "invalid-input")
        .assert_nothing_ran();
}

/// A schema of less than 2 KiB whose validation takes years: each level refers twice to the next,
/// by names that occur in data too.
fn endless_schema() -> String {
    let mut parts: Vec<String> = (0..40)
        .map(|level| {
            let below = format!("{{$ref: '#l{}'}}", level + 1);
            format!("l{level}: {{$anchor: l{level}, allOf: [{below}, {below}]}}")
        })
        .collect();
    parts.push("l40: {$anchor: l40, type: object}".to_owned());
    let decoys: Vec<String> = (0..40)
        .map(|level| format!("{{$anchor: l{level}}}"))
        .collect();
    let (parts, decoys) = (parts.join(", "), decoys.join(", "));
    format!("{{$defs: {{{parts}}}, $ref: '#l0', examples: [{decoys}]}}")
}

/// G-24: before the body, and after it: then the output is not validated, but not lost either.
#[test]
fn a_schema_without_an_end_ends_within_the_wall_time() {
    let ground = Ground::new();
    let schema = endless_schema();
    let manifest = format!("run: body.sh\ninputs: {schema}\n");
    let bundle = ground.script(&manifest, "echo ran\n");
    let done = ground.exec(&["--timeout=1s", "--inputs={}"], &bundle);
    done.assert_error("refused", "schema_too_costly")
        .assert_nothing_ran();
    let manifest = format!("run: body.sh\noutputs: {schema}\n");
    let bundle = ground.script(&manifest, "echo '{}'\n");
    let done = ground.exec(&["--timeout=1s"], &bundle);
    done.assert_error("failed", "invalid-output")
        .assert_message("longer than 1s");
    let manifest = format!("run: body.sh\ninputs: {schema}\n");
    let bundle = ground.script(&manifest, "echo ran\n");
    let path = text(&bundle);
    let words = ["plan", "--timeout=1s", "--inputs={}", path];
    let done = ground.command(&words).without("I8").done();
    let said = format!("{}{}", done.text(), done.stderr);
    assert!(said.contains("schema_too_costly"), "{said}");
}

/// G-24: the process that validates a schema is ended with the run.
#[test]
fn signals_end_the_validation_of_a_schema() {
    let ground = Ground::new();
    let manifest = format!("run: body.sh\ninputs: {}\n", endless_schema());
    let bundle = ground.script(&manifest, "echo ran\n");
    let words = ["exec", "--inputs={}", text(&bundle)];
    let mut running = ground.command(&words).start();
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    if !std::path::Path::new(&children).exists() {
        skip("this kernel does not list children (CONFIG_PROC_CHILDREN)");
        return;
    }
    // The sandbox's init is the first.
    running.until("a judge beside the sandbox", || {
        let listed = std::fs::read_to_string(&children).unwrap_or_default();
        1 < listed.split_ascii_whitespace().count()
    });
    running.signal(rustix::process::Signal::TERM);
    let done = running.done();
    assert_eq!(done.outcome(), "cancelled", "{done:#?}");
    assert_eq!(done.code, 143, "{done:#?}");
    assert_eq!(done.text(), "");
}

/// G-18.
#[test]
fn limits_below_the_minimum_end_the_run_with_a_clear_message() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {limits: {memory_mb: 1}}\n";
    let bundle = ground.script(manifest, "echo ran\n");
    ground
        .exec(&[], &bundle)
        .assert_error("refused", "limit_too_small")
        .assert_message("below 4 MiB")
        .assert_nothing_ran();
    // One process is the body itself: its shell cannot start another one, and prints so.
    let bundle = ground.script("run: body.sh\n", "echo ran; /bin/true; echo $?\n");
    let done = ground.exec(&["--pids", "1"], &bundle);
    if done.outcome() == "refused" {
        done.assert_error("refused", "limit_too_small");
    } else {
        assert!(!done.text().contains("ran\n0\n"), "{done:#?}");
        assert!(!done.stderr.is_empty(), "{done:#?}");
    }
}

/// G-23: language, time zone and tool variables of the caller have no effect.
#[test]
fn the_caller_s_environment_does_not_change_how_a_manifest_is_read() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nname: I\u{131}\nrunner: {limits: {timeout_ms: 7000, memory_mb: 200}}\n\
        outputsFiles: {I: {path: out/<runId>/i}}\nmetadata: {when: 2024-01-01, sum: 1.5, no: no}\n";
    let bundle = ground.script(manifest, "printf I > /scratch/I; printf %s \"$LANG\"\n");
    let read = |variables: &[(&str, &str)]| {
        let workspace = ground.workspace();
        let words = ["exec", "--workspace", text(&workspace), text(&bundle)];
        let case = variables
            .iter()
            .fold(ground.command(&words), |case, (name, value)| {
                case.env(name, value)
            });
        let done = case.done();
        done.assert_exited(0);
        assert_eq!(done.output("I")["state"], "synced", "{done:#?}");
        (done.text(), done.report["limits"].clone())
    };
    let plain = read(&[]);
    for variables in [
        &[("LC_ALL", "tr_TR.UTF-8"), ("LANG", "tr_TR.UTF-8")][..],
        &[
            ("LC_NUMERIC", "de_DE.UTF-8"),
            ("LC_TIME", "ja_JP"),
            ("TZ", ":../x"),
        ],
        &[
            ("LC_ALL", "C"),
            ("POSIXLY_CORRECT", "1"),
            ("RUST_LOG", "trace"),
        ],
    ] {
        assert_eq!(read(variables), plain, "{variables:?}");
    }
}

/// G-19, A-59: the validated file is the one that is used, because each is opened once.
#[test]
fn a_bundle_and_a_manifest_of_the_caller_are_opened_once() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "echo ran\n");
    let own = ground.write("own.yaml", "run: [echo, own]\n");
    let log = ground.path("trace");
    let mut command = std::process::Command::new("strace");
    command
        .args(["-e", "trace=open,openat,openat2,creat", "-o", text(&log)])
        .arg(support::runner())
        .args(["exec", "--manifest", text(&own), text(&bundle)]);
    if std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_err()
    {
        support::skip("strace is not installed");
        return;
    }
    let done = ground.harness(command).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "own\n", "{done:#?}");
    let trace = std::fs::read_to_string(&log).expect("read");
    for path in [&own, &bundle] {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let opened = trace.lines().filter(|line| line.contains(name));
        let opened: Vec<&str> = opened.filter(|line| !line.contains("= -1 ")).collect();
        assert_eq!(opened.len(), 1, "{name}: {opened:#?}");
    }
}
