//! Which runs are planned, how untrusted text reaches them, and what decides their keys.

use super::*;
use spec::host_config::{Statement, WrittenApt, WrittenNpm, WrittenPip, WrittenPreparation};
use spec::host_name::HostName;
use spec::host_policy;
use spec::preparation::{AptSource, IndexUrl};
use spec::sources_policy::IpRange;

fn policy(state: impl Fn(&mut WrittenPreparation)) -> PreparationPolicy {
    let mut file = Statement::default();
    state(&mut file.preparation);
    host_policy::merge(&[file]).0.preparation
}

fn everything() -> PreparationPolicy {
    policy(|stated| {
        let source = "deb http://deb.example.org/debian trixie main";
        let source = AptSource::parse(source).expect("a source");
        let url = |text| IndexUrl::parse(text).expect(text);
        stated.apt = Some(WrittenApt {
            sources: vec![source],
            trusted_keys: None,
        });
        stated.npm = Some(WrittenNpm {
            registry: url("https://registry.example.org/"),
        });
        stated.pip = Some(WrittenPip {
            index: url("http://index.example.org:8080/simple/"),
        });
    })
}

fn missing(native: &[&str], npm: &[&str], pip: &[&str]) -> Vec<UnsatisfiedNeed> {
    [("native", native), ("npm", npm), ("pip", pip)]
        .iter()
        .flat_map(|(kind, needs)| {
            needs.iter().map(|need| UnsatisfiedNeed {
                kind,
                need: (*need).to_owned(),
                reason: String::new(),
            })
        })
        .collect()
}

fn context() -> InstallContext {
    InstallContext {
        image: "sha256:image".to_owned(),
        architecture: "amd64".to_owned(),
        ..InstallContext::default()
    }
}

fn list(path: &str, text: &str) -> (RelPath, Vec<u8>) {
    let path = RelPath::parse(path.as_bytes()).expect("a path");
    (path, text.as_bytes().to_vec())
}

fn lists() -> Lists {
    Lists {
        npm: Some((b"{}".to_vec(), b"{\"lockfileVersion\":3}".to_vec())),
        pip: Some(vec![list("requirements.txt", "greeting==1.0\n")]),
    }
}

fn kinds(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.kind.word()).collect()
}

#[test]
fn one_run_for_each_kind_that_something_is_missing_of_or_listed() {
    let none = Vec::new();
    let empty = Lists::default();
    for (missing, lists, expected) in [
        (&none, &empty, &[][..]),
        (&none, &lists(), &["npm", "pip"]),
        (&missing(&["tidy"], &[], &[]), &empty, &["native"]),
        (
            &missing(&["tidy"], &["greeting@1"], &["greeting==1"]),
            &empty,
            &["native", "npm", "pip"],
        ),
        (&missing(&[], &["greeting"], &[]), &lists(), &["npm", "pip"]),
    ] {
        let found = steps(missing, lists, &context(), &everything()).expect("planned");
        assert_eq!(kinds(&found), expected);
    }
}

#[test]
fn a_need_is_refused_and_a_list_left_out_where_nobody_names_an_index() {
    let nothing = PreparationPolicy::default();
    for (missing, key) in [
        (missing(&["tidy"], &[], &[]), "apt"),
        (missing(&[], &["greeting"], &[]), "npm"),
        (missing(&[], &[], &["greeting"]), "pip"),
    ] {
        let error = steps(&missing, &lists(), &context(), &nothing).expect_err("no index");
        assert_eq!(error.code(), "needs_unsatisfied");
        let hint = error.hint().expect("a hint");
        assert!(hint.contains(&format!("preparation: {{{key}: ")), "{hint}");
    }
    assert_eq!(steps(&[], &lists(), &context(), &nothing), Ok(Vec::new()));
    let left_out = not_installed(&lists(), &nothing);
    assert_eq!(
        left_out,
        [
            (Kind::Npm, "package-lock.json"),
            (Kind::Pip, "requirements.txt")
        ]
    );
    assert_eq!(not_installed(&lists(), &everything()), []);
}

