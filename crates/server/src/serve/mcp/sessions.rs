//! The sessions, and the sandboxes that belong to them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{SESSION_HEADER, STREAMS_MAX, versions};
use crate::mcp::{Flags, MESSAGE_BYTES_MAX, Sandbox, Server};
use crate::serve::access::Access;
use crate::serve::error::ApiError;
use crate::serve::metrics::Refused;
use crate::serve::sandboxes::{Setup, make, random_name};
use crate::serve::server::Shared;
use crate::serve::types::CreateSandbox;
use companion::complain;

/// How often it is looked whether the sandboxes of sessions are there.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Most sessions that begin at once; further ones wait.
const OPENINGS_MAX: u32 = 8;
/// How long the end of the server waits for sessions that begin.
const OPENINGS_END: Duration = Duration::from_secs(10);

/// The sessions of this server.
pub(in crate::serve) struct Mcp {
    pub(super) server: Shared,
    /// Whose flags each sandbox has.
    template: String,
    flags: Vec<OsString>,
    /// The beginning of the names of the sandboxes.
    prefix: String,
    /// By their ids; `None` at the end of the server.
    sessions: Mutex<Option<HashMap<String, Arc<Session>>>>,
    openings: Semaphore,
    pub(super) streams: Arc<Semaphore>,
}

type Service = StreamableHttpService<Server, LocalSessionManager>;

/// One session. The library knows no other one that it could answer for.
pub(super) struct Session {
    /// Of the client that began it. Others do not see it.
    access: Access,
    sandbox: Arc<Sandbox>,
    manager: Arc<LocalSessionManager>,
    pub(super) calls: Service,
    /// The same service, whose streams end earlier: when the server begins to stop.
    pub(super) streams: Service,
}

/// What the library checks: Host and Origin are checked for all calls of the server.
pub(super) fn config() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
}

impl Session {
    fn new(access: Access, sandbox: Sandbox) -> Self {
        let sandbox = Arc::new(sandbox);
        let mut times = SessionConfig::default();
        // A call may take an hour. The sandbox has an end, and the session ends with it.
        times.keep_alive = None;
        let mut manager = LocalSessionManager::default();
        manager.session_config = times;
        let manager = Arc::new(manager);
        let handler = Server::new(Arc::clone(&sandbox), None, versions());
        let handlers = move || Ok(handler.clone());
        let calls = StreamableHttpService::new(handlers, Arc::clone(&manager), config());
        let mut streams = calls.clone();
        streams.config = config();
        Self {
            access,
            sandbox,
            manager,
            calls,
            streams,
        }
    }

    fn end_streams(&self) {
        self.streams.config.cancellation_token.cancel();
    }

    /// Ends it. Whether its sandbox is gone.
    async fn end(&self) -> bool {
        self.end_streams();
        // First the commands, so that calls end by themselves.
        let is_removed = self.sandbox.remove().await;
        self.calls.config.cancellation_token.cancel();
        is_removed
    }
}

impl Mcp {
    /// `socket` is that of the server.
    ///
    /// # Errors
    /// There is no such template.
    pub(in crate::serve) fn new(
        server: Shared,
        template: &str,
        socket: &tokio::net::unix::SocketAddr,
    ) -> Result<Self, String> {
        let flags = server.templates.get(template).ok_or_else(|| {
            let template = spec::path::escape(template.as_bytes());
            format!("--mcp {template}: the file of --templates has no such template")
        })?;
        let flags = flags.iter().map(OsString::from).collect();
        Ok(Self {
            template: template.to_owned(),
            flags,
            prefix: prefix(socket),
            sessions: Mutex::new(Some(HashMap::new())),
            openings: Semaphore::new(OPENINGS_MAX as usize),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            server,
        })
    }

    fn sandbox(&self, name: String, run_id: String) -> Sandbox {
        let flags = Flags::of_template(self.flags.clone());
        Sandbox::existing(self.server.verbs.program().clone(), name, flags, run_id)
    }

