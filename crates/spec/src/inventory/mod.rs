//! Inventories (`SECRETS.md`, AIP-19): which secrets exist and who may have them, without values.

mod grants;
mod read;

pub use grants::{Granted, Inventories, NotGranted};
pub use read::of_document;
#[cfg(test)]
use read::parse;
pub(crate) use read::{read, read_carried};

use crate::document::{Place, excerpt};
use crate::manifest::{Kind, slug_of_variable};
use crate::path::escape;
use crate::report::WarningReport;

const SLUG_CHARACTERS: std::ops::RangeInclusive<usize> = 2..=80;

/// An inventory of secrets, without values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventory {
    pub file: String,
    /// In the order of the text; slugs are unique.
    pub entries: Vec<InventoryEntry>,
    /// Whether a manifest requests every secret that is granted to it: `secrets: {ref: …}`.
    pub is_requested: bool,
    pub warnings: Vec<WarningReport>,
}

/// One secret, without its value.
#[derive(Debug, Clone, PartialEq)]
pub struct InventoryEntry {
    /// The name of the secret: see [`is_slug`].
    pub slug: String,
    pub name: String,
    pub description: String,
    pub kind: SecretKind,
    /// The vault that the author intends. No effect: the slug is looked up at the host's provider.
    pub backend: Option<String>,
    pub access: Access,
    pub audit: Audit,
    pub tags: Vec<String>,
    /// Free-form; only `bindings.env` is used.
    pub metadata: serde_json::Value,
    /// `metadata.bindings.env`: variables that get this secret.
    pub bindings: Vec<String>,
    /// How it is passed to the body. Unknown kinds are left out.
    pub exposures: Vec<Exposure>,
    /// The entry as it is written.
    pub written: serde_json::Value,
    pub place: Place,
}

/// The form of a secret's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecretKind {
    #[default]
    Opaque,
    /// A JSON object with `accessToken`, `refreshToken` and `expiresAt`.
    OAuth,
    /// A JSON object with `public` and `private`.
    KeyPair,
    Json,
}

/// Access lists of a secret. An empty list is nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    pub reveal: Vec<Holder>,
    /// Who may have the value in a variable.
    pub bind: Vec<Holder>,
    /// Who may replace the value. No effect here.
    pub rotate: Vec<Holder>,
}

/// A subject in a list of `access`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Role(String),
    UserId(String),
    Capability(String),
    Tool(String),
    Workflow(String),
}

/// The author's rules for audit records. They apply to the program that keeps the reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    pub retention: Option<String>,
    pub pii: bool,
    pub classification: Vec<String>,
}

/// How a secret is passed to the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    Environment {
        name: String,
        /// The field of a structured value. The published schema also requires it for opaque
        /// values.
        field: Option<String>,
    },
    /// As a file. Not supported.
    File {
        path: String,
        field: Option<String>,
        mode: u32,
    },
    /// As a placeholder that a proxy replaces. Not supported.
    EgressSubstitute {
        placeholder: String,
        allowed_by_default: bool,
        intended_providers: Vec<String>,
    },
}

/// The manifest that requests a secret: its kind and names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consumer {
    pub kind: Kind,
    pub id: Option<String>,
    pub name: Option<String>,
}

/// The item of an access list that grants a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    pub list: &'static str,
    pub index: usize,
}

/// Whether `text` is a valid slug: `^([a-z][a-z0-9-]*[a-z0-9]/)?[a-z][a-z0-9-]*[a-z0-9]$` with 2 to
/// 80 characters. A slug is safe as a relative path and as an argument.
#[must_use]
pub fn is_slug(text: &str) -> bool {
    let is_segment =
        |segment: &str| segment.len() >= 2 && is_plain_name(segment) && !segment.ends_with('-');
    let mut segments = text.split('/');
    SLUG_CHARACTERS.contains(&text.len())
        && segments.by_ref().take(2).all(is_segment)
        && segments.next().is_none()
}

/// `^[a-z][a-z0-9-]*$`
fn is_plain_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Finds the permission of `consumer` to have the value of `entry` in its environment.
///
/// `access.bind` or `access.reveal` must have the id or name of the tool or workflow. A
/// code-workspace that is run itself counts as a tool. Roles, persons and capabilities never match:
/// nothing here authenticates them.
#[must_use]
pub fn find_permission(entry: &InventoryEntry, consumer: &Consumer) -> Option<Permission> {
    let is_consumer = |holder: &Holder| {
        let named = match (holder, consumer.kind) {
            (Holder::Tool(named), Kind::Tool | Kind::CodeWorkspace)
            | (Holder::Workflow(named), Kind::Workflow) => named,
            _ => return false,
        };
        consumer.id.as_ref() == Some(named) || consumer.name.as_ref() == Some(named)
    };
    [
        ("bind", &entry.access.bind),
        ("reveal", &entry.access.reveal),
    ]
    .into_iter()
    .find_map(|(list, holders)| {
        let index = holders.iter().position(is_consumer)?;
        Some(Permission { list, index })
    })
}

