//! The map of `src/` as a test: which room may know which, and how big a room may be.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the source has nothing to say"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each room and the rooms below it that it may name. Order is reading order.
const ROOMS: &[(&str, &[&str])] = &[
    ("spec", &[]),
    ("plan", &["spec"]),
    ("kernel", &["spec"]),
    ("bundle", &["spec", "kernel"]),
    ("cache", &["spec", "kernel", "bundle"]),
    ("http", &["spec", "kernel"]),
    ("judge", &["spec", "kernel"]),
    (
        "compose",
        &["spec", "plan", "kernel", "bundle", "http", "judge"],
    ),
    ("secrets", &["spec", "kernel"]),
    (
        "oci",
        &[
            "spec", "plan", "kernel", "bundle", "cache", "http", "secrets",
        ],
    ),
    ("egress", &["spec", "plan", "kernel"]),
    ("scratch", &["spec", "kernel", "bundle"]),
    ("sandbox", &["spec", "plan", "kernel"]),
    (
        "supervise",
        &["spec", "plan", "kernel", "egress", "sandbox"],
    ),
    (
        "run",
        &[
            "spec",
            "plan",
            "kernel",
            "judge",
            "bundle",
            "cache",
            "http",
            "compose",
            "secrets",
            "oci",
            "egress",
            "scratch",
            "sandbox",
            "supervise",
        ],
    ),
    (
        "cli",
        &[
            "spec", "plan", "kernel", "http", "compose", "secrets", "oci", "run",
        ],
    ),
];

/// Rooms where decisions are made: no unsafe, no clock, no file, no process, no environment.
const PURE_ROOMS: &[&str] = &["spec", "plan"];
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "libc::",
    "Instant::now",
    "SystemTime",
];

/// The only files that may lift the crate-wide ban on unsafe code.
const UNSAFE_FILES: &[&str] = &[
    "src/kernel/mod.rs",
    "src/main.rs",
    "src/sandbox/init.rs",
    "src/sandbox/overlay.rs",
    "src/sandbox/seed.rs",
    "src/sandbox/steps.rs",
];

const NON_TEST_LINES_MAX: usize = 500;

#[test]
fn rooms_only_name_the_rooms_below_them() {
    let mut breaches = Vec::new();
    for file in source_files() {
        let Some((room, allowed)) = room_of(&file) else {
            continue;
        };
        for (number, line) in code_lines(&file) {
            let place = format!("{}:{number}", file.display());
            assert!(
                !line.contains("crate::{"),
                "{place}: write one `use crate::…` per module"
            );
            assert!(
                !line.contains("super::super"),
                "{place}: name the path from `crate::`"
            );
            for named in crate_paths(&line) {
                let known = ROOMS.iter().any(|(name, _)| *name == named);
                if known && named != room && !allowed.contains(&named.as_str()) {
                    breaches.push(format!("{}:{number}: {room} names {named}", file.display()));
                }
            }
        }
    }
    assert!(
        breaches.is_empty(),
        "wrong way through the building:\n{}",
        breaches.join("\n")
    );
}

#[test]
fn pure_rooms_have_no_effects_and_forbid_unsafe() {
    let mut breaches = Vec::new();
    for file in source_files() {
        let Some((room, _)) = room_of(&file) else {
            continue;
        };
        if !PURE_ROOMS.contains(&room) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("source file is readable");
        if file.ends_with("mod.rs") && !text.contains("#![forbid(unsafe_code)]") {
            breaches.push(format!("{}: no forbid(unsafe_code)", file.display()));
        }
        for (number, line) in code_lines(&file) {
            for effect in EFFECTS.iter().filter(|effect| line.contains(**effect)) {
                breaches.push(format!(
                    "{}:{number}: {effect} in a pure room",
                    file.display()
                ));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn the_ban_on_unsafe_is_lifted_only_where_the_map_says() {
    for file in source_files() {
        let text = fs::read_to_string(&file).expect("source file is readable");
        let lifts = text.contains("allow(unsafe_code") || text.contains("expect(unsafe_code");
        let may = UNSAFE_FILES.iter().any(|allowed| file.ends_with(allowed));
        assert!(
            may || !lifts,
            "{} lifts the ban on unsafe code",
            file.display()
        );
    }
}

#[test]
fn every_file_opens_with_a_header_and_fits_the_reader() {
    let mut breaches = Vec::new();
    for file in source_files() {
        let text = fs::read_to_string(&file).expect("source file is readable");
        if !text.starts_with("//! ") {
            breaches.push(format!(
                "{}: first line is not a `//!` header",
                file.display()
            ));
        }
        let lines = code_lines(&file).len();
        if NON_TEST_LINES_MAX < lines {
            breaches.push(format!(
                "{}: {lines} lines, limit {NON_TEST_LINES_MAX}",
                file.display()
            ));
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn every_room_on_disk_is_on_the_map() {
    let on_disk: BTreeSet<String> = source_files()
        .iter()
        .filter_map(|file| top_level_name(file))
        .collect();
    let on_map: BTreeSet<String> = ROOMS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let stray: Vec<&String> = on_disk
        .difference(&on_map)
        .filter(|name| !["lib", "main"].contains(&name.as_str()))
        .collect();
    assert!(stray.is_empty(), "add to ROOMS: {stray:?}");
}

fn source_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).expect("src is readable") {
            let path = entry.expect("entry is readable").path();
            match path.extension() {
                _ if path.is_dir() => pending.push(path),
                Some(extension) if extension == "rs" => found.push(path),
                _ => (),
            }
        }
    }
    found.sort();
    found
}

/// Lines before the `mod tests` block, comments removed, with their 1-based numbers.
fn code_lines(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).expect("source file is readable");
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.trim_start().starts_with("mod tests"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

fn top_level_name(file: &Path) -> Option<String> {
    let inside = file
        .strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        .ok()?;
    Some(
        inside
            .components()
            .next()?
            .as_os_str()
            .to_str()?
            .trim_end_matches(".rs")
            .to_owned(),
    )
}

fn room_of(file: &Path) -> Option<(&'static str, &'static [&'static str])> {
    let name = top_level_name(file)?;
    ROOMS.iter().find(|(room, _)| *room == name).copied()
}

fn crate_paths(line: &str) -> Vec<String> {
    line.match_indices("crate::")
        .map(|(at, token)| {
            line[at + token.len()..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![root.join("README.md"), root.join("SECURITY.md")];
    for folder in ["docs", "packaging", "policies"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("listed");
        let paths = entries.map(|entry| entry.expect("listed").path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let mut broken = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).expect("readable");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.with_file_name(file),
            };
            let found = std::fs::read_to_string(&target);
            let is_there = found.is_ok() || target.exists();
            let headings = found.unwrap_or_default();
            let mut headings = headings.lines().filter(|line| line.starts_with('#'));
            if !is_there || !heading.is_empty() && !headings.any(|line| anchor(line) == heading) {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        character if character.is_alphanumeric() || "-_".contains(character) => Some(character),
        _ => None,
    });
    kept.collect()
}
