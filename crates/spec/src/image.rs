//! Image templates: named root file systems of a registry, and how one is selected.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::did_you_mean::nearest;
use crate::needs::{npm, pip};
use crate::path::escape;
use crate::runner_block::{Language, Needs};

const BUILT_IN: &str = include_str!("../../../policies/images.yaml");
pub(crate) const TEMPLATE_ID_BYTES_MAX: usize = 128;

/// A named root file system.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ImageTemplate {
    /// The name that `runner.image` uses: letters, digits, `-`, `_`, `.`; unique in all files.
    #[cfg_attr(
        test,
        schemars(length(max = 128), regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"))
    )]
    pub id: String,
    /// Runtimes that it contains.
    #[serde(default)]
    pub languages: Vec<Language>,
    /// Installed OS packages, by Debian name.
    #[cfg_attr(test, schemars(inner(regex(pattern = r"^[a-z0-9][a-z0-9+.:-]*$"))))]
    #[serde(default)]
    pub native: Vec<String>,
    /// Installed npm packages, where programs of a bundle find them: NAME or NAME@VERSION.
    #[cfg_attr(
        test,
        schemars(inner(regex(pattern = r"^(?:@[^@/]+/)?[^@/]+(?:@.+)?$")))
    )]
    #[serde(default)]
    pub npm: Vec<String>,
    /// Installed pip packages: NAME or NAME==VERSION.
    #[cfg_attr(
        test,
        schemars(inner(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:==.+)?$")))
    )]
    #[serde(default)]
    pub pip: Vec<String>,
    /// Start-up cost, 0 for the lightest.
    pub cost_tier: u32,
    /// Source of its root file system: `docker://REFERENCE` or `oci:DIRECTORY`. Default: not built
    /// yet.
    #[cfg_attr(test, schemars(regex(pattern = r"^(?:docker://|oci:)\S+$")))]
    #[serde(default)]
    pub source: Option<String>,
}

impl<'de> Deserialize<'de> for ImageTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // With `remote`, serde derives this function instead of the trait.
        let template = Self::deserialize(deserializer)?;
        template.check().map_err(D::Error::custom)?;
        Ok(template)
    }
}

/// Why no image can be selected for a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("the list of image templates cannot be read: {reason}")]
    Registry {
        /// The parser's message, with line and column.
        reason: String,
    },
    #[error("found the image `{found}`, expected one of {}", available.join(", "))]
    Unknown {
        found: String,
        near: Option<String>,
        available: Vec<String>,
    },
    #[error("found no image template with the language {}, only {}", language.name(), available.join(", "))]
    NoneForLanguage {
        language: Language,
        available: Vec<String>,
    },
}

impl ImageError {
    /// Stable error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Registry { .. } => "image_registry_invalid",
            Self::Unknown { .. } => "image_unknown",
            Self::NoneForLanguage { .. } => "needs_unsatisfied",
        }
    }

    /// What the user can change, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Registry { .. } => None,
            Self::Unknown {
                near: Some(near), ..
            } => Some(format!("did you mean `{near}`?")),
            Self::Unknown { near: None, .. } => Some(
                "leave `image` out to select one by `needs`, or add it to `images` of the host \
                 configuration"
                    .to_owned(),
            ),
            Self::NoneForLanguage { .. } => {
                Some("add a template to `images` of the host configuration".to_owned())
            }
        }
    }
}

/// The template for a `runner` block, and the packages that it lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelectedTemplate {
    pub id: String,
    pub source: Option<String>,
    /// Packages of `needs.native` that it lacks, as written. A preparation run installs them.
    pub install: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub npm: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pip: Vec<String>,
    /// Whether it has the runtime of `needs.language`. A named image may lack it.
    pub has_language: bool,
}

impl ImageTemplate {
    fn check(&self) -> Result<(), String> {
        let id = escape(self.id.as_bytes());
        if !is_template_id(&self.id) {
            return Err(format!(
                "found the image id `{id}`, expected at most {TEMPLATE_ID_BYTES_MAX} letters, \
                 digits, `-`, `_` and `.`"
            ));
        }
        // A range would meet no need.
        let is_npm = |name: &String| {
            npm::Requirement::parse(name).is_ok_and(|package| package.is_met_by(name))
        };
        let is_pip = |name: &String| {
            pip::Requirement::parse(name).is_ok_and(|package| package.is_met_by(name))
        };
        let native = self.native.iter().find(|name| !is_package_name(name));
        let npm = self.npm.iter().find(|name| !is_npm(name));
        let pip = self.pip.iter().find(|name| !is_pip(name));
        let source = self.source.iter().find(|source| !is_source(source));
        for (what, invalid, expected) in [
            ("package", native, "a Debian name such as ffmpeg"),
            ("package", npm, "one such as typescript@5.4.2"),
            ("package", pip, "one such as requests==2.31.0"),
            ("source", source, "docker://… or oci:DIRECTORY"),
        ] {
            if let Some(found) = invalid {
                return Err(format!(
                    "image {id}: found the {what} `{}`, expected {expected}",
                    escape(found.as_bytes())
                ));
            }
        }
        Ok(())
    }
}

