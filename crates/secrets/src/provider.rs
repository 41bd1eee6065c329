//! The host's provider of secret values.

use crate::error::Unusable;
use crate::{Context, VALUE_BYTES_MAX, command, directory};
use spec::path::{escape, escape_path};
use spec::secret::Secret;
use spec::sources_policy::SecretsProvider;

#[derive(Debug)]
pub(super) struct Provider<'run> {
    kind: &'run SecretsProvider,
    context: Context<'run>,
}

impl<'run> Provider<'run> {
    pub(super) const fn new(kind: &'run SecretsProvider, context: Context<'run>) -> Self {
        Self { kind, context }
    }

    /// The name of the provider in the report.
    pub(super) const fn name(&self) -> &'static str {
        match self.kind {
            SecretsProvider::Directory(_) => "directory",
            SecretsProvider::Environment { .. } => "environment",
            SecretsProvider::Command(_) => "command",
        }
    }

    /// Describes the provider, for messages.
    pub(super) fn describe(&self) -> String {
        match self.kind {
            SecretsProvider::Directory(path) => {
                format!("the directory {}", escape_path(path))
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
            SecretsProvider::Environment { prefix } => self.read_variable(prefix, slug),
            SecretsProvider::Command(words) => {
                command::read(words, slug, self.context, command::TIMEOUT)
            }
        }
    }

    fn read_variable(&self, prefix: &str, slug: &str) -> Result<Secret, Unusable> {
        let variable = format!("{prefix}{}", variable_of_slug(slug));
        let mut entries = self.context.environment.iter();
        match entries.rfind(|(name, _)| name == variable.as_bytes()) {
            None => Err(Unusable::NoVariable {
                variable: escape(variable.as_bytes()),
            }),
            Some((_, value)) if value.len() > VALUE_BYTES_MAX => Err(Unusable::TooLong),
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
        let context = Context {
            environment: &environment,
            signals: None,
        };
        let provider = Provider::new(&kind, context);
        let value = provider.value("prod/db-password").expect("set");
        // Variables keep their trailing newline: only files get one from editors.
        assert_eq!(value.bytes(), b"s3cret\n");
        let error = provider.value("missing-key").expect_err("not set");
        assert_eq!(error.to_string(), "has no variable VAULT_MISSING_KEY");
        assert!(matches!(provider.value("long"), Err(Unusable::TooLong)));
    }
}
