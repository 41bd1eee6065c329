//! The marks: what each bench is to reach, said once. `docs/performance.md` has the same list with
//! what was found (`tests/benches.rs` compares).

/// One figure and its limit.
pub struct Mark {
    /// The bench that measures it.
    pub bench: &'static str,
    pub name: &'static str,
    pub limit: f64,
    /// Whether the limit is the least and not the most.
    pub at_least: bool,
    /// Appended to the number: empty for a ratio, else with a space in front.
    pub unit: &'static str,
}

impl Mark {
    pub fn is_met(&self, value: f64) -> bool {
        if self.at_least {
            self.limit <= value
        } else {
            value <= self.limit
        }
    }

    pub fn limit_text(&self) -> String {
        let sign = if self.at_least { '≥' } else { '≤' };
        format!("{sign} {}{}", self.limit, self.unit)
    }
}

/// In the order in which they are shown.
pub const MARKS: &[Mark] = &[
    most("launch", "run ÷ bwrap", 0.7, ""),
    most("launch", "run ÷ floor", 1.3, ""),
    most("launch", "run ÷ nsjail with limits", 0.25, ""),
    most("launch", "exec hello ÷ bwrap", 0.8, ""),
    most("launch", "run ÷ bwrap, p90 after 200 ms of idle", 1.0, ""),
    most("launch", "processor time, run ÷ bwrap", 2.5, ""),
    most("start", "version over a C program", 200.0, " µs"),
    most("start", "own memory for hello", 4.0, " MiB"),
    most("unpack", "unpack 2,000 files ÷ tar xzf", 0.6, ""),
    most(
        "cache",
        "cached, hashed: over hello + 0.7 ms per MB",
        1.0,
        " ms",
    ),
    most("cache", "cached, by identity: over hello", 1.0, " ms"),
    most("sources", "10 MB of source, second run ÷ hello", 1.3, ""),
    most("sources", "1 GB of source, second run ÷ hello", 1.3, ""),
    most("sources", "unpack an image ÷ tar xzf", 1.0, ""),
    most("sources", "unpack an image ÷ umoci unpack", 1.0, ""),
    least("scale", "runs/s of two callers ÷ best peer", 1.0, ""),
    least("scale", "of 1,000 runs at once end", 1000.0, " runs"),
    most("scale", "memory per waiting run", 4.0, " MiB"),
    most("sessions", "create to first command ÷ run", 1.3, ""),
    most("sessions", "command over the socket ÷ run", 0.5, ""),
    most("sessions", "command by the program ÷ run", 1.0, ""),
    most("sessions", "memory of an idle sandbox", 3.0, " MiB"),
    most("steady", "price of a system call", 35.0, " ns"),
    most("steady", "open + close + stat ÷ bare", 1.2, ""),
    most("steady", "CPU-bound ÷ bare", 1.01, ""),
    most("steady", "calls, refusals observed ÷ not", 1.03, ""),
    most("limits", "wall limit overshoot, p99", 20.0, " ms"),
    most(
        "limits",
        "kill to empty under a fork storm, p99",
        250.0,
        " ms",
    ),
    most("limits", "own memory under a hostile body", 64.0, " MiB"),
    most("bundle", "bundle ÷ tar and gzip", 1.2, ""),
    most("egress", "connect, tproxy ÷ loopback", 1.5, ""),
    most("egress", "connect, anyip ÷ loopback", 1.5, ""),
    least("egress", "one stream up, tproxy ÷ loopback", 0.5, ""),
    least("egress", "one stream down, tproxy ÷ loopback", 0.5, ""),
    most(
        "egress",
        "set-up, tproxy − bare network namespace",
        400.0,
        " µs",
    ),
    most(
        "egress",
        "set-up, anyip − bare network namespace",
        400.0,
        " µs",
    ),
];

const fn most(bench: &'static str, name: &'static str, limit: f64, unit: &'static str) -> Mark {
    Mark {
        bench,
        name,
        limit,
        at_least: false,
        unit,
    }
}

const fn least(bench: &'static str, name: &'static str, limit: f64, unit: &'static str) -> Mark {
    Mark {
        bench,
        name,
        limit,
        at_least: true,
        unit,
    }
}
