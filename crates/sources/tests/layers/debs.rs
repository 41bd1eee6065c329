//! Debian packages: valid ones made by dpkg or from the Debian archive, and hostile ones made byte by byte.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use archive::deb::Package;
use archive::{Compression, LayerView, UnpackLimits, unpack_layer};
use reader::{PackageProblem, PackagesTask};
use runner_sources::oci::layers::{Merged, PackageLayer, unpack_packages};

use crate::stack::{PERMIT, walk};
use crate::streams::compressed;
use support::confined::await_confined_children;
use support::packages;
use support::tar::Tar;

/// One member of an ar archive.
fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = format!(
        "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
        0,
        0,
        0,
        "100644",
        bytes.len()
    )
    .into_bytes();
    assert_eq!(header.len(), 60);
    header.extend_from_slice(bytes);
    if bytes.len() % 2 == 1 {
        header.push(b'\n');
    }
    header
}

fn control(text: &str) -> Vec<u8> {
    Tar::new()
        .directory("./")
        .file("./control", text.as_bytes())
        .file("./postinst", b"#!/bin/sh\nrm -rf /\n")
        .file("./md5sums", b"")
        .end()
}

const TEXT: &str = "Package: tool\nVersion: 1:2.3-4~5\nArchitecture: all\nDescription: x\n more\n";

fn package(members: &[(&str, &[u8])]) -> Vec<u8> {
    let all = members.iter().flat_map(|(name, bytes)| member(name, bytes));
    b"!<arch>\n".iter().copied().chain(all).collect()
}

fn of_data(tar: &[u8]) -> Vec<u8> {
    let control = compressed(&control(TEXT), Compression::Xz);
    let data = compressed(tar, Compression::Xz);
    package(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", &control),
        ("data.tar.xz", &data),
    ])
}

/// Packages over one layer below.
struct Ground {
    directory: tempfile::TempDir,
    below: OwnedFd,
    view: LayerView,
    limits: UnpackLimits,
}

impl Ground {
    fn over(base: &[u8]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let open = |name: &str| {
            fs::create_dir(directory.path().join(name)).expect("made");
            let opened = fs::File::open(directory.path().join(name)).expect("opened");
            OwnedFd::from(opened)
        };
        let below = open("below");
        open("layer");
        let limits = UnpackLimits::default();
        let unpacked = unpack_layer(
            &PERMIT,
            base,
            Compression::Plain,
            below.as_fd(),
            LayerView::default(),
            &limits,
            &|| false,
        );
        Self {
            view: unpacked.expect("a layer").view,
            directory,
            below,
            limits,
        }
    }

    /// Calls `before_each` before each package is sent.
    fn add_with(
        &self,
        all: &[&[u8]],
        before_each: &dyn Fn(),
    ) -> Result<PackageLayer, PackageProblem> {
        let layer = fs::File::open(self.layer()).expect("opened");
        let merged = Merged::of_roots([self.below.as_fd()]);
        let mut left = all.iter();
        let mut next = || {
            let Some(deb) = left.next() else {
                return Ok(None);
            };
            before_each();
            let mut file = tempfile::tempfile()?;
            file.write_all(deb)?;
            file.rewind()?;
            Ok(Some(file))
        };
        let task = PackagesTask {
            next: &mut next,
            packages_max: all.len() as u64,
            is_cancelled: &|| false,
            into: layer.as_fd(),
            view: &self.view,
            limits: &self.limits,
        };
        unpack_packages(task, &|path| merged.has(path))
    }

    fn add(&self, all: &[&[u8]]) -> Result<PackageLayer, PackageProblem> {
        self.add_with(all, &|| ())
    }

    fn layer(&self) -> PathBuf {
        self.directory.path().join("layer")
    }

