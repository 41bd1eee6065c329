//! The body's network: its configuration inside, and the relay outside.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::run::error::RunError;
use crate::run::network_report::{self, NetworkReport};
use egress::advice::Circumstances;
use egress::allow::Allowlist;
use egress::allowlist::EgressPlan;
use egress::relay::{Published, Relay, Settings, Sockets};
use egress::resolver::servers::name_servers;
use egress::routes::{BOTH, Family, capture_rules, log_subscription, routes};
use egress::tap;
use sandbox::network::{CapturePlan, NetworkPlan, NetworkSockets};
use spec::body_network::QUESTION_PORT;
use spec::host_policy::HostPolicy;
use spec::network::{Capture, NetworkOptions, PublishedPort};
use spec::path::escape;
use spec::request::Request;
use sys::file::{Unread, read_regular};
use sys::process;

/// Maximum size of the host's `hosts` or `resolv.conf`.
const HOST_FILE_BYTES_MAX: usize = 16 << 20;

/// Everything that a run's network needs, inside and outside.
#[derive(Debug)]
pub(super) struct NetworkSetup {
    /// Configuration inside; taken by the launch.
    pub(super) plan: Option<NetworkPlan>,
    /// Host ports that are forwarded to the body.
    pub(super) published: Vec<Published>,
    egress: EgressPlan,
    settings: Option<Settings>,
}

/// Listens at the published ports of the host.
///
/// # Errors
/// [`RunError::Argument`] for an unavailable port.
pub(super) fn publish(ports: &[PublishedPort]) -> Result<Vec<Published>, RunError> {
    ports.iter().map(|port| listen(*port)).collect()
}

fn listen(port: PublishedPort) -> Result<Published, RunError> {
    let refused = |errno| RunError::Argument {
        code: "port_unavailable",
        what: "--publish",
        object: port.to_string(),
        problem: format!("cannot listen at 127.0.0.1:{}: {errno}", port.host_port),
        hint: Some(match errno {
            Errno::ADDRINUSE => "something listens there already: choose another port".to_owned(),
            Errno::ACCESS => "choose a port from 1024 on".to_owned(),
            _ => "choose another port".to_owned(),
        }),
    };
    let failed = |error: std::io::Error| refused(sys::file::errno_of(&error));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.host_port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let host_port = listener.local_addr().map_err(failed)?.port();
    Ok(Published {
        listener: listener.into(),
        host_port,
        body_port: port.body_port,
    })
}

/// Reports the published ports before the body starts: those that the kernel chose as events, all in
/// the file of `--publish-file`.
///
/// # Errors
/// [`RunError::Argument`] for a file that cannot be written.
pub(super) fn report_ports(
    published: &[Published],
    options: &NetworkOptions,
) -> Result<(), RunError> {
    let mut text = String::new();
    for (requested, bound) in options.publish.iter().zip(published) {
        let ports = PublishedPort {
            host_port: bound.host_port,
            body_port: bound.body_port,
        };
        if requested.host_port == 0 {
            let (host, body) = (ports.host_port, ports.body_port);
            tracing::info!("127.0.0.1:{host} leads to port {body} of the body");
        }
        text.push_str(&format!("{ports}\n"));
    }
    let Some(path) = &options.publish_file else {
        return Ok(());
    };
    write_atomically(path, text.as_bytes()).map_err(|errno| RunError::Argument {
        code: "publish_file_unwritable",
        what: "--publish-file",
        object: escape(path.as_os_str().as_bytes()),
        problem: format!("cannot be written: {errno}"),
        hint: Some("name a file in a writable directory".to_owned()),
    })
}

/// Writes a file atomically, so that a waiting reader never sees a part. Replaces an existing file or
/// link.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::ISDIR);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => (),
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::EXIST),
        },
        Err(Errno::NOENT) => (),
        Err(errno) => return Err(errno),
    }
    let mut random = [0; 8];
    process::random(&mut random)?;
    let temporary = format!(".ports-{:016x}.tmp", u64::from_le_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &*temporary, flags, Mode::from_raw_mode(0o666))?;
    let written = std::fs::File::from(file).write_all(bytes);
    written
        .map_err(|error| sys::file::errno_of(&error))
        .and_then(|()| rustix::fs::renameat(&directory, &*temporary, &directory, name))
        .map_err(|errno| {
            // The errno of the write is the cause, not that of the removal.
            match rustix::fs::unlinkat(&directory, &*temporary, AtFlags::empty()) {
                Ok(()) | Err(_) => errno,
            }
        })
}

