//! Each row of the table of run forms, with the interpreters of this host.

use support::bodies::write_program;
use support::{Ground, skip};

fn has(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|directory| std::path::Path::new(directory).join(program).exists())
}

fn node_strips_types() -> bool {
    let told = std::process::Command::new("node").arg("--version").output();
    let text = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut parts = text.trim_start_matches('v').split('.');
    let mut next = || {
        parts
            .next()
            .and_then(|part| part.parse::<u32>().ok())
            .unwrap_or(0)
    };
    (22, 18) <= (next(), next())
}

#[test]
fn a_script_runs_with_the_interpreter_of_its_extension() {
    let ground = Ground::new();
    let rows = [
        (
            "node",
            "main.js",
            "console.log('js', process.argv.slice(2).join())\n",
            "js ",
        ),
        (
            "node",
            "main.mjs",
            "import fs from 'node:fs'; console.log('mjs', typeof fs.readFileSync)\n",
            "mjs function",
        ),
        (
            "node",
            "main.cjs",
            "console.log('cjs', typeof require)\n",
            "cjs function",
        ),
        (
            "python3",
            "main.py",
            "import sys; print('py', sys.argv)\n",
            "py ['main.py']",
        ),
        (
            "bash",
            "main.sh",
            "echo sh ${BASH_VERSION:+bash}\n",
            "sh bash",
        ),
    ];
    for (interpreter, name, body, said) in rows {
        if !has(interpreter) {
            skip(&format!("{interpreter} is not installed"));
            continue;
        }
        let manifest = format!("run: {name}\n");
        let bundle = ground.bundle(&[("manifest.yaml", &manifest), (name, body)]);
        let done = ground.exec(&[], &bundle);
        done.assert_exited(0);
        assert_eq!(done.text().trim_end(), said.trim_end(), "{name}");
        assert_eq!(done.report["run_form"], "file");
    }
}

#[test]
fn typescript_runs_with_the_tsx_that_the_bundle_brings() {
    let ground = Ground::new();
    let files = [
        ("manifest.yaml", "run: main.ts\n"),
        ("main.ts", "console.log(1 as number)\n"),
        ("node_modules/.bin/tsx", "#!/bin/sh\necho tsx \"$@\"\n"),
    ];
    let done = ground.exec(&[], &ground.bundle(&files));
    done.assert_exited(0);
    assert_eq!(done.text(), "tsx main.ts\n");
}

#[test]
fn a_program_of_the_bundle_precedes_a_script_on_the_caller_s_path() {
    let ground = Ground::new();
    let script = ground.program("planted/tool-7f3a", "#!/bin/sh\necho of the caller\n");
    for (files, outcome) in [
        (
            &[(
                "node_modules/.bin/tool-7f3a",
                "#!/bin/sh\necho of the bundle\n",
            )][..],
            "exited",
        ),
        (&[], "refused"),
    ] {
        let manifest = ("manifest.yaml", "run: [tool-7f3a]\n");
        let bundle = ground.bundle(&[&[manifest], files].concat());
        let mut case = ground.command(&["exec", bundle.to_str().expect("plain")]);
        let path = script.parent().expect("a directory").display();
        case.command.env("PATH", format!("{path}:/usr/bin:/bin"));
        let done = case.done();
        assert_eq!(done.report["outcome"], outcome, "{done:#?}");
    }
}

#[test]
fn typescript_that_nothing_here_runs_is_refused_before_anything_is_fetched() {
    let ground = Ground::new();
    // Node strips types but does not know JSX.
    for name in ["main.ts", "main.mts", "main.tsx"] {
        let manifest = format!("run: {name}\n");
        let bundle = ground.bundle(&[("manifest.yaml", &manifest), (name, "1\n")]);
        let done = ground.exec(&[], &bundle);
        if has("tsx") || (name != "main.tsx" && node_strips_types()) {
            // This host has the interpreter.
            done.assert_exited(0);
            continue;
        }
        done.assert_error("refused", "run_needs_tsx")
            .assert_hint("tsx")
            .assert_nothing_ran();
    }
}

