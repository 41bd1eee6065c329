//! Counters in the text format of Prometheus. No label has a value that a client or a body chooses.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::types::SandboxList;
use companion::prometheus::{family, gauge};

/// Why a connection or a request was refused before it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refused {
    Peer,
    Token,
    Page,
    Busy,
    Sandboxes,
    Memory,
    Cpus,
    Runs,
}

impl Refused {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Peer, "peer"),
        (Self::Token, "token"),
        (Self::Page, "page"),
        (Self::Busy, "calls"),
        (Self::Sandboxes, "sandboxes"),
        (Self::Memory, "memory"),
        (Self::Cpus, "cpus"),
        (Self::Runs, "runs"),
    ];

    /// For the code of an error of `runner`.
    fn of_code(code: &str) -> Option<Self> {
        match code {
            "too_many_sandboxes" => Some(Self::Sandboxes),
            "too_much_memory" => Some(Self::Memory),
            "too_many_cpus" => Some(Self::Cpus),
            _ => None,
        }
    }
}

/// Method, path of the API and status of answers, and how many there were.
type Requests = BTreeMap<(&'static str, &'static str, u16), u64>;

/// What the server has counted since its start.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    requests: Mutex<Requests>,
    refused: Mutex<BTreeMap<Refused, u64>>,
}

impl Metrics {
    pub(super) fn answered(&self, method: &'static str, path: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((method, path, status)).or_default() += 1;
    }

    /// Returns whether it is the first one: only that is worth a line.
    pub(super) fn refused(&self, why: Refused) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let count = refused.entry(why).or_default();
        *count += 1;
        *count == 1
    }

    pub(super) fn refused_by_runner(&self, code: &str) {
        if let Some(why) = Refused::of_code(code) {
            self.refused(why);
        }
    }

    /// `calls` are in progress. Without a list of the sandboxes their numbers are not there.
    pub(super) fn render(&self, calls: usize, list: Option<&SandboxList>) -> String {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = requests.iter().map(|((method, path, status), count)| {
            format!("runner_serve_requests_total{{method=\"{method}\",path=\"{path}\",status=\"{status}\"}} {count}\n")
        });
        let mut text = family(
            "runner_serve_requests_total",
            "counter",
            "Answers since the start.",
            &rows.collect::<String>(),
        );
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = Refused::ALL.iter().map(|(why, name)| {
            let count = refused.get(why).copied().unwrap_or_default();
            format!("runner_serve_refused_total{{why=\"{name}\"}} {count}\n")
        });
        text += &family(
            "runner_serve_refused_total",
            "counter",
            "Connections and calls that were refused.",
            &rows.collect::<String>(),
        );
        text += &gauge("runner_serve_calls", "Calls in progress.", calls);
        let Some(SandboxList {
            sandboxes,
            unresponsive,
        }) = list
        else {
            return text;
        };
        let paused = sandboxes.iter().filter(|sandbox| sandbox.is_paused);
        let commands = sandboxes.iter().map(|sandbox| sandbox.commands.len());
        let help = "Sandboxes of this user.";
        let all = sandboxes.len() + unresponsive.len();
        text += &gauge("runner_sandboxes", help, all);
        let help = "Sandboxes of this user whose supervisors do not answer.";
        text += &gauge("runner_sandboxes_unresponsive", help, unresponsive.len());
        let help = "Paused sandboxes of this user.";
        text += &gauge("runner_sandboxes_paused", help, paused.count());
        let help = "Commands that run in sandboxes of this user.";
        text + &gauge("runner_sandbox_commands", help, commands.sum())
    }
}