    fn found(&self) -> Vec<String> {
        let all = walk(&self.layer());
        let names = all
            .iter()
            .map(|path| path.strip_prefix(self.layer()).expect("beneath"));
        let mut names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn merged_usr() -> Vec<u8> {
    Tar::new()
        .directory("usr/lib")
        .directory("usr/bin")
        .symlink("lib", "usr/lib")
        .symlink("bin", "usr/bin")
        .with(b'5', b"etc", 0, |block| {
            block[100..108].copy_from_slice(b"0000700\0");
        })
        .file("etc/tool.conf", b"of the image")
        .end()
}

#[test]
fn files_of_packages_go_where_the_links_of_the_image_lead() {
    let ground = Ground::over(&merged_usr());
    let first = Tar::new()
        .directory("./")
        .directory("./lib/")
        .directory("./lib/tool/")
        .file("./lib/tool/a", b"a")
        .directory("./bin/")
        .symlink("./bin/tool", "../lib/tool/a")
        .hard_link("./bin/again", "./lib/tool/a")
        .directory("./etc/")
        .file("./etc/tool.conf", b"of the package")
        .file("./etc/.wh.name", b"no whiteout")
        .end();
    let second = Tar::new()
        .directory("./lib/tool/")
        .file("./lib/tool/b", b"b")
        .end();
    let unpacked = ground
        .add(&[&of_data(&first), &of_data(&second)])
        .expect("two packages");
    let packages = &unpacked.packages;
    assert_eq!(packages.len(), 2);
    assert_eq!(
        packages[0],
        Package {
            name: "tool".to_owned(),
            version: "1:2.3-4~5".to_owned(),
            architecture: "all".to_owned(),
            scripts: vec!["postinst".to_owned()],
        }
    );
    assert_eq!(
        ground.found(),
        [
            "etc",
            "etc/.wh.name",
            "etc/tool.conf",
            "usr",
            "usr/bin",
            "usr/bin/again",
            "usr/bin/tool",
            "usr/lib",
            "usr/lib/tool",
            "usr/lib/tool/a",
            "usr/lib/tool/b",
        ]
    );
    // A hard link is a file once.
    assert_eq!(unpacked.bytes, 27);
    let mode = fs::metadata(ground.layer().join("etc"))
        .expect("status")
        .mode();
    assert_eq!(
        mode & 0o7777,
        0o700,
        "the directory of the image has another mode"
    );
}

#[test]
fn every_compression_that_dpkg_knows_is_read_and_members_of_others_are_passed_over() {
    let data = Tar::new().file("./x", b"data").end();
    let all = [
        ("", Compression::Plain),
        (".gz", Compression::Gzip),
        (".xz", Compression::Xz),
        (".zst", Compression::Zstd),
    ];
    for (ending, compression) in all {
        let deb = package(&[
            ("debian-binary/", b"2.0\n"),
            ("_signature", b"odd"),
            (
                &format!("control.tar{ending}"),
                &compressed(&control(TEXT), compression),
            ),
            (
                &format!("data.tar{ending}"),
                &compressed(&data, compression),
            ),
            ("_gpgorigin", b"x"),
        ]);
        let ground = Ground::over(&merged_usr());
        ground
            .add(&[&deb])
            .unwrap_or_else(|error| panic!("{ending}: {error:?}"));
        assert_eq!(ground.found(), ["x"], "{ending}");
    }
}

#[test]
fn what_is_no_package_is_refused() {
    let control = compressed(&control(TEXT), Compression::Gzip);
    let data = compressed(&Tar::new().file("x", b"").end(), Compression::Gzip);
    let (binary, control, data) = (
        member("debian-binary", b"2.0\n"),
        member("control.tar.gz", &control),
        member("data.tar.gz", &data),
    );
    let magic = b"!<arch>\n".to_vec();
    let whole = [&magic[..], &binary, &control, &data].concat();
    let mut wrong_end = whole.clone();
    wrong_end[8 + 58] = b'x';
    let mut size = whole.clone();
    size[8 + 48..8 + 58].copy_from_slice(b"-1        ");
    let many = std::iter::repeat_n(member("_x", b""), 20).flatten();
    let many: Vec<u8> = [&magic[..], &binary]
        .concat()
        .into_iter()
        .chain(many)
        .collect();
    for (code, bytes) in [
        ("not_deb", Vec::new()),
        ("not_deb", b"!<arch>".to_vec()),
        ("not_deb", b"PK\x03\x04 a zip".to_vec()),
        ("deb_member", magic.clone()),
        ("deb_truncated", whole[..30].to_vec()),
        ("deb_header", wrong_end),
        ("deb_header", size),
        ("deb_header", many),
        ("deb_member", [&magic[..], &control, &data].concat()),
        (
            "deb_member",
            [&magic[..], &member("debian-binary", b"3.0\n")].concat(),
        ),
        (
            "deb_member",
            [&magic[..], &binary, &data, &control].concat(),
        ),
        ("deb_member", [&magic[..], &binary, &control].concat()),
        ("deb_member", [&whole[..], &data].concat()),
        (
            "deb_member",
            [&magic[..], &binary, &member("control.tar.bz2", b"BZh")].concat(),
        ),
        (
            "not_gzip",
            [&magic[..], &binary, &member("control.tar.gz", b"no gzip")].concat(),
        ),
    ] {
        let error = Ground::over(&merged_usr())
            .add(&[&bytes])
            .expect_err("refused");
        assert_eq!(error.problem.code, code, "{error:?}");
        assert_eq!(error.index, Some(0), "{error:?}");
    }
    for cut in [
        whole.len() - 2,
        whole.len() - 20,
        whole.len() - data.len() + 61,
    ] {
        let error = Ground::over(&merged_usr())
            .add(&[&whole[..cut]])
            .expect_err("cut");
        let codes = ["deb_truncated", "gzip_truncated", "not_gzip"];
        assert!(codes.contains(&&error.problem.code[..]), "{cut}: {error:?}");
    }
}

#[test]
fn a_control_file_that_does_not_say_what_it_is_of_is_refused() {
    for text in [
        "",
        "Package: tool\nVersion: 1\n",
        "Package: tool\nArchitecture: all\n",
        "Version: 1\nArchitecture: all\n",
        "Package: a b\nVersion: 1\nArchitecture: all\n",
        "Package: \x1b[31m\nVersion: 1\nArchitecture: all\n",
        "Package:\nVersion: 1\nArchitecture: all\n",
        "Package: tool\n\nVersion: 1\nArchitecture: all\n",
    ] {
        let deb = package(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar", &control(text)),
            ("data.tar", &Tar::new().end()),
        ]);
        let error = Ground::over(&merged_usr())
            .add(&[&deb])
            .expect_err("refused");
        assert_eq!(error.problem.code, "deb_control", "{text:?}");
    }
}

#[test]
fn hostile_files_of_packages_are_refused_as_those_of_layers_are() {
    for (tar, code) in [
        (Tar::new().file("../x", b""), "path_parent"),
        (
            Tar::new().hard_link("x", "/etc/passwd"),
            "hard_link_missing",
        ),
        (
            Tar::new().symlink("l", "l").file("l/x", b""),
            "layer_path_links",
        ),
        (
            Tar::new().file("a", b"").file("a/b", b""),
            "bundle_path_conflict",
        ),
    ] {
        let error = Ground::over(&merged_usr())
            .add(&[&of_data(&tar.end())])
            .expect_err("refused");
        assert_eq!(error.problem.code, code);
    }
    let mut ground = Ground::over(&merged_usr());
    ground.limits.unpacked_bytes = 1_000;
    let half = of_data(&Tar::new().file("x", &[0; 600]).end());
    ground.add(&[&half]).expect("within the limit");
    let ground = Ground { ..ground };
    fs::remove_file(ground.layer().join("x")).expect("removed");
    let error = ground.add(&[&half, &half]).expect_err("together too large");
    assert_eq!(error.problem.code, "unpacked_bytes_limit");
}

/// It waits for the first package, and then for the second.
#[test]
fn the_process_that_unpacks_packages_has_no_rights() {
    let ground = Ground::over(&merged_usr());
    let first = of_data(&Tar::new().file("./lib/first", b"1").end());
    let second = of_data(&Tar::new().file("./lib/second", b"2").end());
    let unpacked = ground.add_with(&[&first, &second], &await_confined_children);
    assert_eq!(unpacked.expect("two packages").packages.len(), 2);
    assert_eq!(
        fs::read(ground.layer().join("usr/lib/second")).expect("read"),
        b"2"
    );
}

/// What dpkg leaves as it is.
#[test]
fn directories_of_the_image_stay_as_they_are() {
    let ground = Ground::over(&merged_usr());
    let with_mode = |tar: Tar, name: &str, mode: &'static [u8; 8]| {
        tar.with(b'5', name.as_bytes(), 0, move |block| {
            block[100..108].copy_from_slice(mode);
        })
    };
    let mut tar = Tar::new();
    for name in ["./etc", "./etc/own", "./usr", "./usr/bin", "./lib"] {
        tar = with_mode(tar, name, b"0000711\0");
    }
    let tar = tar.file("./etc/own/a", b"").file("./lib/b", b"");
    ground.add(&[&of_data(&tar.end())]).expect("a package");
    let all = ["etc", "etc/own", "etc/own/a", "usr", "usr/lib", "usr/lib/b"];
    assert_eq!(ground.found(), all);
    let mode = |root: &str, name: &str| {
        let path = ground.directory.path().join(root).join(name);
        fs::metadata(path).expect("status").mode() & 0o7777
    };
    for name in ["etc", "usr", "usr/lib"] {
        assert_eq!(mode("layer", name), mode("below", name), "{name}");
    }
    assert_eq!(mode("layer", "etc/own"), 0o711);
}