fn is_source(text: &str) -> bool {
    let location = text
        .strip_prefix("docker://")
        .or_else(|| text.strip_prefix("oci:"));
    location.is_some_and(|text| !text.is_empty() && !text.contains(char::is_whitespace))
}

#[must_use]
pub(crate) fn is_template_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= TEMPLATE_ID_BYTES_MAX
        && !text.starts_with(['-', '.'])
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether `name` is a Debian package name, with or without an architecture: lower-case letters,
/// digits, `+`, `-`, `.`, `:`.
pub fn is_package_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase()
                || byte.is_ascii_digit()
                || matches!(byte, b'+' | b'-' | b'.' | b':')
        })
}

/// Parses a list of templates.
///
/// # Errors
/// [`ImageError::Registry`]: not such a list, or a duplicate id.
pub(crate) fn parse_templates(text: &str) -> Result<Vec<ImageTemplate>, ImageError> {
    let templates: Vec<ImageTemplate> =
        serde_saphyr::from_str(text).map_err(|error| ImageError::Registry {
            reason: escape(error.without_snippet().to_string().as_bytes()),
        })?;
    for (index, template) in templates.iter().enumerate() {
        if templates[..index].iter().any(|one| one.id == template.id) {
            return Err(ImageError::Registry {
                reason: format!("duplicate image `{}`", template.id),
            });
        }
    }
    Ok(templates)
}

/// The built-in templates and the host's own. A host template replaces the built-in one with the
/// same id.
///
/// # Errors
/// [`ImageError::Registry`]: the built-in list is invalid; a test checks it.
pub fn registry(host_templates: &[ImageTemplate]) -> Result<Vec<ImageTemplate>, ImageError> {
    let mut templates = parse_templates(BUILT_IN)?;
    for template in host_templates {
        templates.retain(|known| known.id != template.id);
        templates.push(template.clone());
    }
    Ok(templates)
}

/// Selects the template for `needs`: the lightest that has its language and all native packages,
/// else the lightest for the language. Templates with the npm and pip packages are preferred. Ties
/// go to the first id in byte order, so the order of `templates` does not matter. Needs without a
/// language match [`Language::Multi`].
///
/// # Errors
/// [`ImageError::NoneForLanguage`].
pub fn select(needs: &Needs, templates: &[ImageTemplate]) -> Result<SelectedTemplate, ImageError> {
    let language = needs.language.unwrap_or(Language::Multi);
    templates
        .iter()
        .filter(|template| template.languages.contains(&language))
        .map(|template| (template, SelectedTemplate::new(template, needs)))
        .min_by_key(|(template, selected)| {
            let lacks_native = !selected.install.is_empty();
            // Only a preference: the bundle may contain these packages.
            let lacks_packages = !selected.npm.is_empty() || !selected.pip.is_empty();
            let weight = (template.cost_tier, template.id.as_bytes());
            (lacks_native, lacks_packages, weight)
        })
        .map(|(_, selected)| selected)
        .ok_or_else(|| ImageError::NoneForLanguage {
            language,
            available: ids(templates),
        })
}

/// Returns the named template, else the result of [`select`].
///
/// # Errors
/// [`ImageError::Unknown`], [`ImageError::NoneForLanguage`].
pub fn resolve(
    image: Option<&str>,
    needs: &Needs,
    templates: &[ImageTemplate],
) -> Result<SelectedTemplate, ImageError> {
    let Some(image) = image else {
        return select(needs, templates);
    };
    match templates.iter().find(|template| template.id == image) {
        Some(template) => Ok(SelectedTemplate::new(template, needs)),
        None => {
            let available = ids(templates);
            let known = available.iter().map(String::as_str);
            Err(ImageError::Unknown {
                found: escape(image.as_bytes()),
                near: nearest(image, known).map(str::to_owned),
                available,
            })
        }
    }
}

