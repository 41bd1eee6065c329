//! Floods: limits hold, counts stay exact, and the supervisor's memory stays small.

use serde_json::Value;

use support::tier_includes;

fn count_of(report: &Value, is_meant: impl Fn(&Value) -> bool) -> u64 {
    let list = report["denials"].as_array().into_iter().flatten();
    list.filter(|denial| is_meant(denial))
        .filter_map(|denial| denial["count"].as_u64())
        .sum()
}

/// The number after the name of what the body said.
fn number(said: &str) -> u64 {
    let number = said.rsplit(": ").next().map(str::parse);
    number.expect("a value").expect("a number")
}

on_both_captures! {
    /// Case 35: denials of each reason are all counted.
    fn a_flood_of_denials_is_counted_to_the_last_one(setting) {
        let each: u64 = if tier_includes("long") { 10_000 } else { 2_000 };
        let seen = setting.run(&["api.openai.com", "*.anthropic.com"], &format!("
each = {each}
def connections(port):
    for _ in range(each // 4):
        with socket.socket() as connection:
            try:
                connection.connect(('8.8.8.8', port))
                connection.recv(1)
            except OSError:
                pass
threads = [threading.Thread(target=connections, args=(443,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with socket.create_connection(('198.18.0.1', 53), 20) as asker:
    stream = asker.makefile('rb')
    for number in range(each):
        message = question(f'n{{number % 4}}.evil.example')
        asker.sendall(struct.pack('!H', len(message)) + message)
        stream.read(struct.unpack('!H', stream.read(2))[0])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(each):
        try:
            sender.sendto(b'datagram', ('8.8.8.8', 123))
        except OSError:
            pass
time.sleep(0.2)
say('still', dial('api.openai.com', 443, hello('api.openai.com') + b'who\\n'))"));
        seen.assert_said("still: 93.184.216.34 443");
        let report = &seen.done.report;
        assert_eq!(count_of(report, |denial| denial["reason"] == "ip-literal"), each, "{seen:#?}");
        assert_eq!(count_of(report, |denial| denial["reason"] == "name-not-allowed"), each, "{seen:#?}");
        let datagrams = count_of(report, |denial| denial["reason"] == "proto");
        let lost = report["egress"]["lost_datagrams"].as_u64().expect("a number");
        assert_eq!(datagrams + lost, each, "{seen:#?}");
        assert_eq!(report["egress"]["lost_questions"], 0);
        assert_eq!(seen.denials.len(), 6, "{seen:#?}");
        assert_eq!(setting.outside.log().packets_to("8.8.8.8"), [""; 0]);
    }

    /// Case 35: each DNS query over UDP is answered, denied, or counted as lost.
    fn a_flood_of_dns_queries_is_counted_and_lost_ones_are_reported(setting) {
        let each: u64 = 4_000;
        let seen = setting.run(&["api.openai.com"], &format!("
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
    asker.connect(('198.18.0.1', 53))
    message = question('evil.example')
    for number in range({each}):
        try:
            asker.send(message)
        except OSError:
            pass
# Answered after all others, or lost like them.
for again in range(600):
    if (last := ask('api.openai.com', patience=0.5)[:2]) == 'ok':
        break
say('still', last)
say('again', again)"));
        assert_eq!(seen.said[0], "still: ok", "{seen:#?}");
        let again = number(&seen.said[1]);
        let report = &seen.done.report;
        let denied = count_of(report, |denial| denial["protocol"] == "dns");
        let lost = report["egress"]["lost_questions"].as_u64().expect("a number");
        assert!((each..=each + again).contains(&(denied + lost)), "{seen:#?}");
    }

    /// More distinct denials than the report lists.
    fn kinds_of_denials_beyond_the_cap_are_only_counted(setting) {
        let seen = setting.run(&["api.openai.com"], "
with socket.create_connection(('198.18.0.1', 53), 20) as asker:
    stream = asker.makefile('rb')
    for number in range(1500):
        message = question(f'n{number}.evil.example')
        asker.sendall(struct.pack('!H', len(message)) + message)
        stream.read(struct.unpack('!H', stream.read(2))[0])");
        assert_eq!(seen.denials.len(), 1_000);
        assert_eq!(seen.done.report["egress"]["denials_beyond"], 500, "{:#?}", seen.done.stderr);
        assert_eq!(seen.done.stderr.lines().count(), 6, "{}", seen.done.stderr);
    }

    /// Case 36, H-12.
    fn of_two_thousand_connections_the_first_are_served_and_the_rest_denied(setting) {
        let name = setting.name(96);
        let seen = setting.run(&[&format!("{name}:9000")], &format!("
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
say('room', resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 1024)
total = min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50)
address = resolve({name:?})
connections, denied = [], 0
for _ in range(total):
    connection = socket.socket()
    connection.settimeout(60)
    try:
        connection.connect((address, 9000))
        connection.sendall(b'echo\\n')
    except OSError:
        pass
    connections.append(connection)
alive = []
for connection in connections:
    try:
        connection.sendall(b'x' * 100)
        if connection.recv(100, socket.MSG_WAITALL) == b'x' * 100:
            alive.append(connection)
    except OSError:
        pass
say('alive', len(alive))
say('denied', total - len(alive))
for connection in connections:
    connection.close()
# They end one after the other: a guard against a hang, no claim of how fast.
for again in range(600):
    time.sleep(0.1)
    if (last := dial({name:?}, 9000)) != 'reset':
        break
say('afterwards', last)
say('again', again)"));
        assert_eq!(seen.said[0], "room: True");
        assert_eq!(seen.said[1], "alive: 256", "{seen:#?}");
        assert_eq!(seen.said[3], format!("afterwards: {} 9000", setting.public(96)), "{seen:#?}");
        let denied = number(&seen.said[2]);
        let counted = count_of(&seen.done.report, |denial| denial["reason"] == "limit");
        // The last attempts may have reached the limit too.
        let again = number(&seen.said[4]);
        assert!((denied..=denied + again).contains(&counted), "{seen:#?}");
        assert_eq!(seen.denials.len(), 1);
    }

    /// H-12: endless request heads and TLS hellos are ended, and other connections are served meanwhile.
    fn silent_connections_are_closed_and_delay_no_others(setting) {
        let name = setting.name(97);
        let seen = setting.run(&[&name], &format!("
name = {name:?}
slow = []
for number in range(60):
    connection = socket.create_connection((name, 80 if number % 2 else 443), 60)
    connection.sendall(b'GET / HTTP/1.1\\r\\nX: ' if number % 2 else hello(name)[:30])
    slow.append(connection)
say('others', dial(name, 443, hello(name) + b'who\\n'))
ends = set()
for connection in slow:
    try:
        ends.add(connection.recv(9))
    except OSError as error:
        ends.add(told(error))
say('slow ones', ends)"));
        seen.assert_said(&format!("others: {} 443\nslow ones: {{'reset'}}", setting.public(97)));
        seen.assert_denied(&[
            &format!("tcp host-mismatch {name}:80 x30"),
            &format!("tcp not-tls {name}:443 x30"),
        ]);
        assert_eq!(setting.outside.log().packets_to(&setting.public(97)).len(), 1);
    }
}
