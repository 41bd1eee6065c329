//! Programs that would raise privileges: set-uid, set-gid and file capabilities.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::attempts::{assert_lines, case, program, shell};
use super::support::{Ground, is_root, skip};

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
    std::fs::copy(program, &copy).expect("copied");
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
        return skip("only root can make a set-uid program of another user");
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
        return skip("only root can give a file capabilities");
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
