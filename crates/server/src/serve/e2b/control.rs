//! The calls of the service: sandboxes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::{Problem, unsupported};
use super::records::{E2B, LiveSandbox, Record, now_unix_ms};
use super::{Calls, ENVD_VERSION, Service, find_record};
use crate::serve::access::Access;
use crate::serve::body;
use crate::serve::error::ApiError;
use crate::serve::exec::check_variables;
use crate::serve::lifetimes::{API, check_label_names, check_life, longest};
use crate::serve::query::Query;
use crate::serve::sandboxes::{Setup, make, random_name, update};
use crate::serve::server::finish_in_place;
use crate::serve::types::{CreateSandbox, Sandbox, SetTimeout};
use crate::serve::verbs::words;
use spec::path::escape;
use spec::utc::text_of_milliseconds;

/// That of the SDKs for a sandbox without a timeout.
const TIMEOUT_S: u64 = 300;

/// The longest that a sandbox may live, if the template has none.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// When a sandbox ends that has no time limit: the last second with four digits of a year.
const NEVER_UNIX_MS: u64 = 253_402_300_799_000;

/// What a new sandbox shall be. The fields that are documents are refused if they ask for anything.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<u64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    env_vars: BTreeMap<String, String>,
    secure: Option<bool>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<Value>,
    auto_resume: Option<Value>,
    #[serde(rename = "allow_internet_access", alias = "allowInternetAccess")]
    allow_internet_access: Option<Value>,
    network: Option<Value>,
    iam: Option<Value>,
    mcp: Option<Value>,
    volume_mounts: Option<Value>,
}

impl NewSandbox {
    fn check(&self) -> Result<(), ApiError> {
        let egress = "the template decides what a sandbox may reach";
        let asked = [
            (
                self.secure == Some(false),
                "a sandbox without an access token",
            ),
            (self.auto_pause == Some(true), "a pause at the timeout"),
            (self.auto_pause_memory.is_some(), "a pause at the timeout"),
            (self.auto_resume.is_some(), "a resume by a call"),
            (self.allow_internet_access.is_some(), egress),
            (self.network.is_some(), egress),
            (self.iam.is_some(), "identities"),
            (self.mcp.is_some(), "MCP servers"),
            (
                self.volume_mounts.is_some(),
                "volumes: the template decides the mounts",
            ),
        ];
        match asked.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, what)) => Err(unsupported(&format!("not supported: {what}"))),
            None => {
                check_label_names(self.metadata.keys())?;
                check_variables(&self.env_vars)
            }
        }
    }
}

impl Service {
    fn check_template(&self, name: &str) -> Result<Duration, ApiError> {
        if let Some(flags) = self.server.templates.get(name) {
            return Ok(longest(flags)?.unwrap_or(TIMEOUT_MAX));
        }
        let name = escape(name.as_bytes());
        let known = self
            .server
            .templates
            .keys()
            .map(|name| escape(name.as_bytes()));
        let known: Vec<String> = known.collect();
        Err(ApiError::bad_request(
            "no_template",
            format!("there is no template `{name}` in the file of --templates"),
        )
        .with_hint(format!("it has: {}", known.join(", "))))
    }

    /// The sandbox with this id.
    pub(super) async fn find_live(&self, id: &str) -> Result<LiveSandbox, Problem> {
        let name = Access::E2b.sandbox(id);
        let name = name.map_err(|_error| Problem::no_sandbox())?;
        let found = match self.server.verbs.get(&name).await {
            Ok(sandbox) => self.records.live(sandbox),
            Err(error) if matches!(error.code(), "no_sandbox" | "sandbox_ending") => {
                self.records.remove(id);
                None
            }
            Err(error) => return Err(error.into()),
        };
        found.ok_or_else(Problem::no_sandbox)
    }

    async fn all(&self) -> Result<Vec<LiveSandbox>, Problem> {
        let asked = Instant::now();
        let list = self.server.verbs.list().await?;
        Ok(self.records.all_live(list, asked))
    }

    /// Moves the end of a sandbox, no further than its template allows.
    async fn move_end(&self, live: &LiveSandbox, timeout_s: u64) -> Result<(), Problem> {
        // 0 is now.
        let timeout_ms = timeout_s.saturating_mul(1_000).max(1);
        let longest = self.server.longest_life(&live.sandbox)?;
        let longest = longest.unwrap_or(TIMEOUT_MAX);
        check_life(&live.sandbox, timeout_ms, Some(longest)).map_err(|mut error| {
            error.status = StatusCode::BAD_REQUEST;
            error
        })?;
        let wanted = SetTimeout {
            timeout_ms: Some(timeout_ms),
            idle_timeout_ms: None,
        };
        self.run(update(&wanted), &live.record).await
    }

