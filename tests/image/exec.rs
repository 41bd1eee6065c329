//! Bundles with `engine: sandbox`, from the manifest to the image.

use std::path::Path;

use serde_json::{Value, json};

use super::Stored;
use super::layout::{self, Entry, base, file, image, layer};
use support::Done;

/// Templates of a host: `tiny` uses `image`.
fn templates(image: &Path) -> String {
    format!(
        "images:\n\
         - {{ id: tiny, languages: [multi], native: [], cost_tier: 0, source: '{}' }}\n\
         - {{ id: nowhere, languages: [multi], native: [], cost_tier: 9 }}\n",
        layout::place(image)
    )
}

impl Stored {
    /// Runs `runner exec FLAGS… BUNDLE` with these files to its end.
    fn exec(&self, flags: &[&str], files: &[(&str, &str)]) -> Done {
        let bundle = self.ground.bundle(files);
        let bundle = bundle.to_str().expect("text");
        let words = [&["exec"], flags, &[bundle]].concat();
        self.command(&words).done()
    }

    /// Runs `runner plan …`; returns its code and document.
    fn plan(&self, flags: &[&str], files: &[(&str, &str)]) -> (i32, Value) {
        let bundle = self.ground.bundle(files);
        let bundle = bundle.to_str().expect("text");
        let document = self.ground.path("plan.json");
        let mut words = vec!["plan"];
        words.extend(flags);
        words.push(bundle);
        let mut case = self.command(&words);
        // Not a run: there is no report, so the invariants of a run are not checked.
        let mut command = std::process::Command::new("env");
        for (name, value) in case.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.arg(case.command.get_program());
        let is_report = |word: &str| word.starts_with("--json=");
        for word in case.command.get_args() {
            match word.to_str().filter(|word| is_report(word)) {
                Some(_) => command.arg(format!("--json={}", document.display())),
                None => command.arg(word),
            };
        }
        case.command = std::process::Command::new("true");
        let output = command.output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = std::fs::read(&document).unwrap_or_else(|_| panic!("{errors}"));
        let plan = serde_json::from_slice(&text).expect("JSON");
        (output.status.code().expect("a code"), plan)
    }
}

const MAIN: &str = "cat /etc/of-image; echo $PWD; cat data; echo x > written; cat written";

#[test]
fn a_bundle_runs_in_the_image_that_its_manifest_names() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let config = json!({ "WorkingDir": "/srv/app", "Env": ["GREETING=image"] });
    let image = image(&stored.ground, "image", &[base], config);
    stored.policy(&templates(&image));
    let files = [
        (
            "manifest.yaml",
            "run: [sh, main.sh]\nrunner: { engine: sandbox, image: tiny }\n",
        ),
        ("main.sh", MAIN),
        ("data", "of bundle\n"),
    ];
    for found in ["pulled", "store"] {
        let done = stored.exec(&[], &files);
        done.assert_exited(0);
        // The program of a bundle starts in the directory of its files, whatever the image states.
        assert_eq!(
            done.text(),
            "image\n/bundle\nof bundle\nx\n",
            "{}",
            done.stderr
        );
        let told = &done.report["image"];
        assert_eq!(told["id"], "tiny");
        assert_eq!(told["place"], layout::place(&image));
        assert_eq!(
            (&told["found"], &told["layers"]),
            (&json!(found), &json!(1))
        );
        assert_eq!(done.report["runner"]["engine"], "sandbox");
        assert_eq!(done.report["runner"]["image"], "tiny");
    }
}

#[test]
fn a_template_without_a_source_is_refused_with_the_key_that_is_missing() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let image = image(&stored.ground, "image", &[base], json!({}));
    stored.policy(&templates(&image));
    for (template, code) in [
        ("nowhere", "image_source_missing"),
        ("no-such", "image_unknown"),
    ] {
        let manifest =
            format!("run: [sh, -c, echo ran]\nrunner: {{ engine: sandbox, image: {template} }}\n");
        let done = stored.exec(&[], &[("manifest.yaml", &manifest)]);
        assert_eq!(done.report["outcome"], "refused", "{}", done.stderr);
        assert_eq!(done.report["error"]["code"], code);
    }
}

#[test]
fn an_invalid_image_is_refused_before_anything_runs() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let unknown = image(
        &stored.ground,
        "user",
        std::slice::from_ref(&base),
        json!({ "User": "nobody-here" }),
    );
    let relative = image(
        &stored.ground,
        "relative",
        std::slice::from_ref(&base),
        json!({ "WorkingDir": "x" }),
    );
    let many: Vec<layout::Layer> = (0..42)
        .map(|number| layer([(["a", "b"][number % 2], file(&number.to_string()))]))
        .collect();
    let many = image(&stored.ground, "many", &many, json!({}));
    let wide = (0..300).map(|number| (format!("d{number}"), Entry::Directory));
    let wide = image(&stored.ground, "wide", &[base, wide.collect()], json!({}));
    let nowhere = stored.ground.path("nowhere");
    for (image, code) in [
        (unknown, "image_user_unknown"),
        (relative, "image_config_invalid"),
        (many, "image_layers_too_many"),
        (wide, "image_root_too_wide"),
        (nowhere, "layout_unusable"),
    ] {
        let done = stored.run(&image, &[], &["sh", "-c", "echo ran"]);
        assert_eq!(done.report["outcome"], "refused", "{code} {}", done.stderr);
        assert_eq!(done.report["error"]["code"], code, "{}", done.stderr);
        assert_eq!(done.text(), "");
    }
}

