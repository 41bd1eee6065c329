//! `/v1/sandboxes`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::access::Access;
use super::body::{json, read_json};
use super::error::ApiError;
use super::exec::env_file_text;
use super::files::receive;
use super::lifetimes::{TEMPLATE, check_label_names};
use super::query::Query;
use super::server::{InSandbox, Server, Shared, finish_in_place};
use super::templates::flags_for;
use super::types::{CreateSandbox, Sandbox, SandboxList, SetTimeout};
use super::verbs::{Verbs, words};
use spec::path::escape;
use spec::sandboxes::SandboxName;

impl Server {
    /// The sandbox, named as the client names it.
    ///
    /// # Errors
    /// 404.
    pub(super) async fn sandbox(
        &self,
        access: Access,
        name: &SandboxName,
    ) -> Result<Sandbox, ApiError> {
        let found = match self.verbs.get(name).await {
            Ok(sandbox) => renamed(access, sandbox),
            Err(error) if matches!(error.code(), "no_sandbox" | "sandbox_ending") => None,
            Err(error) => return Err(error),
        };
        found.ok_or_else(|| {
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
        let template = wanted.template.as_deref();
        flags_for(
            &self.templates,
            "--templates",
            access,
            template,
            &wanted.flags,
        )
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
        ..CreateSandbox::default()
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
    if access != Access::Owner {
        check_label_names(wanted.labels.keys())?;
    }
    let setup = Setup {
        snapshot,
        idle: Some(server.idle_timeout),
        ..Setup::default()
    };
    let sandbox = make(server, access, wanted, verb, setup).await?;
    let location = HeaderValue::try_from(format!("/v1/sandboxes/{}", sandbox.name));
    let mut response = json(StatusCode::CREATED, &sandbox);
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// What a sandbox gets that is not in the document of the client.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub(super) snapshot: Option<PathBuf>,
    /// How long it lives without commands, unless its flags say it.
    pub(super) idle: Option<Duration>,
    /// How long it lives altogether, whatever its flags say.
    pub(super) total: Option<Duration>,
    pub(super) variables: BTreeMap<String, String>,
    /// Labels of the server.
    pub(super) labels: BTreeMap<String, String>,
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
    setup: Setup,
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
    let idle = setup.idle.map(|idle| idle.as_millis());
    command.extend(idle.map(|idle| format!("--idle-timeout={idle}ms").into()));
    let directory = server.workspace.make()?;
    let template = TEMPLATE.to_owned();
    let of_template = wanted.template.as_ref().map(|name| (&template, name));
    let labels = wanted.labels.iter().chain(&setup.labels);
    let file = write_pairs(directory.path(), "labels", labels.chain(of_template))?;
    command.extend(file.map(|file| flag("--label-file", &file)));
    let file = write_pairs(directory.path(), "variables", &setup.variables)?;
    command.extend(file.map(|file| flag("--env-file", &file)));
    command.extend(flags.into_iter().map(OsString::from));
    // The last one counts. After a flag without its value it is refused as that value.
    let total = setup.total.map(|total| total.as_millis());
    command.extend(total.map(|total| format!("--timeout={total}ms").into()));
    if let Some(snapshot) = setup.snapshot {
        command.extend(["--".into(), snapshot.into_os_string()]);
    }
    let command = server.verbs.command(command);
    // The files are there until it ends, also if the client goes meanwhile.
    let started = finish_in_place(async move {
        let printed = Verbs::run_command(command).await;
        drop(directory);
        printed
    });
    let printed = started.await.inspect_err(|error| {
        server.metrics.refused_by_runner(error.code());
    })?;
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

fn flag(name: &str, value: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// Writes names and values where no other user reads them. `None`: there are none.
///
/// # Errors
/// 400: one has a NUL; 500.
fn write_pairs<'pair>(
    directory: &Path,
    name: &str,
    pairs: impl IntoIterator<Item = (&'pair String, &'pair String)>,
) -> Result<Option<PathBuf>, ApiError> {
    let pairs: Vec<_> = pairs.into_iter().collect();
    for (name, value) in &pairs {
        if name.contains(['=', '\0']) || value.contains('\0') {
            let name = escape(name.as_bytes());
            let message = format!("the name `{name}` has a `=` or a NUL, or its value a NUL");
            return Err(ApiError::bad_request("name", message));
        }
    }
    if pairs.is_empty() {
        return Ok(None);
    }
    let file = directory.join(name);
    let written = std::fs::write(&file, env_file_text(pairs));
    let failed = |error| ApiError::failed(format!("cannot pass on the {name}: {error}"));
    written.map(|()| Some(file)).map_err(failed)
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

pub(super) async fn set_timeout(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let wanted: SetTimeout = read_json(request.into_body()).await?;
    let sandbox = server.sandbox(at.access, &at.name).await?;
    server.check_timeout(at.access, &sandbox, &wanted)?;
    done(&server, update(&wanted), &at).await
}

/// The words that change when a sandbox ends.
pub(super) fn update(wanted: &SetTimeout) -> Vec<OsString> {
    let times = [
        ("--timeout", wanted.timeout_ms),
        ("--idle-timeout", wanted.idle_timeout_ms),
    ];
    let mut command = words(["update"]);
    for (name, time_ms) in times {
        command.extend(time_ms.map(|time_ms| format!("{name}={time_ms}ms").into()));
    }
    command
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
