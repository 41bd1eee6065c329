//! Resolves the limits and the enforcement of the confinement.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::plan::doctor::LANDLOCK_FULL;
use crate::plan::limits::{self, Limits, RunFacts};
use crate::run::error::RunError;
use crate::run::planning::resolved::ResolvedRun;
use sandbox::host::processors;
use sandbox::records::{ExceededTotal, RecordsError, RunRecord, Share, TotalKind};
use sandbox::unix_sockets::{self, UnixSockets};
use sandbox::view as view_plan;
use spec::host::HostSupport;
use spec::host_policy::HostPolicy;
use spec::limits::{Coverage, Limit};
use spec::path::escape_path;
use spec::report::{Enforcement, EnforcementState, WarningReport};
use spec::request::{LimitsMode, Request, ViewEntry};
use spec::syscall_policy::SyscallPolicyName;
use sys::rlimit::{self, resource};

/// Parts of the confinement that a kernel may lack.
const TIME_NAMESPACE: &str = "time_namespace";
const LANDLOCK: &str = "landlock";

/// The effective limits, the enforcement of the confinement, and its refusals.
pub(in crate::run) struct EffectiveLimits {
    pub(in crate::run) limits: Limits,
    pub(in crate::run) enforcement: Vec<Enforcement>,
    pub(in crate::run) warnings: Vec<WarningReport>,
    /// Limits that this host cannot enforce, and refusals of `--strict`. They do not change the
    /// other fields.
    pub(in crate::run) refusals: Vec<RunError>,
}

/// Resolves the limits and the enforcement of the confinement.
///
/// # Errors
/// [`RunError::Limit`] for a limit under which no program can start.
pub(in crate::run) fn resolve_limits(
    request: &Request,
    policy: &HostPolicy,
    host: &HostSupport,
    coverage: &[Coverage],
    resolved: &ResolvedRun,
) -> Result<EffectiveLimits, RunError> {
    let mut merged = limits::merge(
        &request.limits,
        &resolved.manifest.limits,
        resolved.origin,
        &policy.maxima,
        RunFacts {
            has_sandbox_block: resolved.manifest.sandbox.is_some(),
            has_terminal: request.streams.terminal,
            captured: request.streams.capture,
            open_files_hard: rlimit::hard(resource::OPEN_FILES)
                .map_err(RunError::host("read the limit of open descriptors"))?,
        },
    )?;
    let mut refusals = Vec::new();
    let mut enforcement = enforcement(host, resolved.syscalls);
    if let Some(landlock) = enforcement.iter_mut().find(|entry| entry.axis == LANDLOCK)
        && landlock.state == EnforcementState::Enforced
    {
        landlock.reason = writable_fifos(&resolved.view);
    }
    let sockets = unix_sockets_of(request, resolved, host);
    enforcement.push(sockets.enforcement());
    refusals.extend(check_socket_types(&resolved.view, &request.sockets).err());
    refusals.extend(check_named_sockets(sockets, request).err());
    if request.strict {
        refusals.extend(missing_layers(&enforcement));
    }
    let applied = match limits::apply_coverage(&mut merged, coverage, request.limits.mode) {
        Ok(applied) => applied,
        Err(error) => {
            refusals.push(error.into());
            limits::apply_coverage(&mut merged, coverage, LimitsMode::BestEffort)?
        }
    };
    let mut warnings = merged.warnings.clone();
    // Warns of stated limits that are enforced less strictly than by a cgroup.
    for (limit, axis) in limits::weaker_than_stated(&merged, &applied) {
        let reason = axis.reason.clone().unwrap_or_default();
        let message = format!("{} is enforced only weakly: {reason}", limit.name());
        warnings.push(WarningReport::new("limit_weaker", message));
    }
    enforcement.extend(applied);
    Ok(EffectiveLimits {
        limits: merged,
        enforcement,
        warnings,
        refusals,
    })
}

