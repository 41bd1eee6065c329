//! Collects the facts about this host for `runner doctor`: tries each operation that a run needs.

use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::StatVfsMountFlags;
use rustix::net::{AddressFamily, SocketType};

use crate::plan::doctor::{
    CacheFacts, CgroupFacts, CgroupTree, Facts, NamespaceKind, NetworkFacts,
};
use crate::run::error::RunError;
use crate::run::execute;
use crate::run::host::resources;
use crate::run::host::scope::has_version_2_alone;
use crate::run::host::surroundings::surroundings;
use crate::run::host::user_namespaces::settings;
use crate::run::planning::programs::lookup;
use crate::run::verbs::cache_verbs;
use egress::resolver::servers::named_servers;
use sandbox::cgroups::{self, ScopeOwner};
use spec::host_policy::{HostPolicy, UidRange};
use spec::limits::Coverage;
use spec::limits::Limit;
use spec::network::CaptureChoice;
use spec::outcome::Outcome;
use spec::path::{escape, escape_path};
use spec::report::{ErrorReport, Report};
use spec::request::{Caller, LimitsMode, Request, Subject};
use sys::credentials::HostIds;
use sys::landlock;
use sys::mount;
use sys::namespace::kind;
use sys::owner_map::OwnerMap;
use sys::probe::{self, Call};

/// Programs that bundles often need.
const PROGRAMS: [&str; 4] = ["node", "python3", "bash", "git"];
/// Name servers of the host (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The ids of this user namespace (user_namespaces(7)). A body's gid is the number of its uid.
const ID_MAPS: [(&str, &str); 2] = [
    ("uids", "/proc/self/uid_map"),
    ("gids", "/proc/self/gid_map"),
];
/// The mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The program behind `runner serve` and `runner mcp`.
const SERVER: &str = "runner-server";
/// A program of every Linux system that exits with 0; an image of static programs alone has none.
const TRUE: &str = "/bin/true";

/// Tries each operation that a run needs, and runs a program without and with a network.
///
/// The calling process must have one thread only, as for [`execute`].
pub(crate) fn collect_facts(caller: &Caller, policy: &HostPolicy) -> Result<Facts, RunError> {
    let runtime_directory = resources::open_records(caller)
        .map(|records| {
            let mount_point = records.mount_point();
            let directory = mount_point.parent().unwrap_or(mount_point);
            escape_path(directory)
        })
        .map_err(|error| error.report());
    let named = caller.cgroup_parent.as_deref();
    let groups = cgroups::observe(named, caller.in_delegated_scope)?;
    let backend = cgroups::choose(named, &groups);
    let report = run_probe(caller, policy);
    let is_privileged = sandbox::host::is_privileged();
    let ids = HostIds {
        uid: policy.uid_range.first,
        gid: policy.uid_range.first,
    };
    Ok(Facts {
        test_program: escape(&test_command()[0]),
        sandbox: succeeded(&report),
        namespaces: NamespaceKind::ALL.map(try_namespace).into(),
        user_namespaces: settings(),
        surroundings: surroundings(caller),
        calls: [
            ("fsopen", "5.2", Call::Fsopen),
            ("clone3", "5.3", Call::Clone3),
            ("openat2", "5.6", Call::Openat2),
            ("mount_setattr", "5.12", Call::MountSetattr),
        ]
        .map(|(name, since, call)| {
            let found = probe::try_call(call).map_err(|errno| errno.to_string());
            (name, since, found)
        })
        .into(),
        seccomp_filter: probe::has_seccomp_filter(),
        no_new_privs: rustix::thread::no_new_privs().is_ok(),
        landlock_abi: landlock::abi().map_err(|errno| errno.to_string()),
        cgroup: CgroupFacts {
            backend: backend.name().to_owned(),
            reason: match &backend {
                cgroups::Backend::None { reason } => Some(reason.clone()),
                cgroups::Backend::V1(_) | cgroups::Backend::V2(_) => None,
            },
            coverage: coverage(&report, &backend),
            tree: if has_version_2_alone() {
                CgroupTree::V2
            } else if groups.mounts.contains(" - cgroup") {
                CgroupTree::V1
            } else {
                CgroupTree::Missing
            },
            is_read_only: rustix::fs::statvfs(CGROUPS)
                .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)),
            named_parent: named.map(|parent| escape(parent.as_bytes())),
            has_systemd: groups.managers.contains(&ScopeOwner::System),
            has_user_manager: groups.managers.contains(&ScopeOwner::User),
        },
        uid: probe::effective_uid(),
        idmapped_mounts: is_privileged.then(|| try_mapped_mount(caller, ids)),
        uid_range: is_privileged.then(|| {
            let UidRange { first, last } = policy.uid_range;
            let unmapped = ID_MAPS.into_iter().find_map(|(ids, path)| {
                let map = std::fs::read_to_string(path).unwrap_or_default();
                (!is_mapped(&map, first, last)).then_some(ids)
            });
            (unmapped, format!("{first}-{last}"))
        }),
        runtime_directory,
        bundle_cache: cache_verbs::list(caller, policy).map(|listing| CacheFacts {
            directory: listing.directory,
            in_memory: listing.in_memory,
            used_bytes: listing.used_bytes,
            size_bytes: listing.size_bytes,
        }),
        overlayfs: probe::try_overlay(true).map_err(|errno| errno.to_string()),
        read_only_overlayfs: probe::try_overlay(false).map_err(|errno| errno.to_string()),
        network: inspect_network(caller, policy),
        programs: PROGRAMS
            .map(|name| {
                let found = lookup::locate(name.as_ref(), caller, &policy.interpreters);
                (name, found.map(|path| escape_path(&path)))
            })
            .into(),
        server: probe_server(),
    })
}

