//! Random layers compared with a model without files: a map that every entry changes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use runner_sources::oci::layers::Kind;
use spec::path::RelPath;

use crate::mounted;
use crate::stack::Stack;
use support::tar::Tar;

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Directory,
    File(String),
    Link(String),
}

type Tree = BTreeMap<String, Node>;

#[derive(Debug, Clone)]
enum Entry {
    Directory(String),
    File(String),
    Symlink(String, String),
    HardLink(String, String),
    Gone(String),
    Opaque(String),
}

/// One layer: its entries, and those that it hides.
#[derive(Default)]
struct Layer {
    own: Tree,
    gone: BTreeSet<String>,
    opaque: BTreeSet<String>,
    hides_all: bool,
}

fn is_beneath(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// `below` with `layer` above it.
fn merge(below: &Tree, layer: &Layer) -> Tree {
    let mut all = below.clone();
    if layer.hides_all {
        all.clear();
    }
    all.retain(|path, _| {
        !layer
            .gone
            .iter()
            .any(|gone| path == gone || is_beneath(path, gone))
            && !layer.opaque.iter().any(|opaque| is_beneath(path, opaque))
    });
    for (path, node) in &layer.own {
        let merges = *node == Node::Directory && all.get(path) == Some(&Node::Directory);
        if !merges {
            all.retain(|other, _| !is_beneath(other, path));
        }
        all.insert(path.clone(), node.clone());
    }
    all
}

/// The target of a path in `tree`, for a process with that root.
fn resolve(tree: &Tree, path: &str, follows_last: bool) -> Result<String, ()> {
    let mut here: Vec<String> = Vec::new();
    let mut ahead: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut links = 0;
    while let Some(segment) = ahead.pop() {
        match segment.as_str() {
            "" | "." => continue,
            ".." => {
                here.pop();
                continue;
            }
            _ => here.push(segment),
        }
        if let Some(Node::Link(target)) = tree.get(&here.join("/"))
            && (follows_last || !ahead.is_empty())
        {
            links += 1;
            if 40 < links {
                return Err(());
            }
            here.pop();
            if target.starts_with('/') {
                here.clear();
            }
            ahead.extend(target.split('/').rev().map(str::to_owned));
        }
    }
    Ok(here.join("/"))
}

impl Layer {
    fn put(&mut self, path: &str, node: Node) -> Result<(), ()> {
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            match self.own.get(parent) {
                None => drop(self.own.insert(parent.to_owned(), Node::Directory)),
                Some(Node::Directory) => (),
                Some(_) => return Err(()),
            }
            above = parent;
        }
        match (self.own.get(path), &node) {
            (Some(Node::Directory), Node::Directory) => return Ok(()),
            (Some(Node::File(_) | Node::Link(_)), Node::Directory) => {
                self.opaque.insert(path.to_owned());
            }
            (Some(Node::Directory), _) => {
                self.own.retain(|other, _| !is_beneath(other, path));
                self.opaque.retain(|other| !is_beneath(other, path));
            }
            _ => (),
        }
        self.own.insert(path.to_owned(), node);
        Ok(())
    }

    fn take(&mut self, below: &Tree, index: usize, entry: &Entry) -> Result<(), ()> {
        let all = merge(below, self);
        let placed = |path: &str| match resolve(&all, path, false)? {
            place if place.is_empty() => Err(()),
            place => Ok(place),
        };
        match entry {
            Entry::Directory(path) => self.put(&placed(path)?, Node::Directory),
            Entry::File(path) => self.put(&placed(path)?, Node::File(index.to_string())),
            Entry::Symlink(path, target) => self.put(&placed(path)?, Node::Link(target.clone())),
            Entry::HardLink(path, target) => {
                let (path, from) = (placed(path)?, placed(target)?);
                match self.own.get(&from) {
                    Some(Node::File(text)) if path != from && !is_beneath(&from, &path) => {
                        let file = Node::File(text.clone());
                        self.put(&path, file)
                    }
                    _ => Err(()),
                }
            }
            Entry::Gone(path) => {
                let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
                let directory = resolve(&all, directory, true)?;
                let separator = if directory.is_empty() { "" } else { "/" };
                self.gone.insert(format!("{directory}{separator}{name}"));
                Ok(())
            }
            Entry::Opaque(path) => {
                let path = resolve(&all, path, true)?;
                match path.is_empty() {
                    true => self.hides_all = true,
                    false => drop(self.opaque.insert(path)),
                }
                Ok(())
            }
        }
    }
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let all = entries.iter().enumerate();
    let tar = all.fold(Tar::new(), |tar, (index, entry)| match entry {
        Entry::Directory(path) => tar.directory(path),
        Entry::File(path) => tar.file(path, index.to_string().as_bytes()),
        Entry::Symlink(path, target) => tar.symlink(path, target),
        Entry::HardLink(path, target) => tar.hard_link(path, target),
        Entry::Gone(path) => {
            let (directory, name) = path.rsplit_once('/').unwrap_or((".", path));
            tar.file(&format!("{directory}/.wh.{name}"), b"")
        }
        Entry::Opaque(path) => tar.file(&format!("{path}/.wh..wh..opq"), b""),
    });
    tar.end()
}

