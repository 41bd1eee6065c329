//! The host's settings for user namespaces.

use std::path::Path;

use crate::plan::doctor::user_namespaces::UserNamespaceSettings;
use sandbox::host::is_privileged;
use spec::path::escape_path;
use sys::probe::effective_uid;

/// Reads the settings. A missing or unreadable one forbids nothing.
#[must_use]
pub(in crate::run) fn settings() -> UserNamespaceSettings {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    UserNamespaceSettings {
        privileged: is_privileged(),
        is_root: effective_uid() == 0,
        count_max: number("/proc/sys/user/max_user_namespaces"),
        unprivileged_clone: switch("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor_restricts: switch("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        // The older path shows the first security module, whichever that is.
        apparmor_label: Path::new("/sys/module/apparmor")
            .exists()
            .then(|| {
                text("/proc/self/attr/apparmor/current").or_else(|| text("/proc/self/attr/current"))
            })
            .flatten(),
        selinux_enforces: switch("/sys/fs/selinux/enforce"),
        program: escape_path(&program),
    }
}

pub(super) fn text(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim_matches(['\0', '\n', ' ']).to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

fn switch(path: &str) -> Option<bool> {
    number(path).map(|number| number != 0)
}
