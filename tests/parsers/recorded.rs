//! The corpus: every file has its property, and the messages of real programs are parsed.

use std::fs;

use crate::properties;
use crate::properties::PERMIT;
use egress::host::Host;
use egress::parsed::Parsed;
use egress::{client_hello, dns, http_head};

/// The names and contents of one folder of the corpus.
pub(crate) fn corpus(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = support::source_path("tests/parsers/corpus").join(folder);
    let files = fs::read_dir(&folder).expect("the corpus is part of the source");
    let mut files: Vec<(String, Vec<u8>)> = files
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a plain name");
            (name, fs::read(entry.path()).expect("readable"))
        })
        .collect();
    files.sort();
    assert!(5 < files.len(), "{} is nearly empty", folder.display());
    files
}

/// The files of `folder` for which `check` fails.
fn broken(folder: &str, check: impl Fn(&[u8])) -> Vec<String> {
    let files = corpus(folder).into_iter();
    let broken = files.filter(|(_, bytes)| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(bytes))).is_err()
    });
    broken.map(|(name, _)| format!("{folder}/{name}")).collect()
}

fn check_all(folder: &str, check: impl Fn(&[u8])) {
    assert_eq!(broken(folder, check), [""; 0]);
}

/// A property of bytes: panics if it does not hold.
pub(crate) type Check = fn(&[u8]);

/// The folders of the corpus without a test below, and their properties.
pub(crate) const MADE: [(&str, Check); 25] = [
    ("archive", properties::archive::check),
    ("archive_answer", properties::archive_answer::check),
    ("audit_record", properties::audit_record::check),
    ("child_status", properties::child_status::check),
    ("deb", properties::deb::check),
    ("document_answer", properties::document_answer::check),
    ("fetcher_answer", properties::fetcher_answer::check),
    ("gzip", properties::gzip::check),
    ("host_name", properties::host_name::check),
    ("image_documents", properties::image_documents::check),
    ("image_reference", properties::image_reference::check),
    ("layer", properties::layer::check),
    ("layer_answer", properties::layer_answer::check),
    ("lock_file", properties::lock_file::check),
    ("manifest", properties::manifest::check),
    ("path", properties::path::check),
    ("pattern_answer", properties::pattern_answer::check),
    ("reader_answer", properties::reader_answer::check),
    ("relay_outcome", properties::relay_outcome::check),
    ("relay_request", properties::relay_request::check),
    ("resolver_answer", properties::resolver_answer::check),
    ("run_form", properties::run_form::check),
    ("schema_answer", properties::schema_answer::check),
    ("snapshot_answer", properties::snapshot_answer::check),
    ("tokens", properties::tokens::check),
];

#[test]
fn every_generated_archive_document_and_text_has_its_property() {
    let broken: Vec<String> = MADE
        .into_iter()
        .flat_map(|(folder, check)| broken(folder, check))
        .collect();
    assert_eq!(broken, [""; 0]);
}

/// Whether bytes are an answer.
type Accepts = fn(&[u8]) -> bool;

/// Messages that a process sends which is not taken over: without them fuzzing would begin with nothing.
const HONEST: [(&str, Accepts, &[&str]); 9] = [
    (
        "archive_answer",
        properties::archive_answer::accepts,
        &["empty", "files", "link", "warned"],
    ),
    (
        "fetcher_answer",
        properties::fetcher_answer::accepts,
        &[
            "io",
            "large-head",
            "last-part",
            "latin",
            "no-tls",
            "not-found",
            "ok",
            "other",
            "part",
            "redirect",
            "timed-out",
            "tls",
            "twice",
        ],
    ),
    (
        "layer_answer",
        properties::layer_answer::accepts,
        &["empty", "hides-all", "hiding", "mode", "view"],
    ),
    (
        "pattern_answer",
        properties::pattern_answer::accepts,
        &[
            "control",
            "count",
            "invalid",
            "invalid-line",
            "no-names",
            "verdicts",
        ],
    ),
    (
        "reader_answer",
        properties::reader_answer::accepts,
        &[
            "archive-documents",
            "archive-empty",
            "archive-kept",
            "checkout-address",
            "checkout-commit",
            "checkout-index",
            "checkout-nothing",
            "checkout-patterns",
            "checkout-reference",
            "checkout-settings",
            "checkout-time",
            "text-head",
            "text-no-user",
            "text-none",
            "text-script",
            "text-user",
            "text-words",
        ],
    ),
    (
        "relay_outcome",
        properties::relay_outcome::accepts,
        &[
            "denials",
            "empty",
            "escaped",
            "hosts",
            "largest",
            "unreachable",
        ],
    ),
    (
        "relay_request",
        properties::relay_request::accepts,
        &[
            "as-a-list",
            "dial-private",
            "dial-same-id",
            "dial-two",
            "drained",
            "inside",
            "inside-ended",
            "other-allowed-port",
            "wildcard",
        ],
    ),
    (
        "resolver_answer",
        properties::resolver_answer::accepts,
        &[
            "as-a-list",
            "both",
            "largest",
            "mapped",
            "most",
            "no-server",
            "none",
            "one",
        ],
    ),
    (
        "snapshot_answer",
        properties::snapshot_answer::accepts,
        &["files", "hosted", "hosted-instead", "hosted-link"],
    ),
];

