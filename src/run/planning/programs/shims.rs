//! Resolves shims of version managers: programs on a PATH that start another one. Reads the target
//! from the manager's files, as the manager does, and executes nothing.
//!
//! Sources: the documentation of pyenv (version files), rustup (overrides), volta (`volta` of
//! package.json, platform.json) and asdf (`.tool-versions`). nvm has none: it changes PATH.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use spec::request::Caller;
use sys::file::read_regular;

/// Maximum size of a manager's or project's file; a larger one is ignored.
const FILE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shim {
    /// It is no shim.
    Ordinary,
    /// It starts this program.
    Target(PathBuf),
    /// It starts the next program of its name on the PATH.
    NextOnPath,
    Unknown {
        manager: &'static str,
        problem: String,
        hint: String,
    },
}

pub(super) fn read(program: &Path, words: &[Vec<u8>], caller: &Caller) -> Shim {
    let lookup = Lookup {
        name: program.file_name().unwrap_or_default(),
        caller,
    };
    let Some(directory) = program.parent() else {
        return Shim::Ordinary;
    };
    let real = program.canonicalize();
    let real = real.as_deref().unwrap_or(program);
    let is_called = |name: &str| real.file_name() == Some(OsStr::new(name)) && lookup.name != name;
    if is_called("rustup") || is_same_file(&directory.join("rustup"), program, lookup.name) {
        return lookup.resolve_rustup(words);
    }
    if is_called("volta-shim") {
        return lookup.resolve_volta(directory);
    }
    let Some(root) = directory.parent().filter(|_| directory.ends_with("shims")) else {
        return Shim::Ordinary;
    };
    let text = read_text(program).unwrap_or_default();
    if root.join("versions").is_dir() && text.contains("pyenv\" exec ") {
        return lookup.resolve_pyenv(root);
    }
    if root.join("installs").is_dir() && text.contains("# asdf-plugin: ") {
        return lookup.resolve_asdf(root, &text);
    }
    Shim::Ordinary
}

/// rustup installs its proxies as links or hard links of one file.
fn is_same_file(rustup: &Path, program: &Path, name: &OsStr) -> bool {
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    name != "rustup" && identity(rustup).is_some_and(|proxy| identity(program) == Some(proxy))
}

struct Lookup<'run> {
    name: &'run OsStr,
    caller: &'run Caller,
}

