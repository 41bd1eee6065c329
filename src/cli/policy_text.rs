//! Adds entries to the lists of the key `flags` of a configuration file, and keeps all else of its text.
//! Pure.

use spec::egress::EgressRule;
use spec::host_config::{self, HostPath, InvalidConfig, Statement, WrittenFlags, WrittenMaxima};

/// First line of the comments about what a policy lacks.
const LEFT_OUT: &str = "# Left out:";
/// How the lines below it begin, besides those with a number.
const LEFT_OUT_WORDS: [&str; 4] = ["read ", "write ", "connect ", "the command failed"];
const ROW: &str = "#   ";

/// One entry of a list: the value, and the comment above it.
pub(super) type Row = (String, String);

/// New entries of one list.
pub(super) type List = (&'static str, Vec<Row>);

/// Why the text cannot be changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum NotAdded {
    #[error("line {line}: the value of `{key}` is not in block style")]
    Layout { line: usize, key: &'static str },
    #[error("its key `flags` is written in a way that is not supported")]
    Unsupported,
}

/// Returns the text with the new entries below the others of their list, and `left_out` in place of what
/// was left out before. `added` are the flags of `lists`.
///
/// # Errors
/// [`NotAdded`]: the lists are in flow style, or the like.
pub(super) fn add(
    text: &str,
    lists: &[List],
    added: &WrittenFlags,
    left_out: &[String],
) -> Result<String, NotAdded> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    match lines
        .iter()
        .position(|line| value(line, 0, "flags").is_some())
    {
        Some(at) if value(&lines[at], 0, "flags") != Some("") => {
            let line = at + 1;
            return Err(NotAdded::Layout { line, key: "flags" });
        }
        Some(at) => add_to_block(&mut lines, at, lists)?,
        None => {
            lines.push("flags:".to_owned());
            let at = lines.len() - 1;
            add_to_block(&mut lines, at, lists)?;
        }
    }
    replace_left_out(&mut lines, left_out);
    let changed = lines.join("\n") + "\n";
    match is_as_expected(text, &changed, added) {
        Ok(true) => Ok(changed),
        Ok(false) | Err(_) => Err(NotAdded::Unsupported),
    }
}

/// Checks that each list can get entries.
///
/// # Errors
/// As [`add`].
pub(super) fn check(text: &str) -> Result<(), NotAdded> {
    let (path, host) = (".", "a.example:1");
    let row = |value: &str| vec![(value.to_owned(), String::new())];
    let paths = vec![HostPath(path.to_owned())];
    let added = WrittenFlags {
        ro: paths.clone(),
        rw: paths,
        allow_net: EgressRule::parse(host).into_iter().collect(),
    };
    let lists = [
        ("ro", row(path)),
        ("rw", row(path)),
        ("allow_net", row(host)),
    ];
    add(text, &lists, &added, &[]).map(drop)
}

/// Whether the parser finds what was there before, and the new entries.
fn is_as_expected(text: &str, changed: &str, added: &WrittenFlags) -> Result<bool, InvalidConfig> {
    let [before, after] = [text, changed].map(|text| host_config::parse("", text.as_bytes()));
    let (before, after) = (before?, after?);
    let mut flags = before.flags.clone();
    flags.extend(added);
    let others = |statement: Statement| Statement {
        flags: WrittenFlags::default(),
        // They have the numbers of their lines.
        maxima: WrittenMaxima::default(),
        ..statement
    };
    Ok(after.flags == flags && others(before) == others(after))
}

