//! Which keys of a manifest a command can use, which has no bundle.

use crate::document::{Key, Node, Value};
use crate::manifest::reader::Reader;
use crate::manifest::{BlockDocuments, ManifestError, Problem};

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
    }
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
    fn refused(text: &str, documents: &[&str]) -> Vec<String> {
        let root = node(text);
        let mut blocks = BlockDocuments::default();
        for (reference, text) in block_references(&root).into_iter().zip(documents) {
            let (file, root) = ("S.md".to_owned(), node(text));
            blocks.insert(reference, BlockDocument { file, root });
        }
        let parsed = parse_with(&root, "m.yaml", &blocks);
        assert_eq!(parsed.errors, [], "{text}");
        let errors = check_for_command(&root, "m.yaml", &blocks);
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
        assert_eq!(refused(text, &[]), expected);
        let older = "entry: a.sh\nruntime: {engine: subprocess}\ncode: ./shared\n";
        assert_eq!(refused(older, &[]).len(), 3);
    }

    #[test]
    fn a_manifest_with_the_rest_is_accepted() {
        let text = "kind: tool\nname: n\nnetwork: {egress: [a.example]}\n\
                    secrets: {K: {vault: k}}\ninputsFiles: {a: {path: a}}\n\
                    sandbox: {inline: {provider: local, config: {cwd: a, shell: /bin/bash}, \
                    env: {passthrough: [A]}, mounts: [{source: workspace, at: /w}], \
                    limits: {memory_mb: 64, timeout_ms: 1, cpu_ms: 1}, lifecycle: {destroy_on: workspace-close}}}\n";
        assert_eq!(refused(text, &[]), [""; 0]);
    }
}
