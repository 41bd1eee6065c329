//! `ref` sources: their order, depth first, in cycles, as diamonds, eight levels deep.

use support::Ground;
use support::bundling::manifest;

fn workspace(name: &str, sources: &str) -> String {
    let manifest = manifest(sources);
    format!(
        "kind: code-workspace\n{}",
        manifest.replace("name: tool", &format!("name: {name}"))
    )
}

#[test]
fn the_sources_of_a_code_workspace_stand_where_it_is_referred_to() {
    let ground = Ground::new();
    ground.file(
        "libs/inner/manifest.yaml",
        workspace("inner", "inline: {path: inner, content: x}"),
    );
    ground.file(
        "libs/outer/manifest.yaml",
        workspace(
            "outer",
            "inline: {path: first, content: x}\nref: libs/inner\ninline: {path: last, content: x}",
        ),
    );
    ground.file(
        "m.yaml",
        manifest("inline: {path: a, content: x}\nref: {path: ./libs/outer}\ninline: {path: b, content: x}"),
    );
    let ended = ground.make(&["m.yaml", "--lock", "lock.json"]);
    ended.assert_done();
    let text = std::fs::read_to_string(ground.workspace().join("lock.json")).expect("written");
    let lock: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let paths: Vec<_> = lock["sources"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|source| source["path"].as_str().expect("a path"))
        .collect();
    assert_eq!(paths, ["a", "first", "inner", "last", "b"]);
}

#[test]
fn code_as_text_is_one_reference_and_a_workspace_without_code_is_its_folder() {
    let ground = Ground::new();
    ground.file("libs/x/manifest.yaml", "kind: code-workspace\nname: x\n");
    ground.file("libs/x/lib/a.py", "a");
    ground.file("tools/t/manifest.yaml", "code: ./libs/x\nrun: [echo]\n");
    let archive = ground.archive(&["tools/t"]);
    assert_eq!(archive.names(), ["lib/", "lib/a.py", "manifest.yaml"]);
}

#[test]
fn a_lean_source_is_relative_to_the_file_that_holds_it() {
    let ground = Ground::new();
    ground.file(".code/notion/search.py", "search");
    ground.file(
        ".code/notion/CODE.md",
        "---\nschema: code/v2\nsource: {local: ./search.py}\nrun: 'python search.py'\n---\n",
    );
    assert_eq!(ground.archive(&["notion"]).names(), ["search.py"]);
    assert_eq!(ground.archive(&[".code/notion"]).names(), ["search.py"]);
    ground.file("m.yaml", manifest("ref: .code/notion"));
    assert_eq!(ground.archive(&["m.yaml"]).names(), ["search.py"]);
}

#[test]
fn a_circle_is_refused_with_its_whole_chain_before_any_source_is_looked_at() {
    let ground = Ground::new();
    for (name, to) in [("a", "a"), ("b", "c"), ("c", "d"), ("d", "b")] {
        // The first source does not exist: that error would show that it is read before the cycle is found.
        let sources = format!("local: nowhere\nref: libs/{to}");
        ground.file(
            &format!("libs/{name}/manifest.yaml"),
            workspace(name, &sources),
        );
    }
    for (subject, chain) in [
        ("libs/a", "libs/a → libs/a"),
        ("libs/b", "libs/b → libs/c → libs/d → libs/b"),
    ] {
        let ended = ground.make(&[subject, "--list"]);
        ended.assert_refused("code_cycle", &[chain, "/code/sources/1 (ref)"]);
    }
    ground.file("m.yaml", manifest("ref: libs/d"));
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_refused(
        "code_cycle",
        &["in a cycle: libs/d → libs/b → libs/c → libs/d"],
    );
}

#[test]
fn a_diamond_is_legal() {
    let ground = Ground::new();
    ground.file(
        "libs/d/manifest.yaml",
        workspace("d", "inline: {path: d, content: d}"),
    );
    ground.file(
        "libs/b/manifest.yaml",
        workspace("b", "ref: libs/d\ninline: {path: b, content: b}"),
    );
    ground.file(
        "libs/c/manifest.yaml",
        workspace("c", "ref: libs/d\ninline: {path: d, content: c}"),
    );
    ground.file("m.yaml", manifest("ref: libs/b\nref: libs/c"));
    let archive = ground.archive(&["m.yaml"]);
    assert_eq!(archive.names(), ["b", "d"]);
    assert_eq!(archive.text("d"), "c");
}