    async fn run(&self, mut command: Vec<OsString>, record: &Record) -> Result<(), Problem> {
        command.extend(words(["--", record.name.as_str()]));
        match self.server.verbs.run(command).await {
            Ok(_printed) => Ok(()),
            Err(error)
                if error.status == StatusCode::NOT_FOUND || error.code() == "sandbox_ending" =>
            {
                Err(Problem::no_sandbox())
            }
            // Of a pause 409 would mean that it is paused already.
            Err(mut error) if error.status == StatusCode::CONFLICT => {
                error.status = StatusCode::UNPROCESSABLE_ENTITY;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) async fn create(
    State(calls): State<Calls>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: NewSandbox = body::read_json(request.into_body()).await?;
    wanted.check()?;
    let longest = calls.check_template(&wanted.template)?;
    let timeout_s = wanted.timeout.unwrap_or(TIMEOUT_S.min(longest.as_secs()));
    let lifetime = Duration::from_secs(timeout_s);
    if lifetime.is_zero() || lifetime > longest {
        let longest = longest.as_secs();
        let message = format!("`timeout` is {timeout_s}: expected 1 to {longest} seconds");
        return Err(ApiError::bad_request("timeout", message).into());
    }
    let document = CreateSandbox {
        name: Some(random_name()?),
        template: Some(wanted.template.clone()),
        labels: wanted.metadata,
        ..CreateSandbox::default()
    };
    let setup = Setup {
        total: Some(lifetime),
        variables: wanted.env_vars,
        labels: [(API.to_owned(), E2B.to_owned())].into(),
        ..Setup::default()
    };
    if calls.records.count() > calls.server.max_sandboxes {
        // It forgets those that have ended; if it fails now, the next one does.
        drop(calls.all().await);
    }
    // A client that goes meanwhile must not leave a sandbox that nobody knows.
    let making = async move {
        let sandbox = make(&calls.server, Access::E2b, &document, "create", setup).await?;
        let name = Access::E2b.sandbox(&sandbox.name)?.to_string();
        let live = calls.records.live(Sandbox { name, ..sandbox });
        let live = live.ok_or_else(|| ApiError::failed("the sandbox lacks its labels"))?;
        Ok::<_, ApiError>(access_of(&calls, &live))
    };
    let access = finish_in_place(making).await?;
    Ok(body::json(StatusCode::CREATED, &access))
}

/// What a client needs to use a sandbox.
fn access_of(calls: &Service, live: &LiveSandbox) -> Value {
    let id = &live.record.id;
    json!({
        "sandboxID": id,
        "templateID": live.template(),
        "clientID": "runner",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": calls.key.of_sandbox(id).expose(),
    })
}

/// 0 is not known: the template has the limits.
fn described(live: &LiveSandbox) -> Value {
    let sandbox = &live.sandbox;
    let started_unix_ms = u64::try_from(sandbox.start_unix_s).unwrap_or(0) * 1_000;
    let end_unix_ms = sandbox
        .ends_in_ms
        .map(|left| now_unix_ms().saturating_add(left));
    let end_unix_ms = end_unix_ms.unwrap_or(NEVER_UNIX_MS).min(NEVER_UNIX_MS);
    json!({
        "sandboxID": live.record.id,
        "templateID": live.template(),
        "clientID": "runner",
        "envdVersion": ENVD_VERSION,
        "metadata": live.metadata(),
        "startedAt": text_of_milliseconds(started_unix_ms),
        "endAt": text_of_milliseconds(end_unix_ms),
        "state": if sandbox.is_paused { "paused" } else { "running" },
        "cpuCount": 0,
        "memoryMB": 0,
        "diskSizeMB": 0,
    })
}

const LIST: [&str; 7] = [
    "metadata",
    "state",
    "limit",
    "nextToken",
    "order",
    "template",
    "startedAfter",
];

pub(super) async fn list(
    State(calls): State<Calls>,
    request: Request,
) -> Result<Response, Problem> {
    let query = Query::parse(request.uri().query(), &LIST)?;
    if query.text("startedAfter")?.is_some() {
        return Err(unsupported("not supported: a list of sandboxes by their start").into());
    }
    let states = query.text("state")?;
    let template = query.text("template")?;
    let metadata = query
        .text("metadata")?
        .map(|text| pairs(&text))
        .transpose()?;
    let is_wanted = |live: &LiveSandbox| {
        let own = live.metadata();
        let state = if live.sandbox.is_paused {
            "paused"
        } else {
            "running"
        };
        states
            .as_ref()
            .is_none_or(|states| states.split(',').any(|one| one == state))
            && template
                .as_ref()
                .is_none_or(|template| template == live.template())
            && metadata
                .iter()
                .flatten()
                .all(|(name, value)| own.get(name) == Some(&value))
    };
    let mut found: Vec<_> = calls.all().await?.into_iter().filter(is_wanted).collect();
    // The ids of runs begin with the time of their start.
    found.sort_by(|left, right| left.sandbox.run_id.cmp(&right.sandbox.run_id));
    match query.text("order")?.as_deref() {
        Some("asc") => (),
        None | Some("desc") => found.reverse(),
        Some(_) => return Err(ApiError::bad_request("query", "`order` is `asc` or `desc`").into()),
    }
    let number = |name: &str, default: usize| match query.text(name)? {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_error| ApiError::bad_request("query", format!("`{name}` is a number"))),
    };
    let (from, limit) = (number("nextToken", 0)?, number("limit", 100)?.max(1));
    let page = found.iter().skip(from).take(limit);
    let page: Vec<Value> = page.map(described).collect();
    let next = from.saturating_add(page.len());
    let mut response = body::json(StatusCode::OK, &page);
    if next < found.len() {
        response
            .headers_mut()
            .insert("x-next-token", HeaderValue::from(next));
    }
    Ok(response)
}

/// `NAME=VALUE&…`, percent-encoded twice: as a query in a query.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let decoded = |text: &str| {
        let spaced = text.replace('+', " ");
        let once = percent_decode_str(&spaced).decode_utf8().ok()?.into_owned();
        Some(percent_decode_str(&once).decode_utf8().ok()?.into_owned())
    };
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((decoded(name)?, decoded(value)?))
    };
    let read = text
        .split('&')
        .filter(|part| !part.is_empty())
        .map(pair)
        .collect::<Option<_>>();
    read.ok_or_else(|| ApiError::bad_request("query", "`metadata` is not of the form NAME=VALUE&…"))
}

