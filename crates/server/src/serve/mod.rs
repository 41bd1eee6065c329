//! `runner serve`: an HTTP API in front of the verbs of `runner sandbox`, and of `runner exec`.
//!
//! The server keeps no state: sandboxes and runs have supervisors of their own, what is known of runs is in files,
//! and each call executes `runner`.

mod access;
mod body;
mod commands;
mod connections;
pub(crate) mod e2b;
mod error;
mod events;
mod exec;
mod file_programs;
mod files;
mod flags;
mod form;
mod hmac;
mod id_pipe;
mod lifetimes;
mod listeners;
mod mcp;
mod metrics;
mod openapi;
mod parameters;
mod ports;
mod query;
mod routes;
mod runs;
mod sandboxes;
mod server;
mod templates;
mod terminal;
mod terminals;
mod types;
mod unread;
mod verbs;
mod watching;
mod write_timeout;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tokio::sync::watch;

use access::{Access, Token};
use companion::flags::{NoFlags, print};
use companion::service::{notify, wait_for_stop, watch_dog};
use companion::workspace::Workspace;
use companion::{FAILED, complain};
use connections::Front;
use error::ApiError;
use flags::{Api, Flags};
use listeners::Listeners;
use mcp::Mcp;
use runs::Runs;
use sandboxes::random_name;
use server::Server;
use verbs::Verbs;

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let flags: Flags = match companion::flags::parse("serve", words) {
        Ok(flags) => flags,
        Err(NoFlags::Help(text)) => return print(&text),
        Err(NoFlags::Mistake(message)) => {
            let message = format!("refused: {message} (usage)");
            complain(&message, Some("see `runner serve --help`"));
            return ExitCode::from(FAILED);
        }
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("failed: cannot start the runtime: {error} (serve_failed)");
            complain(&message, None);
            return ExitCode::from(FAILED);
        }
    };
    let done = runtime.block_on(serve(&flags));
    // Output of commands that nobody reads any more: they go on without this process.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&format!("refused: {message} (serve_failed)"), None);
            ExitCode::from(FAILED)
        }
    }
}

/// # Errors
/// Why it cannot start.
async fn serve(flags: &Flags) -> Result<(), String> {
    // Before anything else opens a descriptor.
    let passed = listeners::passed()?;
    let token = flags.token_file.as_deref().map(Token::read).transpose()?;
    let templates = match &flags.templates {
        Some(file) => templates::read("--templates", file)?,
        None => templates::Templates::default(),
    };
    let verbs = Verbs::beside_this_one(flags)?;
    check_runner(&verbs)
        .await
        .map_err(|error| error.in_one_line())?;
    let listeners = Listeners::open(flags, passed, token.is_some())?;
    let workspace = open_workspace()?;
    let runs = Runs::open(flags)?;
    let server = Arc::new(Server::new(flags, verbs, templates, workspace, runs));
    let token = token.map(Arc::new);
    let tcp_router = token
        .clone()
        .filter(|_token| flags.api == Api::E2b)
        .map(|token| e2b::router(Arc::clone(&server), token));
    let mcp = match &flags.mcp {
        Some(template) => Some(start_mcp(&server, template, &listeners).await?),
        None => None,
    };
    let mut router = routes::router(Arc::clone(&server));
    if let Some(mcp) = &mcp {
        router = router.merge(mcp::router(Arc::clone(mcp)));
    }
    let front = Front {
        router,
        tcp_router,
        token,
        server,
    };
    complain(&format!("listening on {listeners}"), None);
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(connections::serve(listeners, front, stopped));
    watch_dog();
    notify(NotifyState::Ready);
    wait_for_stop().await?;
    notify(NotifyState::Stopping);
    // The receiver lives as long as the task.
    stop.send_replace(true);
    if let Some(mcp) = &mcp {
        mcp.end_streams();
    }
    let again = tokio::select! {
        _ended = serving => Ok(()),
        () = tokio::time::sleep(flags.stop_timeout) => Ok(()),
        again = wait_for_stop() => again,
    };
    if let Some(mcp) = mcp {
        mcp.end_all().await;
    }
    again
}

/// # Errors
/// A message: the directory cannot be made, or is not private.
fn open_workspace() -> Result<Workspace, String> {
    let uid = rustix::process::geteuid().as_raw();
    let common = std::env::temp_dir().join(format!(".runner-serve-{uid}"));
    Workspace::open_in(&common)
        .map_err(|message| format!("{message}; TMPDIR names another place for it"))
}

/// Creates and checks the runtime directory, too. Asks for a sandbox that does not exist: one that does may not
/// answer.
///
/// # Errors
/// What `runner` says.
async fn check_runner(verbs: &Verbs) -> Result<(), ApiError> {
    let name = Access::E2b.sandbox(&random_name()?)?;
    match verbs.get(&name).await {
        Err(error) if error.code() != "no_sandbox" => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// # Errors
/// There is no such template.
async fn start_mcp(
    server: &server::Shared,
    template: &str,
    listeners: &Listeners,
) -> Result<Arc<Mcp>, String> {
    let socket = listeners.unix.local_addr();
    let socket = socket.map_err(|error| format!("the unix socket has no address: {error}"))?;
    let mcp = Arc::new(Mcp::new(Arc::clone(server), template, &socket)?);
    let left = mcp.remove_left().await;
    left.map_err(|error| error.in_one_line())?;
    tokio::spawn(Arc::clone(&mcp).watch());
    Ok(mcp)
}
