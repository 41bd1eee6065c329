//! git, pip and npm.

use crate::allowlist::through;
use support::packages::has;
use support::random;

const REASON: &str = "name-not-allowed";

#[test]
fn git_clones_and_pushes_over_http_and_https() {
    if !has("git") {
        return;
    }
    through(&["git.compat.test"], |mut list| {
        list.trust("GIT_SSL_CAINFO");
        for person in ["AUTHOR", "COMMITTER"] {
            list.flag("-e", &format!("GIT_{person}_NAME=somebody"));
            list.flag("-e", &format!("GIT_{person}_EMAIL=somebody@compat.test"));
        }
        for scheme in ["http", "https"] {
            let branch = random();
            let script = format!(
                "set -e; cd /tmp; git clone -q {scheme}://git.compat.test/greeting.git greeting\n\
                 cd greeting; cat greeting.txt; git rev-list --count HEAD; wc -c <noise.bin\n\
                 git fsck --strict; head -c 1200000 /dev/urandom >more; git add more\n\
                 git commit -qm more; git push -q origin HEAD:refs/heads/{branch}\n\
                 git ls-remote --heads origin {branch} | cut -f 2"
            );
            let done = list.reaches(&["git.compat.test"], &["sh", "-c", &script]);
            let said = format!("two\n2\n1600000\nrefs/heads/{branch}\n");
            assert_eq!(done.text(), said, "{done:#?}");
        }
    });
}

/// Without HTTP and TLS, the decision depends only on name and port.
#[test]
fn git_clones_by_its_own_protocol_at_a_port_that_is_listed() {
    if !has("git") {
        return;
    }
    let url = "git://git.compat.test/greeting.git";
    through(&["git.compat.test:9418"], |list| {
        let script = format!("git clone -q {url} /tmp/greeting && cat /tmp/greeting/greeting.txt");
        let done = list.reaches(&["git.compat.test"], &["sh", "-c", &script]);
        assert_eq!(done.text(), "two\n");
    });
    let clone = ["git", "clone", "-q", url, "/tmp/greeting"];
    through(&["git.compat.test"], |list| {
        if list.capture == "tproxy" {
            list.reaches(&["git.compat.test"], &clone);
        } else {
            let object = "git.compat.test:9418";
            let words = "unable to connect to git.compat.test";
            let done = list.is_denied(object, "port-not-captured", words, &clone);
            assert_eq!(done.code, 128);
        }
    });
}

#[test]
fn git_fails_at_once_where_it_may_not_go() {
    if !has("git") {
        return;
    }
    through(&["git.compat.test"], |list| {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://denied.compat.test/greeting.git");
            let done = list.is_denied(
                "denied.compat.test",
                REASON,
                "Could not resolve host: denied.compat.test",
                &["git", "clone", &url, "/tmp/greeting"],
            );
            assert_eq!(done.code, 128);
        }
    });
}

#[test]
fn pip_downloads_and_installs_from_an_allowed_index() {
    if !has("python3") {
        return;
    }
    through(&["index.compat.test"], |mut list| {
        list.trust("PIP_CERT");
        for scheme in ["http", "https"] {
            let pip = |verb: &str, place: &str, index: &str| {
                format!(
                    "python3 -m pip {verb} -q --disable-pip-version-check --retries 1 \
                     --trusted-host {} --index-url {scheme}://{index}.compat.test/simple/ \
                     {place} greeting",
                    // Without TLS, pip needs `--trusted-host`; with TLS it does not.
                    if scheme == "http" {
                        format!("{index}.compat.test")
                    } else {
                        "nobody.compat.test".to_owned()
                    }
                )
            };
            let script = format!(
                "set -e; cd /tmp; {}; ls wheels; {}\n\
                 PYTHONPATH=lib python3 -c 'import greeting; print(greeting.greet(\"pip\"))'",
                pip("download", "-d wheels", "index"),
                pip("install", "--target lib", "index")
            );
            let done = list.reaches(&["index.compat.test"], &["sh", "-c", &script]);
            let said = "greeting-1.0-py3-none-any.whl\nhello pip\n";
            assert_eq!(done.text(), said, "{done:#?}");
            let script = pip("download", "-d /tmp/wheels", "denied");
            let done = list.is_denied(
                "denied.compat.test",
                REASON,
                "No matching distribution found for greeting",
                &["sh", "-c", &script],
            );
            let words = "Name or service not known";
            assert!(done.stderr.contains(words), "{done:#?}");
        }
    });
}

#[test]
fn npm_installs_from_an_allowed_registry() {
    if !has("npm") {
        return;
    }
    through(&["packages.compat.test"], |mut list| {
        list.trust("npm_config_cafile");
        for scheme in ["http", "https"] {
            let script = format!(
                "set -e; mkdir /tmp/program; cd /tmp/program\n\
                 npm install --registry {scheme}://packages.compat.test/ greeting >&2\n\
                 node -p 'require(\"greeting\")(\"npm\")'"
            );
            let done = list.reaches(&["packages.compat.test"], &["sh", "-c", &script]);
            assert_eq!(done.text(), "hello npm\n", "{done:#?}");
            // npm retries every failure after ten seconds, also a name that does not exist.
            let script = format!(
                "mkdir /tmp/program && cd /tmp/program && npm install --fetch-retries 0 \
                 --registry {scheme}://denied.compat.test/ greeting"
            );
            list.is_denied(
                "denied.compat.test",
                REASON,
                "ENOTFOUND",
                &["sh", "-c", &script],
            );
        }
    });
}

/// Each refusal says what is missing; following its hints makes the program run.
#[test]
fn npx_fetches_what_runs_typescript_once_its_registry_is_named_and_allowed() {
    if !has("npm") {
        return;
    }
    // This version of Node does not strip types.
    let files = [("manifest.yaml", "run: main.tsx\n"), ("main.tsx", "1\n")];
    through(&[], |mut list| {
        let bundle = list.ground.bundle(&files);
        let hint = list.refused("run_needs_tsx", &bundle);
        let flags = hint.split("download: ").nth(1).expect("flags");
        let flags = flags.split(';').next().expect("flags");
        assert_eq!(flags, "-e npm_config_registry=URL --allow-net HOST:PORT");
        list.flag("-e", "npm_config_registry=http://packages.compat.test/");
        let hint = list.refused("run_needs_tsx", &bundle);
        let place = hint.split("--allow-net ").nth(1).expect("a flag");
        let place = place.split(';').next().expect("a place");
        assert_eq!(place, "packages.compat.test:80");
        list.flag("--allow-net", place);
        let done = list.bundle_reaches(&["packages.compat.test"], &bundle);
        assert_eq!(done.text(), "tsx main.tsx\n", "{done:#?}");
    });
}
