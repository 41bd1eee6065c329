//! Checks which of `runner.needs` are unmet by the host, the image and the bundle.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};

use serde::{Deserialize, Serialize};

use crate::run::error::RunError;
use crate::run::image::{OpenedImage, SelectedImage};
use crate::run::inputs::loaded_manifest;
use crate::run::planning::programs::lookup;
use crate::run::unpacking::bundle_files::BundleFiles;
use archive::Entry;
use spec::host_policy::HostPolicy;
use spec::image::SelectedTemplate;
use spec::image::registry;
use spec::image_choice::{image_of, needs_of};
use spec::io::contract::{DOCUMENT_MEMORY_MAX, read_document};
use spec::manifest::Manifest;
use spec::needs::{npm, pip};
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};
use spec::report::WarningReport;
use spec::request::Request;
use spec::runner_block::{Engine, Language, Needs};
use spec::runner_report::{EngineName, RunnerReport, UnsatisfiedNeed};

/// Debian's list of installed packages.
const PACKAGES: &str = "/var/lib/dpkg/status";
/// Maximum size read of a package list.
const PACKAGES_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of a package.json; a larger one counts as absent.
pub(in crate::run) const PACKAGE_JSON_BYTES_MAX: u64 = 1 << 20;

/// The template for the manifest; `None` if it needs none or `--image` is given.
///
/// # Errors
/// [`RunError::Image`] where there is no such template.
pub(super) fn select_template(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
) -> Result<Option<SelectedTemplate>, RunError> {
    let block = &manifest.runner;
    match (block.engine, &request.oci.image) {
        (Engine::Subprocess, _) | (Engine::Sandbox, Some(_)) => Ok(None),
        (Engine::Sandbox, None) => {
            // An invalid `--run` is reported where the run form is resolved.
            let run = loaded_manifest::run_value(&request.bundle, manifest).unwrap_or_default();
            Ok(image_of(block, run.as_ref(), &registry(&policy.images)?)?)
        }
    }
}

/// The engine, the image, and the unmet needs: checked against host and bundle for `subprocess`,
/// against image and bundle for `sandbox`. A template's package list is trusted; for other needs an
/// image in the store is inspected.
pub(super) fn runner_report(
    request: &Request,
    policy: &HostPolicy,
    manifest: &Manifest,
    bundle: &dyn BundleFiles,
    template: Option<&SelectedTemplate>,
    image: Option<&SelectedImage>,
) -> Result<RunnerReport, RunError> {
    let block = &manifest.runner;
    let run = loaded_manifest::run_value(&request.bundle, manifest).unwrap_or_default();
    let needs = needs_of(block, run.as_ref());
    let opened = image.and_then(|image| image.opened.as_ref());
    let mut unsatisfied = match (opened, template) {
        (Some(opened), _) => unmet_in_image(&block.needs, opened, template)?,
        (None, Some(template)) => unmet_in_template(&needs, template),
        (None, None) if image.is_some() => Vec::new(),
        (None, None) => unmet_on_host(&block.needs, request, policy),
    };
    let (npm, pip) = match template {
        Some(template) => (&template.npm, &template.pip),
        None => (&needs.npm, &needs.pip),
    };
    for need in npm {
        unsatisfied.extend(check_npm(need, bundle, opened)?);
    }
    unsatisfied.extend(check_pip(pip, bundle, opened)?);
    let engine = match image {
        // `--image` overrides the manifest.
        Some(_) => Engine::Sandbox,
        None => block.engine,
    };
    Ok(RunnerReport {
        engine: engine.into(),
        image: template.map(|template| template.id.clone()),
        downgraded: block.downgraded,
        needs_unsatisfied: unsatisfied,
    })
}

/// One warning that lists the unmet needs; for `subprocess` they are advice.
pub(super) fn warn_of_unmet(runner: &RunnerReport) -> Option<WarningReport> {
    let unmet = &runner.needs_unsatisfied;
    (!unmet.is_empty()).then(|| {
        let message = format!("`runner.needs` is not met: {}", listed(unmet));
        WarningReport::new("needs_unsatisfied", message)
    })
}