/// B-62: the runner does not start, on the host, a program that a body left in the caller's `PATH`.
#[test]
fn no_program_is_executed_outside_to_learn_its_version() {
    let ground = Ground::new();
    let planted = ground.path("planted");
    std::fs::create_dir(&planted).expect("made");
    let marker = ground.path("executed");
    for name in ["node", "tsx", "npx", "python3"] {
        let path = planted.join(name);
        let text = format!("#!/bin/sh\n: >{}\necho v24.0.0\n", marker.display());
        write_program(&path, text);
    }
    let provider = "run: main.ts\nsandbox: {provider: node-permission}\n";
    for manifest in ["run: main.ts\n", provider, "run: main.py\n"] {
        let files = [
            ("manifest.yaml", manifest),
            ("main.ts", "1\n"),
            ("main.py", "1\n"),
        ];
        let bundle = ground.bundle(&files);
        for verb in ["plan", "exec"] {
            // A plan has no report.
            let case = ground.command(&[verb, bundle.to_str().expect("plain")]);
            let mut case = case.without("I8");
            case.command
                .env("PATH", format!("{}:/usr/bin:/bin", planted.display()));
            let done = case.done();
            assert!(!marker.exists(), "{verb} {manifest}: {done:#?}");
        }
    }
}

#[test]
fn an_array_is_executed_verbatim() {
    let ground = Ground::new();
    let manifest = "run: [printf, '%s\\n', '*', '$HOME', 'a b', ';', '`id`', '']\n";
    let done = ground.exec(&[], &ground.script(manifest, ""));
    done.assert_exited(0);
    assert_eq!(done.text(), "*\n$HOME\na b\n;\n`id`\n\n");
    assert_eq!(done.report["run_form"], "exec");
}

#[test]
fn text_with_signs_of_a_shell_or_spaces_is_a_shell_command() {
    let ground = Ground::new();
    for (run, said) in [
        ("echo a && echo b", "a\nb\n"),
        ("false || echo b", "b\n"),
        ("echo abc | tr a-c x-z", "xyz\n"),
        ("echo a; echo b", "a\nb\n"),
        ("echo a > /tmp/f; cat < /tmp/f", "a\n"),
        ("echo `echo a`", "a\n"),
        ("echo $(echo a) ${HOME}", "a /home/runner\n"),
        ("sleep 0 & wait; echo a", "a\n"),
        ("echo a\necho b", "a\nb\n"),
        ("echo two words", "two words\n"),
    ] {
        let done = ground.exec(&["--run", run], &ground.bundle(&[]));
        done.assert_exited(0);
        assert_eq!(done.text(), said, "{run}");
        assert_eq!(done.report["run_form"], "shell");
        assert!(!done.warns("run_ambiguous"), "{done:#?}");
    }
}

#[test]
fn a_text_with_spaces_that_is_also_a_file_runs_as_a_shell_command_and_says_so() {
    let ground = Ground::new();
    let files = [
        ("manifest.yaml", "run: echo tool.sh\n"),
        ("echo tool.sh", "echo file\n"),
    ];
    let done = ground.exec(&[], &ground.bundle(&files));
    done.assert_exited(0);
    assert_eq!(done.text(), "tool.sh\n");
    assert!(done.warns("run_ambiguous"));
    assert!(
        done.stderr.contains("{file: \"echo tool.sh\"}"),
        "{}",
        done.stderr
    );
    let explicit = "{\"file\": \"echo tool.sh\"}";
    let done = ground.exec(&["--run", explicit], &ground.bundle(&files));
    done.assert_exited(0);
    assert_eq!(done.text(), "file\n");
}

#[test]
fn an_executable_without_an_extension_is_executed_itself() {
    let ground = Ground::new();
    let files = [
        ("manifest.yaml", "run: bin/tool\n"),
        ("bin/tool", "#!/bin/sh\necho tool $0 $PWD\n"),
    ];
    let done = ground.exec(&[], &ground.bundle(&files));
    done.assert_exited(0);
    assert_eq!(done.text(), "tool ./bin/tool /bundle\n");
    assert_eq!(done.report["run_form"], "exec");
    for (name, contents) in [
        ("bin/tool", "echo\n"),
        ("tool.rb", "puts 1\n"),
        ("main.PY", "1\n"),
    ] {
        let manifest = format!("run: {name}\n");
        let bundle = ground.bundle(&[("manifest.yaml", &manifest), (name, contents)]);
        let done = ground.exec(&[], &bundle);
        done.assert_error("refused", "run_unknown_extension")
            .assert_nothing_ran();
    }
}

