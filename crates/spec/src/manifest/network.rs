//! `network.egress`: the hosts that the body asks for.

use std::collections::HashSet;

use crate::document::{Node, excerpt};
use crate::egress::EgressRule;
use crate::manifest::reader::Reader;
use crate::manifest::{ManifestError, Problem};

/// A requested host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRequest {
    pub rule: EgressRule,
    pub source: String,
}

/// Reads `{egress: […]}`.
pub fn read<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    source: &str,
) -> Result<Vec<EgressRequest>, ManifestError> {
    reader.entries(node, &["egress"])?;
    let Some(list) = node.get("egress") else {
        return Ok(Vec::new());
    };
    let mut requests: Vec<EgressRequest> = Vec::new();
    let mut seen = HashSet::new();
    for item in reader.list(list)? {
        let Some(rule) = reader.keep(read_rule(reader, item)) else {
            continue;
        };
        if seen.insert(rule.clone()) {
            requests.push(EgressRequest {
                rule,
                source: source.to_owned(),
            });
        }
    }
    Ok(requests)
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