/// Refuses unmet needs for `sandbox`.
///
/// # Errors
/// [`RunError::Argument`] with `needs_unsatisfied`.
pub(super) fn check_needs(
    runner: &RunnerReport,
    image: Option<&SelectedImage>,
) -> Result<(), RunError> {
    if runner.engine == EngineName::Subprocess || runner.needs_unsatisfied.is_empty() {
        return Ok(());
    }
    let id = runner.image.as_ref().map(|id| escape(id.as_bytes()));
    let place = || image.map(|image| image.requested.place.to_string());
    Err(RunError::Argument {
        code: "needs_unsatisfied",
        what: "image",
        object: id.or_else(place).unwrap_or_default(),
        problem: format!(
            "lacks what `runner.needs` names: {}",
            listed(&runner.needs_unsatisfied)
        ),
        hint: Some(
            "name an image that has it, add one to `images` of the host configuration, or put the \
             packages into the bundle"
                .to_owned(),
        ),
    })
}

fn listed(unmet: &[UnsatisfiedNeed]) -> String {
    let texts: Vec<String> = unmet.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

fn unmet(kind: &'static str, need: &str, reason: impl Into<String>) -> UnsatisfiedNeed {
    UnsatisfiedNeed {
        kind,
        need: escape(need.as_bytes()),
        reason: reason.into(),
    }
}

fn unmet_in_template(needs: &Needs, template: &SelectedTemplate) -> Vec<UnsatisfiedNeed> {
    let language = needs.language.filter(|_| !template.has_language);
    let reason = || format!("not in the image {}", template.id);
    language
        .map(|language| unmet("language", language.name(), reason()))
        .into_iter()
        .chain(
            template
                .install
                .iter()
                .map(|name| unmet("native", name, reason())),
        )
        .collect()
}

/// Checks against the image's files and its template's package list, which may use other names.
fn unmet_in_image(
    needs: &Needs,
    opened: &OpenedImage,
    template: Option<&SelectedTemplate>,
) -> Result<Vec<UnsatisfiedNeed>, RunError> {
    let mut list = Vec::new();
    for (language, programs) in runtimes(needs.language) {
        let mut found = false;
        for program in *programs {
            found = found || opened.has_program(program)?;
        }
        if !found {
            list.push(unmet("language", language, "no such program in the image"));
        }
    }
    let is_unlisted =
        |name: &&String| template.is_none_or(|template| template.install.contains(name));
    let unlisted: Vec<&String> = needs.native.iter().filter(is_unlisted).collect();
    if unlisted.is_empty() {
        return Ok(list);
    }
    let packages = opened.packages()?;
    for name in unlisted {
        if !packages.contains(name) && !opened.has_program(name)? {
            let reason = "not installed in the image, and no program of that name";
            list.push(unmet("native", name, reason));
        }
    }
    Ok(list)
}

/// Programs that run each language.
fn runtimes(language: Option<Language>) -> &'static [(&'static str, &'static [&'static str])] {
    match language {
        None => &[],
        Some(Language::Node) => &[("node", &["node"])],
        Some(Language::Python) => &[("python", &["python3", "python"])],
        Some(Language::Multi) => &[("node", &["node"]), ("python", &["python3", "python"])],
    }
}

fn unmet_on_host(needs: &Needs, request: &Request, policy: &HostPolicy) -> Vec<UnsatisfiedNeed> {
    let has_any = |names: &[&str]| {
        names.iter().any(|name| {
            lookup::locate(OsStr::new(name), &request.caller, &policy.interpreters).is_some()
        })
    };
    let mut list: Vec<UnsatisfiedNeed> = runtimes(needs.language)
        .iter()
        .filter(|(_, programs)| !has_any(programs))
        .map(|(language, _)| unmet("language", language, "no such program"))
        .collect();
    let without_program: Vec<&String> = needs
        .native
        .iter()
        .filter(|name| !has_any(&[name]))
        .collect();
    if without_program.is_empty() {
        return list;
    }
    let installed = std::fs::File::open(PACKAGES).map(installed);
    let absent = without_program.into_iter().filter(|name| match &installed {
        Ok(installed) => !installed.iter().any(|package| package == *name),
        Err(_) => true,
    });
    let reason = match &installed {
        Ok(_) => "not installed, and no program of that name",
        Err(_) => "no program of that name, and no list of packages here",
    };
    list.extend(absent.map(|name| unmet("native", name, reason)));
    list
}

