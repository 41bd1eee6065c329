//! The components that later tests rely on.

use std::process::Command;
use support::images::{debian, skopeo, tiny};
use support::packages::succeed;
use support::registry::{Options, Registry};

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

#[test]
fn the_tiny_image_goes_to_a_registry_and_reads_as_it_was_made() {
    let Some(image) = tiny() else { return };
    let Some(registry) = Registry::start(Options {
        tls: true,
        login: true,
    }) else {
        return;
    };
    image.push(&registry, "images/tiny:1");
    let place = format!("docker://{}", registry.reference("images/tiny:1"));
    let said = succeed(skopeo("inspect", &registry, "").arg(&place)).expect("skopeo reads it");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["Digest"], image.digest().as_str());
    assert_eq!(said["Layers"].as_array().map(Vec::len), Some(5), "{said}");
    assert_eq!(
        said["Env"],
        serde_json::json!(["GREETING=hello", "PATH=/bin"])
    );
}

#[test]
fn the_debian_image_has_what_package_clients_need() {
    let Some(image) = debian() else { return };
    let Some(registry) = Registry::start(Options::default()) else {
        return;
    };
    image.push(&registry, "images/debian:1");
    let place = format!("docker://{}", registry.reference("images/debian:1"));
    let said = succeed(skopeo("inspect", &registry, "").arg(&place)).expect("skopeo reads it");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let digest = said["Layers"][0].as_str().expect("a layer");
    let script = r#"tar -tzf "$1" | grep -xE '\./usr/(bin/(apt-get|python3|node|pip3)|local/bin/npm)' | sort"#;
    let mut list = Command::new("sh");
    list.args(["-c", script, "sh"])
        .arg(registry.blob_file(digest));
    let found = succeed(&mut list).expect("tar lists it");
    let wanted = [
        "bin/apt-get",
        "bin/node",
        "bin/pip3",
        "bin/python3",
        "local/bin/npm",
    ];
    let wanted: String = wanted
        .iter()
        .map(|name| format!("./usr/{name}\n"))
        .collect();
    assert_eq!(found, wanted);
}
