//! Layouts: skopeo reads what the runner writes, the runner reads what skopeo writes, and hostile
//! ones are refused.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use runner_sources::oci::error::OciError;
use runner_sources::oci::layout::{Layout, LayoutEntry, LayoutWriter};
use runner_sources::oci::observer::{NoObserver, Observer};
use runner_sources::oci::origin::Origin as _;
use spec::digest::Digest;
use spec::oci::media::MANIFEST;
use spec::oci::reference::{Place, Which};

use crate::real::document;
use crate::scripted::Ending;
use support::packages::{has, succeed};

const LAYER: &[u8] = b"the bytes of a layer";

/// Writes the artifact of these tests to the layout at `path`.
fn written(path: &Path, name: Option<&str>, bytes: &[u8]) -> Result<Digest, OciError> {
    written_by(path, name, bytes, &NoObserver)
}

fn written_by(
    path: &Path,
    name: Option<&str>,
    bytes: &[u8],
    observer: &dyn Observer,
) -> Result<Digest, OciError> {
    let mut writer = LayoutWriter::create(path)?;
    writer.add_blob(&mut &LAYER[..])?;
    writer.add_blob(&mut &b"{}"[..])?;
    let (digest, size) = writer.add_blob(&mut &*bytes)?;
    let entry = LayoutEntry {
        digest,
        bytes: size,
        media_type: MANIFEST.to_owned(),
        artifact_type: Some("test/artifact".to_owned()),
        name: name.map(str::to_owned),
    };
    writer.finish(&entry, observer)?;
    Ok(digest)
}

/// Every file of a directory with its contents.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).expect("read") {
            let path = entry.expect("read").path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below").to_owned();
                found.insert(name, std::fs::read(&path).expect("read"));
            }
        }
    }
    found
}

fn named(name: &str) -> Which {
    Which::Tag(name.to_owned())
}

#[test]
fn a_layout_is_written_in_the_same_bytes_each_time_and_read_back() {
    let ground = tempfile::tempdir().expect("a directory");
    let (one, other) = (ground.path().join("one"), ground.path().join("other"));
    let digest = written(&one, Some("v1"), &document()).expect("written");
    std::fs::create_dir(&other).expect("made");
    written(&other, Some("v1"), &document()).expect("an empty directory is as good as none");
    assert_eq!(files(&one), files(&other));
    assert_eq!(files(&one).len(), 5);
    assert_eq!(std::fs::read_dir(ground.path()).expect("read").count(), 2);
    let layout = Layout::open(&one).expect("opened");
    for which in [named("v1"), Which::Unnamed, Which::Digest(digest)] {
        let fetched = layout.manifest(&which).expect("there");
        assert_eq!((fetched.bytes, fetched.digest), (document(), digest));
    }
    let mut stream = layout.blob(&Digest::of(LAYER), 4).expect("there");
    let mut bytes = Vec::new();
    stream.reader.read_to_end(&mut bytes).expect("read");
    assert_eq!((stream.starts_at, bytes.as_slice()), (4, &LAYER[4..]));
}

#[test]
fn a_manifest_that_is_added_takes_its_name_and_leaves_the_others() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    let first = written(&path, Some("v1"), &document()).expect("written");
    let other = [document(), b"\n".to_vec()].concat();
    let second = written(&path, Some("v2"), &other).expect("written");
    written(&path, Some("v2"), &other).expect("written again");
    let read = |which: &Which| {
        let layout = Layout::open(&path).expect("opened");
        layout.manifest(which).map(|fetched| fetched.digest)
    };
    assert_eq!(read(&named("v1")).expect("there"), first);
    assert_eq!(read(&named("v2")).expect("there"), second);
    let error = read(&Which::Unnamed).expect_err("two");
    let text = error.to_string();
    assert!(
        text.contains("2 manifests, expected one; it has v1, v2"),
        "{text}"
    );
    written(&path, Some("v1"), &other).expect("written");
    assert_eq!(read(&named("v1")).expect("there"), second);
    let error = read(&named("v3")).expect_err("none");
    assert_eq!(error.code(), "layout_not_found");
    assert!(error.to_string().contains("no manifest `v3`"), "{error}");
}

