//! The scripts of preparation runs, their environment, and apt's configuration.

use crate::plan::preparation::Kind;

/// Certificate authorities of the indexes.
pub(super) const CERTIFICATES: &str = "/scratch/in/certificates.pem";
pub(super) const SOURCES: &str = "/scratch/in/sources.list";
/// Directory of the bundle's lists of Python packages, at their paths in the bundle.
pub(super) const LISTS: &str = "/scratch/in/lists";
pub(super) const APT_CONF: &str = "/scratch/in/apt.conf";

/// All files of apt are below /scratch, because the root may be read-only.
const NATIVE: &str = r#"set -eu
exec 2>&1
mkdir -p /scratch/debs/partial /scratch/apt/lists/partial /scratch/apt/cache /scratch/apt/log
mkdir -p /scratch/in/keys /scratch/apt/none
apt-get -q update
apt-get -q -y --download-only --no-install-recommends install -- "$@"
"#;
const NPM: &str = r#"set -eu
exec 2>&1
mkdir -p /scratch/work /scratch/layer
cd /scratch/work
if [ -e package-lock.json ]; then npm ci; fi
if [ "$#" -gt 0 ]; then npm install --no-save --prefix /scratch/work -- "$@"; fi
mkdir -p node_modules
mv node_modules /scratch/layer/node_modules
"#;
const PIP: &str = r#"set -eu
exec 2>&1
mkdir -p /scratch/layer/opt/runner/python
if [ -e /scratch/in/lists/requirements.txt ]; then
    python3 -m pip install --user -r /scratch/in/lists/requirements.txt
fi
if [ "$#" -gt 0 ]; then python3 -m pip install --user -- "$@"; fi
"#;

/// The text for `sh -c`. Needs are its arguments.
pub(super) const fn script(kind: Kind) -> &'static str {
    match kind {
        Kind::Native => NATIVE,
        Kind::Npm => NPM,
        Kind::Pip => PIP,
    }
}

/// The path of the keys. apt tells text from binary keys by the suffix.
pub(super) fn keys_name(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(b"-----BEGIN") {
        "/scratch/in/keys/host.asc"
    } else {
        "/scratch/in/keys/host.gpg"
    }
}

/// apt's configuration: the host's sources and keys if it states them, no writes outside /scratch, and
/// no unsigned package.
pub(super) fn apt_conf(has_sources: bool, has_keys: bool, has_certificates: bool) -> String {
    let mut lines = vec![
        // apt's own user is not mapped inside.
        r#"APT::Sandbox::User "root""#.to_owned(),
        r#"APT::Get::AllowUnauthenticated "false""#.to_owned(),
        r#"Acquire::AllowInsecureRepositories "false""#.to_owned(),
        r#"APT::Update::Error-Mode "any""#.to_owned(),
        r#"APT::Install-Recommends "false""#.to_owned(),
        r#"APT::Get::Assume-Yes "true""#.to_owned(),
        r#"Acquire::Languages "none""#.to_owned(),
        r#"Acquire::Retries "1""#.to_owned(),
        r#"Acquire::http::Timeout "30""#.to_owned(),
        r#"Acquire::https::Timeout "30""#.to_owned(),
        r#"Acquire::EnableSrvRecords "false""#.to_owned(),
        r#"Dir::Etc::main "/dev/null""#.to_owned(),
        r#"Dir::Etc::parts "/scratch/apt/none""#.to_owned(),
        r#"Dir::State "/scratch/apt""#.to_owned(),
        r#"Dir::State::lists "/scratch/apt/lists""#.to_owned(),
        r#"Dir::State::status "/var/lib/dpkg/status""#.to_owned(),
        r#"Dir::Cache "/scratch/apt/cache""#.to_owned(),
        r#"Dir::Cache::archives "/scratch/debs""#.to_owned(),
        r#"Dir::Log "/scratch/apt/log""#.to_owned(),
        // The image's database may be read-only, and is not written.
        r#"Debug::NoLocking "true""#.to_owned(),
    ];
    if has_sources {
        lines.push(format!(r#"Dir::Etc::sourcelist "{SOURCES}""#));
        lines.push(r#"Dir::Etc::sourceparts "/scratch/apt/none""#.to_owned());
    }
    if has_keys {
        lines.push(r#"Dir::Etc::trusted "/dev/null""#.to_owned());
        lines.push(r#"Dir::Etc::trustedparts "/scratch/in/keys""#.to_owned());
    }
    if has_certificates {
        lines.push(format!(r#"Acquire::https::CAInfo "{CERTIFICATES}""#));
    }
    lines.iter().map(|line| format!("{line};\n")).collect()
}

/// The variables of a run. `index`: its URL, and the host of the URL if it is trusted without TLS.
pub(super) fn environment(
    kind: Kind,
    index: Option<(&str, Option<&str>)>,
    has_certificates: bool,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let url = index.map_or("", |(url, _)| url);
    let mut list: Vec<(&str, &str)> = match kind {
        Kind::Native => vec![
            ("APT_CONFIG", APT_CONF),
            ("DEBIAN_FRONTEND", "noninteractive"),
        ],
        Kind::Npm => vec![
            ("npm_config_registry", url),
            ("npm_config_cache", "/tmp/npm"),
            ("npm_config_userconfig", "/dev/null"),
            ("npm_config_audit", "false"),
            ("npm_config_fund", "false"),
            ("npm_config_update_notifier", "false"),
            ("npm_config_progress", "false"),
            // Give up early on a registry that does not answer.
            ("npm_config_fetch_retries", "1"),
            ("npm_config_fetch_retry_mintimeout", "1000"),
            ("npm_config_fetch_timeout", "60000"),
        ],
        Kind::Pip => vec![
            ("PYTHONUSERBASE", "/scratch/layer/opt/runner/python"),
            ("PIP_INDEX_URL", url),
            ("PIP_CONFIG_FILE", "/dev/null"),
            ("PIP_NO_INPUT", "1"),
            ("PIP_NO_CACHE_DIR", "1"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("PIP_NO_WARN_SCRIPT_LOCATION", "1"),
            ("PIP_ROOT_USER_ACTION", "ignore"),
            // Packages go into a layer of their own, not among those of the system.
            ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
            ("PIP_RETRIES", "1"),
            ("PIP_DEFAULT_TIMEOUT", "30"),
        ],
    };
    if let (Kind::Pip, Some((_, Some(host)))) = (kind, index) {
        list.push(("PIP_TRUSTED_HOST", host));
    }
    if has_certificates {
        list.push(("SSL_CERT_FILE", CERTIFICATES));
        match kind {
            Kind::Native => (),
            Kind::Npm => {
                list.push(("npm_config_cafile", CERTIFICATES));
                list.push(("NODE_EXTRA_CA_CERTS", CERTIFICATES));
            }
            Kind::Pip => list.push(("PIP_CERT", CERTIFICATES)),
        }
    }
    let bytes = |text: &str| text.as_bytes().to_vec();
    list.into_iter()
        .map(|(name, value)| (bytes(name), bytes(value)))
        .collect()
}
