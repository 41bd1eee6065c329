//! A report as a page: one file of HTML that loads nothing and runs no script.
//!
//! Pure: from the JSON document of a run to text. The template, `templates/report.html`, can write a
//! text only through [`escape::Visible`].

mod denials;
mod document;
pub(crate) mod escape;
mod sections;
mod text;
mod timeline;
mod verdict;

use askama::Template;
use serde::Deserialize as _;
use serde_json::Value;

use crate::page::denials::{Group, Observed};
use crate::page::document::Document;
use crate::page::sections::{Enforced, Fact, Item, Output, Tree};
use crate::page::text::{Rows, Text};
use crate::page::timeline::{Picture, Timeline};
use crate::page::verdict::Verdict;

/// Words of the command line that are shown.
const WORDS_MAX: usize = 60;
const WARNINGS_MAX: usize = 50;

/// The page cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("the report has a field of another type than this version writes")]
    Document(#[source] serde_json::Error),
    #[error("the template of the page")]
    Template(#[source] askama::Error),
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'report> {
    report: &'report Document,
    verdict: Verdict,
    facts: Vec<Fact>,
    command: Rows<Text>,
    warnings: Rows<String>,
    timeline: Timeline,
    denials: Vec<Group>,
    observed: Vec<Observed>,
    network: String,
    reached: Rows<Item>,
    unreachable: Rows<Item>,
    allowed: Rows<Text>,
    published: Rows<Item>,
    lost: Option<String>,
    tree: Option<Tree>,
    origins: Vec<Item>,
    inputs: Rows<Item>,
    results: Rows<Item>,
    secrets: Rows<Item>,
    outputs: Vec<Output>,
    limits: Rows<Item>,
    enforcement: Enforced,
}

/// The outcome of a report.
///
/// # Errors
/// [`PageError::Document`] if `report` is no report.
pub(crate) fn verdict(report: &Value) -> Result<Verdict, PageError> {
    Ok(verdict::of_document(&document(report)?))
}

fn document(report: &Value) -> Result<Document, PageError> {
    Document::deserialize(report).map_err(PageError::Document)
}

/// The page of a report.
///
/// # Errors
/// [`PageError::Document`] if `report` is no report.
pub(crate) fn render(report: &Value) -> Result<String, PageError> {
    let report = &document(report)?;
    let page = Page {
        report,
        verdict: verdict::of_document(report),
        facts: sections::facts(report),
        command: Rows::new(&report.argv, WORDS_MAX, Text::clone),
        warnings: Rows::new(&report.warnings, WARNINGS_MAX, |warning| {
            format!("{} ({})", warning.message, warning.code)
        }),
        timeline: timeline::timeline(report),
        denials: denials::groups(report),
        observed: denials::observed(report),
        network: sections::network(report),
        reached: sections::reached(report),
        unreachable: sections::unreachable(report),
        allowed: sections::allowed(report),
        published: sections::published(report),
        lost: sections::lost(report),
        tree: sections::tree(report),
        origins: sections::origins(report),
        inputs: sections::files(&report.inputs),
        results: sections::files(&report.outputs),
        secrets: sections::secrets(report),
        outputs: sections::outputs(report),
        limits: sections::limits(report),
        enforcement: sections::enforcement(report),
    };
    let mut text = page.render().map_err(PageError::Template)?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests;
