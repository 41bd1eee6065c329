//! Documents, followed by a reader: their commands, and what they print.

/// The blocks of a document that are commands, and what it says that they print.
pub fn blocks(text: &str) -> Vec<(String, Option<String>)> {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match language {
            "sh" => found.push((block.join("\n"), None)),
            "text" => found.last_mut().expect("a command before").1 = Some(block.join("\n")),
            // A document, such as `json`.
            _ => (),
        }
    }
    found
}

/// What a shell that follows a document prints behind each block.
pub const END_OF_BLOCK: &str = "=== end of block ===";

/// Checks what a shell printed that followed all blocks, but for lines that `is_left_out` names.
#[track_caller]
pub fn assert_as_printed(
    blocks: &[(String, Option<String>)],
    printed: &str,
    is_left_out: impl Fn(&str) -> bool,
) {
    let mark = format!("{END_OF_BLOCK}\n");
    let mut parts = printed.split(&*mark);
    for (commands, expected) in blocks {
        let printed = parts.next().expect("as many parts as blocks");
        let mut printed: Vec<&str> = printed.lines().collect();
        printed.retain(|line| !is_left_out(line));
        let printed = &printed.join("\n");
        let expected = expected.as_deref().unwrap_or_default();
        assert!(
            is_as_printed(printed, expected),
            "{commands}\nprinted:\n{printed}\nexpected:\n{expected}"
        );
    }
}

/// Whether the output is as printed, where `…` is anything.
pub fn is_as_printed(printed: &str, expected: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let Some(mut rest) = printed
        .trim_end()
        .strip_prefix(parts.next().unwrap_or_default())
    else {
        return false;
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || expected.ends_with('…')
}