///
#[test]
fn packages_that_inflate_without_end_are_refused_by_the_process_that_unpacks() {
    let mut ground = Ground::over(&merged_usr());
    ground.limits.unpacked_bytes = 8 << 20;
    let bomb = of_data(&Tar::new().file("./zeros", &vec![0; 16 << 20]).end());
    let error = ground.add(&[&bomb[..]; 10]).expect_err("refused");
    assert_eq!(error.problem.code, "unpacked_bytes_limit");
    assert_eq!(error.index, Some(0));
}

/// Type, mode and contents of everything below `root`; for links, their targets.
fn contents(root: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut all: Vec<_> = walk(root)
        .into_iter()
        .map(|path| {
            let status = fs::symlink_metadata(&path).expect("status");
            let name = path.strip_prefix(root).expect("beneath");
            let name = name.to_string_lossy().into_owned();
            let bytes = match status.file_type() {
                kind if kind.is_symlink() => {
                    let target = fs::read_link(&path).expect("read");
                    return (name, 0, target.into_os_string().into_encoded_bytes());
                }
                kind if kind.is_file() => fs::read(&path).expect("read"),
                _ => Vec::new(),
            };
            (name, status.mode() & 0o177_0777, bytes)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn packages_of_debian_are_unpacked_as_dpkg_does() {
    let names = ["busybox-static", "hostname", "libacl1"];
    let directory = packages::prepared("debs-1", |directory| {
        let mut download = packages::tool("apt-get");
        download.args(["download", "-qq"]).args(names);
        packages::succeed(download.current_dir(directory)).map(drop)
    });
    let Some(directory) = directory else {
        return;
    };
    let mut all: Vec<PathBuf> = fs::read_dir(&directory)
        .expect("listed")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.sort();
    assert_eq!(all.len(), names.len());
    let ours = Ground::over(&Tar::new().end());
    let bytes: Vec<Vec<u8>> = all
        .iter()
        .map(|path| fs::read(path).expect("read"))
        .collect();
    let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let unpacked = ours.add(&bytes).expect("packages");
    let found: Vec<&str> = unpacked
        .packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    assert_eq!(found, names);
    let theirs = tempfile::tempdir().expect("a directory");
    for path in &all {
        let unpacked = Command::new("dpkg-deb")
            .arg("-x")
            .arg(path)
            .arg(theirs.path())
            .status();
        assert!(unpacked.expect("dpkg-deb").success());
    }
    fs::set_permissions(theirs.path(), fs::Permissions::from_mode(0o755)).expect("mode set");
    assert_eq!(contents(&ours.layer()), contents(theirs.path()));
}
