//! The compatibility proxy on the loopback of the sandbox enforces the same list.

use super::runs::{Seen, Setting};

/// Functions for the bodies of this module.
const PROXY: &str = r"
def proxied(text, host='127.0.0.1', more=b'', patience=30):
    '''The first line of the answer, and what comes after its head.'''
    try:
        with socket.create_connection((host, 3), patience) as connection:
            try:
                connection.sendall(text.replace('NAME', name).encode('latin-1') if isinstance(text, str) else text)
            except (BrokenPipeError, ConnectionResetError):
                pass  # Who is refused early may have been told so by then.
            answer = b''
            while b'\r\n\r\n' not in answer:
                piece = connection.recv(65536)
                if not piece:
                    break
                answer += piece
            head, _, rest = answer.partition(b'\r\n\r\n')
            if more:
                connection.sendall(more)
            if b' 200' in head.split(b'\r\n')[0]:
                rest += receive(connection)
                return '200 ' + rest.decode('latin-1').strip()
            return head.decode('latin-1').split('\r\n')[0].removeprefix('HTTP/1.1 ')[:3]
    except OSError as error:
        return told(error)
def connect(to, more=b'who\n', host='127.0.0.1'):
    return proxied(f'CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n', host, more)
def socks(kind, address, port, more=b'who\n', command=1, methods=b'\1\0', version=5):
    try:
        with socket.create_connection(('127.0.0.1', 3), 30) as connection:
            connection.sendall(bytes([version]) + methods)
            method = connection.recv(2, socket.MSG_WAITALL)
            if method != b'\5\0':
                return f'method {method!r}'
            connection.sendall(bytes([5, command, 0, kind]) + address + struct.pack('!H', port))
            head = connection.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return 'closed'
            if head[1]:
                return f'code {head[1]}'
            connection.recv({1: 6, 4: 18}[head[3]], socket.MSG_WAITALL)
            connection.sendall(more)
            return receive(connection).decode('latin-1').strip()
    except OSError as error:
        return told(error)
def socks_name(host, port, **more):
    host = host if isinstance(host, bytes) else host.encode()
    return socks(3, bytes([len(host)]) + host, port, **more)
";

fn run(setting: &Setting, number: u8, ports: &[u16], script: &str) -> (String, Seen) {
    let name = setting.name(number);
    let rules: Vec<String> = ports.iter().map(|port| format!("{name}:{port}")).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let seen = setting.run(&rules, &format!("name = {name:?}\n{PROXY}\n{script}"));
    (name, seen)
}

