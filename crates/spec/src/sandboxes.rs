//! Sandboxes that stay: their names, and the documents that pass through their control sockets.

use serde::{Deserialize, Serialize};

use crate::path::escape;

/// With a run id and the path of a descriptor it must fit into the address of a socket (unix(7)).
const NAME_BYTES_MAX: usize = 48;

/// Most bytes of a document on a control socket; above the limit of execve(2) for the words of a
/// command.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// The name of a sandbox, which is that of its control socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SandboxName(String);

/// It is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is not the name of a sandbox: expected 1 to 48 characters of a-z, A-Z, 0-9, `_`, `.` and \
     `-`, the first a letter or a digit"
)]
pub struct NotAName {
    /// Escaped.
    pub found: String,
}

impl SandboxName {
    /// Reads a name, with docker's characters.
    ///
    /// # Errors
    /// [`NotAName`].
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
        let is_other = |byte: &u8| is_first(byte) || b"_.-".contains(byte);
        let bytes = text.as_bytes();
        let is_name = bytes.first().is_some_and(is_first)
            && bytes.iter().all(is_other)
            && bytes.len() <= NAME_BYTES_MAX;
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err(NotAName {
                found: escape(bytes),
            }),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SandboxName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What `runner sandbox exec` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Not written if it is the default: older supervisors do not know it.
    #[serde(default, skip_serializing_if = "Action::is_execute")]
    pub action: Action,
    /// The program and its arguments, or the words of the action.
    pub argv: Vec<Vec<u8>>,
    /// Variables that replace those of the sandbox.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// `None`: that of the sandbox.
    pub working_directory: Option<Vec<u8>>,
    pub terminal: Option<TerminalSize>,
}

/// What a command does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It executes a program.
    #[default]
    Execute,
    /// It writes files of the sandbox to its standard output, as a tar.
    SendFiles,
    /// It writes the files of a tar, its standard input, into the sandbox.
    ReceiveFiles,
}

impl Action {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_execute(&self) -> bool {
        *self == Self::Execute
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// A sandbox, as its supervisor describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxState {
    pub name: SandboxName,
    pub run_id: String,
    pub start_unix_s: i64,
    pub is_paused: bool,
    pub commands: Vec<RunningCommand>,
}

/// A command that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCommand {
    /// Inside.
    pub pid: i32,
    /// Escaped.
    pub argv: Vec<String>,
}

/// What `runner sandbox ls --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxListing {
    pub sandboxes: Vec<SandboxState>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_path_and_no_control_character() {
        let long = "a".repeat(NAME_BYTES_MAX);
        for name in ["a", "0", "Build-1", "a.b_c", &long] {
            assert_eq!(SandboxName::parse(name).expect(name).as_str(), name);
        }
        let longer = format!("{long}a");
        for name in [
            "", ".", "..", "-a", "_a", "a/b", "../a", "a b", "a\n", "ä", "a\0", &longer,
        ] {
            let error = SandboxName::parse(name).expect_err(name);
            assert_eq!(error.found, escape(name.as_bytes()));
        }
    }
}