/// The first version of the call has those that run alone.
pub(super) async fn list_running(State(calls): State<Calls>) -> Result<Response, Problem> {
    let all = calls.all().await?;
    let running = all.iter().filter(|live| !live.sandbox.is_paused);
    let list: Vec<Value> = running.map(described).collect();
    Ok(body::json(StatusCode::OK, &list))
}

pub(super) async fn get(
    State(calls): State<Calls>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let live = calls.find_live(&id).await?;
    Ok(body::json(StatusCode::OK, &described(&live)))
}

pub(super) async fn kill(
    State(calls): State<Calls>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let live = calls.find_live(&id).await?;
    calls.run(words(["rm", "-f"]), &live.record).await?;
    calls.records.remove(&id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timeout {
    timeout: u64,
}

pub(super) async fn set_timeout(
    State(calls): State<Calls>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let Timeout { timeout } = body::read_json(request.into_body()).await?;
    let live = calls.find_live(&id).await?;
    calls.move_end(&live, timeout).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Pause {
    memory: Option<bool>,
    /// Processes are frozen where they are, healthy or not.
    #[serde(rename = "requireHealthyGuest")]
    _require_healthy_guest: Option<bool>,
}

pub(super) async fn pause(
    State(calls): State<Calls>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Pause = body::read_json(request.into_body()).await?;
    if wanted.memory == Some(false) {
        return Err(unsupported("not supported: a pause that ends the processes").into());
    }
    let live = calls.find_live(&id).await?;
    if live.sandbox.is_paused {
        let message = "the sandbox is paused already";
        return Err(ApiError::new(StatusCode::CONFLICT, "sandbox_paused", message).into());
    }
    calls.run(words(["pause"]), &live.record).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Connect {
    timeout: Option<u64>,
    memory: Option<bool>,
}

/// Resumes a sandbox that is paused, and says how it is used.
pub(super) async fn connect(
    State(calls): State<Calls>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Connect = body::read_json(request.into_body()).await?;
    if wanted.memory == Some(false) {
        return Err(unsupported("not supported: a resume that ends the processes").into());
    }
    let live = calls.find_live(&id).await?;
    // A shorter timeout changes nothing, as with E2B.
    let left_ms = live.sandbox.ends_in_ms.unwrap_or(u64::MAX);
    if let Some(timeout_s) = wanted.timeout
        && timeout_s.saturating_mul(1_000) > left_ms
    {
        calls.move_end(&live, timeout_s).await?;
    }
    if live.sandbox.is_paused {
        calls.run(words(["resume"]), &live.record).await?;
    }
    let status = if live.sandbox.is_paused {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(body::json(status, &access_of(&calls, &live)))
}

/// Of a sandbox if the headers name one, or of the server.
pub(super) async fn health(
    State(calls): State<Calls>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if headers.contains_key("e2b-sandbox-id") {
        let record = find_record(&calls, &headers).await?;
        let live = calls.find_live(&record.id).await;
        live.map_err(|_ended| Problem::not_running())?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_a_query_is_decoded_twice() {
        let read = pairs("a%20b=c%2526d&e=").expect("pairs");
        let expected = [("a b", "c&d"), ("e", "")];
        assert_eq!(
            read,
            expected
                .map(|(name, value)| (name.into(), value.into()))
                .into()
        );
        assert!(pairs("a").is_err());
    }
}
