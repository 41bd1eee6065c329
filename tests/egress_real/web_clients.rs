//! curl and wget.

use crate::allowlist::{Allowlist, through};
use crate::published::{LARGE_BYTES, PAGES};
use crate::servers::{ADDRESS, Servers};
use support::invariants::eventually;
use support::packages::{has, succeed};

/// The control: the servers that no case may reach are up, one hop beyond the host.
#[test]
fn the_servers_answer_the_host_without_the_runner() {
    let Some(servers) = Servers::get() else {
        return;
    };
    let before = servers.asked().len();
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://denied.compat.test/control");
        let mut curl = servers.on_the_host("curl");
        curl.args(["-sS", "--cacert", &servers.authority(), &url]);
        let output = curl.output().expect("curl starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, "denied.compat.test was reached\n", "{output:?}");
    }
    // The servers note a request after they have answered it.
    eventually("both requests are noted", || {
        servers.asked().len() >= before + 2
    });
}

/// The authorities that the host trusts are trusted inside, and no others.
#[test]
fn authorities_of_the_host_are_trusted_inside_and_no_others() {
    if !has("curl") || !has("python3") {
        return;
    }
    through(&["web.compat.test"], |list| {
        let trusted = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))";
        let mut python = list.servers.on_the_host("python3");
        let outside = succeed(python.args(["-c", trusted])).expect("counted");
        let inside = list.run(&["python3", "-c", trusted]);
        assert_eq!(inside.text(), outside);
        let done = list.run(&["curl", "-sS", "https://web.compat.test/name"]);
        assert_eq!(done.code, 60, "{done:#?}");
        assert_eq!(done.report["denials"].as_array().map(Vec::len), Some(0));
    });
}

