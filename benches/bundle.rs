//! Bundling 2,000 small files, side by side with `tar --sort=name -cf - | gzip -6` on the same tree.
//!
//! `cargo bench --bench bundle -- --help`.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use support::{Ground, Options, Report, Table, Usage};

const FILES: usize = 2_000;
const FILE_BYTES: usize = 10_000;

fn main() {
    let usage = Usage {
        bench: "bundle",
        about: "Bundling 2,000 files, 20 MB, beside tar and gzip.",
        rounds: 10,
        quick_rounds: 4,
        own: &[],
    };
    support::run(&usage, measure);
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let tree = ground.folder("tree");
    plant(&tree);
    let (ours, theirs) = (ground.path("runner.tar.gz"), ground.path("tar.tar.gz"));
    let mut bundle = Command::new(support::runner());
    bundle.arg("bundle").arg(&tree).arg("-o").arg(&ours);
    let mut tar = Command::new("sh");
    tar.args([
        "-c",
        "tar --sort=name -C \"$1\" -cf - . | gzip -6 >\"$2\"",
        "sh",
    ]);
    tar.arg(&tree).arg(&theirs);
    let mut commands = [bundle, tar];
    let names = ["runner bundle", "tar, gzip -6"];
    let table = Table::new("2,000 files, 20 MB", "ms", &["tar, gzip -6"]).measure(
        &names,
        options.rounds,
        1,
        |place| support::wall_us(&mut commands[place]) / 1e3,
    );
    let mut report = Report::new();
    let ratio = table.ratio(names[0], names[1]).map(|ratio| ratio.p50);
    report.mark_if("bundle ÷ tar and gzip", ratio, "tar did not run");
    for (name, file) in names.iter().zip([&ours, &theirs]) {
        let bytes = std::fs::metadata(file).unwrap().len();
        writeln!(report.text, "{name}: {bytes} bytes").unwrap();
        report.facts.insert(format!("{name}, bytes"), bytes.into());
    }
    report.tables.push(table);
    report
}

/// 20 MB of text like source code: words that come again, and numbers that do not.
fn plant(tree: &Path) {
    const WORDS: [&str; 12] = [
        "return", "value", "const", "import", "from", "index", "result", "error", "await", "name",
        "else", "context",
    ];
    let mut state: u64 = 1;
    for file in 0..FILES {
        let folder = tree.join(format!("src/{:02}/{}", file % 40, file % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let mut text = String::with_capacity(FILE_BYTES + 64);
        while text.len() < FILE_BYTES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = WORDS[usize::try_from(state >> 60).unwrap() % WORDS.len()];
            match state >> 58 & 3 {
                0 => writeln!(text, "{word}({:x});", state >> 40).unwrap(),
                _ => write!(text, "{word} ").unwrap(),
            }
        }
        text.truncate(FILE_BYTES);
        std::fs::write(folder.join(format!("{file}.ts")), text).unwrap();
    }
    std::fs::write(tree.join("manifest.yaml"), "run: [echo]\n").unwrap();
}
