//! `filesystem.Filesystem/WatchDir` and the calls of watchers, whose events clients fetch.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Calls;
use super::answers::{Unary, unsupported};
use super::frames;
use super::records::{Record, lock};
use super::start::{check_user, stream};
use crate::serve::body::{self, BodySender, channel};
use crate::serve::error::ApiError;
use crate::serve::sandboxes::random_name;
use crate::serve::server::place;
use crate::serve::types::{WatchEvent, WatchedPath};
use crate::serve::watching::Watch;

/// Most events that are kept until a client fetches them.
const EVENTS_MAX: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    include_entry: bool,
    #[serde(default)]
    allow_network_mounts: bool,
}

/// All watchers, by their ids.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Arc<Watcher>>>);

#[derive(Debug)]
struct Watcher {
    /// Of its sandbox.
    sandbox: String,
    kept: Mutex<Kept>,
    /// Dropped to end it.
    _end: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Value>,
    /// Told once.
    has_lost: bool,
    /// Why there are no more; told once, and with it the watcher is forgotten.
    error: Option<ApiError>,
}

impl Watchers {
    /// Those of this sandbox alone.
    fn get(&self, record: &Record, id: &str) -> Result<Arc<Watcher>, ApiError> {
        let found = lock(&self.0).get(id).cloned();
        let found = found.filter(|watcher| watcher.sandbox == record.id);
        found.ok_or_else(|| {
            let message = "the sandbox has no such watcher";
            ApiError::new(StatusCode::NOT_FOUND, "no_watcher", message)
        })
    }
}

async fn start(calls: &Calls, record: &Record, wanted: Wanted) -> Result<Watch, ApiError> {
    if wanted.include_entry || wanted.allow_network_mounts {
        return Err(unsupported(
            "entries in events and network mounts are not supported",
        ));
    }
    let path = calls.path(record, wanted.path.as_bytes()).await?;
    Watch::start(&calls.server, &record.name, path, wanted.recursive).await
}

/// As `envd` names it; events have no type for lost ones.
fn described(event: WatchEvent) -> Result<Option<Value>, ApiError> {
    let (kind, path) = match event {
        WatchEvent::Started => return Ok(None),
        WatchEvent::Create(path) => ("EVENT_TYPE_CREATE", path),
        WatchEvent::Write(path) => ("EVENT_TYPE_WRITE", path),
        WatchEvent::Remove(path) => ("EVENT_TYPE_REMOVE", path),
        WatchEvent::Rename(path) => ("EVENT_TYPE_RENAME", path),
        WatchEvent::Chmod(path) => ("EVENT_TYPE_CHMOD", path),
        WatchEvent::Overflow | WatchEvent::Error(_) => return Err(lost()),
    };
    let WatchedPath { path, path_base64 } = path;
    let bytes = path_base64.and_then(|text| spec::base64::decode(text.as_bytes()));
    let name =
        path.unwrap_or_else(|| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned());
    Ok(Some(json!({"name": name, "type": kind})))
}

fn lost() -> ApiError {
    let message = "events were lost: there were more than are kept; list the directory again";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "events_lost", message)
}

pub(super) async fn watch(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Response {
    stream(begin(&calls, &record, request).await)
}

async fn begin(calls: &Calls, record: &Record, request: Request) -> Result<Body, ApiError> {
    let (parts, body) = request.into_parts();
    let wanted = frames::read(&parts.headers, body).await?;
    check_user(&parts.headers)?;
    let watch = start(calls, record, wanted).await?;
    let (client, body) = channel();
    tokio::spawn(send(watch, client));
    Ok(body)
}

async fn send(mut watch: Watch, client: BodySender) {
    let mut message = json!({"start": {}});
    loop {
        if client.send(frames::message(&message)).await.is_err() {
            return;
        }
        let next = async {
            loop {
                if let Some(event) = described(watch.next().await?)? {
                    return Ok::<_, ApiError>(event);
                }
            }
        };
        message = tokio::select! {
            next = next => match next {
                Ok(event) => json!({"filesystem": event}),
                Err(error) => {
                    // A client that has gone does not see it.
                    let _sent = client.send(frames::end(Some(&error.into()))).await;
                    return;
                }
            },
            () = client.closed() => return,
        };
    }
}

pub(super) async fn create(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let (parts, body) = request.into_parts();
    let wanted = body::read_json(body).await?;
    check_user(&parts.headers)?;
    let watch = start(&calls, &record, wanted).await?;
    let (end, ended) = oneshot::channel();
    let watcher = Arc::new(Watcher {
        sandbox: record.id.clone(),
        kept: Mutex::default(),
        _end: end,
    });
    let id = random_name()?;
    let mut all = lock(&calls.watchers.0);
    all.retain(|_id, watcher| calls.records.get(&watcher.sandbox).is_some());
    all.insert(id.clone(), Arc::clone(&watcher));
    drop(all);
    // It counts as a call until it ends.
    let (place, watcher) = (place(), Arc::downgrade(&watcher));
    tokio::spawn(async move {
        keep(watch, watcher, ended).await;
        drop(place);
    });
    Ok(body::json(StatusCode::OK, &json!({"watcherId": id})))
}

async fn keep(mut watch: Watch, watcher: Weak<Watcher>, mut ended: oneshot::Receiver<()>) {
    loop {
        let next = tokio::select! {
            next = watch.next() => next,
            _removed = &mut ended => return,
        };
        let Some(watcher) = watcher.upgrade() else {
            return;
        };
        let mut kept = lock(&watcher.kept);
        match next.map(described) {
            Ok(Ok(Some(_))) if kept.has_lost => (),
            Ok(Ok(Some(event))) if kept.events.len() < EVENTS_MAX => kept.events.push_back(event),
            Ok(Ok(None)) => (),
            // Those that are kept say nothing without the others.
            Ok(Ok(Some(_)) | Err(_)) => {
                kept.has_lost = true;
                kept.events = VecDeque::new();
            }
            Err(error) => {
                kept.error = Some(error);
                return;
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfWatcher {
    watcher_id: String,
}

pub(super) async fn events(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfWatcher = body::read_json(request.into_body()).await?;
    let watcher = calls.watchers.get(&record, &wanted.watcher_id)?;
    let mut kept = lock(&watcher.kept);
    if std::mem::take(&mut kept.has_lost) {
        return Err(lost().into());
    }
    if kept.events.is_empty()
        && let Some(error) = kept.error.take()
    {
        lock(&calls.watchers.0).remove(&wanted.watcher_id);
        return Err(error.into());
    }
    let events = std::mem::take(&mut kept.events);
    Ok(body::json(StatusCode::OK, &json!({"events": events})))
}

pub(super) async fn remove(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfWatcher = body::read_json(request.into_body()).await?;
    calls.watchers.get(&record, &wanted.watcher_id)?;
    lock(&calls.watchers.0).remove(&wanted.watcher_id);
    Ok(body::json(StatusCode::OK, &json!({})))
}
