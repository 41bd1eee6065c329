//! `runner-worker`: the program behind `runner worker`, `runner submit` and `runner result`, which execute it.
//!
//! A run is a message of a stream of NATS JetStream. Its sender gives it an id. Whatever ends or loses its connection
//! meanwhile, a run has one result: the first that is created under its id. A message is acknowledged after that.
//!
//! [`engine`]: the stream and its buckets. [`messages`]: what they contain. [`work`]: the worker's loop;
//! [`delivery`]: one message; [`execute`]: its run. [`submit`], [`result`]: the clients.
#![forbid(unsafe_code)]

mod bundles;
mod cancellations;
mod delivery;
mod engine;
mod execute;
mod flags;
mod messages;
mod metrics;
mod objects;
mod result;
mod submit;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

use companion::flags::{NoFlags, print};
use companion::{FAILED, complain};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use flags::Verb;

/// Why a verb failed, in the form of `runner`'s messages.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: &'static str,
    pub(crate) message: String,
    pub(crate) code: &'static str,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            what: "refused",
            message: message.into(),
            code,
            hint: None,
        }
    }

    pub(crate) fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            what: "failed",
            ..Self::refused(code, message)
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    fn tell(&self) {
        let message = format!("{}: {} ({})", self.what, self.message, self.code);
        complain(&message, self.hint.as_deref());
    }
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words == ["--version"] {
        return print(concat!("runner-worker ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    match companion::flags::parse("runner", &words).map_or_else(|no| no_flags(no, &words), run) {
        Ok(code) => code,
        Err(failure) => {
            failure.tell();
            ExitCode::from(FAILED)
        }
    }
}

fn no_flags(no_flags: NoFlags, words: &[OsString]) -> Result<ExitCode, Failure> {
    match no_flags {
        NoFlags::Help(text) => Ok(print(&text)),
        NoFlags::Mistake(message) => {
            let verb = words.first().map(|verb| verb.to_string_lossy());
            let hint = format!("see `runner {} --help`", verb.unwrap_or_default());
            Err(Failure::refused("usage", message).with_hint(hint))
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode, Failure> {
    // One thread: a run ends with the thread that started it (prctl(2), PR_SET_PDEATHSIG).
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::failed("host_failed", format!("no runtime: {error}")))?;
    let done = LocalSet::new().block_on(&runtime, async {
        match verb {
            Verb::Worker(flags) => work::work(flags).await,
            Verb::Submit(flags) => submit::submit(flags).await,
            Verb::Result(flags) => result::show(flags).await,
        }
    });
    // A file that is still hashed holds nothing up.
    runtime.shutdown_background();
    done
}
