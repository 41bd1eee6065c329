//! A long session: thousands of calls, of which many are cancelled at any moment.

use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::host::Host;
use support::belongs_to_tier;
use support::invariants::eventually;

#[test]
fn thousands_of_calls_and_cancellations_leave_nothing_behind() {
    if !belongs_to_tier("long") {
        return;
    }
    let host = Host::new();
    let mut client = Client::start(&host, &[]);
    // Before the command has started, while it starts, and while it runs.
    for delay in (0..20).cycle().take(600) {
        let id = client.begin("execute_command", &json!({"command": "sleep 1000"}));
        std::thread::sleep(Duration::from_millis(delay));
        client.notify("notifications/cancelled", &json!({"requestId": id}));
    }
    eventually("all have ended", || host.list()[0]["commands"] == json!([]));
    for number in 0..2000 {
        let text = format!("seq {number}; echo {number} >&2");
        let result = client.shell(&text);
        assert_eq!(result["stderr"], format!("{number}\n"), "{result}");
    }
    let flood = client.shell("yes | head -c 2000000000");
    assert_eq!(flood["left_out_bytes"], 2_000_000_000 - (32 << 10));
    let descriptors = format!("/proc/{}/fd", client.child.id());
    let descriptors = std::fs::read_dir(descriptors).expect("listed").count();
    assert!(descriptors < 20, "{descriptors} descriptors");
    assert!(client.peak_kib() < 48 << 10, "{} KiB", client.peak_kib());
    let gone = client.close();
    assert_eq!((gone.code, &*gone.stderr), (0, ""));
    host.assert_empty();
}
