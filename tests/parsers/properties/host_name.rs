//! An egress list, and the names that a body asks for: whoever checks a name and whoever dials it
//! mean the same host.

use std::net::IpAddr;

use domain::base::{Message, Name};
use rustls::pki_types::ServerName;

use egress::allow::{Allowlist, Standing};
use egress::resolver::answer::{Family, question};
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
    // What is asked of a name server is this name to it.
    let asked = question(1, &name, Family::V4);
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
    // What stands in a request to it is this host to a client.
    let authority: http::uri::Authority = written.parse().expect("an authority");
    assert_eq!(authority.host(), written);
    assert_eq!(authority.port(), None);
    Some(name)
}

/// An entry is written in one form, which means the same.
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

/// A name is allowed where it stands in the list, or ends in `.` and what stands behind `*.`.
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
        assert_eq!(list.allows(name, port), is_allowed, "{name}:{port}");
    }
    let is_listed = rules.iter().any(names);
    assert_eq!(list.standing(name) != Standing::Absent, is_listed, "{name}");
}

/// What two lists have in common is what both allow.
fn check_intersection(one: &[EgressRule], two: &[EgressRule], name: Option<&HostName>) {
    let both = intersect(one, two);
    let [one, two, both] = [one.to_vec(), two.to_vec(), both].map(Allowlist::new);
    let ports: Vec<u16> = one.ports().chain(two.ports()).collect();
    for name in name.into_iter() {
        for port in &ports {
            let expected = one.allows(name, *port) && two.allows(name, *port);
            assert_eq!(both.allows(name, *port), expected, "{name}:{port}");
        }
    }
}