impl SelectedTemplate {
    fn new(template: &ImageTemplate, needs: &Needs) -> Self {
        Self {
            id: template.id.clone(),
            source: template.source.clone(),
            install: missing(&needs.native, |name| template.native.contains(name)),
            npm: missing(&needs.npm, |need| {
                npm::Requirement::parse(need)
                    .is_ok_and(|need| template.npm.iter().any(|one| need.is_met_by(one)))
            }),
            pip: missing(&needs.pip, |need| {
                pip::Requirement::parse(need)
                    .is_ok_and(|need| template.pip.iter().any(|one| need.is_met_by(one)))
            }),
            has_language: needs
                .language
                .is_none_or(|language| template.languages.contains(&language)),
        }
    }
}

fn missing(needs: &[String], is_installed: impl Fn(&String) -> bool) -> Vec<String> {
    let missing = needs.iter().filter(|need| !is_installed(need));
    missing.cloned().collect()
}

fn ids(templates: &[ImageTemplate]) -> Vec<String> {
    let mut ids: Vec<String> = templates.iter().map(|one| one.id.clone()).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needs(language: Option<Language>, native: &[&str]) -> Needs {
        Needs {
            language,
            native: native.iter().map(|&name| name.to_owned()).collect(),
            ..Needs::default()
        }
    }

    #[test]
    fn the_built_in_templates_are_valid_and_sorted() {
        let templates = registry(&[]).expect("read");
        let known = ids(&templates);
        for id in [
            "mcp-node-server",
            "mcp-python-server",
            "mcp-browser-server",
            "multi",
        ] {
            assert!(known.contains(&id.to_owned()), "{known:?}");
        }
        for template in &templates {
            let mut sorted = template.native.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, template.native, "{}", template.id);
        }
    }

    #[test]
    fn the_lightest_template_with_all_packages_is_selected() {
        use Language::{Multi, Node, Python};
        let templates = registry(&[]).expect("read");
        for (language, native, id, install) in [
            (Some(Node), &[][..], "minimal-node", &[][..]),
            (Some(Python), &[], "minimal-python", &[]),
            (Some(Multi), &[], "multi", &[]),
            (None, &[], "multi", &[]),
            (Some(Node), &["git"], "mcp-node-server", &[]),
            (Some(Node), &["chromium"], "mcp-browser-server", &[]),
            (Some(Node), &["chromium", "git"], "mcp-browser-server", &[]),
            (Some(Python), &["weasyprint"], "mcp-python-server", &[]),
            (Some(Python), &["ffmpeg"], "multi", &[]),
            // No template has it: the lightest for the language, and it is installed.
            (Some(Node), &["weasyprint"], "minimal-node", &["weasyprint"]),
            (
                Some(Python),
                &["git", "none-such", "chromium"],
                "minimal-python",
                &["git", "none-such", "chromium"],
            ),
        ] {
            let selected = select(&needs(language, native), &templates).expect("selected");
            assert_eq!(
                (selected.id.as_str(), selected.install.as_slice()),
                (
                    id,
                    install
                        .iter()
                        .map(|&name| name.to_owned())
                        .collect::<Vec<_>>()
                        .as_slice()
                ),
                "{language:?} {native:?}"
            );
            assert!(selected.has_language);
        }
    }

    #[test]
    fn an_unknown_image_is_refused_with_the_list_and_a_suggestion() {
        let templates = registry(&[]).expect("read");
        let error = resolve(Some("mcp-node-sever"), &Needs::default(), &templates)
            .expect_err("a misspelt id");
        assert_eq!(error.code(), "image_unknown");
        assert_eq!(
            error.hint().as_deref(),
            Some("did you mean `mcp-node-server`?")
        );
        let text = error.to_string();
        for id in ids(&templates) {
            assert!(text.contains(&id), "{text}");
        }
    }

    #[test]
    fn a_named_image_is_returned_with_its_missing_packages() {
        let templates = registry(&[]).expect("read");
        let selected = resolve(
            Some("minimal-node"),
            &needs(Some(Language::Python), &["git", "ca-certificates"]),
            &templates,
        )
        .expect("known");
        assert_eq!(selected.install, ["git"]);
        assert!(!selected.has_language);
    }

    #[test]
    fn a_language_that_no_template_has_is_refused() {
        let error = select(&Needs::default(), &[]).expect_err("an empty registry");
        assert_eq!(error.code(), "needs_unsatisfied");
    }

    #[test]
    fn installed_packages_of_a_template_are_not_installed_again() {
        let templates = parse_templates(
            "- {id: a, languages: [multi], cost_tier: 0}\n\
             - {id: b, languages: [multi], cost_tier: 1, npm: ['@s/a@2.1.0', b], pip: [Six==1.16.0, x]}\n",
        )
        .expect("read");
        let needs = |npm: &[&str], pip: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect();
            Needs {
                npm: owned(npm),
                pip: owned(pip),
                ..Needs::default()
            }
        };
        for (npm, pip, id) in [
            (&["@s/a@^2", "b@7"][..], &["six>=1.2", "x==3"][..], "b"),
            (&[], &[], "a"),
            // No template has it: the lightest, because the bundle may contain it.
            (&["@s/a@3"], &[], "a"),
            (&["b-c"], &[], "a"),
            (&[], &["six<1"], "a"),
        ] {
            let selected = select(&needs(npm, pip), &templates).expect("selected");
            assert_eq!(selected.id, id, "{npm:?} {pip:?}");
            let expected = if id == "a" {
                (npm, pip)
            } else {
                (&[][..], &[][..])
            };
            assert_eq!(
                (&selected.npm[..], &selected.pip[..]),
                (
                    &needs(expected.0, &[]).npm[..],
                    &needs(&[], expected.1).pip[..]
                )
            );
        }
    }

    #[test]
    fn a_host_template_replaces_the_built_in_one_with_its_id() {
        let own = parse_templates(
            "[{id: multi, languages: [multi], native: [], cost_tier: 9, source: 'oci:/srv/m'}]",
        )
        .expect("read");
        let templates = registry(&own).expect("read");
        let selected = resolve(Some("multi"), &Needs::default(), &templates).expect("known");
        assert_eq!(selected.source.as_deref(), Some("oci:/srv/m"));
        assert_eq!(templates.iter().filter(|one| one.id == "multi").count(), 1);
    }

    #[test]
    fn invalid_templates_are_refused() {
        for text in [
            "[{id: a b, cost_tier: 0}]",
            "[{id: ../a, cost_tier: 0}]",
            "[{id: -a, cost_tier: 0}]",
            "[{id: a}]",
            "[{id: a, cost_tier: -1}]",
            "[{id: a, cost_tier: 0, languages: [perl]}]",
            "[{id: a, cost_tier: 0, native: ['-y']}]",
            "[{id: a, cost_tier: 0, native: [Git]}]",
            "[{id: a, cost_tier: 0, npm: [A/b/c]}]",
            "[{id: a, cost_tier: 0, npm: ['a@^1']}]",
            "[{id: a, cost_tier: 0, pip: ['six=1']}]",
            "[{id: a, cost_tier: 0, pip: ['six>=1']}]",
            "[{id: a, cost_tier: 0, source: 'http://x'}]",
            "[{id: a, cost_tier: 0, source: 'oci:'}]",
            "[{id: a, cost_tier: 0, sauce: x}]",
            "[{id: a, cost_tier: 0}, {id: a, cost_tier: 1}]",
            "a",
        ] {
            let refused = parse_templates(text).expect_err(text);
            assert_eq!(refused.code(), "image_registry_invalid");
        }
    }

    fn any_template() -> impl Strategy<Value = ImageTemplate> {
        let languages = prop::collection::vec(
            prop_oneof![
                Just(Language::Node),
                Just(Language::Python),
                Just(Language::Multi)
            ],
            0..3,
        );
        let native = prop::collection::vec("[a-d]", 0..3);
        ("[a-e]{1,2}", languages, native, 0_u32..3).prop_map(
            |(id, languages, native, cost_tier)| ImageTemplate {
                id,
                languages,
                native,
                npm: Vec::new(),
                pip: Vec::new(),
                cost_tier,
                source: None,
            },
        )
    }

    proptest! {
        #[test]
        fn the_order_of_the_templates_does_not_matter(
            (templates, shuffled) in prop::collection::vec(any_template(), 0..8)
                .prop_map(|mut templates| {
                    templates.sort_by(|one, other| one.id.cmp(&other.id));
                    templates.dedup_by(|one, other| one.id == other.id);
                    templates
                })
                .prop_flat_map(|templates| (Just(templates.clone()), Just(templates).prop_shuffle())),
            native in prop::collection::vec("[a-d]", 0..3),
        ) {
            let wanted = Needs { language: Some(Language::Node), native, ..Needs::default() };
            let selected = select(&wanted, &templates);
            prop_assert_eq!(&selected, &select(&wanted, &shuffled));
            if let Ok(selected) = selected {
                let template = templates.iter().find(|one| one.id == selected.id).expect("known");
                for other in templates.iter().filter(|one| one.languages.contains(&Language::Node)) {
                    let complete = wanted.native.iter().all(|name| other.native.contains(name));
                    prop_assert!(!complete || selected.install.is_empty());
                    if complete || !selected.install.is_empty() {
                        prop_assert!(template.cost_tier <= other.cost_tier);
                    }
                }
            }
        }
    }
}
