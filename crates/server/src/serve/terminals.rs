//! The terminals of commands that run: `/v1/sandboxes/{name}/commands/{id}/stdin` and `/resize`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::body::{Pieces, read_json};
use super::error::ApiError;
use super::routes::{Content, Route, document};
use super::server::{InSandbox, Shared};
use super::terminal::Input;
use super::types::TerminalSize;
use spec::sandboxes::SandboxName;

/// Most bytes of one call.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// By sandbox and number of the command. They end with their commands.
#[derive(Debug, Default)]
pub(super) struct Terminals(Mutex<HashMap<(String, u64), Weak<Input>>>);

impl Terminals {
    pub(super) fn add(&self, sandbox: &SandboxName, id: u64, input: &Arc<Input>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_command, input| input.strong_count() > 0);
        all.insert((sandbox.as_str().to_owned(), id), Arc::downgrade(input));
    }

    fn of(&self, at: &InSandbox) -> Result<Arc<Input>, ApiError> {
        let command = (at.name.as_str().to_owned(), at.command()?);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&command).and_then(Weak::upgrade).ok_or_else(|| {
            let message = format!(
                "no command {} with a terminal of this server runs",
                command.1
            );
            ApiError::new(StatusCode::NOT_FOUND, "no_terminal", message)
        })
    }
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/commands/{id}/stdin",
            "writeTerminal",
            "Write to the terminal of a command, at most 1 MiB.",
            write,
        )
        .takes(Content::Bytes)
        .answers(StatusCode::NO_CONTENT, Content::Nothing),
        Route::new(
            Method::POST,
            "/v1/sandboxes/{name}/commands/{id}/resize",
            "resizeTerminal",
            "Set the size of the terminal of a command, which gets SIGWINCH.",
            resize,
        )
        .takes(document::<TerminalSize>())
        .answers(StatusCode::NO_CONTENT, Content::Nothing),
    ]
}

async fn write(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let input = server.terminals.of(&at)?;
    let mut pieces = Pieces::new(request.into_body(), INPUT_BYTES_MAX)?;
    while let Some(piece) = pieces.next().await? {
        input.write(&piece).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn resize(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let input = server.terminals.of(&at)?;
    let size: TerminalSize = read_json(request.into_body()).await?;
    size.check()?;
    input.resize(size)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