/// The configuration inside; `None` for a network with loopback only.
///
/// # Errors
/// [`RunError::Host`] if the netlink messages cannot be built.
fn plan(request: &Request, egress: &EgressPlan) -> Result<Option<NetworkPlan>, RunError> {
    if egress.allowed.is_empty() && !request.network.report_denials {
        return Ok(None);
    }
    let failed = || RunError::host("plan the body's network");
    let mut ports: Vec<u16> = Allowlist::new(egress.allowed.clone()).ports().collect();
    // Clients repeat truncated queries over TCP.
    ports.push(QUESTION_PORT);
    ports.sort_unstable();
    ports.dedup();
    let v4_only = [Family::V4];
    Ok(Some(NetworkPlan {
        routes: routes(&BOTH).map_err(failed())?,
        routes_v4_only: routes(&v4_only).map_err(failed())?,
        capture: CapturePlan {
            wanted: request.network.capture,
            rules: capture_rules(&BOTH).map_err(failed())?,
            rules_v4_only: capture_rules(&v4_only).map_err(failed())?,
            log: log_subscription().map_err(failed())?,
            tap: tap::filter(&ports),
            ports,
        },
    }))
}

impl NetworkSetup {
    /// Prepares everything that does not need the child.
    ///
    /// # Errors
    /// [`RunError::Host`] if a file of the host cannot be read.
    pub(super) fn prepare(
        request: &Request,
        policy: &HostPolicy,
        egress: &EgressPlan,
    ) -> Result<Self, RunError> {
        let plan = plan(request, egress)?;
        let settings = if plan.is_some() || !request.network.publish.is_empty() {
            Some(settings(request, policy, egress, plan.is_some())?)
        } else {
            None
        };
        Ok(Self {
            plan,
            published: Vec::new(),
            egress: egress.clone(),
            settings,
        })
    }

    /// Starts the relay; `None` if there is nothing to relay.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of epoll_create1(2) or epoll_ctl(2).
    pub(super) fn start_relay(
        &mut self,
        sockets: Option<NetworkSockets>,
    ) -> Result<Option<Relay>, RunError> {
        let Some(settings) = self.settings.take() else {
            return Ok(None);
        };
        let failed = || RunError::host("relay the body's connections");
        let published = std::mem::take(&mut self.published);
        let sockets = sockets.map(relay_sockets);
        Relay::new(sockets, published, settings, Instant::now())
            .map(Some)
            .map_err(failed())
    }

    /// Ends the relay and returns the network report.
    pub(super) fn finish_relay(
        &self,
        relay: Relay,
        capture: Option<Capture>,
        policy: &HostPolicy,
    ) -> NetworkReport {
        let circumstances = Circumstances {
            plan: &self.egress,
            policy: &policy.egress,
        };
        network_report::build(capture, relay.finish(Instant::now()), circumstances)
    }
}

fn relay_sockets(sockets: NetworkSockets) -> Sockets {
    Sockets {
        capture: sockets.capture,
        listeners: sockets.listeners,
        proxies: sockets.proxies,
        questions: sockets.questions,
        log: Some(sockets.log),
    }
}

fn settings(
    request: &Request,
    policy: &HostPolicy,
    egress: &EgressPlan,
    has_egress: bool,
) -> Result<Settings, RunError> {
    let (hosts, servers) = if has_egress {
        (
            read("/etc/hosts")?,
            name_servers(&read("/etc/resolv.conf")?),
        )
    } else {
        (Vec::new(), Vec::new())
    };
    let added = request.network.added_hosts.iter();
    let mut seed = [0; 16];
    process::random(&mut seed).map_err(RunError::host("read random bytes"))?;
    Ok(Settings {
        allowed: Allowlist::new(egress.allowed.clone()),
        private_ranges: policy.egress.private_ranges.clone(),
        added_hosts: added
            .map(|host| (host.name.clone(), host.address))
            .collect(),
        hosts,
        servers,
        refuse_ech: egress.refuse_ech,
        seed,
    })
}

/// Reads a file of the host; a missing file is empty.
fn read(path: &str) -> Result<Vec<u8>, RunError> {
    let failed = |errno| RunError::host(format!("read {path}"))(errno);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file: OwnedFd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    read_regular(file, HOST_FILE_BYTES_MAX).map_err(|unread| {
        failed(match unread {
            Unread::Stat(errno) | Unread::Read(errno) => errno,
            Unread::NotRegular => Errno::INVAL,
            Unread::TooLarge => Errno::FBIG,
        })
    })
}
