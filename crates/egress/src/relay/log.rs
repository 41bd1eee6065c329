//! Packets that no listener receives, recorded as denials.

use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::denials::{Attempt, Protocol};
use crate::observed::{self, Observed};
use crate::relay::Relay;
use crate::relay::judge::Wanted;
use crate::relay::shared::Shared;
use spec::denial_reason::DenialReason;
use spec::network::Capture;

/// Reads of one turn.
const READS_A_TURN: usize = 512;
/// Larger than any message: the kernel truncates packets to 128 bytes.
const READ_BYTES: usize = 64 << 10;
const DNS_PORT: u16 = 53;

/// Tracks the sequence numbers of the messages.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    next: u32,
    missing: u64,
}

impl Numbers {
    fn note(&mut self, sequence: u32) {
        let gap = sequence.wrapping_sub(self.next);
        // A gap of more than half the number space means that the number is older.
        if gap <= u32::MAX / 2 {
            self.missing += u64::from(gap);
            self.next = sequence.wrapping_add(1);
        }
    }

    /// How many messages are missing, as far as sequence numbers show.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }
}

impl Relay {
    /// Returns whether more messages may be available.
    pub(super) fn read_log(&mut self, now: Instant) -> bool {
        let Some(log) = &self.sockets.log else {
            return false;
        };
        let mut scratch = std::mem::take(&mut self.shared.buffers.scratch);
        let mut more = true;
        for _ in 0..READS_A_TURN {
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
                    for logged in observed::logged(bytes) {
                        if let Some(sequence) = logged.sequence {
                            self.numbers.note(sequence);
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
        let Some(Observed {
            protocol,
            destination,
            port,
        }) = observed::packet(packet)
        else {
            return;
        };
        if destination.is_loopback() {
            return;
        }
        let wanted = Wanted::at(destination, &self.names);
        let allowed = &self.settings.allowed;
        let reason = match (protocol, port) {
            (Protocol::Tcp, _) if !is_tap => return,
            (Protocol::Tcp, Some(DNS_PORT)) | (Protocol::Udp, Some(DNS_PORT)) => return,
            (Protocol::Tcp, Some(port)) if allowed.ports().any(|captured| captured == port) => {
                return;
            }
            (Protocol::Tcp, Some(port)) => wanted
                .refusal(port, allowed)
                .unwrap_or(DenialReason::PortNotCaptured),
            _ => DenialReason::Protocol,
        };
        let (host, address) = match wanted {
            Wanted::Name(name) => (Some(name.to_string()), None),
            Wanted::Address(address) => (None, Some(address)),
        };
        let attempt = Attempt {
            protocol,
            host,
            address,
            port,
            reason,
        };
        self.deny(attempt, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_are_counted_also_over_the_end_of_all_numbers() {
        let mut numbers = Numbers::default();
        for sequence in [0, 1, 4, 4, 3, 5] {
            numbers.note(sequence);
        }
        assert_eq!(numbers.missing(), 2);
        let mut numbers = Numbers {
            next: u32::MAX,
            missing: 0,
        };
        for sequence in [u32::MAX, 2] {
            numbers.note(sequence);
        }
        assert_eq!(numbers.missing(), 2);
    }
}
