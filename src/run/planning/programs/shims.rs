//! Resolves shims of version managers: programs on a PATH that start another one. Reads the target
//! from the manager's files, as the manager does, and executes nothing. A process without rights parses the
//! files: a project's may be a stranger's.
//!
//! Sources: the documentation of pyenv (version files), rustup (overrides), volta (`volta` of
//! package.json, platform.json) and asdf (`.tool-versions`). nvm has none: it changes PATH.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::run::planning::programs::text_files::find_in;
use spec::request::Caller;

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
    if root.join("versions").is_dir() {
        let is_shim = |text: &str| text.contains("pyenv\" exec ").then(String::new);
        if find_in(program, &is_shim).is_some() {
            return lookup.resolve_pyenv(root);
        }
    }
    if root.join("installs").is_dir() {
        let plugin = |text: &str| {
            let plugins = text
                .lines()
                .filter_map(|line| line.strip_prefix("# asdf-plugin: "));
            let plugin = plugins
                .filter_map(|rest| rest.split_whitespace().next())
                .next();
            text.contains("# asdf-plugin: ")
                .then(|| plugin.unwrap_or_default().to_owned())
        };
        if let Some(plugin) = find_in(program, &plugin) {
            return lookup.resolve_asdf(root, &plugin);
        }
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

    /// What `find` finds in the nearest file of that name, from the working directory up.
    fn find_nearest(&self, name: &str, find: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let here = self.caller.working_directory.as_deref()?;
        here.ancestors()
            .find_map(|directory| find_in(&directory.join(name), find))
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
            .or_else(|| self.find_nearest(".python-version", &of_file))
            .or_else(|| find_in(&root.join("version"), &of_file))
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

    fn resolve_asdf(&self, root: &Path, plugin: &str) -> Shim {
        if !is_name(plugin) {
            return self.unknown("asdf", "it names no plugin".to_owned());
        }
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
            .or_else(|| self.find_nearest(".tool-versions", &of_file))
            .or_else(|| find_in(&self.home(".tool-versions"), &of_file));
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
            .find_nearest("package.json", &of_package)
            .or_else(|| find_in(&root.join("tools/user/platform.json"), &of_user));
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
        let settings = root.join("settings.toml");
        let here = self.caller.working_directory.as_deref();
        // The nearer one wins; in one directory an override precedes a file.
        let of_directory = |directory: &Path| {
            let of_file = |name: &str| find_in(&directory.join(name), &find_channel);
            let key = format!("\"{}\"", directory.display());
            find_in(&settings, &|text| find_value(text, &key))
                .or_else(|| of_file("rust-toolchain"))
                .or_else(|| of_file("rust-toolchain.toml"))
        };
        let toolchain = self
            .word("RUSTUP_TOOLCHAIN")
            .or_else(|| here?.ancestors().find_map(of_directory))
            .or_else(|| find_in(&settings, &|text| find_value(text, "default_toolchain")));
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