/// Runs `runner-server --version`: its version and tested clients. `None`: it is not installed.
fn probe_server() -> Option<Result<String, String>> {
    let program = std::env::current_exe().ok()?.with_file_name(SERVER);
    if !program.exists() {
        return None;
    }
    let result = Command::new(&program).arg("--version").output();
    Some(match result {
        Err(error) => Err(format!("{SERVER} cannot be executed: {error}")),
        Ok(output) if !output.status.success() => {
            Err(format!("{SERVER} --version failed: {}", output.status))
        }
        Ok(output) => {
            let mut lines = output.stdout.trim_ascii_end().split(|byte| *byte == b'\n');
            let server = escape(lines.next().unwrap_or_default());
            let clients: Vec<String> = lines.map(escape).collect();
            Ok(format!("{server}; tested with {}", clients.join(" and ")))
        }
    })
}

/// A command that does nothing: `/bin/true`, else this program.
fn test_command() -> Vec<Vec<u8>> {
    let own = || {
        std::env::current_exe()
            .ok()
            .filter(|_| !Path::new(TRUE).exists())
    };
    match own() {
        Some(own) => vec![own.as_os_str().as_bytes().to_vec(), b"--version".to_vec()],
        None => vec![TRUE.into()],
    }
}

/// Runs the test command with every limit set, so that the report says how each is enforced.
fn run_probe(caller: &Caller, policy: &HostPolicy) -> Report {
    let mut request = probe_request(caller);
    request.limits.values.set(Limit::Cpus, 1_000);
    request.limits.values.set(Limit::CpuTime, 10_000);
    execute(&request, policy)
}

fn probe_request(caller: &Caller) -> Request {
    let subject = Subject::Command(test_command());
    let mut request = Request::captured(subject, caller.clone());
    request.limits.mode = LimitsMode::BestEffort;
    request.limits.values.set(Limit::WallTime, 30_000);
    request
}

