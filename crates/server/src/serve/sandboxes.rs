//! `/v1/sandboxes`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::access::Access;
use super::body::{json, read_json};
use super::error::ApiError;
use super::files::receive;
use super::metrics::Refused;
use super::query::Query;
use super::server::{InSandbox, Server, Shared, place};
use super::templates::check_flags;
use super::types::{CreateSandbox, Sandbox, SandboxList};
use super::verbs::words;
use spec::path::escape;
use spec::sandboxes::SandboxName;

/// When a client may ask again for a place that there is not.
const RETRY_AFTER_S: u32 = 10;

/// The number of sandboxes that are being created, while one of them is.
#[derive(Debug)]
struct Admission(Arc<AtomicUsize>);

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// Refuses one more sandbox if there are enough.
    async fn admit(&self) -> Result<Admission, ApiError> {
        // One call after the other: of two, one would not see the other's sandbox.
        let _turn = self.admission.lock().await;
        // Before the list, which does not have sandboxes that are being created. One that starts meanwhile is
        // counted twice: rather too few than too many.
        let creating = self.creating.load(Ordering::Relaxed);
        let count = self.verbs.list().await?.sandboxes.len();
        if count + creating >= self.max_sandboxes {
            self.metrics.refused(Refused::Sandboxes);
            let message = format!(
                "{count} sandboxes of this user exist, and --max-sandboxes is {}",
                self.max_sandboxes
            );
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sandboxes", message);
            return Err(error.retry_after_s(RETRY_AFTER_S));
        }
        self.creating.fetch_add(1, Ordering::Relaxed);
        Ok(Admission(Arc::clone(&self.creating)))
    }

    /// The sandbox, named as the client names it.
    ///
    /// # Errors
    /// 404.
    pub(super) async fn sandbox(
        &self,
        access: Access,
        name: &SandboxName,
    ) -> Result<Sandbox, ApiError> {
        let sandboxes = self.verbs.list().await?.sandboxes;
        let found = sandboxes
            .into_iter()
            .find(|sandbox| sandbox.name == name.as_str());
        found
            .and_then(|sandbox| renamed(access, sandbox))
            .ok_or_else(|| {
                let shown = access.shown(name.as_str()).unwrap_or_default();
                ApiError::new(
                    StatusCode::NOT_FOUND,
                    "no_sandbox",
                    format!("there is no sandbox {shown}"),
                )
            })
    }

    /// The flags of a new sandbox.
    fn flags_for(&self, access: Access, wanted: &CreateSandbox) -> Result<Vec<String>, ApiError> {
        let shown = wanted
            .template
            .as_deref()
            .map(|name| escape(name.as_bytes()));
        let known = || match self.templates.is_empty() {
            true => "this server has no templates: --templates names a file of them".to_owned(),
            false => {
                let names = self.templates.keys().map(|name| escape(name.as_bytes()));
                format!(
                    "templates of this server: {}",
                    names.collect::<Vec<_>>().join(", ")
                )
            }
        };
        let template = wanted
            .template
            .as_ref()
            .map(|name| self.templates.get(name));
        match (access, template) {
            (Access::Templates | Access::E2b, None) => Err(ApiError::forbidden(
                "template_needed",
                "a client of --listen names a template",
            )
            .with_hint(known())),
            (Access::Templates | Access::E2b, Some(_)) if !wanted.flags.is_empty() => {
                let shown = shown.unwrap_or_default();
                let message = format!(
                    "the template `{shown}` decides all flags: `flags` is for the unix socket"
                );
                Err(ApiError::forbidden("template_only", message))
            }
            (_, Some(None)) => {
                let message = format!("there is no template `{}`", shown.unwrap_or_default());
                Err(ApiError::forbidden("no_template", message).with_hint(known()))
            }
            (_, template) => {
                check_flags(&wanted.flags)
                    .map_err(|error| ApiError::bad_request("flags", error))?;
                let template = template.flatten().into_iter().flatten();
                Ok(template.chain(&wanted.flags).cloned().collect())
            }
        }
    }
}

/// `None`: the client does not see it.
fn renamed(access: Access, sandbox: Sandbox) -> Option<Sandbox> {
    let name = access.shown(&sandbox.name)?.to_owned();
    Some(Sandbox { name, ..sandbox })
}

pub(super) async fn create(
    State(server): State<Shared>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    let wanted: CreateSandbox = read_json(request.into_body()).await?;
    start(&server, access, &wanted, "create", None).await
}

/// The body is a snapshot; the query says what [`CreateSandbox`] says.
pub(super) async fn restore(
    State(server): State<Shared>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.uri().query(), &["name", "template"])?;
    let wanted = CreateSandbox {
        name: query.text("name")?,
        template: query.text("template")?,
        flags: Vec::new(),
    };
    // Refused before it is sent.
    server.flags_for(access, &wanted)?;
    let directory = server.workspace.make()?;
    let file = directory.path().join("snapshot.tar");
    receive(request.into_body(), &file, 0o600, server.max_file).await?;
    start(&server, access, &wanted, "restore", Some(file)).await
}

