//! The first bytes of a connection: the TLS server name and the Host header must name the dialled host.

use super::runs::{Seen, Setting};

/// Runs a script with one allowed host, which the script has as `name`.
fn run(setting: &Setting, number: u8, script: &str) -> (String, Seen) {
    let name = setting.name(number);
    let script = format!("name = {name:?}\n{script}");
    let seen = setting.run(&[&name, "api.openai.com"], &script);
    (name, seen)
}

on_both_captures! {
    /// Case 21, H-04.
    fn another_tls_name_is_denied_before_anything_is_sent_outside(setting) {
        let (name, seen) = run(setting, 70, "
for other in 'api.openai.com', 'evil.example', 'x' + name, name + '.evil.example', name.replace('zone', 'zonf'):
    say(other.replace(name, 'NAME').replace(name.replace('zone', 'zonf'), 'ZONF'), dial(name, 443, hello(other) + b'who\\n'))");
        for line in &seen.said {
            assert!(line.ends_with(": reset"), "{seen:#?}");
        }
        seen.assert_denied(&[&format!("tcp sni-mismatch {name}:443 x5")]);
        assert_eq!(setting.outside.log().packets_to(&setting.public(70)), [""; 0]);
    }

    /// Case 22.
    fn only_a_single_valid_tls_name_is_accepted_in_any_fragmentation(setting) {
        let (name, seen) = run(setting, 71, r"
good = hello(name)
who = b'who\n'
def say_dial(label, *arguments, **more):
    say(label, dial(name, 443, *arguments, **more))
say_dial('plain', good + who)
say_dial('capitals', hello(name.upper()) + who)
say_dial('single bytes', pieces=[bytes([byte]) for byte in good] + [who])
content = good[5:]
say_dial('two records', record(content[:3]) + record(content[3:70]) + record(content[70:]) + who)
say_dial('two records, in pieces', pieces=[record(content[:60]), record(content[60:]), who])
say_dial('none', hello() + who)
say_dial('an address', hello('93.184.216.34') + who)
say_dial('two names', hello(name, 'evil.example') + who)
say_dial('the same twice', hello(name, name) + who)
say_dial('a second extension', hello(name, more=server_name(b'evil.example')) + who)
say_dial('a NUL', hello(name + '\0.evil.example') + who)
say_dial('a dot at the end', hello(name + '.') + who)
say_dial('empty', hello('') + who)
say_dial('space', hello(name + ' ') + who)
say_dial('an empty record', record(b'') + good + who)
say_dial('an alert inside', record(content[:60]) + b'\x15\3\1\0\2\1\0' + record(content[60:]) + who)
say_dial('too long', record(handshake(extension(21, bytes(16380))))[:17000] + who)
say_dial('SSL 2', b'\x80\x2e\1\0\2' + bytes(44))");
        let address = setting.public(71);
        seen.assert_said(&format!("plain: {address} 443
            capitals: {address} 443
            single bytes: {address} 443
            two records: {address} 443
            two records, in pieces: {address} 443
            none: reset
            an address: reset
            two names: reset
            the same twice: reset
            a second extension: reset
            a NUL: reset
            a dot at the end: reset
            empty: reset
            space: reset
            an empty record: reset
            an alert inside: reset
            too long: reset
            SSL 2: reset"));
        let sum = |reason: &str| -> u64 {
            let of = seen.done.report["denials"].as_array().into_iter().flatten();
            of.filter(|denial| denial["reason"] == reason && denial["host"] == *name)
                .filter_map(|denial| denial["count"].as_u64())
                .sum()
        };
        let sums = ["no-sni", "sni-mismatch", "not-tls"].map(sum);
        assert_eq!(sums, [1, 7, 5], "{seen:#?}");
        assert_eq!(setting.outside.log().packets_to(&setting.public(71)).len(), 5);
    }

    /// Case 23: `--strict` denies an encrypted name.
    fn an_encrypted_hello_passes_by_its_outer_name_unless_refused(setting) {
        let name = setting.name(72);
        let script = format!("name = {name:?}
encrypted = extension(0xfe0d, bytes(300))
say('encrypted', dial(name, 443, hello(name, more=encrypted) + b'who\\n'))
say('plain', dial(name, 443, hello(name) + b'who\\n'))");
        let lax = setting.run(&[&name], &script);
        let address = setting.public(72);
        lax.assert_said(&format!("encrypted: {address} 443\nplain: {address} 443"));
        lax.assert_denied(&[]);
        let policy = setting.ground.write("policy.yaml", "egress: {refuse_ech: true}\n");
        let policy = policy.to_str().expect("plain");
        for flags in [&["--policy", policy][..], &["--strict"]] {
            let flags: Vec<&str> = flags.iter().chain(&["--allow-net", &name]).copied().collect();
            let seen = Seen::of(setting.case(&flags, &script).done());
            if flags.contains(&"--strict") && seen.done.outcome() == "refused" {
                // A host that lacks other kernel features refuses every strict run.
                continue;
            }
            seen.assert_said(&format!("encrypted: reset\nplain: {address} 443"));
            seen.assert_denied(&[&format!("tcp ech {name}:443 x1")]);
        }
    }

    /// Case 24.
    fn port_443_denies_other_protocols_and_silence(setting) {
        let (name, seen) = run(setting, 73, r"
say('raw', dial(name, 443, b'who\n'))
say('ssh', dial(name, 443, b'SSH-2.0-OpenSSH_9.2\r\n'))
say('http', dial(name, 443, b'GET / HTTP/1.1\r\nHost: ' + name.encode() + b'\r\n\r\n'))
say('another handshake', dial(name, 443, record(b'\2\0\0\2\3\3')))
say('half of one', dial(name, 443, hello(name)[:40], patience=60))
started = time.monotonic()
say('silence', dial(name, 443, b'', patience=60))
say('which took its time', time.monotonic() - started > 4)");
        seen.assert_said("raw: reset
            ssh: reset
            http: reset
            another handshake: reset
            half of one: reset
            silence: reset
            which took its time: True");
        seen.assert_denied(&[&format!("tcp not-tls {name}:443 x6")]);
        assert_eq!(setting.outside.log().packets_to(&setting.public(73)), [""; 0]);
    }

    /// Case 25.
    fn a_request_that_names_another_host_is_denied(setting) {
        let (name, seen) = run(setting, 74, r"
def request(label, text):
    say(label, dial(name, 80, text.replace('NAME', name).encode('latin-1')).split('\r\n')[0])
end = '\r\nConnection: close\r\n\r\n'
request('the host', 'GET / HTTP/1.1\r\nHost: NAME' + end)
request('with the port', 'GET / HTTP/1.1\r\nhost:NAME:80' + end)
request('an absolute target', 'GET http://NAME/x HTTP/1.1\r\nHost: NAME' + end)
request('another', 'GET / HTTP/1.1\r\nHost: api.openai.com' + end)
request('none', 'GET / HTTP/1.1' + end)
request('old', 'GET /\r\n\r\n')
request('an absolute target of another', 'GET http://evil.example/ HTTP/1.1\r\nHost: NAME' + end)
request('an absolute target, another host', 'GET http://NAME/ HTTP/1.1\r\nHost: evil.example' + end)
request('two', 'GET / HTTP/1.1\r\nHost: NAME\r\nHost: evil.example' + end)
request('the same twice', 'GET / HTTP/1.1\r\nHost: NAME\r\nHost: NAME' + end)
request('a bare newline', 'GET / HTTP/1.1\nHost: evil.example\n\r\nHost: NAME' + end)
request('a return inside', 'GET / HTTP/1.1\r\nHost: NAME\rX: y' + end)
request('a folded line', 'GET / HTTP/1.1\r\nHost: NAME\r\n evil.example' + end)
request('space before the colon', 'GET / HTTP/1.1\r\nHost : NAME' + end)
request('a NUL', 'GET / HTTP/1.1\r\nHost: NAME\0.evil.example' + end)
request('a user', 'GET / HTTP/1.1\r\nHost: NAME@evil.example' + end)
request('two lengths', 'POST / HTTP/1.1\r\nHost: NAME\r\nContent-Length: 1\r\nTransfer-Encoding: chunked' + end)
request('HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
request('TLS', hello(name).decode('latin-1'))
request('a head without an end', 'GET / HTTP/1.1\r\n' + 'X: y\r\n' * 4000)");
        let passes = ["the host", "with the port", "an absolute target"];
        for line in &seen.said {
            let (label, answer) = line.split_once(": ").expect("two parts");
            let expected = if passes.contains(&label) { "HTTP/1.1 200 OK" } else { "reset" };
            assert_eq!(answer, expected, "{label}: {seen:#?}");
        }
        assert_eq!(seen.said.len(), 20);
        seen.assert_denied(&[&format!("tcp host-mismatch {name}:80 x17")]);
        assert_eq!(setting.outside.log().packets_to(&setting.public(74)).len(), 3);
    }

    /// H-11: the second request after a redirect is a separate connection.
    fn a_redirect_to_a_host_that_is_not_allowed_is_denied_there(setting) {
        let (name, seen) = run(setting, 75, include_str!("../bodies/egress/a_redirect_to_a_host_that_is_not_allowed_is_denied_there.py"));
        seen.assert_said(&format!("allowed: {}\na name: no such name\nan address: reset", setting.public(75)));
        seen.assert_denied(&[
            &format!("dns name-not-allowed {}.evil.example x2", setting.unique),
            "tcp ip-literal 93.184.216.76:80 x1",
        ]);
        let log = setting.outside.log();
        assert_eq!(log.packets_to(&setting.public(76)), [""; 0]);
        assert_eq!(log.packets_to(&setting.public(75)).len(), 4, "{name}");
    }
}