/// `at`: the line of `flags`.
fn add_to_block(lines: &mut Vec<String>, at: usize, lists: &[List]) -> Result<(), NotAdded> {
    let depth = lines[at + 1..].iter().find_map(|line| indent(line));
    let depth = depth.filter(|depth| *depth > 0).unwrap_or(2);
    for (key, rows) in lists {
        let end = end_of_block(lines, at, 0);
        let keys = at + 1..end;
        let Some(of_key) = keys
            .clone()
            .find(|line| value(&lines[*line], depth, key).is_some())
        else {
            lines.splice(end..end, list(key, rows, depth));
            continue;
        };
        let found = value(&lines[of_key], depth, key).unwrap_or_default();
        let is_empty = found
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_empty = is_empty.is_some_and(|inner| inner.trim().is_empty());
        if !found.is_empty() && !is_empty {
            return Err(NotAdded::Layout {
                line: of_key + 1,
                key,
            });
        }
        if rows.is_empty() {
            continue;
        }
        if is_empty && let Some((key, after)) = lines[of_key].split_once(found) {
            lines[of_key] = format!("{}{after}", key.trim_end());
        }
        let first = lines[of_key + 1..end]
            .iter()
            .find(|line| indent(line).is_some());
        let is_entry = |line: &&String| line.trim_start().starts_with('-');
        let first = first.filter(is_entry).and_then(|line| indent(line));
        let depth_of_entries = first.filter(|first| *first >= depth).unwrap_or(depth + 2);
        let end = end_of_block(lines, of_key, depth);
        lines.splice(end..end, entries(rows, depth_of_entries));
    }
    Ok(())
}

/// The line after the last one of the value of the key in line `at`, whose indentation is `depth`. Comments
/// and empty lines after it are not part of it.
fn end_of_block(lines: &[String], at: usize, depth: usize) -> usize {
    let mut end = at + 1;
    for (number, line) in lines.iter().enumerate().skip(at + 1) {
        match indent(line) {
            None => (),
            Some(found) if found > depth || (found == depth && is_entry_of(line, depth)) => {
                end = number + 1;
            }
            Some(_) => break,
        }
    }
    end
}

/// A list may have the indentation of its key.
fn is_entry_of(line: &str, depth: usize) -> bool {
    depth > 0 && line.trim_start().starts_with("- ")
}

/// The lines of a list.
pub(super) fn list(key: &str, rows: &[Row], depth: usize) -> Vec<String> {
    let pad = format!("{:depth$}", "");
    match rows {
        [] => vec![format!("{pad}{key}: []")],
        rows => {
            let key = format!("{pad}{key}:");
            [key].into_iter().chain(entries(rows, depth + 2)).collect()
        }
    }
}

fn entries(rows: &[Row], depth: usize) -> Vec<String> {
    let lines = rows.iter().flat_map(|(value, why)| {
        [
            format!("{:depth$}# {why}", ""),
            format!("{:depth$}- {}", "", scalar(value)),
        ]
    });
    lines.collect()
}

/// A double-quoted scalar: each JSON string is one.
fn scalar(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

/// The number of spaces before the text; `None`: a comment or an empty line.
fn indent(line: &str) -> Option<usize> {
    let text = line.trim_start_matches(' ');
    let is_text = !text.trim_start().is_empty() && !text.trim_start().starts_with('#');
    is_text.then(|| line.len() - text.len())
}

/// The value of `key` in a line with this indentation, without a comment after it.
fn value<'line>(line: &'line str, depth: usize, key: &str) -> Option<&'line str> {
    let text = line.get(depth..).filter(|_| indent(line) == Some(depth))?;
    let rest = text.strip_prefix(key)?.strip_prefix(':')?;
    let is_key = rest.is_empty() || rest.starts_with([' ', '\t']);
    let rest = rest.trim();
    let end = match rest.starts_with('#') {
        true => 0,
        false => rest.find(" #").unwrap_or(rest.len()),
    };
    is_key.then(|| rest[..end].trim_end())
}

fn replace_left_out(lines: &mut Vec<String>, left_out: &[String]) {
    let at = lines.iter().position(|line| line == LEFT_OUT);
    if let Some(at) = at {
        let rows = lines[at + 1..].iter().take_while(|line| is_left_out(line));
        let end = at + 1 + rows.count();
        lines.drain(at..end);
    }
    if left_out.is_empty() {
        if at == Some(lines.len()) && lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        return;
    }
    let at = at.unwrap_or_else(|| {
        lines.push(String::new());
        lines.len()
    });
    lines.splice(at..at, left_out_block(left_out));
}

/// The comments about what a policy lacks.
pub(super) fn left_out_block(rows: &[String]) -> impl Iterator<Item = String> + '_ {
    let rows = rows.iter().map(|row| format!("{ROW}{row}"));
    [LEFT_OUT.to_owned()].into_iter().chain(rows)
}

