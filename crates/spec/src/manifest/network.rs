//! `network.egress`: the hosts that a manifest requests.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use crate::document::{Node, excerpt};
use crate::egress::EgressRule;
use crate::manifest::fields::{Field, Kind, object};
use crate::manifest::reader::Reader;
use crate::manifest::schema::reference;
use crate::manifest::{ManifestError, Problem};

/// A requested host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRequest {
    pub rule: EgressRule,
    pub source: String,
}

const FIELDS: [Field<Vec<EgressRule>>; 1] = [Field::new(
    "egress",
    "The hosts that may be reached. None by default.",
    Kind::Other(
        || json!({"type": "array", "items": reference("egressRule"), "default": []}),
        |reader, node, rules| {
            let mut seen = HashSet::new();
            for item in reader.list(node)? {
                let rule = reader.keep(read_rule(reader, item));
                rules.extend(rule.filter(|rule| seen.insert(rule.clone())));
            }
            Ok(())
        },
    ),
)];

pub(crate) fn schema() -> Json {
    object("The hosts that the body may reach.", &FIELDS)
}

/// Reads `{egress: […]}`.
pub(crate) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    source: &str,
) -> Result<Vec<EgressRequest>, ManifestError> {
    let mut rules = Vec::new();
    reader.fields(node, &FIELDS, &mut rules)?;
    let requests = rules.into_iter().map(|rule| EgressRequest {
        rule,
        source: source.to_owned(),
    });
    Ok(requests.collect())
}

fn read_rule<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<EgressRule, ManifestError> {
    let text = reader.text(node)?;
    EgressRule::parse(text).map_err(|reason| {
        let found = excerpt(text);
        reader.error(node, Problem::Egress { found, reason })
    })
}
