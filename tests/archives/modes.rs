//! Types, modes, owners, times and attributes.

use std::os::unix::fs::MetadataExt as _;

use crate::arena::{Arena, PERMIT, kept, refused};
use support::tar::Tar;

///
#[test]
fn devices_are_refused() {
    for (type_flag, major, minor) in [(b'3', b'1', b'3'), (b'3', b'1', b'1'), (b'4', b'7', b'0')] {
        let tar = Tar::new().with(type_flag, b"dev", 0, |block| {
            block[329..337].copy_from_slice(b"0000000\0");
            block[335] = major;
            block[337..345].copy_from_slice(b"0000000\0");
            block[343] = minor;
        });
        refused(&tar.gz(), "entry_type");
    }
}

///
#[test]
fn a_fifo_is_refused() {
    let error = refused(&Tar::new().with(b'6', b"f", 0, |_| ()).gz(), "entry_type");
    let text = "entry 1, `f`: it is a fifo (type `6`); expected a file, a directory or a link";
    assert_eq!(error.to_string(), text);
}

///
#[test]
fn sockets_and_unknown_types_are_refused() {
    for type_flag in *b"789sSZDMNVXA\x01\xff" {
        refused(
            &Tar::new().with(type_flag, b"f", 0, |_| ()).gz(),
            "entry_type",
        );
    }
}

///
#[test]
fn set_id_and_sticky_bits_are_stripped() {
    let with_mode = |tar: Tar, type_flag, name: &[u8], mode: &'static [u8; 7]| {
        tar.with(type_flag, name, 0, |block| {
            block[100..107].copy_from_slice(mode)
        })
    };
    let tar = with_mode(Tar::new(), b'0', b"all", b"0007777");
    let tar = with_mode(tar, b'0', b"others", b"0006677");
    let tar = with_mode(tar, b'0', b"owner", b"0000100");
    let tar = with_mode(tar, b'5', b"dir/", b"0007777");
    let (arena, _) = kept(&tar.gz());
    assert_eq!(arena.mode("all"), 0o755);
    assert_eq!(arena.mode("others"), 0o644);
    assert_eq!(arena.mode("owner"), 0o755);
    assert_eq!(arena.mode("dir"), 0o755);
}

///
#[test]
fn extended_attributes_are_not_applied() {
    let capability = b"\x01\0\0\x02\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let tar = Tar::new()
        .pax(&[
            ("SCHILY.xattr.security.capability", capability),
            ("SCHILY.xattr.user.test", b"x"),
            ("LIBARCHIVE.xattr.user.test", b"eA"),
            ("SCHILY.xattr.security.selinux", b"u:r:t:s0"),
            ("SCHILY.acl.access", b"user::rwx,group::rwx,other::rwx"),
            ("SCHILY.fflags", b"uappnd"),
        ])
        .file("f", b"x");
    let (arena, _) = kept(&tar.gz());
    let mut names = [0_u8; 4096];
    let path = arena.target().join("f");
    match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => {
            let names = String::from_utf8_lossy(&names[..length]).into_owned();
            assert!(
                !names.contains("user.") && !names.contains("capability"),
                "{names}"
            );
        }
        // A file system without extended attributes has applied none.
        Err(errno) => assert_eq!(errno, rustix::io::Errno::OPNOTSUPP),
    }
    assert_eq!(arena.mode("f"), 0o644);
}

///
#[test]
fn owners_are_ignored_however_odd() {
    let (uid, gid) = {
        let arena = Arena::new();
        let status = std::fs::metadata(arena.target()).expect("status");
        (status.uid(), status.gid())
    };
    for field in [
        b"0000000\0",
        b"\x80\0\0\0\x80\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xfe",
        b"\x80\xff\xff\xff\xff\xff\xff\xff",
        b"garbage!",
    ] {
        let tar = Tar::new().with(b'0', b"f", 0, |block| {
            block[108..116].copy_from_slice(field);
            block[116..124].copy_from_slice(field);
            block[265..269].copy_from_slice(b"root");
        });
        let (arena, _) = kept(
            &tar.pax(&[("uid", b"-1"), ("gid", b"99999999999999")])
                .file("g", b"")
                .gz(),
        );
        for name in ["f", "g"] {
            let status = std::fs::metadata(arena.target().join(name)).expect("status");
            assert_eq!((status.uid(), status.gid()), (uid, gid));
        }
    }
}

