//! Host names in a static program: getaddrinfo(3) without loaded modules.
//!
//! glibc 2.34 and later have the services `files` and `dns` built in. For any other in
//! nsswitch.conf(5) (`resolve`, `mymachines`, `mdns4_minimal`) a static program loads the host's
//! module and libc, which works only with the same libc version.

use std::ffi::CStr;

/// Limits host lookups of the process to /etc/hosts and DNS, regardless of nsswitch.conf(5). Names of
/// systemd-resolved stay available, because it also answers DNS at the address in resolv.conf(5).
/// Returns `false` if the C library refuses.
#[must_use]
pub fn only_files_and_dns() -> bool {
    configure(c"hosts", c"files dns")
}

#[cfg(target_env = "gnu")]
fn configure(database: &CStr, services: &CStr) -> bool {
    unsafe extern "C" {
        /// <nss.h>, glibc 2.2.5.
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // SAFETY: both are NUL-terminated strings that live across the call, which copies what it keeps
    // and takes its own lock.
    unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) == 0 }
}

#[cfg(not(target_env = "gnu"))]
fn configure(_database: &CStr, _services: &CStr) -> bool {
    // musl has no nsswitch.conf(5).
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::ToSocketAddrs as _;

    #[test]
    fn a_name_of_the_hosts_file_is_found() {
        assert!(only_files_and_dns());
        let found = ("localhost", 80).to_socket_addrs().expect("looked up");
        assert!(found.into_iter().any(|address| address.ip().is_loopback()));
    }
}