/// Records what the run may use, if the runs of this user may use as much together. Without a limit of
/// processors that is all that this process may use.
///
/// # Errors
/// [`RunError::Argument`]: they may not; [`RunError::Records`].
pub(in crate::run) fn claim_share(
    record: &mut RunRecord,
    limits: &Limits,
    request: &Request,
) -> Result<(), RunError> {
    let cpu_millis = limits.values.get(Limit::Cpus);
    let share = Share {
        memory_bytes: limits.memory_bytes(),
        cpu_millis: cpu_millis.unwrap_or_else(|| u64::from(processors()) * 1_000),
    };
    record
        .claim_share(share, &request.caller.totals)
        .map_err(|error| match error {
            RecordsError::TotalExceeded(exceeded) => total_exceeded(exceeded),
            error => error.into(),
        })
}

fn total_exceeded(exceeded: ExceededTotal) -> RunError {
    let ExceededTotal {
        kind,
        used,
        share,
        most,
    } = exceeded;
    let (flag, own, full) = match kind {
        TotalKind::Memory => ("--max-memory", "--memory", "too_much_memory"),
        TotalKind::Cpus => ("--max-cpus", "--cpus", "too_many_cpus"),
    };
    let [used_text, share_text, most_text] =
        [used, share, most].map(|value| kind.limit().amount(value));
    let is_alone = share > most;
    let problem = if is_alone {
        format!("is less than what this one may use alone, {share_text}")
    } else {
        format!(
            "is reached: the limits of the sandboxes and runs of this user are {used_text} together, and that of \
             this one is {share_text}"
        )
    };
    RunError::Argument {
        code: if is_alone {
            "limit_above_maximum"
        } else {
            full
        },
        what: "the total",
        object: format!("{flag} {most_text}"),
        problem,
        hint: is_alone.then(|| format!("lower {own}")),
    }
}

pub(in crate::run) fn unix_sockets_of(
    request: &Request,
    resolved: &ResolvedRun,
    host: &HostSupport,
) -> UnixSockets {
    let (named, accepted) = (&request.sockets, request.unix_sockets);
    // While it is learned from, `resolved` lacks the writable mounts of the request.
    let view: Vec<ViewEntry> = resolved.view.iter().chain(&request.view).cloned().collect();
    unix_sockets::decide(&view, named, accepted, host.landlock_abi)
}

/// Refuses `--socket` for anything but a socket: the sockets in a directory would be reachable too.
fn check_socket_types(view: &[ViewEntry], named: &[PathBuf]) -> Result<(), RunError> {
    let mounted = view.iter().filter_map(|entry| match entry {
        ViewEntry::Bind { source, target, .. } if named.contains(target) => Some(source),
        ViewEntry::Bind { .. } | ViewEntry::Tmpfs { .. } => None,
    });
    for source in mounted {
        let kind = match source.metadata() {
            Ok(found) if found.is_dir() => "a directory",
            Ok(found) if found.is_file() => "a regular file",
            Ok(found) if !found.file_type().is_socket() => "a device or FIFO",
            // A missing source is refused where it is mounted.
            Ok(_) | Err(_) => continue,
        };
        return Err(RunError::Argument {
            code: "socket_expected",
            what: "--socket",
            object: escape_path(source),
            problem: format!("is {kind}; expected a unix socket"),
            hint: Some("name the socket itself; --ro makes other paths visible".to_owned()),
        });
    }
    Ok(())
}

/// Refuses `--socket` if the body gets no unix sockets.
fn check_named_sockets(sockets: UnixSockets, request: &Request) -> Result<(), RunError> {
    let Some(named) = request.sockets.first().filter(|_| sockets.refuses_named()) else {
        return Ok(());
    };
    Err(RunError::Argument {
        code: "socket_beside_directories",
        what: "--socket",
        object: escape_path(named),
        problem: "cannot be the only socket: the body could also connect to any other socket in \
                  the mounted directories"
            .to_owned(),
        hint: Some("mount no directory, or accept that with --unix-sockets".to_owned()),
    })
}