/// Names of the installed packages of a `dpkg/status` file.
pub(in crate::run) fn installed(status: impl std::io::Read) -> Vec<String> {
    let mut names = Vec::new();
    let mut name = None;
    let lines = BufReader::new(status.take(PACKAGES_BYTES_MAX)).split(b'\n');
    for line in lines.map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        match text.split_once(": ") {
            Some(("Package", found)) => name = Some(found.trim().to_owned()),
            Some(("Status", state)) if state.trim().ends_with(" ok installed") => {
                names.extend(name.take());
            }
            _ if text.is_empty() => name = None,
            _ => (),
        }
    }
    names
}

/// Checks an npm package. The bundle comes first, as for Node.
fn check_npm(
    need: &str,
    bundle: &dyn BundleFiles,
    opened: Option<&OpenedImage>,
) -> Result<Option<UnsatisfiedNeed>, RunError> {
    let requirement = match npm::Requirement::parse(need) {
        Ok(requirement) => requirement,
        Err(error) => return Ok(Some(unmet("npm", need, error.to_string()))),
    };
    let name = &requirement.name;
    let in_bundle = package_json(name, bundle).and_then(|text| npm_version(&requirement, &text));
    let found = match (in_bundle, opened) {
        (Ok(found), _) => Ok(("bundle", found)),
        (Err(reason), Some(opened)) => match opened.node_package(name)? {
            Some(text) => npm_version(&requirement, &text).map(|found| ("image", found)),
            None => Err(reason),
        },
        (Err(reason), None) => Err(reason),
    };
    Ok(match found {
        Ok((_, (_, true))) => None,
        Ok((place, (version, false))) => {
            let reason = format!("the {place} has {}", escape(version.as_bytes()));
            Some(unmet("npm", need, reason))
        }
        Err(reason) => Some(unmet("npm", need, reason)),
    })
}

/// The version in a package.json, and whether it is accepted.
fn npm_version(requirement: &npm::Requirement, text: &[u8]) -> Result<(String, bool), String> {
    let find = |permit: &ParsePermit, text: &[u8]| {
        let package = read_document(permit, text, DOCUMENT_MEMORY_MAX).ok()?;
        let version = package.get("version")?.as_str()?.to_owned();
        let is_accepted = requirement.accepts(permit, &version);
        Some((version, is_accepted))
    };
    let found = reader::parse_with(text, &find).ok().flatten();
    found.ok_or_else(|| "its package.json has no version".to_owned())
}

/// `node_modules/NAME/package.json`. Follows one link, which some package managers create.
fn package_json(name: &str, bundle: &dyn BundleFiles) -> Result<Vec<u8>, String> {
    let absent = || "not in node_modules of the bundle".to_owned();
    let at =
        RelPath::parse(format!("node_modules/{name}").as_bytes()).map_err(|_error| absent())?;
    let directory = match bundle.tree().get(&at) {
        Some(Entry::Directory) => at,
        Some(Entry::Symlink { target }) => resolve_link(&at, target).ok_or_else(absent)?,
        _ => return Err(absent()),
    };
    let file = [directory.as_bytes(), b"/package.json"].concat();
    let file = RelPath::parse(&file).map_err(|_error| absent())?;
    bundle
        .head(&file, PACKAGE_JSON_BYTES_MAX)
        .map_err(|reason| format!("its package.json {reason}"))
}

/// Resolves a link of the bundle by name. The archive reader refuses links that leave the bundle.
fn resolve_link(link: &RelPath, target: &[u8]) -> Option<RelPath> {
    let parent = link.parent()?;
    let mut parts: Vec<&[u8]> = parent.as_bytes().split(|byte| *byte == b'/').collect();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => (),
            b".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    RelPath::parse(&parts.join(&b'/')).ok()
}

/// The first installed package of a name.
#[derive(Debug, Serialize, Deserialize)]
struct PipPackage {
    version: String,
    is_of_bundle: bool,
    /// Whether the need accepts it, or another package of that name.
    is_accepted: bool,
}