    /// Removes the sandboxes of a server at the same socket that was killed.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(in crate::serve) async fn remove_left(&self) -> Result<(), ApiError> {
        let list = self.server.verbs.list().await?;
        for left in list.unresponsive {
            if left.name.starts_with(&self.prefix) {
                let message = format!(
                    "warning: the supervisor of {}, the sandbox of an earlier session, does not answer",
                    left.name
                );
                complain(&message, Some("it ends by its idle timeout"));
            }
        }
        let mut removals = JoinSet::new();
        for left in list.sandboxes {
            if left.name.starts_with(&self.prefix) {
                let sandbox = self.sandbox(left.name, left.run_id);
                // What is not removed is complained of, and has an idle timeout.
                removals.spawn(async move { sandbox.remove().await });
            }
        }
        while removals.join_next().await.is_some() {}
        Ok(())
    }

    /// The session `id` of a client.
    ///
    /// # Errors
    /// 404: then a client begins a new one.
    pub(super) fn find(&self, access: Access, id: &str) -> Result<Arc<Session>, ApiError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let found = sessions.as_ref().and_then(|sessions| sessions.get(id));
        let found = found.filter(|session| session.access == access);
        found.cloned().ok_or_else(|| {
            let message =
                "there is no such session; `initialize` without Mcp-Session-Id begins one";
            ApiError::new(StatusCode::NOT_FOUND, "no_session", message)
        })
    }

    /// Begins a session by its first message.
    ///
    /// # Errors
    /// There are too many, the server is ending, or the sandbox cannot be created.
    pub(super) async fn open(
        self: Arc<Self>,
        access: Access,
        request: Request,
    ) -> Result<Response, ApiError> {
        let _opening = self.openings.acquire().await.map_err(|_closed| ending())?;
        self.check_room()?;
        let wanted = CreateSandbox {
            name: Some(self.prefix.clone() + &random_name()?),
            template: Some(self.template.clone()),
            ..CreateSandbox::default()
        };
        let setup = Setup {
            idle: Some(self.server.idle_timeout),
            ..Setup::default()
        };
        // The operator has chosen the template. By its name no client with the token has the sandbox.
        let made = make(&self.server, Access::Owner, &wanted, "create", setup).await?;
        let session = Arc::new(Session::new(access, self.sandbox(made.name, made.run_id)));
        let response = session.calls.handle(request).await.map(Body::new);
        // Without it the message was refused.
        let id = response.headers().get(SESSION_HEADER);
        let Some(id) = id.and_then(|id| id.to_str().ok()) else {
            session.end().await;
            return Ok(response);
        };
        if !self.keep(id, &session) {
            session.end().await;
            return Err(ending());
        }
        Ok(response)
    }

    /// Sessions whose sandbox has just ended count, too: they take memory.
    fn check_room(&self) -> Result<(), ApiError> {
        let max = self.server.max_sandboxes;
        if self.open_sessions().len() < max {
            return Ok(());
        }
        self.server.metrics.refused(Refused::Sandboxes);
        let message = format!("{max} sessions exist, and --max-sandboxes is {max}");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", message);
        Err(error.retry_after_s(10))
    }

    /// Whether the session is kept: not at the end of the server.
    fn keep(&self, id: &str, session: &Arc<Session>) -> bool {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sessions.as_mut();
        kept.map(|sessions| sessions.insert(id.to_owned(), Arc::clone(session)))
            .is_some()
    }

    fn open_sessions(&self) -> Vec<(String, Arc<Session>)> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = sessions.iter().flatten();
        pairs
            .map(|(id, session)| (id.clone(), Arc::clone(session)))
            .collect()
    }

    /// Ends a session. Whether its sandbox is gone.
    pub(super) async fn end(&self, id: &str) -> bool {
        let ended = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.as_mut().and_then(|sessions| sessions.remove(id))
        };
        match ended {
            Some(session) => session.end().await,
            // Another call ends it, or has ended it.
            None => true,
        }
    }

    /// Ends sessions whose sandbox has ended, until the server ends.
    pub(in crate::serve) async fn watch(self: Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            for (id, session) in self.open_sessions() {
                let is_open = session.manager.has_session(&id.as_str().into()).await;
                if !is_open.is_ok_and(|is_open| is_open) || session.sandbox.has_ended().await {
                    self.end(&id).await;
                }
            }
        }
    }

    /// Ends the streams, which would hold up the end of the server. Calls go on.
    pub(in crate::serve) fn end_streams(&self) {
        self.streams.close();
        for (_id, session) in self.open_sessions() {
            session.end_streams();
        }
    }

    /// Ends all sessions, and begins no more.
    pub(in crate::serve) async fn end_all(&self) {
        let sessions = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.take()
        };
        let mut ends = JoinSet::new();
        for session in sessions.into_iter().flatten().map(|(_id, session)| session) {
            ends.spawn(async move { session.end().await });
        }
        while ends.join_next().await.is_some() {}
        // Those that begin find that the server has ended, and remove their sandboxes. One that takes longer
        // is removed by the next server, or by its idle timeout.
        drop(timeout(OPENINGS_END, self.openings.acquire_many(OPENINGS_MAX)).await);
    }
}

fn ending() -> ApiError {
    let message = "the server is ending";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "ending", message)
}

/// Another server has another socket, which it locks: sandboxes with this beginning are those of this one, or
/// of one that has died.
fn prefix(socket: &tokio::net::unix::SocketAddr) -> String {
    let mut hasher = DefaultHasher::new();
    match socket.as_pathname().map(Path::canonicalize) {
        Some(Ok(path)) => path.hash(&mut hasher),
        // A name of systemd without a file.
        _ => format!("{socket:?}").hash(&mut hasher),
    }
    format!("mcp.{:016x}.", hasher.finish())
}
