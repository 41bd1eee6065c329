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
use super::files::{host_failed, receive};
use super::lifetimes::{TEMPLATE, check_label_names};
use super::query::Query;
use super::server::{InSandbox, Server, Shared, finish_in_place};
use super::templates::flags_for;
use super::types::{CreateSandbox, Sandbox, SandboxList, SetTimeout, UnresponsiveSandbox};
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
    let directory = server.workspace.make().map_err(host_failed)?;
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
    let directory = server.workspace.make().map_err(host_failed)?;
    let creation = Creation {
        verb,
        name: name.as_ref(),
        label_file: write_labels(directory.path(), wanted, &setup)?,
        variable_file: write_pairs(directory.path(), "variables", &setup.variables)?,
        setup,
        flags: server.flags_for(access, wanted)?,
    };
    let command = server.verbs.command(creation.words());
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
    match SandboxName::parse(printed) {
        Ok(made) if name.is_none_or(|name| name == made) => server.sandbox(access, &made).await,
        Ok(_) | Err(_) => {
            let printed = escape(printed.as_bytes());
            let message = format!("`runner sandbox {verb}` printed `{printed}` instead of a name");
            Err(ApiError::failed(message))
        }
    }
}

/// A sandbox that `runner` is to make.
#[derive(Debug)]
struct Creation<'name> {
    verb: &'static str,
    name: Option<&'name SandboxName>,
    label_file: Option<PathBuf>,
    variable_file: Option<PathBuf>,
    setup: Setup,
    /// Of the template and the client.
    flags: Vec<String>,
}

impl Creation<'_> {
    /// Words for `runner sandbox`. The last of the flags may lack its value, and takes the word behind it.
    fn words(self) -> Vec<OsString> {
        let time = |name: &str, time: Duration| format!("--{name}={}ms", time.as_millis()).into();
        let Setup {
            idle,
            total,
            snapshot,
            ..
        } = self.setup;
        let defaults = [
            self.name.map(|name| format!("--name={name}").into()),
            idle.map(|idle| time("idle-timeout", idle)),
            self.label_file.map(|file| flag("--label-file", &file)),
            self.variable_file.map(|file| flag("--env-file", &file)),
        ];
        let mut words = words([self.verb]);
        words.extend(defaults.into_iter().flatten());
        words.extend(self.flags.into_iter().map(OsString::from));
        // Of two the last one counts. It is no value that a flag takes.
        words.extend(total.map(|total| time("timeout", total)));
        words.extend(
            snapshot
                .into_iter()
                .flat_map(|file| ["--".into(), file.into()]),
        );
        words
    }
}

fn flag(name: &str, value: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// Writes the labels of the client, those of the server, and the name of the template. Of two with a name the last
/// one counts.
fn write_labels(
    directory: &Path,
    wanted: &CreateSandbox,
    setup: &Setup,
) -> Result<Option<PathBuf>, ApiError> {
    let of_template = wanted.template.as_ref();
    let of_template = of_template.map(|name| (TEMPLATE.to_owned(), name.clone()));
    let mut labels = wanted.labels.clone();
    labels.extend(setup.labels.clone());
    labels.extend(of_template);
    write_pairs(directory, "labels", &labels)
}

/// Writes names and values as `env -0` does, where no other user reads them. `None`: there are none.
///
/// # Errors
/// 400: one has a NUL; 500.
fn write_pairs(
    directory: &Path,
    name: &str,
    pairs: &BTreeMap<String, String>,
) -> Result<Option<PathBuf>, ApiError> {
    for (name, value) in pairs {
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
    let list = server.verbs.list().await?;
    let sandboxes = list.sandboxes.into_iter();
    let unresponsive = list.unresponsive.into_iter().filter_map(|sandbox| {
        let name = access.shown(&sandbox.name)?.to_owned();
        Some(UnresponsiveSandbox { name, ..sandbox })
    });
    let list = SandboxList {
        sandboxes: sandboxes
            .filter_map(|sandbox| renamed(access, sandbox))
            .collect(),
        unresponsive: unresponsive.collect(),
    };
    Ok(json(StatusCode::OK, &list))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_client_follow_those_that_it_may_replace() {
        let name = SandboxName::parse("one").expect("a name");
        let time = |seconds| Some(Duration::from_secs(seconds));
        let creation = |setup, name, file: Option<&str>| Creation {
            verb: "create",
            name,
            label_file: file.map(PathBuf::from),
            variable_file: file.map(PathBuf::from),
            setup,
            flags: vec!["-m".to_owned()],
        };
        let setup = Setup {
            idle: time(1),
            total: time(2),
            snapshot: Some("-s".into()),
            ..Setup::default()
        };
        for (creation, expected) in [
            (creation(Setup::default(), None, None), "create -m"),
            (
                creation(setup, Some(&name), Some("/f")),
                "create --name=one --idle-timeout=1000ms --label-file=/f --env-file=/f -m --timeout=2000ms -- -s",
            ),
        ] {
            let words = creation.words().join(" ".as_ref());
            assert_eq!(words, expected);
        }
    }
}
