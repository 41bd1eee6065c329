//! Ports for servers that cannot choose one themselves.

use std::net::{Ipv4Addr, TcpListener};

use rustix::rand::{GetRandomFlags, getrandom};

/// Below those that the kernel gives to connections and to listeners of port 0 (`ip_local_port_range`): one of those
/// may be taken before the server listens.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port at which nothing listens.
pub fn free_port(address: Ipv4Addr) -> u16 {
    loop {
        let mut bytes = [0; 2];
        getrandom(&mut bytes, GetRandomFlags::empty()).expect("random numbers");
        let span = PORTS.end - PORTS.start;
        let port = PORTS.start + u16::from_ne_bytes(bytes) % span;
        if TcpListener::bind((address, port)).is_ok() {
            return port;
        }
    }
}
