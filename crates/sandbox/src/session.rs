//! Kills a session: what a command has started and what has not left it by setsid(2).

use std::mem::MaybeUninit;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;

use sys::process;

/// A session that forks for longer is left to the limits of the sandbox.
const ROUNDS_MAX: usize = 256;

/// Sends SIGKILL to the process group of `leader`, and to all processes of its session as long as there
/// are new ones. Uses the /proc of this process, of which it reads the names of directories alone, and
/// allocates nothing.
///
/// # Errors
/// The errno of openat(2) or getdents64(2): the process group was killed, the rest was not looked for.
pub(crate) fn kill_session(leader: i32) -> Result<(), Errno> {
    kill(-leader);
    let mut before = Members::default();
    for _round in 0..ROUNDS_MAX {
        let found = kill_members(leader)?;
        // Zombies, and those that are about to be.
        if found == before {
            break;
        }
        before = found;
    }
    Ok(())
}

/// Which processes a round has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Members {
    count: u32,
    sum: u64,
}

fn kill_members(leader: i32) -> Result<Members, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = openat(CWD, c"/proc", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(proc, &mut buffer);
    let mut members = Members::default();
    while let Some(entry) = entries.next() {
        let Some(id) = process_id(entry?.file_name().to_bytes()) else {
            continue;
        };
        if process::session_of(id) == Ok(leader) {
            kill(id);
            members.count += 1;
            members.sum = members.sum.wrapping_add(u64::from(id.unsigned_abs()));
        }
    }
    Ok(members)
}

fn process_id(name: &[u8]) -> Option<i32> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

fn kill(id: i32) {
    match process::kill(id, libc::SIGKILL) {
        // It is gone, or runs a program with other ids.
        Ok(()) | Err(_) => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_session_is_killed_with_its_process_groups_and_no_other_process() {
        let group = "import os, time; os.setpgid(0, 0); print('job', os.getpid(), flush=True); \
                     time.sleep(1000)";
        let text = "python3 -c \"$0\" & setsid sh -c 'echo other $$; exec sleep 1001' & wait";
        let mut leader = Command::new("setsid")
            .args(["sh", "-c", text, group])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(leader.stdout.take().expect("a pipe")).lines();
        let pids: BTreeMap<String, i32> = lines
            .take(2)
            .map(|line| {
                let line = line.expect("read");
                let (name, pid) = line.split_once(' ').expect("a name");
                (name.to_owned(), pid.parse().expect("a pid"))
            })
            .collect();
        let (job, other) = (pids["job"], pids["other"]);
        let session = i32::try_from(leader.id()).expect("a pid");
        assert_eq!(process::session_of(job), Ok(session));
        assert_eq!(process::session_of(other), Ok(other));
        kill_session(session).expect("killed");
        assert!(!leader.wait().expect("ended").success());
        let is_alive = |id: i32| {
            let status = std::fs::read_to_string(format!("/proc/{id}/stat"));
            status.is_ok_and(|text| !text.contains(") Z "))
        };
        while is_alive(job) {
            std::thread::yield_now();
        }
        assert!(is_alive(other));
        kill(other);
    }
}
