//! An egress list and the names that a body looks up: the check and the dial refer to the same host.

use std::net::IpAddr;

use domain::base::{Message, Name};
use rustls::pki_types::ServerName;

use egress::address::Family;
use egress::allow::{Allowlist, NameMatch};
use egress::host::Host;
use egress::resolver::answer::query;
use spec::egress::{EgressHost, EgressRule, intersect, suggest};
use spec::host_name::HostName;

/// Lines: a name as a body writes it, then the entries of a list.
pub(crate) fn check(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let name = check_name(lines.next().unwrap_or_default());
    let texts: Vec<&str> = lines
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let rules: Vec<EgressRule> = texts.iter().filter_map(|text| check_entry(text)).collect();
    if let Some(name) = &name {
        check_allowed(name, &rules);
    }
    let half = rules.len() / 2;
    check_intersection(&rules[..half], &rules[half..], name.as_ref());
}

fn check_name(text: &[u8]) -> Option<HostName> {
    let name = HostName::parse(text).ok()?;
    let written = name.as_str();
    let lower = text.to_ascii_lowercase();
    assert_eq!(
        written.as_bytes(),
        lower.strip_suffix(b".").unwrap_or(&lower)
    );
    assert_eq!(HostName::parse(written.as_bytes()).as_ref(), Ok(&name));
    let labels = written.as_bytes().split(|byte| *byte == b'.');
    assert_eq!(HostName::from_labels(labels).as_ref(), Ok(&name));
    assert!(written.parse::<IpAddr>().is_err(), "an address");
    let is_address = matches!(ServerName::try_from(written), Ok(ServerName::IpAddress(_)));
    assert!(!is_address, "an address to rustls");
    // The query to a name server contains this name.
    let asked = query(1, &name, Family::V4);
    let message = Message::from_octets(asked.as_slice()).expect("a message");
    let theirs = message
        .sole_question()
        .expect("a question")
        .qname()
        .to_string();
    assert_eq!(theirs.trim_end_matches('.'), written);
    assert!(
        written.parse::<Name<Vec<u8>>>().is_ok(),
        "no name to a name server"
    );
    // A request with this name reaches this host, according to an established client.
    let authority: http::uri::Authority = written.parse().expect("an authority");
    assert_eq!(authority.host(), written);
    assert_eq!(authority.port(), None);
    Some(name)
}

/// An entry has one written form with the same meaning.
fn check_entry(text: &str) -> Option<EgressRule> {
    if let Some(guessed) = suggest(text) {
        assert_eq!(
            EgressRule::parse(&guessed.to_string()).as_ref(),
            Ok(&guessed)
        );
    }
    let rule = match EgressRule::parse(text) {
        Ok(rule) => rule,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            return None;
        }
    };
    assert_eq!(EgressRule::parse(&rule.to_string()).as_ref(), Ok(&rule));
    assert!(rule.covers(&rule));
    Some(rule)
}

/// A name is allowed if the list contains it, or if it ends in `.` and the name after `*.`.
fn check_allowed(name: &HostName, rules: &[EgressRule]) {
    let list = Allowlist::new(rules.to_vec());
    let names = |rule: &EgressRule| match &rule.host {
        EgressHost::Name(other) => other.as_str() == name.as_str(),
        EgressHost::Below(parent) => name.as_str().ends_with(&format!(".{parent}")),
        EgressHost::Address(_) => false,
    };
    for port in rules
        .iter()
        .filter_map(|rule| rule.port)
        .chain([80, 443, 1])
    {
        let is_allowed = rules
            .iter()
            .any(|rule| names(rule) && rule.port.is_none_or(|other| other == port));
        assert_eq!(allows(&list, name, port), is_allowed, "{name}:{port}");
    }
    let is_listed = rules.iter().any(names);
    assert_eq!(
        list.match_name(name) != NameMatch::None,
        is_listed,
        "{name}"
    );
}

fn allows(list: &Allowlist, name: &HostName, port: u16) -> bool {
    list.denial(&Host::Name(name.clone()), port).is_none()
}

/// The intersection of two lists allows what both allow.
fn check_intersection(one: &[EgressRule], two: &[EgressRule], name: Option<&HostName>) {
    let both = intersect(one, two);
    let [one, two, both] = [one.to_vec(), two.to_vec(), both].map(Allowlist::new);
    let ports: Vec<u16> = one.ports().chain(two.ports()).collect();
    for name in name.into_iter() {
        for port in &ports {
            let expected = allows(&one, name, *port) && allows(&two, name, *port);
            assert_eq!(allows(&both, name, *port), expected, "{name}:{port}");
        }
    }
}
