//! The figures as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::denied::Denied;
use crate::support::{Report, median, percentile};
use crate::{Figures, Launches, WAYS, Way};

/// Marks about one way divided by loopback: the name, the figure, the way.
const MARKS: [(&str, &str, Way); 4] = [
    ("connect, tproxy ÷ loopback", "connect() ns", Way::Tproxy),
    ("connect, anyip ÷ loopback", "connect() ns", Way::AnyIp),
    (
        "one stream up, tproxy ÷ loopback",
        "1 stream up B/s",
        Way::Tproxy,
    ),
    (
        "one stream down, tproxy ÷ loopback",
        "1 stream down B/s",
        Way::Tproxy,
    ),
];

/// The median over the rounds of one way divided by another in the same round.
fn ratio(figures: &Figures, name: &str, way: Way, against: Way) -> f64 {
    let of = |way| {
        let found = figures
            .iter()
            .find(|((key, of), _)| *key == name && *of == way);
        found
            .map(|(_, values)| values.as_slice())
            .unwrap_or_default()
    };
    let ratios: Vec<f64> = of(way)
        .iter()
        .zip(of(against))
        .map(|(own, theirs)| own / theirs)
        .collect();
    median(&ratios)
}

/// The tenth that is fastest: what else the machine does only adds.
fn fast(values: &[f64]) -> f64 {
    percentile(values, 10)
}

/// What each way of capturing adds to a launch without a network, in microseconds.
fn added_us(times: &[Vec<f64>; 3]) -> [f64; 2] {
    let [bare, tproxy, anyip] = times.each_ref().map(|times| fast(times));
    [tproxy - bare, anyip - bare]
}

fn names(figures: &Figures) -> Vec<&'static str> {
    let mut names: Vec<&str> = figures.keys().map(|(name, _)| *name).collect();
    names.dedup();
    names
}

pub(crate) fn report(figures: &Figures, launches: &Launches, denied: &[Denied]) -> Report {
    let mut report = Report::new();
    if !figures.is_empty() {
        for (mark, name, way) in MARKS {
            report.mark(mark, ratio(figures, name, way, Way::Loopback));
        }
    }
    if !launches.begun_us[0].is_empty() {
        for (name, found) in ["tproxy", "anyip"]
            .into_iter()
            .zip(added_us(&launches.begun_us))
        {
            let mark = format!("set-up, {name} − bare network namespace");
            report.mark(&mark, found);
        }
    }
    report.text = text(figures, launches, denied);
    report.facts = facts(figures, launches, denied);
    report
}

fn text(figures: &Figures, launches: &Launches, denied: &[Denied]) -> String {
    let mut text = String::new();
    for name in names(figures) {
        writeln!(
            text,
            "\n| {name} | median | ÷ loopback | ÷ CONNECT proxy |\n| --- | --- | --- | --- |"
        )
        .unwrap();
        for (way, way_name) in WAYS {
            let own = median(&figures[&(name, way)]);
            let [direct, proxy] = [Way::Loopback, Way::ConnectProxy]
                .map(|against| ratio(figures, name, way, against));
            writeln!(text, "| {way_name} | {own:.0} | {direct:.2} | {proxy:.2} |").unwrap();
        }
    }
    if !launches.begun_us[0].is_empty() {
        text.push_str(
            "\n| launch | to the body µs | added | to the end µs | added |\n\
             | --- | --- | --- | --- | --- |\n",
        );
        let [begun, ended] = [&launches.begun_us, &launches.ended_us];
        for (place, name) in ["no network", "tproxy", "anyip"].into_iter().enumerate() {
            let [[to_body, by_body], [to_end, by_end]] = [begun, ended]
                .map(|times| [fast(&times[place]), fast(&times[place]) - fast(&times[0])]);
            writeln!(
                text,
                "| {name} | {to_body:.0} | {by_body:.0} | {to_end:.0} | {by_end:.0} |"
            )
            .unwrap();
        }
    }
    if !denied.is_empty() {
        text.push_str(
            "\n| denials | kind | ms | refused | counted | lost | supervisor KiB |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
        );
    }
    for one in denied {
        let counted: Vec<String> = one
            .counted
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        writeln!(
            text,
            "| {} | {} | {:.0} | {} | {} | {} | {} |",
            one.capture,
            one.kind,
            one.took_ms,
            one.refused,
            counted.join(", "),
            one.lost,
            one.peak_kib
        )
        .unwrap();
    }
    text
}

fn facts(figures: &Figures, launches: &Launches, denied: &[Denied]) -> Map<String, Value> {
    let mut measured = Vec::new();
    for name in names(figures) {
        for (way, way_name) in WAYS {
            measured.push(json!({
                "name": name,
                "way": way_name,
                "median": median(&figures[&(name, way)]),
                "to_loopback": ratio(figures, name, way, Way::Loopback),
                "to_connect_proxy": ratio(figures, name, way, Way::ConnectProxy),
            }));
        }
    }
    let denied: Vec<Value> = denied
        .iter()
        .map(|one| {
            json!({
                "capture": one.capture,
                "kind": one.kind,
                "took_ms": one.took_ms,
                "refused": one.refused,
                "counted": one.counted.iter().map(|(reason, count)| json!({"reason": reason, "count": count})).collect::<Vec<Value>>(),
                "lost": one.lost,
                "supervisor_peak_kib": one.peak_kib,
            })
        })
        .collect();
    let [setup, whole] = [&launches.begun_us, &launches.ended_us].map(added_us);
    let facts = [
        ("figures", json!(measured)),
        (
            "added_to_the_body_us",
            json!({"tproxy": setup[0], "anyip": setup[1]}),
        ),
        (
            "added_to_the_end_us",
            json!({"tproxy": whole[0], "anyip": whole[1]}),
        ),
        ("denials", json!(denied)),
    ];
    facts
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
