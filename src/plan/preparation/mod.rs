//! What has to be installed before a body of `engine: sandbox` starts, and how: one preparation
//! run for each kind of package, each with one layer as its result.
//!
//! A need, a lock file and a list of requirements are a stranger's. None of their text becomes part
//! of a script: names are arguments, after `--`, and files are files.
#![forbid(unsafe_code)]

mod failure;
mod requirements;
mod script;

use serde::Serialize;

pub use crate::plan::preparation::failure::{Failure, explain};
pub use crate::plan::preparation::requirements::RequirementsError;
pub(crate) use crate::plan::preparation::requirements::named_lists;
use crate::plan::preparation::script::{apt_conf, environment, script};
use spec::digest::Digest;
use spec::egress::EgressRule;
use spec::image::is_package_name;
use spec::needs::{NeedError, npm, pip};
use spec::network::AddedHost;
use spec::path::{RelPath, escape};
use spec::preparation::{AptPolicy, PreparationPolicy};
use spec::runner_report::UnsatisfiedNeed;

/// Version of what a preparation makes of its needs. It changes when the same key would stand for
/// another layer.
const RULES: u32 = 1;
/// Where a run leaves its layer.
pub const LAYER: &str = "/scratch/layer";
/// Where a run leaves the archives of native packages.
pub(crate) const DEBS: &str = "/scratch/debs";
/// Where Python packages are, in the layer and for the body: `PYTHONUSERBASE`.
pub const PYTHON: &str = "/opt/runner/python";
/// Where npm packages are, in the layer and for the body.
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
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Native, Self::Npm, Self::Pip];

    /// As `needs` names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Npm => "npm",
            Self::Pip => "pip",
        }
    }

    /// The key of the host configuration that says where packages of this kind come from.
    #[must_use]
    pub(crate) const fn policy_key(self) -> &'static str {
        match self {
            Self::Native => "preparation: {apt: {sources: [LINE]}}",
            Self::Npm => "preparation: {npm: {registry: URL}}",
            Self::Pip => "preparation: {pip: {index: URL}}",
        }
    }

    /// The program of the image without which nothing of this kind is installed.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Native => "apt-get",
            Self::Npm => "npm",
            Self::Pip => "python3",
        }
    }
}

/// What is missing, as the manifest says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Of `needs.native`.
    pub native: Vec<String>,
    /// Of `needs.npm`.
    pub npm: Vec<String>,
    /// Of `needs.pip`.
    pub pip: Vec<String>,
}

impl Missing {
    /// What has to be installed of what is not there; a language cannot be.
    #[must_use]
    pub fn of(unsatisfied: &[UnsatisfiedNeed]) -> Self {
        let of_kind = |kind: Kind| {
            let needs = unsatisfied.iter().filter(|need| need.kind == kind.word());
            needs.map(|need| need.need.clone()).collect()
        };
        Self {
            native: of_kind(Kind::Native),
            npm: of_kind(Kind::Npm),
            pip: of_kind(Kind::Pip),
        }
    }
}

/// The bundle's own lists of what it wants, which needs come on top of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// `package.json` and `package-lock.json`, where it has both and no `node_modules`.
    pub npm: Option<(Vec<u8>, Vec<u8>)>,
    /// `requirements.txt`, and behind it the lists that it names, each with its path in the bundle.
    pub pip: Option<Vec<(RelPath, Vec<u8>)>>,
}

/// What the packages are installed on, and who vouches for their indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ground {
    /// Digest of the image's manifest.
    pub image: String,
    /// The image's architecture, as OCI names it.
    pub architecture: String,
    /// The content of `preparation.ca_file`.
    pub certificates: Option<Vec<u8>>,
    /// The content of `preparation.apt.trusted_keys`.
    pub keys: Option<Vec<u8>>,
    /// `--add-host` of the caller.
    pub added_hosts: Vec<AddedHost>,
}

/// A file that a run is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenFile {
    /// Inside; absolute, below `/scratch`.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// One preparation run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub kind: Kind,
    /// The needs that it is for; empty where it is for the bundle's own lists only.
    pub needs: Vec<String>,
    /// Where the packages come from.
    pub from: Vec<String>,
    /// Whom it may reach.
    pub reach: Vec<EgressRule>,
    /// Where some of those are, by the caller's word.
    pub added_hosts: Vec<AddedHost>,
    pub argv: Vec<Vec<u8>>,
    /// What it is given.
    pub files: Vec<GivenFile>,
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// What its layer is kept under.
    pub key: Digest,
}

/// Why nothing is installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreparationError {
    /// The host names no index.
    #[error(
        "`runner.needs.{}` asks for {}, which neither the image nor the bundle has, and the host \
         configuration does not say where to install it from",
        kind.word(), shown(needs)
    )]
    NoIndex {
        /// What is asked for.
        kind: Kind,
        /// As the manifest says it.
        needs: Vec<String>,
    },
    /// The bounds that hold leave nothing of the hosts of the index.
    #[error(
        "`runner.needs.{}` asks for {}, and the host configuration leaves nobody whom its \
         preparation may reach", kind.word(), shown(needs)
    )]
    NoReach {
        /// What is asked for.
        kind: Kind,
        /// As the manifest says it.
        needs: Vec<String>,
    },
    /// No name that could be asked of an index.
    #[error("`runner.needs.{}`: the need {} {problem}", kind.word(), escape(need.as_bytes()))]
    Need {
        /// What is asked for.
        kind: Kind,
        /// As the manifest says it.
        need: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl PreparationError {
    /// Stable.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoIndex { .. } => "needs_unsatisfied",
            Self::NoReach { .. } => "preparation_egress",
            Self::Need { .. } => "needs_invalid",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoIndex { kind, .. } => Some(format!(
                "add `{}` to the host configuration, name an image that has it, or bring it in \
                 the bundle",
                kind.policy_key()
            )),
            Self::NoReach { .. } => Some(
                "an index has to stand in `preparation: {allow: […]}` where that is stated, and in \
                 `egress: {allow: […]}` of every file before the one that states the index"
                    .to_owned(),
            ),
            Self::Need { .. } => None,
        }
    }
}

