//! Host names in a static program: getaddrinfo(3) kept to what the program itself carries.
//!
//! glibc 2.34 and later have the services `files` and `dns` built in. For any other that
//! nsswitch.conf(5) names (`resolve`, `mymachines`, `mdns4_minimal`) a static program loads the
//! host's module and with it the host's libc, which works only where both are of one version.

use std::ffi::CStr;

/// Looks up host names in /etc/hosts and by DNS, whatever nsswitch.conf(5) says, from now on and
/// for the whole process. `false`: the C library did not take it, and goes by nsswitch.conf.
///
/// systemd-resolved answers DNS too: its address stands in resolv.conf(5).
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
    // SAFETY: both are strings that end in a NUL byte and live for the call, which copies what it
    // keeps. It takes the lock of the switch itself.
    unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) == 0 }
}

#[cfg(not(target_env = "gnu"))]
fn configure(_database: &CStr, _services: &CStr) -> bool {
    // musl reads no nsswitch.conf(5): it knows these two only.
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
