//! The lists of a page: files, hosts, limits, and what is enforced.

use crate::page::document::{Document, Enforcement, File, Problem, ViewRow};
use crate::page::text::{LongText, Rows, Text, bytes, count, duration, source, spaced};
use spec::limits::Limit;
use spec::plan_report::FIXED;
use spec::report::EnforcementState;

const ROWS_MAX: usize = 150;
/// Levels of the tree that are indented.
const DEPTH_MAX: usize = 6;
/// Characters of each output stream that are shown.
const OUTPUT_MAX: usize = 16_000;

/// A row of a list: a name, what is known of it, and a state.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) badge: Option<Badge>,
    pub(super) value: String,
    pub(super) detail: Option<String>,
}

#[derive(Debug)]
pub(super) struct Badge {
    /// `good`, `warn`, `bad` or `plain`.
    pub(super) class: &'static str,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct TreeRow {
    pub(super) depth: usize,
    pub(super) path: Text,
    pub(super) access: Badge,
    pub(super) what: String,
    pub(super) decided_by: Text,
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) title: &'static str,
    pub(super) size: String,
    pub(super) lines: Option<Vec<String>>,
}

/// The paths that the body saw.
#[derive(Debug)]
pub(super) struct Tree {
    /// What a flag, a manifest or a policy decided.
    pub(super) chosen: Rows<TreeRow>,
    /// What every body sees.
    pub(super) fixed: Rows<TreeRow>,
    pub(super) fixed_count: String,
}

/// `None`: not recorded.
pub(super) fn tree(report: &Document) -> Option<Tree> {
    let view = report.view.as_deref()?;
    let is_fixed = |row: &&ViewRow| row.decided_by.as_str() == FIXED;
    let (fixed, chosen): (Vec<_>, Vec<_>) = view.iter().partition(is_fixed);
    Some(Tree {
        chosen: paths(&chosen),
        fixed: paths(&fixed),
        fixed_count: count(fixed.len(), "path"),
    })
}

fn paths(view: &[&ViewRow]) -> Rows<TreeRow> {
    Rows::new(view, ROWS_MAX, |row: &&ViewRow| {
        let inside = row.path.as_str();
        // A path is below those whose segments it begins with.
        let is_above = |above: &&&ViewRow| {
            let rest = inside.strip_prefix(above.path.as_str().trim_end_matches('/'));
            rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
        };
        let (class, access) = access(row);
        TreeRow {
            depth: view.iter().filter(is_above).count().min(DEPTH_MAX),
            path: row.path.clone(),
            access: Badge {
                class,
                text: access.to_owned(),
            },
            what: what(row),
            decided_by: row.decided_by.clone(),
        }
    })
}

fn access(row: &ViewRow) -> (&'static str, &'static str) {
    match (row.what.as_str(), row.writable) {
        ("mask", _) => ("plain", "hidden"),
        ("tmpfs", _) | ("proc" | "devpts", _) => ("good", "private"),
        ("link", _) => ("plain", "link"),
        ("device", _) => ("plain", "device"),
        (_, true) => ("warn", "writable"),
        (_, false) => ("plain", "read-only"),
    }
}

fn what(row: &ViewRow) -> String {
    let from = row.from.as_ref().map(Text::as_str).unwrap_or_default();
    match row.what.as_str() {
        "host" if from.is_empty() || from == row.path.as_str() => "of the host".to_owned(),
        "host" => format!("{from} of the host"),
        "image" | "source" => format!("{} {from}", row.what),
        "link" => format!("to {from}"),
        "device" => "of the host".to_owned(),
        "tmpfs" => match row.size_bytes {
            Some(size) => format!("in memory, at most {}", bytes(size)),
            None => "in memory, within the disk limit".to_owned(),
        },
        "file" => "written by the runner".to_owned(),
        "proc" => "processes of the run".to_owned(),
        "devpts" => "terminals of the run".to_owned(),
        "mask" => "covered: nothing of it is seen".to_owned(),
        other => spaced(other),
    }
}

pub(super) fn reached(report: &Document) -> Rows<Item> {
    Rows::new(&report.egress.hosts, ROWS_MAX, |host| Item {
        name: host.host.to_string(),
        badge: None,
        value: count(host.connections, "connection"),
        detail: Some(format!(
            "sent {}, received {}",
            bytes(host.sent_bytes),
            bytes(host.received_bytes)
        )),
    })
}

pub(super) fn unreachable(report: &Document) -> Rows<Item> {
    let egress = &report.egress;
    let mut rows = Rows::new(&egress.unreachable, ROWS_MAX, |host| Item {
        name: format!("{}:{}", host.host, host.port),
        badge: None,
        value: count(host.count, "attempt"),
        detail: Some(host.cause.as_str().replace('-', " ")),
    });
    let all = egress.unreachable.len();
    rows.beyond = crate::page::text::beyond(all, ROWS_MAX, egress.unreachable_beyond);
    rows
}

