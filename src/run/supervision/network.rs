//! The body's network: its configuration inside, and the relay outside.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::run::error::RunError;
use crate::run::supervision::network_report::{self, NetworkReport};
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
use spec::network::Capture;
use spec::request::Request;
use sys::file::{Unread, read_regular};
use sys::process;

/// Maximum size of the host's `hosts` or `resolv.conf`.
const HOST_FILE_BYTES_MAX: usize = 16 << 20;

/// Everything that a run's network needs, inside and outside.
#[derive(Debug)]
pub(in crate::run) struct NetworkSetup {
    /// Configuration inside; taken by the launch.
    pub(in crate::run) plan: Option<NetworkPlan>,
    /// Host ports that are forwarded to the body.
    pub(in crate::run) published: Vec<Published>,
    egress: EgressPlan,
    settings: Option<Settings>,
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
    pub(in crate::run) fn prepare(
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
