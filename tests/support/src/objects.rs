//! Kernel objects that a run could leave behind and that no file system shows: the current ones,
//! and the new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::LazyLock;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::invariants::pids;

/// The file system of the POSIX message queues of this ipc namespace, not mounted anywhere: only
/// root may open it.
static QUEUES: LazyLock<Option<OwnedFd>> = LazyLock::new(|| {
    let context = rustix::mount::fsopen("mqueue", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    rustix::mount::fsconfig_create(context.as_fd()).ok()?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).ok()
});

/// The objects at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    /// System V objects and message queues by name.
    named: BTreeSet<String>,
    /// Abstract sockets of this network namespace: inode and name.
    sockets: BTreeMap<String, String>,
    /// Network devices of this network namespace.
    devices: BTreeSet<String>,
    /// Generation of this network namespace's rules of nf_tables: it changes with every change of
    /// them. Only root may ask.
    rules: Option<u32>,
}

impl Objects {
    /// The current objects that this user may see.
    pub fn look() -> Self {
        Self {
            named: system_v().chain(message_queues()).collect(),
            sockets: abstract_sockets(),
            devices: devices(),
            rules: generation_of_rules(),
        }
    }

    /// Objects that are missing in `before` and belong to a run with one of these markers.
    pub fn beyond(&self, before: &Self, words: &[&str]) -> Vec<String> {
        let mut found: Vec<String> = self
            .named
            .difference(&before.named)
            .chain(self.devices.difference(&before.devices))
            .map(|name| format!("{name} stays"))
            .collect();
        for (inode, name) in &self.sockets {
            let told = words
                .iter()
                .any(|word| !word.is_empty() && name.contains(word));
            // An object that a process without a marker of the run holds belongs to that process.
            let new = !before.sockets.contains_key(inode);
            if told || (new && crate::is_root() && is_nobodys(inode)) {
                found.push(format!("abstract socket {name} stays"));
            }
        }
        if self.rules != before.rules {
            let (was, is) = (before.rules, self.rules);
            found.push(format!("rules of nf_tables changed: {was:?}, {is:?}"));
        }
        found
    }
}

/// `shm 5`: kind and identifier.
fn system_v() -> impl Iterator<Item = String> {
    ["shm", "sem", "msg"].into_iter().flat_map(|kind| {
        let text = std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        let ids = text.lines().skip(1).filter_map(|line| {
            let id = line.split_whitespace().nth(1)?;
            Some(format!("System V {kind} {id}"))
        });
        ids.collect::<Vec<_>>()
    })
}

fn message_queues() -> impl Iterator<Item = String> {
    let place = QUEUES
        .as_ref()
        .map_or(PathBuf::from("/dev/mqueue"), |root| {
            use std::os::fd::AsRawFd as _;
            PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()))
        });
    let entries = std::fs::read_dir(place).into_iter().flatten();
    entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        Some(format!("message queue {}", name.to_string_lossy()))
    })
}

fn abstract_sockets() -> BTreeMap<String, String> {
    let bytes = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    // Num RefCount Protocol Flags Type St Inode Path
    let sockets = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(6);
        let inode = fields.next()?;
        let name = fields.next().filter(|name| name.starts_with('@'))?;
        Some((inode.to_owned(), name.to_owned()))
    });
    sockets.collect()
}

fn devices() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(':'));
    names
        .map(|(name, _)| format!("network device {}", name.trim()))
        .collect()
}

/// Whether no process has a descriptor of this socket: it is in a message that nobody has received.
fn is_nobodys(inode: &str) -> bool {
    let wanted = format!("socket:[{inode}]");
    !anybody_holds(&wanted)
}

fn anybody_holds(wanted: &str) -> bool {
    pids().into_iter().any(|pid| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd"));
        links.into_iter().flatten().any(|entry| {
            let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
            target.is_ok_and(|target| target.as_os_str() == wanted)
        })
    })
}

