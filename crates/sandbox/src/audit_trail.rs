//! What Landlock refused to a body, by the audit records of the host.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use spec::merged::Merged;
use spec::units::count;
use sys::audit::{self, MESSAGE_BYTES_MAX};

use crate::audit_record::{AuditRecord, Refusal, parse};

/// Refusals of unknown domains that are kept until the next record says whose they are.
const PENDING_MAX: usize = 256;
/// Records that are read before the body's streams have their turn.
const READS_MAX: usize = 256;
/// The kernel passes records on from a thread of its own: so long after the body's end none has come, no more
/// are waited for, and not longer than the second time at all.
const QUIET: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// The process that made the body's domain.
#[derive(Debug, Clone, Copy)]
pub struct DomainMaker {
    /// No other process has it but those of the run.
    pub uid: u32,
    /// The first process of the body, which made the domain before its exec.
    pub process: u32,
    /// Process 1 of the sandbox, in the pid namespace of the host.
    pub init: u32,
}

/// A domain's id is the kernel's, which gives none twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyDomain {
    Unknown,
    Known(u64),
    Ended,
}

/// The refusals of the body's domain, picked from the records of all. Domains that the body makes itself have no
/// records (LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF).
#[derive(Debug)]
pub struct DomainRefusals {
    maker: DomainMaker,
    domain: BodyDomain,
    pending: VecDeque<(u64, Vec<Refusal>, u64)>,
    refusals: Merged<Refusal>,
    /// Records of the domain.
    records: u64,
    /// Records that say nothing that can be listed.
    unusable: u64,
    /// Refusals without a record.
    unrecorded: u64,
}

impl DomainRefusals {
    /// None yet, of the domain that `maker` has made.
    #[must_use]
    pub fn of(maker: DomainMaker) -> Self {
        Self {
            maker,
            domain: BodyDomain::Unknown,
            pending: VecDeque::new(),
            refusals: Merged::default(),
            records: 0,
            unusable: 0,
            unrecorded: 0,
        }
    }

    /// Signals are to process 1.
    #[must_use]
    pub fn refusals(&self) -> &Merged<Refusal> {
        &self.refusals
    }

    /// Adds a record.
    pub fn add(&mut self, kind: u16, text: &[u8], now_ms: u64) {
        match parse(kind, text) {
            None => self.unusable += 1,
            Some(AuditRecord::Access { domain, refusals }) => match self.domain {
                BodyDomain::Known(own) if domain == own => self.attribute(refusals, now_ms),
                BodyDomain::Unknown => {
                    // Whose domain it is follows at once: the oldest is of one that was known before the run.
                    if self.pending.len() == PENDING_MAX {
                        self.pending.pop_front();
                    }
                    self.pending.push_back((domain, refusals, now_ms));
                }
                BodyDomain::Known(_) | BodyDomain::Ended => (),
            },
            Some(AuditRecord::Allocated {
                domain,
                process,
                uid,
            }) => {
                let is_own = (process, uid) == (self.maker.process, self.maker.uid);
                self.pending.retain(|(of, _, _)| is_own == (*of == domain));
                if is_own && self.domain == BodyDomain::Unknown {
                    self.domain = BodyDomain::Known(domain);
                    for (_, refusals, at_ms) in std::mem::take(&mut self.pending) {
                        self.attribute(refusals, at_ms);
                    }
                }
            }
            Some(AuditRecord::Deallocated { domain, denials }) => {
                if self.domain == BodyDomain::Known(domain) {
                    self.unrecorded = denials.saturating_sub(self.records);
                    self.domain = BodyDomain::Ended;
                }
            }
        }
    }

    fn attribute(&mut self, refusals: Vec<Refusal>, now_ms: u64) {
        self.records += 1;
        let init = self.maker.init;
        // The body can name no process of the host.
        let is_known = |refusal: &Refusal| match refusal {
            Refusal::Path { .. } => true,
            Refusal::Signal { process } => *process == init,
        };
        if refusals.is_empty() || !refusals.iter().all(is_known) {
            self.unusable += 1;
            return;
        }
        for refusal in refusals {
            self.refusals.add(refusal, now_ms);
        }
    }
}

/// The records of the host while a body runs.
#[derive(Debug)]
pub struct AuditTrail {
    /// `None`: it failed.
    socket: Option<OwnedFd>,
    of_domain: DomainRefusals,
    has_lost_records: bool,
}

impl AuditTrail {
    /// Reads from a socket of [`sys::audit::open`].
    #[must_use]
    pub fn new(socket: OwnedFd, maker: DomainMaker) -> Self {
        Self {
            socket: Some(socket),
            of_domain: DomainRefusals::of(maker),
            has_lost_records: false,
        }
    }

    /// What was refused so far. Signals are to process 1.
    #[must_use]
    pub fn refusals(&self) -> &Merged<Refusal> {
        self.of_domain.refusals()
    }