/// Starts a sandbox by `runner sandbox VERB`, of a snapshot if there is one.
async fn start(
    server: &Shared,
    access: Access,
    wanted: &CreateSandbox,
    verb: &'static str,
    snapshot: Option<PathBuf>,
) -> Result<Response, ApiError> {
    let times = Times {
        idle: server.idle_timeout,
        total: None,
    };
    let sandbox = make(server, access, wanted, verb, snapshot, times).await?;
    let location = HeaderValue::try_from(format!("/v1/sandboxes/{}", sandbox.name));
    let mut response = json(StatusCode::CREATED, &sandbox);
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// How long a sandbox lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Without commands, unless its flags say it.
    pub(super) idle: Duration,
    /// Altogether, whatever its flags say.
    pub(super) total: Option<Duration>,
}

/// Makes a sandbox, named as the client names it.
///
/// # Errors
/// The client may not, there are enough, or what `runner` says.
pub(super) async fn make(
    server: &Shared,
    access: Access,
    wanted: &CreateSandbox,
    verb: &'static str,
    snapshot: Option<PathBuf>,
    times: Times,
) -> Result<Sandbox, ApiError> {
    let name = match (&wanted.name, access) {
        (Some(name), _) => Some(access.sandbox(name)?),
        (None, Access::Owner) => None,
        (None, Access::Templates | Access::E2b) => Some(access.sandbox(&random_name()?)?),
    };
    let flags = server.flags_for(access, wanted)?;
    let mut command = words([verb]);
    // Before the flags of the client, which may end with one that takes a value.
    command.extend(
        name.iter()
            .map(|name| OsString::from(format!("--name={name}"))),
    );
    command.push(format!("--idle-timeout={}ms", times.idle.as_millis()).into());
    command.extend(flags.into_iter().map(OsString::from));
    // The last one counts. After a flag without its value it is refused as that value.
    let total = times.total.map(|total| total.as_millis());
    command.extend(total.map(|total| format!("--timeout={total}ms").into()));
    if let Some(snapshot) = snapshot {
        command.extend(["--".into(), snapshot.into_os_string()]);
    }
    let admission = server.admit().await?;
    let (verbs, place) = (server.verbs.clone(), place());
    // A client that goes meanwhile does not give the places back.
    let started = tokio::spawn(async move {
        let printed = verbs.run(command).await;
        drop((admission, place));
        printed
    });
    let printed = started
        .await
        .map_err(|error| ApiError::failed(format!("the call was not finished: {error}")))??;
    let printed = String::from_utf8_lossy(&printed.stdout);
    let printed = printed.trim_end();
    let found = SandboxName::parse(printed)
        .ok()
        .filter(|found| name.as_ref().is_none_or(|name| name == found));
    let Some(found) = found else {
        let printed = escape(printed.as_bytes());
        return Err(ApiError::failed(format!(
            "`runner sandbox {verb}` printed `{printed}` instead of a name"
        )));
    };
    server.sandbox(access, &found).await
}

/// A name that no other sandbox has.
pub(super) fn random_name() -> Result<String, ApiError> {
    let mut bytes = [0; 8];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if read.is_err() {
        return Err(ApiError::failed("the host has no random numbers"));
    }
    let mut name = String::new();
    for byte in bytes {
        // A string takes everything.
        let _written = write!(name, "{byte:02x}");
    }
    Ok(name)
}

pub(super) async fn list(
    State(server): State<Shared>,
    Extension(access): Extension<Access>,
    request: Request,
) -> Result<Response, ApiError> {
    Query::parse(request.uri().query(), &[])?;
    let sandboxes = server.verbs.list().await?.sandboxes;
    let sandboxes = sandboxes
        .into_iter()
        .filter_map(|sandbox| renamed(access, sandbox))
        .collect();
    Ok(json(StatusCode::OK, &SandboxList { sandboxes }))
}

pub(super) async fn get(State(server): State<Shared>, at: InSandbox) -> Result<Response, ApiError> {
    Ok(json(
        StatusCode::OK,
        &server.sandbox(at.access, &at.name).await?,
    ))
}

pub(super) async fn delete(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let is_forced = Query::parse(request.uri().query(), &["force"])?.is_set("force")?;
    let mut command = words(["rm"]);
    command.extend(is_forced.then(|| "-f".into()));
    done(&server, command, &at).await
}

pub(super) async fn pause(
    State(server): State<Shared>,
    at: InSandbox,
) -> Result<Response, ApiError> {
    done(&server, words(["pause"]), &at).await
}

pub(super) async fn resume(
    State(server): State<Shared>,
    at: InSandbox,
) -> Result<Response, ApiError> {
    done(&server, words(["resume"]), &at).await
}

/// Runs a verb for which there is nothing to tell but that it succeeded.
async fn done(
    server: &Server,
    mut command: Vec<OsString>,
    at: &InSandbox,
) -> Result<Response, ApiError> {
    command.extend(words(["--", at.name.as_str()]));
    server.verbs.run(command).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
