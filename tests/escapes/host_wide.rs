//! Resources and programs that the whole host shares, which a body could use up or start.

use super::attempts::{assert_lines, attempt_with};
use support::Ground;

const HOST_WIDE: &str = include_str!("../bodies/escapes/host_wide.c");

/// B-53, B-66, C-42
#[test]
fn a_body_starts_no_program_of_the_host_and_takes_no_share_that_all_have() {
    let ground = Ground::new();
    let lent = ground.write("lent", "text");
    let lent = lent.to_str().expect("plain");
    for policy in ["default", "strict"] {
        let flags = [&format!("--syscalls={policy}"), "--ro", lent];
        let done = attempt_with(&ground, &flags, "host-wide", HOST_WIDE, &[lent]);
        assert_lines(
            &done,
            "lower the core limit ok
            lower it by a high pointer ok
            load a line discipline EPERM
            load the bridge EPERM
            load VLANs EPERM
            attach a socket filter EPERM
            start TLS in the kernel EPERM
            receive IPsec EPERM
            take a lease EINVAL
            map huge pages ENOMEM
            make a file of huge pages ENOMEM
            set up asynchronous I/O ENOSYS
            have more than 64 terminals ENOSPC
            list the host's disks ENOENT",
        );
    }
}