impl Lookup<'_> {
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let mut all = self.caller.environment.iter();
        let (_, value) = all.find(|(known, _)| known == name.as_bytes())?;
        (!value.is_empty()).then(|| OsStr::from_bytes(value))
    }

    /// The value of a variable, if it is UTF-8.
    fn word(&self, name: &str) -> Option<String> {
        Some(self.variable(name)?.to_str()?.to_owned())
    }

    fn home(&self, directory: &str) -> PathBuf {
        self.caller
            .home
            .as_deref()
            .unwrap_or(Path::new("/"))
            .join(directory)
    }

    /// Applies `read` to the nearest file of that name, from the working directory up.
    fn nearest<Found>(&self, name: &str, read: impl Fn(&str) -> Option<Found>) -> Option<Found> {
        let here = self.caller.working_directory.as_deref()?;
        here.ancestors()
            .find_map(|directory| read(&read_text(&directory.join(name))?))
    }

    fn program_in(&self, prefix: &Path) -> Option<PathBuf> {
        let program = prefix.join("bin").join(self.name);
        program.is_file().then_some(program)
    }

    fn unknown(&self, manager: &'static str, problem: String) -> Shim {
        let name = self.name.display();
        Shim::Unknown {
            manager,
            problem,
            hint: format!("name the program by its path: run -- /…/bin/{name}"),
        }
    }

    fn not_installed(&self, manager: &'static str, version: &str) -> Shim {
        let name = self.name.display();
        self.unknown(
            manager,
            format!("no {name} of the version `{version}` is installed"),
        )
    }

    fn resolve_pyenv(&self, root: &Path) -> Shim {
        let of_file = |text: &str| {
            let words = text
                .lines()
                .map(|line| line.split('#').next().unwrap_or(line));
            let words: Vec<&str> = words.flat_map(str::split_whitespace).collect();
            (!words.is_empty()).then(|| words.join(":"))
        };
        let versions = self
            .word("PYENV_VERSION")
            .or_else(|| self.nearest(".python-version", of_file))
            .or_else(|| of_file(&read_text(&root.join("version"))?))
            .unwrap_or_else(|| "system".to_owned());
        for version in versions.split(':') {
            if version == "system" {
                return Shim::NextOnPath;
            }
            let prefix = version_in(&root.join("versions"), version);
            if let Some(program) = prefix.and_then(|prefix| self.program_in(&prefix)) {
                return Shim::Target(program);
            }
        }
        self.not_installed("pyenv", &versions)
    }

    fn resolve_asdf(&self, root: &Path, shim: &str) -> Shim {
        let plugins = shim
            .lines()
            .filter_map(|line| line.strip_prefix("# asdf-plugin: "));
        let Some(plugin) = plugins
            .filter_map(|rest| rest.split_whitespace().next())
            .next()
        else {
            return self.unknown("asdf", "it names no plugin".to_owned());
        };
        let of_file = |text: &str| {
            text.lines().find_map(|line| {
                let mut words = line.split('#').next()?.split_whitespace();
                (words.next()? == plugin).then(|| words.collect::<Vec<_>>().join(" "))
            })
        };
        let variable = format!(
            "ASDF_{}_VERSION",
            plugin.to_ascii_uppercase().replace('-', "_")
        );
        let versions = self
            .word(&variable)
            .or_else(|| self.nearest(".tool-versions", of_file))
            .or_else(|| of_file(&read_text(&self.home(".tool-versions"))?));
        let Some(versions) = versions else {
            return self.unknown("asdf", format!("no .tool-versions says which {plugin}"));
        };
        for version in versions.split_whitespace() {
            if version == "system" {
                return Shim::NextOnPath;
            }
            let prefix = root.join("installs").join(plugin).join(version);
            if let Some(program) = is_name(version).then(|| self.program_in(&prefix)).flatten() {
                return Shim::Target(program);
            }
        }
        self.not_installed("asdf", &versions)
    }

    fn resolve_volta(&self, directory: &Path) -> Shim {
        if self.name != "node" {
            let name = self.name.display();
            return self.unknown("volta", format!("only its node is looked up, not {name}"));
        }
        let of_package = |text: &str| {
            let package: serde_json::Value = serde_json::from_str(text).ok()?;
            Some(package.get("volta")?.get("node")?.as_str()?.to_owned())
        };
        let of_user = |text: &str| {
            let platform: serde_json::Value = serde_json::from_str(text).ok()?;
            Some(platform.get("node")?.get("runtime")?.as_str()?.to_owned())
        };
        let root = match (self.variable("VOLTA_HOME"), directory.parent()) {
            (Some(root), _) => PathBuf::from(root),
            (None, Some(root)) => root.to_path_buf(),
            (None, None) => return Shim::Ordinary,
        };
        let version = self
            .nearest("package.json", of_package)
            .or_else(|| of_user(&read_text(&root.join("tools/user/platform.json"))?));
        let Some(version) = version else {
            return self.unknown("volta", "no version of node was chosen".to_owned());
        };
        let prefix = root.join("tools/image/node").join(&version);
        match is_name(&version)
            .then(|| self.program_in(&prefix))
            .flatten()
        {
            Some(program) => Shim::Target(program),
            None => self.not_installed("volta", &version),
        }
    }

    fn resolve_rustup(&self, words: &[Vec<u8>]) -> Shim {
        if words.first().is_some_and(|word| word.starts_with(b"+")) {
            return Shim::Unknown {
                manager: "rustup",
                problem: "only the proxy itself interprets arguments such as +nightly".to_owned(),
                hint: "set RUSTUP_TOOLCHAIN=… for `runner`".to_owned(),
            };
        }
        let root = self.variable("RUSTUP_HOME");
        let root = root.map_or_else(|| self.home(".rustup"), PathBuf::from);
        let settings = read_text(&root.join("settings.toml")).unwrap_or_default();
        let here = self.caller.working_directory.as_deref();
        // The nearer one wins; in one directory an override precedes a file.
        let of_directory = |directory: &Path| {
            let of_file = |name: &str| read_text(&directory.join(name));
            find_value(&settings, &format!("\"{}\"", directory.display()))
                .or_else(|| find_channel(&of_file("rust-toolchain")?))
                .or_else(|| find_channel(&of_file("rust-toolchain.toml")?))
        };
        let toolchain = self
            .word("RUSTUP_TOOLCHAIN")
            .or_else(|| here?.ancestors().find_map(of_directory))
            .or_else(|| find_value(&settings, "default_toolchain"));
        let Some(toolchain) = toolchain else {
            return self.unknown("rustup", "no toolchain was chosen".to_owned());
        };
        let host = format!("{toolchain}-{}-unknown-linux-gnu", std::env::consts::ARCH);
        for name in [&toolchain, &host] {
            let prefix = root.join("toolchains").join(name);
            if let Some(program) = is_name(name).then(|| self.program_in(&prefix)).flatten() {
                return Shim::Target(program);
            }
        }
        self.not_installed("rustup", &toolchain)
    }
}

/// The directory of a version, or of the latest with this prefix.
fn version_in(versions: &Path, version: &str) -> Option<PathBuf> {
    if !is_name(version) {
        return None;
    }
    let exact = versions.join(version);
    if exact.is_dir() {
        return Some(exact);
    }
    let mut latest: Option<(Vec<u32>, PathBuf)> = None;
    for entry in std::fs::read_dir(versions).ok()?.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(version)) else {
            continue;
        };
        let Some(rest) = rest.strip_prefix('.') else {
            continue;
        };
        let numbers: Result<Vec<u32>, _> = rest.split('.').map(str::parse).collect();
        if let Ok(numbers) = numbers
            && latest.as_ref().is_none_or(|(known, _)| *known < numbers)
        {
            latest = Some((numbers, entry.path()));
        }
    }
    Some(latest?.1)
}

/// The channel of a `rust-toolchain` file in either format.
fn find_channel(text: &str) -> Option<String> {
    find_value(text, "channel").or_else(|| {
        let name = text.trim();
        is_name(name).then(|| name.to_owned())
    })
}

fn find_value(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.trim().strip_prefix('"')?;
        (name.trim() == key).then(|| value.split('"').next().unwrap_or(value).to_owned())
    })
}

/// Whether the text is one path segment.
fn is_name(text: &str) -> bool {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.+".contains(sign);
    !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
}

fn read_text(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    String::from_utf8(read_regular(file, FILE_BYTES_MAX).ok()?).ok()
}
