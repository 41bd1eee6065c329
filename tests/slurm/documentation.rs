//! docs/slurm.md, followed by a reader: each block, in order, in one shell.

use support::documents::{END_OF_BLOCK, assert_as_printed, blocks};

use crate::cluster::Cluster;

#[test]
fn every_command_of_the_document_works_as_printed() {
    let Some(cluster) = Cluster::start("pgid") else {
        return;
    };
    let blocks = blocks(include_str!("../../docs/slurm.md"));
    let mut script = "exec 2>&1\nset -e\n".to_owned();
    for (commands, _) in &blocks {
        script += &format!("{commands}\necho '{END_OF_BLOCK}'\n");
    }
    let output = cluster.run(&["timeout", "120", "bash", "-c", &script]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert_as_printed(&blocks, &printed, |_| false);
}