#[test]
fn what_honest_processes_send_is_accepted() {
    for (folder, accepts, expected) in HONEST {
        let accepted = corpus(folder)
            .into_iter()
            .filter(|(_, bytes)| accepts(bytes));
        let accepted: Vec<String> = accepted.map(|(name, _)| name).collect();
        assert_eq!(accepted, expected, "{folder}");
    }
}

#[test]
fn every_recorded_query_is_read_as_others_read_it() {
    check_all("dns_query", properties::dns_query::check);
}

#[test]
fn every_recorded_answer_is_read_as_others_read_it() {
    check_all("dns_answer", properties::dns_answer::check);
}

#[test]
fn every_recorded_hello_is_read_as_others_read_it() {
    check_all("client_hello", properties::client_hello::check);
}

#[test]
fn every_recorded_head_is_read_as_others_read_it() {
    check_all("http_head", properties::http_head::check);
}

#[test]
fn every_recorded_packet_is_read_as_its_header_says() {
    check_all("observed", properties::observed::check);
}

#[test]
fn every_recorded_socks_message_is_parsed_correctly() {
    check_all("socks", properties::socks::check);
}

#[test]
fn queries_of_resolver_libraries_are_parsed_and_malformed_ones_are_refused() {
    let refused = [
        "compressed-question",
        "notify",
        "option-cut-short",
        "two-questions",
        "unknown-version-of-edns",
    ];
    for (file, bytes) in corpus("dns_query") {
        match dns::parse(&PERMIT, &bytes) {
            Ok(query) => {
                assert!(!refused.contains(&file.as_str()), "{file}");
                let name = query.name.map(|name| name.to_string());
                match file.as_str() {
                    "label-with-nul" => assert_eq!(name, None),
                    "longest-name" => assert_eq!(name.map(|name| name.len()), Some(253)),
                    _ => assert_eq!(name.as_deref(), Some("api.example.com"), "{file}"),
                }
            }
            Err(why) => assert!(refused.contains(&file.as_str()), "{file}: {why:?}"),
        }
    }
}

#[test]
fn the_name_in_what_tls_libraries_send_is_found() {
    let named = [
        "curl-7.88-openssl-3.0",
        "git",
        "go",
        "grease-and-encrypted-hello",
        "java",
        "node",
        "openssl-3.0-tls12-only",
        "post-quantum-key-share",
        "python",
        "records-of-one-byte",
        "two-records",
    ];
    for (file, bytes) in corpus("client_hello") {
        let read = client_hello::parse(&PERMIT, &bytes);
        let Ok(Parsed::Complete(hello)) = read else {
            assert!(!named.contains(&file.as_str()), "{file}: {read:?}");
            continue;
        };
        let name = hello.server_name.map(|name| name.to_string());
        if file == "openssl-3.0-without-a-name" {
            assert_eq!(name, None);
        } else {
            assert!(named.contains(&file.as_str()), "{file} was to be refused");
            assert_eq!(name.as_deref(), Some("api.example.com"), "{file}");
        }
        assert_eq!(
            hello.has_encrypted_hello,
            file == "grease-and-encrypted-hello",
            "{file}"
        );
    }
}

#[test]
fn the_host_in_what_http_libraries_send_is_found() {
    let made_and_refused = [
        "bare-line-feeds",
        "folded",
        "http-2-preface",
        "length-twice",
        "two-hosts",
        "user-in-the-target",
    ];
    let made_and_taken = [
        "absolute-with-the-usual-port",
        "host-in-brackets",
        "latin-1-value",
        "options-of-the-server",
        "upgrade-to-http-2",
    ];
    for (file, bytes) in corpus("http_head") {
        let read = http_head::parse(&PERMIT, &bytes);
        let Ok(Parsed::Complete(head)) = read else {
            assert!(
                made_and_refused.contains(&file.as_str()),
                "{file}: {read:?}"
            );
            continue;
        };
        assert!(!made_and_refused.contains(&file.as_str()), "{file}");
        if made_and_taken.contains(&file.as_str()) {
            continue;
        }
        match head.host {
            Host::Name(name) => assert_eq!(name.as_str(), "api.example.com", "{file}"),
            // The client was given an address.
            Host::Address(address) => assert!(address.is_loopback() && file == "node-fetch"),
        }
        let is_connect = file.ends_with("-connect");
        assert_eq!(head.method == "CONNECT", is_connect, "{file}");
        assert!(!is_connect || head.port == Some(443), "{file}");
    }
}