/// The confinement of every run, and the additional layers that the host supports.
fn enforcement(host: &HostSupport, syscalls: SyscallPolicyName) -> Vec<Enforcement> {
    let enforced = |axis: &str| Enforcement {
        axis: axis.to_owned(),
        state: EnforcementState::Enforced,
        reason: None,
    };
    let mut list: Vec<Enforcement> = [
        "user_namespace",
        "mount_namespace",
        "pid_namespace",
        "network_namespace",
        "ipc_namespace",
        "uts_namespace",
        "cgroup_namespace",
        "no_new_privs",
        "capabilities",
        "seccomp",
    ]
    .map(enforced)
    .into();
    if host.time_namespace {
        list.push(enforced(TIME_NAMESPACE));
    } else {
        list.push(Enforcement {
            axis: TIME_NAMESPACE.to_owned(),
            state: EnforcementState::Absent,
            reason: Some("this kernel has none (Linux 5.6, CONFIG_TIME_NS)".to_owned()),
        });
    }
    // On every host, the kernel charges this memory to no cgroup, so no limit covers it. `--strict`
    // accepts that.
    list.push(Enforcement {
        axis: "kernel_memory".to_owned(),
        state: EnforcementState::Weaker,
        reason: Some(
            match syscalls {
                SyscallPolicyName::Default => {
                    "the kernel charges no cgroup for file range locks (100 MB in two seconds, and \
                     more), netlink answers and datagrams that wait on loopback (some 60 MiB for \
                     each process) beyond --memory; --syscalls strict leaves only the datagrams"
                }
                SyscallPolicyName::Strict => {
                    "the kernel charges no cgroup for datagrams that wait on loopback: some 60 MiB \
                     for each process beyond --memory; lower --pids and --nofile reduce that"
                }
            }
            .to_owned(),
        ),
    });
    let (state, reason) = match host.landlock_abi {
        0 => (
            EnforcementState::Absent,
            Some("this kernel has no Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK)".to_owned()),
        ),
        abi @ 1..LANDLOCK_FULL => (
            EnforcementState::Weaker,
            Some(format!(
                "Landlock ABI {abi} does not scope abstract sockets and signals (Linux 6.12); \
                 the namespaces do"
            )),
        ),
        _ => (EnforcementState::Enforced, None),
    };
    list.push(Enforcement {
        axis: LANDLOCK.to_owned(),
        state,
        reason,
    });
    list
}

/// Why Landlock is weaker in `view`: the body can write to a FIFO on a read-only mount, and no rule
/// revokes below a path what another rule grants above it. `None` if the view has no such mount.
fn writable_fifos(view: &[ViewEntry]) -> Option<String> {
    let written = view.iter().filter_map(|entry| match entry {
        ViewEntry::Bind {
            target,
            writable: true,
            ..
        }
        | ViewEntry::Tmpfs { target, .. } => Some(target.as_path()),
        ViewEntry::Bind { .. } => None,
    });
    let own = view_plan::WRITABLE.iter().map(Path::new);
    let writable: Vec<&Path> = own.chain(written).collect();
    view.iter().find_map(|entry| {
        let ViewEntry::Bind {
            source,
            target,
            writable: false,
        } = entry
        else {
            return None;
        };
        let above = writable.iter().find(|path| target.starts_with(path))?;
        // A single file, such as a program, is not a FIFO.
        if source.metadata().is_ok_and(|found| found.is_file()) {
            return None;
        }
        let [target, above] = [target, *above].map(escape_path);
        Some(format!(
            "{target} is read-only beneath {above}, which is writable: the host's FIFOs in it can \
             be written to, and nothing else; mount it elsewhere with --mount"
        ))
    })
}