#[test]
fn writers_that_add_to_one_layout_at_once_lose_nothing_of_each_other() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    written(&path, Some("first"), &document()).expect("written");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for turn in 0..8 {
                    let name = format!("n{number}.{turn}");
                    let document = [document(), name.clone().into_bytes()].concat();
                    written(path, Some(&name), &document).expect("written");
                }
            });
        }
    });
    let layout = Layout::open(&path).expect("opened");
    assert_eq!(layout.entries().len(), 65);
    let is_whole = |name: &PathBuf| !name.to_string_lossy().ends_with(".tmp");
    assert!(files(&path).keys().all(is_whole));
}

#[test]
fn a_directory_that_is_not_a_layout_is_left_alone() {
    let ground = tempfile::tempdir().expect("a directory");
    let full = ground.path().join("full");
    std::fs::create_dir(&full).expect("made");
    std::fs::write(full.join("file"), "x").expect("written");
    let file = ground.path().join("file");
    std::fs::write(&file, "x").expect("written");
    for path in [&full, &file] {
        let error = LayoutWriter::create(path).expect_err("refused");
        assert_eq!(error.code(), "layout_occupied", "{error}");
        assert!(Layout::open(path).is_err());
    }
    let error = Layout::open(&full).expect_err("refused").to_string();
    assert!(error.contains("`oci-layout` is missing"), "{error}");
    assert_eq!(files(&full).len(), 1);
    let nowhere = ground.path().join("nowhere/layout");
    let error = LayoutWriter::create(&nowhere).expect_err("refused");
    assert_eq!(error.code(), "layout_unusable", "{error}");
}

#[test]
fn an_empty_current_directory_is_written_in_place() {
    const IN_PLACE: &str = "RUNNER_TEST_IN_PLACE";
    let name = "layouts::an_empty_current_directory_is_written_in_place";
    if std::env::var_os(IN_PLACE).is_some() {
        written(Path::new("."), Some("v1"), &document()).expect("written");
        return;
    }
    let ground = tempfile::tempdir().expect("a directory");
    let opened = std::fs::File::open(ground.path()).expect("opened");
    // The second run continues what an interrupted first one left.
    for _ in 0..2 {
        let mut again = Command::new(std::env::current_exe().expect("a program"));
        again.args(["--exact", name]).env(IN_PLACE, "1");
        succeed(again.current_dir(ground.path())).expect("written");
        let layout = Layout::open(ground.path()).expect("opened");
        layout.manifest(&named("v1")).expect("there");
        std::fs::remove_file(ground.path().join("index.json")).expect("removed");
    }
    let still = std::fs::metadata(ground.path()).expect("there");
    let before = opened.metadata().expect("there");
    assert_eq!(still.ino(), before.ino());
}

/// A blob that cannot be read.
struct Unreadable;

impl Read for Unreadable {
    fn read(&mut self, _buffer: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::from_raw_os_error(5))
    }
}

#[test]
fn a_layout_error_names_what_failed() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    let text = |error: OciError| error.to_string().replace(&path.display().to_string(), "L");
    let error = Layout::open(&path).map(drop).expect_err("missing");
    assert_eq!(text(error), "the layout `L` cannot be opened");
    let mut writer = LayoutWriter::create(&path).expect("begun");
    let error = writer.add_blob(&mut Unreadable).expect_err("unreadable");
    let expected = "the layout `L`: the content of a new blob cannot be read";
    assert_eq!(text(error), expected);
    written(&path, None, &document()).expect("written");
    let layout = Layout::open(&path).expect("opened");
    let error = layout.blob(&Digest::of(LAYER), LAYER.len() as u64);
    let error = text(error.map(drop).expect_err("at its end"));
    assert!(error.ends_with("` ends after 20 bytes"), "{error}");
    let index = path.join("index.json");
    std::fs::write(&index, "{\"schemaVersion\":2,\"manifests\":[]}").expect("written");
    let layout = Layout::open(&path).expect("opened");
    for which in [Which::Unnamed, named("v1")] {
        let error = layout.manifest(&which).expect_err("empty");
        assert_eq!(error.code(), "layout_not_found");
        assert_eq!(error.hint(), None);
        assert_eq!(text(error), "the layout `L` has no manifests");
    }
}

