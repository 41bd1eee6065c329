//! Who forbids user namespaces on a host, and the command that allows them.

use crate::plan::doctor::{Facts, NamespaceKind, check};
use spec::diagnosis::{Item, Need};
use spec::report::ErrorReport;

/// Where the profile of `packaging/apparmor` expects the program.
const PROFILED_PROGRAMS: [&str; 2] = ["/usr/bin/runner", "/usr/local/bin/runner"];
/// The label of a process that no profile of AppArmor is about.
const UNCONFINED: &str = "unconfined";

/// What a host says about user namespaces; `None`: it has no such setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserNamespaceSettings {
    /// The caller is root of the host, whom no setting for others holds.
    pub privileged: bool,
    /// `user.max_user_namespaces`.
    pub count_max: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, which Debian's kernels have.
    pub unprivileged_clone: Option<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, which Ubuntu's kernels have since 23.10.
    pub apparmor_restricts: Option<bool>,
    /// AppArmor's label of this process, such as `unconfined` or `runner (unconfined)`.
    pub apparmor_label: Option<String>,
    /// Whether SELinux enforces its policy.
    pub selinux_enforces: Option<bool>,
    pub program: String,
}

/// A setting that forbids user namespaces, or what can be done in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forbidding {
    pub why: String,
    /// The command that allows them.
    pub mend: String,
}

/// All that forbid, the one that the kernel asks first at the top.
#[must_use]
pub(crate) fn forbidding(settings: &UserNamespaceSettings) -> Vec<Forbidding> {
    let unprivileged = !settings.privileged;
    let count = (settings.count_max == Some(0)).then(|| Forbidding {
        why: "user.max_user_namespaces is 0".to_owned(),
        mend: "sysctl -w user.max_user_namespaces=10000".to_owned(),
    });
    let clone = (unprivileged && settings.unprivileged_clone == Some(false)).then(|| Forbidding {
        why: "kernel.unprivileged_userns_clone is 0".to_owned(),
        mend: "sysctl -w kernel.unprivileged_userns_clone=1".to_owned(),
    });
    let apparmor = (unprivileged && settings.apparmor_restricts == Some(true))
        .then(|| by_apparmor(settings))
        .flatten();
    // AppArmor's command ends with a comment, which would swallow one behind it.
    [count, clone, apparmor].into_iter().flatten().collect()
}

fn by_apparmor(settings: &UserNamespaceSettings) -> Option<Forbidding> {
    const SETTING: &str = "kernel.apparmor_restrict_unprivileged_userns is 1";
    let label = settings.apparmor_label.as_deref().unwrap_or(UNCONFINED);
    let (profile, mode) = label.split_once(" (").unwrap_or((label, ""));
    if label == UNCONFINED {
        return Some(Forbidding {
            why: format!("{SETTING}, and no profile covers {}", settings.program),
            mend: format!("{}{LOAD_PROFILE}", place(&settings.program)),
        });
    }
    // A profile in this mode forbids nothing, and is one that its owner wrote for this program.
    (mode != "unconfined)").then(|| Forbidding {
        why: format!("{SETTING}, and the profile `{profile}` may not allow them"),
        mend: format!("add the rule `userns,` to the profile `{profile}`, and load it again"),
    })
}

const LOAD_PROFILE: &str = "sudo install -m 0644 packaging/apparmor/runner /etc/apparmor.d/runner && \
                            sudo apparmor_parser -r /etc/apparmor.d/runner # from the sources";

/// A profile knows programs by their path: where it expects none, the program is installed first.
fn place(program: &str) -> String {
    match PROFILED_PROGRAMS.contains(&program) {
        true => String::new(),
        false => {
            let quoted = program.replace('\'', "'\\''");
            format!("sudo install -m 0755 '{quoted}' /usr/local/bin/runner && ")
        }
    }
}

/// The commands that allow them, one after the other; `None`: no setting forbids them.
#[must_use]
pub fn mend(found: &[Forbidding]) -> Option<String> {
    let mends: Vec<&str> = found.iter().map(|one| one.mend.as_str()).collect();
    (!mends.is_empty()).then(|| mends.join(" && "))
}

