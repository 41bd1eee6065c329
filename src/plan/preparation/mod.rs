//! Plans the preparation runs that install packages before a body of `engine: sandbox` starts: one
//! run for each kind of package. The result of each is one layer.
//!
//! Needs, lock files and lists of requirements are untrusted. None of their text becomes part of a
//! script: names are arguments after `--`, and files stay files.

mod failure;
mod requirements;
mod script;

use serde::Serialize;

pub use crate::plan::preparation::failure::{Failure, explain};
pub use crate::plan::preparation::requirements::RequirementsError;
pub(crate) use crate::plan::preparation::requirements::{included_names, resolve_included};
use crate::plan::preparation::script::{apt_conf, environment, script};
use spec::digest::Digest;
use spec::egress::EgressRule;
use spec::image::is_package_name;
use spec::needs::{NeedError, npm, pip};
use spec::network::AddedHost;
use spec::path::{RelPath, escape};
use spec::preparation::{AptPolicy, PreparationPolicy};
use spec::runner_report::UnsatisfiedNeed;

/// Version of the scripts. Increase it when the same needs would give another layer.
const RULES: u32 = 1;
/// Directory in which a run leaves its layer.
pub const LAYER: &str = "/scratch/layer";
/// Directory in which a run leaves the archives of native packages.
pub(crate) const DEBS: &str = "/scratch/debs";
/// Directory of Python packages, in the layer and for the body: `PYTHONUSERBASE`.
pub const PYTHON: &str = "/opt/runner/python";
/// Directory of npm packages, in the layer and for the body.
pub(crate) const NODE_MODULES: &str = "/node_modules";

/// A kind of package, in the order in which they are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Packages of the operating system.
    Native,
    Npm,
    Pip,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Native, Self::Npm, Self::Pip];

    /// The name in `needs`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Npm => "npm",
            Self::Pip => "pip",
        }
    }

    /// The key of the host configuration for the index of this kind.
    #[must_use]
    pub(crate) const fn policy_key(self) -> &'static str {
        match self {
            Self::Native => "preparation: {apt: {sources: [LINE]}}",
            Self::Npm => "preparation: {npm: {registry: URL}}",
            Self::Pip => "preparation: {pip: {index: URL}}",
        }
    }

    /// The program of the image that installs this kind.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Native => "apt-get",
            Self::Npm => "npm",
            Self::Pip => "python3",
        }
    }
}

/// The bundle's own lists of packages, which are installed in addition to the needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// `package.json` and `package-lock.json`, if it has both and no `node_modules`.
    pub npm: Option<(Vec<u8>, Vec<u8>)>,
    /// `requirements.txt`, then the lists that it names, each with its path in the bundle.
    pub pip: Option<Vec<(RelPath, Vec<u8>)>>,
}

/// What the packages are installed on, and what authenticates their indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallContext {
    /// Digest of the image's manifest.
    pub image: String,
    /// The architecture of this host.
    pub architecture: String,
    /// The content of `preparation.ca_file`.
    pub certificates: Option<Vec<u8>>,
    /// The content of `preparation.apt.trusted_keys`.
    pub keys: Option<Vec<u8>>,
    /// `--add-host` of the caller.
    pub added_hosts: Vec<AddedHost>,
}

/// An input file of a preparation run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFile {
    /// Its absolute path inside, below `/scratch`.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// One preparation run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub kind: Kind,
    /// The needs that it installs; empty if it installs the bundle's own lists only.
    pub needs: Vec<String>,
    /// URLs or lines of `sources.list` that the packages come from.
    pub from: Vec<String>,
    /// Hosts that it may reach.
    pub reach: Vec<EgressRule>,
    /// Addresses of those hosts from the caller's `--add-host`.
    pub added_hosts: Vec<AddedHost>,
    pub argv: Vec<Vec<u8>>,
    pub files: Vec<StepFile>,
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The key of its layer in the store.
    pub key: Digest,
}

/// Why packages cannot be installed. Needs are as the manifest writes them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreparationError {
    /// The host configuration has no index for this kind.
    #[error(
        "`runner.needs.{}` asks for {}, which neither the image nor the bundle has, and the host \
         configuration does not say where to install it from",
        kind.word(), shown(needs)
    )]
    NoIndex { kind: Kind, needs: Vec<String> },
    /// The host policy allows no host of the index.
    #[error(
        "`runner.needs.{}` asks for {}, and the host configuration allows its preparation to reach \
         no host", kind.word(), shown(needs)
    )]
    NoReach { kind: Kind, needs: Vec<String> },
    /// Not a valid name of a package.
    #[error("`runner.needs.{}`: the need {} {problem}", kind.word(), escape(need.as_bytes()))]
    Need {
        kind: Kind,
        need: String,
        problem: String,
    },
}

