//! Programs that would raise privileges: set-uid, set-gid and file capabilities.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::attempts::{assert_lines, case, program, shell};
use support::bodies::copy_program;
use support::{Ground, is_root, needs_root, skip};

const WHO: &str = include_str!("../bodies/escapes/setuid_who.c");
const NOTHING_GAINED: &str = "uid 1000 1000 1000
    gid 1000 1000 1000
    CapInh:\t0000000000000000
    CapPrm:\t0000000000000000
    CapEff:\t0000000000000000
    CapBnd:\t0000000000000000
    CapAmb:\t0000000000000000
    setuid EINVAL
    unshare EPERM";

fn copy_of(ground: &Ground, program: &Path, name: &str) -> PathBuf {
    let copy = ground.path(name);
    copy_program(program, &copy);
    copy
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

/// B-44: owned by root if the test is root, otherwise by the caller.
#[test]
fn a_set_uid_program_raises_nothing() {
    let ground = Ground::new();
    let copy = copy_of(&ground, &program("who", WHO), "set-uid");
    set_mode(&copy, 0o6755);
    let done = case(&ground, &[], &copy, &[]).done();
    done.assert_exited(0);
    assert_lines(&done, NOTHING_GAINED);
}

/// B-44: owned by another user, in a mounted directory.
#[test]
fn a_set_uid_program_of_another_user_raises_nothing() {
    if !is_root() {
        return needs_root("only root can make a set-uid program of another user");
    }
    let ground = Ground::new();
    let directory = ground.path("programs");
    std::fs::create_dir(&directory).expect("made");
    let copy = copy_of(&ground, &program("who", WHO), "programs/set-uid");
    let stranger = rustix::fs::Uid::from_raw(1);
    rustix::fs::chown(&copy, Some(stranger), Some(rustix::fs::Gid::from_raw(1))).expect("given");
    set_mode(&copy, 0o6755);
    let path = copy.to_str().expect("a plain path");
    let directory = directory.to_str().expect("a plain path");
    let done = ground.run(&["--ro", directory], &[path]);
    done.assert_exited(0);
    assert_lines(&done, NOTHING_GAINED);
}

/// B-44: those of the host, in place and as copies.
#[test]
fn the_host_s_set_uid_programs_raise_nothing() {
    let ground = Ground::new();
    for (name, words) in [
        ("su", &["--command", "id", "root"][..]),
        ("mount", &["--bind", "/usr", "/tmp"]),
        ("umount", &["/proc/keys"]),
    ] {
        let Some(path) = ["/usr/bin", "/bin"]
            .iter()
            .map(|directory| Path::new(directory).join(name))
            .find(|path| path.exists())
        else {
            skip(&format!("this host has no {name}"));
            continue;
        };
        let copy = copy_of(&ground, &path, name);
        set_mode(&copy, 0o4755);
        for program in [path, copy] {
            let done = case(&ground, &[], &program, words).done();
            assert_eq!(done.outcome(), "exited", "{done:#?}");
            // Its own refusal: with 126 and 127 it did not start.
            assert!(matches!(done.code, 1..126), "{done:#?}");
            assert!(!done.text().contains("uid=0"), "{done:#?}");
        }
    }
}

/// The first argument is executed by a child, which is examined as a zombie: so it can drop or gain
/// any ids, and the final ones are seen.
const EXECUTE: &str = include_str!("../bodies/escapes/setuid_execute.c");

/// B-44: a copy of every set-uid program of this host, and of programs that often are.
#[test]
fn no_set_uid_program_of_the_host_has_another_id_inside() {
    let ground = Ground::new();
    let copies = ground.path("copies");
    std::fs::create_dir(&copies).expect("made");
    let mut words = Vec::new();
    let often = [
        "sudo",
        "su",
        "mount",
        "ping",
        "bwrap",
        "newuidmap",
        "fusermount3",
    ];
    for directory in ["/usr/bin", "/usr/sbin", "/usr/libexec"] {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            let Ok(metadata) = std::fs::metadata(entry.path()) else {
                continue;
            };
            let name = entry.file_name().into_string().expect("a plain name");
            let is_set = metadata.is_file() && metadata.permissions().mode() & 0o6000 != 0;
            let readable = std::fs::File::open(entry.path()).is_ok();
            if readable && (is_set || often.contains(&name.as_str())) {
                copy_program(entry.path(), &copies.join(&name));
                set_mode(&copies.join(&name), 0o6755);
                words.push(copies.join(&name).to_str().expect("plain").to_owned());
            }
        }
    }
    if words.is_empty() {
        return skip("this host has no set-uid program that can be copied");
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let copies = copies.to_str().expect("a plain path");
    let execute = program("execute-set-uid", EXECUTE);
    let done = case(&ground, &["--ro", copies], &execute, &words).done();
    done.assert_exited(0);
    assert_lines(&done, "all");
}

/// B-45 (CVE-2022-29162).
#[test]
fn file_capabilities_raise_nothing() {
    if !is_root() {
        return needs_root("only root can give a file capabilities");
    }
    let found = Command::new("setcap").arg("-h").output();
    if found.is_err() {
        return skip("no setcap (package libcap2-bin)");
    }
    let ground = Ground::new();
    for capabilities in [
        "cap_net_raw,cap_sys_admin+p",
        "cap_dac_override+ep",
        "all=eip",
    ] {
        let copy = copy_of(&ground, &program("who", WHO), "capable");
        let set = Command::new("setcap").arg(capabilities).arg(&copy).output();
        let set = set.expect("setcap starts");
        let said = String::from_utf8_lossy(&set.stderr);
        if said.contains("Operation not supported") {
            return skip("the file system of the temporary files keeps no capabilities");
        }
        assert!(set.status.success(), "{said}");
        let done = case(&ground, &[], &copy, &[]).done();
        done.assert_exited(0);
        assert_lines(&done, NOTHING_GAINED);
    }
}

/// B-44: files that the body itself makes set-uid.
#[test]
fn a_set_uid_program_that_the_body_makes_raises_nothing() {
    let ground = Ground::new();
    let path = program("who", WHO);
    let path = path.to_str().expect("a plain path");
    let text = format!("cp {path} /tmp/who; chmod 6755 /tmp/who 2>/dev/null; /tmp/who");
    let lines = shell(&ground, &["--ro", path], &text);
    let expected: Vec<&str> = NOTHING_GAINED.lines().map(str::trim).collect();
    assert_eq!(lines, expected);
}

const MAKE_SET_ID: &str = include_str!("../bodies/escapes/setuid_make_set_id.c");

/// B-14: what remains in a writable directory of the caller belongs to its owner, who may be root:
/// a set-id program there would give the body access to the host.
#[test]
fn no_set_id_program_stays_in_a_directory_that_was_lent_for_writing() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    std::fs::create_dir(&lent).expect("made");
    let shown = lent.to_str().expect("a plain path");
    let done = case(
        &ground,
        &["--rw", shown],
        &program("make-set-id", MAKE_SET_ID),
        &[shown],
    )
    .done();
    done.assert_exited(0);
    assert_lines(
        &done,
        "chmod 4755 EPERM
    chmod 2755 EPERM
    fchmod 4755 EPERM
    fchmodat 4755 EPERM
    fchmodat2 4755 EPERM
    open EPERM
    openat EPERM
    O_TMPFILE EPERM
    creat EPERM
    mknod EPERM
    openat2 ENOSYS
    chmod 1777 ok
    open without creating ok",
    );
    for entry in std::fs::read_dir(&lent).expect("readable") {
        let found = entry.expect("readable").metadata().expect("there");
        assert_eq!(found.permissions().mode() & 0o6000, 0, "{found:?}");
    }
}