#[test]
fn a_policy_that_leaves_nobody_to_reach_says_so() {
    let mut policy = everything();
    if let Some(npm) = &mut policy.npm {
        npm.reach.clear();
    }
    let missing = missing(&[], &["greeting"], &[]);
    let error = steps(&missing, &Lists::default(), &context(), &policy).expect_err("nobody");
    assert_eq!(error.code(), "preparation_egress");
}

#[test]
fn a_need_that_could_be_more_than_a_name_is_refused() {
    let native = [
        "Tidy",
        "tidy-",
        "tidy:i386",
        "tidy=1",
        "tidy/sid",
        "a b",
        "*",
        ";id",
        "-x",
        "",
    ];
    let npm = [
        "git+ssh://x",
        "x@npm:y",
        "../x",
        "x@file:y",
        "--registry=x",
        "x@next",
    ];
    let pip = [
        "-r x",
        "x @ http://y",
        "--index-url=x",
        "./x",
        "x;os_name=='a'",
    ];
    for need in missing(&native, &npm, &pip) {
        let missing = [need];
        let found = steps(&missing, &Lists::default(), &context(), &everything());
        let error = found.expect_err("no name");
        assert_eq!(error.code(), "needs_invalid", "{missing:?}");
    }
}

#[test]
fn what_a_stranger_wrote_is_an_argument_or_a_file_and_never_part_of_a_script() {
    let hostile = Lists {
        npm: Some((b"$(id)".to_vec(), b"`id`".to_vec())),
        pip: Some(vec![list("requirements.txt", "; id"), list("$(id)", "x")]),
    };
    let needs = missing(&["libc++-dev"], &["a@1||2"], &["b[c]>=1,<2"]);
    let found = steps(&needs, &hostile, &context(), &everything()).expect("planned");
    for step in &found {
        let harmless = steps(
            &missing(&["x"], &["x"], &["x"]),
            &Lists::default(),
            &context(),
            &everything(),
        )
        .expect("planned");
        let same = harmless.iter().find(|one| one.kind == step.kind);
        let same = same.expect("of each kind");
        assert_eq!(step.argv[..4], same.argv[..4]);
        assert_eq!(step.environment, same.environment);
        assert_eq!(step.argv.len(), 5);
        assert_eq!(step.argv[4], step.needs[0].as_bytes());
    }
}