/// Those of these network namespaces of an ended run that still exist: held by a process, a mount,
/// or a descriptor of this process. The kernel reuses the number of a namespace, so processes of
/// other runs are ignored (`is_of_other_run`).
pub(crate) fn kept_networks(networks: &BTreeSet<String>, ran: &RangeInclusive<u64>) -> Vec<String> {
    if networks.is_empty() {
        return Vec::new();
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let links = pids()
        .into_iter()
        .filter(|pid| !is_of_other_run(*pid, ran))
        .map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
    let own = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let own = own.filter_map(|entry| Some(entry.ok()?.path()));
    let seen: BTreeMap<String, PathBuf> = links
        .chain(own)
        .filter_map(|link| Some((std::fs::read_link(&link).ok()?.to_str()?.to_owned(), link)))
        .collect();
    let kept = networks
        .iter()
        .filter(|network| seen.contains_key(*network) || mounts.contains(network.as_str()));
    kept.map(|network| {
        let holder = seen.get(network).map(|link| {
            let process = link.ancestors().nth(2).unwrap_or(link);
            let stat = std::fs::read_to_string(process.join("stat"));
            format!(
                "{}: {}",
                link.display(),
                stat.unwrap_or_default().trim_end()
            )
        });
        format!(
            "network namespace {network} stays, {}",
            holder.unwrap_or_default()
        )
    })
    .collect()
}

/// Time since boot, in hundredths of a second.
pub(crate) fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let hundredths = now.tv_sec * 100 + now.tv_nsec / 10_000_000;
    u64::try_from(hundredths).expect("after the start")
}

/// Whether a process cannot belong to a run of this time: it did not start then, has ended, or is
/// below another supervisor or a test. Leftovers of a dead supervisor are below none, nor below this
/// process, whose other tests start processes too: only its ancestors and processes of the run itself
/// are above them.
pub(crate) fn is_of_other_run(pid: i32, ran: &RangeInclusive<u64>) -> bool {
    let above =
        |pid: i32| std::iter::successors(Process::read(pid), |child| Process::read(child.parent));
    let Some(process) = Process::read(pid) else {
        return true;
    };
    let this = rustix::process::getpid().as_raw_nonzero().get();
    let above_this: Vec<i32> = above(this).skip(1).map(|process| process.pid).collect();
    let of_others = |parent: Process| {
        let is_older = !ran.contains(&parent.started_ticks);
        let is_supervisor = ["runner", "planted"].contains(&parent.name.as_str());
        is_supervisor || (is_older && !above_this.contains(&parent.pid))
    };
    !ran.contains(&process.started_ticks) || above(process.parent).any(of_others)
}

/// What `/proc/PID/stat` says of a process (proc(5)).
struct Process {
    pid: i32,
    name: String,
    parent: i32,
    /// In hundredths of a second since boot.
    started_ticks: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (before, after_name) = status.rsplit_once(") ")?;
        let mut fields = after_name.split(' ').skip(1);
        Some(Self {
            pid,
            name: before.split_once('(')?.1.to_owned(),
            parent: fields.next()?.parse().ok()?,
            started_ticks: fields.nth(17)?.parse().ok()?,
        })
    }
}

/// NFT_MSG_GETGEN of nf_tables, encoded here: it needs one message, while reading all rules needs a
/// process.
fn generation_of_rules() -> Option<u32> {
    const LENGTH: u32 = 20;
    const GET_GENERATION: u16 = (10 << 8) | 16;
    const NEW_GENERATION: u16 = (10 << 8) | 15;
    const REQUEST: u16 = 1;
    const GENERATION: u16 = 1;
    let asker = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::NETFILTER),
    )
    .ok()?;
    let mut question = Vec::new();
    question.extend(LENGTH.to_ne_bytes());
    question.extend(GET_GENERATION.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    // Sequence number, port id, family, version, and resource id 0.
    question.extend([0_u8; 12]);
    send(&asker, &question, SendFlags::empty()).ok()?;
    let mut answer = [0_u8; 512];
    let (length, _) = recv(&asker, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    let answer = &answer[..length];
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != NEW_GENERATION {
        return None;
    }
    let mut at = 20;
    while let (Some(size), Some(kind)) = (half(at), half(at + 2)) {
        if kind == GENERATION {
            return Some(u32::from_be_bytes(
                answer.get(at + 4..at + 8)?.try_into().ok()?,
            ));
        }
        at += usize::from(size.max(4)).next_multiple_of(4);
    }
    None
}