///
#[test]
fn times_are_ignored_however_odd() {
    for field in [
        b"77777777777\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"not a time!!",
    ] {
        let tar = Tar::new().with(b'0', b"f", 0, |block| {
            block[136..148].copy_from_slice(field)
        });
        kept(&tar.gz());
    }
    for value in [
        &b"NaN"[..],
        b"-1",
        b"9223372036854775808",
        b"1e400",
        b"",
        b"0.0000000000000000001",
    ] {
        let tar = Tar::new()
            .pax(&[("mtime", value), ("atime", value)])
            .file("f", b"x");
        kept(&tar.gz());
    }
}

///
#[test]
fn entries_without_any_right_are_usable_afterwards() {
    let none = |block: &mut [u8; 512]| block[100..107].copy_from_slice(b"0000000");
    let tar = Tar::new()
        .with(b'5', b"d/", 0, none)
        .with(b'0', b"d/f", 0, none)
        .file("d/g", b"x");
    let (arena, _) = kept(&tar.gz());
    assert_eq!((arena.mode("d"), arena.mode("d/f")), (0o755, 0o644));
    assert_eq!(arena.read("d/g"), b"x");
}

///
#[test]
fn read_only_directories_do_not_hinder_the_cleaning() {
    let mut tar = Tar::new().with(b'5', b"d/", 0, |block| {
        block[100..107].copy_from_slice(b"0000555")
    });
    for number in 0..50 {
        tar = tar.file(&format!("d/f{number}"), b"x");
    }
    let (arena, unpacked) = kept(&tar.gz());
    assert_eq!((arena.mode("d"), unpacked.entries), (0o755, 51));
    std::fs::remove_dir_all(arena.target().join("d")).expect("removed");
}

/// The umask belongs to the whole process, so each one has its own process.
#[test]
fn the_umask_of_the_caller_has_no_effect() {
    const CHILD: &str = "RUNNER_TEST_UMASK_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let tar = Tar::new()
            .file("d/f", b"x")
            .with(b'0', b"d/p", 0, |block| {
                block[100..107].copy_from_slice(b"0000755")
            })
            .file("d/e/g", b"x")
            .with(b'0', b"d/q", 0, |block| {
                block[100..107].copy_from_slice(b"0000755")
            });
        let target = std::env::var_os("RUNNER_TEST_UMASK_TARGET").expect("a target");
        let target = std::fs::File::open(target).expect("opened");
        let limits = archive::UnpackLimits::default();
        let target = std::os::fd::AsFd::as_fd(&target);
        archive::unpack(&PERMIT, tar.gz().as_slice(), target, &limits).expect("unpacked");
        return;
    }
    for umask in ["0000", "0011", "0077", "0777"] {
        let arena = Arena::new();
        let script = format!(
            "umask {umask}; exec \"$0\" --exact modes::the_umask_of_the_caller_has_no_effect"
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().expect("this test"))
            .env(CHILD, "1")
            .env("RUNNER_TEST_UMASK_TARGET", arena.target())
            .output()
            .expect("started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{umask}: {text}"
        );
        for (name, mode) in [
            ("d", 0o755),
            ("d/e", 0o755),
            ("d/f", 0o644),
            ("d/e/g", 0o644),
            ("d/p", 0o755),
            ("d/q", 0o755),
        ] {
            assert_eq!(arena.mode(name), mode, "{name} under umask {umask}");
        }
    }
}
