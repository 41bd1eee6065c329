//! `runner learn` with an image as the root: the host's directories do not cover those of the image.

use serde_json::json;

use super::Stored;
use super::layout::{self, base, file, image};
use support::{Done, text};

/// Prints a file of the image and one of the home, and writes in the working directory.
const MAIN: &str =
    "cat /srv/app/data; cat \"$1/home/notes\" && echo seen; echo 1 >\"$1/work/out/new\"";

#[test]
fn only_the_working_directory_is_shown_in_an_image() {
    let Some(mut base) = base() else { return };
    base.push(("srv/app/data".to_owned(), file("of image\n")));
    let stored = Stored::new();
    let ground = &stored.ground;
    let image = image(ground, "image", &[base], json!({}));
    let place = layout::place(&image);
    stored.policy(&format!(
        "images:\n- {{ id: tiny, languages: [multi], native: [], cost_tier: 0, source: '{place}' }}\n"
    ));
    ground.write("home/notes", "notes");
    ground.write("work/out/old", "1");
    let top = ground.path(".");
    let top = text(&top).trim_end_matches("/.");
    let manifest = "run: [sh, main.sh]\nrunner: { engine: sandbox, image: tiny }\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest), ("main.sh", MAIN)]);
    let of_command = ["--image", &place, "--", "sh", "-c", MAIN, "sh", top];
    let of_bundle = [text(&bundle), "--", top];
    let of_bundle_and_flag = ["--image", &place, text(&bundle), "--", top];
    for (number, (verb, words, out)) in [
        ("run", &of_command[..], "out".to_owned()),
        ("exec", &of_bundle, format!("{top}/work/out")),
        ("exec", &of_bundle_and_flag, format!("{top}/work/out")),
    ]
    .into_iter()
    .enumerate()
    {
        let policy = ground.path(&format!("policy-{number}.yaml"));
        let run = |verb: &[&str]| -> Done {
            let mut case = stored.command(&[verb, words].concat());
            case.command.env("HOME", format!("{top}/home"));
            case.command.current_dir(ground.workspace());
            case.done()
        };
        let done = run(&["learn", "-o", text(&policy)]);
        done.assert_exited(0);
        assert_eq!(done.text(), "of image\n", "{}", done.stderr);
        let new = ground.path("work/out/new");
        assert!(!new.exists());
        let learned = std::fs::read_to_string(&policy).expect("a policy");
        let lists = format!("\n    - \"{out}\"\n  allow_net: []\n\n");
        assert!(
            learned.contains(&lists) && learned.contains("  ro: []\n"),
            "{learned}"
        );
        let left_out: Vec<&str> = learned
            .lines()
            .filter(|line| line.starts_with("#   read"))
            .collect();
        let notes = format!("#   read {top}/home/notes: it is not shown while learning");
        assert!(
            left_out.len() == 1 && left_out[0].starts_with(&notes),
            "{learned}"
        );
        run(&[verb]).assert_exited(1);
        run(&[verb, "--policy", text(&policy)]).assert_exited(0);
        assert!(new.exists());
        std::fs::remove_file(new).expect("removed");
    }
}
