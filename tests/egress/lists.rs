//! The egress list: what allows a host, and which of the lists apply.

use super::runs::{Capture, PRELUDE, Seen, Setting};

/// Tries everything, and prints how each attempt failed.
const ATTEMPTS: &str = "
def attempt(label, family, kind, to):
    with socket.socket(family, kind) as sender:
        sender.settimeout(20)
        try:
            sender.connect(to)
            sender.send(b'who\\n')
            say(label, 'sent', sender.recv(99))
        except OSError as error:
            say(label, errno.errorcode[error.errno])
attempt('tcp', socket.AF_INET, socket.SOCK_STREAM, ('93.184.216.34', 443))
attempt('tcp6', socket.AF_INET6, socket.SOCK_STREAM, ('2606:2800:220:1::34', 443))
attempt('udp', socket.AF_INET, socket.SOCK_DGRAM, ('8.8.8.8', 53))
attempt('the name server', socket.AF_INET, socket.SOCK_DGRAM, ('198.18.0.1', 53))
attempt('the proxy', socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', 3))
attempt('the host', socket.AF_INET, socket.SOCK_STREAM, ('198.51.100.1', 7777))
say('name', resolve('api.openai.com') in ('try again', 'no such name'))
listener = socket.create_server(('127.0.0.1', 8080))
with socket.create_connection(('127.0.0.1', 8080)) as mine:
    listener.accept()[0].sendall(b'loopback')
    say('its own', mine.recv(9))
say('devices', *sorted(name for _, name in socket.if_nameindex()))
";
const NOTHING: &str = "tcp: ENETUNREACH
    tcp6: ENETUNREACH
    udp: ENETUNREACH
    the name server: ENETUNREACH
    the proxy: ECONNREFUSED
    the host: ENETUNREACH
    name: True
    its own: b'loopback'
    devices: lo";

/// `runner exec FLAGS BUNDLE` in the test network, with a manifest and a Python body.
fn exec(setting: &Setting, manifest: &str, flags: &[&str], script: &str) -> support::Done {
    let body = format!(
        "#!/usr/bin/python3\n{PRELUDE}\nunique = {:?}\n{script}",
        setting.unique
    );
    let bundle = setting
        .ground
        .bundle(&[("manifest.yaml", manifest), ("body.py", &body)]);
    let words: Vec<&str> = ["exec"]
        .iter()
        .chain(flags)
        .chain(&[bundle.to_str().expect("plain")])
        .copied()
        .collect();
    setting
        .ground
        .command(&words)
        .inside(setting.outside)
        .done()
}

/// Case 40, H-01 (CVE-2025-66479): a missing or empty list allows no host, in every notation.
#[test]
fn a_missing_block_or_an_empty_list_allows_no_host() {
    Setting::with(Capture::Tproxy, |setting| {
        let spellings = [
            "",
            "network: {}",
            "network: {egress: []}",
            "network: {egress: }",
            "network:",
            "sandbox: {provider: local, config: {}}",
            "sandbox: {provider: local, config: {}, network: {}}",
            "sandbox: {provider: local, config: {}, network: {egress: []}}",
        ];
        let mut ran = 0;
        for spelling in spellings {
            let manifest = format!("run: body.py\n{spelling}\n");
            let done = exec(setting, &manifest, &["--grant", "all"], ATTEMPTS);
            if done.outcome() == "refused" {
                // A missing list, for a manifest that may not state one.
                assert_eq!(done.text(), "", "{spelling}: {done:#?}");
                continue;
            }
            ran += 1;
            done.assert_exited(0);
            let seen = Seen::of(done);
            seen.assert_said(NOTHING).assert_denied(&[]);
            let capture = &seen.done.report["egress"]["capture"];
            assert!(
                capture == "none" || capture.is_null(),
                "{spelling}: {capture}"
            );
        }
        assert!(6 <= ran, "{ran} of the spellings are manifests");
        let seen = Seen::of(setting.case(&[], ATTEMPTS).done());
        seen.assert_said(NOTHING).assert_denied(&[]);
    });
}

/// Case 40: the host policy removes every requested entry.
#[test]
fn a_list_that_the_host_policy_empties_allows_no_host() {
    Setting::with(Capture::Tproxy, |setting| {
        for policy in [
            "egress: {allow: []}\n",
            "egress: {allow: [other.example]}\n",
        ] {
            let policy = setting.ground.write("policy.yaml", policy);
            let policy = policy.to_str().expect("plain");
            let flags = ["--policy", policy, "--allow-net", "api.openai.com"];
            let done = setting.case(&flags, ATTEMPTS).done();
            if done.outcome() == "refused" {
                assert_eq!(done.text(), "");
                continue;
            }
            Seen::of(done).assert_said(NOTHING).assert_denied(&[]);
        }
    });
}

on_both_captures! {
    /// Case 40: `--report-denials` reports denials, and still no host is reached.
    fn an_empty_list_denies_every_host_and_reports_denials_on_request(setting) {
        let seen = setting.run_with(&["--report-denials"], "
say('name', resolve(unique + '.evil.example'))
say('address', dial('93.184.216.110', 443))
say('the proxy', dial('127.0.0.1', 3, b'CONNECT api.openai.com:443 HTTP/1.1\\r\\nHost: api.openai.com:443\\r\\n\\r\\n').split('\\r\\n')[0][:12])");
        seen.assert_said("name: no such name\naddress: reset\nthe proxy: HTTP/1.1 403");
        seen.assert_denied(&[
            &format!("dns name-not-allowed {}.evil.example x2", setting.unique),
            "tcp ip-literal 93.184.216.110:443 x1",
            "tcp name-not-allowed api.openai.com:443 x1",
        ]);
        assert_eq!(setting.outside.log().packets_to("93.184.216.110"), [""; 0]);
    }

    /// The effective list: entries of manifest and flags, restricted by the host policy.
    fn the_allowed_list_is_the_granted_one_restricted_by_the_host_policy(setting) {
        let unique = &setting.unique;
        let name = |number: u8| format!("v4-93-184-216-{number}.{unique}.zone.example");
        let (asked, flagged, beyond) = (name(111), name(112), name(113));
        let policy = format!("egress: {{allow: ['{asked}:9000', '{flagged}', other.example]}}\n");
        let policy = setting.ground.write("policy.yaml", policy);
        let manifest = format!("run: body.py\nnetwork: {{egress: ['{asked}', '{beyond}']}}\n");
        let flagged_port = format!("{flagged}:9000");
        let flags = [
            "--policy", policy.to_str().expect("plain"), "--grant", "egress",
            "--allow-net", &flagged_port, "--egress-capture", setting.capture.word(),
        ];
        let done = exec(setting, &manifest, &flags, &format!("
say('asked', dial({asked:?}, 9000), dial({asked:?}, 443, hello({asked:?})))
say('flagged', dial({flagged:?}, 9000))
say('beyond', dial({beyond:?}, 9000))"));
        let seen = Seen::of(done);
        seen.assert_said("asked: 93.184.216.111 9000 reset
            flagged: 93.184.216.112 9000
            beyond: no such name");
        seen.assert_denied(&[
            &format!("dns name-not-allowed {beyond} x2"),
            &format!("tcp port-not-allowed {asked}:443 x1"),
        ]);
    }

    /// A manifest with entries is refused without a grant, before a network is created.
    fn a_list_without_a_grant_is_refused(setting) {
        let manifest = "run: body.py\nsandbox: {provider: local, config: {}, network: {egress: [api.openai.com]}}\n";
        let done = exec(setting, manifest, &[], "say('ran')");
        done.assert_error("refused", "grant_required");
        let capture = ["--grant", "egress", "--egress-capture", setting.capture.word()];
        let done = exec(setting, manifest, &capture, "
say('granted', dial('api.openai.com', 443, hello('api.openai.com') + b'who\\n'))");
        Seen::of(done).assert_said("granted: 93.184.216.34 443");
    }

    /// H-17: the list is read at the start of the run; later changes of the file have no effect.
    fn a_policy_that_changes_meanwhile_changes_nothing_for_a_run_that_has_begun(setting) {
        let (allowed, other) = (setting.name(116), setting.name(117));
        let policy = |list: &str| {
            setting.ground.write("policy.yaml", format!("egress: {{allow: [{list}]}}\n"))
        };
        let file = policy(&format!("'{allowed}:9000', '{other}:9000'"));
        let talk = setting.ground.path("talk");
        std::fs::create_dir(&talk).expect("made");
        let place = talk.to_str().expect("plain");
        let entry = format!("{allowed}:9000");
        let flags = ["--policy", file.to_str().expect("plain"), "--allow-net", &entry, "--rw", place];
        let mut running = setting.case(&flags, &format!("
say('before', dial({allowed:?}, 9000), dial({other:?}, 9000))
open({place:?} + '/started', 'w').close()
while not os.path.exists({place:?} + '/changed'):
    time.sleep(0.02)
say('after', dial({allowed:?}, 9000), dial({other:?}, 9000))")).start();
        running.until("the body has tried", || talk.join("started").exists());
        policy(&format!("'{other}:9000'"));
        std::fs::write(talk.join("changed"), "").expect("written");
        let address = setting.public(116);
        Seen::of(running.done()).assert_said(&format!("before: {address} 9000 no such name
            after: {address} 9000 no such name"));
        let done = setting.case(&flags, &format!("say('next', dial({allowed:?}, 9000))")).done();
        assert!(!done.text().contains(&address), "the file is read for the next run: {done:#?}");
    }

    /// Case 41, H-17: two concurrent runs share nothing, and their lists do not change.
    fn two_runs_at_once_have_their_own_lists(setting) {
        let name = |number: u8| format!("v4-93-184-216-{number}.{}.zone.example", setting.unique);
        let names = [name(114), name(115)];
        let script = format!("
for _ in range(15):
    answers = [dial(name, 9000) for name in {names:?}]
    time.sleep(0.05)
say('last', *answers)
say('addresses', *[ask(name)[:2] for name in {names:?}])");
        let rules = names.each_ref().map(|name| format!("{name}:9000"));
        let grounds = [support::Ground::new(), support::Ground::new()];
        let program = setting.program(&script);
        let running: Vec<_> = (0..2)
            .map(|at| {
                let words = ["run", "--egress-capture", setting.capture.word(), "--allow-net",
                    &rules[at], "--", support::network::PYTHON, "-c", &program];
                grounds[at].command(&words).inside(setting.outside).start()
            })
            .collect();
        let seen: Vec<Seen> = running.into_iter().map(|running| Seen::of(running.done())).collect();
        seen[0].assert_said("last: 93.184.216.114 9000 no such name\naddresses: ok no");
        seen[1].assert_said("last: no such name 93.184.216.115 9000\naddresses: no ok");
        for (at, seen) in seen.iter().enumerate() {
            let other = &names[1 - at];
            seen.assert_denied(&[&format!("dns name-not-allowed {other} x31")]);
        }
    }
}
