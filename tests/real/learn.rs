//! `runner learn` with real tools: a fresh copy of the project does the same under the policy, and the
//! project that was learned from is unchanged.

use std::collections::BTreeSet;
use std::path::Path;

use support::packages::{has, pytest, succeed, tool};
use support::{Case, Ground, is_root, needs_root, text};

/// A project, and how it is built.
struct Project<'test> {
    ground: &'test Ground,
    /// The caller's home.
    home: &'test Path,
    /// Of both runs.
    flags: &'test [&'test str],
    body: &'test [&'test str],
    /// A file that the body makes.
    makes: &'test str,
}

impl Project<'_> {
    fn case(&self, verb: &[&str], directory: &str) -> Case<'_> {
        let limits = ["-m", "1g", "--disk", "512m", "--timeout", "5m"];
        let words = [verb, &limits, self.flags, &["--"], self.body].concat();
        let mut case = self.ground.command(&words).env("HOME", text(self.home));
        case.command.current_dir(self.ground.path(directory));
        case
    }

    /// Learns in `work`, then runs in `copy`. Returns the entries of the policy.
    fn check(&self) -> BTreeSet<String> {
        let [work, copy] = ["work", "copy"].map(|name| self.ground.path(name));
        succeed(tool("cp").arg("-a").arg(&work).arg(&copy)).expect("copied");
        let policy = self.ground.path("policy.yaml");
        let policy = text(&policy);
        let before = states(&work);
        self.case(&["learn", "-o", policy], "work")
            .done()
            .assert_exited(0);
        assert_eq!(states(&work), before);
        let learned = std::fs::read_to_string(policy).expect("a policy");
        let done = self.case(&["run", "--policy", policy], "copy").done();
        assert_eq!(done.code, 0, "{learned}\n{done:#?}");
        assert!(copy.join(self.makes).exists(), "{learned}\n{done:#?}");
        let entries = learned
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- "));
        entries
            .map(|entry| entry.trim_matches('"').to_owned())
            .collect()
    }

    /// Checks that the policy has the project only.
    fn check_alone(&self) {
        assert_eq!(self.check(), BTreeSet::from([".".to_owned()]));
    }
}

/// Name, inode, mode, size and times of everything in a directory.
fn states(directory: &Path) -> String {
    let mut find = tool("find");
    find.arg(directory)
        .args(["-printf", "%p %i %m %s %T@ %C@\n"]);
    let mut lines: Vec<String> = succeed(&mut find)
        .expect("listed")
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.join("\n")
}

fn project<'test>(
    ground: &'test Ground,
    home: &'test Path,
    body: &'test [&'test str],
) -> Project<'test> {
    Project {
        ground,
        home,
        flags: &[],
        body,
        makes: "out",
    }
}

#[test]
fn npm_installs_a_local_package() {
    let ground = Ground::new();
    if !has("npm") {
        return;
    }
    let home = ground.path("home");
    ground.write("home/.npmrc", "//r.test/:_authToken=canary");
    ground.write(
        "work/dep/package.json",
        r#"{"name": "dep", "version": "1.0.0"}"#,
    );
    ground.write("work/dep/index.js", "module.exports = 1");
    ground.write(
        "work/package.json",
        r#"{"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:./dep"}}"#,
    );
    ground.write(
        "work/package-lock.json",
        r#"{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
            "": {"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:./dep"}},
            "dep": {"version": "1.0.0"},
            "node_modules/dep": {"resolved": "dep", "link": true}}}"#,
    );
    let body = ["npm", "ci", "--offline", "--no-audit", "--no-fund"];
    let project = Project {
        makes: "node_modules/dep/index.js",
        ..project(&ground, &home, &body)
    };
    project.check_alone();
}

#[test]
fn pip_installs_a_local_package() {
    let ground = Ground::new();
    let home = ground.path("home");
    ground.write(
        "work/make.py",
        "import zipfile\n\
         d = 'hello-1.dist-info/'\n\
         with zipfile.ZipFile('hello-1-py3-none-any.whl', 'w') as wheel:\n\
         \x20   wheel.writestr('hello.py', 'x = 1')\n\
         \x20   wheel.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: hello\\nVersion: 1\\n')\n\
         \x20   wheel.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         \x20   wheel.writestr(d + 'RECORD', 'hello.py,,\\n' + d + 'METADATA,,\\n' + d + 'WHEEL,,\\n' + d + 'RECORD,,\\n')\n",
    );
    let mut make = tool("python3");
    succeed(make.arg("make.py").current_dir(ground.workspace())).expect("a wheel");
    let pip = "pip install --no-index --target out hello-1-py3-none-any.whl";
    let body: Vec<&str> = ["/usr/bin/python3", "-m"]
        .into_iter()
        .chain(pip.split(' '))
        .collect();
    let project = Project {
        makes: "out/hello.py",
        ..project(&ground, &home, &body)
    };
    project.check_alone();
}