const REWRITE: &str = include_str!("../bodies/escapes/setuid_rewrite.c");

/// B-65: rewriting a program of the caller in a writable directory does not create a set-uid
/// program. The kernel clears the bits at each write; a shared mapping sets none.
#[test]
fn a_set_uid_program_that_the_body_rewrites_by_a_call_is_none_afterwards() {
    let ground = Ground::new();
    let lent = ground.path("lent");
    ground.write("lent/text", "something");
    let ways: Vec<&str> = "write pwrite append truncate ftruncate O_TRUNC sendfile chown mapping"
        .split(' ')
        .collect();
    for way in &ways {
        ground.write(&format!("lent/{way}"), "a program");
        let mode = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(lent.join(way), mode).expect("set");
    }
    let shown = lent.to_str().expect("a plain path");
    let body = program("rewrite-set-uid", REWRITE);
    let done = case(&ground, &["--rw", shown], &body, &[shown]).done();
    done.assert_exited(0);
    let all: Vec<String> = ways.iter().map(|way| format!("{way} ok")).collect();
    assert_lines(&done, &all.join("\n"));
    for way in ways {
        let found = std::fs::metadata(lent.join(way)).expect("there");
        let set_id = found.permissions().mode() & 0o6000;
        assert!(set_id == 0 || way == "mapping", "{way}");
    }
}
