//! Finds the setting of a host that forbids user namespaces, and the command that allows them.

use crate::plan::doctor::{Control, Facts, NamespaceKind, blocked_by, check};
use spec::diagnosis::{Item, Need};
use spec::report::ErrorReport;

/// The paths in the profile of `packaging/apparmor`.
const PROFILED_PROGRAMS: [&str; 2] = ["/usr/bin/runner", "/usr/local/bin/runner"];
/// The label of a process without an AppArmor profile.
const UNCONFINED: &str = "unconfined";

/// Settings of a host about user namespaces; `None`: the host does not have the setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserNamespaceSettings {
    /// The caller is root of the host, to whom settings for ordinary users do not apply.
    pub privileged: bool,
    /// Uid 0, maybe of a user namespace only.
    pub is_root: bool,
    /// `user.max_user_namespaces`.
    pub count_max: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, which Debian's kernels have.
    pub unprivileged_clone: Option<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, which Ubuntu's kernels have since 23.10.
    pub apparmor_restricts: Option<bool>,
    /// The AppArmor label of this process, such as `unconfined` or `runner (unconfined)`.
    pub apparmor_label: Option<String>,
    pub selinux_enforces: Option<bool>,
    pub program: String,
}

impl UserNamespaceSettings {
    /// How a command starts that only root may execute.
    pub(super) fn sudo(&self) -> &'static str {
        if self.is_root { "" } else { "sudo " }
    }
}

/// All settings that forbid, in the order in which the kernel checks them.
#[must_use]
pub(crate) fn forbidding(settings: &UserNamespaceSettings) -> Vec<Control> {
    let unprivileged = !settings.privileged;
    let sudo = settings.sudo();
    let count = (settings.count_max == Some(0)).then(|| Control {
        why: "user.max_user_namespaces is 0".to_owned(),
        mend: format!("{sudo}sysctl -w user.max_user_namespaces=10000"),
    });
    let clone = (unprivileged && settings.unprivileged_clone == Some(false)).then(|| Control {
        why: "kernel.unprivileged_userns_clone is 0".to_owned(),
        mend: format!("{sudo}sysctl -w kernel.unprivileged_userns_clone=1"),
    });
    let apparmor = (unprivileged && settings.apparmor_restricts == Some(true))
        .then(|| by_apparmor(settings))
        .flatten();
    // Last, because AppArmor's command ends with a comment.
    [count, clone, apparmor].into_iter().flatten().collect()
}

fn by_apparmor(settings: &UserNamespaceSettings) -> Option<Control> {
    const SETTING: &str = "kernel.apparmor_restrict_unprivileged_userns is 1";
    let label = settings.apparmor_label.as_deref().unwrap_or(UNCONFINED);
    let (profile, mode) = label.split_once(" (").unwrap_or((label, ""));
    if label == UNCONFINED {
        return Some(Control {
            why: format!("{SETTING}, and no profile covers {}", settings.program),
            mend: format!("{}{LOAD_PROFILE}", install_command(&settings.program)),
        });
    }
    // A profile in the mode `unconfined` forbids nothing.
    (mode != "unconfined)").then(|| Control {
        why: format!("{SETTING}, and the profile `{profile}` may not allow them"),
        mend: format!("add the rule `userns,` to the profile `{profile}`, and reload it"),
    })
}

const LOAD_PROFILE: &str = "sudo install -m 0644 packaging/apparmor/runner /etc/apparmor.d/runner && \
                            sudo apparmor_parser -r /etc/apparmor.d/runner # from the sources";

/// Installs the program at a path that the profile covers; empty if it is at one.
fn install_command(program: &str) -> String {
    if PROFILED_PROGRAMS.contains(&program) {
        return String::new();
    }
    let quoted = program.replace('\'', "'\\''");
    format!("sudo install -m 0755 '{quoted}' /usr/local/bin/runner && ")
}

/// The commands of all settings, in order; `None`: no setting forbids user namespaces.
#[must_use]
pub fn mend(found: &[Control]) -> Option<String> {
    let mends: Vec<&str> = found.iter().map(|cause| cause.mend.as_str()).collect();
    (!mends.is_empty()).then(|| mends.join(" && "))
}

/// A namespace that can be created is useless if AppArmor forbids what is done in it. A run that failed
/// for this reason has the same commands as its hint.
pub(super) fn item(facts: &Facts, made: &Result<(), String>) -> Item {
    let forbidding = forbidding(&facts.user_namespaces);
    let mend = mend(&forbidding);
    let has_same_hint = |error: &ErrorReport| mend.is_some() && error.hint == mend;
    let is_useless = facts.sandbox.as_ref().is_err_and(has_same_hint);
    let (id, effect) = NamespaceKind::User.row();
    let found = match (made, is_useless) {
        (Ok(()), false) => Ok(effect.to_owned()),
        (Ok(()), true) => {
            Err("can be created, but nothing is allowed in it: no run starts".to_owned())
        }
        (Err(errno), _) => Err(format!("cannot be created ({errno}): no run starts")),
    };
    let Cause { why, mend } = match mend {
        Some(mend) => Cause {
            why: Some(
                forbidding
                    .into_iter()
                    .map(|control| control.why)
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            mend,
        },
        None => unexplained(facts),
    };
    blocked_by(check(id, Need::Running, found, &mend), why)
}

/// Why user namespaces are unusable.
struct Cause {
    why: Option<String>,
    mend: String,
}

/// What forbids user namespaces if no setting does, from what is certain to what is likely.
fn unexplained(facts: &Facts) -> Cause {
    let Facts {
        surroundings,
        user_namespaces: settings,
        calls,
        ..
    } = facts;
    let filtered = || {
        let is_filtered = surroundings.user_namespace_call.is_err()
            || calls.iter().any(|(name, since, found)| {
                *name == "clone3" && found.is_err() && surroundings.has_version(since)
            });
        is_filtered.then(|| surroundings.filter("clone3(2) and unshare(2)"))
    };
    let confined = || {
        let label = settings.apparmor_label.as_deref()?;
        let (profile, mode) = label.split_once(" (").unwrap_or((label, ""));
        (label != UNCONFINED && mode == "enforce)").then(|| surroundings.profile(profile))
    };
    let known = surroundings
        .wsl_1()
        .or_else(filtered)
        .or_else(confined)
        .or_else(|| surroundings.unknown_container());
    match (known, settings.selinux_enforces) {
        (Some(Control { why, mend }), _) => Cause {
            why: Some(why),
            mend,
        },
        (None, Some(true)) => Cause {
            why: None,
            mend: "ausearch -m AVC -ts recent # whether the SELinux policy denied user_namespace"
                .to_owned(),
        },
        (None, _) => Cause {
            why: None,
            mend: format!(
                "{}sysctl -w user.max_user_namespaces=10000 # on the host, and outside of each \
                 chroot(2)",
                settings.sudo()
            ),
        },
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
            Some("sudo sysctl -w user.max_user_namespaces=10000")
        );
        assert_eq!(
            mend_of(|of| of.unprivileged_clone = Some(false)).as_deref(),
            Some("sudo sysctl -w kernel.unprivileged_userns_clone=1")
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
                "sudo sysctl -w user.max_user_namespaces=10000 && \
                 sudo sysctl -w kernel.unprivileged_userns_clone=1"
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
}
