//! Programs that would raise privileges: set-uid, set-gid and file capabilities.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::attempts::{assert_lines, case, program, shell};
use super::support::bodies::copy_program;
use super::support::{Ground, is_root, needs_root, skip};

const WHO: &str = r#"
int main(void) {
    uid_t real, effective, saved;
    gid_t real_group, effective_group, saved_group;
    getresuid(&real, &effective, &saved);
    getresgid(&real_group, &effective_group, &saved_group);
    printf("uid %d %d %d\n", real, effective, saved);
    printf("gid %d %d %d\n", real_group, effective_group, saved_group);
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (fgets(line, sizeof line, status)) if (!strncmp(line, "Cap", 3)) printf("%s", line);
    try("setuid", setuid(0));
    try("unshare", unshare(CLONE_NEWNS));
    return 0;
}
"#;
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

/// B-44: of root where the test is root, else of the caller.
#[test]
fn a_set_uid_program_raises_nothing() {
    let ground = Ground::new();
    let copy = copy_of(&ground, &program("who", WHO), "set-uid");
    set_mode(&copy, 0o6755);
    let done = case(&ground, &[], &copy, &[]).done();
    done.assert_exited(0);
    assert_lines(&done, NOTHING_GAINED);
}

/// B-44: one that belongs to a stranger, by way of a directory.
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

/// B-44: the host's own, where they lie and as copies.
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
            assert_ne!(done.code, 0, "{done:#?}");
            assert!(!done.text().contains("uid=0"), "{done:#?}");
        }
    }
}

/// B-45 (CVE-2022-29162).
#[test]
fn file_capabilities_raise_nothing() {
    if !is_root() {
        return needs_root("only root can give a file capabilities");
    }
    let ground = Ground::new();
    for capabilities in [
        "cap_net_raw,cap_sys_admin+p",
        "cap_dac_override+ep",
        "all=eip",
    ] {
        let copy = copy_of(&ground, &program("who", WHO), "capable");
        let set = Command::new("setcap").arg(capabilities).arg(&copy).status();
        if !set.is_ok_and(|status| status.success()) {
            return skip("setcap does not work here (package libcap2-bin)");
        }
        let done = case(&ground, &[], &copy, &[]).done();
        done.assert_exited(0);
        assert_lines(&done, NOTHING_GAINED);
    }
}

/// B-44: what the body itself makes set-uid.
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

const MAKE_SET_ID: &str = r#"
#include <sys/stat.h>
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
int main(int count, char **words) {
    chdir(words[1]);
    umask(0);
    int file = open("plain", O_CREAT | O_RDWR, 0755);
    try("chmod 4755", chmod("plain", 04755));
    try("chmod 2755", chmod("plain", 02755));
    try("fchmod 4755", fchmod(file, 04755));
    try("fchmodat 4755", fchmodat(AT_FDCWD, "plain", 04755, 0));
    try("fchmodat2 4755", syscall(SYS_fchmodat2, AT_FDCWD, "plain", 04755, 0));
    try("open", open("opened", O_CREAT | O_WRONLY, 04755));
    try("openat", openat(AT_FDCWD, "opened", O_CREAT | O_WRONLY, 02755));
    try("O_TMPFILE", open(".", O_TMPFILE | O_WRONLY, 06755));
    try("creat", creat("created", 04755));
    try("mknod", mknod("made", S_IFREG | 04755, 0));
    try("openat2", syscall(SYS_openat2, AT_FDCWD, "opened", 0, 0));
    try("chmod 1777", chmod("plain", 01777));
    int plain = open("plain", O_RDONLY, 04755);
    try("open without creating", plain < 0 ? -1 : 0);
    return 0;
}
"#;

/// B-14: what stays in a directory that was lent for writing belongs to its owner, who may be
/// root: a set-id program there would be the body's way onto the host.
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
