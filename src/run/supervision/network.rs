//! The body's network: its configuration inside, and the relay outside.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::run::error::RunError;
use crate::run::supervision::network_report::{self, NetworkReport};
use egress::address::{FAMILIES, Family};
use egress::advice::RunSettings;
use egress::allowlist::EgressPlan;
use egress::dialler::{Dialler, Settings};
use egress::relay::{Published, Sockets};
use egress::resolver::ResolverProcess;
use egress::resolver::servers::name_servers;
use egress::routes::{capture_rules, log_subscription, routes};
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
    resolver: Option<ResolverProcess>,
}

/// The configuration inside; `None` for a network with loopback only.
///
/// # Errors
/// [`RunError::Host`] if the netlink messages cannot be built.
fn plan(request: &Request, egress: &EgressPlan) -> Result<Option<NetworkPlan>, RunError> {
    if egress.is_closed() && !request.network.report_denials {
        return Ok(None);
    }
    let failed = || RunError::host("plan the body's network");
    let mut ports: Vec<u16> = egress.allowlist().ports().collect();
    // Clients repeat truncated queries over TCP.
    ports.push(QUESTION_PORT);
    ports.sort_unstable();
    ports.dedup();
    let v4_only = [Family::V4];
    Ok(Some(NetworkPlan {
        routes: routes(&FAMILIES).map_err(failed())?,
        routes_v4_only: routes(&v4_only).map_err(failed())?,
        capture: CapturePlan {
            wanted: request.network.capture,
            rules: capture_rules(&FAMILIES).map_err(failed())?,
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
            resolver: None,
        })
    }

    /// Takes the published ports, and starts the process that queries name servers if the body may reach
    /// hosts. That process gets a copy of the memory of this one: call it before secrets are read.
    ///
    /// # Errors
    /// [`RunError::Host`] if a file of the host cannot be read, or the process not started.
    pub(in crate::run) fn start(&mut self, published: Vec<Published>) -> Result<(), RunError> {
        self.published = published;
        if self.egress.is_closed() {
            return Ok(());
        }
        let servers = name_servers(&read("/etc/resolv.conf")?);
        let mut seed = [0; 16];
        process::random(&mut seed).map_err(RunError::host("read random bytes"))?;
        let started = ResolverProcess::start(servers, seed);
        self.resolver = Some(started.map_err(RunError::host("start the resolver"))?);
        Ok(())
    }

    /// Starts the relay; `None` if there is nothing to relay.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of the call that failed.
    pub(super) fn start_relay(
        &mut self,
        sockets: Option<NetworkSockets>,
    ) -> Result<Option<Dialler>, RunError> {
        let Some(settings) = self.settings.take() else {
            return Ok(None);
        };
        let published = std::mem::take(&mut self.published);
        let sockets = sockets.map(relay_sockets);
        let resolver = self.resolver.take();
        Dialler::start(sockets, published, settings, resolver, Instant::now())
            .map(Some)
            .map_err(RunError::host("relay the body's connections"))
    }

    pub(super) fn finish_relay(
        &self,
        relay: Dialler,
        capture: Option<Capture>,
        policy: &HostPolicy,
    ) -> NetworkReport {
        let settings = RunSettings {
            plan: &self.egress,
            policy: &policy.egress,
        };
        let (outcome, failures) = relay.finish();
        NetworkReport {
            failures,
            ..network_report::build(capture, outcome, settings)
        }
    }
}

fn relay_sockets(sockets: NetworkSockets) -> Sockets {
    Sockets {
        capture: sockets.capture,
        listeners: sockets.listeners,
        proxies: sockets.proxies,
        dns: sockets.questions,
        log: Some(sockets.log),
    }
}

fn settings(
    request: &Request,
    policy: &HostPolicy,
    egress: &EgressPlan,
    has_egress: bool,
) -> Result<Settings, RunError> {
    let hosts = if has_egress {
        read("/etc/hosts")?
    } else {
        Vec::new()
    };
    let added = request.network.added_hosts.iter();
    Ok(Settings {
        allowed: egress.allowlist(),
        private_ranges: policy.egress.private_ranges.clone(),
        added_hosts: added
            .map(|host| (host.name.clone(), host.address))
            .collect(),
        hosts,
        refuse_ech: egress.refuse_ech,
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