/// Runs the test command with a network, and inspects the host's IPv6 and name servers.
fn inspect_network(caller: &Caller, policy: &HostPolicy) -> NetworkFacts {
    let tproxy = run_with_network(caller, policy, CaptureChoice::Tproxy);
    // `Auto`, not AnyIp: a run falls back to AnyIp only after some failures.
    let any_ip = match &tproxy {
        Ok(()) => None,
        Err(_) => Some(run_with_network(caller, policy, CaptureChoice::Auto)),
    };
    // An unreadable file counts as empty here; a run that needs it reports the reason.
    let servers = std::fs::read(RESOLV_CONF).unwrap_or_default();
    NetworkFacts {
        tproxy,
        any_ip,
        ipv6: has_ipv6(),
        name_servers: named_servers(&servers)
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

fn run_with_network(
    caller: &Caller,
    policy: &HostPolicy,
    capture: CaptureChoice,
) -> Result<(), ErrorReport> {
    let mut request = probe_request(caller);
    request.network.report_denials = true;
    request.network.capture = capture;
    succeeded(&execute(&request, policy))
}

/// Whether this host has an IPv6 loopback address: binds a socket to it.
fn has_ipv6() -> bool {
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None)
        .and_then(|socket| rustix::net::bind(&socket, &address))
        .is_ok()
}

fn succeeded(report: &Report) -> Result<(), ErrorReport> {
    let code = report.exit.and_then(|exit| exit.code);
    match (&report.error, report.outcome, code) {
        (None, Outcome::Exited, Some(0)) => Ok(()),
        (Some(error), _, _) => Err(error.clone()),
        (None, outcome, code) => {
            let end = match code {
                Some(code) => format!("exited with {code}"),
                None => format!("ended as {outcome:?}"),
            };
            Err(ErrorReport::new(
                "probe_failed",
                format!("the test run {end}, expected exit code 0"),
            ))
        }
    }
}

/// Enforcement of each limit as in `report`, or else as the back end promises.
fn coverage(report: &Report, backend: &cgroups::Backend) -> Vec<Coverage> {
    let promised = backend.coverage();
    promised
        .into_iter()
        .map(|promise| {
            let seen = report
                .plan
                .enforcement
                .iter()
                .find(|seen| seen.axis == promise.axis);
            let (state, reason) = match seen {
                Some(seen) => (seen.state, seen.reason.clone()),
                None => (promise.state, promise.reason),
            };
            Coverage {
                axis: promise.axis,
                state,
                enforced_by: promise.enforced_by,
                reason,
            }
        })
        .collect()
}

fn try_namespace(namespace: NamespaceKind) -> (NamespaceKind, Result<(), String>) {
    let flag = match namespace {
        NamespaceKind::User => kind::USER,
        NamespaceKind::Mount => kind::MOUNT,
        NamespaceKind::Pid => kind::PID,
        NamespaceKind::Network => kind::NETWORK,
        NamespaceKind::Ipc => kind::IPC,
        NamespaceKind::Uts => kind::UTS,
        NamespaceKind::Cgroup => kind::CGROUP,
        NamespaceKind::Time => kind::TIME,
    };
    let result = probe::make_namespaces(flag).map_err(|errno| errno.to_string());
    (namespace, result)
}

/// Tries to map the owner of a detached clone of the working directory's mount. The clone is never
/// attached and ends with its descriptor.
fn try_mapped_mount(caller: &Caller, body: HostIds) -> Result<(), String> {
    let path = caller.working_directory.as_deref();
    let path = path.unwrap_or(Path::new("/")).as_os_str().as_bytes();
    let path = std::ffi::CString::new(path).map_err(|error| error.to_string())?;
    let owner = HostIds { uid: 0, gid: 0 };
    mount::clone_tree(&path)
        .and_then(|tree| {
            let map = OwnerMap::new(owner, body)?;
            mount::map_owners(tree.as_fd(), map.as_fd())
        })
        .map_err(|errno| errno.to_string())
}

/// Whether the text of an id map (user_namespaces(7)) maps every id from `first` to `last`.
fn is_mapped(id_map: &str, first: u32, last: u32) -> bool {
    let mut mapped: Vec<(u64, u64)> = id_map
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) => {
                    Some((inside, inside.saturating_add(count)))
                }
                _ => None,
            }
        })
        .collect();
    mapped.sort_unstable();
    let mut next = u64::from(first);
    for (start, end) in mapped {
        if start <= next {
            next = next.max(end);
        }
    }
    next > u64::from(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_be_mapped_by_several_lines() {
        let id_map = "      1000  100000  10\n         0  200000  1000\n";
        assert!(is_mapped(id_map, 990, 1009));
        assert!(!is_mapped(id_map, 990, 1010));
        assert!(!is_mapped("0 0 10\n11 11 10\n", 5, 15));
        assert!(!is_mapped("", 0, 0));
    }
}
