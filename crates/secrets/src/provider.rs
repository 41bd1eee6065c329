//! The host's provider of secret values.

use std::os::unix::ffi::OsStrExt as _;

use crate::error::Unusable;
use crate::{Around, VALUE_BYTES_MAX, command, directory};
use spec::path::escape;
use spec::secret::Secret;
use spec::sources_policy::SecretsProvider;

/// The host's provider with its context.
#[derive(Debug)]
pub(super) struct Provider<'run> {
    kind: &'run SecretsProvider,
    around: Around<'run>,
}

impl<'run> Provider<'run> {
    pub(super) const fn new(kind: &'run SecretsProvider, around: Around<'run>) -> Self {
        Self { kind, around }
    }

    /// The name of the provider in the report.
    pub(super) const fn name(&self) -> &'static str {
        match self.kind {
            SecretsProvider::Directory(_) => "directory",
            SecretsProvider::Environment { .. } => "environment",
            SecretsProvider::Command(_) => "command",
        }
    }

    pub(super) fn shown(&self) -> String {
        match self.kind {
            SecretsProvider::Directory(path) => {
                format!("the directory {}", escape(path.as_os_str().as_bytes()))
            }
            SecretsProvider::Environment { prefix } => {
                format!("the environment (prefix {})", escape(prefix.as_bytes()))
            }
            SecretsProvider::Command(words) => {
                let program = words.first().map_or("", String::as_str);
                format!("the program {}", escape(program.as_bytes()))
            }
        }
    }

    /// The value of `slug`, which must be valid.
    pub(super) fn value(&self, slug: &str) -> Result<Secret, Unusable> {
        match self.kind {
            SecretsProvider::Directory(path) => directory::read(path, slug),
            SecretsProvider::Environment { prefix } => self.of_environment(prefix, slug),
            SecretsProvider::Command(words) => command::ask(words, slug, self.around),
        }
    }

    fn of_environment(&self, prefix: &str, slug: &str) -> Result<Secret, Unusable> {
        let variable = format!("{prefix}{}", variable_of_slug(slug));
        let mut known = self.around.environment.iter();
        let found = known.rfind(|(name, _)| name == variable.as_bytes());
        match found {
            None => Err(Unusable::NoVariable {
                variable: escape(variable.as_bytes()),
            }),
            Some((_, value)) if VALUE_BYTES_MAX < value.len() => Err(Unusable::TooLong),
            Some((_, value)) => Ok(Secret::new(value.clone())),
        }
    }
}

/// Converts `prod/db-password` to `PROD_DB_PASSWORD`.
fn variable_of_slug(slug: &str) -> String {
    slug.to_ascii_uppercase().replace(['-', '/'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_provider_reads_the_prefixed_variable_of_the_caller() {
        let kind = SecretsProvider::Environment {
            prefix: "VAULT_".to_owned(),
        };
        let environment = [
            (b"PROD_DB_PASSWORD".to_vec(), b"unprefixed".to_vec()),
            (b"VAULT_PROD_DB_PASSWORD".to_vec(), b"s3cret\n".to_vec()),
            (b"VAULT_LONG".to_vec(), vec![b'x'; VALUE_BYTES_MAX + 1]),
        ];
        let around = Around {
            environment: &environment,
            signals: None,
        };
        let provider = Provider::new(&kind, around);
        let value = provider.value("prod/db-password").expect("set");
        // Variables keep their trailing newline: only files get one from editors.
        assert_eq!(value.bytes(), b"s3cret\n");
        let error = provider.value("missing-key").expect_err("not set");
        assert_eq!(error.to_string(), "has no variable VAULT_MISSING_KEY");
        assert!(matches!(provider.value("long"), Err(Unusable::TooLong)));
    }
}