fn check_pip(
    needs: &[String],
    bundle: &dyn BundleFiles,
    opened: Option<&OpenedImage>,
) -> Result<Vec<UnsatisfiedNeed>, RunError> {
    if needs.is_empty() {
        return Ok(Vec::new());
    }
    let names = names_beside_packages(bundle, opened)?;
    let needs = needs
        .iter()
        .map(|need| (need, pip::Requirement::parse(need)));
    let needs: Vec<_> = needs.collect();
    let find = |permit: &ParsePermit, names: &[u8]| {
        let present = pip_packages(permit, names);
        let find = |need: &pip::Requirement| find_pip(permit, need, &present);
        let found = needs
            .iter()
            .map(|(_, need)| need.as_ref().ok().and_then(find));
        found.collect::<Vec<_>>()
    };
    let found = reader::parse_with(&names, &find);
    let unmet = needs
        .iter()
        .enumerate()
        .filter_map(|(index, (need, parsed))| {
            let reason = match (parsed, &found) {
                (Err(error), _) => error.to_string(),
                (Ok(_), Err(reason)) => format!("its dist-info cannot be looked for: {reason}"),
                (Ok(_), Ok(found)) => match found.get(index) {
                    Some(Some(package)) if package.is_accepted => return None,
                    Some(Some(package)) => {
                        let place = if package.is_of_bundle {
                            "bundle"
                        } else {
                            "image"
                        };
                        format!("the {place} has {}", escape(package.version.as_bytes()))
                    }
                    Some(None) | None => "no dist-info of it in the bundle".to_owned(),
                },
            };
            Some(unmet("pip", need, reason))
        });
    Ok(unmet.collect())
}

/// Names of the bundle's directories, and of those beside the packages of the image.
fn names_beside_packages(
    bundle: &dyn BundleFiles,
    opened: Option<&OpenedImage>,
) -> Result<Vec<u8>, RunError> {
    let of_bundle = bundle.tree().iter();
    let of_bundle: Vec<&[u8]> = of_bundle
        .filter(|(_, entry)| matches!(entry, Entry::Directory))
        .filter_map(|(path, _)| path.as_bytes().rsplit(|byte| *byte == b'/').next())
        .collect();
    let of_image = match opened {
        Some(opened) => opened.beside_python_packages()?,
        None => Vec::new(),
    };
    let mut names = Vec::new();
    reader::put_part(&of_bundle.join(&b'/'), &mut names);
    reader::put_part(&of_image.join(&b'/'), &mut names);
    Ok(names)
}

/// Names, versions and whether they are of the bundle, of [`names_beside_packages`].
fn pip_packages<'names>(
    permit: &ParsePermit,
    names: &'names [u8],
) -> Vec<(String, &'names str, bool)> {
    let places = reader::split_parts(names).unwrap_or_default();
    let places = places.into_iter().zip([true, false]);
    let packages = places.flat_map(|(place, is_of_bundle)| {
        place.split(|byte| *byte == b'/').filter_map(move |name| {
            let (name, version) = pip::of_dist_info(permit, std::str::from_utf8(name).ok()?)?;
            Some((name, version, is_of_bundle))
        })
    });
    packages.collect()
}

fn find_pip(
    permit: &ParsePermit,
    need: &pip::Requirement,
    present: &[(String, &str, bool)],
) -> Option<PipPackage> {
    let mut named = present.iter().filter(|(name, ..)| *name == need.name);
    let (_, version, is_of_bundle) = named.clone().next()?;
    Some(PipPackage {
        version: (*version).to_owned(),
        is_of_bundle: *is_of_bundle,
        is_accepted: named.any(|(_, version, _)| need.accepts(permit, version)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_known_and_not_installed_is_missing() {
        let status = "Package: git\nStatus: install ok installed\nVersion: 1\n\n\
            Package: curl\nStatus: deinstall ok config-files\n\n\
            Package: half\nStatus: install ok half-configured\nDescription: x\n Status: install ok installed\n\n\
            Status: install ok installed\n\n\
            Package: held\nStatus: hold ok installed\n";
        assert_eq!(installed(status.as_bytes()), ["git", "held"]);
    }

    #[test]
    fn a_link_of_node_modules_is_followed_by_name() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let link = path("node_modules/a");
        for (target, expected) in [
            (
                ".pnpm/a@1/node_modules/a",
                Some("node_modules/.pnpm/a@1/node_modules/a"),
            ),
            ("../packages/a", Some("packages/a")),
            ("../../../etc", None),
        ] {
            assert_eq!(
                resolve_link(&link, target.as_bytes()),
                expected.map(path),
                "{target}"
            );
        }
    }
}
