//! Where a client runs: directories of the test's own, which are empty again at the end.

use std::path::PathBuf;
use std::process::{Command, Output};

use support::packages::succeed;
use support::runner;

use crate::host::Host;

pub struct Place {
    pub host: Host,
}

impl Place {
    pub fn new() -> Self {
        let host = Host::new();
        for name in ["tmp", "home"] {
            std::fs::create_dir(host.ground.path(name)).expect("made");
        }
        Self { host }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.host.ground.path(name)
    }

    /// The command with the variables of this place.
    pub fn command(&self, mut command: Command) -> Command {
        for (name, value) in self.host.command(&[""; 0]).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
            .env("RUNNER_PROGRAM", runner())
            .env("TMPDIR", self.path("tmp"))
            .env("HOME", self.path("home"))
            .env_remove("PYTHONPATH")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_COLOR", "1")
            .env_remove("FORCE_COLOR");
        command
    }

    /// Runs a command of this place to its end; it must succeed, and leave no sandbox and no file of a client.
    #[track_caller]
    pub fn succeed(&self, command: Command) -> String {
        let output = self.output(command);
        assert!(output.status.success(), "{}", shown(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command of this place to its end; one that hangs is killed.
    #[track_caller]
    pub fn output(&self, command: Command) -> Output {
        let mut limited = Command::new("timeout");
        limited.args(["--kill-after=5", "300"]);
        limited.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        limited.current_dir(
            command
                .get_current_dir()
                .unwrap_or(&self.host.ground.workspace()),
        );
        let output = limited.output().expect("timeout starts");
        let records = self.host.files("runs");
        assert_eq!(records, [""; 0], "{}", shown(&output));
        self.host.assert_empty();
        let mut find = Command::new("find");
        find.arg(self.path("tmp"))
            .args(["-name", "runner-*", "-ls"]);
        assert_eq!(succeed(&mut find).as_deref(), Ok(""), "{}", shown(&output));
        output
    }
}

/// What a command printed, for the message of a failed test.
pub fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    format!("{}\n{stdout}\n{stderr}", output.status)
}