/// Refusals of `--strict` for each layer that is not fully enforced, Landlock first.
fn missing_layers(list: &[Enforcement]) -> Vec<RunError> {
    let layers = [
        (
            LANDLOCK,
            "landlock_weaker",
            "requires Landlock:",
            "run on Linux 6.12 or later with Landlock, or omit --strict",
        ),
        (
            TIME_NAMESPACE,
            "time_namespace_absent",
            "requires a time namespace:",
            "run on a kernel with time namespaces (CONFIG_TIME_NS=y), or omit --strict",
        ),
    ];
    layers
        .into_iter()
        .filter_map(|(axis, code, object, hint)| {
            let weak = list
                .iter()
                .find(|entry| entry.axis == axis && entry.state != EnforcementState::Enforced)?;
            Some(RunError::Argument {
                code,
                what: "--strict",
                object: object.to_owned(),
                problem: weak.reason.clone().unwrap_or_default(),
                hint: Some(hint.to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use EnforcementState::{Absent, Enforced, Weaker};

    fn of_host(landlock_abi: u32, time_namespace: bool) -> Vec<Enforcement> {
        let host = HostSupport {
            privileged: false,
            uid: 1000,
            gid: 1000,
            landlock_abi,
            time_namespace,
            entries: Vec::new(),
        };
        enforcement(&host, SyscallPolicyName::Default)
    }

    fn state(list: &[Enforcement], axis: &str) -> EnforcementState {
        let found = list.iter().find(|entry| entry.axis == axis);
        found.expect("it is listed").state
    }

    #[test]
    fn a_missing_layer_is_absent_and_an_incomplete_one_is_weaker() {
        let cases = [
            (0, Absent),
            (1, Weaker),
            (5, Weaker),
            (6, Enforced),
            (7, Enforced),
        ];
        for (abi, expected) in cases {
            assert_eq!(state(&of_host(abi, true), LANDLOCK), expected, "{abi}");
        }
        assert_eq!(state(&of_host(6, true), TIME_NAMESPACE), Enforced);
        assert_eq!(state(&of_host(6, false), TIME_NAMESPACE), Absent);
    }

    #[test]
    fn a_read_only_mount_beneath_a_writable_one_is_named() {
        let bind = |target: &str, writable| ViewEntry::Bind {
            source: "/usr".into(),
            target: target.into(),
            writable,
        };
        let tmpfs = ViewEntry::Tmpfs {
            target: "/own".into(),
            size_bytes: None,
        };
        let view = [bind("/lent", true), tmpfs];
        for (target, above) in [
            ("/data", None),
            ("/tmpfile", None),
            ("/tmp/data", Some("/tmp")),
            ("/own/data", Some("/own")),
            ("/lent/data", Some("/lent")),
        ] {
            let message = writable_fifos(&[&view[..], &[bind(target, false)]].concat());
            assert_eq!(message.is_some(), above.is_some(), "{target}: {message:?}");
            let Some((message, above)) = message.zip(above) else {
                continue;
            };
            assert!(
                message.contains(&format!("{target} is read-only beneath {above},")),
                "{message}"
            );
            let written = [bind("/lent", true), bind(target, true)];
            assert_eq!(writable_fifos(&written), None, "{target}");
        }
    }

    #[test]
    fn only_a_socket_can_be_named_as_one() {
        let socket = std::env::temp_dir().join(format!("named-{}", std::process::id()));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        for (path, problem) in [
            (
                Path::new("/usr"),
                Some("is a directory; expected a unix socket"),
            ),
            (
                Path::new("/proc/self/exe"),
                Some("is a regular file; expected a unix socket"),
            ),
            (
                Path::new("/dev/null"),
                Some("is a device or FIFO; expected a unix socket"),
            ),
            (Path::new("/nonexistent"), None),
            (&socket, None),
        ] {
            let view = [ViewEntry::Bind {
                source: path.to_owned(),
                target: path.to_owned(),
                writable: false,
            }];
            let found = check_socket_types(&view, &[path.to_owned()]);
            assert!(check_socket_types(&view, &[]).is_ok());
            let message = found.err().map(|error| error.to_string());
            let has_problem =
                |message: &String| problem.is_some_and(|text| message.ends_with(text));
            assert_eq!(message.is_some(), problem.is_some(), "{message:?}");
            assert!(message.iter().all(has_problem), "{message:?}");
        }
        std::fs::remove_file(&socket).expect("removed");
    }

    #[test]
    fn strict_refuses_each_layer_that_is_not_enforced() {
        let cases: [(u32, bool, &[&str]); 5] = [
            (6, true, &[]),
            (0, true, &["landlock_weaker"]),
            (5, true, &["landlock_weaker"]),
            (6, false, &["time_namespace_absent"]),
            (0, false, &["landlock_weaker", "time_namespace_absent"]),
        ];
        for (abi, time_namespace, expected) in cases {
            let list = of_host(abi, time_namespace);
            let codes: Vec<String> = missing_layers(&list)
                .into_iter()
                .map(|error| error.report().code)
                .collect();
            assert_eq!(codes, expected, "{abi} {time_namespace}");
            let weak = list
                .iter()
                .filter(|entry| entry.state != Enforced && entry.axis != "kernel_memory")
                .count();
            assert_eq!(weak, codes.len(), "each weak layer has a refusal");
        }
    }
}
