//! The phases of a run, and the use of memory, processors and processes while its body ran.

use crate::page::document::{Document, LimitRow, Sample};
use crate::page::text::{Text, as_f64, bytes, count, duration, grouped, rounded};
use spec::limits::Limit;
use sys::signal_name::signal_name;

/// The viewBox of a curve.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 100.0;
/// A limit is in the picture if the peak reaches this part of it.
const LIMIT_SHOWN_FROM: f64 = 0.2;
/// With fewer samples a curve would miss what happened between them.
const POINTS_MIN: usize = 4;
/// Positions at which denials are marked.
const DENIAL_MARKS: usize = 100;

#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: Text,
    pub(super) time: String,
    /// Percent of the whole run.
    pub(super) from: String,
    pub(super) width: String,
}

#[derive(Debug)]
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) peak: String,
    pub(super) limit: String,
    pub(super) picture: Picture,
    /// What the picture shows, for those who do not see it.
    pub(super) label: String,
}

#[derive(Debug)]
pub(super) enum Picture {
    Curve(Curve),
    /// The part of the limit that the peak is, in percent.
    Meter(String),
    Nothing,
}

#[derive(Debug)]
pub(super) struct Curve {
    pub(super) line: String,
    pub(super) area: String,
    /// From the top, in percent; `None`: it is far above the curve.
    pub(super) limit_y: Option<String>,
}

#[derive(Debug)]
pub(super) struct Mark {
    /// `denial`, `oom`, `limit` or `signal`.
    pub(super) class: &'static str,
    pub(super) at: String,
    /// From the top, in percent: marks at the same time are not above each other.
    pub(super) lane: &'static str,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) class: &'static str,
    pub(super) time: String,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) phases: Vec<Phase>,
    pub(super) whole: String,
    /// The time of the body, which the charts cover.
    pub(super) body: String,
    pub(super) charts: Vec<Chart>,
    pub(super) marks: Vec<Mark>,
    pub(super) events: Vec<Event>,
    /// Why there are no curves.
    pub(super) unsampled: Option<&'static str>,
    pub(super) ran: bool,
}

/// Milliseconds between the launch and the end of the body; `None`: it did not run.
pub(super) fn body_ms(report: &Document) -> Option<f64> {
    if report.usage.wall_time_ms > 0 {
        return Some(as_f64(report.usage.wall_time_ms));
    }
    let mut timings = report.timings_ms.iter();
    let (_, ms) = timings.find(|(phase, _)| phase.as_str() == "body")?;
    Some(*ms)
}

pub(super) fn timeline(report: &Document) -> Timeline {
    let samples = report.samples.as_deref().unwrap_or_default();
    let last_ms = samples.iter().map(|sample| sample.at_ms).max();
    let body = body_ms(report);
    // A sample may come a moment after the end that was measured.
    let span = body
        .unwrap_or_default()
        .max(as_f64(last_ms.unwrap_or_default()))
        .max(0.001);
    let events = events(report, samples);
    let whole: f64 = report.timings_ms.iter().map(|(_, ms)| ms).sum();
    Timeline {
        phases: phases(report, whole),
        whole: duration(whole),
        body: duration(span),
        charts: charts(report, samples, span),
        marks: marks(report, &events, span),
        unsampled: match (samples.len(), report.cgroup_backend.as_str()) {
            (POINTS_MIN.., _) => None,
            (1.., _) => Some("Curves are not drawn: the body ran too short for them."),
            (_, "none") => {
                Some("Curves are not recorded: this run had no cgroup, so nothing was sampled.")
            }
            _ => Some(
                "Curves are not recorded: only a run with --report FILE.html samples its body.",
            ),
        },
        events: events.into_iter().map(|timed| timed.event).collect(),
        ran: body.is_some(),
    }
}

fn phases(report: &Document, whole: f64) -> Vec<Phase> {
    let mut before = 0.0;
    let phase = |(name, ms): &(Text, f64)| {
        let phase = Phase {
            name: name.clone(),
            time: duration(*ms),
            from: percent(before, whole),
            width: percent(ms.max(whole / 400.0), whole),
        };
        before += ms;
        phase
    };
    report.timings_ms.iter().map(phase).collect()
}

fn percent(part: f64, whole: f64) -> String {
    let whole = if whole > 0.0 { whole } else { 1.0 };
    format!("{:.2}%", (part / whole * 100.0).clamp(0.0, 100.0))
}

fn limit_row(report: &Document, limit: Limit) -> Option<&LimitRow> {
    let mut limits = report.limits.iter();
    let found = limits.find(|(name, _)| name.as_str() == limit.name());
    found.map(|(_, row)| row)
}

