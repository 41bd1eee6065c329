//! The last sentence of the diagnosis: whether this host can run programs, and how strongly.

use spec::diagnosis::{Item, Need, Verdict};
use spec::report::EnforcementState;

/// Items that are limits, and not isolation.
fn is_limit(id: &str) -> bool {
    id == "cgroup" || id.starts_with("limit_")
}

pub(super) fn sentence(verdict: Verdict, items: &[Item]) -> String {
    if verdict == Verdict::CannotRun {
        return format!("runner cannot run here: {}", cause(items));
    }
    let gaps = |of_limits: bool| {
        let unmet = items.iter().filter(|item| {
            item.needed_for == Need::Strength
                && item.state != EnforcementState::Enforced
                && is_limit(&item.id) == of_limits
        });
        let gaps: Vec<String> = unmet
            .map(|item| {
                let state = match item.state {
                    EnforcementState::Absent => "no",
                    _ => "weaker",
                };
                format!("{state} {}", name(&item.id))
            })
            .collect();
        match gaps.as_slice() {
            [] => "complete".to_owned(),
            _ => format!("weaker ({})", gaps.join(", ")),
        }
    };
    format!(
        "runner can run here: isolation is {}, enforcement of limits is {}",
        gaps(false),
        gaps(true)
    )
}

/// The first control that prevents runs; else the first item. A test run fails for the same reason, so it
/// is the last.
fn cause(items: &[Item]) -> &str {
    let unmet =
        |item: &&Item| item.needed_for == Need::Running && item.state != EnforcementState::Enforced;
    let is_test_run = |item: &&Item| item.id == "sandbox";
    let mut parts = items.iter().filter(unmet).filter(|item| !is_test_run(item));
    let control = parts.clone().find_map(|item| item.blocked_by.as_deref());
    control
        .or_else(|| parts.next().map(|item| item.effect.as_str()))
        .or_else(|| {
            let item = items.iter().find(unmet)?;
            item.blocked_by.as_deref().or(Some(&item.effect))
        })
        .unwrap_or_default()
}

fn name(id: &str) -> &str {
    match id {
        "landlock" => "Landlock",
        "time_namespace" => "time namespace",
        "idmapped_mounts" => "--rw for this directory",
        "limit_memory" => "memory limit",
        "limit_processes" => "process limit",
        "limit_cpu_share" => "CPU share",
        "limit_cpu_time" => "CPU time limit",
        other => other,
    }
}
