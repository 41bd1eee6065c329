//! IO.md, a document with only the blocks of AIP-16.

use serde_json::json;

use crate::document::Node;
use crate::manifest::fields::{Field, Kind};
use crate::manifest::reader::Reader;
use crate::manifest::{BlockDocuments, IO_KEYS, Manifest, Parsed, cross_checks, parsed, top_level};

const IDENTITY_KEYS: [&str; 4] = ["id", "version", "name", "description"];

const SCHEMA: Field<Manifest> = Field::new(
    "schema",
    "The kind of the document.",
    Kind::Other(
        || json!({"const": "io/v1"}),
        |reader, node, _| reader.word(node, &[("io/v1", ())]),
    ),
);

/// Reads an IO.md. `file_name` is used in errors.
#[must_use]
pub fn parse_io(root: &Node, file_name: &str) -> Parsed {
    let is_known = |field: &Field<Manifest>| {
        IO_KEYS.contains(&field.key) || IDENTITY_KEYS.contains(&field.key)
    };
    let fields = top_level::FIELDS.into_iter().filter(is_known);
    let fields: Vec<Field<Manifest>> = fields.chain([SCHEMA]).collect();
    let mut reader = Reader::with_blocks(file_name, root, BlockDocuments::EMPTY);
    let mut manifest = Manifest::default();
    let read = reader.fields(root, &fields, &mut manifest);
    reader.keep(read);
    cross_checks::check(&reader, root, &manifest);
    parsed(manifest, &reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::manifest::{ERRORS_MAX, ManifestError};
    use crate::parse_permit::PERMIT;

    #[test]
    fn errors_are_bounded_and_in_the_order_of_the_text() {
        let parsed = |text: &str| {
            let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
            parse_io(&root, "IO.md").errors
        };
        let text = "inputsFiles: {a: {}}\nrun: x\nschema: code/v2\n";
        let codes: Vec<_> = parsed(text).iter().map(ManifestError::code).collect();
        assert_eq!(codes, ["missing_key", "unknown_key", "unknown_value"]);
        assert_eq!(parsed("schema: io/v1\nid: a\ninputs: {}\n"), []);
        let keys: String = (0..2 * ERRORS_MAX)
            .map(|index| format!("k{index}: 1\n"))
            .collect();
        assert_eq!(parsed(&keys).len(), ERRORS_MAX + 1);
    }
}