/// What one chart shows.
struct Measured {
    title: &'static str,
    /// Over time; empty: not sampled.
    points: Vec<(f64, f64)>,
    peak: Option<f64>,
    /// In the unit of the points.
    limit: Option<f64>,
    text: fn(f64) -> String,
}

fn charts(report: &Document, samples: &[Sample], span: f64) -> Vec<Chart> {
    if body_ms(report).is_none() {
        return Vec::new();
    }
    let limit = |limit| limit_row(report, limit).and_then(|row| row.effective);
    let points = |value: fn(&Sample) -> Option<u64>| {
        let point = |sample: &Sample| Some((as_f64(sample.at_ms), as_f64(value(sample)?)));
        samples.iter().filter_map(point).collect::<Vec<_>>()
    };
    let memory = Measured {
        title: "Memory",
        points: points(|sample| sample.memory_bytes),
        peak: report.usage.memory_peak_bytes.map(as_f64),
        limit: limit(Limit::Memory).map(as_f64),
        text: |value| bytes(as_u64(value)),
    };
    let busy = match samples.len() {
        POINTS_MIN.. => busy(samples),
        _ => Vec::new(),
    };
    let processors = Measured {
        title: "CPU",
        peak: highest(&busy),
        points: busy,
        limit: limit(Limit::Cpus).map(|millis| as_f64(millis) / 1_000.0),
        text: |value| {
            let noun = if value == 1.0 {
                "processor"
            } else {
                "processors"
            };
            format!("{} {noun}", rounded(value))
        },
    };
    let processes = Measured {
        title: "Processes",
        points: points(|sample| sample.processes),
        peak: report.usage.processes_peak.map(as_f64),
        limit: limit(Limit::Processes).map(as_f64),
        text: |value| grouped(as_u64(value)),
    };
    let mut charts = vec![
        chart(memory, span),
        chart(processors, span),
        chart(processes, span),
    ];
    charts[1].add_cpu_time(report);
    charts
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number that was a u64"
)]
fn as_u64(value: f64) -> u64 {
    value as u64
}

/// The processors that were busy between each two samples.
fn busy(samples: &[Sample]) -> Vec<(f64, f64)> {
    let between = |pair: &[Sample]| {
        let [from, to] = pair else {
            return None;
        };
        let us = to.cpu_time_us?.saturating_sub(from.cpu_time_us?);
        let ms = to.at_ms.saturating_sub(from.at_ms).max(1);
        let busy = as_f64(us) / 1_000.0 / as_f64(ms);
        Some([(as_f64(from.at_ms), busy), (as_f64(to.at_ms), busy)])
    };
    samples.windows(2).filter_map(between).flatten().collect()
}

fn highest(points: &[(f64, f64)]) -> Option<f64> {
    points.iter().map(|(_, value)| *value).reduce(f64::max)
}

fn chart(measured: Measured, span: f64) -> Chart {
    let Measured {
        title,
        points,
        peak,
        limit,
        text,
    } = measured;
    let peak = peak.into_iter().chain(highest(&points)).reduce(f64::max);
    let picture = match (peak, limit) {
        (Some(peak), _) if points.len() >= POINTS_MIN => {
            Picture::Curve(curve(&points, peak, limit, span))
        }
        (Some(peak), Some(limit)) => Picture::Meter(percent(peak, limit)),
        _ => Picture::Nothing,
    };
    let peak_text = peak.map(|peak| format!("peak {}", text(peak)));
    let peak_text = peak_text.unwrap_or_else(|| "not recorded".to_owned());
    let limit_text = limit.map(|limit| format!("limit {}", text(limit)));
    let limit_text = limit_text.unwrap_or_else(|| "no limit".to_owned());
    Chart {
        title,
        label: format!("{title} over time: {peak_text}, {limit_text}"),
        peak: peak_text,
        limit: limit_text,
        picture,
    }
}

fn curve(points: &[(f64, f64)], peak: f64, limit: Option<f64>, span: f64) -> Curve {
    let shown = limit.filter(|limit| peak >= limit * LIMIT_SHOWN_FROM);
    let top = shown.unwrap_or(0.0).max(peak).max(f64::MIN_POSITIVE) * 1.1;
    let place = |(at, value): &(f64, f64)| {
        let x = (at / span).clamp(0.0, 1.0) * WIDTH;
        let y = HEIGHT - (value / top).clamp(0.0, 1.0) * HEIGHT;
        format!("{x:.1} {y:.1}")
    };
    let places: Vec<String> = points.iter().map(place).collect();
    let line = format!("M{}", places.join("L"));
    let edge = |point: Option<&(f64, f64)>| {
        point.map_or(0.0, |(at, _)| (at / span).clamp(0.0, 1.0) * WIDTH)
    };
    let (first, last) = (edge(points.first()), edge(points.last()));
    Curve {
        area: format!("{line}L{last:.1} {HEIGHT}L{first:.1} {HEIGHT}Z"),
        line,
        limit_y: shown.map(|limit| percent(top - limit, top)),
    }
}