fn is_left_out(line: &str) -> bool {
    line.strip_prefix(ROW).is_some_and(|row| {
        let mut words = LEFT_OUT_WORDS.iter();
        row.starts_with(|first: char| first.is_ascii_digit())
            || words.any(|word| row.starts_with(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a path to `ro` and a host.
    fn added(text: &str, left_out: &[&str]) -> Result<String, NotAdded> {
        let row = |value: &str, why: &str| vec![(value.to_owned(), why.to_owned())];
        let added = WrittenFlags {
            ro: vec![HostPath("new".to_owned())],
            rw: Vec::new(),
            allow_net: vec![EgressRule::parse("n.com:1").expect("a rule")],
        };
        let lists = [
            ("ro", row("new", "read")),
            ("rw", Vec::new()),
            ("allow_net", row("n.com:1", "used")),
        ];
        let left_out: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        add(text, &lists, &added, &left_out)
    }

    #[test]
    fn comments_before_within_and_after_stay() {
        let text = r#"# Written by `runner learn`: a
# mine, above
syscalls: strict # mine, beside

flags: # mine, of flags
  # mine, of ro
  ro: # mine, beside ro

    # mine, of a
    - a # mine, beside a
    # mine, below a
  rw: [ ] # mine, of rw
  # mine, of allow_net
  allow_net:
  - >-
    b.com
  # mine, at the end
maxima: # mine, of maxima
  memory: 1g

# Left out:
#   read old: gone
#   2 paths more
#   mine, below what was left out
"#;
        let expected = r#"# Written by `runner learn`: a
# mine, above
syscalls: strict # mine, beside

flags: # mine, of flags
  # mine, of ro
  ro: # mine, beside ro

    # mine, of a
    - a # mine, beside a
    # read
    - "new"
    # mine, below a
  rw: [ ] # mine, of rw
  # mine, of allow_net
  allow_net:
  - >-
    b.com
  # used
  - "n.com:1"
  # mine, at the end
maxima: # mine, of maxima
  memory: 1g

# Left out:
#   write x: why
#   mine, below what was left out
"#;
        let changed = added(text, &["write x: why"]).expect("changed");
        assert_eq!(changed, expected);
        let none = changed
            .replace("#   write x: why\n", "")
            .replace("# Left out:\n", "");
        let lists = ["ro", "rw", "allow_net"].map(|key| (key, Vec::new()));
        let unchanged = add(&changed, &lists, &WrittenFlags::default(), &[]);
        assert_eq!(unchanged.expect("changed"), none);
    }

    #[test]
    fn missing_keys_are_added() {
        let lists = "  ro:\n    # read\n    - \"new\"\n  rw: []\n  allow_net:\n    # used\n    - \"n.com:1\"\n";
        for (text, expected) in [
            ("", format!("flags:\n{lists}")),
            ("# mine", format!("# mine\nflags:\n{lists}")),
            (
                "syscalls: strict\n# mine\n",
                format!("syscalls: strict\n# mine\nflags:\n{lists}"),
            ),
            (
                "flags:\n   rw: # mine\n   - \"ro: []\"\n# after\naudit: off\n",
                "flags:\n   rw: # mine\n   - \"ro: []\"\n   ro:\n     # read\n     - \"new\"\n\
                 \x20  allow_net:\n     # used\n     - \"n.com:1\"\n# after\naudit: off\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(added(text, &[]).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, line, key) in [
            ("flags: { ro: [a] }\n", 1, "flags"),
            ("flags: {}\n", 1, "flags"),
            ("flags:\n  ro: [a]\n", 2, "ro"),
            ("flags:\n  rw: &here\n    - a\n", 2, "rw"),
            ("flags:\n  allow_net: [\n    a.com ]\n", 2, "allow_net"),
        ] {
            assert_eq!(check(text), Err(NotAdded::Layout { line, key }), "{text}");
        }
        for text in [
            "{ flags: { ro: [a] } }\n",
            "\"flags\":\n  ro: []\n",
            "flags:\n  \"ro\":\n    - a\n",
            "syscalls: strict\n...\n",
        ] {
            assert_eq!(check(text), Err(NotAdded::Unsupported), "{text}");
        }
        for text in [
            "",
            "flags:\n  rw:\n    - a\n",
            "--- # mine\nflags:\n  ro: []\n",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }
}
