//! `runner demo`: runs a hostile bundle and checks each result.
//!
//! `demo/attempts.sh` is both the body and the table: it runs once for each act. `LIMITED` lists the
//! acts that a limit has to stop.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use crate::cli::exit_code::{FAILED, of_signal};
use crate::cli::print::{Printer, Tone, columns, wrap};
use crate::plan::doctor::last_clause;
use crate::run::error::RunError;
use crate::run::{execute, random_bytes};
use spec::egress::EgressRule;
use spec::host_policy::HostPolicy;
use spec::limits::Limit;
use spec::network::AddedHost;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::{Enforcement, EnforcementState, Report};
use spec::request::{BundleArgument, Caller, LimitOptions, LimitsMode, Request, Subject};
use spec::sources_policy::{EgressPolicy, IpRange};

const MANIFEST: &str = include_str!("../../demo/manifest.yaml");
const ATTEMPTS: &str = include_str!("../../demo/attempts.sh");
/// Acts whose rows are the lines `allowed` and `denied` of the script.
const TOUR: &str = "tour";
const NETWORK: &str = "network";
/// The row that is checked on the host too.
const LEAVE_BEHIND: &str = "leave a process behind";
/// The act, its limit with a value in the limit's unit, and what the body tries.
const LIMITED: [(&str, Limit, u64, &str); 6] = [
    ("processes", Limit::Processes, 32, "start 2000 processes"),
    ("disk", Limit::Disk, 8 << 20, "write 64 MiB to a disk of 8"),
    (
        "memory",
        Limit::Memory,
        64 << 20,
        "use 320 MiB of memory of 64",
    ),
    ("cpu_time", Limit::CpuTime, 300, "compute on and on"),
    ("wall_time", Limit::WallTime, 500, "wait on and on"),
    ("output", Limit::Output, 64 << 10, "print 4 MiB of output"),
];
/// The exit code of an act that cannot be tried.
const SKIPPED: i32 = 200;
const LISTED_HOST: &str = "listed.example";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The sections of the table.
const ALLOWED: &str = "What it may do";
const DENIED: &str = "What it tried and could not do";
const LIMITS: &str = "What ended or stopped it";
const NOT_COVERED: &str = "
Not covered, here or anywhere
  a bug in the kernel itself, which every body shares with the host
  memory of the kernel that is charged to no cgroup (file locks, netlink)
  what processors leak about other programs (side channels)
  /usr, /bin and /lib of the host: the body may read them
  what is said inside TLS to a host that is on the list
";

struct Row {
    section: &'static str,
    what: &'static str,
    mechanism: String,
    /// `None`: it could not be tried.
    is_as_promised: Option<bool>,
    answer: String,
}

#[derive(Default)]
struct Demonstration {
    rows: Vec<Row>,
    /// By axis.
    weaker: BTreeMap<String, Enforcement>,
    runs: usize,
    /// The last run, if it did not start, failed or was cancelled.
    failed: Option<Report>,
}

/// Prints the demonstration. Exit code 0 if everything is as promised, else 125.
///
/// The calling process must have one thread only.
#[must_use]
pub fn demo(caller: &Caller, policy: &HostPolicy, printer: &Printer) -> u8 {
    let demonstration = match in_directory(caller, |bundle| run_acts(bundle, caller, policy)) {
        Ok(demonstration) => demonstration,
        Err(error) => return printer.failure(&error.report()),
    };
    let mut code = 0;
    if !demonstration.rows.is_empty() {
        code = printer.document(&table(&demonstration, printer), 0);
    }
    if let Some(run) = &demonstration.failed {
        if let Some(signal) = run.cancelled_by {
            printer.line(Tone::Error, "cancelled");
            return of_signal(signal);
        }
        if let Some(error) = &run.error {
            let is_refused = run.outcome == Outcome::Refused;
            code = printer.problem(if is_refused { "refused" } else { "failed" }, error);
            let hint = "hint: `runner doctor` shows what this host lacks";
            printer.line(Tone::Hint, hint);
        }
    }
    if demonstration.count(Some(false)) > 0 {
        code = FAILED;
    }
    code
}