impl PreparationError {
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoIndex { .. } => "needs_unsatisfied",
            Self::NoReach { .. } => "preparation_egress",
            Self::Need { .. } => "needs_invalid",
        }
    }

    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoIndex { kind, .. } => Some(format!(
                "add `{}` to the host configuration, name an image that has it, or put it into \
                 the bundle",
                kind.policy_key()
            )),
            Self::NoReach { .. } => Some(
                "add the index to `preparation: {allow: […]}` if that is set, and to \
                 `egress: {allow: […]}` of every file before the one that sets the index"
                    .to_owned(),
            ),
            Self::Need { .. } => None,
        }
    }
}

fn shown(needs: &[String]) -> String {
    let needs: Vec<String> = needs.iter().map(|need| escape(need.as_bytes())).collect();
    if needs.is_empty() {
        "what the bundle lists".to_owned()
    } else {
        needs.join(", ")
    }
}

/// The runs that install the packages among `unsatisfied`, in order. A bundle's own lists are installed
/// too, if the host configuration has an index for them.
///
/// # Errors
/// [`PreparationError`] for the first need that cannot be met.
pub fn steps(
    unsatisfied: &[UnsatisfiedNeed],
    lists: &Lists,
    context: &InstallContext,
    policy: &PreparationPolicy,
) -> Result<Vec<Step>, PreparationError> {
    let mut steps: Vec<Step> = Vec::new();
    for kind in Kind::ALL {
        let needs = package_names(kind, unsatisfied)?;
        let listed = match kind {
            Kind::Native => false,
            Kind::Npm => lists.npm.is_some(),
            Kind::Pip => lists.pip.is_some(),
        };
        if needs.is_empty() && !listed {
            continue;
        }
        let Some(index) = Index::of(kind, policy, context) else {
            if needs.is_empty() {
                continue;
            }
            return Err(PreparationError::NoIndex { kind, needs });
        };
        if index.reach.is_empty() {
            return Err(PreparationError::NoReach { kind, needs });
        }
        let native = steps.first().filter(|first| first.kind == Kind::Native);
        let below = native.map(|first| first.key.to_string());
        steps.push(index.step(kind, needs, lists, context, policy, below));
    }
    Ok(steps)
}

/// Lists of the bundle for which the host has no index. Its runs start without those packages.
#[must_use]
pub(crate) fn not_installed(
    lists: &Lists,
    policy: &PreparationPolicy,
) -> Vec<(Kind, &'static str)> {
    let npm =
        (lists.npm.is_some() && policy.npm.is_none()).then_some((Kind::Npm, "package-lock.json"));
    let pip =
        (lists.pip.is_some() && policy.pip.is_none()).then_some((Kind::Pip, "requirements.txt"));
    npm.into_iter().chain(pip).collect()
}

/// The needs of one kind, each checked to be a plain name of a package.
fn package_names(
    kind: Kind,
    unsatisfied: &[UnsatisfiedNeed],
) -> Result<Vec<String>, PreparationError> {
    let of_kind = unsatisfied.iter().filter(|need| need.kind == kind.word());
    let needs: Vec<String> = of_kind.map(|need| need.need.clone()).collect();
    for need in &needs {
        let problem = match kind {
            // apt-get removes `name-`, and treats `name:arch` and `name/suite` specially.
            Kind::Native => (!is_package_name(need) || need.ends_with('-') || need.contains(':'))
                .then(|| "is no Debian name such as ffmpeg".to_owned()),
            Kind::Npm => problem(npm::Requirement::parse(need).err()),
            Kind::Pip => problem(pip::Requirement::parse(need).err()),
        };
        if let Some(problem) = problem {
            let need = need.clone();
            return Err(PreparationError::Need {
                kind,
                need,
                problem,
            });
        }
    }
    Ok(needs)
}

fn problem(error: Option<NeedError>) -> Option<String> {
    error.map(|error| error.to_string())
}

/// The source of the packages of one kind.
struct Index<'policy> {
    from: Vec<String>,
    reach: Vec<EgressRule>,
    apt: Option<&'policy AptPolicy>,
    /// Its URL, and the host of the URL if it is trusted without TLS.
    url: Option<(&'policy str, Option<String>)>,
    certificates: Option<&'policy [u8]>,
    keys: Option<&'policy [u8]>,
}

