//! Places in a text.

/// A line and a column, both counted from 1. Columns count characters, not bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

impl Place {
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    /// The place after `text`.
    #[must_use]
    pub fn after(text: &str) -> Self {
        text.chars().fold(Self::START, Self::past)
    }

    /// The place after `character`.
    #[must_use]
    pub const fn past(self, character: char) -> Self {
        if character == '\n' {
            Self {
                line: self.line.saturating_add(1),
                column: 1,
            }
        } else {
            Self {
                line: self.line,
                column: self.column.saturating_add(1),
            }
        }
    }
}
