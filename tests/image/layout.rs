//! Images as layouts, made byte by byte: no tool would make the hostile ones.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use spec::digest::Digest;

use support::Ground;
use support::images::busybox;

/// The kind of an entry of a layer.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file with these bytes and this mode.
    File(Vec<u8>, u32),
    /// A symbolic link.
    Link(String),
    /// A character device.
    Device(u32, u32),
    /// A pipe.
    Fifo,
}

/// One layer: paths and their entries.
pub type Layer = Vec<(String, Entry)>;

/// A file that everybody may read.
pub fn file(text: &str) -> Entry {
    Entry::File(text.as_bytes().to_vec(), 0o644)
}

/// A link.
pub fn link(target: impl AsRef<Path>) -> Entry {
    Entry::Link(target.as_ref().to_str().expect("text").to_owned())
}

/// A layer of these entries.
pub fn layer<const N: usize>(entries: [(&str, Entry); N]) -> Layer {
    entries.map(|(path, entry)| (path.to_owned(), entry)).into()
}

/// busybox with its links in `/bin`, users, and the usual directories.
pub fn base() -> Option<Layer> {
    let program = std::fs::read(busybox()?).expect("readable");
    let mut base = layer([
        ("bin", Entry::Directory),
        ("bin/busybox", Entry::File(program, 0o755)),
        ("etc", Entry::Directory),
        (
            "etc/passwd",
            file("root:x:0:0:root:/root:/bin/sh\napp:x:12:34::/srv/app:/bin/sh\n"),
        ),
        ("etc/group", file("root:x:0:\nstaff:x:50:app\n")),
        ("etc/of-image", file("image\n")),
        ("root", Entry::Directory),
        ("srv", Entry::Directory),
        ("srv/app", Entry::Directory),
        ("usr", Entry::Directory),
        ("usr/bin", Entry::Directory),
        (
            "usr/bin/only-here",
            Entry::File(b"#!/bin/sh\necho only\n".to_vec(), 0o755),
        ),
        ("lib", link("usr/lib")),
        ("usr/lib", Entry::Directory),
        ("usr/lib/kept", file("kept\n")),
    ]);
    for name in [
        "sh", "ls", "cat", "id", "touch", "echo", "mount", "umount", "su", "stat", "ps", "kill",
        "grep", "mkdir", "rm", "env", "readlink", "sleep", "dd", "find", "unshare", "chown", "pwd",
        "test", "wc", "mknod", "setpriv",
    ] {
        base.push((format!("bin/{name}"), link("busybox")));
    }
    Some(base)
}

/// Writes the image with these layers, lowest first, and this config; returns the directory.
pub fn image(ground: &Ground, name: &str, layers: &[Layer], config: Value) -> PathBuf {
    let directory = ground.path(name);
    let blobs = directory.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("made");
    let put = |bytes: &[u8], media: &str| {
        let digest = Digest::of(bytes).to_string();
        let name = digest.trim_start_matches("sha256:");
        std::fs::write(blobs.join(name), bytes).expect("written");
        json!({"mediaType": media, "digest": digest, "size": bytes.len()})
    };
    let tars: Vec<Vec<u8>> = layers.iter().map(tar).collect();
    let diff_ids: Vec<String> = tars.iter().map(|tar| Digest::of(tar).to_string()).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "os": "linux", "architecture": architecture, "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = put(
        config.to_string().as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    );
    let layers: Vec<Value> = tars
        .iter()
        .map(|tar| put(tar, "application/vnd.oci.image.layer.v1.tar"))
        .collect();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": layers,
    });
    let manifest = put(
        manifest.to_string().as_bytes(),
        "application/vnd.oci.image.manifest.v1+json",
    );
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(directory.join("index.json"), index.to_string()).expect("written");
    let marker = r#"{"imageLayoutVersion":"1.0.0"}"#;
    std::fs::write(directory.join("oci-layout"), marker).expect("written");
    directory
}

/// The value of `--image`.
pub fn place(directory: &Path) -> String {
    format!("oci:{}", directory.display())
}

fn tar(layer: &Layer) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, entry) in layer {
        let (kind, mode, contents, target, device) = match entry {
            Entry::Directory => (b'5', 0o755, &[][..], "", (0, 0)),
            Entry::File(contents, mode) => (b'0', *mode, &contents[..], "", (0, 0)),
            Entry::Link(target) => (b'2', 0o777, &[][..], target.as_str(), (0, 0)),
            Entry::Device(major, minor) => (b'3', 0o666, &[][..], "", (*major, *minor)),
            Entry::Fifo => (b'6', 0o666, &[][..], "", (0, 0)),
        };
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        assert!(path.len() <= 100 && target.len() <= 100, "{path} {target}");
        put(0, path.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000\x000000000\0");
        put(124, format!("{:011o}", contents.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        put(329, format!("{:07o}", device.0).as_bytes());
        put(337, format!("{:07o}", device.1).as_bytes());
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend_from_slice(&[0; 1024]);
    bytes
}