impl<'policy> Index<'policy> {
    fn of(
        kind: Kind,
        policy: &'policy PreparationPolicy,
        context: &'policy InstallContext,
    ) -> Option<Self> {
        let certificates = context.certificates.as_deref();
        let index = match kind {
            Kind::Native => {
                let apt = policy.apt.as_ref()?;
                return Some(Self {
                    from: apt.sources.iter().map(|row| row.line.clone()).collect(),
                    reach: apt.reach.clone(),
                    apt: Some(apt),
                    url: None,
                    certificates,
                    keys: context.keys.as_deref(),
                });
            }
            Kind::Npm => policy.npm.as_ref()?,
            Kind::Pip => policy.pip.as_ref()?,
        };
        let plain = index.url.is_plain().then(|| index.url.host());
        Some(Self {
            from: vec![index.url.text.clone()],
            reach: index.reach.clone(),
            apt: None,
            url: Some((&index.url.text, plain)),
            certificates,
            keys: None,
        })
    }

    fn step(
        self,
        kind: Kind,
        needs: Vec<String>,
        lists: &Lists,
        context: &InstallContext,
        policy: &PreparationPolicy,
        below: Option<String>,
    ) -> Step {
        let files = self.files(kind, lists);
        let is_reached = |host: &&AddedHost| self.reach.iter().any(|rule| rule.names(&host.name));
        let added_hosts: Vec<AddedHost> = context
            .added_hosts
            .iter()
            .filter(is_reached)
            .cloned()
            .collect();
        let key = Digest::of(&key_text(&Key {
            rules: RULES,
            kind,
            image: &context.image,
            architecture: &context.architecture,
            below,
            from: &self.from,
            // What a script of a package could reach and which hosts were trusted: a layer that was
            // made while more was allowed must not be reused when less is.
            reach: shown_all(&self.reach),
            private: shown_all(&policy.allow_private),
            added_hosts: shown_all(&added_hosts),
            needs: &needs,
            files: files
                .iter()
                .filter(|file| file.path != script::APT_CONF)
                .map(|file| (file.path.as_str(), Digest::of(&file.bytes)))
                .collect(),
        }));
        let words = ["/bin/sh", "-c", script(kind), kind.program()];
        let argv = words
            .into_iter()
            .chain(needs.iter().map(String::as_str))
            .map(|word| word.as_bytes().to_vec())
            .collect();
        let url = self
            .url
            .as_ref()
            .map(|(url, plain)| (*url, plain.as_deref()));
        Step {
            kind,
            from: self.from,
            reach: self.reach,
            added_hosts,
            argv,
            environment: environment(kind, url, self.certificates.is_some()),
            files,
            key,
            needs,
        }
    }

    fn files(&self, kind: Kind, lists: &Lists) -> Vec<StepFile> {
        let file = |path: &str, bytes: &[u8]| StepFile {
            path: path.to_owned(),
            bytes: bytes.to_vec(),
        };
        let mut files: Vec<StepFile> = Vec::new();
        if let Some(bytes) = self.certificates {
            files.push(file(script::CERTIFICATES, bytes));
        }
        if let Some(apt) = self.apt {
            let keys = self.keys.map(script::keys_name);
            if let (Some(name), Some(bytes)) = (keys, self.keys) {
                files.push(file(name, bytes));
            }
            let lines: Vec<&str> = apt.sources.iter().map(|row| row.line.as_str()).collect();
            if !lines.is_empty() {
                let text = lines.join("\n") + "\n";
                files.push(file(script::SOURCES, text.as_bytes()));
            }
            let conf = apt_conf(
                !lines.is_empty(),
                keys.is_some(),
                self.certificates.is_some(),
            );
            files.push(file(script::APT_CONF, conf.as_bytes()));
        }
        match (kind, &lists.npm, &lists.pip) {
            (Kind::Npm, Some((package, lock)), _) => {
                files.push(file("/scratch/work/package.json", package));
                files.push(file("/scratch/work/package-lock.json", lock));
            }
            (Kind::Pip, _, Some(lists)) => files.extend(lists.iter().map(|(path, bytes)| {
                let path = String::from_utf8_lossy(path.as_bytes());
                file(&format!("{}/{path}", script::LISTS), bytes)
            })),
            _ => (),
        }
        files
    }
}

/// Everything that decides the content of a layer.
#[derive(Serialize)]
struct Key<'step> {
    rules: u32,
    kind: Kind,
    image: &'step str,
    architecture: &'step str,
    below: Option<String>,
    from: &'step [String],
    reach: Vec<String>,
    private: Vec<String>,
    added_hosts: Vec<String>,
    needs: &'step [String],
    files: Vec<(&'step str, Digest)>,
}

fn shown_all(all: &[impl ToString]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// The same text for the same key: fields in one order, no white space.
fn key_text(key: &Key<'_>) -> Vec<u8> {
    // Strings, numbers and lists only: this cannot fail.
    serde_json::to_vec(key).unwrap_or_default()
}

#[cfg(test)]
mod tests;