/// Calls `act` with a temporary directory that contains the bundle.
fn in_directory<T>(
    caller: &Caller,
    act: impl FnOnce(&Path) -> std::io::Result<T>,
) -> Result<T, RunError> {
    let name: String = random_bytes()?.map(|byte| format!("{byte:02x}")).concat();
    let parent = &caller.temporary_directory;
    let directory = parent.join(format!("runner-demo-{name}"));
    let result = std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .and_then(|()| std::fs::write(directory.join("manifest.yaml"), MANIFEST))
        .and_then(|()| std::fs::write(directory.join("attempts.sh"), ATTEMPTS))
        .and_then(|()| act(&directory));
    let removed = std::fs::remove_dir_all(&directory);
    result
        .and_then(|value| removed.map(|()| value))
        .map_err(|error| {
            let errno = sys::file::errno_of(&error);
            RunError::host(format!("run the demonstration in {}", directory.display()))(errno)
        })
}

/// Runs every act, up to the first that fails or that a signal cancels.
fn run_acts(bundle: &Path, caller: &Caller, policy: &HostPolicy) -> std::io::Result<Demonstration> {
    let mut demonstration = Demonstration::default();
    let mut tour = request(bundle, caller, TOUR);
    let home = caller.home.as_deref().unwrap_or(Path::new(""));
    tour.bundle
        .arguments
        .push(home.as_os_str().as_bytes().to_vec());
    let Some(report) = demonstration.run(&tour, policy) else {
        return Ok(demonstration);
    };
    let survivors = survivors(&report.run_id);
    demonstration
        .rows
        .extend(attempted_rows(&report, TOUR, survivors, ""));

    let listener = TcpListener::bind((LOOPBACK, 0))?;
    listener.set_nonblocking(true)?;
    let mut network = request(bundle, caller, NETWORK);
    let mut network_policy = policy.clone();
    let port = listener.local_addr()?.port();
    allow_port(port, &mut network, &mut network_policy);
    let Some(report) = demonstration.run(&network, &network_policy) else {
        return Ok(demonstration);
    };
    let greeting = received_text(&listener);
    demonstration
        .rows
        .extend(attempted_rows(&report, NETWORK, 0, &greeting));

    for (act, limit, value, what) in LIMITED {
        let mut request = request(bundle, caller, act);
        request.limits.values.set(limit, value);
        let Some(report) = demonstration.run(&request, policy) else {
            break;
        };
        let row = limited_row(&report, limit, value, what);
        demonstration.rows.push(row);
    }
    Ok(demonstration)
}

impl Demonstration {
    /// `None`: the run failed or was cancelled.
    fn run(&mut self, request: &Request, policy: &HostPolicy) -> Option<Report> {
        let report = execute(request, policy);
        self.runs += 1;
        if report.error.is_some() || report.outcome == Outcome::Cancelled {
            self.failed = Some(report);
            return None;
        }
        let enforcement = report.plan.enforcement.iter();
        let weaker = enforcement.filter(|axis| axis.state != EnforcementState::Enforced);
        // The same on every host: NOT_COVERED says it.
        let weaker = weaker.filter(|axis| axis.axis != "kernel_memory");
        self.weaker
            .extend(weaker.map(|axis| (axis.axis.clone(), axis.clone())));
        Some(report)
    }

    fn count(&self, is_as_promised: Option<bool>) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.is_as_promised == is_as_promised)
            .count()
    }
}

fn request(bundle: &Path, caller: &Caller, act: &str) -> Request {
    let subject = Subject::Bundle(BundleArgument::Path(bundle.to_path_buf()));
    let mut request = Request::captured(subject, caller.clone());
    request.bundle.arguments = vec![act.as_bytes().to_vec()];
    request.limits = LimitOptions {
        values: [(Limit::WallTime, 60_000)].into(),
        // A limit that cannot be enforced is shown as a row.
        mode: LimitsMode::BestEffort,
        grace: Some(Duration::ZERO),
        ..LimitOptions::default()
    };
    request
}

/// Allows one name at one port, whose address is a listener of this process. Nothing leaves this host.
fn allow_port(port: u16, request: &mut Request, policy: &mut HostPolicy) {
    request.bundle.arguments.push(port.to_string().into_bytes());
    let rule = EgressRule::parse(&format!("{LISTED_HOST}:{port}"));
    request.network.allow.extend(rule.ok());
    let host = AddedHost::parse(&format!("{LISTED_HOST}:{LOOPBACK}"));
    request.network.added_hosts.extend(host.ok());
    policy.egress = EgressPolicy {
        allow: None,
        private_ranges: vec![IpRange {
            address: LOOPBACK,
            prefix_bits: 32,
        }],
        refuse_ech: true,
    };
}