#[test]
fn needs_are_satisfied_by_programs_of_the_image() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let status = "Package: libthing\nStatus: install ok installed\nVersion: 1\n\n\
        Package: gone\nStatus: deinstall ok config-files\n";
    let packages = layer([
        ("var", Entry::Directory),
        ("var/lib", Entry::Directory),
        ("var/lib/dpkg", Entry::Directory),
        ("var/lib/dpkg/status", file(status)),
        (
            "bin/node",
            Entry::File(b"#!/bin/sh\necho node $1\n".to_vec(), 0o755),
        ),
        ("node_modules", Entry::Directory),
        ("node_modules/@s", Entry::Directory),
        ("node_modules/@s/near", Entry::Directory),
        (
            "node_modules/@s/near/package.json",
            file(r#"{"version":"2.1.0"}"#),
        ),
        ("opt", Entry::Directory),
        ("opt/packages", Entry::Directory),
        ("opt/packages/named", Entry::Directory),
        (
            "opt/packages/named/package.json",
            file(r#"{"version":"1.0.0"}"#),
        ),
        ("lib", Entry::Directory),
        ("lib/node_modules", Entry::Directory),
        ("lib/node_modules/global", Entry::Directory),
        (
            "lib/node_modules/global/package.json",
            file(r#"{"version":"1.0.0"}"#),
        ),
    ]);
    let image = image(
        &stored.ground,
        "image",
        &[base, packages],
        json!({ "Env": ["PATH=/bin", "NODE_PATH=/opt/packages"] }),
    );
    let listed = "native: [], npm: [told@3.0.0], pip: [told]";
    stored.policy(&templates(&image).replacen("native: []", listed, 1));
    let exec = |needs: &str| {
        let manifest = format!(
            "run: [sh, -c, echo ran]\nrunner: {{ engine: sandbox, image: tiny, needs: {needs} }}\n"
        );
        stored.exec(&[], &[("manifest.yaml", &manifest)])
    };
    for needs in [
        "{ language: node }",
        "{ native: [libthing] }",
        "{ native: [stat] }",
        "{ npm: ['@s/near@^2', named@1, told@3], pip: [told>=1] }",
    ] {
        let done = exec(needs);
        done.assert_exited(0);
        assert_eq!(done.text(), "ran\n", "{needs}");
    }
    for needs in [
        "{ language: python }",
        "{ native: [gone] }",
        "{ native: [git] }",
        "{ npm: ['@s/near@^3'] }",
        "{ npm: [global] }",
        "{ npm: [told@4] }",
        "{ pip: [other] }",
    ] {
        let done = exec(needs);
        assert_eq!(done.report["outcome"], "refused", "{needs} {}", done.stderr);
    }
}

#[test]
fn an_interpreter_is_looked_for_in_the_image_and_never_taken_from_the_host() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let without = image(
        &stored.ground,
        "without",
        std::slice::from_ref(&base),
        json!({}),
    );
    let python = Entry::File(b"#!/bin/sh\necho of image $1\n".to_vec(), 0o755);
    let with = layer([("bin/python3", python)]);
    let with = image(&stored.ground, "with", &[base, with], json!({}));
    let files = [
        ("manifest.yaml", "run: main.py\n"),
        ("main.py", "print('of host')\n"),
    ];
    let place = layout::place(&with);
    let done = stored.exec(&["--image", &place], &files);
    done.assert_exited(0);
    assert_eq!(done.text(), "of image main.py\n");
    assert_eq!(done.report["runner"]["engine"], "sandbox");
    assert_eq!(done.report["bound_programs"], json!([]));
    let place = layout::place(&without);
    let done = stored.exec(&["--image", &place], &files);
    assert_eq!(done.text(), "");
    assert_ne!(done.report["outcome"], "exited", "{}", done.stderr);
}

#[test]
fn a_plan_makes_and_fetches_nothing_and_says_what_a_run_would_pull() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let image = image(&stored.ground, "image", &[base], json!({ "User": "app" }));
    stored.policy(&templates(&image));
    let files = [
        (
            "manifest.yaml",
            "run: [sh, main.sh]\nrunner: { engine: sandbox, image: tiny }\n",
        ),
        ("main.sh", "echo ran"),
    ];
    let (code, plan) = stored.plan(&[], &files);
    assert_eq!(code, 0, "{plan:#}");
    assert!(!stored.store().exists(), "the store was made");
    let told = &plan["image"];
    assert_eq!(
        (&told["id"], &told["found"]),
        (&json!("tiny"), &json!("absent"))
    );
    assert_eq!(
        (&told["user"], &told["digest"]),
        (&Value::Null, &Value::Null)
    );
    stored.exec(&[], &files).assert_exited(0);
    let (code, plan) = stored.plan(&[], &files);
    assert_eq!(code, 0, "{plan:#}");
    let told = &plan["image"];
    assert_eq!(told["found"], "store");
    assert_eq!(told["user"], json!({ "uid": 12, "gid": 34 }));
    assert_eq!(plan["program"]["path"], "/bin/sh");
    assert_eq!(plan["program"]["host_path"], Value::Null);
}

