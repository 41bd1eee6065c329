//! What all calls share, and what their paths name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::Access;
use super::error::ApiError;
use super::flags::Flags;
use super::metrics::Metrics;
use super::runs::Runs;
use super::templates::Templates;
use super::terminals::Terminals;
use super::verbs::Verbs;
use companion::workspace::Workspace;
use spec::sandboxes::SandboxName;

/// A place among the calls, until all that has to do with the call has ended.
pub(super) type Place = Arc<OwnedSemaphorePermit>;

tokio::task_local! {
    /// That of the call which runs in this task.
    pub(super) static PLACE: Place;
}

/// The place of the call, for a task that goes on if the client leaves: a client that starts something and
/// leaves cannot start more than calls are allowed.
pub(super) fn place() -> Option<Place> {
    PLACE.try_with(Arc::clone).ok()
}

/// Does something that is finished also if the client leaves, in the place of the call.
///
/// # Errors
/// Its own.
pub(super) async fn finish_in_place<Done, Error>(
    task: impl Future<Output = Result<Done, Error>> + Send + 'static,
) -> Result<Done, Error>
where
    Done: Send + 'static,
    Error: From<ApiError> + Send + 'static,
{
    let finished = match place() {
        Some(place) => tokio::spawn(PLACE.scope(place, task)).await,
        None => tokio::spawn(task).await,
    };
    let lost = |error| ApiError::failed(format!("the call was not finished: {error}"));
    finished.map_err(lost)?
}

/// What all calls share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) verbs: Verbs,
    pub(super) templates: Templates,
    pub(super) workspace: Workspace,
    pub(super) max_sandboxes: usize,
    pub(super) idle_timeout: Duration,
    pub(super) max_file: u64,
    pub(super) max_calls: usize,
    pub(super) calls: Arc<Semaphore>,
    pub(super) terminals: Terminals,
    pub(super) metrics: Metrics,
    pub(super) runs: Runs,
}

pub(super) type Shared = Arc<Server>;

impl Server {
    pub(super) fn new(
        flags: &Flags,
        verbs: Verbs,
        templates: Templates,
        workspace: Workspace,
        runs: Runs,
    ) -> Self {
        Self {
            verbs,
            templates,
            workspace,
            max_sandboxes: flags.max_sandboxes,
            idle_timeout: flags.idle_timeout,
            max_file: flags.max_file,
            max_calls: flags.max_calls,
            calls: Arc::new(Semaphore::new(flags.max_calls)),
            terminals: Terminals::default(),
            metrics: Metrics::default(),
            runs,
        }
    }
}

/// The sandbox, and the command, that a path names.
#[derive(Debug)]
pub(super) struct InSandbox {
    pub(super) access: Access,
    pub(super) name: SandboxName,
    id: Option<String>,
}

impl InSandbox {
    /// # Errors
    /// 400.
    pub(super) fn command(&self) -> Result<u64, ApiError> {
        let id = self.id.as_deref().unwrap_or_default();
        let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
        let parsed = id.parse().ok().filter(|_| is_number);
        parsed.ok_or_else(|| ApiError::bad_request("command", "the id of a command is a number"))
    }
}

pub(super) fn malformed_path() -> ApiError {
    ApiError::bad_request("path", "the path of the request cannot be read")
}

/// What the client may do, and the values of the path by the names of its route.
///
/// # Errors
/// 400.
pub(super) async fn names_of_path(
    parts: &mut Parts,
    server: &Shared,
) -> Result<(Access, HashMap<String, String>), ApiError> {
    let path = Path::<HashMap<String, String>>::from_request_parts(parts, server).await;
    let Path(names) = path.map_err(|_rejection| malformed_path())?;
    let access = Extension::<Access>::from_request_parts(parts, server).await;
    let Extension(access) = access.map_err(|_rejection| malformed_path())?;
    Ok((access, names))
}

impl FromRequestParts<Shared> for InSandbox {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Shared) -> Result<Self, ApiError> {
        let (access, mut names) = names_of_path(parts, server).await?;
        let name = names.remove("name").ok_or_else(malformed_path)?;
        Ok(Self {
            access,
            name: access.sandbox(&name)?,
            id: names.remove("id"),
        })
    }
}
