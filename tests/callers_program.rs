//! `runner run NAME` runs the program that the caller's shell would start.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use support::bodies::{c_body, copy_program};
use support::{Done, Ground};

/// A program at `place` of the ground that exits with `code`.
fn lay(ground: &Ground, place: &str, code: u8) -> PathBuf {
    let body = format!("int main(void) {{ return {code}; }}");
    let body = c_body(&format!("ends-with-{code}"), &body);
    let path = ground.path(place);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    copy_program(body, &path);
    path
}

/// A shim that creates a file when it runs.
fn shim(ground: &Ground, place: &str, text: &str) {
    let ran = ground.path("shim-ran");
    let text = format!("#!/bin/sh\n: >'{}'\n{text}\n", ran.display());
    ground.program(place, text);
}

struct Shell<'ground> {
    ground: &'ground Ground,
    /// Directories of the ground at the front of its PATH.
    path: &'ground [&'ground str],
    variables: Vec<(&'ground str, String)>,
    home: PathBuf,
}

impl<'ground> Shell<'ground> {
    fn new(ground: &'ground Ground, path: &'ground [&'ground str]) -> Self {
        let home = ground.path("home");
        std::fs::create_dir_all(&home).expect("made");
        std::fs::create_dir_all(ground.path("here/below")).expect("made");
        Self {
            ground,
            path,
            variables: Vec::new(),
            home,
        }
    }

    fn run(&self, words: &[&str]) -> Done {
        let mut case = self.ground.command(&[&["run"], words].concat());
        let own = self.path.iter().map(|place| self.ground.path(place));
        let system = ["/usr/bin", "/bin"].map(PathBuf::from);
        let path = std::env::join_paths(own.chain(system)).expect("a PATH");
        case.command
            .current_dir(self.ground.path("here/below"))
            .env("PATH", path)
            .env("HOME", &self.home)
            // rustup sets it for the tests themselves.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("PYENV_VERSION")
            .env_remove("VOLTA_HOME")
            .envs(self.variables.iter().cloned());
        let done = case.done();
        assert!(!self.ground.path("shim-ran").exists(), "a shim was run");
        done
    }

    fn ends(&self, words: &[&str], code: i32) {
        self.run(words).assert_exited(code);
    }

    /// Asserts a refusal whose message contains the text.
    fn is_refused(&self, words: &[&str], what: &str) {
        let done = self.run(words);
        done.assert_error("refused", "program_is_shim");
        assert!(done.stderr.contains(what), "{done:#?}");
    }
}

#[test]
fn the_first_of_its_name_on_the_path_runs_and_not_the_system_s() {
    let ground = Ground::new();
    lay(&ground, "one/bin/true", 7);
    lay(&ground, "two/bin/true", 8);
    lay(&ground, "far/tool-1/bin/tool", 9);
    std::fs::create_dir(ground.path("links")).expect("made");
    symlink("../far/tool-1/bin/tool", ground.path("links/tool")).expect("linked");
    Shell::new(&ground, &["one/bin", "two/bin"]).ends(&["true"], 7);
    Shell::new(&ground, &["two/bin", "one/bin"]).ends(&["true"], 8);
    Shell::new(&ground, &[]).ends(&["true"], 0);
    let linked = Shell::new(&ground, &["links"]);
    let done = linked.run(&["tool"]);
    done.assert_exited(9);
    let prefix = ground.path("far/tool-1");
    let bound = done.report["bound_programs"][0].as_str().expect("a path");
    assert_eq!(Path::new(bound), prefix.canonicalize().expect("there"));
    // Programs that it starts by name are those of the caller's shell, too.
    let first = Shell::new(&ground, &["one/bin"]);
    first.ends(&["-e", "PATH=/usr/bin", "true"], 0);
    // An empty entry is the directory in which it starts.
    let bin = ground.path("two/bin").canonicalize().expect("there");
    let bin = bin.to_str().expect("UTF-8");
    first.ends(&["-e", "PATH=:/usr/bin", "--ro", bin, "-w", bin, "true"], 8);
}

#[test]
fn a_script_with_its_interpreter_beside_it_is_shown_with_both() {
    let ground = Ground::new();
    lay(&ground, "tool-1/bin/interprets", 7);
    ground.program("tool-1/lib/manager/cli", "#!/usr/bin/env interprets\n");
    symlink("../lib/manager/cli", ground.path("tool-1/bin/manager")).expect("linked");
    let shell = Shell::new(&ground, &["tool-1/bin"]);
    shell.ends(&["manager"], 7);
    // A script, whose dependencies are unknown, is refused.
    ground.program("tool-1/bin/script", "#!/bin/sh\nexit 7\n");
    let done = shell.run(&["script"]);
    done.assert_error("refused", "program_is_script");
    let flag = format!("--ro {}", ground.path("tool-1").display());
    assert!(done.stderr.contains(&flag), "{done:#?}");
    shell.ends(
        &[
            "--ro",
            ground.path("tool-1").to_str().expect("UTF-8"),
            "script",
        ],
        7,
    );
}

#[test]
fn a_script_behind_a_link_runs_with_the_flag_that_its_refusal_names() {
    let ground = Ground::new();
    ground.program("home/.local/lib/tool/cli", "#!/bin/sh\nexit 7\n");
    std::fs::create_dir(ground.path("home/.local/bin")).expect("made");
    symlink("../lib/tool/cli", ground.path("home/.local/bin/tool")).expect("linked");
    let shell = Shell::new(&ground, &["home/.local/bin"]);
    let done = shell.run(&["tool"]);
    done.assert_error("refused", "program_is_script");
    let hint = done.report["error"]["hint"].as_str().expect("a hint");
    let directory = hint.split_once("--ro ").expect("a flag").1;
    shell.ends(&["--ro", directory, "tool"], 7);
}

#[test]
fn python_of_an_environment_that_is_activated_is_that_environment_s() {
    let ground = Ground::new();
    let place = ground.path("project/.venv");
    let made = std::process::Command::new("/usr/bin/python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&place)
        .output()
        .expect("python3 is there");
    assert!(made.status.success(), "{made:?}");
    let shown = place.canonicalize().expect("there");
    let shown = shown.to_str().expect("UTF-8");
    let shell = Shell::new(&ground, &["project/.venv/bin"]);
    let prefix = "import sys; print(sys.prefix)";
    for name in ["python3", "python"] {
        let done = shell.run(&[name, "-c", prefix]);
        done.assert_exited(0);
        assert_eq!(done.text().trim_end(), shown, "{name}");
    }
    // And the programs that were installed into it.
    let script = format!("#!{shown}/bin/python3\n{prefix}\n");
    ground.program("project/.venv/bin/installed", script);
    let done = shell.run(&["installed"]);
    done.assert_exited(0);
    assert_eq!(done.text().trim_end(), shown);
}

#[test]
fn an_environment_shows_neither_a_directory_that_it_names_as_its_base_nor_what_is_beside_it() {
    let ground = Ground::new();
    ground.write("home/.ssh/key", "secret");
    ground.write("home/.local/share/keyring", "secret");
    for (place, named) in [
        ("project/.venv", ground.path("home/.ssh")),
        ("project/.venv", ground.path("home")),
        ("project/.venv", PathBuf::from("/var/lib")),
        ("home/.local", PathBuf::from("/usr/bin")),
    ] {
        let settings = format!("home = {}\n", named.display());
        ground.write(&format!("{place}/pyvenv.cfg"), settings);
        lay(&ground, &format!("{place}/bin/python"), 7);
        let bin = format!("{place}/bin");
        let path = [bin.as_str()];
        let done = Shell::new(&ground, &path).run(&["python"]);
        done.assert_exited(7);
        let root = ground.path(place).canonicalize().expect("there");
        let expected = match place {
            "home/.local" => vec![root.join("bin"), root.join("pyvenv.cfg")],
            _ => vec![root],
        };
        let bound = done.report["bound_programs"].as_array().expect("a list");
        let bound = bound.iter().map(|path| path.as_str().expect("a path"));
        assert_eq!(bound.map(PathBuf::from).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn python_of_an_environment_runs_with_its_base_in_the_home() {
    let ground = Ground::new();
    let base = lay(&ground, "home/.local/share/uv/python/1.2/bin/python1.2", 8);
    let bin = base.parent().expect("a directory").display();
    ground.write("made/pyvenv.cfg", format!("home = {bin}\nuv = 0.9\n"));
    std::fs::create_dir(ground.path("made/bin")).expect("made");
    symlink(&base, ground.path("made/bin/python")).expect("linked");
    Shell::new(&ground, &["made/bin"]).ends(&["python"], 8);
    // uv names it by a link from the minor version.
    let link = ground.path("home/.local/share/uv/python/1");
    symlink("1.2", &link).expect("linked");
    let settings = format!("home = {}\nuv = 0.9\n", link.join("bin").display());
    ground.write("made/pyvenv.cfg", settings);
    std::fs::remove_file(ground.path("made/bin/python")).expect("removed");
    symlink(link.join("bin/python1.2"), ground.path("made/bin/python")).expect("linked");
    Shell::new(&ground, &["made/bin"]).ends(&["python"], 8);
}

#[test]
fn a_shim_of_pyenv_is_read_and_not_run() {
    let ground = Ground::new();
    lay(&ground, "pyenv/versions/1.2.9/bin/tool", 9);
    lay(&ground, "pyenv/versions/1.2.10/bin/tool", 10);
    lay(&ground, "system/tool", 11);
    shim(
        &ground,
        "pyenv/shims/tool",
        "exec \"/pyenv/libexec/pyenv\" exec \"$program\" \"$@\"",
    );
    let mut shell = Shell::new(&ground, &["pyenv/shims", "system"]);
    shell.ends(&["tool"], 11);
    ground.write("pyenv/version", "1.2\n");
    shell.ends(&["tool"], 10);
    ground.write("here/.python-version", "# of the project\n1.2.9\n");
    shell.ends(&["tool"], 9);
    shell.variables = vec![("PYENV_VERSION", "3.0:1.2.10".to_owned())];
    shell.ends(&["tool"], 10);
    shell.variables = vec![("PYENV_VERSION", "system".to_owned())];
    shell.ends(&["tool"], 11);
    shell.variables = vec![("PYENV_VERSION", "../../x".to_owned())];
    shell.is_refused(&["tool"], "is a shim of pyenv: no tool of the version");
}

#[test]
fn a_shim_of_asdf_is_read_and_not_run() {
    let ground = Ground::new();
    lay(&ground, "asdf/installs/lang/1.2.9/bin/tool", 9);
    lay(&ground, "asdf/installs/lang/1.2.10/bin/tool", 10);
    shim(
        &ground,
        "asdf/shims/tool",
        "# asdf-plugin: lang 1.2.10\nexec asdf exec \"tool\" \"$@\"",
    );
    let mut shell = Shell::new(&ground, &["asdf/shims"]);
    shell.is_refused(&["tool"], "no .tool-versions says which lang");
    ground.write("home/.tool-versions", "other 3\nlang 1.2.10\n");
    shell.ends(&["tool"], 10);
    ground.write("here/.tool-versions", "lang 4.0 1.2.9 # of the project\n");
    shell.ends(&["tool"], 9);
    shell.variables = vec![("ASDF_LANG_VERSION", "5".to_owned())];
    shell.is_refused(&["tool"], "no tool of the version `5`");
}

#[test]
fn a_shim_of_volta_is_read_and_not_run() {
    let ground = Ground::new();
    lay(&ground, "volta/tools/image/node/1.2.9/bin/node", 9);
    lay(&ground, "volta/tools/image/node/1.2.10/bin/node", 10);
    shim(&ground, "volta/bin/volta-shim", "");
    symlink("volta-shim", ground.path("volta/bin/node")).expect("linked");
    let shell = Shell::new(&ground, &["volta/bin"]);
    shell.is_refused(&["node"], "no version of node was chosen");
    let platform = r#"{"node": {"runtime": "1.2.10", "npm": null}}"#;
    ground.write("volta/tools/user/platform.json", platform);
    shell.ends(&["node"], 10);
    ground.write("here/package.json", r#"{"volta": {"node": "1.2.9"}}"#);
    shell.ends(&["node"], 9);
}

#[test]
fn a_proxy_of_rustup_is_read_and_not_run() {
    let ground = Ground::new();
    let host = format!("stable-{}-unknown-linux-gnu", std::env::consts::ARCH);
    lay(&ground, &format!("rustup/toolchains/{host}/bin/cargo"), 9);
    lay(&ground, "rustup/toolchains/1.90.0/bin/cargo", 10);
    lay(&ground, "rustup/toolchains/own/bin/cargo", 11);
    shim(&ground, "cargo/bin/rustup", "");
    symlink("rustup", ground.path("cargo/bin/cargo")).expect("linked");
    let settings = |rest: &str| {
        let text =
            format!("version = \"12\"\ndefault_toolchain = \"stable\"\n\n[overrides]\n{rest}");
        ground.write("rustup/settings.toml", text);
    };
    settings("");
    let mut shell = Shell::new(&ground, &["cargo/bin"]);
    let root = ground.path("rustup").to_str().expect("UTF-8").to_owned();
    shell.variables = vec![("RUSTUP_HOME", root.clone())];
    shell.ends(&["cargo"], 9);
    shell.is_refused(&["--", "cargo", "+1.90.0"], "RUSTUP_TOOLCHAIN");
    ground.write(
        "here/rust-toolchain.toml",
        "[toolchain]\nchannel = \"1.90.0\"\n",
    );
    shell.ends(&["cargo"], 10);
    let here = ground.path("here");
    settings(&format!("\"{}\" = \"own\"\n", here.display()));
    shell.ends(&["cargo"], 11);
    shell.variables = vec![
        ("RUSTUP_HOME", root),
        ("RUSTUP_TOOLCHAIN", "nightly".to_owned()),
    ];
    shell.is_refused(&["cargo"], "no cargo of the version `nightly`");
}
