//! One manual page for each verb, from the description of the command line.

use std::io::{Error, Write as _};

use clap::Command;
use clap_mangen::Man;

/// File names and pages in troff: `runner.1`, `runner-exec.1` and so on.
///
/// # Errors
/// None: the pages are written to memory.
pub(crate) fn render(mut command: Command) -> Result<Vec<(String, String)>, Error> {
    command.build();
    let mut pages = Vec::new();
    let mut pending = vec![command];
    while let Some(verb) = pending.pop() {
        let below = verb.get_subcommands().filter(|below| !below.is_hide_set());
        pending.extend(below.cloned());
        pages.push(page(verb)?);
    }
    pages.sort();
    Ok(pages)
}

fn page(verb: Command) -> Result<(String, String), Error> {
    let help = verb.get_after_help().map(ToString::to_string);
    let has_verbs = verb.get_subcommands().any(|below| !below.is_hide_set());
    let man = Man::new(verb);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_verbs {
        man.render_subcommands_section(&mut page)?;
    }
    // Its lines are kept: `Man::render` would fill the examples.
    if let Some(help) = help {
        page.write_all(b".SH NOTES\n.nf\n")?;
        for line in help.lines() {
            writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
        }
        page.write_all(b".fi\n")?;
    }
    let page = String::from_utf8_lossy(&page).chars().map(ascii).collect();
    Ok((man.get_filename(), page))
}

/// A character as troff reads it in every locale.
fn ascii(character: char) -> String {
    if character.is_ascii() {
        character.to_string()
    } else {
        format!("\\[u{:04X}]", u32::from(character))
    }
}
