//! The result of a parser of a stream.

/// Result of parsing the bytes received so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<Message> {
    /// More bytes are needed.
    Incomplete,
    Complete(Message),
}