pub(super) fn allowed(report: &Document) -> Rows<Text> {
    Rows::new(&report.egress.allowed, ROWS_MAX, Text::clone)
}

/// One sentence about how the body was connected.
pub(super) fn network(report: &Document) -> String {
    match report.egress.capture.as_str() {
        "none" => {
            "The body had its own loopback only: nothing outside could be reached.".to_owned()
        }
        "tproxy" => {
            "All connections passed the relay, which admitted the hosts of the list.".to_owned()
        }
        "anyip" => {
            "Connections to ports 80, 443 and those of the list passed the relay, which admitted \
             the hosts of the list."
                .to_owned()
        }
        _ => "Not recorded.".to_owned(),
    }
}

/// What the relay could not report one by one.
pub(super) fn lost(report: &Document) -> Option<String> {
    let egress = &report.egress;
    let questions = (egress.lost_questions > 0).then(|| count(egress.lost_questions, "DNS query"));
    let datagrams =
        (egress.lost_datagrams > 0).then(|| count(egress.lost_datagrams, "denied datagram"));
    let parts: Vec<String> = questions.into_iter().chain(datagrams).collect();
    (!parts.is_empty()).then(|| {
        let parts = parts.join(" and ");
        format!("Too many to be listed one by one, and not sent: {parts}.")
    })
}

pub(super) fn published(report: &Document) -> Rows<Item> {
    Rows::new(&report.egress.published, ROWS_MAX, |port| Item {
        name: format!("127.0.0.1:{}", port.host_port),
        badge: None,
        value: count(port.connections, "connection"),
        detail: Some(format!("forwarded to port {} of the body", port.body_port)),
    })
}

pub(super) fn files(files: &[File]) -> Rows<Item> {
    Rows::new(files, ROWS_MAX, |file| {
        let state = file.state.as_ref().map(|state| Badge {
            class: match state.as_str() {
                "synced" => "good",
                "failed" => "bad",
                _ => "warn",
            },
            text: state.to_string(),
        });
        let digest = file
            .sha256
            .as_ref()
            .map(|digest| format!("sha256 {digest}"));
        let error = file.error.as_ref().map(problem);
        Item {
            name: format!("{} · {}", file.key, file.path),
            badge: state,
            value: file.bytes.map(bytes).unwrap_or_default(),
            detail: error.or(digest),
        }
    })
}

pub(super) fn problem(problem: &Problem) -> String {
    let hint = problem.hint.as_ref().map(LongText::as_str);
    let hint = hint.map_or_else(String::new, |hint| format!(" — {hint}"));
    format!("{} ({}){hint}", problem.message, problem.code)
}

/// Where the program and its files came from: bundle, image, sources.
pub(super) fn origins(report: &Document) -> Vec<Item> {
    let bundle = report.bundle.iter().map(|bundle| {
        let name = bundle.name.as_ref().map(Text::as_str).unwrap_or("bundle");
        let version = bundle.version.as_ref().map(Text::as_str);
        let entries = count(bundle.entries, "entry");
        let archive = bundle.archive_digest.as_ref();
        let archive = archive.map_or_else(String::new, |digest| format!("; archive {digest}"));
        Item {
            name: format!("Bundle {name} {}", version.unwrap_or_default()),
            badge: None,
            value: format!("{}, {entries}", bytes(bundle.bytes)),
            detail: Some(format!("contents {}{archive}", bundle.content_digest)),
        }
    });
    let image = report.image.iter().map(|image| Item {
        name: format!("Image {}", image.place),
        badge: None,
        value: format!("root {}", spaced(image.root.as_str())),
        detail: image.digest.as_ref().map(Text::to_string),
    });
    let sources = report.workspace_sources.iter().take(ROWS_MAX);
    let sources = sources.map(|source| Item {
        name: format!("Source {} at {}", source.id, source.mount_path),
        badge: None,
        value: if source.writable {
            "writable"
        } else {
            "read-only"
        }
        .to_owned(),
        detail: Some(match &source.digest {
            Some(digest) => format!("{}, {digest}", source.reference),
            None => format!("{}, absent", source.reference),
        }),
    });
    bundle.chain(image).chain(sources).collect()
}

pub(super) fn secrets(report: &Document) -> Rows<Item> {
    Rows::new(&report.secrets, ROWS_MAX, |secret| Item {
        name: secret.variable.to_string(),
        badge: None,
        value: secret.reference.to_string(),
        detail: Some(format!(
            "from {}, granted by {}",
            secret.provider, secret.granted_by
        )),
    })
}

pub(super) fn outputs(report: &Document) -> Vec<Output> {
    [
        ("Standard output", &report.stdout),
        ("Standard error", &report.stderr),
    ]
    .into_iter()
    .map(|(title, stream)| {
        let dropped = match stream.dropped_bytes {
            0 => String::new(),
            dropped => format!(", {} of them dropped", bytes(dropped)),
        };
        Output {
            title,
            size: format!("{}{dropped}", bytes(stream.bytes)),
            lines: stream.text.as_deref().map(last_lines),
        }
    })
    .collect()
}

