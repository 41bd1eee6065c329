//! A small program that traces a run and changes one system call of one of its processes. strace(1)
//! counts the calls of each process separately, so one `when=` would affect several.

use std::fmt;
use std::path::{Path, PathBuf};

use filter::Arch;
use spec::syscall_policy::SyscallPolicyName;

use crate::policies::built_in_policy;
use support::bodies::c_body;

/// A process of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Supervisor = 0,
    Init = 1,
    /// The body's first process, until its exec.
    Body = 2,
}

/// One system call of a run: its process, its number, and how many calls with that number preceded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    pub role: Role,
    pub call: u32,
    /// From 1.
    pub nth: u32,
    /// Its result in the recorded run: a value, or a negative errno.
    pub result: i64,
    /// Its path, or what else distinguishes it.
    pub detail: String,
}

/// The fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Kill,
    /// SIGTERM to the supervisor, and then SIGKILL to the process.
    End,
    /// The result, instead of executing the call.
    Fail(rustix::io::Errno),
}

impl Point {
    /// The call's name.
    pub fn name(&self) -> &'static str {
        built_in_policy(SyscallPolicyName::Default, Arch::NATIVE)
            .name_of(self.call)
            .expect("a call that the tables know")
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, nth, detail) = (self.name(), self.nth, &self.detail);
        write!(f, "{:?}: {name} {nth} ({detail})", self.role)
    }
}

/// The tracer with the words before those of the program; without a point it records.
pub fn words(log: &Path, what: Option<(&Point, Act)>) -> Vec<String> {
    let program = c_body("tracer", include_str!("tracer.c"));
    let path = |path: &Path| path.to_str().expect("plain").to_owned();
    let mut words = vec![path(&program), path(log)];
    match what {
        None => words.extend(["-1", "0", "0", "0"].map(str::to_owned)),
        Some((point, act)) => {
            let act = match act {
                Act::Kill => "kill".to_owned(),
                Act::End => "end".to_owned(),
                Act::Fail(errno) => errno.raw_os_error().to_string(),
            };
            let role = (point.role as i32).to_string();
            words.extend([role, point.call.to_string(), point.nth.to_string(), act]);
        }
    }
    words
}

/// The log of the tracer.
pub struct Trace {
    pub points: Vec<Point>,
    /// Whether the point was reached.
    pub hit: bool,
    /// The kernel's restrictions of the body at its exec; empty if there was none.
    pub body: Vec<String>,
}

impl Trace {
    pub fn read(log: &PathBuf) -> Self {
        let text = std::fs::read_to_string(log).expect("the tracer wrote it");
        let body: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("body "))
            .collect();
        Self {
            points: text.lines().filter_map(point).collect(),
            hit: text.lines().any(|line| line.starts_with("hit ")),
            body: facts(&body),
        }
    }
}

fn point(line: &str) -> Option<Point> {
    let mut words = line.strip_prefix("call ")?.splitn(5, ' ');
    let role = match words.next()? {
        "0" => Role::Supervisor,
        "1" => Role::Init,
        "2" => Role::Body,
        _ => return None,
    };
    Some(Point {
        role,
        call: words.next()?.parse().ok()?,
        nth: words.next()?.parse().ok()?,
        result: words.next()?.parse().ok()?,
        detail: words.next()?.to_owned(),
    })
}

/// Lines of `status` about the rights of a process.
const OF_STATUS: [&str; 16] = [
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Cpus_allowed_list",
];

/// The part that is the same in every run: without ids of a single run.
fn facts(lines: &[&str]) -> Vec<String> {
    let uid = lines
        .iter()
        .find_map(|line| line.strip_prefix("status Uid:")?.split_whitespace().next())
        .unwrap_or("none");
    lines
        .iter()
        .filter_map(|line| {
            let (file, rest) = line.split_once(' ')?;
            match file {
                "status" => {
                    let (name, _) = rest.split_once(':')?;
                    OF_STATUS.contains(&name).then(|| (*line).to_owned())
                }
                // Without the ids of mounts and devices.
                "mountinfo" => {
                    let mut words = rest.split(' ').skip(3);
                    let text = words.by_ref().collect::<Vec<_>>().join(" ");
                    let text = without_ground(&text);
                    Some(format!(
                        "mount {}",
                        roughly(&roughly(&text, "size="), "nr_inodes=")
                    ))
                }
                "cgroup" => Some(match rest.split_once("/runner-0") {
                    None => (*line).to_owned(),
                    Some((group, _)) => format!("cgroup {group}/of the run"),
                }),
                "limits" => {
                    let text = line.split_whitespace().collect::<Vec<_>>().join(" ");
                    Some(text).filter(|text| !text.starts_with("limits Max file size "))
                }
                _ => Some((*line).to_owned()),
            }
        })
        .map(|line| {
            if uid == "0" {
                line
            } else {
                line.replace(uid, "ID")
            }
        })
        .collect()
}

/// `text` without the name of the ground, which differs between runs.
fn without_ground(text: &str) -> String {
    let Some((before, rest)) = text.split_once("/ground-") else {
        return text.to_owned();
    };
    let name = |letter: char| letter.is_ascii_alphanumeric();
    format!("{before}/ground{}", rest.trim_start_matches(name))
}

/// `text` with a fixed number after `name`, which differs between runs: the space of the body
/// depends on how far init has set it up.
fn roughly(text: &str, name: &str) -> String {
    let Some((before, rest)) = text.split_once(name) else {
        return text.to_owned();
    };
    let after = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let number: u64 = rest[..rest.len() - after.len()].parse().unwrap_or(0);
    let power = number.checked_ilog2().unwrap_or(0);
    format!("{before}{name}2^{power}{}", after.trim())
}
