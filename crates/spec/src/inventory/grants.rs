//! Permission checks for secrets against all inventories (AIP-19), before a value is fetched.

use crate::document::excerpt;
use crate::inventory::{Consumer, Inventory, InventoryEntry, find_permission, is_slug};
use crate::manifest::{SecretReference, SecretRequest};
use crate::sandbox_block::SANDBOX_AUTH;

/// The inventories of a run.
///
/// One of [`Inventories::deciding`] must list a secret, and each inventory that lists it must grant
/// it. Without inventories only the caller's grant of `secrets` is checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventories {
    /// The most trusted inventories: the host's, else the workspace's, else the bundle's.
    pub deciding: Vec<Inventory>,
    /// The less trusted inventories. They can deny a secret but not grant one.
    pub others: Vec<Inventory>,
}

/// A secret that the inventories grant to a consumer.
#[derive(Debug, Clone)]
pub struct Granted<'run> {
    pub slug: String,
    pub entries: Vec<&'run InventoryEntry>,
    /// The permission, for the report: `access.bind of SECRETS.md:3:5`.
    pub permission: Option<String>,
}

/// Why the inventories do not grant a secret to a consumer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the secret {variable} ({slug}): {inventory} {why} {consumer}")]
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

    /// Checks that the inventories grant the secret of `request` to `who`.
    ///
    /// # Errors
    /// [`NotGranted`]: no deciding inventory lists it, or an inventory that lists it grants it only
    /// to others.
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
            let Some(permission) = find_permission(entry, who) else {
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
        // It names only a variable: an inventory may set another slug than the derived one.
        let is_by_variable = request.source == SANDBOX_AUTH;
        let exposed = || {
            self.iter()
                .find_map(|one| one.entry_of_variable(&request.variable, who))
        };
        if let Some(entry) = is_by_variable.then(exposed).flatten() {
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
        why: "does not grant it to",
        consumer: who.describe(),
        line: match who.access_line() {
            Some(line) => format!("add to the entry `{}` of {file}: {line}", entry.slug),
            None => ADD_ID.to_owned(),
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
    let line = match who.access_line() {
        Some(line) if is_slug(slug) => format!(
            "add to {file}: {{slug: {slug}, name: …, description: …, {line}}}, or name another slug"
        ),
        Some(_) => "name another slug: 2 to 80 lower-case letters, digits and dashes".to_owned(),
        None => ADD_ID.to_owned(),
    };
    NotGranted {
        variable: request.variable.clone(),
        slug: excerpt(slug),
        inventory: file.clone(),
        why: "has no entry that grants it to",
        consumer: who.describe(),
        line,
    }
}

const ADD_ID: &str = "give the manifest an `id`, and name that in the inventory's `access`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_add_to_an_inventory_is_complete() {
        let (slug, id) = ("s".repeat(80), "i".repeat(80));
        let inventories = Inventories {
            deciding: vec![Inventory::new("S.md", Vec::new())],
            others: Vec::new(),
        };
        let who = Consumer {
            id: Some(id.clone()),
            ..Consumer::default()
        };
        let line = |slug: &str| {
            let request = SecretRequest {
                variable: "V".to_owned(),
                reference: SecretReference::Vault(slug.to_owned()),
                source: "secrets".to_owned(),
            };
            inventories
                .check(&request, &who)
                .expect_err("not listed")
                .line
        };
        let expected = format!(
            "add to S.md: {{slug: {slug}, name: …, description: …, \
             access: {{bind: [{{tool: \"{id}\"}}]}}}}, or name another slug"
        );
        assert_eq!(line(&slug), expected);
        assert!(line("My Key").starts_with("name another slug: "));
    }
}