/// The end of an output: what went wrong is usually there.
fn last_lines(text: &str) -> Vec<String> {
    let start = text.char_indices().rev().nth(OUTPUT_MAX - 1);
    let start = start.map_or(0, |(at, _)| at);
    let cut = (start > 0).then(|| "… (the beginning is not shown)".to_owned());
    let lines = text[start..].lines().map(|line| line.replace('\t', "    "));
    cut.into_iter().chain(lines).collect()
}

pub(super) fn limits(report: &Document) -> Rows<Item> {
    Rows::new(&report.limits, ROWS_MAX, |(name, row)| {
        let limit = Limit::ALL
            .into_iter()
            .find(|limit| limit.name() == name.as_str());
        let amount = |value| spec::units::amount(name.as_str(), value);
        let others = row
            .sources
            .iter()
            .filter(|source| source.source != row.source);
        let others: Vec<String> = others
            .map(|other| {
                format!(
                    "{} says {}",
                    source(other.source.as_str()),
                    amount(other.value)
                )
            })
            .collect();
        let requested = row.requested.filter(|asked| Some(*asked) != row.effective);
        let requested = requested.map(|asked| format!("requested {}", amount(asked)));
        let by = match row.effective {
            Some(_) => format!(
                "set by {}, enforced by {}",
                source(row.source.as_str()),
                row.enforced_by
            ),
            None => "nothing sets one".to_owned(),
        };
        let detail: Vec<String> = [by].into_iter().chain(requested).chain(others).collect();
        Item {
            name: limit.map_or_else(
                || spaced(name.as_str()),
                |limit| limit.row().word.to_owned(),
            ),
            badge: None,
            value: row.effective.map_or_else(|| "unlimited".to_owned(), amount),
            detail: Some(detail.join("; ")),
        }
    })
}

/// What the host enforced.
#[derive(Debug)]
pub(super) struct Enforced {
    /// What is weaker or absent, or does not cover everything, with the reason.
    pub(super) explained: Rows<Item>,
    /// What is enforced, by name.
    pub(super) fully: Rows<String>,
}

pub(super) fn enforcement(report: &Document) -> Enforced {
    let is_full = |row: &&(Text, Enforcement)| {
        row.1.state.as_str() == EnforcementState::Enforced.name() && row.1.reason.is_none()
    };
    let (fully, explained): (Vec<_>, Vec<_>) = report.enforcement.iter().partition(is_full);
    Enforced {
        explained: Rows::new(&explained, ROWS_MAX, |(axis, row)| Item {
            name: spaced(axis.as_str()),
            badge: Some(Badge {
                class: match row.state.as_str() {
                    "enforced" => "good",
                    "weaker" => "warn",
                    _ => "bad",
                },
                text: row.state.to_string(),
            }),
            value: String::new(),
            detail: row.reason.as_ref().map(LongText::to_string),
        }),
        fully: Rows::new(&fully, ROWS_MAX, |(axis, _)| spaced(axis.as_str())),
    }
}

/// A row of the head.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// It needs two columns.
    pub(super) is_wide: bool,
}

pub(super) fn facts(report: &Document) -> Vec<Fact> {
    let exit = report.exit.as_ref().map(|exit| {
        let dump = if exit.core_dump { ", core dumped" } else { "" };
        match (exit.code, exit.signal) {
            (Some(code), _) => format!("code {code}"),
            (None, Some(signal)) => {
                format!("{}{dump}", sys::signal_name::signal_name(signal))
            }
            (None, None) => "not recorded".to_owned(),
        }
    });
    let written = report.usage.written_bytes.map(bytes);
    let whole: f64 = report.timings_ms.iter().map(|(_, ms)| ms).sum();
    let whole = (whole > 0.0).then(|| duration(whole));
    let body = crate::page::timeline::body_ms(report).map(duration);
    [
        ("Started", some(&report.started_at).map(|time| utc(&time))),
        ("Run", some(&report.run_id)),
        ("Exit", exit),
        ("Body", body),
        ("Whole run", whole),
        ("Written", written),
        ("Kept", report.kept.as_ref().map(Text::to_string)),
    ]
    .into_iter()
    .filter_map(|(name, value)| {
        Some(Fact {
            name,
            value: value?,
            is_wide: matches!(name, "Started" | "Run" | "Kept"),
        })
    })
    .collect()
}

fn some(text: &Text) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

/// RFC 3339 in UTC without the `T` and the `Z`.
fn utc(time: &str) -> String {
    match time.strip_suffix('Z').and_then(|time| time.split_once('T')) {
        Some((day, time)) => format!("{day} {time} UTC"),
        None => time.to_owned(),
    }
}