#[test]
fn an_abandoned_writer_leaves_no_file() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    let mut writer = LayoutWriter::create(&path).expect("begun");
    writer.add_blob(&mut &LAYER[..]).expect("added");
    drop(writer);
    assert_eq!(std::fs::read_dir(ground.path()).expect("read").count(), 0);
}

#[test]
fn a_layout_that_was_changed_is_refused_by_the_file_that_is_wrong() {
    let ground = tempfile::tempdir().expect("a directory");
    let secret = ground.path().join("secret");
    std::fs::write(&secret, document()).expect("written");
    let name = format!("blobs/sha256/{}", &Digest::of(&document()).to_string()[7..]);
    let large = vec![b' '; (4 << 20) + 1];
    type Harm = Box<dyn Fn(&Path)>;
    let cases: Vec<(&str, Harm)> = vec![
        ("has the digest", {
            let name = name.clone();
            Box::new(move |layout| std::fs::write(layout.join(&name), "x").expect("written"))
        }),
        ("is missing", {
            let name = name.clone();
            Box::new(move |layout| std::fs::remove_file(layout.join(&name)).expect("removed"))
        }),
        ("is reached through a link", {
            let (name, secret) = (name.clone(), secret.clone());
            Box::new(move |layout| {
                std::fs::remove_file(layout.join(&name)).expect("removed");
                symlink(&secret, layout.join(&name)).expect("linked");
            })
        }),
        ("is reached through a link", {
            Box::new(|layout| {
                std::fs::rename(layout.join("blobs"), layout.join("elsewhere")).expect("renamed");
                symlink("elsewhere", layout.join("blobs")).expect("linked");
            })
        }),
        ("is not a regular file", {
            let name = name.clone();
            Box::new(move |layout| {
                std::fs::remove_file(layout.join(&name)).expect("removed");
                let fifo = Command::new("mkfifo").arg(layout.join(&name)).status();
                assert!(fifo.expect("mkfifo starts").success());
            })
        }),
        ("has more than 4 MiB", {
            Box::new(move |layout| {
                std::fs::write(layout.join("index.json"), &large).expect("written");
            })
        }),
        ("is not an image index", {
            Box::new(|layout| std::fs::write(layout.join("index.json"), "[]").expect("written"))
        }),
        ("expected 1.0.0", {
            Box::new(|layout| {
                let text = "{\"imageLayoutVersion\":\"9.0.0\"}";
                std::fs::write(layout.join("oci-layout"), text).expect("written");
            })
        }),
    ];
    for (index, (part, harm)) in cases.iter().enumerate() {
        let layout = ground.path().join(index.to_string());
        written(&layout, None, &document()).expect("written");
        harm(&layout);
        let read = Layout::open(&layout).and_then(|opened| opened.manifest(&Which::Unnamed));
        let text = read.expect_err(part).to_string();
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn indexes_are_followed_a_few_deep_and_no_further() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    let digest = written(&path, Some("it"), &document()).expect("written");
    let index_of = |inner: &str| {
        let index = "application/vnd.oci.image.index.v1+json";
        let digest = Digest::of(inner.as_bytes());
        let file = path.join("blobs/sha256").join(&digest.to_string()[7..]);
        std::fs::write(file, inner).expect("written");
        format!(
            "{{\"schemaVersion\":2,\"manifests\":[{{\"mediaType\":\"{index}\",\
             \"digest\":\"{digest}\",\"size\":{}}}]}}",
            inner.len()
        )
    };
    let mut list = std::fs::read_to_string(path.join("index.json")).expect("read");
    for depth in 1..=6 {
        list = index_of(&list);
        std::fs::write(path.join("index.json"), &list).expect("written");
        let layout = Layout::open(&path).expect("opened");
        let found = layout.manifest(&named("it")).map(|fetched| fetched.digest);
        match depth <= 4 {
            true => assert_eq!(found.expect("there"), digest),
            false => assert!(
                found
                    .expect_err("too deep")
                    .to_string()
                    .contains("indexes deep")
            ),
        }
    }
}

/// An index with these digests, each as an index.
fn index_of(listed: &[Digest]) -> String {
    let entry = |digest: &Digest| {
        format!(
            "{{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"digest\":\"{digest}\",\
             \"size\":1}}"
        )
    };
    let entries: Vec<String> = listed.iter().map(entry).collect();
    let entries = entries.join(",");
    format!("{{\"schemaVersion\":2,\"manifests\":[{entries}]}}")
}

fn put(layout: &Path, text: &str) -> Digest {
    let digest = Digest::of(text.as_bytes());
    let file = layout.join("blobs/sha256").join(&digest.to_string()[7..]);
    std::fs::write(file, text).expect("written");
    digest
}

#[test]
fn an_index_that_is_listed_thousands_of_times_is_read_once() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    written(&path, Some("it"), &document()).expect("written");
    let mut list = std::fs::read_to_string(path.join("index.json")).expect("read");
    // 1000 to the power of four documents for a reader that follows each of them.
    for _ in 0..4 {
        list = index_of(&[put(&path, &list); 1000]);
    }
    std::fs::write(path.join("index.json"), &list).expect("written");
    let layout = Layout::open(&path).expect("opened");
    assert!(layout.manifest(&named("it")).is_ok());
    let error = layout.manifest(&named("other")).expect_err("none");
    assert_eq!(error.code(), "layout_not_found", "{error}");
    let many: Vec<Digest> = (0..300)
        .map(|number| {
            let inner = Digest::of(format!("{number}").as_bytes());
            put(&path, &index_of(&[inner]))
        })
        .collect();
    std::fs::write(path.join("index.json"), index_of(&many)).expect("written");
    let error = Layout::open(&path).expect("opened").manifest(&named("it"));
    let error = error.expect_err("too many").to_string();
    assert!(error.contains("indexes"), "{error}");
}

