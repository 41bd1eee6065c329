//! `runner mcp`: one sandbox for each server process, offered as tools of the Model Context Protocol.
//! `runner serve --mcp` offers the same tools, with one sandbox for each session.
//!
//! The server decides nothing about the sandbox: it executes `runner`, with the flags that it was
//! started with, and passes on what that says.

mod answer;
mod call;
mod flags;
mod handler;
mod sandbox;
mod signals;
mod text;
mod tools;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rmcp::model::ProtocolVersion;
use rmcp::service::{QuitReason, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::runtime::Builder;

use companion::flags::{NoFlags, print};
use companion::{FAILED, Program, complain};
use sandbox::code_of_signal;
use signals::Signals;
use tools::bundles::{BundleError, Bundles};

pub(crate) use flags::Flags;
pub(crate) use handler::{Server, describe};
pub(crate) use sandbox::Sandbox;

/// Most bytes of a message of the client. A longer one is dropped, and standard error says so.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// How long calls may still run when the sandbox is gone.
const CALLS_END: Duration = Duration::from_secs(5);

/// Serves until standard input ends or a signal comes.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let flags = match Flags::parse(words) {
        Ok(flags) => flags,
        Err(NoFlags::Help(text)) => return print(&text),
        Err(NoFlags::Mistake(message)) => {
            complain(
                &format!("refused: {message} (usage)"),
                Some("see `runner mcp --help`"),
            );
            return ExitCode::from(FAILED);
        }
    };
    log_errors();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(
                &format!("failed: cannot start the runtime: {error} (mcp_failed)"),
                None,
            );
            return ExitCode::from(FAILED);
        }
    };
    let code = runtime.block_on(serve(flags)).unwrap_or_else(|code| code);
    // A thread may still wait for standard input.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn serve(flags: Flags) -> Result<u8, u8> {
    let failed = |what: &str, error: io::Error| {
        complain(&format!("failed: {what}: {error} (mcp_failed)"), None);
        FAILED
    };
    let mut signals = Signals::catch().map_err(|error| failed("cannot catch signals", error))?;
    let program = Program::beside_this_one()
        .map_err(|error| failed("cannot find `runner` beside `runner-server`", error))?;
    let bundles = Bundles::open(&program, &flags).await;
    let bundles = bundles.map_err(|error: BundleError| {
        complain(&format!("refused: {error} (mcp_bundles)"), None);
        FAILED
    })?;
    let sandbox = Arc::new(Sandbox::create(program, flags, &mut signals).await?);
    let server = Server::new(
        Arc::clone(&sandbox),
        bundles,
        ProtocolVersion::KNOWN_VERSIONS,
    );
    let code = tokio::select! {
        code = talk(server.clone()) => code,
        signal = signals.next() => code_of_signal(signal),
    };
    let is_removed = sandbox.remove().await;
    server.calls_ended(CALLS_END).await;
    match is_removed {
        true => Ok(code),
        false => Err(FAILED),
    }
}

/// Speaks the protocol until standard input ends. Returns the exit code.
async fn talk(server: Server) -> u8 {
    let transport = AsyncRwTransport::new_server(tokio::io::stdin(), tokio::io::stdout())
        .with_max_line_length(MESSAGE_BYTES_MAX);
    let problem = match server.serve(transport).await {
        // The input ended before it began.
        Err(ServerInitializeError::ConnectionClosed(_)) => return 0,
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            "the first message of the client is not `initialize`".to_owned()
        }
        Err(error) => error.to_string(),
        Ok(running) => match running.waiting().await {
            Ok(QuitReason::Closed | QuitReason::Cancelled) => return 0,
            Ok(reason) => format!("the protocol ended: {reason:?}"),
            Err(error) => format!("the protocol ended: {error}"),
        },
    };
    complain(&format!("failed: {problem} (mcp_protocol)"), None);
    FAILED
}

/// Errors of the protocol library go to standard error, a line for each: dropped messages, for example.
fn log_errors() {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_writer(|| Lines)
        .init();
}

/// Standard error, escaped.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        complain(&format!("error: {}", text.trim()), None);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