/// User namespaces: one that can be made is worth nothing where AppArmor forbids what is done in it.
/// A run that failed for that is told these commands; one that failed for another reason says nothing
/// of user namespaces.
pub(super) fn judge(facts: &Facts, made: &Result<(), String>) -> Item {
    let forbidding = forbidding(&facts.user_namespaces);
    let why: Vec<&str> = forbidding.iter().map(|one| one.why.as_str()).collect();
    let mend = mend(&forbidding);
    let blamed = |error: &ErrorReport| mend.is_some() && error.hint == mend;
    let of_no_use = facts.sandbox.as_ref().is_err_and(blamed);
    let (id, effect) = NamespaceKind::User.row();
    let found = match (made, of_no_use) {
        (Ok(()), false) => Ok(effect.to_owned()),
        (Ok(()), true) => Err(format!("of no use: {}", why.join("; "))),
        (Err(errno), _) if why.is_empty() => Err(format!("cannot be made ({errno})")),
        (Err(errno), _) => Err(format!("cannot be made ({errno}): {}", why.join("; "))),
    };
    let mend = mend.unwrap_or_else(|| unexplained(&facts.user_namespaces).to_owned());
    check(id, Need::Running, found, mend)
}

/// What may forbid them where no setting says so.
#[must_use]
pub(crate) fn unexplained(settings: &UserNamespaceSettings) -> &'static str {
    match settings.selinux_enforces {
        Some(true) => {
            "ausearch -m AVC -ts recent # SELinux enforces a policy: whether it denied user_namespace"
        }
        _ => {
            "a filter of system calls or a container around this program forbids them: run it \
             outside, or let the container make user namespaces"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_user() -> UserNamespaceSettings {
        UserNamespaceSettings {
            count_max: Some(10_000),
            unprivileged_clone: Some(true),
            apparmor_restricts: Some(false),
            apparmor_label: Some("unconfined".to_owned()),
            program: "/usr/bin/runner".to_owned(),
            ..UserNamespaceSettings::default()
        }
    }

    fn mend_of(change: impl FnOnce(&mut UserNamespaceSettings)) -> Option<String> {
        let mut settings = of_user();
        change(&mut settings);
        mend(&forbidding(&settings))
    }

    fn labelled(label: &str) -> Option<String> {
        mend_of(|of| {
            of.apparmor_restricts = Some(true);
            of.apparmor_label = Some(label.to_owned());
        })
    }

    #[test]
    fn each_setting_that_forbids_is_mended_by_its_own_command() {
        assert_eq!(mend_of(|_| ()), None);
        assert_eq!(
            mend_of(|of| of.count_max = Some(0)).as_deref(),
            Some("sysctl -w user.max_user_namespaces=10000")
        );
        assert_eq!(
            mend_of(|of| of.unprivileged_clone = Some(false)).as_deref(),
            Some("sysctl -w kernel.unprivileged_userns_clone=1")
        );
        assert_eq!(
            mend_of(|of| of.apparmor_restricts = Some(true)).as_deref(),
            Some(LOAD_PROFILE)
        );
        let both = mend_of(|of| {
            of.count_max = Some(0);
            of.unprivileged_clone = Some(false);
        });
        assert_eq!(
            both.as_deref(),
            Some(
                "sysctl -w user.max_user_namespaces=10000 && \
                 sysctl -w kernel.unprivileged_userns_clone=1"
            )
        );
    }

    #[test]
    fn a_host_that_has_no_such_setting_forbids_nothing() {
        assert_eq!(forbidding(&UserNamespaceSettings::default()), []);
    }

    #[test]
    fn root_is_held_by_the_count_alone() {
        let settings = UserNamespaceSettings {
            privileged: true,
            count_max: Some(0),
            unprivileged_clone: Some(false),
            apparmor_restricts: Some(true),
            ..of_user()
        };
        let found = forbidding(&settings);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].why.contains("max_user_namespaces"));
    }

    #[test]
    fn a_profile_that_lets_the_program_be_forbids_nothing_and_one_that_does_not_is_named() {
        assert_eq!(labelled("runner (unconfined)"), None);
        assert_eq!(labelled("unconfined").as_deref(), Some(LOAD_PROFILE));
        let other = labelled("docker-default (enforce)").expect("a command");
        assert!(other.contains("`docker-default`"), "{other}");
    }

    #[test]
    fn a_program_that_no_profile_knows_is_installed_where_ours_looks() {
        let mend = mend_of(|of| {
            of.apparmor_restricts = Some(true);
            of.program = "/home/o'me/runner".to_owned();
        });
        let mend = mend.expect("a command");
        assert!(
            mend.starts_with(
                r"sudo install -m 0755 '/home/o'\''me/runner' /usr/local/bin/runner && "
            ),
            "{mend}"
        );
    }

    #[test]
    fn where_nothing_explains_it_selinux_is_named_if_it_enforces() {
        assert!(unexplained(&of_user()).contains("container"));
        let settings = UserNamespaceSettings {
            selinux_enforces: Some(true),
            ..of_user()
        };
        assert!(unexplained(&settings).contains("SELinux"));
    }
}
