//! Commands that run since before this server was started: it has none of their streams.

use super::Service;
use super::processes::no_process;
use super::records::Record;
use crate::serve::access::Access;
use crate::serve::error::ApiError;
use crate::serve::types::Command;
use axum::http::StatusCode;

impl Service {
    /// # Errors
    /// The sandbox has ended.
    pub(super) async fn lost_commands(&self, record: &Record) -> Result<Vec<Command>, ApiError> {
        let sandbox = self.server.sandbox(Access::Owner, &record.name).await?;
        let mut commands = sandbox.commands;
        commands.retain(|command| *command.started_at < *self.started_at);
        Ok(commands)
    }

    /// The one with this process id in the sandbox.
    ///
    /// # Errors
    /// 404.
    pub(super) async fn lost_command(
        &self,
        record: &Record,
        pid: u64,
    ) -> Result<Command, ApiError> {
        let commands = self.lost_commands(record).await?;
        let is_it = |command: &Command| u64::try_from(command.pid) == Ok(pid);
        let found = commands.into_iter().find(is_it);
        found.ok_or_else(|| no_process(pid))
    }

    /// Why there is no stream of a command.
    pub(super) async fn no_stream(&self, record: &Record, pid: u64) -> ApiError {
        match self.lost_command(record, pid).await {
            Err(error) => error,
            Ok(_command) => ApiError::new(
                StatusCode::NOT_FOUND,
                "no_command",
                format!(
                    "the command with the pid {pid} runs, but the server was started again since, and \
                     has neither its output nor its input"
                ),
            ),
        }
    }
}