#[test]
fn each_run_reaches_its_own_index_and_believes_only_whom_the_host_says() {
    let missing = missing(&["tidy"], &["greeting"], &["greeting"]);
    let found = steps(&missing, &Lists::default(), &context(), &everything()).expect("planned");
    let reach: Vec<String> = found
        .iter()
        .map(|step| step.reach.iter().map(ToString::to_string).collect())
        .collect();
    assert_eq!(
        reach,
        [
            "deb.example.org:80",
            "registry.example.org:443",
            "index.example.org:8080"
        ]
    );
    let variable = |step: &Step, name: &str| {
        let named = step
            .environment
            .iter()
            .find(|(known, _)| known == name.as_bytes());
        named.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let (npm, pip) = (&found[1], &found[2]);
    assert_eq!(
        variable(npm, "npm_config_registry").as_deref(),
        Some("https://registry.example.org/")
    );
    assert_eq!(variable(npm, "npm_config_cafile"), None);
    assert_eq!(
        variable(pip, "PIP_TRUSTED_HOST").as_deref(),
        Some("index.example.org")
    );
    let vouched = InstallContext {
        certificates: Some(b"-----BEGIN CERTIFICATE-----".to_vec()),
        keys: Some(b"-----BEGIN PGP PUBLIC KEY BLOCK-----".to_vec()),
        ..context()
    };
    let found = steps(&missing, &Lists::default(), &vouched, &everything()).expect("planned");
    for step in &found {
        assert_eq!(step.files[0].path, script::CERTIFICATES);
        assert_eq!(
            variable(step, "SSL_CERT_FILE").as_deref(),
            Some(script::CERTIFICATES)
        );
    }
    let conf = found[0].files.last().expect("apt's configuration");
    let conf = String::from_utf8_lossy(&conf.bytes);
    for line in [
        "Dir::Etc::trustedparts \"/scratch/in/keys\";",
        "Acquire::https::CAInfo \"/scratch/in/certificates.pem\";",
        "Dir::Etc::sourcelist \"/scratch/in/sources.list\";",
        "APT::Get::AllowUnauthenticated \"false\";",
    ] {
        assert!(conf.contains(line), "{line}\n{conf}");
    }
}

#[test]
fn a_layer_is_kept_under_all_that_decides_it() {
    let wanted = || missing(&["tidy"], &["greeting"], &["greeting"]);
    let keys = |missing: &[UnsatisfiedNeed],
                lists: &Lists,
                context: &InstallContext,
                policy: &PreparationPolicy| {
        let found = steps(missing, lists, context, policy).expect("planned");
        let keys: Vec<Digest> = found.iter().map(|step| step.key).collect();
        [keys[0], keys[1], keys[2]]
    };
    let first = keys(&wanted(), &lists(), &context(), &everything());
    assert_eq!(first, keys(&wanted(), &lists(), &context(), &everything()));
    let changes = |other: [Digest; 3]| [0, 1, 2].map(|at: usize| other[at] != first[at]);
    let elsewhere = || InstallContext {
        image: "sha256:other".to_owned(),
        ..context()
    };
    assert_eq!(
        changes(keys(&wanted(), &lists(), &elsewhere(), &everything())),
        [true; 3]
    );
    let arm = || InstallContext {
        architecture: "arm64".to_owned(),
        ..context()
    };
    assert_eq!(
        changes(keys(&wanted(), &lists(), &arm(), &everything())),
        [true; 3]
    );
    // A package may be linked against the native packages below it.
    let mut other = wanted();
    other.extend(missing(&["zip"], &[], &[]));
    assert_eq!(
        changes(keys(&other, &lists(), &context(), &everything())),
        [true; 3]
    );
    let other = missing(&["tidy"], &["greeting"], &["greeting==1"]);
    assert_eq!(
        changes(keys(&other, &lists(), &context(), &everything())),
        [false, false, true]
    );
    let mut locked = lists();
    locked.npm = Some((b"{}".to_vec(), b"{\"lockfileVersion\":2}".to_vec()));
    assert_eq!(
        changes(keys(&wanted(), &locked, &context(), &everything())),
        [false, true, false]
    );
    let mut elsewhere = everything();
    if let Some(pip) = &mut elsewhere.pip {
        pip.url = IndexUrl::parse("http://other.example.org/").expect("a URL");
    }
    assert_eq!(
        changes(keys(&wanted(), &lists(), &context(), &elsewhere)),
        [false, false, true]
    );
    let vouched = || InstallContext {
        certificates: Some(b"new".to_vec()),
        ..context()
    };
    let keyed = || InstallContext {
        keys: Some(b"new".to_vec()),
        ..context()
    };
    assert_eq!(
        changes(keys(&wanted(), &lists(), &keyed(), &everything())),
        [true; 3]
    );
    assert_eq!(
        changes(keys(&wanted(), &lists(), &vouched(), &everything())),
        [true; 3]
    );
}

#[test]
fn a_layer_that_was_made_while_more_was_allowed_is_not_taken_once_less_is() {
    let wanted = missing(&[], &["greeting"], &[]);
    let step = |context: &InstallContext, policy: &PreparationPolicy| {
        let found = steps(&wanted, &Lists::default(), context, policy).expect("planned");
        found.into_iter().next().expect("one")
    };
    let first = step(&context(), &everything());
    let mut wider = everything();
    let npm = wider.npm.as_mut().expect("stated");
    npm.reach
        .push(EgressRule::parse("elsewhere.example.org").expect("a rule"));
    assert_ne!(step(&context(), &wider).key, first.key);
    let mut private = everything();
    private.allow_private = vec![IpRange::parse("10.0.0.0/8").expect("a range")];
    assert_ne!(step(&context(), &private).key, first.key);
    let added = |name: &str| InstallContext {
        added_hosts: vec![AddedHost {
            name: HostName::parse(name.as_bytes()).expect("a name"),
            address: "192.0.2.7".parse().expect("an address"),
        }],
        ..context()
    };
    let moved = step(&added("registry.example.org"), &everything());
    assert_ne!(moved.key, first.key);
    assert_eq!(moved.added_hosts.len(), 1);
    // Hosts that the preparation does not reach are not part of the key.
    assert_eq!(step(&added("other.example.org"), &everything()), first);
}
