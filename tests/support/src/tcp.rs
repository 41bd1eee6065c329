//! TCP sockets of other processes.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, getpeername, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// For each connected TCP socket of a process, whether it sends each piece at once (TCP_NODELAY).
pub fn connections_send_at_once(pid: Pid) -> Vec<bool> {
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("opened");
    let files = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid())).expect("there");
    let numbers = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    // One may be closed meanwhile.
    let copies =
        numbers.filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok());
    let is_connected = |socket: &OwnedFd| {
        let family = sockopt::socket_domain(socket).ok();
        let has_peer = getpeername(socket).is_ok();
        has_peer && [Some(AddressFamily::INET), Some(AddressFamily::INET6)].contains(&family)
    };
    let connected = copies.filter(is_connected);
    connected
        .map(|socket| sockopt::tcp_nodelay(socket).expect("an option"))
        .collect()
}