#[test]
fn git_clones_and_commits() {
    let ground = Ground::new();
    if !has("git") {
        return;
    }
    let home = ground.path("home");
    ground.write("work/origin/a", "a");
    let names = ["-c", "user.name=u", "-c", "user.email=u@x"];
    for words in [&["init", "-q"][..], &["add", "a"], &["commit", "-qm", "a"]] {
        let mut git = tool("git");
        git.args(names)
            .args(words)
            .current_dir(ground.path("work/origin"));
        succeed(&mut git).expect("a repository");
    }
    // A clone by hard links would stat a file of the lower directory, and then its copy.
    let script = "git clone -q --no-hardlinks ./origin out; cd out; echo b >b; git add b; \
                  git -c user.name=u -c user.email=u@x commit -qm b";
    let body = ["sh", "-ec", script];
    let project = Project {
        makes: "out/.git/HEAD",
        ..project(&ground, &home, &body)
    };
    project.check_alone();
}

#[test]
fn gcc_builds_a_program() {
    let ground = Ground::new();
    if !has("gcc") {
        return;
    }
    let home = ground.path("home");
    ground.write("work/src/one.c", "int one(void) { return 1; }\n");
    ground.write(
        "work/src/main.c",
        "int one(void);\nint main(void) { return one() - 1; }\n",
    );
    ground.write("work/build/.keep", "");
    let script = "gcc -o build/out src/one.c src/main.c; build/out";
    let body = ["sh", "-ec", script];
    let project = Project {
        makes: "build/out",
        ..project(&ground, &home, &body)
    };
    let expected = ["build", "src/main.c", "src/one.c"].map(str::to_owned);
    assert_eq!(project.check(), BTreeSet::from(expected));
}

#[test]
fn cargo_builds_a_crate_with_a_toolchain_of_the_home() {
    let ground = Ground::new();
    if !is_root() {
        return needs_root("cargo belongs to root here");
    }
    let home = std::env::var("HOME").expect("a home");
    let toolchains = ["RUSTUP_HOME", "CARGO_HOME"].map(|name| {
        let directory = if name == "CARGO_HOME" {
            "cargo"
        } else {
            "rustup"
        };
        let set = std::env::var(name);
        format!(
            "{name}={}",
            set.unwrap_or_else(|_| format!("{home}/.{directory}"))
        )
    });
    ground.write(
        "work/Cargo.toml",
        "[package]\nname = \"out\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    ground.write("work/src/main.rs", "fn main() {}\n");
    let flags = ["-e", &toolchains[0], "-e", &toolchains[1]];
    let body = ["cargo", "build", "--offline"];
    let project = Project {
        flags: &flags,
        makes: "target/debug/out",
        ..project(&ground, Path::new(&home), &body)
    };
    let entries = project.check();
    let is_whole = |entry: &String| [home.as_str(), "/", "/root"].contains(&entry.as_str());
    assert!(
        !entries.iter().any(is_whole) && entries.len() < 20,
        "{entries:?}"
    );
    assert!(entries.contains("."), "{entries:?}");
}

#[test]
fn pytest_runs_a_suite_with_packages_of_the_home() {
    let ground = Ground::new();
    let Some(prepared) = pytest() else {
        return;
    };
    let home = ground.path("home");
    std::fs::create_dir(&home).expect("made");
    let packages = home.join("packages");
    succeed(tool("cp").arg("-a").arg(prepared).arg(&packages)).expect("copied");
    ground.write(
        "work/test_suite.py",
        "def test_write(tmp_path):\n    open('out', 'w').write('1')\n    assert tmp_path.exists()\n",
    );
    let variable = format!("PYTHONPATH={}", text(&packages));
    let flags = ["-e", &variable, "-e", "PYTHONDONTWRITEBYTECODE=1"];
    let body = ["/usr/bin/python3", "-m", "pytest", "-q", "test_suite.py"];
    let project = Project {
        flags: &flags,
        ..project(&ground, &home, &body)
    };
    let expected = [".", text(&packages)].map(str::to_owned);
    assert_eq!(project.check(), BTreeSet::from(expected));
}
