//! Records packets that no listener receives as denials.

use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::denials::Protocol;
use crate::observed::{PacketAttempt, logged_packets, parse_packet};
use crate::relay::Relay;
use crate::relay::shared::Shared;
use spec::body_network::QUESTION_PORT;
use spec::denial_reason::DenialReason;
use spec::network::Capture;

/// Maximum number of reads in one turn.
const READS_PER_TURN: usize = 512;
/// Larger than any message: the kernel truncates packets to 128 bytes.
const READ_BYTES: usize = 64 << 10;

/// Counts gaps in the sequence numbers of the messages.
#[derive(Debug, Default)]
pub(super) struct SequenceNumbers {
    next: u32,
    missing: u64,
}

impl SequenceNumbers {
    fn add(&mut self, sequence: u32) {
        let gap = sequence.wrapping_sub(self.next);
        // A larger gap means that the number is older than the last one.
        if gap <= u32::MAX / 2 {
            self.missing += u64::from(gap);
            self.next = sequence.wrapping_add(1);
        }
    }

    pub(super) fn missing(&self) -> u64 {
        self.missing
    }
}

impl Relay {
    /// Reads messages. Returns whether more may be available.
    pub(super) fn read_log(&mut self, now: Instant) -> bool {
        let Some(log) = &self.sockets.log else {
            return false;
        };
        let mut scratch = std::mem::take(&mut self.shared.buffers.scratch);
        let mut more = true;
        for _ in 0..READS_PER_TURN {
            let room = READ_BYTES.min(scratch.len());
            let read = match rustix::net::recv(log, &mut scratch[..room], RecvFlags::DONTWAIT) {
                Ok((read, _)) => read,
                Err(Errno::AGAIN) => {
                    more = false;
                    break;
                }
                // ENOBUFS: messages were dropped. The kernel counts them.
                Err(_) => continue,
            };
            let bytes = scratch.get(..read).unwrap_or_default();
            match self.sockets.capture {
                Capture::AnyIp => self.shared.deny_packet(bytes, true, now),
                Capture::Tproxy => {
                    for logged in logged_packets(bytes) {
                        if let Some(sequence) = logged.sequence {
                            self.sequence_numbers.add(sequence);
                        }
                        self.shared.deny_packet(logged.packet, false, now);
                    }
                }
            }
        }
        self.shared.buffers.scratch = scratch;
        more
    }
}

impl Shared {
    /// `is_tap`: all connections are visible, including those that a listener receives.
    fn deny_packet(&mut self, packet: &[u8], is_tap: bool, now: Instant) {
        let Some(PacketAttempt {
            protocol,
            destination,
            port,
        }) = parse_packet(&self.permit, packet)
        else {
            return;
        };
        if destination.is_loopback() {
            return;
        }
        let host = self.names.host_at(destination);
        let allowed = &self.rules.allowed;
        let reason = match (protocol, port) {
            (Protocol::Tcp, _) if !is_tap => return,
            (Protocol::Tcp, Some(QUESTION_PORT)) | (Protocol::Udp, Some(QUESTION_PORT)) => return,
            (Protocol::Tcp, Some(port)) if allowed.ports().any(|captured| captured == port) => {
                return;
            }
            (Protocol::Tcp, Some(port)) => allowed
                .denial(&host, port)
                .unwrap_or(DenialReason::PortNotCaptured),
            _ => DenialReason::Protocol,
        };
        self.ledger
            .add_denial(host.attempt(protocol, port, reason), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_sequence_numbers_are_counted_also_across_the_wraparound() {
        let mut numbers = SequenceNumbers::default();
        for sequence in [0, 1, 4, 4, 3, 5] {
            numbers.add(sequence);
        }
        assert_eq!(numbers.missing(), 2);
        let mut numbers = SequenceNumbers {
            next: u32::MAX,
            missing: 0,
        };
        for sequence in [u32::MAX, 2] {
            numbers.add(sequence);
        }
        assert_eq!(numbers.missing(), 2);
    }
}