on_both_captures! {
    /// Cases 42 and 21, H-04.
    fn a_tunnel_leads_to_allowed_hosts_and_is_judged_like_a_connection(setting) {
        let (name, seen) = run(setting, 120, &[80, 443, 9000, 9001], r"
say('tunnel', connect(name + ':9000'), '/', connect(name + ':9000', host='::1'))
say('capitals', connect(name.upper() + ':9000'))
say('tls', connect(name + ':443', hello(name) + b'who\n'))
say('another tls name', connect(name + ':443', hello('evil.example') + b'who\n'))
say('no tls', connect(name + ':443', b'who\n'))
request = 'GET /x HTTP/1.1\r\nHost: NAME\r\nConnection: close\r\n\r\n'
say('http', connect(name + ':80', request.replace('NAME', name).encode())[:19])
say('another host', connect(name + ':80', request.replace('NAME', 'evil.example').encode()))
say('another port', connect(name + ':22'))
say('nobody there', connect(name + ':9001'))
say('another name', connect(unique + '.evil.example:443'))
say('an address', connect('93.184.216.120:9000'), connect('[2606:2800:220:1::34]:443'), connect('10.1.2.3:7777'))
say('loopback', connect('localhost:7777'), connect('127.0.0.1:7777'), connect('[::1]:7777'))");
        seen.assert_said(&"tunnel: 200 ADDRESS 9000 / 200 ADDRESS 9000
            capitals: 200 ADDRESS 9000
            tls: 200 ADDRESS 443
            another tls name: reset
            no tls: reset
            http: 200 HTTP/1.1 200 OK
            another host: reset
            another port: 403
            nobody there: 502
            another name: 403
            an address: 403 403 403
            loopback: 403 403 403".replace("ADDRESS", &setting.public(120)));
        let unique = &setting.unique;
        for denied in [
            &format!("tcp sni-mismatch {name}:443 x1"),
            &format!("tcp not-tls {name}:443 x1"),
            &format!("tcp host-mismatch {name}:80 x1"),
            &format!("tcp port-not-allowed {name}:22 x1"),
            &format!("tcp name-not-allowed {unique}.evil.example:443 x1"),
            "tcp ip-literal 93.184.216.120:9000 x1",
            "tcp ip-literal 10.1.2.3:7777 x1",
        ] {
            assert!(seen.denials.contains(&denied.to_owned()), "{denied}: {seen:#?}");
        }
        let log = setting.outside.log();
        assert_eq!(log.questions_for(&format!("{unique}.evil.example")), 0);
        assert_eq!(log.packets_to("10.1.2.3"), [""; 0]);
        assert_eq!(log.events.iter().find(|event| event["role"] == "host"), None);
    }

    /// H-03: a name that parsers could read in two ways is refused.
    fn an_ambiguous_name_in_a_proxy_request_is_refused_and_not_resolved(setting) {
        let (name, seen) = run(setting, 121, &[9000], r"
forms = (
    'evil.example\0.NAME', 'NAME\0.evil.example', 'NAME%00.evil.example', 'NAME .evil.example', 'NAME\t', 'NAME\r',
    'NAME\r\nX: y', 'evil.example/NAME', 'evil.example@NAME', 'NAME@evil.example', 'a' * 1000 + '.NAME', '', '[NAME]', 'NAME:9000',
)
tried = 0
for form in forms:
    to, tried = form + ':9000', tried + 1
    answer = proxied(f'CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n', more=b'who\n')
    if answer != '400':
        say('http', repr(form), answer)
for port in ('', '0', '09000', '9000x', '65536', '0x2328', '-1', '9000 ', '74536'):
    answer = proxied(f'CONNECT NAME:{port} HTTP/1.1\r\nHost: NAME:{port}\r\n\r\n', more=b'who\n')
    tried += 1
    if answer != '400':
        say('port', repr(port), answer)
for form in (b'evil.example\0.NAME', b'NAME\0.evil.example', b'NAME\0', b'NAME ', b'', b'NAME\r\n', b'a' * 255, b'127.1', b'0x7f000001', b'[::1]'):
    answer = socks_name(form.replace(b'NAME', name.encode()), 9000)
    tried += 1
    if answer != 'code 2':
        say('socks', form, answer)
say('tried', tried)
say('a good one', connect(name + ':9000'), socks_name(name, 9000), socks_name(name.upper(), 9000))");
        seen.assert_said(&"tried: 33
            a good one: 200 ADDRESS 9000 ADDRESS 9000 ADDRESS 9000".replace("ADDRESS", &setting.public(121)));
        let log = setting.outside.log();
        assert_eq!(log.packets_to(&setting.public(121)), ["tcp 9000"; 3]);
        // Only the valid name is looked up; no part of an ambiguous one is.
        let asked: Vec<&str> = log
            .of_kind("question")
            .filter_map(|event| event["name"].as_str())
            .filter(|asked| asked.contains(&setting.unique) || asked.contains("evil.example"))
            .collect();
        assert!(!asked.is_empty() && asked.iter().all(|asked| *asked == name), "{asked:?}");
    }

    /// Case 42: of SOCKS5, only CONNECT with names is accepted.
    fn socks_leads_to_allowed_names_only(setting) {
        let (name, seen) = run(setting, 122, &[443, 9000, 9001], r"
say('a name', socks_name(name, 9000))
say('tls', socks_name(name, 443, more=hello(name) + b'who\n'))
say('another tls name', socks_name(name, 443, more=hello('evil.example') + b'who\n'))
say('another port', socks_name(name, 22) != '')
say('another name', socks_name(unique + '.evil.example', 443))
say('an address', socks(1, socket.inet_aton('93.184.216.122'), 9000))
say('a private one', socks(1, socket.inet_aton('10.1.2.3'), 7777))
say('six', socks(4, socket.inet_pton(socket.AF_INET6, '2606:2800:220:1::34'), 9000))
say('six of four', socks(4, socket.inet_pton(socket.AF_INET6, '::ffff:10.1.2.3'), 7777))
say('nobody there', socks_name(name, 9001))
say('bind', socks_name(name, 9000, command=2))
say('udp', socks_name(name, 9000, command=3))
say('another kind', socks(9, b'', 1))
say('a password', socks_name(name, 9000, methods=b'\1\2'))
say('SOCKS4', socks_name(name, 9000, version=4))");
        seen.assert_said(&"a name: ADDRESS 9000
            tls: ADDRESS 443
            another tls name: reset
            another port: True
            another name: code 2
            an address: code 2
            a private one: code 2
            six: code 2
            six of four: code 2
            nobody there: code 4
            bind: code 7
            udp: code 7
            another kind: code 8
            a password: method b'\\x05\\xff'
            SOCKS4: method b'HT'".replace("ADDRESS", &setting.public(122)));
        let unique = &setting.unique;
        for denied in [
            &format!("tcp sni-mismatch {name}:443 x1"),
            &format!("tcp port-not-allowed {name}:22 x1"),
            &format!("tcp name-not-allowed {unique}.evil.example:443 x1"),
            "tcp ip-literal 93.184.216.122:9000 x1",
            "tcp ip-literal 10.1.2.3:7777 x2",
            "tcp ip-literal [2606:2800:220:1::34]:9000 x1",
        ] {
            assert!(seen.denials.contains(&denied.to_owned()), "{denied}: {seen:#?}");
        }
        assert_eq!(setting.outside.log().packets_to("10.1.2.3"), [""; 0]);
    }

    /// Case 42, H-05, H-12: one request for each connection, with a body of the stated length.
    fn a_proxied_request_is_one_request(setting) {
        let (name, seen) = run(setting, 123, &[80], r"
def request(label, text):
    say(label, proxied(text))
end = '\r\n\r\n'
request('a request', 'GET http://NAME/a HTTP/1.1\r\nHost: NAME' + end)
request('with a port', 'GET http://NAME:80/b HTTP/1.1\r\nHost: NAME:80' + end)
request('kept alive', 'GET http://NAME/c HTTP/1.1\r\nHost: NAME\r\nConnection: keep-alive\r\nProxy-Connection: keep-alive' + end)
request('a second one', 'GET http://NAME/d HTTP/1.1\r\nHost: NAME' + end + 'GET http://NAME/smuggled HTTP/1.1\r\nHost: NAME' + end)
request('a body', 'POST http://NAME/e HTTP/1.1\r\nHost: NAME\r\nContent-Length: 5' + end + 'hello')
request('a longer body', 'POST http://NAME/f HTTP/1.1\r\nHost: NAME\r\nContent-Length: 5' + end + 'helloGET /smuggled HTTP/1.1\r\nHost: evil.example' + end)
say('a second one, later', proxied('GET http://NAME/q HTTP/1.1\r\nHost: NAME' + end, more=b'GET /smuggled HTTP/1.1\r\n\r\n'))
request('chunks', 'POST http://NAME/g HTTP/1.1\r\nHost: NAME\r\nTransfer-Encoding: chunked' + end + '0' + end)
request('both lengths', 'POST http://NAME/h HTTP/1.1\r\nHost: NAME\r\nContent-Length: 5\r\nTransfer-Encoding: chunked' + end + '0' + end)
request('two lengths', 'POST http://NAME/i HTTP/1.1\r\nHost: NAME\r\nContent-Length: 5\r\nContent-Length: 6' + end + 'hello!')
request('a signed length', 'POST http://NAME/i HTTP/1.1\r\nHost: NAME\r\nContent-Length: +5' + end + 'hello')
request('another host', 'GET http://NAME/j HTTP/1.1\r\nHost: evil.example' + end)
request('another target', 'GET http://evil.example/k HTTP/1.1\r\nHost: NAME' + end)
request('another port', 'GET http://NAME:9000/l HTTP/1.1\r\nHost: NAME:9000' + end)
request('https', 'GET https://NAME/m HTTP/1.1\r\nHost: NAME' + end)
request('no target', 'GET /n HTTP/1.1\r\nHost: NAME' + end)
request('its own', 'GET http://127.0.0.1:3/ HTTP/1.1\r\nHost: 127.0.0.1:3' + end)
request('a newline', 'GET http://NAME/o HTTP/1.1\nHost: NAME\n\n' + end)
request('endless', 'GET http://NAME/p HTTP/1.1\r\nHost: NAME\r\n' + 'X: y\r\n' * 700_000)
request('endless line', 'CONNECT NAME:80' + '0' * (4 << 20))
request('endless field', 'GET http://NAME/p HTTP/1.1\r\nHost: NAME\r\nX: ' + 'y' * (4 << 20))
request('nothing', '\0\0\0\0')");
        let log = setting.outside.log();
        let served: Vec<String> = log
            .of_kind("request")
            .filter(|event| event["to"] == *setting.public(123))
            .filter(|event| event["fields"]["host"].to_string().contains(&setting.unique))
            .map(|event| {
                assert_eq!(event["fields"]["connection"], "close", "{event}");
                assert!(event["fields"]["proxy-connection"].is_null(), "{event}");
                format!("{} {}", event["line"].as_str().expect("a line"), event["body"])
            })
            .collect();
        assert_eq!(served, [
            "GET /a HTTP/1.1 0",
            "GET /b HTTP/1.1 0",
            "GET /c HTTP/1.1 0",
            "GET /d HTTP/1.1 0",
            "POST /e HTTP/1.1 5",
            "POST /f HTTP/1.1 5",
            "GET /q HTTP/1.1 0",
        ], "{seen:#?}");
        for (at, line) in seen.said.iter().enumerate() {
            let (label, answer) = line.split_once(": ").expect("two parts");
            if at < 7 {
                assert!(answer.starts_with("200 "), "{line}");
                assert_eq!(answer.matches(&format!("{} 80", setting.public(123))).count(), 1, "{line}");
                continue;
            }
            let expected: &[&str] = match label {
                "chunks" => &["501"],
                "endless" | "endless line" | "endless field" => &["431"],
                "another port" | "its own" => &["403"],
                "another host" | "another target" => &["400", "403"],
                _ => &["400", "403", "501", "reset", "closed", ""],
            };
            assert!(expected.contains(&answer), "{line}");
        }
        assert_eq!(seen.said.len(), 22);
        let more = log.of_kind("more").find(|event| event["to"] == *setting.public(123));
        assert_eq!(more, None);
        assert!(seen.denials.contains(&format!("tcp port-not-allowed {name}:9000 x1")), "{seen:#?}");
    }

    /// Case 42: with the proxy variables, without them, and with others that name another proxy.
    fn proxy_variables_change_the_way_and_not_the_list(setting) {
        let name = "v4-93-184-216-124.zone.example";
        let script = format!(r"
import urllib.request, urllib.error
def fetch(to):
    try:
        answer = urllib.request.urlopen(f'http://{{to}}/', timeout=20)
        return answer.read().decode().split()[0]
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return told(getattr(error, 'reason', error))
say('set', 'http_proxy' in os.environ)
say('allowed', fetch({name:?}))
say('denied', fetch(unique + '.evil.example'))");
        for (proxy, answers) in [
            (None, "set: False\nallowed: 93.184.216.124\ndenied: no such name"),
            (Some("http://127.0.0.1:3"), "set: True\nallowed: 93.184.216.124\ndenied: 403"),
            (Some("http://[::1]:3"), "set: True\nallowed: 93.184.216.124\ndenied: 403"),
            (Some("http://93.184.216.125:80"), "set: True\nallowed: reset\ndenied: reset"),
            (Some("http://proxy.evil.example:3128"), "set: True\nallowed: no such name\ndenied: no such name"),
        ] {
            let variable = proxy.map(|proxy| format!("http_proxy={proxy}")).unwrap_or_default();
            let mut flags = vec!["--allow-net", name];
            if proxy.is_some() {
                flags.extend(["-e", &variable]);
            }
            let seen = setting.run_with(&flags, &script);
            seen.assert_said(answers);
            assert!(!seen.denials.is_empty(), "{seen:#?}");
        }
        let log = setting.outside.log();
        assert_eq!(log.packets_to("93.184.216.125"), [""; 0]);
        assert_eq!(log.questions_for("evil.example"), 0);
    }
}