#[test]
fn an_input_file_as_the_program_is_unknown_to_a_plan() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let image = image(&stored.ground, "image", &[base], json!({}));
    stored.policy(&templates(&image));
    stored.ground.program("work/tool", "#!/bin/sh\necho ran\n");
    let workspace = stored.ground.workspace();
    let flags = ["--workspace", workspace.to_str().expect("text")];
    let manifest = "run: { exec: [/scratch/tool] }\ninputsFiles: { tool: { path: tool } }\n\
                    runner: { engine: sandbox, image: tiny }\n";
    let files = [("manifest.yaml", manifest)];
    let done = stored.exec(&flags, &files);
    done.assert_exited(0);
    assert_eq!(done.text(), "ran\n");
    let (code, plan) = stored.plan(&flags, &files);
    assert_eq!(code, 0, "{plan:#}");
}

#[test]
fn a_short_name_is_refused_with_what_to_write_until_the_host_names_a_registry() {
    let stored = Stored::new();
    for (short, meant) in [
        ("python:3.12", "library/python:3.12"),
        ("team/name", "team/name"),
    ] {
        let image = format!("docker://{short}");
        let words = ["run", "--image", &image, "--", "true"];
        stored.policy("{}\n");
        let done = stored.command(&words).done();
        assert_eq!(done.code, 125, "{}", done.stderr);
        let hint = done.report["error"]["hint"].as_str().expect("a hint");
        assert!(
            hint.contains(&format!("docker://REGISTRY/{meant},")),
            "{hint}"
        );
        assert!(hint.contains("oci: {default_registry: REGISTRY}"), "{hint}");
        // The hint is followed: the registry is asked for the image. Nothing listens there.
        stored.policy("oci: {default_registry: '127.0.0.1:9', insecure: ['127.0.0.1:9']}\n");
        let done = stored.command(&words).done();
        let message = done.report["error"]["message"].as_str().expect("a message");
        assert!(
            message.contains(&format!("127.0.0.1:9/{meant}")),
            "{message}"
        );
    }
}

#[test]
fn what_a_template_or_an_image_has_is_not_missed() {
    let Some(base) = base() else { return };
    let stored = Stored::new();
    let packages = "usr/local/lib/python3.12/site-packages";
    let python = Entry::File(b"#!/bin/sh\n".to_vec(), 0o755);
    let six = format!("{packages}/six-1.16.0.dist-info");
    let with = vec![
        ("usr/local/bin/python3".to_owned(), python),
        (format!("{six}/METADATA"), file("Name: six\n")),
    ];
    let exec = |layers: &[layout::Layer], needs: &str| {
        let image = image(&stored.ground, "image", layers, json!({}));
        let native = templates(&image).replace("native: []", "native: [libnamed]");
        stored.policy(&native);
        let needs = format!("{{language: python, {needs}}}");
        let manifest = format!(
            "run: [sh, -c, echo ran]\nrunner: {{engine: sandbox, image: tiny, needs: {needs}}}\n"
        );
        stored.exec(&[], &[("manifest.yaml", &manifest)])
    };
    let both = [base, with];
    for needs in ["native: [libnamed]", "pip: ['six>=1.16']", "pip: [Six]"] {
        let done = exec(&both, needs);
        done.assert_exited(0);
        assert_eq!(done.text(), "ran\n", "{needs}");
        assert_eq!(done.report["preparation"], json!([]));
    }
    let another = vec![(
        "usr/local/lib/python3.11/site-packages/x".to_owned(),
        file(""),
    )];
    let hidden = vec![(format!("{packages}/.wh.six-1.16.0.dist-info"), file(""))];
    let link = vec![(
        format!("{packages}/other-1.0.dist-info"),
        layout::link("/etc"),
    )];
    for (over, needs) in [
        (None, "native: [libother]"),
        (None, "pip: ['six>=2']"),
        (None, "pip: [other]"),
        (Some(link), "pip: [other]"),
        // It is not known which of the two `python3` is meant.
        (Some(another), "pip: [six]"),
        (Some(hidden), "pip: [six]"),
    ] {
        let layers: Vec<_> = both.iter().cloned().chain(over).collect();
        let done = exec(&layers, needs);
        assert_eq!(done.code, 125, "{needs}: {}", done.stderr);
        assert_eq!(done.text(), "", "{needs}");
    }
}
