//! The configuration of clients as docs/mcp.md shows it. `tests/readme.rs` runs its commands.

use serde_json::{Value, json};

use crate::client::Client;
use crate::host::Host;

const DOCUMENT: &str = include_str!("../../docs/mcp.md");

/// The blocks of JSON, with directories of the ground instead of those of a reader.
fn configurations(host: &Host) -> Vec<Value> {
    let ground = host.ground.path("").display().to_string();
    let blocks = DOCUMENT.split("```json\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("an end"));
    let parse = |block: &str| serde_json::from_str(&block.replace("/home/me/", &ground));
    blocks.map(|block| parse(block).expect("JSON")).collect()
}

#[test]
fn each_configuration_starts_a_server() {
    let host = Host::new();
    for directory in ["project", "tools"] {
        std::fs::create_dir(host.ground.path(directory)).expect("made");
    }
    let configurations = configurations(&host);
    let servers = configurations.iter().flat_map(|configuration| {
        let servers = configuration["mcpServers"].as_object();
        servers.expect("servers").values()
    });
    let (by_url, started): (Vec<_>, Vec<_>) = servers.partition(|server| server["url"].is_string());
    // The tests of HTTP use such a server.
    assert_eq!(by_url.len(), 1);
    assert_eq!(by_url[0]["url"], "http://127.0.0.1:8080/mcp");
    assert_eq!(by_url[0]["headers"]["Authorization"], "Bearer TOKEN");
    assert_eq!(started.len(), 2);
    for (server, tools) in started.into_iter().zip([7, 8]) {
        assert_eq!(server["command"], "runner");
        let words = server["args"].as_array().expect("words").iter();
        let words: Vec<&str> = words.map(|word| word.as_str().expect("text")).collect();
        assert_eq!(words[0], "mcp");
        let mut client = Client::start(&host, &words[1..]);
        let id = client.request("tools/list", &json!({}));
        let listed = client.answer(id);
        let listed = listed["result"]["tools"].as_array().expect("a list");
        assert_eq!(listed.len(), tools);
        // Each is in the table, and nothing else.
        for tool in listed {
            let row = format!("| `{}` |", tool["name"].as_str().expect("text"));
            assert_eq!(DOCUMENT.matches(&row).count(), 1, "{row}");
        }
    }
}