impl Inventory {
    /// Makes an inventory, with warnings about its entries.
    #[must_use]
    pub fn new(file: &str, entries: Vec<InventoryEntry>) -> Self {
        let stated = entries.iter().filter(|entry| entry.backend.is_some());
        let warnings = stated
            .map(|entry| {
                let message = format!(
                    "{}:{}: the `backend` of {} has no effect: the value comes from the provider of \
                     the host's configuration",
                    escape(file.as_bytes()),
                    entry.place,
                    entry.slug
                );
                WarningReport::new("backend_ignored", message)
            })
            .collect();
        Self {
            file: file.to_owned(),
            entries,
            is_requested: false,
            warnings,
        }
    }

    /// An empty inventory for a file that cannot be read; `why` replaces its name in messages.
    #[must_use]
    pub fn unreadable(file: &str, why: &str) -> Self {
        Self::new(&format!("{} ({why})", escape(file.as_bytes())), Vec::new())
    }

    /// Finds the entry of `slug`.
    #[must_use]
    pub fn entry(&self, slug: &str) -> Option<&InventoryEntry> {
        self.entries.iter().find(|entry| entry.slug == slug)
    }

    /// Finds the entry for the variable `variable`, in this order: exposed under that name and
    /// granted to `consumer`; exposed under that name; slug derived from the name.
    #[must_use]
    pub(crate) fn entry_of_variable(
        &self,
        variable: &str,
        consumer: &Consumer,
    ) -> Option<&InventoryEntry> {
        let mut exposed = self
            .entries
            .iter()
            .filter(|entry| entry.exposure_of_variable(variable).is_some());
        let first = exposed.clone().next();
        exposed
            .find(|entry| find_permission(entry, consumer).is_some())
            .or(first)
            .or_else(|| self.entry(&slug_of_variable(variable)))
    }
}

impl InventoryEntry {
    /// The field of a structured value that is exposed as `variable`.
    #[must_use]
    pub fn field_of_variable(&self, variable: &str) -> Option<&str> {
        self.exposure_of_variable(variable)?
    }

    /// The variables that get this secret: those of `exposures` and `metadata.bindings`; without
    /// both, the one derived from the slug.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let mut variables: Vec<String> = Vec::new();
        let exposed = self.exposures.iter().filter_map(|exposure| match exposure {
            Exposure::Environment { name, .. } => Some(name),
            _ => None,
        });
        for name in exposed.chain(&self.bindings) {
            if !variables.contains(name) {
                variables.push(name.clone());
            }
        }
        // Exposures of unknown kinds are only in the written entry.
        let has_exposures = self.written.pointer("/exposures/0").is_some();
        if variables.is_empty() && !has_exposures {
            variables.push(self.slug.to_uppercase().replace(['-', '/'], "_"));
        }
        variables
    }

    fn exposure_of_variable(&self, variable: &str) -> Option<Option<&str>> {
        let exposed = self.exposures.iter().find_map(|exposure| match exposure {
            Exposure::Environment { name, field } if name == variable => Some(field.as_deref()),
            _ => None,
        });
        let is_bound = || self.bindings.iter().any(|name| name == variable);
        exposed.or_else(|| is_bound().then_some(None))
    }
}

impl Consumer {
    /// Describes the consumer for messages: ``the tool `deploy` ``, with an escaped name.
    #[must_use]
    pub fn describe(&self) -> String {
        let kind = self.kind.word();
        match self.id.as_ref().or(self.name.as_ref()) {
            Some(name) => format!("the {kind} `{}`", excerpt(name)),
            None => format!("the {kind} without an id"),
        }
    }

