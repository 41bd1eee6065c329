//! Who may have a secret, by all inventories that are known: AIP-19's check before a value is
//! fetched.

use crate::document::excerpt;
use crate::inventory::{Consumer, Inventory, InventoryEntry, may_have};
use crate::manifest::{SecretReference, SecretRequest};

/// The keys of requests whose slug is spelt by the name of the variable, which an inventory may
/// know better.
const BY_VARIABLE: [&str; 2] = ["sandbox.env.auth", "runtime.env"];

/// The inventories that are known for a run.
///
/// One of [`Inventories::deciding`] must list a secret, and each inventory that lists it must grant
/// it. Without any there is no check: the caller's grant of `secrets` is all that there is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventories {
    /// Those of whoever is trusted most: the host's, else the workspace's, else the bundle's.
    pub deciding: Vec<Inventory>,
    /// Those of whoever is trusted less. They can withhold a secret and never give one.
    pub others: Vec<Inventory>,
}

/// A secret that a consumer may have.
#[derive(Debug, Clone)]
pub struct Granted<'run> {
    /// What the secret is called by.
    pub slug: String,
    /// What the inventories say of it; empty where there is none.
    pub entries: Vec<&'run InventoryEntry>,
    /// The word that grants it, for the report: `access.bind of SECRETS.md:3:5`.
    pub permission: Option<String>,
}

/// A secret that the inventory does not let its consumer have.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the secret {variable} ({slug}): {inventory} {why} {consumer} have it")]
pub struct NotGranted {
    pub variable: String,
    pub slug: String,
    /// The inventory, and where in it where there is an entry.
    pub inventory: String,
    /// `does not let`, or `has no such entry that would let`.
    pub why: &'static str,
    pub consumer: String,
    /// What to add to the inventory.
    pub line: String,
}

impl Inventories {
    /// All of them, those that decide first.
    pub fn iter(&self) -> impl Iterator<Item = &Inventory> {
        self.deciding.iter().chain(&self.others)
    }

    /// Whether `who` may have the secret that `request` asks for.
    ///
    /// # Errors
    /// [`NotGranted`]: no inventory lists it, or one that does grants it to others only.
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

    /// What the inventories say of the secret that `request` asks for.
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
