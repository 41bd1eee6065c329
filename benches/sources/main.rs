//! What workspace sources and images add to a run that was made before, and what unpacking an image
//! costs beside those who do that too.
//!
//! The store is this bench's own, on the disk of `TMPDIR`. Nothing is fetched: sources and images come
//! from layouts, as a registry's come from the store the second time.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be taken ends here"
)]

#[path = "../support/mod.rs"]
mod support;

mod layers;
mod planted;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use planted::Source;
use support::{Ground, Options, Report, Table, Usage, runner};

/// Each with what its rows are called.
const SIZES: [(&str, usize, usize); 2] = [("10 MB", 1_000, 10_000), ("1 GB", 20_000, 50_000)];

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "--child") {
        let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
        return layers::unpack_as_child(&paths[0], &paths[1]);
    }
    let usage = Usage {
        bench: "sources",
        about: "Launch to exit with workspace sources of 10 MB and 1 GB and on an image, from the store; \
                unpacking of an image.",
        rounds: 20,
        quick_rounds: 4,
        own: &["--small"],
    };
    support::run(&usage, measure);
}

/// A run of a bundle whose body does nothing, with a store of the bench's own.
fn exec(ground: &Ground, flags: &[&str], bundle: &Path) -> Command {
    let mut command = Command::new(runner());
    command
        .args(["exec", "-q", "--grant", "sources"])
        .args(flags);
    command.arg(bundle);
    command.env("RUNNER_OPT_OCI_DIRECTORY", ground.path("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A bundle with a body that does nothing and these lines in its manifest.
fn bundle(ground: &Ground, body: &Path, name: &str, manifest: &str) -> PathBuf {
    let folder = ground.folder(name);
    std::fs::write(
        folder.join("manifest.yaml"),
        format!("run: [./nothing]\n{manifest}"),
    )
    .unwrap();
    std::fs::copy(body, folder.join("nothing")).unwrap();
    ground.archive(&format!("{name}.tar.gz"), &folder)
}

fn measure(options: &Options) -> Report {
    let ground = Ground::new();
    let cache = ground.folder("cache");
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(cache, private).unwrap();
    let body = ground.nothing("nothing");
    let mut report = Report::new();
    let mut names = vec!["hello".to_owned()];
    let hello = bundle(&ground, &body, "hello", "");
    let mut commands = vec![exec(&ground, &[], &hello)];
    let sizes = if options.has("--small") {
        1
    } else {
        SIZES.len()
    };
    let mut first = Table::new("the first time", "ms", &[]);
    for (name, files, bytes) in &SIZES[..sizes] {
        let source = Source::plant(&ground, name, *files, *bytes);
        first.add(&format!("{name}, kept"), vec![source.took_ms]);
        for (how, is_writable) in [("read-only", false), ("writable", true)] {
            let archive = bundle(
                &ground,
                &body,
                &format!("{}-{how}", source.plain_name),
                &source.manifest(is_writable),
            );
            let mut command = exec(&ground, &[], &archive);
            if !is_writable {
                first.add(
                    &format!("{name}, first run"),
                    vec![support::wall_us(&mut command) / 1e3],
                );
            }
            names.push(format!("{name} {how}"));
            commands.push(command);
        }
    }
    let image = layers::Planted::new(&ground, &mut report);
    if let Some(image) = &image {
        let place = image.place();
        let mut command = exec(&ground, &["--image", &place], &hello);
        let took_ms = support::wall_us(&mut command) / 1e3;
        first.add("on an image, first run", vec![took_ms]);
        names.push("on an image".to_owned());
        commands.push(command);
    }
    let table = Table::new("launch to exit", "µs", &["hello"]).measure(
        &names,
        options.rounds,
        1,
        |place| support::wall_us(&mut commands[place]),
    );
    for (name, ..) in SIZES {
        let ratios = ["read-only", "writable"]
            .iter()
            .filter_map(|how| table.ratio(&format!("{name} {how}"), "hello"));
        let worst = ratios.map(|ratio| ratio.p50).reduce(f64::max);
        report.mark_if(
            &format!("{name} of source, second run ÷ hello"),
            worst,
            "left out by --small",
        );
    }
    report.tables.extend([table, first]);
    if let Some(image) = &image {
        image.unpack(options, &mut report);
    }
    report
}
