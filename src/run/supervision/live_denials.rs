//! Denials as events while the body runs: the first of equal ones.

use std::cell::RefCell;
use std::time::Instant;

use crate::run::dry_run::why::paths::PathRules;
use crate::run::reporting::ReportBuilder;
use crate::run::supervision::path_denials;
use crate::run::supervision::refused_calls::Policies;
use crate::run::supervision::signal_denials;
use sandbox::refused_calls::RefusedCalls;
use sandbox::supervise::following::Follower;
use secrets::mask::Masks;
use spec::merged::DISTINCT_MAX;
use spec::report::Denial;
use spec::syscall_policy::SyscallPolicyName;

/// Emits the first [`DISTINCT_MAX`] distinct denials of system calls, paths and signals.
pub(super) struct LiveDenials<'run> {
    pub(super) report: &'run ReportBuilder,
    pub(super) masks: &'run RefCell<Masks>,
    pub(super) policy: SyscallPolicyName,
    /// Parsed at the first refused call.
    pub(super) policies: Option<Policies>,
    /// `None`: the body is not traced.
    pub(super) rules: Option<PathRules<'run>>,
    /// Whether signals to process 1 are.
    pub(super) refuses_signals: bool,
    /// How many of each were looked at.
    pub(super) seen: Seen,
    pub(super) emitted: usize,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    calls: usize,
    paths: usize,
    signals: usize,
}

impl Follower for LiveDenials<'_> {
    fn follow(&mut self, calls: &RefusedCalls, until: Instant) -> bool {
        let mut denials = Vec::new();
        let mut is_late = false;
        while !is_late && self.emitted + denials.len() < DISTINCT_MAX {
            match self.next(calls) {
                Some(denial) => denials.extend(denial),
                None => break,
            }
            is_late = until <= Instant::now();
        }
        self.emitted += denials.len();
        self.report
            .emit_first_denials(&denials, &self.masks.borrow());
        is_late
    }
}

impl LiveDenials<'_> {
    /// Looks at one more. `Some(None)`: it is no denial; `None`: there is no more.
    fn next(&mut self, calls: &RefusedCalls) -> Option<Option<Denial>> {
        let refused = calls.calls().ok();
        if let Some((call, equal)) = refused.and_then(|all| all.distinct().nth(self.seen.calls)) {
            self.seen.calls += 1;
            if self.policies.is_none() {
                self.policies = Policies::read(self.policy).ok();
            }
            let policies = self.policies.as_ref();
            return Some(policies.map(|policies| policies.denial(call, *equal)));
        }
        let signals = signal_denials::refused(calls, self.refuses_signals);
        let signal = signals.and_then(|all| all.sent.distinct().nth(self.seen.signals));
        if let Some((signal, equal)) = signal {
            self.seen.signals += 1;
            return Some(Some(signal_denials::denial(*signal, *equal)));
        }
        let (rules, uses) = (self.rules.as_ref()?, calls.path_uses()?);
        let (path_use, equal) = uses.failed.distinct().nth(self.seen.paths)?;
        self.seen.paths += 1;
        Some(path_denials::denial(rules, path_use, *equal))
    }
}
