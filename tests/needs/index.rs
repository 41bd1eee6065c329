//! The test indexes: their server on loopback, and their packages.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use support::certificates;
use support::packages::{has, succeed, tool};
use support::random;

/// Builds a wheel with one module; usage: `DIRECTORY NAME VERSION TEXT`.
const WHEEL: &str = include_str!("../bodies/needs/index_wheel.py");

/// Replaces the data of a package; usage: `FILE`.
const FORGE: &str = include_str!("../bodies/needs/index_forge.py");

/// A Debian package to build.
#[derive(Clone, Copy, Default)]
pub(crate) struct Deb<'a> {
    pub(crate) name: &'a str,
    pub(crate) depends: &'a str,
    /// Path and contents; files below `usr/bin` are executable.
    pub(crate) files: &'a [(&'a str, &'a str)],
    pub(crate) postinst: &'a str,
}

/// The server and its directory. It ends with this value.
pub(crate) struct Index {
    directory: tempfile::TempDir,
    /// The prefix of every path, so that all indexes have different addresses.
    name: String,
    port: u16,
    tls: bool,
    started: Child,
}

impl Drop for Index {
    fn drop(&mut self) {
        self.stop();
        // The agent that gpg started keeps its directory in use.
        let mut end = tool("gpgconf");
        end.args(["--kill", "gpg-agent"]);
        let ended = succeed(end.env("GNUPGHOME", self.path("gnupg")));
        assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
    }
}

impl Index {
    /// `None`, with a printed skip, if a tool is missing.
    pub(crate) fn start() -> Option<Self> {
        Self::serve(false)
    }

    /// The same over TLS, with a certificate of [`Self::authority`].
    pub(crate) fn start_with_tls() -> Option<Self> {
        Self::serve(true)
    }