/// Each attempt of the act with its line of the output.
fn attempted_rows(report: &Report, act: &str, survivors: usize, greeting: &str) -> Vec<Row> {
    let output = report.stdout.text().unwrap_or_default();
    let is_greeted = greeting == "hello\n";
    let mut rows = attempts(act);
    for row in &mut rows {
        let mut lines = output.lines();
        let line = lines.find_map(|line| line.strip_prefix(row.what)?.strip_prefix('\t'));
        let Some((worked, answer)) = line.and_then(|line| line.split_once('\t')) else {
            continue;
        };
        row.answer = escape(answer.as_bytes());
        if worked == "skip" {
            row.is_as_promised = None;
            continue;
        }
        let is_allowed = row.section == ALLOWED;
        let is_expected = worked == if is_allowed { "yes" } else { "no" };
        // What the host saw counts more than what the body says.
        let mut reasons = report.denials.iter().filter_map(|denial| denial.reason);
        let is_confirmed = if row.what == LEAVE_BEHIND && survivors > 0 {
            row.answer = format!("{survivors} still there");
            false
        } else if act != NETWORK || (is_allowed && !is_expected) {
            true
        } else if is_allowed {
            let received = if is_greeted {
                "the greeting"
            } else {
                "nothing"
            };
            row.answer = format!("it received {received}");
            is_greeted
        } else {
            reasons.any(|reason| reason.row().code == row.mechanism)
        };
        let has_exited = report.outcome == Outcome::Exited;
        row.is_as_promised = Some(is_expected && is_confirmed && has_exited);
    }
    rows
}

/// The lines `allowed "WHAT" "MECHANISM" …` and `denied …` of an act, without answers.
fn attempts(act: &str) -> Vec<Row> {
    let opening = format!("{act}() {{");
    let of_act = ATTEMPTS.lines().skip_while(|line| *line != opening);
    let row = |line: &'static str| {
        let mut parts = line.trim().split('"');
        let section = match parts.next()? {
            "allowed " => ALLOWED,
            "denied " => DENIED,
            _ => return None,
        };
        let what = parts.next()?;
        Some(Row {
            section,
            what,
            mechanism: parts.nth(1)?.to_owned(),
            is_as_promised: Some(false),
            answer: "no answer".to_owned(),
        })
    };
    of_act
        .take_while(|line| *line != "}")
        .filter_map(row)
        .collect()
}

/// What the run sent over its connection, which the kernel has accepted and the run has closed.
fn received_text(listener: &TcpListener) -> String {
    let mut text = String::new();
    // Without a connection the row is broken.
    if let Ok((connection, _)) = listener.accept() {
        let read = connection.take(16).read_to_string(&mut text);
        text.truncate(read.unwrap_or(0));
    }
    text
}

/// Number of processes of the host with the run's id in their environment.
fn survivors(run_id: &str) -> usize {
    let expected = format!("RUNNER_RUN_ID={run_id}");
    let is_of_run = |entry: &std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == expected.as_bytes())
    };
    std::fs::read_dir("/proc").map_or(0, |entries| entries.flatten().filter(is_of_run).count())
}

/// Whether the limit stopped the act, and how.
fn limited_row(report: &Report, limit: Limit, value: u64, what: &'static str) -> Row {
    let stdout = &report.stdout;
    let printed = stdout
        .text()
        .and_then(|text| text.trim().parse::<u64>().ok());
    let count = printed.unwrap_or(0);
    let passed = stdout.bytes.saturating_sub(stdout.dropped_bytes);
    let exit = report.exit.and_then(|exit| exit.code);
    let (is_limited, answer) = match (limit, report.outcome) {
        (Limit::Processes, Outcome::Exited) => {
            ((1..=value).contains(&count), format!("stopped at {count}"))
        }
        (Limit::Disk, Outcome::Exited) => (
            (1..=value >> 20).contains(&count),
            format!("stopped at {count} MiB"),
        ),
        (Limit::Output, _) => (
            stdout.dropped_bytes > 0 && passed <= value,
            format!("cut after {} KiB", passed >> 10),
        ),
        (Limit::Memory, Outcome::OutOfMemory) => (true, "out of memory".to_owned()),
        // The kernel kills a process of the body, or without a cgroup refuses the memory.
        (Limit::Memory, Outcome::Exited) => {
            let is_killed = report.usage.oom_kills.is_some_and(|kills| kills > 0);
            let answer = if is_killed {
                "out of memory"
            } else {
                "memory refused"
            };
            (exit != Some(0), answer.to_owned())
        }
        (Limit::CpuTime, Outcome::CpuExhausted) => (true, "out of CPU time".to_owned()),
        (Limit::WallTime, Outcome::TimedOut) => (
            true,
            format!("ended after {} ms", report.usage.wall_time_ms),
        ),
        (_, outcome) => (false, format!("{outcome:?}").to_lowercase()),
    };
    let entry = report.plan.limit(limit);
    Row {
        section: LIMITS,
        what,
        mechanism: entry.map_or("", |entry| entry.enforced_by).to_owned(),
        is_as_promised: (exit != Some(SKIPPED)).then_some(is_limited),
        answer,
    }
}