#[test]
fn nothing_is_made_through_a_link_of_a_layout() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    written(&path, Some("it"), &document()).expect("written");
    let elsewhere = ground.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    std::fs::remove_dir_all(path.join("blobs")).expect("removed");
    symlink(&elsewhere, path.join("blobs")).expect("linked");
    let mut writer = LayoutWriter::create(&path).expect("begun");
    writer.add_blob(&mut &LAYER[..]).expect_err("refused");
    assert_eq!(std::fs::read_dir(&elsewhere).expect("read").count(), 0);
}

#[test]
fn waiting_for_a_locked_layout_can_be_cancelled() {
    let ground = tempfile::tempdir().expect("a directory");
    let path = ground.path().join("layout");
    written(&path, Some("it"), &document()).expect("written");
    let held = std::fs::File::open(&path).expect("opened");
    held.lock().expect("locked");
    let ending = Ending::default();
    ending.wanted.store(true, Ordering::SeqCst);
    let error = written_by(&path, Some("other"), &document(), &ending).expect_err("cancelled");
    assert_eq!(error.code(), "cancelled", "{error}");
    held.unlock().expect("unlocked");
    written(&path, Some("other"), &document()).expect("written");
}

#[test]
fn skopeo_reads_what_we_write_and_we_read_what_skopeo_writes() {
    if !has("skopeo") {
        return;
    }
    let ground = tempfile::tempdir().expect("a directory");
    let (ours, theirs) = (ground.path().join("ours"), ground.path().join("theirs"));
    let digest = written(&ours, Some("team/name:v1"), &document()).expect("written");
    let mut copy = Command::new("skopeo");
    copy.args(["--insecure-policy", "copy", "--preserve-digests"]);
    copy.arg(format!("oci:{}:team/name:v1", ours.display()));
    copy.arg(format!("oci:{}:there", theirs.display()));
    copy.env("HOME", ground.path());
    succeed(&mut copy).expect("skopeo reads it");
    let place = format!("oci:{}:there", theirs.display());
    let Place::Layout { directory, which } = Place::parse(&place).expect("a place") else {
        panic!("{place} is a layout");
    };
    let layout = Layout::open(&directory).expect("opened");
    let fetched = layout.manifest(&which).expect("there");
    assert_eq!((fetched.digest, fetched.bytes), (digest, document()));
    let mut bytes = Vec::new();
    let mut stream = layout.blob(&Digest::of(LAYER), 0).expect("there");
    stream.reader.read_to_end(&mut bytes).expect("read");
    assert_eq!(bytes, LAYER);
}