fn path() -> impl Strategy<Value = String> {
    "[ab](/[abc]){0,3}"
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        2 => path().prop_map(Entry::Directory),
        4 => path().prop_map(Entry::File),
        2 => (path(), "/?(\\.\\./)?[abc.](/[abc]){0,2}").prop_map(|(path, to)| Entry::Symlink(path, to)),
        1 => (path(), path()).prop_map(|(path, to)| Entry::HardLink(path, to)),
        2 => path().prop_map(Entry::Gone),
        1 => path().prop_map(Entry::Opaque),
        1 => Just(Entry::Opaque(".".to_owned())),
    ]
}

/// The stack and the model after all layers that both accept.
fn grown(layers: &[Vec<Entry>]) -> (Stack, Tree) {
    let mut stack = Stack::new();
    let mut model = Tree::new();
    for entries in layers {
        let mut layer = Layer::default();
        let taken = entries
            .iter()
            .enumerate()
            .try_for_each(|(index, entry)| layer.take(&model, index, entry));
        let pushed = stack.push(&written(entries));
        assert_eq!(
            taken.is_ok(),
            pushed.is_ok(),
            "{entries:?} over {model:?}: {:?}",
            pushed.err()
        );
        if taken.is_err() {
            break;
        }
        // An opaque directory that did not exist before stays absent; one that existed is a directory now.
        for path in &layer.opaque {
            let shadowed = layer.own.iter().any(|(own, node)| {
                *node != Node::Directory && (own == path || is_beneath(path, own))
            });
            let hidden = layer.gone.iter().any(|gone| is_beneath(path, gone))
                || layer.opaque.iter().any(|other| is_beneath(path, other));
            let known = layer.own.contains_key(path);
            if layer.hides_all || known || shadowed || hidden || !model.contains_key(path) {
                continue;
            }
            let mut above = Some(path.as_str());
            while let Some(one) = above {
                layer.own.insert(one.to_owned(), Node::Directory);
                above = one.rsplit_once('/').map(|(parent, _)| parent);
            }
        }
        model = merge(&model, &layer);
    }
    (stack, model)
}

fn compare(stack: &Stack, model: &Tree) {
    let merged = stack.merged();
    let one = ["a", "b", "c"];
    let mut paths: Vec<String> = one.iter().map(|name| (*name).to_owned()).collect();
    for _ in 0..3 {
        let longer = paths
            .iter()
            .flat_map(|path| one.map(|name| format!("{path}/{name}")));
        paths = paths.iter().cloned().chain(longer).collect();
    }
    paths.sort();
    paths.dedup();
    for path in &paths {
        let known = RelPath::parse(path.as_bytes()).expect("a path");
        assert_eq!(
            merged.has(&known).expect("looked at"),
            model.contains_key(path),
            "{path} in {model:?}"
        );
        let expected = resolve(model, path, true)
            .ok()
            .and_then(|place| match place.as_str() {
                "" => Some(Node::Directory),
                place => model.get(place).cloned(),
            });
        // A link to `..` of a missing directory leads nowhere for a process.
        let found = merged.kind_of(path.as_bytes()).expect("looked at");
        match (found, expected) {
            (Some(Kind::Directory), Some(Node::Directory)) => (),
            (Some(Kind::File { .. }), Some(Node::File(text))) => {
                let bytes = merged.read_file(path.as_bytes(), 100).expect("read");
                assert_eq!(bytes.as_deref(), Some(text.as_bytes()), "{path}");
            }
            (None, _) => (),
            (found, expected) => panic!("{path}: {found:?}, expected {expected:?}"),
        }
        if let Some(Node::File(_) | Node::Directory) = model.get(path) {
            assert!(found.is_some(), "{path} in {model:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn layers_are_what_a_map_says_that_every_entry_changes(
        layers in proptest::collection::vec(proptest::collection::vec(entry(), 0..8), 1..5)
    ) {
        let (stack, model) = grown(&layers);
        compare(&stack, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn overlayfs_shows_what_a_map_says_that_every_entry_changes(
        layers in proptest::collection::vec(proptest::collection::vec(entry(), 0..12), 1..6)
    ) {
        let (stack, model) = grown(&layers);
        let shown = mounted::check_stack(&stack);
        let letters = model.iter().map(|(path, node)| (path.as_str(), match node {
            Node::Directory => 'd',
            Node::File(_) => 'f',
            Node::Link(_) => 'l',
        }));
        let expected: Vec<(&str, char)> = letters.collect();
        let found: Vec<(&str, char)> =
            shown.iter().map(|(path, (kind, ..))| (path.as_str(), *kind)).collect();
        prop_assert_eq!(found, expected);
    }
}
