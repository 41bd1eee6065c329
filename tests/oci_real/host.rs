//! A host with a registry that requires TLS and a login, a credential helper, and a store.

use std::path::PathBuf;
use std::process::{Command, Output};

use support::registry::{Options, Registry};
use support::{Case, Ground, random, runner};

pub(crate) struct Host {
    pub(crate) ground: Ground,
    pub(crate) registry: Registry,
    policy: PathBuf,
    /// The directory of the store.
    store: PathBuf,
}

impl Host {
    /// `None`, with a printed skip, if no registry is available.
    pub(crate) fn new() -> Option<Self> {
        let registry = Registry::start(Options {
            tls: true,
            login: true,
        })?;
        let ground = Ground::new();
        registry.log_in_by_helper(&ground.path("docker"), &ground.path("programs"));
        let mut host = Self {
            policy: ground.path("policy.yaml"),
            store: PathBuf::new(),
            ground,
            registry,
        };
        host.forget();
        host.allow("");
        Some(host)
    }

    /// Uses another, empty store from now on.
    pub(crate) fn forget(&mut self) {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        self.store = self.ground.path(&format!("store-{}", random()));
        std::fs::create_dir(&self.store).expect("made");
        std::fs::set_permissions(&self.store, private).expect("set");
    }

    /// The policy with these lines and the authority of the registry, which is the default registry.
    pub(crate) fn allow(&mut self, lines: &str) {
        let registry = self.registry.reference("");
        let text = format!(
            "oci: {{ca_file: {}, default_registry: '{}'}}\n{lines}",
            self.registry.authority(),
            registry.trim_end_matches('/')
        );
        std::fs::write(&self.policy, text).expect("written");
    }

    /// `docker://` and the reference.
    pub(crate) fn docker(&self, name: &str) -> String {
        format!("docker://{}", self.registry.reference(name))
    }

    fn environment(&self) -> [(&'static str, String); 3] {
        let text = |name: &str| self.ground.path(name).to_str().expect("plain").to_owned();
        let path = std::env::var("PATH").expect("a path");
        let store = self.store.to_str().expect("plain");
        [
            ("RUNNER_OPT_OCI_DIRECTORY", store.to_owned()),
            ("DOCKER_CONFIG", text("docker")),
            ("PATH", format!("{}:{path}", text("programs"))),
        ]
    }

    /// `runner source WORDS…`.
    pub(crate) fn source(&self, words: &[&str]) -> Output {
        let mut command = Command::new(runner());
        command.arg("source").args(words);
        command.arg("--policy").arg(&self.policy);
        command
            .envs(self.environment())
            .env("HOME", self.ground.path("home"));
        command.output().expect("the runner starts")
    }

    /// Its output; on an error, panics with its message.
    #[track_caller]
    pub(crate) fn source_ok(&self, words: &[&str]) -> String {
        let output = self.source(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "source {words:?}: {said}");
        for text in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(text);
            assert!(!text.contains(self.registry.password()), "{text}");
        }
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// `runner WORDS…`, not started, with this host's policy.
    pub(crate) fn command(&self, words: &[&str]) -> Case<'_> {
        let (verb, rest) = words.split_first().expect("a verb");
        let policy = format!("--policy={}", self.policy.display());
        let words: Vec<&str> = [*verb, &policy].iter().chain(rest).copied().collect();
        let case = self.ground.command(&words);
        self.environment()
            .iter()
            .fold(case, |case, (name, value)| case.env(name, value))
    }
}