#[test]
fn eight_code_workspaces_may_lie_below_each_other_and_not_nine() {
    let ground = Ground::new();
    for level in 1..=9 {
        let sources = match level {
            9 => "inline: {path: bottom, content: x}".to_owned(),
            _ => format!("ref: w{}", level + 1),
        };
        ground.file(
            &format!("w{level}/manifest.yaml"),
            workspace(&format!("w{level}"), &sources),
        );
    }
    ground.file("m.yaml", manifest("ref: w2"));
    assert_eq!(ground.archive(&["m.yaml"]).names(), ["bottom"]);
    ground.file("m.yaml", manifest("ref: w1"));
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_refused(
        "code_depth",
        &["more than 8 deep", "w8 → w9", "w8/manifest.yaml"],
    );
}

#[test]
fn references_that_multiply_are_refused_and_not_resolved() {
    let ground = Ground::new();
    for level in 1..=5 {
        let sources = match level {
            5 => "inline: {path: bottom, content: x}".to_owned(),
            _ => vec![format!("ref: w{}", level + 1); 12].join("\n"),
        };
        ground.file(
            &format!("w{level}/manifest.yaml"),
            workspace(&format!("w{level}"), &sources),
        );
    }
    let ended = ground.make(&["w1", "--list"]);
    ended.assert_refused("code_too_many_sources", &["more than 4096 sources"]);
}

#[test]
fn a_large_code_workspace_that_is_referred_to_often_is_merged_once() {
    let ground = Ground::new();
    let variables: String = (0..6_000)
        .map(|number| format!("  V{number}: {{vault: aa}}\n"))
        .collect();
    ground.file(
        "w/manifest.yaml",
        format!(
            "{}secrets:\n{variables}",
            workspace("w", "inline: {path: a, content: x}")
        ),
    );
    // Reading each of them separately would take minutes and gigabytes.
    ground.file("m.yaml", manifest(&vec!["ref: w"; 4_000].join("\n")));
    ground.make(&["m.yaml", "--print-digest"]).assert_done();
}

#[test]
fn the_last_of_several_references_wins_and_the_first_one_places_the_hosts() {
    let ground = Ground::new();
    for (name, memory) in [("a", 100), ("b", 200)] {
        ground.file(
            &format!("{name}/manifest.yaml"),
            format!(
                "{}runner: {{limits: {{memory_mb: {memory}}}}}\nnetwork: {{egress: [{name}.example]}}\n",
                workspace(name, &format!("inline: {{path: {name}, content: x}}"))
            ),
        );
    }
    ground.file("m.yaml", manifest("ref: a\nref: b\nref: a\nref: b\nref: a"));
    let archive = ground.archive(&["m.yaml"]);
    let resolved: serde_json::Value =
        serde_json::from_str(&archive.text(".runner/manifest.json")).expect("JSON");
    assert_eq!(resolved["runner"]["limits"]["memory_mb"], 100);
    let hosts = serde_json::json!(["a.example", "b.example"]);
    assert_eq!(resolved["network"]["egress"], hosts);
}

#[test]
fn a_code_workspace_that_was_not_too_deep_before_is_too_deep_further_down() {
    let ground = Ground::new();
    for level in 1..=8 {
        let sources = match level {
            8 => "inline: {path: bottom, content: x}".to_owned(),
            _ => format!("ref: w{}", level + 1),
        };
        ground.file(
            &format!("w{level}/manifest.yaml"),
            workspace(&format!("w{level}"), &sources),
        );
    }
    ground.file("deeper/manifest.yaml", workspace("deeper", "ref: w1"));
    ground.file("m.yaml", manifest("ref: w1\nref: w2\nref: w1"));
    ground.make(&["m.yaml", "--list"]).assert_done();
    ground.file("m.yaml", manifest("ref: w1\nref: deeper"));
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_refused("code_depth", &["deeper → w1", "w7 → w8"]);
}

#[test]
fn only_a_code_workspace_can_be_referred_to() {
    let ground = Ground::new();
    ground.file("tools/t/manifest.yaml", "run: [echo]\n");
    ground.file("m.yaml", manifest("ref: tools/t"));
    let ended = ground.make(&["m.yaml", "--list"]);
    ended.assert_refused(
        "source_not_code_workspace",
        &["of `kind: tool`", "with `local`"],
    );
}

#[test]
fn every_error_of_a_referenced_manifest_is_reported_with_its_file() {
    let ground = Ground::new();
    ground.file(
        "libs/x/manifest.yaml",
        "kind: code-workspace\nnaem: x\nrunner: {engin: sandbox}\n",
    );
    ground.file("m.yaml", manifest("ref: libs/x"));
    let ended = ground.make(&["m.yaml", "--list"]);
    let parts = [
        "libs/x/manifest.yaml:2:1 at /naem",
        "libs/x/manifest.yaml:3:10",
        "did you mean `engine`?",
    ];
    ended.assert_refused("unknown_key", &parts);
}
