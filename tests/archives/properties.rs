//! For any bytes: no panic, and nothing outside the target.

use archive::UnpackLimits;
use proptest::prelude::*;

use crate::arena::Arena;
use support::tar::{Tar, gzip, header, record, seal};

const LIMITS: UnpackLimits = UnpackLimits {
    compressed_bytes: 1 << 20,
    unpacked_bytes: 1 << 16,
    entries: 60,
};

/// Unpacks, with the checks of the arena. The canonical tar of an accepted tree is unpacked to the
/// same digest.
fn survives(archive: &[u8]) {
    let arena = Arena::new();
    let Ok(unpacked) = arena.unpack(archive, &LIMITS) else {
        return;
    };
    let target = std::fs::File::open(arena.target()).expect("opened");
    let mut bytes = Vec::new();
    let target = std::os::fd::AsFd::as_fd(&target);
    archive::write_canonical(&unpacked.tree, target, &mut bytes).expect("written");
    let second = Arena::new()
        .unpack(gzip(&bytes).as_slice(), &UnpackLimits::default())
        .expect("canonical");
    assert_eq!(second.content_digest, unpacked.content_digest);
    assert_eq!(second.tree, unpacked.tree);
    let found = arena.found().len() as u64;
    assert_eq!((found, arena.bytes()), (unpacked.entries, unpacked.bytes));
}

/// Names that often collide, some of them hostile.
fn name() -> BoxedStrategy<String> {
    let segment = prop_oneof![
        12 => "[abc]",
        1 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        1 => Just(".git".to_owned()),
    ];
    proptest::collection::vec(segment, 1..5)
        .prop_map(|segments| segments.join("/"))
        .boxed()
}

fn tame_name() -> BoxedStrategy<String> {
    proptest::collection::vec("[abcd]", 1..5)
        .prop_map(|segments| segments.join("/"))
        .boxed()
}

fn target() -> impl Strategy<Value = String> {
    let segment = prop_oneof![4 => "[abc]", 3 => Just("..".to_owned()), 1 => Just(".".to_owned())];
    proptest::collection::vec(segment, 1..6).prop_map(|segments| segments.join("/"))
}

#[derive(Debug, Clone)]
enum Step {
    File(String, Vec<u8>),
    Directory(String),
    Symlink(String, String),
    HardLink(String, String),
    Pax(Option<String>, Option<String>, Option<u64>),
    Long(u8, String),
    Odd(u8, String),
}

fn step(name: BoxedStrategy<String>) -> impl Strategy<Value = Step> {
    let data = proptest::collection::vec(any::<u8>(), 0..1200);
    let optional = |name| proptest::option::of(name);
    prop_oneof![
        6 => (name.clone(), data).prop_map(|(name, data)| Step::File(name, data)),
        3 => name.clone().prop_map(Step::Directory),
        3 => (name.clone(), target()).prop_map(|(name, target)| Step::Symlink(name, target)),
        2 => (name.clone(), name.clone()).prop_map(|(name, to)| Step::HardLink(name, to)),
        1 => (optional(name.clone()), optional(name.clone()), proptest::option::of(0..2000_u64))
            .prop_map(|(path, link, size)| Step::Pax(path, link, size)),
        1 => (prop_oneof![Just(b'L'), Just(b'K')], name.clone())
            .prop_map(|(flag, name)| Step::Long(flag, name)),
        1 => (any::<u8>(), name).prop_map(|(flag, name)| Step::Odd(flag, name)),
    ]
}

fn build(steps: &[Step]) -> Tar {
    steps.iter().fold(Tar::new(), |tar, step| match step {
        Step::File(name, data) => tar.file(name, data),
        Step::Directory(name) => tar.directory(name),
        Step::Symlink(name, target) => tar.symlink(name, target),
        Step::HardLink(name, target) => tar.hard_link(name, target),
        Step::Pax(path, link, size) => {
            let mut data = Vec::new();
            for (key, value) in [("path", path), ("linkpath", link)] {
                data.extend(value.iter().flat_map(|value| record(key, value.as_bytes())));
            }
            data.extend(
                size.iter()
                    .flat_map(|size| record("size", size.to_string().as_bytes())),
            );
            tar.extended(b'x', &data)
        }
        Step::Long(flag, name) => tar.extended(*flag, format!("{name}\0").as_bytes()),
        Step::Odd(flag, name) => tar.raw(&header(*flag, name.as_bytes(), 0)),
    })
}

/// A valid archive with every kind of entry.
fn honest() -> Vec<u8> {
    Tar::new()
        .directory("./")
        .directory("./d/")
        .file("./d/f", &[b'x'; 700])
        .pax(&[("mtime", b"1.5"), ("path", b"d/long")])
        .file("short", b"pax")
        .extended(b'L', b"d/gnu\0")
        .file("short", b"gnu")
        .symlink("d/l", "f")
        .hard_link("h", "./d/f")
        .end()
}

/// 64 cases of each, or the number in `PROPTEST_CASES`.
fn cases() -> ProptestConfig {
    let stated = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if stated { default.cases } else { 64 },
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn hostile_sequences_of_entries_never_escape(steps in proptest::collection::vec(step(name()), 0..12)) {
        survives(&build(&steps).gz());
    }

    #[test]
    fn entries_that_often_fit_never_escape(steps in proptest::collection::vec(step(tame_name()), 0..6)) {
        survives(&build(&steps).gz());
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        survives(&bytes);
        survives(&gzip(&bytes));
        survives(&gzip(&Tar::new().file("a", b"1").raw(&bytes).end()));
    }

    #[test]
    fn an_honest_archive_with_changed_bytes_never_escapes(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        reseal: bool,
    ) {
        let mut tar = honest();
        for (at, byte) in &changes {
            let at = at.index(tar.len());
            tar[at] = *byte;
            if reseal {
                let start = at / 512 * 512;
                let mut block = tar[start..start + 512].try_into().expect("a block");
                seal(&mut block);
                tar[start..start + 512].copy_from_slice(&block);
            }
        }
        survives(&gzip(&tar));
        let mut compressed = gzip(&honest());
        for (at, byte) in &changes {
            let at = at.index(compressed.len());
            compressed[at] = *byte;
        }
        survives(&compressed);
    }
}

#[test]
fn the_honest_archive_is_accepted() {
    let unpacked = Arena::new()
        .unpack(gzip(&honest()).as_slice(), &LIMITS)
        .expect("honest");
    assert_eq!(unpacked.entries, 6);
    survives(&gzip(&honest()));
}
