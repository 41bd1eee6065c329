//! Python, Node, and a static Go program that resolves names by itself.

use std::path::PathBuf;

use crate::allowlist::{Allowlist, through};
use support::packages::{has, prepared, succeed, tool};

const URLLIB: &str = include_str!("../bodies/egress_real/languages_urllib.py");

/// Sixteen concurrent connections.
const ASYNCIO: &str = include_str!("../bodies/egress_real/languages_asyncio.py");

const FETCH: &str = r#"
(async () => {
  const answers = await Promise.all(process.argv.slice(1).map(url => fetch(url)));
  for (const answer of answers) process.stdout.write(`${answer.status} ${await answer.text()}`);
})().catch(error => { console.error(`fetch: ${error.cause}`); process.exit(1); });
"#;

/// Resolves names with c-ares, which reads resolv.conf itself, then connects to the addresses.
const C_ARES: &str = r#"
const dns = require('dns'), net = require('net'), tls = require('tls');
const [host, server] = process.argv.slice(1);
const resolver = new dns.promises.Resolver();
if (server) resolver.setServers([server]);
const ask = socket => new Promise((resolve, reject) => {
  let text = '';
  socket.on('data', bytes => text += bytes).on('error', reject);
  socket.on('end', () => resolve(text.split('\r\n\r\n')[1]));
  socket.write(`GET /name HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
});
(async () => {
  const addresses = await resolver.resolve4(host);
  const six = await resolver.resolve6(host).catch(error => error.code);
  console.log(addresses.length, six);
  process.stdout.write(await ask(net.connect(80, addresses[0])));
  process.stdout.write(await ask(tls.connect(443, addresses[0], { servername: host })));
})().catch(error => { console.error(String(error)); process.exit(1); });
"#;

const BOTH: [&str; 2] = [
    "http://web.compat.test/name",
    "https://web.compat.test/name",
];
const WEB: &str = "web.compat.test";
const DENIED: [&str; 2] = ["denied.compat.test", "name-not-allowed"];

fn python(test: impl Fn(Allowlist<'_>)) {
    if has("python3") {
        through(&[WEB], |mut list| {
            list.trust("SSL_CERT_FILE");
            test(list);
        });
    }
}

#[test]
fn urllib_reaches_what_is_allowed_and_fails_at_once_elsewhere() {
    python(|list| {
        let body = ["python3", "-c", URLLIB, BOTH[0], BOTH[1]];
        let done = list.reaches(&[WEB], &body);
        assert_eq!(done.text(), "200 web by http\n200 web by https\n");
        for url in ["http://denied.compat.test/", "https://denied.compat.test/"] {
            let words = "Name or service not known";
            let body = ["python3", "-c", URLLIB, url];
            list.is_denied(DENIED[0], DENIED[1], words, &body);
        }
    });
}

/// The manifest states the list.
#[test]
fn a_bundle_reaches_what_its_manifest_lists() {
    if !has("python3") {
        return;
    }
    through(&[], |mut list| {
        list.trust("SSL_CERT_FILE");
        let manifest = "name: caller\nrun: main.py\nnetwork: {egress: [web.compat.test]}\n";
        // The caller has to grant the requests of a bundle; the caller's own manifest grants itself.
        let granted = list.ground.write("manifest.yaml", manifest);
        list.flag("--manifest", granted.to_str().expect("a plain path"));
        let main = format!("import sys\nsys.argv[1:] = {BOTH:?}\n{URLLIB}",);
        let bundle = list.ground.bundle(&[("main.py", &main)]);
        let done = list.bundle_reaches(&[WEB], &bundle);
        assert_eq!(done.text(), "200 web by http\n200 web by https\n");
    });
}

#[test]
fn the_own_host_name_is_resolved_without_a_query() {
    python(|list| {
        let own = "import socket\n\
            name, found = socket.gethostname(), socket.getaddrinfo\n\
            families = [socket.AF_UNSPEC, socket.AF_INET, socket.AF_INET6]\n\
            print(name, [found(name, 80, family)[0][4][0] for family in families])";
        let done = list.reaches(&[], &["python3", "-c", own]);
        let said = "runner ['127.0.0.1', '127.0.0.1', '::1']\n";
        assert_eq!(done.text(), said, "{done:#?}");
    });
}

/// Java, Kerberos and logging libraries look up the name of their peer's address.
#[test]
fn the_address_of_an_allowed_name_leads_back_to_it() {
    python(|list| {
        let back = "import socket\n\
            address = socket.gethostbyname('web.compat.test')\n\
            print(socket.gethostbyaddr(address)[0], socket.getnameinfo((address, 443), 0)[0])\n\
            socket.gethostbyaddr('198.18.0.1')";
        let done = list.run(&["python3", "-c", back]);
        assert_eq!(
            done.text(),
            "web.compat.test web.compat.test\n",
            "{done:#?}"
        );
        // The relay's own address has no name, and looking it up is not denied.
        assert!(done.stderr.contains("Unknown host"), "{done:#?}");
        assert!(!done.stderr.contains("denied"), "{done:#?}");
    });
}

#[test]
fn asyncio_reaches_what_is_allowed_and_fails_at_once_elsewhere() {
    python(|list| {
        let done = list.reaches(&[WEB], &["python3", "-c", ASYNCIO, WEB]);
        assert_eq!(done.text(), "web by http\nweb by https\n 16\n");
        let words = "socket.gaierror: [Errno -2] Name or service not known";
        let body = ["python3", "-c", ASYNCIO, DENIED[0]];
        list.is_denied(DENIED[0], DENIED[1], words, &body);
    });
}

fn node(test: impl Fn(Allowlist<'_>)) {
    if has("node") {
        through(&[WEB], |mut list| {
            list.trust("NODE_EXTRA_CA_CERTS");
            test(list);
        });
    }
}

#[test]
fn node_fetch_reaches_what_is_allowed_and_fails_at_once_elsewhere() {
    node(|list| {
        let done = list.reaches(&[WEB], &["node", "-e", FETCH, BOTH[0], BOTH[1]]);
        assert_eq!(done.text(), "200 web by http\n200 web by https\n");
        for url in ["http://denied.compat.test/", "https://denied.compat.test/"] {
            let words = "fetch: Error: getaddrinfo ENOTFOUND denied.compat.test";
            list.is_denied(DENIED[0], DENIED[1], words, &["node", "-e", FETCH, url]);
        }
    });
}

#[test]
fn node_resolves_allowed_names_with_any_server() {
    node(|list| {
        for server in ["", "192.0.2.53", "[2001:4860:4860::8888]:53"] {
            let done = list.reaches(&[WEB], &["node", "-e", C_ARES, WEB, server]);
            assert_eq!(done.text(), "1 ENODATA\nweb by http\nweb by https\n");
            let words = "queryA ENOTFOUND denied.compat.test";
            let body = ["node", "-e", C_ARES, DENIED[0], server];
            list.is_denied(DENIED[0], DENIED[1], words, &body);
        }
    });
}

/// The program, built once; `None`, with a printed skip, without a Go compiler.
fn resolver() -> Option<PathBuf> {
    let folder = prepared("resolver-1", |folder| {
        let source = folder.join("resolver.go");
        let text = include_str!("bodies/resolver.go");
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        let cache = folder.join("cache");
        let mut go = tool("go");
        go.args(["build", "-o", "resolver", "resolver.go"])
            .current_dir(folder)
            .envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off")])
            .env("GOCACHE", &cache)
            .env("GOPATH", folder.join("path"));
        succeed(&mut go)?;
        std::fs::remove_dir_all(&cache).map_err(|error| error.to_string())
    })?;
    Some(folder.join("resolver"))
}

#[test]
fn a_static_program_reaches_what_is_allowed_and_fails_at_once_elsewhere() {
    let Some(program) = resolver() else {
        return;
    };
    let program = program.to_str().expect("a plain path");
    through(&[WEB], |mut list| {
        list.trust("SSL_CERT_FILE");
        list.flag("--ro", program);
        let done = list.reaches(&[WEB], &[program, "fetch", BOTH[0], BOTH[1]]);
        assert_eq!(done.text(), "HTTP/1.1 web by http\nHTTP/2.0 web by https\n");
        let done = list.run(&[program, "lookup", WEB]);
        assert_eq!(done.text(), "web.compat.test: 1 addresses\n", "{done:#?}");
        let done = list.reaches(&[WEB], &[program, "raw", "web.compat.test:80"]);
        assert_eq!(done.text(), "HTTP/1.1 200 OK\r\n");
        for (url, count) in [(BOTH[0], "100"), (BOTH[1], "32")] {
            let done = list.reaches(&[WEB], &[program, "storm", url, count]);
            assert_eq!(done.text(), format!("{count} of {count}\n"), "{done:#?}");
        }
        for words in [
            ["fetch", "http://denied.compat.test/"],
            ["fetch", "https://denied.compat.test/"],
            ["lookup", "denied.compat.test"],
        ] {
            let body = [program, words[0], words[1]];
            list.is_denied(DENIED[0], DENIED[1], "no such host", &body);
        }
    });
}