    fn serve(tls: bool) -> Option<Self> {
        if !["python3", "npm", "dpkg-deb", "dpkg-scanpackages", "gpg"]
            .iter()
            .all(|name| has(name))
        {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("index-").tempdir();
        let directory = directory.expect("a directory");
        let site = directory.path().join("site");
        let name = random();
        for part in ["apt", "npm", "simple"] {
            std::fs::create_dir_all(site.join(&name).join(part)).expect("made");
        }
        std::fs::write(directory.path().join("asked"), "").expect("written");
        std::fs::write(
            directory.path().join("server.py"),
            include_str!("server.py"),
        )
        .expect("written");
        let mut serve = tool("python3");
        serve.arg(directory.path().join("server.py")).arg(&site);
        if tls {
            let names = ["apt.test", "npm.test", "pip.test"].map(str::to_owned);
            certificates::make(directory.path(), &[("index", &names)]);
            serve.args(["index.pem", "index.key"].map(|file| directory.path().join(file)));
        }
        let mut started = serve
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut said = String::new();
        BufReader::new(started.stdout.take().expect("a pipe"))
            .read_line(&mut said)
            .expect("read");
        let port = said.trim().parse().expect("a port");
        Some(Self {
            directory,
            name,
            port,
            tls,
            started,
        })
    }

    /// Ends the server.
    pub(crate) fn stop(&mut self) {
        drop(self.started.stdin.take());
        self.started.wait().expect("waited for");
    }

    /// The address of the index of this kind.
    pub(crate) fn url(&self, kind: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{kind}.test:{}/{}", self.port, self.name)
    }

    /// The certificate of its authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// `HOST PATH` of each request so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.path().join("asked"));
        text.expect("readable").lines().map(str::to_owned).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn site(&self, part: &str) -> PathBuf {
        self.path("site").join(&self.name).join(part)
    }

    /// Adds packages to the apt repository and signs it again.
    pub(crate) fn debs(&self, debs: &[Deb<'_>]) {
        for deb in debs {
            self.deb(deb);
        }
        self.sign();
    }

    fn deb(&self, deb: &Deb<'_>) {
        use std::os::unix::fs::PermissionsExt as _;
        let tree = tempfile::tempdir().expect("a directory");
        let mode = std::fs::Permissions::from_mode;
        std::fs::set_permissions(tree.path(), mode(0o755)).expect("set");
        let write = |path: &str, text: &str, executable: bool| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(&path, text).expect("written");
            let bits = if executable { 0o755 } else { 0o644 };
            std::fs::set_permissions(path, mode(bits)).expect("set");
        };
        let depends = match deb.depends {
            "" => String::new(),
            names => format!("Depends: {names}\n"),
        };
        let control = format!(
            "Package: {}\nVersion: 1.0\nArchitecture: all\nMaintainer: tests <t@example.org>\n\
             {depends}Description: of the tests\n",
            deb.name
        );
        write("DEBIAN/control", &control, false);
        if !deb.postinst.is_empty() {
            let script = format!("#!/bin/sh\n{}\n", deb.postinst);
            write("DEBIAN/postinst", &script, true);
        }
        for (path, text) in deb.files {
            write(path, text, path.starts_with("usr/bin/"));
        }
        let mut make = tool("dpkg-deb");
        make.args(["--root-owner-group", "--build", "-Zxz"]);
        let file = self.site("apt").join(format!("{}_1.0_all.deb", deb.name));
        succeed(make.arg(tree.path()).arg(file)).expect("a package");
    }

    /// A file of the apt repository.
    pub(crate) fn apt(&self, name: &str) -> PathBuf {
        self.site("apt").join(name)
    }

    /// Changes the data of the package `name`: a Python script gets the open archive `tar` and
    /// `entry`, which takes a name and keeps `..` as it is.
    fn forge(&self, name: &str, script: &str) {
        let file = self.apt(&format!("{name}_1.0_all.deb"));
        let text = FORGE.replace("SCRIPT", script);
        let mut forge = tool("python3");
        succeed(forge.args(["-c", &text]).arg(file)).expect("forged");
        self.sign();
    }

    /// A package with one file of this name.
    pub(crate) fn replace_data(&self, name: &str, path: &str, text: &str) {
        self.forge(name, &format!("add({path:?}, {text:?})"));
    }

    /// A package with a link to `target` and a file behind it.
    pub(crate) fn replace_with_link(&self, name: &str, target: &str) {
        self.forge(
            name,
            &format!("link(\"usr/share/evil/out\", {target:?}); add(\"usr/share/evil/out/through\", \"x\")"),
        );
    }

    /// Writes `Packages`, `Release` and `InRelease` for the repository.
    pub(crate) fn sign(&self) {
        let here = self.site("apt");
        let mut scan = tool("dpkg-scanpackages");
        scan.args(["--multiversion", "."]).current_dir(&here);
        let packages = succeed(&mut scan).expect("scanned");
        std::fs::write(here.join("Packages"), &packages).expect("written");
        let digest = succeed(tool("sha256sum").arg("Packages").current_dir(&here));
        let digest = digest.expect("a digest");
        let digest = digest.split_whitespace().next().expect("a word");
        let release = format!(
            "Origin: tests\nSuite: tests\nCodename: tests\nDate: {}\nArchitectures: all\n\
             SHA256:\n {digest} {} Packages\n",
            succeed(tool("date").args(["-Ru"])).expect("a date").trim(),
            packages.len()
        );
        std::fs::write(here.join("Release"), release).expect("written");
        let inline = here.join("InRelease");
        if inline.exists() {
            std::fs::remove_file(&inline).expect("removed");
        }
        let mut sign = self.gpg();
        sign.args(["--clearsign", "--output"]).arg(&inline);
        succeed(sign.arg(here.join("Release"))).expect("signed");
    }

    /// The key that signs the apt repository.
    pub(crate) fn keys(&self) -> PathBuf {
        let keys = self.path("keys.asc");
        let mut export = self.gpg();
        let text = succeed(export.args(["--armor", "--export"])).expect("exported");
        std::fs::write(&keys, text).expect("written");
        keys
    }

    fn gpg(&self) -> Command {
        let home = self.path("gnupg");
        let call = || {
            let mut gpg = tool("gpg");
            gpg.args(["--batch", "--pinentry-mode", "loopback", "--passphrase", ""]);
            gpg.env("GNUPGHOME", &home);
            gpg
        };
        if !home.exists() {
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::create_dir(&home).expect("made");
            std::fs::set_permissions(&home, private).expect("set");
            let mut make = call();
            make.args(["--quick-generate-key", "tests", "rsa2048", "sign", "never"]);
            succeed(&mut make).expect("a key");
        }
        call()
    }

    /// Publishes an npm package with one file; returns the output of `npm pack`.
    pub(crate) fn npm(&self, manifest: &Value, code: &str) -> Value {
        let source = tempfile::tempdir().expect("a directory");
        let file = |name: &str| source.path().join(name);
        std::fs::write(file("package.json"), manifest.to_string()).expect("written");
        std::fs::write(file("index.js"), code).expect("written");
        let here = self.site("npm");
        let mut pack = tool("npm");
        pack.args([
            "pack",
            "--json",
            "--offline",
            "--ignore-scripts",
            "--pack-destination",
        ]);
        pack.arg(&here).arg(".").current_dir(source.path());
        pack.env("npm_config_cache", self.path("npm-cache"))
            .env("npm_config_update_notifier", "false");
        let packed = succeed(&mut pack).expect("packed");
        let packed: Value = serde_json::from_str(&packed).expect("JSON");
        let about = &packed[0];
        let name = manifest["name"].as_str().expect("a name");
        let version = manifest["version"].as_str().expect("a version");
        let mut described = manifest.clone();
        let file = about["filename"].as_str().expect("a file");
        described["dist"] = json!({
            "tarball": format!("{}/npm/{file}", self.url("npm")),
            "integrity": about["integrity"],
            "shasum": about["shasum"],
        });
        let at = here.join(name);
        let mut document = match std::fs::read(&at) {
            Ok(text) => serde_json::from_slice(&text).expect("JSON"),
            Err(_none) => json!({ "name": name, "versions": {} }),
        };
        document["dist-tags"] = json!({ "latest": version });
        document["versions"][version].clone_from(&described);
        std::fs::write(at, document.to_string()).expect("written");
        described
    }

    /// Publishes a Python package with one module.
    pub(crate) fn wheel(&self, name: &str, version: &str, code: &str) {
        let page = self.site("simple").join(name);
        std::fs::create_dir_all(&page).expect("made");
        let mut make = tool("python3");
        make.args(["-c", WHEEL]).arg(&page);
        succeed(make.args([name, version, code])).expect("a wheel");
        let files = std::fs::read_dir(&page).expect("listed").flatten();
        let links: String = files
            .filter_map(|file| file.file_name().into_string().ok())
            .filter(|file| Path::new(file).extension().is_some_and(|end| end == "whl"))
            .map(|file| format!("<a href=\"{file}\">{file}</a>\n"))
            .collect();
        let text = format!("<!DOCTYPE html><html><body>{links}</body></html>\n");
        std::fs::write(page.join("index.html"), text).expect("written");
    }

    /// The host configuration for these indexes.
    pub(crate) fn policy(&self) -> String {
        format!(
            "preparation:\n  apt:\n    sources: ['deb {}/apt ./']\n    trusted_keys: {}\n  \
             npm: {{registry: '{}/npm/'}}\n  pip: {{index: '{}/simple/'}}\n  \
             allow_private: [127.0.0.1/32]\n",
            self.url("apt"),
            self.keys().display(),
            self.url("npm"),
            self.url("pip"),
        )
    }
}
