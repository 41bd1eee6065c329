//! A bug in the unpacker of files that are copied out of a sandbox.

use super::{Scene, UNPACKER, told};

/// A-71: nothing that it makes stays.
#[test]
fn the_unpacker_of_copied_files_has_the_directory_that_it_fills() {
    let Some(scene) = Scene::new() else { return };
    let folder = scene.ground.path("");
    let say = |words: &[&str]| {
        let output = scene.output(&folder, &[&["sandbox"], words].concat());
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        (output.status.code(), text)
    };
    let answer = told(
        r#"{"Problem":{"code":"planted","message":""#,
        r#"","hint":null,"cause":"Bundle"}}"#,
        Some(Vec::new()),
    );
    let attack = scene.attack(answer).on("files");
    let created = say(&["create", "--name", "one", "--no-record"]);
    assert_eq!(created, (Some(0), "one\n".to_owned()));
    let write = "mkdir /scratch/tree && printf %s $0 > /scratch/tree/attack";
    let written = say(&["exec", "one", "--", "sh", "-c", write, &attack]);
    assert_eq!(written, (Some(0), String::new()));
    for path in ["one:/scratch/tree", "one:/scratch/tree/attack"] {
        let (code, text) = say(&["cp", path, "copied"]);
        assert_eq!(code, Some(125), "{text}");
        // It unpacks layers, too, which have hard links.
        let rights = UNPACKER.replace(", ", ", linkat, ");
        assert!(text.contains(&rights), "{text}");
        assert!(!text.contains(&format!("{rights},")), "{text}");
        let entries = std::fs::read_dir(&folder).expect("listed").flatten();
        let left = entries.filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name == "copied" || name.starts_with(".runner-cp-")
        });
        assert_eq!(left.count(), 0);
    }
    assert_eq!(say(&["rm", "one"]), (Some(0), "one\n".to_owned()));
    scene.assert_untouched();
}
