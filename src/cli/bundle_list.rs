//! `runner bundle --list` and `--print-digest`, as text or as one JSON document.

use serde_json::{Value, json};

use crate::cli::bundle::Bundle;
use crate::cli::output::to_json;
use bundler::gather::Gathered;
use bundler::origin::SourceOrigin;
use bundler::overlay::{Item, Placed};
use spec::digest::Digest;
use spec::path::{RelPath, escape};

/// The text for standard output; empty without these flags.
pub(super) fn text(bundle: &Bundle, gathered: &Gathered, digest: Option<Digest>) -> String {
    let digest = digest.filter(|_| bundle.print_digest);
    if bundle.json {
        let mut map = serde_json::Map::new();
        if let Some(digest) = digest {
            map.insert("content_digest".to_owned(), json!(digest));
        }
        if bundle.list {
            let entries =
                in_archive_order(gathered).map(|(path, placed)| entry(path, placed, gathered));
            map.insert("entries".to_owned(), entries.collect());
            map.insert("sources".to_owned(), json!(gathered.commits()));
        }
        return to_json(&map);
    }
    let mut text = String::new();
    if bundle.list {
        for (path, placed) in in_archive_order(gathered) {
            text.push_str(&line(path, placed, gathered));
        }
    }
    if let Some(digest) = digest {
        text.push_str(&digest.to_string());
        text.push('\n');
    }
    text
}

fn in_archive_order(gathered: &Gathered) -> impl Iterator<Item = (&RelPath, &Placed)> {
    let paths = gathered.tree.in_archive_order().into_iter();
    paths.filter_map(|(path, _)| Some((path, gathered.overlay.get(path)?)))
}

/// `        12 x bin/tool  tools/a/manifest.yaml:4:7 at /code/sources/0 (local), replaces …`.
fn line(path: &RelPath, placed: &Placed, gathered: &Gathered) -> String {
    let (size, sign, rest) = match &placed.item {
        Item::File {
            executable, bytes, ..
        } => {
            let sign = if *executable { "x" } else { "-" };
            (bytes.to_string(), sign, String::new())
        }
        Item::Directory => ("-".to_owned(), "d", "/".to_owned()),
        Item::Symlink { target } => ("-".to_owned(), "l", format!(" -> {}", escape(target))),
    };
    let mut text = format!("{size:>10} {sign} {path}{rest}");
    if let Some(origin) = gathered.origins.get(placed.source) {
        text.push_str(&format!("  {origin}"));
    }
    for earlier in replaced(placed, gathered) {
        text.push_str(&format!(", replaces {earlier}"));
    }
    text.push('\n');
    text
}

fn entry(path: &RelPath, placed: &Placed, gathered: &Gathered) -> Value {
    let mut value = json!({
        "path": path.to_string(),
        "type": match placed.item {
            Item::File { .. } => "file",
            Item::Directory => "directory",
            Item::Symlink { .. } => "symlink",
        },
    });
    match &placed.item {
        Item::File {
            executable, bytes, ..
        } => {
            value["bytes"] = json!(bytes);
            value["executable"] = json!(executable);
        }
        Item::Symlink { target } => value["target"] = json!(escape(target)),
        Item::Directory => (),
    }
    value["source"] = gathered
        .origins
        .get(placed.source)
        .map_or(Value::Null, source);
    value["replaced"] = replaced(placed, gathered).map(source).collect();
    value
}

fn replaced<'gathered>(
    placed: &'gathered Placed,
    gathered: &'gathered Gathered,
) -> impl Iterator<Item = &'gathered SourceOrigin> {
    let sources = placed.replaced.iter();
    sources.filter_map(|source| gathered.origins.get(*source))
}

fn source(origin: &SourceOrigin) -> Value {
    json!({
        "manifest": origin.file,
        "pointer": origin.pointer,
        "kind": origin.kind.name(),
    })
}
