//! Records the outcome of a run, with bounded memory.

use std::collections::HashMap;
use std::time::Instant;

use crate::denials::Attempt;
use crate::outcome::{Outcome, UNREACHABLE_MAX};
use spec::egress_report::{HostTraffic, TRAFFIC_PORTS_MAX, UnreachableCause, UnreachableHost};

#[derive(Debug)]
pub(super) struct Ledger {
    started: Instant,
    pub(super) outcome: Outcome,
    /// Index of each host in the list of hosts. The number of names in a run is limited.
    by_host: HashMap<String, usize>,
}

impl Ledger {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            outcome: Outcome::default(),
            by_host: HashMap::new(),
        }
    }

    pub(super) fn add_denial(&mut self, attempt: Attempt, now: Instant) {
        let since = now.saturating_duration_since(self.started);
        let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.outcome.denials.add(attempt, now_ms);
    }

    pub(super) fn add_unreachable(&mut self, host: String, port: u16, cause: UnreachableCause) {
        let list = &mut self.outcome.report.unreachable;
        let known = list
            .iter_mut()
            .find(|known| (known.port, known.cause) == (port, cause) && known.host == host);
        if let Some(known) = known {
            known.count += 1;
        } else if list.len() < UNREACHABLE_MAX {
            list.push(UnreachableHost {
                host,
                port,
                cause,
                count: 1,
            });
        } else {
            self.outcome.report.unreachable_beyond += 1;
        }
    }

    /// Records a finished connection that reached `host`.
    pub(super) fn add_traffic(
        &mut self,
        host: String,
        port: u16,
        sent_bytes: u64,
        received_bytes: u64,
    ) {
        let list = &mut self.outcome.report.hosts;
        let at = *self.by_host.entry(host).or_insert_with_key(|host| {
            list.push(HostTraffic {
                host: host.clone(),
                ports: Vec::new(),
                connections: 0,
                sent_bytes: 0,
                received_bytes: 0,
            });
            list.len() - 1
        });
        if let Some(known) = list.get_mut(at) {
            if let Err(at) = known.ports.binary_search(&port)
                && known.ports.len() < TRAFFIC_PORTS_MAX
            {
                known.ports.insert(at, port);
            }
            known.connections += 1;
            known.sent_bytes += sent_bytes;
            known.received_bytes += received_bytes;
        }
    }
}
