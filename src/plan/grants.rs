//! Grants: a bundle's manifest asks, the caller and the host policy grant.

use egress::allowlist::flag;
use spec::egress::EgressRule;
use spec::manifest::{Manifest, SecretRequest};
use spec::request::Grants;

/// Where a manifest comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From the bundle: it only asks.
    Bundle,
    /// From `--manifest`: the caller grants what it asks for.
    Caller,
}

/// Something that a bundle's own manifest asks for and nobody granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ungranted {
    /// What, with the key of the manifest.
    pub what: String,
    /// The flag that grants it.
    pub flag: String,
}

/// What the caller and the host policy grant.
#[derive(Debug, Clone, Default)]
pub struct Granted<'run> {
    /// Of `--grant` and of the host policy.
    pub grants: Grants,
    /// Of `--allow-net`.
    pub hosts: &'run [EgressRule],
    /// The host has a provider, which `--grant secrets` lets a bundle ask.
    pub has_secrets_provider: bool,
    /// Names of `-e` and `--secret`.
    pub variables: Vec<&'run [u8]>,
    /// `--workspace` is set.
    pub workspace: bool,
    /// `--out-dir` is set.
    pub output_directory: bool,
}

/// Everything that `manifest` asks for without a grant. Empty for the caller's own manifest.
#[must_use]
pub fn ungranted(manifest: &Manifest, origin: Origin, granted: &Granted<'_>) -> Vec<Ungranted> {
    if origin == Origin::Caller {
        return Vec::new();
    }
    let mut missing = Vec::new();
    let mut ask = |is_granted: bool, what: String, flag: String| {
        if !is_granted {
            missing.push(Ungranted { what, flag });
        }
    };
    for request in &manifest.egress {
        let host = request.rule.to_string();
        let mut named = granted.hosts.iter();
        let is_granted = granted.grants.egress || named.any(|rule| rule.covers(&request.rule));
        ask(
            is_granted,
            format!("egress to {host} ({})", request.source),
            flag(&request.rule),
        );
    }
    // A literal needs no grant: the body could set the variable itself.
    let of_host = |secret: &&SecretRequest| secret.reference.is_secret();
    for secret in manifest.secrets.iter().filter(of_host) {
        let is_granted =
            granted.grants.secrets || granted.variables.contains(&secret.variable.as_bytes());
        ask(
            is_granted,
            format!("secret {} ({})", secret.variable, secret.source),
            if granted.has_secrets_provider {
                "--grant secrets".to_owned()
            } else {
                format!("--secret {}=env:{}", secret.variable, secret.variable)
            },
        );
    }
    for name in &manifest.env_passthrough {
        let is_granted = granted.grants.env || granted.variables.contains(&name.as_bytes());
        ask(
            is_granted,
            format!("variable {name} (sandbox.env.passthrough)"),
            format!("-e {name}"),
        );
    }
    for mount in &manifest.mounts {
        let target = mount.target.as_str();
        ask(
            granted.grants.mounts,
            format!(
                "{} mount of the workspace at {target} ({})",
                mount.mode.name(),
                mount.source
            ),
            "--grant mounts".to_owned(),
        );
    }
    for source in &manifest.workspace_sources {
        ask(
            granted.grants.sources,
            format!("workspace source {}", source.id),
            "--grant sources".to_owned(),
        );
    }
    for restriction in &manifest.restrictions {
        ask(
            granted.grants.policy,
            format!("to be run although `{}` restricts it", restriction.source),
            "--grant policy".to_owned(),
        );
    }
    let (inputs, mut outputs) = (
        manifest.io.input_files.len(),
        manifest.io.output_files.len(),
    );
    if granted.output_directory {
        outputs = 0;
    }
    let files = inputs + outputs;
    let noun = if files == 1 { "file" } else { "files" };
    ask(
        granted.workspace || files == 0,
        format!("{files} {noun} of a workspace (inputsFiles, outputsFiles)"),
        "--workspace DIR".to_owned(),
    );
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::manifest::{self, Format};
    use spec::parse_permit::ParsePermit;

    const GREEDY: &str = "run: x.sh\nnetwork: {egress: [evil.com]}\n\
        secrets: {KEY: {vault: key}}\n\
        sandbox: {provider: local, config: {}, env: {passthrough: [HOST]}, \
        mounts: [{source: workspace, at: /w}]}\n\
        inputsFiles: {k: {path: .ssh/id_rsa}}\n";

    fn parse(text: &str) -> Manifest {
        let permit = ParsePermit::for_trusted_text();
        manifest::parse(&permit, text.as_bytes(), Format::Yaml, "manifest.yaml").expect("parsed")
    }

    #[test]
    fn a_bundle_s_own_manifest_only_asks() {
        let manifest = parse(GREEDY);
        let missing = ungranted(&manifest, Origin::Bundle, &Granted::default());
        let flags: Vec<&str> = missing.iter().map(|item| item.flag.as_str()).collect();
        assert_eq!(
            flags,
            [
                "--allow-net evil.com",
                "--secret KEY=env:KEY",
                "-e HOST",
                "--grant mounts",
                "--workspace DIR"
            ]
        );
        assert!(ungranted(&manifest, Origin::Caller, &Granted::default()).is_empty());
    }

    #[test]
    fn a_secret_of_the_host_s_provider_needs_its_grant() {
        let manifest = parse(GREEDY);
        let mut granted = Granted {
            has_secrets_provider: true,
            ..Granted::default()
        };
        let asks = |granted: &Granted<'_>| {
            let missing = ungranted(&manifest, Origin::Bundle, granted);
            missing.iter().any(|item| item.flag == "--grant secrets")
        };
        assert!(asks(&granted));
        granted.grants.secrets = true;
        assert!(!asks(&granted));
    }

    #[test]
    fn a_place_for_outputs_grants_those_and_no_input() {
        let of_caller = Granted {
            output_directory: true,
            ..Granted::default()
        };
        for (block, granted) in [("outputsFiles", true), ("inputsFiles", false)] {
            let text = format!("run: x.sh\n{block}: {{k: {{path: x}}}}\n");
            let manifest = parse(&text);
            let missing = ungranted(&manifest, Origin::Bundle, &of_caller);
            assert_eq!(missing.is_empty(), granted, "{block}");
        }
    }

    #[test]
    fn a_literal_needs_no_grant() {
        let text = "run: x.sh\nsecrets: {REGION: {value: eu}, KEY: {oauth: github}}\n";
        let manifest = parse(text);
        let missing = ungranted(&manifest, Origin::Bundle, &Granted::default());
        let flags: Vec<&str> = missing.iter().map(|item| item.flag.as_str()).collect();
        assert_eq!(flags, ["--secret KEY=env:KEY"]);
    }

    #[test]
    fn a_host_is_granted_by_whatever_flag_allows_all_of_it() {
        let text = "run: x.sh\nnetwork: {egress: ['api.a.com:443']}\n";
        let manifest = parse(text);
        for (flag, granted) in [
            ("api.a.com:443", true),
            ("api.a.com", true),
            ("*.a.com", true),
            ("*.a.com:443", true),
            ("api.a.com:80", false),
            ("a.com", false),
        ] {
            let hosts = [EgressRule::parse(flag).expect(flag)];
            let of_caller = Granted {
                hosts: &hosts,
                ..Granted::default()
            };
            let missing = ungranted(&manifest, Origin::Bundle, &of_caller);
            assert_eq!(missing.is_empty(), granted, "{flag}");
        }
    }

    #[test]
    fn each_grant_satisfies_its_own_kind_only() {
        let manifest = parse(GREEDY);
        let grants = Grants {
            egress: true,
            mounts: true,
            ..Grants::default()
        };
        let of_caller = Granted {
            grants,
            variables: vec![b"HOST"],
            ..Granted::default()
        };
        let missing = ungranted(&manifest, Origin::Bundle, &of_caller);
        let flags: Vec<&str> = missing.iter().map(|item| item.flag.as_str()).collect();
        assert_eq!(flags, ["--secret KEY=env:KEY", "--workspace DIR"]);
    }
}
