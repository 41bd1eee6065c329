//! Namespaces: creating, joining and changing one.

use super::attempts::{assert_all_refused, assert_lines, attempt, attempt_with};
use support::Ground;

const KINDS: &str = include_str!("../bodies/escapes/namespaces_kinds.c");
const ALL_EPERM: &str = "time EPERM
    mount EPERM
    cgroup EPERM
    uts EPERM
    ipc EPERM
    user EPERM
    pid EPERM
    net EPERM";

/// B-35 (also with a bit of the upper half, CVE-2019-10063, and beside CLONE_NEWUSER).
#[test]
fn clone_makes_no_namespace_of_any_kind() {
    let ground = Ground::new();
    let text = format!(
        "{KINDS}\n{}",
        include_str!("../bodies/escapes/clone_makes_no_namespace_of_any_kind.c")
    );
    let expected = format!("{ALL_EPERM}\n{ALL_EPERM}\n{ALL_EPERM}\nplain ok");
    assert_lines(&attempt(&ground, "clone-namespaces", &text), &expected);
}

/// B-11 (CVE-2022-0185, CVE-2021-22555, CVE-2024-1086), B-35.
#[test]
fn unshare_makes_no_namespace_of_any_kind() {
    let ground = Ground::new();
    let text = format!(
        "{KINDS}\n{}",
        include_str!("../bodies/escapes/unshare_makes_no_namespace_of_any_kind.c")
    );
    let expected = format!("{ALL_EPERM}\n{ALL_EPERM}");
    assert_lines(&attempt(&ground, "unshare", &text), &expected);
}

/// B-11, B-34: its flags are behind a pointer, so the call does not exist.
#[test]
fn clone3_is_not_there_and_threads_still_work() {
    let ground = Ground::new();
    let text = format!(
        "#include <pthread.h>\n{KINDS}\n{}",
        include_str!("../bodies/escapes/clone3_is_not_there_and_threads_still_work.c")
    );
    let kinds = ALL_EPERM.replace("EPERM", "ENOSYS");
    let expected = format!("plain ENOSYS\n{kinds}\nno arguments ENOSYS\nthread 0\njoined 0");
    assert_lines(&attempt(&ground, "clone3", &text), &expected);
}

/// B-12.
#[test]
fn no_namespace_can_be_joined() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/no_namespace_can_be_joined.c");
    let done = attempt(&ground, "setns", text);
    assert_all_refused(&done, 16, &["EPERM", "EACCES"]);
    let own = done
        .text()
        .lines()
        .filter(|line| *line == "own EPERM")
        .count();
    assert!(7 <= own, "{}", done.text());
}

/// B-13 (CVE-2014-8989, CVE-2018-18955).
#[test]
fn the_id_maps_cannot_be_changed_and_no_other_id_assumed() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/the_id_maps_cannot_be_changed_and_no_other_id_assumed.c");
    let text = format!("#include <grp.h>\n{text}");
    let done = attempt_with(&ground, &[], "id-maps", &text, &[]);
    let text = done.text();
    let mut lines: Vec<&str> = text.lines().collect();
    let id = super::ID;
    let ids = format!("ids {id} {id} {id} {id}");
    assert_eq!(lines.pop(), Some(ids.as_str()), "{text}");
    assert_eq!(lines.len(), 10, "{text}");
    // A process with uid 0 may set uid 0.
    let of_own = ["setuid ok", "setresuid ok", "setgid ok", "fsuid ok"];
    for line in lines {
        let answer = line.rsplit(' ').next().expect("a word");
        let refused = ["EPERM", "EACCES", "EINVAL"].contains(&answer) || line == "fsuid 0";
        assert!(refused || (id == 0 && of_own.contains(&line)), "{text}");
    }
}
