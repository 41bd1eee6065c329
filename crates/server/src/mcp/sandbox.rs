//! The sandbox of a server or a session: made by `runner sandbox create`, asked by `runner sandbox ls`,
//! removed by `runner sandbox rm`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rustix::rand::{GetRandomFlags, getrandom};
use spec::sandboxes::{SandboxListing, SandboxState};
use tokio::process::Command;

use super::call;
use super::flags::Flags;
use super::signals::Signals;
use companion::{FAILED, Program, complain};

/// Ends the sandbox if nothing else does: this process was killed.
const IDLE_TIMEOUT: &str = "1h";

/// The variable that sets it for `runner`, which a flag would outweigh.
const IDLE_TIMEOUT_VARIABLE: &str = "RUNNER_OPT_IDLE_TIMEOUT";

/// How long the end of a cancelled creation may take.
const CREATION_END: Duration = Duration::from_secs(2);
/// How long a supervisor may take to describe its sandbox.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long a removal may take.
const REMOVAL_END: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(super) program: Program,
    pub(crate) name: String,
    pub(super) flags: Flags,
    run_id: String,
}

impl Sandbox {
    /// One that is there.
    pub(crate) const fn existing(
        program: Program,
        name: String,
        flags: Flags,
        run_id: String,
    ) -> Self {
        Self {
            program,
            name,
            flags,
            run_id,
        }
    }

    /// Creates it; what goes wrong is on standard error.
    ///
    /// # Errors
    /// The exit code.
    pub(super) async fn create(
        program: Program,
        flags: Flags,
        signals: &mut Signals,
    ) -> Result<Self, u8> {
        let name = format!("mcp-{}", random().map_err(|error| failed(&error))?);
        let mut sandbox = Self {
            program,
            name,
            flags,
            run_id: String::new(),
        };
        let created = sandbox.run_creation(signals).await;
        let created = match created {
            Ok(()) => sandbox.state().await.and_then(|state| {
                state.ok_or_else(|| io::Error::other("the sandbox ended at once"))
            }),
            Err(code) => {
                // It may be there already. One that is still in the making does not answer, and ends
                // itself when nobody waits for it. No other sandbox has its name, which is random.
                drop(sandbox.run_removal(CREATION_END).await);
                return Err(code);
            }
        };
        match created {
            Ok(state) => sandbox.run_id = state.run_id,
            Err(error) => {
                let name = &sandbox.name;
                complain(
                    &format!("failed: sandbox {name}: {error} (mcp_failed)"),
                    None,
                );
                sandbox.remove().await;
                return Err(FAILED);
            }
        }
        Ok(sandbox)
    }

    async fn run_creation(&self, signals: &mut Signals) -> Result<(), u8> {
        let mut command = Command::new(self.program.path());
        command.args(["sandbox", "create", "--name", &self.name]);
        // Before the flags of the user, which replace it.
        if std::env::var_os(IDLE_TIMEOUT_VARIABLE).is_none() {
            command.args(["--idle-timeout", IDLE_TIMEOUT]);
        }
        command
            .args(&self.flags.of_create)
            .stdin(Stdio::null())
            // It prints the name, and standard output belongs to the protocol.
            .stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let status = tokio::select! {
            status = child.wait() => status,
            signal = signals.next() => {
                call::send(&child, Signal::TERM);
                drop(tokio::time::timeout(CREATION_END, child.wait()).await);
                return Err(code_of_signal(signal));
            }
        };
        match status.map_err(|error| failed(&error))?.code() {
            Some(0) => Ok(()),
            code => Err(code
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(FAILED)),
        }
    }

    /// What `runner sandbox ls` says of it; `None`: it has ended.
    pub(super) async fn state(&self) -> io::Result<Option<SandboxState>> {
        let output = self.run_verb(&["ls", "--json"], ANSWER_TIME).await?;
        if output.status.success() {
            let listing: SandboxListing = serde_json::from_slice(&output.stdout)?;
            return Ok(listing.sandboxes.into_iter().next());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let has_code = |code| message.lines().any(|line| line.ends_with(code));
        match has_code(" (no_sandbox)") || has_code(" (sandbox_ending)") {
            true => Ok(None),
            false => Err(io::Error::other(message.trim_end().to_owned())),
        }
    }

    /// Whether it has ended for certain.
    pub(crate) async fn has_ended(&self) -> bool {
        matches!(self.state().await, Ok(None))
    }

    /// How it ended and what it was denied, as `runner why` tells it.
    pub(super) async fn explain_end(&self) -> io::Result<String> {
        let mut command = Command::new(self.program.path());
        let explained = command.args(["why", &self.run_id]).stdin(Stdio::null());
        let explained = explained.output().await?;
        let text = match explained.status.success() {
            true => explained.stdout,
            // Not recorded, or removed from the history.
            false => explained.stderr,
        };
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Ends it. Whether it is gone.
    pub(crate) async fn remove(&self) -> bool {
        let removed = self.run_removal(REMOVAL_END).await;
        let problem = match removed {
            Ok(output) if output.status.success() => return true,
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        if matches!(self.state().await, Ok(None)) {
            return true;
        }
        let Self { name, .. } = self;
        let problem = problem.trim_end();
        complain(
            &format!("failed: cannot remove the sandbox {name}: {problem} (mcp_failed)"),
            Some(&format!("`runner sandbox rm -f {name}` removes it")),
        );
        false
    }

    async fn run_removal(&self, patience: Duration) -> io::Result<Output> {
        self.run_verb(&["rm", "-f", "-q"], patience).await
    }

    /// `runner sandbox WORDS… NAME`, which asks no other sandbox.
    async fn run_verb(&self, words: &[&str], patience: Duration) -> io::Result<Output> {
        let mut command = Command::new(self.program.path());
        command.arg("sandbox").args(words).arg(&self.name);
        let done = command.stdin(Stdio::null()).kill_on_drop(true).output();
        tokio::time::timeout(patience, done)
            .await
            .unwrap_or_else(|_elapsed| Err(io::Error::other("the supervisor does not answer")))
    }

    /// `runner sandbox exec FLAGS… NAME -- PROGRAM…`.
    pub(super) fn exec_words<Word: AsRef<OsStr>>(
        &self,
        flags: &[OsString],
        program: &[Word],
    ) -> Vec<OsString> {
        let mut words = vec!["sandbox".into(), "exec".into()];
        words.extend_from_slice(flags);
        words.push(self.name.as_str().into());
        words.push("--".into());
        words.extend(program.iter().map(|word| word.as_ref().to_owned()));
        words
    }
}

fn failed(error: &io::Error) -> u8 {
    complain(
        &format!("failed: `runner sandbox create`: {error} (mcp_failed)"),
        None,
    );
    FAILED
}

/// The exit code after a signal.
pub(super) fn code_of_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(FAILED)
}

/// Sixteen hexadecimal digits.
fn random() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}
