//! The parts themselves: what later tests rely on.

use crate::support::packages::succeed;
use crate::support::registry::{Options, Registry};
use std::process::Command;

#[test]
fn a_registry_answers_counts_and_ends() {
    let Some(mut registry) = Registry::start(Options::default()) else {
        return;
    };
    let url = format!("{}/v2/", registry.url());
    succeed(Command::new("curl").args(["-fsS", &url])).expect("it answers");
    assert_eq!(
        registry.count("GET", "/v2/"),
        1,
        "{:?}",
        registry.answered()
    );
    registry.stop();
    succeed(Command::new("curl").args(["-fsS", &url])).expect_err("it has ended");
}

#[test]
fn a_registry_with_tls_and_a_login_lets_only_its_user_in() {
    let Some(registry) = Registry::start(Options {
        tls: true,
        login: true,
    }) else {
        return;
    };
    let url = format!("{}/v2/", registry.url());
    let curl = |words: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-fsS", "--cacert", &registry.authority(), &url]);
        succeed(curl.args(words))
    };
    curl(&[]).expect_err("nobody's name");
    let right = format!("{}:{}", Registry::USER, registry.password());
    curl(&["--user", &format!("{right}x")]).expect_err("a wrong password");
    curl(&["--user", &right]).expect("it answers");
    succeed(Command::new("curl").args(["-fsS", "--user", &right, &url]))
        .expect_err("an authority that nobody knows");
    let statuses: Vec<u16> = registry.answered().iter().map(|one| one.status).collect();
    assert_eq!(statuses, [401, 401, 200]);
}