    /// The `access` of an entry that grants its secret to this consumer.
    #[must_use]
    pub(crate) fn access_line(&self) -> Option<String> {
        let key = match self.kind {
            Kind::Tool | Kind::CodeWorkspace => "tool",
            Kind::Workflow => "workflow",
        };
        let name = self.id.as_ref().or(self.name.as_ref())?;
        // Not shortened: the line is copied.
        let quoted = serde_json::Value::from(name.as_str());
        Some(format!("access: {{bind: [{{{key}: {quoted}}}]}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Format;

    const TEXT: &str = "---\n\
        secrets:\n\
        - slug: prod/db-password\n\
        \x20 name: Database\n\
        \x20 description: Password of the database.\n\
        \x20 access: {bind: [{role: admin}, {tool: report}], reveal: [{workflow: nightly}]}\n\
        - slug: openai-api-key\n\
        \x20 name: OpenAI\n\
        \x20 description: Key.\n\
        - slug: connector\n\
        \x20 name: Connector\n\
        \x20 description: Tokens.\n\
        \x20 kind: oauth\n\
        \x20 access: {reveal: [{tool: report}]}\n\
        \x20 exposures: [{kind: hologram, x: 1}, {kind: env, name: GH_TOKEN, field: accessToken}]\n\
        - slug: other-connector\n\
        \x20 name: Connector\n\
        \x20 description: Tokens.\n\
        \x20 access: {reveal: [{tool: deploy}]}\n\
        \x20 exposures: [{kind: env, name: GH_TOKEN}]\n\
        ---\n";

    fn inventory() -> Inventory {
        parse(TEXT.as_bytes(), Format::FrontMatter, "SECRETS.md").expect("an inventory")
    }

    fn consumer(kind: Kind, id: Option<&str>, name: Option<&str>) -> Consumer {
        Consumer {
            kind,
            id: id.map(str::to_owned),
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_permission_is_found_by_kind_and_name() {
        let inventory = inventory();
        let entry = inventory.entry("prod/db-password").expect("an entry");
        let bind = |index| {
            Some(Permission {
                list: "bind",
                index,
            })
        };
        let reveal = |index| {
            Some(Permission {
                list: "reveal",
                index,
            })
        };
        for (kind, id, name, expected) in [
            (Kind::Tool, Some("report"), None, bind(1)),
            (Kind::Tool, None, Some("report"), bind(1)),
            (Kind::Tool, Some("x"), Some("report"), bind(1)),
            (Kind::Workflow, Some("nightly"), None, reveal(0)),
            (Kind::Workflow, Some("report"), None, None),
            (Kind::Tool, Some("nightly"), None, None),
            (Kind::CodeWorkspace, Some("report"), None, bind(1)),
            (Kind::Tool, Some("admin"), Some("Report"), None),
            (Kind::Tool, None, None, None),
        ] {
            let found = find_permission(entry, &consumer(kind, id, name));
            assert_eq!(found, expected, "{kind:?} {id:?} {name:?}");
        }
    }

    #[test]
    fn missing_and_empty_access_grants_nothing() {
        let mut entry = inventory().entry("openai-api-key").expect("one").clone();
        let anybody = consumer(Kind::Tool, Some("report"), Some("report"));
        assert_eq!(find_permission(&entry, &anybody), None);
        entry.access.rotate = vec![Holder::Tool("report".to_owned())];
        assert_eq!(find_permission(&entry, &anybody), None);
    }

    #[test]
    fn the_entry_of_a_variable_is_found_by_exposure_or_derived_slug() {
        let inventory = inventory();
        let slug = |variable: &str, tool: &str| {
            let tool = consumer(Kind::Tool, Some(tool), None);
            inventory
                .entry_of_variable(variable, &tool)
                .map(|entry| entry.slug.clone())
        };
        assert_eq!(slug("GH_TOKEN", "report").as_deref(), Some("connector"));
        assert_eq!(
            slug("GH_TOKEN", "deploy").as_deref(),
            Some("other-connector")
        );
        assert_eq!(slug("GH_TOKEN", "nobody").as_deref(), Some("connector"));
        let spelt = slug("OPENAI_API_KEY", "report");
        assert_eq!(spelt.as_deref(), Some("openai-api-key"));
        assert_eq!(slug("MISSING", "report"), None);
    }

    #[test]
    fn a_secret_that_is_only_exposed_otherwise_has_no_variable() {
        for (exposures, expected) in [
            ("[]", &["THE_KEY"][..]),
            ("[{kind: env, name: K}]", &["K"]),
            ("[{kind: file, path: /k}]", &[]),
            ("[{kind: hologram}]", &[]),
        ] {
            let text = format!(
                "secrets: [{{slug: the-key, name: n, description: d, exposures: {exposures}}}]"
            );
            let inventory = parse(text.as_bytes(), Format::Yaml, "S.yaml").expect("an inventory");
            assert_eq!(inventory.entries[0].variables(), expected, "{exposures}");
        }
    }

    #[test]
    fn slugs_match_the_published_pattern() {
        let long = format!("a{}", "b".repeat(79));
        for slug in [
            "ab",
            "a1",
            "a-b",
            "a--b",
            "prod/db-password",
            "ab/cd",
            &long,
        ] {
            assert!(is_slug(slug), "{slug}");
        }
        let longer = format!("{long}c");
        for slug in [
            "", "a", "1a", "-a", "a-", "A1", "a_b", "a.b", "/ab", "ab/", "a/bc", "ab/c", "ab//cd",
            "ab/cd/ef", "..", "../ab", "ab/..", "é1", "ab\n", &longer,
        ] {
            assert!(!is_slug(slug), "{slug:?}");
        }
    }
}
