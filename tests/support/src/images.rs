//! OCI images for tests, made from Debian packages by `umoci`: nothing comes from a public registry.
//!
//! They are OCI layouts, created once and kept with the packages (`packages::prepared`).

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::is_root;
use crate::packages::{has, prepared, succeed, tool};
use crate::registry::{Options, Registry};

/// Files that are left out of the Debian image: nothing that runs needs them.
const LEFT_OUT: [&str; 6] = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/zoneinfo/*",
    "/usr/share/info/*",
    "/usr/lib/*/gconv/*",
];

/// An image in a layout.
#[derive(Clone, Debug)]
pub struct Image {
    /// The layout.
    pub layout: PathBuf,
    /// Its name in the layout.
    pub name: &'static str,
}

impl Image {
    /// The value of `--image`: `oci:DIRECTORY:NAME`.
    pub fn place(&self) -> String {
        format!("oci:{}:{}", self.layout.display(), self.name)
    }

    /// The files of its layers, the lowest first.
    pub fn layers(&self) -> Vec<PathBuf> {
        let blob = |digest: &str| self.layout.join("blobs").join(digest.replace(':', "/"));
        let text = std::fs::read(blob(&self.digest())).expect("a manifest");
        let manifest: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let layers = manifest["layers"].as_array().expect("a list").iter();
        let layers = layers.map(|layer| blob(layer["digest"].as_str().expect("a digest")));
        layers.collect()
    }

    /// The digest of its manifest.
    pub fn digest(&self) -> String {
        let text = std::fs::read(self.layout.join("index.json")).expect("an index");
        let index: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let manifests = index["manifests"].as_array().expect("a list");
        let named = manifests
            .iter()
            .find(|one| one["annotations"]["org.opencontainers.image.ref.name"] == self.name);
        let digest = named.expect("the name")["digest"].as_str();
        digest.expect("a digest").to_owned()
    }

    /// Pushes it to a registry under this name (`NAME:TAG`) with skopeo.
    pub fn push(&self, registry: &Registry, name: &str) {
        let to = format!("docker://{}", registry.reference(name));
        let mut copy = skopeo("copy", registry, "dest-");
        succeed(copy.args([&self.place(), &to])).expect("skopeo copies");
    }
}

/// `skopeo VERB` with the options for this registry. `prefix` is the prefix of the options for the
/// registry's side: empty, `src-` or `dest-`.
pub fn skopeo(verb: &str, registry: &Registry, prefix: &str) -> Command {
    let mut skopeo = tool("skopeo");
    skopeo.args(["--insecure-policy", verb]);
    let Options { tls, login } = registry.options();
    if tls {
        skopeo.arg(format!("--{prefix}cert-dir={}", registry.certificates()));
    } else {
        skopeo.arg(format!("--{prefix}tls-verify=false"));
    }
    if login {
        let user = Registry::USER;
        skopeo.arg(format!("--{prefix}creds={user}:{}", registry.password()));
    }
    skopeo
}

/// A static busybox, from Debian's package.
pub fn busybox() -> Option<PathBuf> {
    let directory = prepared("busybox-1", |directory| {
        let download = tool("apt-get")
            .args(["download", "-qq", "busybox-static"])
            .current_dir(directory)
            .output();
        let download = download.map_err(|error| error.to_string())?;
        let archive = std::fs::read_dir(directory)
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .ok_or_else(|| String::from_utf8_lossy(&download.stderr).into_owned())?;
        let mut dpkg = tool("dpkg-deb");
        dpkg.arg("-x").arg(&archive).arg(directory.join("unpacked"));
        succeed(&mut dpkg)?;
        std::fs::copy(
            directory.join("unpacked/bin/busybox"),
            directory.join("busybox"),
        )
        .map_err(|error| error.to_string())?;
        std::fs::remove_file(&archive).map_err(|error| error.to_string())?;
        std::fs::remove_dir_all(directory.join("unpacked")).map_err(|error| error.to_string())
    })?;
    Some(directory.join("busybox"))
}

/// A few megabytes: busybox with its links in `/bin`, five layers by umoci.
///
/// - `/lib` is a link to `usr/lib`; an upper layer writes `lib/second` through it.
/// - `/data/kept` says `lower`, `/data/changed` says `upper`, `/data/gone` is whited out.
/// - `/opaque` has `new` only: `old` was below an opaque directory.
/// - The layers end as umoci 0.4 ends them: without the padding of the last
///   file and without the two blocks of zeroes, which every reader of images takes.
/// - Config: `GREETING=hello`, `PATH=/bin`, working directory `/data`, no user.
pub fn tiny() -> Option<Image> {
    let busybox = busybox()?;
    if !has("umoci") {
        return None;
    }
    let directory = prepared("image-tiny-1", |directory| make_tiny(directory, &busybox))?;
    Some(Image {
        layout: directory.join("layout"),
        name: "tiny",
    })
}

/// Debian with apt, Python with pip, node with npm: one layer of about 250 MB. `PATH` is the usual
/// one; no user, no working directory.
///
/// Only root can create it. An ordinary user finds the image of the test run as root.
pub fn debian() -> Option<Image> {
    if !["umoci", "mmdebstrap", "npm"].iter().all(|name| has(name)) {
        return None;
    }
    let directory = prepared("image-debian-2", make_debian)?;
    Some(Image {
        layout: directory.join("layout"),
        name: "debian",
    })
}

fn make_tiny(directory: &Path, busybox: &Path) -> Result<(), String> {
    let umoci = Umoci::new(directory, "tiny")?;
    let lower = directory.join("lower");
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent"))
            .and_then(|()| std::fs::write(path, text))
            .map_err(|error| error.to_string())
    };
    write("lower/usr/lib/first", "first\n")?;
    write("lower/data/kept", "lower\n")?;
    write("lower/data/changed", "lower\n")?;
    write("lower/data/gone", "lower\n")?;
    write("lower/opaque/old", "old\n")?;
    write(
        "lower/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nguest:x:405:100:guest:/data:/bin/sh\n",
    )?;
    write("lower/etc/group", "root:x:0:\nusers:x:100:\n")?;
    write("lower/bin/.keep", "")?;
    let linked = |target: &str, path: PathBuf| {
        symlink(target, path).map_err(|error| format!("link to {target}: {error}"))
    };
    linked("usr/lib", lower.join("lib"))?;
    std::fs::copy(busybox, lower.join("bin/busybox")).map_err(|error| error.to_string())?;
    let listed = succeed(Command::new(busybox).arg("--list"))?;
    for name in listed.lines().filter(|name| *name != "busybox") {
        linked("busybox", lower.join("bin").join(name))?;
    }
    write("upper/changed", "upper\n")?;
    write("upper/second", "second\n")?;
    write("upper/opaque/new", "new\n")?;
    umoci.insert(&[], "lower", "/")?;
    umoci.insert(&[], "upper/changed", "/data/changed")?;
    umoci.insert(&["--whiteout"], "", "/data/gone")?;
    umoci.insert(&["--opaque"], "upper/opaque", "/opaque")?;
    umoci.insert(&[], "upper/second", "/lib/second")?;
    umoci.configure(&[
        "--config.env=GREETING=hello",
        "--config.env=PATH=/bin",
        "--config.workingdir=/data",
    ])?;
    for made in ["lower", "upper"] {
        std::fs::remove_dir_all(directory.join(made)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn make_debian(directory: &Path) -> Result<(), String> {
    if !is_root() {
        return Err("only root makes it: run scripts/test as root once".to_owned());
    }
    let umoci = Umoci::new(directory, "debian")?;
    let tree = directory.join("tree.tar");
    let npm = npm_of_the_registry(directory)?;
    // It mounts proc and other file systems: in its own namespace, where no other test sees them.
    let mut make = tool("unshare");
    make.args(["--mount", "mmdebstrap"]);
    make.args(["--variant=minbase", "--quiet", "--skip=output/dev"]);
    make.arg("--include=python3,python3-pip,nodejs");
    // If /usr is not merged yet, the package that merges it needs all of Perl.
    make.arg("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr");
    make.arg("--setup-hook=printf 'Package: usrmerge\\nPin: release *\\nPin-Priority: -1\\n' >\"$1/etc/apt/preferences.d/merged\"");
    make.arg("--customize-hook=rm \"$1/etc/apt/preferences.d/merged\"");
    for pattern in LEFT_OUT {
        make.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    make.arg(format!(
        "--customize-hook=tar-in {} /usr/local",
        npm.display()
    ));
    make.arg("--customize-hook=mkdir -p \"$1/usr/local/bin\"");
    for name in ["npm", "npx"] {
        make.arg(format!(
            "--customize-hook=ln -s ../lib/node_modules/npm/bin/{name}-cli.js \"$1/usr/local/bin/{name}\""
        ));
    }
    make.args([&suite()?, tree.to_str().expect("a plain path")]);
    for line in sources()?.lines() {
        make.arg(line);
    }
    // Its work is a root file system beside the image, of the same size.
    make.env("TMPDIR", directory);
    succeed(&mut make)?;
    umoci.add(&tree)?;
    umoci.configure(&[
        "--config.env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "--config.env=LANG=C.UTF-8",
    ])?;
    for made in [tree, npm] {
        std::fs::remove_file(made).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// npm from its registry, as an archive of `lib/node_modules/npm`: the Debian package has several
/// hundred dependencies.
fn npm_of_the_registry(directory: &Path) -> Result<PathBuf, String> {
    let mut pack = tool("npm");
    pack.args(["pack", "--silent", "npm@10.9.2"]);
    let name = succeed(pack.current_dir(directory))?;
    let packed = directory.join(name.trim());
    let archive = directory.join("npm.tar");
    let script = r#"mkdir -p npm/lib/node_modules/npm
        tar -xzf "$1" -C npm/lib/node_modules/npm --strip-components=1
        chmod 0755 npm/lib/node_modules/npm/bin/*-cli.js
        tar -cf npm.tar --owner=0 --group=0 -C npm lib
        rm -r npm "$1""#;
    let mut sh = tool("sh");
    sh.args(["-euc", script, "sh"]).arg(&packed);
    succeed(sh.current_dir(directory))?;
    Ok(archive)
}

/// The Debian release of the host: the image is made of its packages.
fn suite() -> Result<String, String> {
    let text = std::fs::read_to_string("/etc/os-release").map_err(|error| error.to_string())?;
    let named = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    named
        .map(|name| name.trim_matches('"').to_owned())
        .ok_or_else(|| "the host has no VERSION_CODENAME".to_owned())
}

/// Lines of `sources.list` for the Debian archives that apt of the host uses.
pub fn sources() -> Result<String, String> {
    let lines = || {
        let mut list = tool("apt-get");
        list.args([
            "indextargets",
            "--format",
            "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
        ]);
        succeed(list.args(["Created-By: Packages", "Origin: Debian"]))
    };
    let mut found = lines()?;
    if found.is_empty() && is_root() {
        succeed(tool("apt-get").args(["update", "-qq"]))?;
        found = lines()?;
    }
    if found.is_empty() {
        return Err("the host's apt has no lists of a Debian archive".to_owned());
    }
    Ok(found)
}

/// Calls umoci, which writes layouts.
struct Umoci<'a> {
    directory: &'a Path,
    name: &'a str,
}

impl<'a> Umoci<'a> {
    /// A new layout `layout` with an empty image.
    fn new(directory: &'a Path, name: &'a str) -> Result<Self, String> {
        let umoci = Self { directory, name };
        umoci.call(&["init", "--layout", "layout"])?;
        umoci.call(&["new", "--image", &umoci.image()])?;
        Ok(umoci)
    }

    fn image(&self) -> String {
        format!("layout:{}", self.name)
    }

    fn call(&self, words: &[&str]) -> Result<(), String> {
        let mut umoci = tool("umoci");
        succeed(umoci.args(words).current_dir(self.directory)).map(|_said| ())
    }

    /// Adds a layer with one tree or file in it, or with a whiteout.
    fn insert(&self, flags: &[&str], from: &str, to: &str) -> Result<(), String> {
        let image = self.image();
        let mut words = vec!["insert", "--image", &image];
        if !is_root() {
            words.push("--rootless");
        }
        words.extend(flags);
        words.extend([from, to].iter().filter(|word| !word.is_empty()));
        self.call(&words)
    }

    /// Adds a layer of this archive.
    fn add(&self, archive: &Path) -> Result<(), String> {
        let archive = archive.to_str().expect("a plain path");
        self.call(&["raw", "add-layer", "--image", &self.image(), archive])
    }

    fn configure(&self, flags: &[&str]) -> Result<(), String> {
        let image = self.image();
        let mut words = vec!["config", "--image", &image];
        words.extend(flags);
        self.call(&words)?;
        // Removes the previous versions, which each change left in the layout.
        self.call(&["gc", "--layout", "layout"])
    }
}
