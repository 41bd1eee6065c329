//! The four cgroup back ends: v2 delegated, v2 through systemd-run, v1 and hybrid, none.
