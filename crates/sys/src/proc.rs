//! Files of /proc/PID: proc_pid_stat(5), proc_pid_statm(5), proc_pid_smaps(5), proc_pid_status(5).

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file::read_to_end;

/// Lists the pids of this /proc (openat(2), getdents64(2)).
pub fn process_ids(proc: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut ids = Vec::new();
    for entry in rustix::fs::Dir::read_from(proc)? {
        let entry = entry?;
        let id = entry.file_name().to_str().ok();
        ids.extend(id.and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(ids)
}

/// Reads the CPU time of a process and of its waited-for descendants in clock ticks; `None` if the
/// process is gone. Fails with EPROTO for a malformed file.
pub fn cpu_ticks(proc: BorrowedFd<'_>, id: u32) -> Result<Option<u64>, Errno> {
    parsed(read(proc, id, c"stat")?, parse_cpu_ticks)
}

/// Reads when a process started, in clock ticks since the boot; `None` if it has ended, even if nobody has waited for
/// it yet. With its pid it names a process for good. Fails with EPROTO for a malformed file.
pub fn start_ticks(proc: BorrowedFd<'_>, id: u32) -> Result<Option<u64>, Errno> {
    parsed(read(proc, id, c"stat")?, parse_start_ticks).map(Option::flatten)
}

/// Reads the resident pages, including shared ones; `None` if the process is gone.
pub fn resident_pages(proc: BorrowedFd<'_>, id: u32) -> Result<Option<u64>, Errno> {
    parsed(read(proc, id, c"statm")?, |text| {
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    })
}

/// Reads the proportional set size in bytes (Linux 4.14); `None` if the process is gone.
/// Fails with EACCES or EPERM if ptrace(2) access is denied.
pub fn proportional_bytes(proc: BorrowedFd<'_>, id: u32) -> Result<Option<u64>, Errno> {
    let text = match read(proc, id, c"smaps_rollup") {
        // The file of a zombie is empty.
        Ok(Some(text)) if text.is_empty() => return Ok(Some(0)),
        other => other?,
    };
    parsed(text, |text| kilobytes(text, "Pss:"))
}

/// Reads resident anonymous and shared memory in bytes, without file mappings (Linux 4.5); `None`
/// if the process is gone.
pub fn unbacked_bytes(proc: BorrowedFd<'_>, id: u32) -> Result<Option<u64>, Errno> {
    // A zombie has neither line.
    parsed(read(proc, id, c"status")?, |text| {
        let anonymous = kilobytes(text, "RssAnon:").unwrap_or(0);
        anonymous.checked_add(kilobytes(text, "RssShmem:").unwrap_or(0))
    })
}

fn parsed<T>(text: Option<String>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Errno> {
    match text {
        Some(text) => parse(&text).map(Some).ok_or(Errno::PROTO),
        None => Ok(None),
    }
}

fn read(proc: BorrowedFd<'_>, id: u32, file: &CStr) -> Result<Option<String>, Errno> {
    let is_gone = |errno| matches!(errno, Errno::NOENT | Errno::SRCH);
    let path = format!("{id}/{}", file.to_string_lossy());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = match rustix::fs::openat(proc, path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(errno) if is_gone(errno) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    match read_to_end(&opened) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(errno) if is_gone(errno) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The fields of stat from the third on, `state`. The second is the process name, which may contain spaces and
/// parentheses: the last `)` ends it.
fn fields_from_state(text: &str) -> Option<Vec<&str>> {
    let (_, after_name) = text.rsplit_once(')')?;
    Some(after_name.split_ascii_whitespace().collect())
}

fn parse_cpu_ticks(text: &str) -> Option<u64> {
    let mut cpu_ticks: u64 = 0;
    // Fields 14 to 17.
    for field in fields_from_state(text)?.get(11..15)? {
        // The children's times are signed in the file.
        cpu_ticks = cpu_ticks.saturating_add(u64::try_from(field.parse::<i64>().ok()?).ok()?);
    }
    Some(cpu_ticks)
}

/// `Some(None)`: it has ended.
fn parse_start_ticks(text: &str) -> Option<Option<u64>> {
    let fields = fields_from_state(text)?;
    // Field 22.
    let start = fields.get(19)?.parse().ok()?;
    Some(match *fields.first()? {
        "Z" | "X" => None,
        _ => Some(start),
    })
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_cannot_forge_its_cpu_time_by_its_name() {
        let text =
            "7 (a) R 0 0 0 (b) S 1 7 7 0 -1 4194560 9 0 0 0 11 22 33 44 20 0 5 0 100 1 2 3\n";
        assert_eq!(parse_cpu_ticks(text), Some(110));
        assert_eq!(parse_cpu_ticks("7 (a) R 1"), None);
    }

    #[test]
    fn a_process_that_nobody_waited_for_has_ended() {
        let line = |state| {
            format!("7 (a) R) {state} 1 7 7 0 -1 4194560 9 0 0 0 11 22 33 44 20 0 1 0 98765 1 2\n")
        };
        assert_eq!(parse_start_ticks(&line("S")), Some(Some(98_765)));
        assert_eq!(parse_start_ticks(&line("T")), Some(Some(98_765)));
        assert_eq!(parse_start_ticks(&line("Z")), Some(None));
        assert_eq!(parse_start_ticks("7 (a) R 1"), None);
    }

    #[test]
    fn a_key_is_found_at_the_beginning_of_a_line_only() {
        let text = "head\nSwapPss: 9 kB\nPss:      3 kB\nPss_Anon: 1 kB\n";
        assert_eq!(kilobytes(text, "Pss:"), Some(3 * 1024));
        assert_eq!(kilobytes(text, "Rss:"), None);
    }
}
