//! Which keys of a manifest a command can use, which has no bundle.

use crate::document::{Key, Node, Value};
use crate::limits::Limit;
use crate::manifest::reader::Reader;
use crate::manifest::{BlockDocuments, ManifestError, Problem};

/// What a manifest without a bundle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commands {
    /// `runner run`
    One,
    /// `runner sandbox create`: the commands come later.
    Many,
}

const OF_BUNDLE: &str = "which is for a bundle";
const MOUNT_FILES: &str = "make the files visible: --ro, --rw, --mount or `sandbox.mounts`";
const BLOCK_OF_LIMITS: &str = "write limits into `sandbox.limits`; --image names an image";

/// Keys of the top level that are for bundles, each with what to do instead.
const REFUSED: [(&str, &str); 6] = [
    ("run", "remove it: the command is given on the command line"),
    (
        "entry",
        "remove it: the command is given on the command line",
    ),
    ("code", MOUNT_FILES),
    ("source", MOUNT_FILES),
    ("runner", BLOCK_OF_LIMITS),
    ("runtime", BLOCK_OF_LIMITS),
];

/// Refuses what a command cannot use of the valid manifest `root`. The rest has the same meaning as
/// for a bundle.
#[must_use]
pub fn check_for_command(
    root: &Node,
    file_name: &str,
    blocks: &BlockDocuments,
    commands: Commands,
) -> Vec<ManifestError> {
    let reader = Reader::with_blocks(file_name, root, blocks);
    for (name, instead) in REFUSED {
        if let Some((key, _)) = root.entry(name) {
            refuse(&reader, root, key, OF_BUNDLE, instead);
        }
    }
    let block = root
        .get("sandbox")
        .map(|node| reader.block(node, "sandbox"));
    if let Some(block) = block.and_then(|block| reader.keep(block)) {
        refuse_provider(&reader, block);
        if let Some(limits) = block.get("limits") {
            refuse_times(&reader, limits, commands);
        }
    }
    refuse_times(&reader, root, commands);
    reader.errors()
}

fn refuse(reader: &Reader<'_>, map: &Node, key: &Key, why: &'static str, instead: &'static str) {
    let problem = Problem::NotOfCommand {
        key: key.name.clone(),
        why,
        instead,
    };
    reader.note(reader.key_error(map, key, problem));
}

/// Node's permissions are flags of the program that a bundle starts.
fn refuse_provider(reader: &Reader<'_>, block: &Node) {
    let Some(node) = block.get("provider") else {
        return;
    };
    if matches!(&node.value, Value::Text(name) if name == "node-permission") {
        let problem = Problem::ProviderUnavailable {
            provider: "node-permission".to_owned(),
            why: "it sets flags of the Node that a bundle starts",
        };
        reader.note(reader.error(node, problem));
    }
}

/// The times of a manifest are those of one command; a sandbox that stays has limits for all its
/// commands together.
fn refuse_times(reader: &Reader<'_>, map: &Node, commands: Commands) {
    let times = [
        (
            Limit::WallTime,
            "remove it; --timeout limits the lifetime of the sandbox",
        ),
        (
            Limit::CpuTime,
            "remove it; --cpu-time limits all commands of the sandbox together",
        ),
    ];
    for (limit, instead) in times.into_iter().filter(|_| commands == Commands::Many) {
        let name = limit.row().key.map(|key| key.name);
        if let Some((key, _)) = name.and_then(|name| map.entry(name)) {
            refuse(
                reader,
                map,
                key,
                "which is a limit of a single command",
                instead,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::manifest::{BlockDocument, Format, block_references, parse_with};
    use crate::parse_permit::PERMIT;

    fn node(text: &str) -> Node {
        document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document")
    }

    /// Place, pointer and code of each error.
    fn refused(text: &str, documents: &[&str], commands: Commands) -> Vec<String> {
        let root = node(text);
        let mut blocks = BlockDocuments::default();
        for (reference, text) in block_references(&root).into_iter().zip(documents) {
            let (file, root) = ("S.md".to_owned(), node(text));
            blocks.insert(reference, BlockDocument { file, root });
        }
        let parsed = parse_with(&root, "m.yaml", &blocks);
        assert_eq!(parsed.errors, [], "{text}");
        let errors = check_for_command(&root, "m.yaml", &blocks, commands);
        let row = |error: &ManifestError| {
            assert!(error.hint().is_some(), "{error}");
            let place = error.place.expect("a place");
            let pointer = error.pointer.as_deref().expect("a pointer");
            format!("{}:{place} {pointer} {}", error.file, error.code())
        };
        errors.iter().map(row).collect()
    }

    #[test]
    fn what_is_for_a_bundle_is_refused_by_place() {
        let text = "name: x\nrun: a.sh\nrunner: {limits: {memory_mb: 64}}\n\
                    source: {local: ./a}\nsandbox: {provider: node-permission}\n";
        let expected = [
            "m.yaml:2:1 /run not_of_command",
            "m.yaml:3:1 /runner not_of_command",
            "m.yaml:4:1 /source not_of_command",
            "m.yaml:5:21 /sandbox/provider provider_unavailable",
        ];
        for commands in [Commands::One, Commands::Many] {
            assert_eq!(refused(text, &[], commands), expected);
        }
        let older = "entry: a.sh\nruntime: {engine: subprocess}\ncode: ./shared\n";
        assert_eq!(refused(older, &[], Commands::One).len(), 3);
    }

    #[test]
    fn times_are_those_of_one_command() {
        let text = "timeout_ms: 5\nsandbox: {file: S.md}\n";
        let block = "provider: local\nlimits: {memory_mb: 64, timeout_ms: 1, cpu_ms: 1}\n";
        assert_eq!(refused(text, &[block], Commands::One), [""; 0]);
        assert_eq!(
            refused(text, &[block], Commands::Many),
            [
                "m.yaml:1:1 /timeout_ms not_of_command",
                "S.md:2:25 /limits/timeout_ms not_of_command",
                "S.md:2:40 /limits/cpu_ms not_of_command",
            ]
        );
    }

    #[test]
    fn a_manifest_with_the_rest_is_accepted() {
        let text = "kind: tool\nname: n\nnetwork: {egress: [a.example]}\n\
                    secrets: {K: {vault: k}}\ninputsFiles: {a: {path: a}}\n\
                    sandbox: {inline: {provider: local, config: {cwd: a, shell: /bin/bash}, \
                    env: {passthrough: [A]}, mounts: [{source: workspace, at: /w}], \
                    limits: {memory_mb: 64}, lifecycle: {destroy_on: workspace-close}}}\n";
        for commands in [Commands::One, Commands::Many] {
            assert_eq!(refused(text, &[], commands), [""; 0]);
        }
    }
}
