//! The phases of a run: the only place where they begin and end. Each has a time in the report, a span
//! in the log and two events.

use std::time::Instant;

use tracing::debug_span;
use tracing::span::EnteredSpan;

use crate::run::events::EventStream;
use secrets::mask::Masks;
use spec::events::{EventKind, Phase};
use spec::outcome::Outcome;
use spec::report::{Denial, Report, SyncedReport, Timing};

/// The phases of one run, which follow each other without gaps.
#[derive(Debug)]
pub(super) struct Phases {
    run_id: String,
    events: EventStream,
    current: Option<Current>,
    ended: Vec<Timing>,
}

#[derive(Debug)]
struct Current {
    phase: Phase,
    began: Instant,
    /// Ends when it is dropped.
    _span: EnteredSpan,
}

impl Phases {
    pub(super) fn new(run_id: String, events: EventStream) -> Self {
        Self {
            run_id,
            events,
            current: None,
            ended: Vec::new(),
        }
    }

    /// Ends the current phase and begins `phase`.
    pub(super) fn begin(&mut self, phase: Phase) {
        self.end();
        self.emit(EventKind::PhaseStarted { phase });
        self.current = Some(Current {
            phase,
            began: Instant::now(),
            _span: span(phase).entered(),
        });
    }

    fn end(&mut self) {
        let Some(Current { phase, began, .. }) = self.current.take() else {
            return;
        };
        let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let timing = Timing {
            phase: phase.name(),
            duration_us,
        };
        self.emit(EventKind::PhaseEnded {
            phase,
            duration_ms: timing.milliseconds(),
        });
        self.ended.push(timing);
    }

    pub(super) fn emit(&self, kind: EventKind<'_>) {
        self.events.emit(&self.run_id, kind);
    }

    pub(super) fn emit_denials(&self, denials: &[Denial], masks: &Masks) {
        for denial in &self.masked(denials, masks) {
            self.emit(EventKind::Denial { denial });
        }
    }

    /// While the body runs.
    pub(super) fn emit_first_denials(&self, denials: &[Denial], masks: &Masks) {
        for denial in &self.masked(denials, masks) {
            self.emit(EventKind::FirstDenial { denial });
        }
    }

    fn masked(&self, denials: &[Denial], masks: &Masks) -> Vec<Denial> {
        if !self.has_events() || denials.is_empty() {
            return Vec::new();
        }
        let mut masked = Report::new(String::new(), Outcome::Exited);
        masked.denials = denials.to_vec();
        masks.mask_report(&mut masked);
        masked.denials
    }

    /// `outputs` are masked.
    pub(super) fn emit_outputs(&self, outputs: &[SyncedReport]) {
        for output in outputs {
            self.emit(EventKind::Output { output });
        }
    }

    /// Whether anybody gets the events.
    pub(super) fn has_events(&self) -> bool {
        self.events.is_on()
    }

    /// Ends the last phase and returns the times.
    pub(super) fn finish(mut self) -> Vec<Timing> {
        self.end();
        self.ended
    }
}

/// The name of a span is fixed where it is declared.
fn span(phase: Phase) -> tracing::Span {
    match phase {
        Phase::Prepare => debug_span!("prepare"),
        Phase::Unpack => debug_span!("unpack"),
        Phase::Plan => debug_span!("plan"),
        Phase::Sources => debug_span!("sources"),
        Phase::Stage => debug_span!("stage"),
        Phase::Launch => debug_span!("launch"),
        Phase::Body => debug_span!("body"),
        Phase::Sync => debug_span!("sync"),
        Phase::Clean => debug_span!("clean"),
    }
}