fn curl(hosts: &[&str], test: impl Fn(Allowlist<'_>)) {
    if has("curl") {
        through(hosts, |mut list| {
            list.trust("CURL_CA_BUNDLE");
            test(list);
        });
    }
}

#[test]
fn curl_reaches_allowed_names_over_http_and_https() {
    curl(&["web.compat.test", "*.compat.test:443"], |list| {
        let urls = "curl -sS -w '%{http_version}\n' http://web.compat.test/name \
                    https://web.compat.test/name && \
                    curl -sS --http1.1 https://other.compat.test/name";
        let done = list.reaches(
            &["web.compat.test", "other.compat.test"],
            &["sh", "-c", urls],
        );
        let said = "web by http\n1.1\nweb by https\n2\nother.compat.test by https\n";
        assert_eq!(done.text(), said);
    });
}

#[test]
fn names_are_resolved_with_every_option_of_the_c_library() {
    for how in ["use-vc", "edns0", "single-request", "trust-ad", "rotate"] {
        curl(&["web.compat.test"], |mut list| {
            list.flag("-e", &format!("RES_OPTIONS={how}"));
            let body = ["curl", "-sS", "https://web.compat.test/name"];
            let done = list.reaches(&["web.compat.test"], &body);
            assert_eq!(done.text(), "web by https\n", "{how}");
            let denied = ("denied.compat.test", "name-not-allowed");
            let body = ["curl", "-sS", "https://denied.compat.test/"];
            list.is_denied(denied.0, denied.1, "curl: (6)", &body);
        });
    }
}

#[test]
fn curl_brings_and_sends_what_is_large() {
    curl(&["web.compat.test"], |list| {
        for scheme in ["http", "https"] {
            let both = format!(
                "set -e; cd /tmp; curl -sSo large {scheme}://web.compat.test/large.bin\n\
                 sha256sum <large | cut -d ' ' -f 1; wc -c <large\n\
                 curl -sS --data-binary @large {scheme}://web.compat.test/length\n\
                 curl -sS -T large {scheme}://web.compat.test/length\n"
            );
            let done = list.reaches(&["web.compat.test"], &["sh", "-c", &both]);
            let text = done.text();
            let words: Vec<&str> = text.split_whitespace().collect();
            let digest = words[0];
            let length = LARGE_BYTES.to_string();
            let sent = [length.as_str(), digest];
            assert_eq!(words[1..], [&sent[..1], &sent, &sent].concat(), "{done:#?}");
        }
    });
}

#[test]
fn curl_fetches_many_at_once() {
    curl(&["web.compat.test"], |list| {
        let urls = format!(
            "{{http,https}}://web.compat.test/page-[0-{}].txt",
            PAGES - 1
        );
        let body = ["curl", "-sSZ", "--no-progress-meter", "--http1.1", &urls];
        let done = list.reaches(&["web.compat.test"], &body);
        let mut lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
        lines.sort();
        let page = |number| format!("page {}", number / 2);
        assert_eq!(lines, (0..2 * PAGES).map(page).collect::<Vec<_>>());
    });
}

#[test]
fn curl_fails_at_once_where_it_may_not_go() {
    curl(&["web.compat.test"], |list| {
        let unknown = "curl: (6) Could not resolve host: denied.compat.test";
        for url in ["http://denied.compat.test/", "https://denied.compat.test/"] {
            let denied = ("denied.compat.test", "name-not-allowed");
            let done = list.is_denied(denied.0, denied.1, unknown, &["curl", "-sS", url]);
            assert_eq!(done.code, 6);
            // An allowed name resolves to that address.
            let away = url.replace("denied", "web") + "away";
            list.is_denied(denied.0, denied.1, unknown, &["curl", "-sSL", &away]);
        }
        for (scheme, port) in [("http", 80), ("https", 443)] {
            let object = format!("{ADDRESS}:{port}");
            let url = format!("{scheme}://{ADDRESS}/");
            list.is_denied(&object, "ip-literal", "curl: (", &["curl", "-sSk", &url]);
        }
    });
}

#[test]
fn a_listed_port_is_open_and_the_others_are_not() {
    curl(&["web.compat.test:8080"], |list| {
        let open = ["curl", "-sS", "http://web.compat.test:8080/name"];
        let done = list.reaches(&["web.compat.test"], &open);
        assert_eq!(done.text(), "web by http\n");
        for (url, object) in [
            ("http://web.compat.test/", "web.compat.test:80"),
            ("https://web.compat.test/", "web.compat.test:443"),
        ] {
            let reason = "port-not-allowed";
            list.is_denied(object, reason, "curl: (", &["curl", "-sS", url]);
        }
    });
}

#[test]
fn curl_uses_the_proxy_of_the_sandbox_if_configured() {
    curl(&["web.compat.test"], |mut list| {
        let proxies = [
            "http://127.0.0.1:3",
            "socks5h://127.0.0.1:3",
            "socks5://localhost:3",
        ];
        for proxy in proxies {
            let urls = [
                "http://web.compat.test/name",
                "https://web.compat.test/name",
            ];
            let body = ["curl", "-sS", "--proxy", proxy, urls[0], urls[1]];
            let done = list.reaches(&["web.compat.test"], &body);
            assert_eq!(done.text(), "web by http\nweb by https\n", "{proxy}");
        }
        let url = "https://denied.compat.test/";
        let (reason, object) = ("name-not-allowed", "denied.compat.test:443");
        let body = ["curl", "-sS", "--proxy", proxies[0], url];
        let done = list.is_denied(object, reason, "response 403", &body);
        assert_eq!(done.code, 56);
        let body = ["curl", "-sS", "--proxy", proxies[1], url];
        let done = list.is_denied(object, reason, "curl: (97)", &body);
        assert_eq!(done.code, 97);
        // The proxy variables of the environment.
        list.flag("-e", &format!("https_proxy={}", proxies[0]));
        let done = list.reaches(
            &["web.compat.test"],
            &["curl", "-sS", "https://web.compat.test/name"],
        );
        assert_eq!(done.text(), "web by https\n");
    });
}

#[test]
fn wget_reaches_what_is_allowed_and_fails_at_once_elsewhere() {
    if !has("wget") {
        return;
    }
    through(&["web.compat.test"], |list| {
        let authority = format!("--ca-certificate={}", list.servers.authority());
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://web.compat.test/name");
            let body = ["wget", "-qO-", &authority, &url];
            let done = list.reaches(&["web.compat.test"], &body);
            assert_eq!(done.text(), format!("web by {scheme}\n"));
            let url = format!("{scheme}://denied.compat.test/name");
            let done = list.is_denied(
                "denied.compat.test",
                "name-not-allowed",
                "wget: unable to resolve host address",
                &["wget", "-nv", "-O-", &authority, &url],
            );
            assert_eq!(done.code, 4);
        }
    });
}