impl Chart {
    /// The time of all processors together, which has a limit of its own.
    fn add_cpu_time(&mut self, report: &Document) {
        let parts = (report.usage.user_time_ms, report.usage.system_time_ms);
        let (Some(user), Some(system)) = parts else {
            return;
        };
        let used = duration(as_f64(user.saturating_add(system)));
        let limit = limit_row(report, Limit::CpuTime).and_then(|row| row.effective);
        let of = limit.map(|limit| format!(" of {}", Limit::CpuTime.amount(limit)));
        let time = format!("{used} of CPU time used{}", of.unwrap_or_default());
        self.peak = match self.picture {
            Picture::Curve(_) => format!("{}, {time}", self.peak),
            _ => time,
        };
    }
}

struct Timed {
    at_ms: f64,
    event: Event,
}

/// What happened while the body ran, in order.
fn events(report: &Document, samples: &[Sample]) -> Vec<Timed> {
    let Some(end) = body_ms(report) else {
        return Vec::new();
    };
    let mut events = Vec::new();
    let mut add = |class, at_ms: f64, text: String| {
        let time = duration(at_ms);
        let event = Event { class, time, text };
        events.push(Timed { at_ms, event });
    };
    let firsts = report.denials.iter().filter_map(|denial| denial.first_ms);
    if let Some(first) = firsts.min() {
        let all = count(report.denials.len(), "denial");
        add("denial", as_f64(first), format!("the first of {all}"));
    }
    let kills = report.usage.oom_kills.unwrap_or_default();
    let seen = samples.iter().find(|sample| sample.oom_kills > Some(0));
    let is_end = report.outcome == "out_of_memory";
    if kills > 0 || is_end {
        let text = match kills {
            0 => "the memory limit was reached".to_owned(),
            kills => format!("out of memory: {} killed", count(kills, "process")),
        };
        match seen {
            Some(sample) => add("oom", as_f64(sample.at_ms).min(end), text),
            None if is_end => add("oom", end, text),
            None => add("oom", end, format!("{text} (the time is not recorded)")),
        }
    }
    let limit = match report.outcome.as_str() {
        "timed_out" if report.is_ended_by_idle_time() => {
            add("limit", end, "the idle time was over".to_owned());
            None
        }
        "timed_out" => Some(Limit::WallTime),
        "cpu_exhausted" => Some(Limit::CpuTime),
        "output_limit" => Some(Limit::Output),
        _ => None,
    };
    if let Some(limit) = limit {
        let wall = limit_row(report, Limit::WallTime).and_then(|row| row.effective);
        let at = wall
            .filter(|_| limit == Limit::WallTime)
            .map_or(end, as_f64);
        let text = format!("the {} limit was reached", limit.row().word);
        add("limit", at.min(end), text);
    }
    if let Some(signal) = report.cancelled_by {
        let text = format!("{} to the runner cancelled the run", signal_name(signal));
        add("signal", end, text);
    }
    if let Some(signal) = report.exit.as_ref().and_then(|exit| exit.signal) {
        let text = format!("{} ended the body", signal_name(signal));
        add("signal", end, text);
    }
    events.sort_by(|left, right| left.at_ms.total_cmp(&right.at_ms));
    events
}

/// Marks of the events, and of every denial.
fn marks(report: &Document, events: &[Timed], span: f64) -> Vec<Mark> {
    let mut seen = [false; DENIAL_MARKS];
    for at_ms in report.denials.iter().filter_map(|denial| denial.first_ms) {
        let parts = as_f64(u64::try_from(DENIAL_MARKS - 1).unwrap_or_default());
        let place = (as_f64(at_ms) / span).clamp(0.0, 1.0) * parts;
        let place = usize::try_from(as_u64(place)).unwrap_or_default();
        seen[place] = true;
    }
    let denials = seen.iter().enumerate().filter(|(_, seen)| **seen);
    let denials = denials.map(|(place, _)| ("denial", format!("{place}%")));
    let others = events.iter().filter(|timed| timed.event.class != "denial");
    let others = others.map(|timed| (timed.event.class, percent(timed.at_ms, span)));
    let mark = |(class, at)| Mark {
        class,
        at,
        lane: match class {
            "oom" | "limit" => "25%",
            _ => "75%",
        },
    };
    denials.chain(others).map(mark).collect()
}
