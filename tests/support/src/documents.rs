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