fn table(demonstration: &Demonstration, printer: &Printer) -> String {
    let Demonstration {
        rows, weaker, runs, ..
    } = demonstration;
    let mut text = format!("An untrusted bundle, run {runs} times on this host.\n");
    for section in [ALLOWED, DENIED, LIMITS] {
        text.push_str(&format!("\n{section}\n"));
        for row in rows.iter().filter(|row| row.section == section) {
            let (mark, tone) = match row.is_as_promised {
                Some(true) if section == ALLOWED => ("ok", Tone::Good),
                Some(true) => ("held", Tone::Good),
                Some(false) => ("FAIL", Tone::Error),
                None => ("-", Tone::Detail),
            };
            let mark = printer.coloured(tone, &columns(mark, 4));
            let (what, answer) = (columns(row.what, 27), columns(&row.answer, 25));
            let line = format!("  {mark}  {what} {answer} {}", row.mechanism);
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    if !weaker.is_empty() {
        text.push_str("\nWeaker on this host (`runner doctor` shows how to fix it)\n");
    }
    for axis in weaker.values() {
        let name = axis.axis.replace('_', " ");
        let reason = axis
            .reason
            .as_deref()
            .map_or("no reason given", last_clause);
        let weakness = format!("{name} is {}: {reason}", axis.state.name());
        text.push_str(&format!("  {}\n", wrap(&weakness, 2)));
    }
    let good = demonstration.count(Some(true));
    text.push_str(&format!(
        "{NOT_COVERED}\n{good} of {} as promised",
        rows.len()
    ));
    for (is_as_promised, what) in [(Some(false), "BROKEN"), (None, "not tried")] {
        match demonstration.count(is_as_promised) {
            0 => (),
            number => text.push_str(&format!(", {number} {what}")),
        }
    }
    text.push_str(".\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::denial_reason::DenialReason;
    use spec::report::Denial;

    fn report(output: &str) -> Report {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.stdout.captured = Some(output.as_bytes().to_vec());
        report
    }

    fn denial(reason: DenialReason) -> Denial {
        Denial {
            kind: "net".to_owned(),
            object: "o".to_owned(),
            operation: None,
            rule: "network.egress".to_owned(),
            errno: None,
            reason: Some(reason),
            protocol: None,
            host: None,
            ip: None,
            port: None,
            hint: None,
            certainty: None,
            count: 1,
            first_ms: Some(0),
        }
    }

    #[track_caller]
    fn assert_row(rows: &[Row], what: &str, is_as_promised: Option<bool>) {
        let row = rows.iter().find(|row| row.what == what).expect("a row");
        assert_eq!(row.is_as_promised, is_as_promised, "{what}: {}", row.answer);
    }

    #[test]
    fn the_rows_are_the_lines_of_the_script() {
        assert_eq!(attempts(TOUR).len(), 23);
        assert_eq!(attempts(NETWORK).len(), 4);
        let left = attempts(TOUR)
            .into_iter()
            .find(|row| row.what == LEAVE_BEHIND);
        assert_eq!(
            left.map(|row| row.mechanism).as_deref(),
            Some("pid namespace")
        );
        for (act, ..) in LIMITED {
            assert!(ATTEMPTS.contains(&format!("\n{act}() {{")), "{act}");
        }
        assert!(ATTEMPTS.contains(LISTED_HOST));
    }

    #[test]
    fn an_attempt_holds_only_where_the_body_says_what_was_promised() {
        let mut report = report(
            "write to /tmp\tyes\tit worked\nwrite to /usr\tyes\tit worked\n\
             load a BPF program\tno\tno\u{1b}way\nmount something\tskip\tthere is no perl\n",
        );
        let rows = attempted_rows(&report, TOUR, 0, "");
        assert_row(&rows, "write to /tmp", Some(true));
        assert_row(&rows, "write to /usr", Some(false));
        assert_row(&rows, "load a BPF program", Some(true));
        assert_row(&rows, "mount something", None);
        assert_row(&rows, "compute", Some(false));
        assert!(rows.iter().all(|row| !row.answer.contains('\u{1b}')));
        report.outcome = Outcome::TimedOut;
        let rows = attempted_rows(&report, TOUR, 0, "");
        assert!(rows.iter().all(|row| row.is_as_promised != Some(true)));
    }

    #[test]
    fn a_process_that_outlives_its_run_breaks_the_promise() {
        let report = report("leave a process behind\tno\tended with the run\n");
        for (survivors, is_as_promised) in [(0, Some(true)), (1, Some(false))] {
            let rows = attempted_rows(&report, TOUR, survivors, "");
            assert_row(&rows, LEAVE_BEHIND, is_as_promised);
        }
    }

    #[test]
    fn a_listed_host_is_reached_only_if_it_received_the_greeting() {
        const WHAT: &str = "greet a host on the list";
        for (greeting, worked, is_as_promised) in [
            ("hello\n", "yes", Some(true)),
            ("", "yes", Some(false)),
            ("hell", "yes", Some(false)),
            ("hello\n", "no", Some(false)),
        ] {
            let report = report(&format!("{WHAT}\t{worked}\tanswer\n"));
            assert_row(
                &attempted_rows(&report, NETWORK, 0, greeting),
                WHAT,
                is_as_promised,
            );
        }
    }

    #[test]
    fn a_denied_host_holds_only_where_the_report_has_the_reason() {
        const BY_NAME: &str = "find a host not on the list";
        const BY_PORT: &str = "dial it at another port";
        let mut report = report(&format!("{BY_NAME}\tno\tno\n{BY_PORT}\tyes\tyes\n"));
        assert_row(
            &attempted_rows(&report, NETWORK, 0, ""),
            BY_NAME,
            Some(false),
        );
        report.denials = vec![
            denial(DenialReason::NameNotAllowed),
            denial(DenialReason::PortNotAllowed),
        ];
        let rows = attempted_rows(&report, NETWORK, 0, "");
        assert_row(&rows, BY_NAME, Some(true));
        assert_row(&rows, BY_PORT, Some(false));
    }

    #[test]
    fn a_count_beyond_its_limit_or_of_nothing_does_not_hold() {
        for (count, is_as_promised) in [
            ("0", Some(false)),
            ("8", Some(true)),
            ("9", Some(false)),
            ("x", Some(false)),
        ] {
            let row = limited_row(&report(count), Limit::Disk, 8 << 20, "disk");
            assert_eq!(row.is_as_promised, is_as_promised, "{count}");
        }
    }

    #[test]
    fn a_limit_holds_where_it_ended_the_body() {
        for (limit, outcome) in [
            (Limit::Memory, Outcome::OutOfMemory),
            (Limit::CpuTime, Outcome::CpuExhausted),
            (Limit::WallTime, Outcome::TimedOut),
        ] {
            let mut report = report("");
            report.exit = Some(spec::report::Exit {
                code: Some(0),
                signal: None,
                core_dump: false,
                raw_status: 0,
            });
            assert_eq!(
                limited_row(&report, limit, 1, "").is_as_promised,
                Some(false)
            );
            report.outcome = outcome;
            assert_eq!(
                limited_row(&report, limit, 1, "").is_as_promised,
                Some(true)
            );
        }
    }

    #[test]
    fn a_home_is_looked_for_only_where_the_body_would_not_see_that_path_anyway() {
        for (home, is_looked_for) in [
            ("/home/u", true),
            ("/root", true),
            ("/", false),
            ("/home", false),
            ("/usr/sbin", false),
            ("", false),
        ] {
            let output = std::process::Command::new("bash")
                .arg("-c")
                .arg(format!(
                    "{ATTEMPTS}\nsee() {{ echo looked; }}\nsee_home \"$0\""
                ))
                .arg(home)
                .output()
                .expect("bash runs");
            assert_eq!(output.stdout == b"looked\n", is_looked_for, "{home}");
        }
    }
}
