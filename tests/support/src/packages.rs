//! Packages of the public registries, fetched once per test run with the ordinary clients and kept
//! in a directory that every user may read.
//!
//! `RUNNER_TESTS_CACHE` names the directory; the default is cargo's directory for tests. A test run
//! as an ordinary user uses what the run as root before it fetched: that user may have no access to
//! the registries.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};

use crate::{random, skip};

/// Tools of the system come before the caller's: scripts of version managers need the caller's home.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A tool of the host outside any sandbox; the system's own, if there are several.
pub fn tool(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("env");
    command.args([&format!("PATH={SYSTEM_PATH}:{path}"), name]);
    command
}

/// Runs a tool to its end; returns its standard output, or an error with all its output.
pub fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{text}{errors}", output.status))
}

/// Whether the system has this program where every sandbox shows it; otherwise prints a skip.
pub fn has(name: &str) -> bool {
    let found = SYSTEM_PATH
        .split(':')
        .any(|directory| Path::new(directory).join(name).exists());
    if !found {
        skip(&format!(
            "no {name} in {SYSTEM_PATH}: scripts/test installs it"
        ));
    }
    found
}

/// The directory `name` of the cache; `fill` creates its contents.
///
/// The name contains a number that changes with the contents. `None`, with a printed skip, if it
/// cannot be filled.
pub fn prepared(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _here = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let cache = cache();
    let ready = cache.join(name);
    if ready.exists() {
        return Some(ready);
    }
    match fill_once(&cache, &ready, fill) {
        Ok(()) => Some(ready),
        Err(why) => {
            skip(&format!("{name} cannot be prepared: {why}"));
            None
        }
    }
}

fn fill_once(
    cache: &Path,
    ready: &Path,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let lock = File::create(cache.join("lock")).map_err(|error| error.to_string())?;
    // Another test program, or the test run of another user, may be filling it.
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
    if ready.exists() {
        return Ok(());
    }
    let filling = cache.join(format!("filling-{}", random()));
    std::fs::create_dir(&filling).map_err(|error| error.to_string())?;
    let filled = fill(&filling)
        .and_then(|()| succeed(tool("chmod").args(["-R", "a+rX"]).arg(&filling)))
        .and_then(|_nothing| std::fs::rename(&filling, ready).map_err(|error| error.to_string()));
    if filled.is_err() {
        std::fs::remove_dir_all(&filling).map_err(|error| error.to_string())?;
    }
    filled
}

fn cache() -> PathBuf {
    let named = std::env::var_os("RUNNER_TESTS_CACHE").map(PathBuf::from);
    let of_cargo = crate::build_directory().join("../tmp/packages");
    let uid = rustix::process::geteuid().as_raw();
    let own = std::env::temp_dir().join(format!("packages-{uid}"));
    let cache = named.unwrap_or_else(|| {
        // A copied test program may not reach the directory that it was built in.
        if std::fs::create_dir_all(&of_cargo).is_ok() {
            of_cargo
        } else {
            own
        }
    });
    std::fs::create_dir_all(&cache).expect("the cache can be made");
    if std::fs::metadata(&cache)
        .expect("there")
        .permissions()
        .mode()
        & 0o005
        != 0o005
    {
        std::fs::set_permissions(&cache, Permissions::from_mode(0o755)).expect("set");
    }
    cache
}

/// A package of npm's registry, unpacked and not installed.
pub fn npm_package(name: &str, version: &str) -> Option<PathBuf> {
    prepared(&format!("{name}-{version}"), |folder| {
        let mut npm = tool("npm");
        npm.args(["pack", "--silent", "--pack-destination"])
            .arg(folder);
        succeed(npm.arg(format!("{name}@{version}")))?;
        let archive = folder.join(format!("{name}-{version}.tgz"));
        succeed(
            Command::new("tar")
                .arg("-xzf")
                .arg(archive)
                .arg("-C")
                .arg(folder),
        )
        .map(|_said| ())
    })
    .map(|folder| folder.join("package"))
}

/// A directory whose `node_modules` has these packages of npm's registry and their dependencies. `name` is
/// that of the directory in the cache.
pub fn npm_packages(name: &str, packages: &[&str]) -> Option<PathBuf> {
    if !has("npm") || !has("node") {
        return None;
    }
    prepared(name, |folder| {
        let mut npm = tool("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        npm.arg("--prefix").arg(folder).args(packages);
        succeed(&mut npm).map(|_said| ())
    })
}

/// A directory for `PYTHONPATH` with a package of PyPI and what it needs.
pub fn python_package(name: &str, version: &str) -> Option<PathBuf> {
    prepared(&format!("{name}-{version}"), |folder| {
        let mut pip = tool("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]);
        pip.arg(folder).arg(format!("{name}=={version}"));
        succeed(&mut pip).map(|_said| ())
    })
}

/// A folder of a Node program with installed dependencies: three packages of the registry with
/// their dependencies, programs as links in `node_modules/.bin`, and a local package, which npm
/// installs as a link to a directory.
pub fn node_program() -> Option<PathBuf> {
    if !has("npm") {
        return None;
    }
    prepared("node-1", |folder| {
        let manifest = r#"{
            "name": "report", "version": "1.0.0", "private": true,
            "scripts": { "start": "node main.js", "check": "semver -r '>=2' 1.0.0 2.5.0" },
            "dependencies": { "semver": "7.6.3", "cowsay": "1.6.0", "greeting": "file:greeting" }
        }"#;
        let own = r#"{ "name": "greeting", "version": "1.0.0", "main": "index.js" }"#;
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).map_err(|error| error.to_string())
        };
        write("package.json", manifest)?;
        std::fs::create_dir(folder.join("greeting")).map_err(|error| error.to_string())?;
        write("greeting/package.json", own)?;
        write(
            "greeting/index.js",
            "module.exports = name => `hello ${name}`;\n",
        )?;
        let mut npm = tool("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        succeed(npm.current_dir(folder)).map(|_said| ())
    })
}

/// A directory of wheels: `six`, pure Python, and `markupsafe`, with a C extension for the system's Python.
pub fn wheels() -> Option<PathBuf> {
    prepared("wheels-1", |folder| {
        let mut pip = tool("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
        pip.args(["--only-binary=:all:", "--dest"]).arg(folder);
        pip.args(["six==1.16.0", "markupsafe==2.1.5"]);
        succeed(&mut pip).map(|_said| ())
    })
}

/// A directory for `PYTHONPATH` with pytest and its dependencies.
pub fn pytest() -> Option<PathBuf> {
    prepared("pytest-1", |folder| {
        let mut pip = tool("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]);
        pip.arg(folder).arg("pytest==8.3.3");
        succeed(&mut pip).map(|_said| ())
    })
}

/// A folder with esbuild, a Go program, installed by npm for this machine.
pub fn esbuild() -> Option<PathBuf> {
    if !has("npm") {
        return None;
    }
    prepared("esbuild-1", |folder| {
        let mut npm = tool("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
        npm.arg("--prefix").arg(folder).arg("esbuild@0.24.0");
        succeed(&mut npm).map(|_said| ())
    })
}