    /// Why [`AuditTrail::refusals`] may not be all.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let of_domain = &self.of_domain;
        let some = |number: u64, noun: &str, lack: &str| {
            (number > 0).then(|| format!("{} {lack}", count(number, noun)))
        };
        let said = |is_so: bool, lack: &str| is_so.then(|| lack.to_owned());
        let is_open = matches!(of_domain.domain, BodyDomain::Known(_));
        let reasons = [
            said(self.has_lost_records, "audit records were lost"),
            some(of_domain.unusable, "audit record", "could not be used"),
            some(
                of_domain.unrecorded,
                "refusal",
                "of Landlock have no audit record",
            ),
            said(is_open, "the last audit records may have come too late"),
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Readable when [`AuditTrail::read`] has work.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(OwnedFd::as_fd)
    }

    /// Reads what waits.
    pub(crate) fn read(&mut self, now_ms: u64) {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        for _ in 0..READS_MAX {
            let Some(socket) = &self.socket else {
                return;
            };
            match audit::receive(socket, &mut buffer) {
                Ok(Some((kind, text))) => self.of_domain.add(kind, text, now_ms),
                Ok(None) => return,
                Err(Errno::INTR) => (),
                Err(Errno::NOBUFS) => self.has_lost_records = true,
                Err(Errno::MSGSIZE | Errno::PROTO) => self.of_domain.unusable += 1,
                Err(_) => {
                    self.has_lost_records = true;
                    self.socket = None;
                }
            }
        }
    }

