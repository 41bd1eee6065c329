//! What a tool answers: blocks of text for people and models, and the same as a document.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;

use super::text::escape_text;

/// Why a tool did not do what was asked.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

impl<Cause: std::error::Error> From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Self(cause.to_string())
    }
}

impl Refusal {
    pub(super) fn into_result(self) -> CallToolResult {
        let (text, _is_changed) = escape_text(&self.0);
        CallToolResult::error(vec![ContentBlock::text(text)])
    }
}

/// The answer of a tool. `document` has each text as it is.
#[derive(Debug)]
pub(super) struct Answer<Document> {
    /// The first block, in our own words.
    pub(super) summary: String,
    /// Further blocks, of others: what the sandbox wrote cannot pass for the summary.
    pub(super) texts: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) document: Document,
    pub(super) is_error: bool,
}

impl<Document: Serialize> Answer<Document> {
    pub(super) fn into_result(self) -> Result<CallToolResult, Refusal> {
        let escaped = self.texts.iter().filter(|text| !text.is_empty());
        let escaped: Vec<(String, bool)> = escaped.map(|text| escape_text(text)).collect();
        let mut summary = escape_text(&self.summary).0;
        for note in &self.notes {
            summary += &format!("\nnote: {}", escape_text(note).0);
        }
        if escaped.iter().any(|(_, is_changed)| *is_changed) {
            summary += "\nnote: control and invisible characters are shown as \\u{…}; \
                        structuredContent has them as they are";
        }
        let mut blocks = vec![ContentBlock::text(summary)];
        blocks.extend(
            escaped
                .into_iter()
                .map(|(text, _)| ContentBlock::text(text)),
        );
        let document = serde_json::to_value(self.document)?;
        let mut result = match self.is_error {
            true => CallToolResult::error(blocks),
            false => CallToolResult::success(blocks),
        };
        result.structured_content = Some(document);
        Ok(result)
    }
}
