//! Escapes every text of a page: the template has no other way to write one.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};

use spec::path::is_hidden;

/// Escapes for HTML. A character that is not seen, or that reorders its neighbours, is written as
/// `\u{..}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_hidden) {
            let (plain, hidden) = rest.split_at(at);
            Html.write_escaped_str(&mut dest, plain)?;
            let mut characters = hidden.chars();
            if let Some(character) = characters.next() {
                write!(dest, "{}", character.escape_unicode())?;
            }
            rest = characters.as_str();
        }
        Html.write_escaped_str(dest, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_place_or_hides() {
        for (text, escaped) in [
            ("plain é 漢", "plain é 漢"),
            ("", ""),
            ("<script>", "&#60;script&#62;"),
            ("a\"b'c&d", "a&#34;b&#39;c&#38;d"),
            ("\u{1b}[31m\r\n\0", "\\u{1b}[31m\\u{d}\\u{a}\\u{0}"),
            ("\u{202e}gpj.exe", "\\u{202e}gpj.exe"),
            ("a\u{200b}<", "a\\u{200b}&#60;"),
        ] {
            let mut written = String::new();
            Visible
                .write_escaped_str(&mut written, text)
                .expect("a string takes everything");
            assert_eq!(written, escaped);
        }
    }
}