    /// Reads what is still on its way when the body has ended.
    pub(crate) fn drain(&mut self, now_ms: u64) {
        let until = Instant::now() + DRAIN_MAX;
        while self.of_domain.domain != BodyDomain::Ended && Instant::now() < until {
            let Some(socket) = self.as_fd() else {
                return;
            };
            let mut waited = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            match rustix::event::poll(&mut waited, Some(&QUIET)) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => self.read(now_ms),
                Err(_) => {
                    self.has_lost_records = true;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::netlink::{SocketAddrNetlink, USERSOCK};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
    use rustix::net::{socket_with, socketpair, sockopt};
    use spec::path_use::PathOperation;
    use sys::audit::{LANDLOCK_ACCESS, LANDLOCK_DOMAIN};

    const MAKER: DomainMaker = DomainMaker {
        uid: 100_007,
        process: 286,
        init: 285,
    };

    /// A record for tests: an access to a path or process, or what became of a domain.
    fn record(short: &str) -> (u16, String) {
        let (domain, what) = short.split_once(' ').expect("two words");
        let (kind, fields) = match what.split_once('=') {
            Some(("path", path)) => (
                LANDLOCK_ACCESS,
                format!("blockers=fs.execute path=\"{path}\" dev=\"vda\" ino=1"),
            ),
            Some(("opid", id)) => (
                LANDLOCK_ACCESS,
                format!("blockers=scope.signal opid={id} ocomm=\"a\""),
            ),
            Some(("blockers", _)) => (LANDLOCK_ACCESS, what.to_owned()),
            Some(("denials", _)) => (LANDLOCK_DOMAIN, format!("status=deallocated {what}")),
            _ => (
                LANDLOCK_DOMAIN,
                format!("status=allocated mode=enforcing {what} exe=\"/a\" comm=\"b\""),
            ),
        };
        (kind, format!("audit(1.2:3): domain={domain} {fields}"))
    }

    fn refusals_of(shorts: &[&str]) -> DomainRefusals {
        let mut refusals = DomainRefusals::of(MAKER);
        for (short, now_ms) in shorts.iter().zip(1..) {
            let (kind, text) = record(short);
            refusals.add(kind, text.as_bytes(), now_ms);
        }
        refusals
    }

    /// The paths and processes, with counts.
    fn listed(refusals: &DomainRefusals) -> Vec<String> {
        let row = |(refusal, equal): &(Refusal, _)| {
            let spec::merged::Occurrences { count, first_ms } = equal;
            match refusal {
                Refusal::Path { path, .. } => {
                    let path = String::from_utf8_lossy(path);
                    format!("{path} {count} from {first_ms}")
                }
                Refusal::Signal { process } => format!("{process} {count} from {first_ms}"),
            }
        };
        refusals.refusals().distinct().map(row).collect()
    }

    const OWN: &str = "a pid=286 uid=100007";

    /// B-76.
    #[test]
    fn a_refusal_is_attributed_if_its_domain_is_of_the_first_process_and_uid_of_the_run() {
        for (records, expected) in [
            (
                &["a path=/x", OWN, "a path=/y"][..],
                &["/x 1 from 1", "/y 1 from 3"][..],
            ),
            (
                &["a path=/x", "b path=/z", OWN, "b path=/z"],
                &["/x 1 from 1"],
            ),
            (
                &["a path=/x", "a path=/x", OWN, "a path=/x"],
                &["/x 3 from 1"],
            ),
            (&["a opid=285", OWN, "a opid=285"], &["285 2 from 1"]),
            // Another uid, another process, another program's domain that is known for long, none at all.
            (&["a path=/x", "a pid=286 uid=0", "a path=/x"], &[]),
            (&["a path=/x", "a pid=285 uid=100007", "a path=/x"], &[]),
            (
                &["b path=/x", "a path=/y", OWN, "b path=/x"],
                &["/y 1 from 2"],
            ),
            (&["a path=/x"], &[]),
            // A second domain, and an id after its end.
            (&[OWN, "b pid=286 uid=100007", "b path=/x"], &[]),
            (&[OWN, "a denials=0", "a path=/x", OWN, "a path=/x"], &[]),
            (&[OWN, "b denials=0", "a path=/x"], &["/x 1 from 3"]),
        ] {
            let refusals = refusals_of(records);
            assert_eq!(listed(&refusals), expected, "{records:?}");
            assert_eq!(refusals.unusable, 0, "{records:?}");
        }
    }

    /// B-76.
    #[test]
    fn refusals_of_domains_that_stay_unknown_displace_no_later_one() {
        let mut refusals = DomainRefusals::of(MAKER);
        let foreign = record("b path=/z");
        for _ in 0..10 * PENDING_MAX {
            refusals.add(foreign.0, foreign.1.as_bytes(), 1);
        }
        assert_eq!(refusals.pending.len(), PENDING_MAX);
        for short in ["a path=/x", OWN] {
            let (kind, text) = record(short);
            refusals.add(kind, text.as_bytes(), 2);
        }
        assert_eq!(listed(&refusals), ["/x 1 from 2"]);
    }

    fn trail() -> (OwnedFd, AuditTrail) {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (kernel, reader) = pair.expect("a pair");
        (kernel, AuditTrail::new(reader, MAKER))
    }

    fn send(kernel: &OwnedFd, short: &str) {
        let (kind, text) = record(short);
        let mut message = vec![0; 16];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(text.as_bytes());
        rustix::net::send(kernel, &message, SendFlags::empty()).expect("sent");
    }

    #[test]
    fn what_a_trail_lacks_is_said() {
        let unusable = "1 audit record could not be used";
        let open = "the last audit records may have come too late";
        for (records, expected) in [
            (&[][..], None),
            (&["b path=/z"], None),
            (&[OWN, "a path=/x", "a denials=1"], None),
            (&[OWN, "a path=/x"], Some(open.to_owned())),
            (
                &[OWN, "a path=/x", "a denials=3"],
                Some("2 refusals of Landlock have no audit record".to_owned()),
            ),
            (&["a path=x"], Some(unusable.to_owned())),
            (
                &[OWN, "a blockers=ptrace opid=285", "a denials=1"],
                Some(unusable.to_owned()),
            ),
            // A signal to a process that the body cannot name.
            (&[OWN, "a opid=9"], Some(format!("{unusable}; {open}"))),
        ] {
            let (kernel, mut trail) = trail();
            for short in records {
                send(&kernel, short);
            }
            trail.read(5);
            assert_eq!(trail.lacks(), expected, "{records:?}");
        }
    }

    /// B-76: with another protocol of netlink, which loses messages in the same way.
    #[test]
    fn lost_records_are_noticed() {
        const GROUP: u32 = 1 << 30;
        let open = || {
            let flags = SocketFlags::CLOEXEC;
            let kind = SocketType::RAW;
            socket_with(AddressFamily::NETLINK, kind, flags, Some(USERSOCK)).expect("made")
        };
        let (sender, reader) = (open(), open());
        sockopt::set_socket_recv_buffer_size(&reader, 1).expect("set");
        rustix::net::bind(&reader, &SocketAddrNetlink::new(0, GROUP)).expect("bound");
        let mut trail = AuditTrail::new(reader, MAKER);
        let (kind, text) = record("b path=/z");
        let mut message = vec![0; 16];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(text.as_bytes());
        let to = SocketAddrNetlink::new(0, GROUP);
        let send = || {
            // The group has got it; nobody has the address 0.
            let sent = rustix::net::sendto(&sender, &message, SendFlags::empty(), &to);
            assert_eq!(sent, Err(Errno::CONNREFUSED));
        };
        send();
        trail.read(5);
        assert_eq!(trail.lacks(), None);
        assert_eq!(trail.of_domain.pending.len(), 1);
        for _ in 0..100 {
            send();
        }
        trail.read(5);
        assert_eq!(trail.lacks().as_deref(), Some("audit records were lost"));
        assert!(trail.as_fd().is_some());
    }

    #[test]
    fn a_trail_ends_with_its_domain_or_its_socket() {
        let (kernel, mut ended) = trail();
        for short in [OWN, "a path=/x", "a denials=1", "b path=/z"] {
            send(&kernel, short);
        }
        ended.drain(5);
        assert_eq!(ended.lacks(), None);
        let path = Refusal::Path {
            operation: PathOperation::Execute,
            path: b"/x".to_vec(),
        };
        let found: Vec<_> = ended
            .refusals()
            .distinct()
            .map(|(found, _)| found)
            .collect();
        assert_eq!(found, [&path]);
        let (kernel, mut broken) = trail();
        rustix::net::send(&kernel, &[0; 3], SendFlags::empty()).expect("sent");
        rustix::net::send(&kernel, &[0; MESSAGE_BYTES_MAX + 1], SendFlags::empty()).expect("sent");
        broken.read(5);
        let lacks = broken.lacks();
        assert_eq!(lacks.as_deref(), Some("2 audit records could not be used"));
    }
}
