//! `runner sandbox ls`.

use crate::cli::output::{OutputFlags, render};
use crate::cli::print::Printer;
use crate::cli::sandboxes::parse_name;
use crate::run::verbs::sandbox_list;
use spec::labels::LabelFilter;
use spec::report::{ErrorReport, WarningReport};
use spec::request::Caller;
use spec::sandboxes::{SandboxListing, SandboxName, SandboxState, UnresponsiveSandbox};
use spec::units::count;

pub(super) const HELP: &str = "\
With several filters, a sandbox has to match all of them. One whose supervisor does not answer in
5 s is listed as unresponsive, but not with a filter, as its labels are not known.

Examples:
  runner sandbox ls
  runner sandbox ls build --json
  runner sandbox ls --filter label=project=site --filter label=owner

Exit codes: 0; 125 there is no sandbox with a NAME.";

#[derive(Debug, clap::Args)]
pub struct Ls {
    /// List these sandboxes only
    #[arg(value_name = "NAME")]
    pub sandboxes: Vec<String>,
    /// List only sandboxes with this label
    #[arg(short, long, value_name = "label=NAME[=VALUE]", value_parser = read_filter)]
    pub filter: Vec<LabelFilter>,
    #[command(flatten)]
    pub output: OutputFlags,
}

fn read_filter(text: &str) -> Result<LabelFilter, String> {
    let label = text.strip_prefix("label=");
    let label = label.ok_or("expected label=NAME or label=NAME=VALUE")?;
    LabelFilter::parse(label).map_err(|error| error.to_string())
}

/// # Errors
/// There is no such sandbox, or a supervisor does not answer as expected.
pub(super) fn list(args: &Ls, caller: &Caller, printer: &Printer) -> Result<u8, ErrorReport> {
    let names = args.sandboxes.iter().map(|name| parse_name(name));
    let names: Vec<SandboxName> = names.collect::<Result<_, _>>()?;
    let listed = sandbox_list::list(caller, &names);
    let mut listing = listed.map_err(|error| error.report())?;
    let is_wanted = |state: &SandboxState| {
        let mut filters = args.filter.iter();
        filters.all(|filter| filter.matches(&state.labels))
    };
    listing.sandboxes.retain(is_wanted);
    let is_filtered = !args.filter.is_empty();
    if is_filtered {
        let left_out = std::mem::take(&mut listing.unresponsive);
        printer.warnings(&left_out.iter().map(no_labels).collect::<Vec<_>>());
    }
    let text = render(args.output.json, &listing, |listing| {
        table(listing, is_filtered)
    });
    Ok(printer.document(&text, 0))
}

fn no_labels(UnresponsiveSandbox { name, .. }: &UnresponsiveSandbox) -> WarningReport {
    let message =
        format!("the supervisor of the sandbox {name} does not answer: its labels are not known");
    WarningReport::new("sandbox_unresponsive", message)
}

fn table(listing: &SandboxListing, is_filtered: bool) -> String {
    if listing.sandboxes.is_empty() && listing.unresponsive.is_empty() {
        let text = match is_filtered {
            true => "no sandbox matches\n",
            false => "no sandbox; `runner sandbox create` makes one\n",
        };
        return text.to_owned();
    }
    let rows = listing.sandboxes.iter().map(|state| {
        let commands = count(state.commands.len(), "command");
        let paused = if state.is_paused { ", paused" } else { "" };
        let end = state
            .ends_in_ms
            .map(|left_ms| format!(", ends in {}", rounded(left_ms)));
        format!(
            "{:<24}  {}  {commands}{paused}{}\n",
            state.name.as_str(),
            state.run_id,
            end.unwrap_or_default()
        )
    });
    let unresponsive = listing.unresponsive.iter().map(|sandbox| {
        let UnresponsiveSandbox { name, run_id } = sandbox;
        format!("{:<24}  {run_id}  unresponsive\n", name.as_str())
    });
    rows.chain(unresponsive).collect()
}

/// About how long that is, as docker writes it.
fn rounded(milliseconds: u64) -> String {
    let units = [("hour", 3_600_000), ("minute", 60_000)];
    let unit = units.into_iter().find(|(_, unit)| milliseconds >= 2 * unit);
    let (name, unit) = unit.unwrap_or(("second", 1_000));
    count(milliseconds / unit, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_down_to_a_unit_that_fits() {
        for (milliseconds, expected) in [
            (0, "0 seconds"),
            (1_999, "1 second"),
            (119_999, "119 seconds"),
            (120_000, "2 minutes"),
            (7_199_999, "119 minutes"),
            (7_200_000, "2 hours"),
            (172_800_000, "48 hours"),
        ] {
            assert_eq!(rounded(milliseconds), expected);
        }
    }

    #[test]
    fn a_filter_names_its_kind() {
        for bad in ["", "a", "name=x", "label", "label=", "label==x"] {
            assert!(read_filter(bad).is_err(), "{bad}");
        }
        assert!(read_filter("label=a").is_ok() && read_filter("label=a=b").is_ok());
    }
}