fn shown(needs: &[String]) -> String {
    let needs: Vec<String> = needs.iter().map(|need| escape(need.as_bytes())).collect();
    match needs.is_empty() {
        true => "what the bundle lists".to_owned(),
        false => needs.join(", "),
    }
}

/// The runs that install what is missing, in order. A bundle's own lists are installed too, where
/// the host says from where.
///
/// # Errors
/// [`PreparationError`]: the first need that cannot be met.
pub fn steps(
    missing: &Missing,
    lists: &Lists,
    ground: &Ground,
    policy: &PreparationPolicy,
) -> Result<Vec<Step>, PreparationError> {
    let mut steps: Vec<Step> = Vec::new();
    for kind in Kind::ALL {
        let needs = checked(kind, missing)?;
        let listed = match kind {
            Kind::Native => false,
            Kind::Npm => lists.npm.is_some(),
            Kind::Pip => lists.pip.is_some(),
        };
        if needs.is_empty() && !listed {
            continue;
        }
        let Some(place) = Place::of(kind, policy, ground) else {
            if needs.is_empty() {
                continue;
            }
            return Err(PreparationError::NoIndex { kind, needs });
        };
        if place.reach.is_empty() {
            return Err(PreparationError::NoReach { kind, needs });
        }
        let native = steps.first().filter(|first| first.kind == Kind::Native);
        let below = native.map(|first| first.key.to_string());
        steps.push(place.step(kind, needs, lists, ground, policy, below));
    }
    Ok(steps)
}

/// What the bundle lists and nobody says where to install from: its runs begin without it.
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

/// The needs of one kind, each of which can be an argument and nothing else.
fn checked(kind: Kind, missing: &Missing) -> Result<Vec<String>, PreparationError> {
    let needs = match kind {
        Kind::Native => &missing.native,
        Kind::Npm => &missing.npm,
        Kind::Pip => &missing.pip,
    };
    for need in needs {
        let problem = match kind {
            // apt-get reads `name-` as a wish to remove, `name:arch` and `name/suite` as others.
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
    Ok(needs.clone())
}

fn problem(error: Option<NeedError>) -> Option<String> {
    error.map(|error| error.to_string())
}

/// Where packages of a kind come from.
struct Place<'policy> {
    from: Vec<String>,
    reach: Vec<EgressRule>,
    apt: Option<&'policy AptPolicy>,
    /// The one URL, and the host in it that is believed without TLS.
    index: Option<(&'policy str, Option<String>)>,
    certificates: Option<&'policy [u8]>,
    keys: Option<&'policy [u8]>,
}

impl<'policy> Place<'policy> {
    fn of(kind: Kind, policy: &'policy PreparationPolicy, ground: &'policy Ground) -> Option<Self> {
        let certificates = ground.certificates.as_deref();
        let index = match kind {
            Kind::Native => {
                let apt = policy.apt.as_ref()?;
                return Some(Self {
                    from: apt.sources.iter().map(|one| one.line.clone()).collect(),
                    reach: apt.reach.clone(),
                    apt: Some(apt),
                    index: None,
                    certificates,
                    keys: ground.keys.as_deref(),
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
            index: Some((&index.url.text, plain)),
            certificates,
            keys: None,
        })
    }

    fn step(
        self,
        kind: Kind,
        needs: Vec<String>,
        lists: &Lists,
        ground: &Ground,
        policy: &PreparationPolicy,
        below: Option<String>,
    ) -> Step {
        let files = self.files(kind, lists);
        let is_reached = |host: &&AddedHost| self.reach.iter().any(|rule| rule.names(&host.name));
        let added_hosts: Vec<AddedHost> = ground
            .added_hosts
            .iter()
            .filter(is_reached)
            .cloned()
            .collect();
        let key = Digest::of(&key_text(&Key {
            rules: RULES,
            kind,
            image: &ground.image,
            architecture: &ground.architecture,
            below,
            from: &self.from,
            // What a script of a package could reach, and who was believed: a layer that was made
            // while more was allowed is not taken for one that is made while less is.
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
        let index = self
            .index
            .as_ref()
            .map(|(url, plain)| (*url, plain.as_deref()));
        Step {
            kind,
            from: self.from,
            reach: self.reach,
            added_hosts,
            argv,
            environment: environment(kind, index, self.certificates.is_some()),
            files,
            key,
            needs,
        }
    }

    fn files(&self, kind: Kind, lists: &Lists) -> Vec<GivenFile> {
        let file = |path: &str, bytes: &[u8]| GivenFile {
            path: path.to_owned(),
            bytes: bytes.to_vec(),
        };
        let mut files: Vec<GivenFile> = Vec::new();
        if let Some(bytes) = self.certificates {
            files.push(file(script::CERTIFICATES, bytes));
        }
        if let Some(apt) = self.apt {
            let keys = self.keys.map(script::keys_name);
            if let (Some(name), Some(bytes)) = (keys, self.keys) {
                files.push(file(name, bytes));
            }
            let lines: Vec<&str> = apt.sources.iter().map(|one| one.line.as_str()).collect();
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

/// What decides a layer.
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
    // Text, numbers and lists only: nothing that JSON cannot hold.
    serde_json::to_vec(key).unwrap_or_default()
}

#[cfg(test)]
mod tests;