#[test]
fn a_path_that_leaves_the_bundle_is_refused() {
    let ground = Ground::new();
    for run in ["/x.py", "../x.py", "a/../../x.py", "/bin/sh"] {
        for manifest in [format!("run: {run}\n"), format!("run: {{file: {run}}}\n")] {
            let done = ground.exec(&[], &ground.script(&manifest, ""));
            done.assert_error("refused", "run_invalid")
                .assert_nothing_ran();
        }
    }
}

#[test]
fn an_explicit_form_is_honoured_whatever_the_value_looks_like() {
    let ground = Ground::new();
    let files = [
        ("a && b.sh", "echo file $0\n"),
        ("tool", "#!/bin/sh\necho program\n"),
    ];
    for (run, said) in [
        ("{\"file\": \"a && b.sh\"}", "file a && b.sh\n"),
        ("{\"shell\": \"tool\"}", "found no such tool\n"),
        ("{\"shell\": \"./tool\"}", "program\n"),
        ("{\"exec\": [\"./tool\"]}", "program\n"),
    ] {
        let done = ground.exec(&["--run", run], &ground.bundle(&files));
        if said.starts_with("found no") {
            done.assert_exited(127);
            continue;
        }
        done.assert_exited(0);
        assert_eq!(done.text(), said, "{run}");
    }
    for run in [
        "run: {file: a, shell: b}\n",
        "run: {fiel: a}\n",
        "run: 3\n",
        "run: {exec: a}\n",
    ] {
        let done = ground.exec(&[], &ground.script(run, ""));
        assert_eq!(done.outcome(), "refused", "{done:#?}");
        done.assert_nothing_ran().assert_message("manifest.yaml:1:");
    }
}

#[test]
fn a_file_that_is_not_in_the_bundle_is_refused_with_the_names_that_are() {
    let ground = Ground::new();
    let files = [
        ("manifest.yaml", "run: src/mian.py\n"),
        ("src/main.py", "1\n"),
    ];
    let done = ground.exec(&[], &ground.bundle(&files));
    done.assert_error("refused", "run_target_missing")
        .assert_hint("src/main.py")
        .assert_nothing_ran();
    let done = ground.exec(&["--run", "src"], &ground.bundle(&files));
    done.assert_error("refused", "run_target_missing")
        .assert_message("is a directory");
}

#[test]
fn arguments_reach_all_three_forms() {
    let ground = Ground::new();
    let bundle = ground.bundle(&[("args.sh", "printf '<%s>' \"$@\"\n")]);
    let bundle = support::text(&bundle);
    for run in ["args.sh", "[\"bash\", \"args.sh\"]", "printf '<%s>' \"$@\""] {
        let words = [
            "exec", "--run", run, bundle, "--", "a b", "$HOME", "", "-x", "--json",
        ];
        let done = ground.command(&words).done();
        done.assert_exited(0);
        assert_eq!(done.text(), "<a b><$HOME><><-x><--json>", "{run}");
    }
}

#[test]
fn a_program_of_an_array_that_is_not_there_is_127() {
    let ground = Ground::new();
    let done = ground.exec(
        &["--run", "[\"no-such-program-7f3a\"]"],
        &ground.bundle(&[]),
    );
    done.assert_error("failed", "program_not_found");
    let done = ground.exec(
        &["--run", "[\"./plain.txt\"]"],
        &ground.bundle(&[("plain.txt", "x")]),
    );
    done.assert_error("failed", "program_not_executable");
}

#[test]
fn a_script_on_the_caller_s_path_does_not_hide_the_interpreter_of_the_system() {
    let ground = Ground::new();
    if !has("python3") {
        skip("python3 is not installed");
        return;
    }
    let shims = ground.write("shims/python", "#!/bin/sh\necho shim\n");
    std::fs::set_permissions(&shims, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("set");
    let bundle = ground.bundle(&[("main.py", "print('python')\n")]);
    let words = ["exec", "--run", "main.py", support::text(&bundle)];
    let path = format!(
        "{}:/usr/bin:/bin",
        support::text(shims.parent().expect("a parent"))
    );
    let done = ground.command(&words).env("PATH", &path).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "python\n");
}
