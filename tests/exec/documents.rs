//! Blocks in other documents: where a run looks for them.

use std::os::unix::fs::symlink;

use support::text;
use support::{Done, Ground};

/// A block whose effect the report shows: the engine is downgraded.
const BLOCK: &str = "---\nengine: in-process\n---\n";

#[track_caller]
fn assert_read(done: &Done) {
    done.assert_exited(0);
    assert_eq!(done.report["runner"]["downgraded"], true, "{done:#?}");
}

#[track_caller]
fn assert_unresolvable(done: &Done, why: &str) {
    done.assert_error("refused", "runner_ref_unresolvable")
        .assert_message(why);
    done.assert_nothing_ran();
}

fn exec(ground: &Ground, flags: &[&str]) -> Done {
    let bundle = ground.path("bundle");
    let words = [&["exec"], flags, &[text(&bundle)]].concat();
    let mut case = ground.command(&words);
    case.command.current_dir(ground.workspace());
    case.done()
}

/// Only files of the bundle are read: neither those beside it nor those of the workspace.
#[test]
fn a_bundles_own_manifest_finds_its_blocks_inside_the_bundle_only() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {file: ./blocks/RUNNER.md}\n";
    ground.write("bundle/manifest.yaml", manifest);
    ground.write("bundle/body.sh", "true\n");
    ground.write("work/blocks/RUNNER.md", BLOCK);
    let workspace = format!("--workspace={}", text(&ground.workspace()));
    let refused = exec(&ground, &[&workspace]);
    assert_unresolvable(
        &refused,
        "`blocks/RUNNER.md` of the bundle, which is not there",
    );
    ground.write("bundle/blocks/RUNNER.md", BLOCK);
    assert_read(&exec(&ground, &[]));
    let archive = support::bundles::pack(&ground.path("bundle"));
    assert_read(&ground.exec(&[], &archive));
    // Links that lead out of the bundle are ignored.
    ground.write("RUNNER.md", BLOCK);
    let manifest = manifest.replace("./blocks/", "../");
    ground.write("bundle/manifest.yaml", manifest);
    assert_unresolvable(&exec(&ground, &[]), "leaves");
}

#[test]
fn the_callers_manifest_finds_its_blocks_in_the_workspace_and_through_no_link() {
    let ground = Ground::new();
    ground.write("bundle/body.sh", "true\n");
    let manifest = "run: body.sh\nrunner: {ref: ../RUNNER.md}\n";
    ground.write("work/tools/m.yaml", manifest);
    // Files of the bundle do not apply to the caller's manifest.
    ground.write("bundle/RUNNER.md", BLOCK);
    let flags = ["--manifest=tools/m.yaml"];
    assert_unresolvable(&exec(&ground, &flags), "`RUNNER.md`, which is not there");
    let block = ground.write("work/RUNNER.md", BLOCK);
    assert_read(&exec(&ground, &flags));
    let outside = ground.path("outside.md");
    std::fs::rename(&block, &outside).expect("moved");
    symlink(&outside, &block).expect("linked");
    assert_unresolvable(&exec(&ground, &flags), "is a symlink");
    let beside = ground.write("m.yaml", manifest);
    let flag = format!("--manifest={}", text(&beside));
    assert_unresolvable(&exec(&ground, &[&flag]), "leaves the workspace");
}

#[test]
fn a_slug_stands_for_a_file_of_the_hosts_registry_and_for_no_other() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {ref: '@a/runner'}\n";
    ground.write("bundle/manifest.yaml", manifest);
    ground.write("bundle/body.sh", "true\n");
    assert_unresolvable(&exec(&ground, &[]), "not among `refs`");
    let block = ground.write("host/RUNNER.md", BLOCK);
    let policy = format!("refs: {{'@a/runner': {}}}\n", text(&block));
    let policy = format!("--policy={}", text(&ground.write("policy.yaml", policy)));
    assert_read(&exec(&ground, &[&policy]));
    let own = ground.write("elsewhere/m.yaml", manifest);
    let own = format!("--manifest={}", text(&own));
    assert_read(&exec(&ground, &[&policy, &own]));
}
