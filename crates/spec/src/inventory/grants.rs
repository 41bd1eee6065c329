//! Permission checks for secrets against all inventories (AIP-19), before a value is fetched.

use crate::document::excerpt;
use crate::inventory::{Consumer, Inventory, InventoryEntry, may_have};
use crate::manifest::{SecretReference, SecretRequest};

/// Request keys whose slug is derived from the variable. An inventory may set another slug.
const BY_VARIABLE: [&str; 2] = ["sandbox.env.auth", "runtime.env"];

/// The inventories of a run.
///
/// One of [`Inventories::deciding`] must list a secret, and each inventory that lists it must
/// permit it. Without inventories only the caller's grant of `secrets` is checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventories {
    /// The most trusted inventories: the host's, else the workspace's, else the bundle's.
    pub deciding: Vec<Inventory>,
    /// The less trusted inventories. They can deny a secret but not permit one.
    pub others: Vec<Inventory>,
}

/// A secret that a consumer may have.
#[derive(Debug, Clone)]
pub struct Granted<'run> {
    pub slug: String,
    pub entries: Vec<&'run InventoryEntry>,
    /// The permission, for the report: `access.bind of SECRETS.md:3:5`.
    pub permission: Option<String>,
}

/// A secret that the inventories deny to its consumer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the secret {variable} ({slug}): {inventory} {why} {consumer} have it")]
pub struct NotGranted {
    pub variable: String,
    pub slug: String,
    pub inventory: String,
    pub why: &'static str,
    pub consumer: String,
    pub line: String,
}

impl Inventories {
    /// Iterates over all inventories, the deciding ones first.
    pub fn iter(&self) -> impl Iterator<Item = &Inventory> {
        self.deciding.iter().chain(&self.others)
    }

    /// Checks whether `who` may have the secret of `request`.
    ///
    /// # Errors
    /// [`NotGranted`]: no inventory lists it, or one that lists it permits only others.
    pub fn check<'run>(
        &'run self,
        request: &SecretRequest,
        who: &Consumer,
    ) -> Result<Granted<'run>, Box<NotGranted>> {
        let slug = self.slug_of(request, who);
        let Some(first) = self.deciding.first() else {
            return Ok(Granted {
                slug,
                entries: Vec::new(),
                permission: None,
            });
        };
        let is_listed = self.deciding.iter().any(|one| one.entry(&slug).is_some());
        if !is_listed {
            return Err(Box::new(not_listed(request, &slug, first, who)));
        }
        let mut granted = Granted {
            slug: slug.clone(),
            entries: Vec::new(),
            permission: None,
        };
        for inventory in self.iter() {
            let Some(entry) = inventory.entry(&slug) else {
                continue;
            };
            let Some(permission) = may_have(entry, who) else {
                return Err(Box::new(not_granted(request, entry, inventory, who)));
            };
            granted.entries.push(entry);
            granted.permission.get_or_insert_with(|| {
                format!(
                    "access.{} of {}:{}",
                    permission.list, inventory.file, entry.place
                )
            });
        }
        Ok(granted)
    }

    /// The inventory entries for the secret of `request`.
    pub fn entries_of(
        &self,
        request: &SecretRequest,
        who: &Consumer,
    ) -> impl Iterator<Item = &InventoryEntry> {
        let slug = self.slug_of(request, who);
        self.iter()
            .filter_map(move |inventory| inventory.entry(&slug))
    }

    fn slug_of(&self, request: &SecretRequest, who: &Consumer) -> String {
        let by_variable = BY_VARIABLE.contains(&request.source.as_str());
        let exposed = || {
            self.iter()
                .find_map(|one| one.entry_of_variable(&request.variable, who))
        };
        if let Some(entry) = by_variable.then(exposed).flatten() {
            return entry.slug.clone();
        }
        match &request.reference {
            SecretReference::Vault(slug) | SecretReference::Literal(slug) => slug.clone(),
            SecretReference::OAuth(id) => format!("oauth/{id}"),
        }
    }
}

fn not_granted(
    request: &SecretRequest,
    entry: &InventoryEntry,
    inventory: &Inventory,
    who: &Consumer,
) -> NotGranted {
    let file = &inventory.file;
    NotGranted {
        variable: request.variable.clone(),
        slug: entry.slug.clone(),
        inventory: format!("{file}:{}", entry.place),
        why: "does not let",
        consumer: who.shown(),
        line: match who.line_to_add() {
            Some(line) => format!("add to the entry `{}` of {file}: {line}", entry.slug),
            None => NAMELESS.to_owned(),
        },
    }
}

fn not_listed(
    request: &SecretRequest,
    slug: &str,
    inventory: &Inventory,
    who: &Consumer,
) -> NotGranted {
    let file = &inventory.file;
    let slug = excerpt(slug);
    let line = match who.line_to_add() {
        Some(line) => format!(
            "add to {file}: {{slug: {slug}, name: …, description: …, {line}}}, or name another slug"
        ),
        None => NAMELESS.to_owned(),
    };
    NotGranted {
        variable: request.variable.clone(),
        slug,
        inventory: file.clone(),
        why: "has no such entry that would let",
        consumer: who.shown(),
        line,
    }
}

const NAMELESS: &str = "give the manifest an `id`, and name that in the inventory's `access`";
