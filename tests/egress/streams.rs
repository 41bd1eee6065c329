//! Data of allowed connections arrives complete, in both directions.

use std::time::Instant;

use rustix::process::Signal;

use super::runs::Seen;
use support::belongs_to_tier;
use support::invariants::living;

/// Functions for the bodies of this module.
const STREAMS: &str = include_str!("../bodies/egress/streams_streams.py");

fn script(name: &str, text: &str) -> String {
    format!("name = {name:?}\n{STREAMS}\n{text}")
}

on_both_captures! {
    /// Case 37: the bytes are counted and compared.
    fn every_byte_arrives_in_both_directions(setting) {
        let name = format!("v4-93-184-216-90.{}.zone.example", setting.unique);
        // 1 GiB in each direction in the longest tier.
        let mebibytes: u64 = if belongs_to_tier("soak") { 1024 } else { 48 };
        let seen = setting.run(&[&format!("{name}:9000")], &script(&name, &format!("
count = {mebibytes} << 20
up = open_talk('count')
give(up, count)
say('up', up.makefile().read().split() == [str(count), digest(count)])
say('down', take(open_talk(f'give {{count}}')) == (count, digest(count)))
both = open_talk(f'both {{count}}')
giver = threading.Thread(target=give, args=(both, count))
giver.start()
down = take(both, count)
giver.join()
say('both', down == (count, digest(count)), both.makefile().read().split() == [str(count), digest(count)])")));
        seen.assert_said("up: True\ndown: True\nboth: True True");
        seen.assert_denied(&[]);
        let host = &seen.done.report["egress"]["hosts"][0];
        assert_eq!(host["host"], *name, "{host}");
        assert_eq!(host["connections"], 3, "{host}");
        let count = mebibytes << 20;
        let (sent, received) = (host["sent_bytes"].as_u64(), host["received_bytes"].as_u64());
        let talk = 6 + 6 + u64::try_from(count.to_string().len()).expect("short") * 2 + 10;
        assert!(sent.is_some_and(|sent| 2 * count < sent && sent <= 2 * count + talk), "{host}");
        assert!(received.is_some_and(|got| 2 * count < got && got < 2 * count + 400), "{host}");
    }

    /// H-12: each direction of a connection may end on its own (case 37).
    fn half_of_a_connection_ends_without_the_other(setting) {
        let name = format!("v4-93-184-216-91.{}.zone.example", setting.unique);
        let seen = setting.run(&[&format!("{name}:9000")], &script(&name, "
closes = open_talk('close-half')
say('ended', closes.recv(9))
time.sleep(0.2)
for _ in range(20):
    closes.sendall(b'more ')
    time.sleep(0.01)
closes.close()
mine = open_talk('count')
mine.shutdown(socket.SHUT_WR)
say('mine', mine.makefile().read().split()[0])"));
        seen.assert_said("ended: b''\nmine: 0");
        let rest = |log: &support::network::Log| {
            let mut of = log.of_kind("rest").filter(|event| event["to"] == "93.184.216.91");
            of.any(|event| event["rest"][0] == 100)
        };
        setting.outside.until("what came after the other end", rest);
    }

    /// Case 37: a reset by one side resets the other.
    fn a_reset_is_passed_on_in_both_directions(setting) {
        let name = format!("v4-93-184-216-92.{}.zone.example", setting.unique);
        let seen = setting.run(&[&format!("{name}:9000")], &script(&name, "
resets = open_talk('reset')
try:
    say('theirs', resets.recv(9))
except OSError as error:
    say('theirs', told(error))
held = open_talk('hold ' + unique)
say('held', held.recv(9))
held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
held.close()"));
        seen.assert_said("theirs: reset\nheld: b'held\\n'");
        let unique = setting.unique.clone();
        let held = move |log: &support::network::Log| {
            let mut held = log.of_kind("held").filter(|event| event["words"][1] == *unique);
            held.any(|event| event["ended"] == "ConnectionResetError")
        };
        setting.outside.until("the reset", held);
    }

    /// Case 37: a reader that does not read delays no other connection, and no data is lost or
    /// buffered without limit. Invariant 10 checks the memory of the supervisor.
    fn a_slow_reader_delays_no_other_connection(setting) {
        let name = format!("v4-93-184-216-93.{}.zone.example", setting.unique);
        let seen = setting.run(&[&format!("{name}:9000")], &script(&name, "
count = 8 << 20
slow = [open_talk(f'give {count}') for _ in range(30)]
time.sleep(0.3)
say('another', dial(name, 9000))
say('its bytes', take(open_talk(f'give {count}')) == (count, digest(count)))
say('slow ones', {take(connection) == (count, digest(count)) for connection in slow})
drips = open_talk('drip 8 0.1')
say('a stream of events', drips.makefile().read().split())"));
        seen.assert_said("another: 93.184.216.93 9000
            its bytes: True
            slow ones: {True}
            a stream of events: ['drop', 'drop', 'drop', 'drop', 'drop', 'drop', 'drop', 'drop']");
        seen.assert_denied(&[]);
    }

    /// Data that the body sent before its end is forwarded after it.
    fn what_a_body_sent_last_arrives_after_its_end(setting) {
        let name = format!("v4-93-184-216-94.{}.zone.example", setting.unique);
        let seen = setting.run(&[&format!("{name}:9000")], &script(&name, "
last = open_talk('close-half')
last.recv(9)
last.sendall(block * 16)
os._exit(0)"));
        seen.assert_said("");
        setting.outside.until("everything", |log| {
            let mut of = log.of_kind("rest").filter(|event| event["to"] == "93.184.216.94");
            of.any(|event| event["rest"][0] == 16 << 16)
        });
    }

    /// Case 38: an unreachable host is not a denial.
    fn an_allowed_host_that_is_down_is_unreachable_and_not_denied(setting) {
        let seen = setting.run(&["down.example.com:9001", "*.example.com:9000", "*.zone.example:9000"], include_str!("../bodies/egress/an_allowed_host_that_is_down_is_unreachable_and_not_denied.py"));
        seen.assert_said("down: reset reset\nnowhere: reset\nsilent: reset\nmute: reset");
        seen.assert_denied(&[]);
        let list = seen.done.report["egress"]["unreachable"].as_array().cloned();
        let mut shown: Vec<String> = list
            .unwrap_or_default()
            .iter()
            .map(|entry| {
                let [host, port, cause, count] = ["host", "port", "cause", "count"].map(|key| &entry[key]);
                format!("{host}:{port} {cause} x{count}")
            })
            .collect();
        shown.sort();
        assert_eq!(shown, [
            "\"down.example.com\":9001 \"refused\" x2",
            "\"mute.zone.example\":9000 \"no-name-server\" x1",
            "\"nowhere.zone.example\":9000 \"no-address\" x1",
            "\"silent.example.com\":9000 \"timed-out\" x1",
        ]);
        assert!(!seen.done.stderr.contains("denied"), "{}", seen.done.stderr);
    }

    /// Case 39: without its supervisor a body loses its network and then ends.
    fn the_network_is_gone_at_once_with_a_killed_supervisor(setting) {
        let name = format!("v4-93-184-216-95.{}.zone.example", setting.unique);
        let text = script(&name, "
held = open_talk('hold ' + unique)
held.recv(9)
while True:
    time.sleep(60)");
        let allowed = format!("{name}:9000");
        let runtime = setting.ground.path("runtime");
        let case = setting.case(&["--allow-net", &allowed], &text);
        let mut case = case.without("I4").without("I5").without("I8");
        case.command.env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime);
        let running = case.start();
        let of_this_run = |kind: &'static str| {
            move |log: &support::network::Log| {
                log.of_kind(kind).any(|event| event["words"][1] == *setting.unique)
            }
        };
        setting.outside.until("the connection", of_this_run("holds"));
        running.signal(Signal::KILL);
        let killed = Instant::now();
        let done = running.done();
        assert_eq!(done.code, 137);
        setting.outside.until("its end", of_this_run("held"));
        // A limit for hangs: the server must see the end of the connection before its own timeout.
        assert!(killed.elapsed().as_secs() < 60);
        let seen = Seen::of(done);
        assert_eq!(seen.said, [""; 0]);
        assert!(living(setting.ground.marker()).is_empty());
        // The next run removes the leftovers of the killed one.
        let mut next = setting.case(&["--allow-net", &allowed], "say('next')");
        next.command.env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime);
        Seen::of(next.done()).assert_said("next:");
    }
}
