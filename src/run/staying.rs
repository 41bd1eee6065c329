//! A sandbox that stays: its name, its control socket, and the process that waits for its start.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::run::error::RunError;
use crate::run::sandbox_files::{inside, inside_watch};
use sandbox::cgroups::RunCgroup;
use sandbox::control::{BuiltIns, Commands, CommandsPlan, Lifetime, OutputMasks, PrivateDirectory};
use sandbox::launch::CommandPlan;
use sandbox::records::{RecordsError, RunRecord};
use sandbox::resources::ResourcesError;
use secrets::stream_mask::StreamMasks;
use spec::host_policy::Maximum;
use spec::labels::Labels;
use spec::lifecycle::LifecycleError;
use spec::limits::Limit;
use spec::manifest::Manifest;
use spec::report::{WarningReport, with_causes};
use spec::sandboxes::{
    CommandDefaults, CommandLimits, EndedCommands, IdleTimes, SandboxName, SandboxState,
};
use sys::detach::Readiness;

/// What commands run that execute no program.
const BUILT_INS: BuiltIns = BuiltIns {
    send_files: inside::send,
    receive_files: inside::receive,
    watch_files: inside_watch::watch,
};

/// What `runner sandbox create` adds to a run.
#[derive(Debug)]
pub(crate) struct StayingSandbox {
    /// `None`: its run id.
    name: Option<SandboxName>,
    labels: Labels,
    idle_times: Cell<IdleTimes>,
    lifetime: RefCell<Lifetime>,
    defaults: Cell<CommandDefaults>,
    /// Whom to tell of the start.
    readiness: RefCell<Option<Readiness>>,
    named: RefCell<Option<Named>>,
    private: RefCell<Vec<PrivateDirectory>>,
    /// Held until the process ends: a client that asked for the end waits for that.
    commands: RefCell<Option<Commands>>,
}

#[derive(Debug)]
struct Named {
    state: SandboxState,
    socket: Option<OwnedFd>,
}

impl StayingSandbox {
    pub(crate) fn new(
        name: Option<SandboxName>,
        labels: Labels,
        idle_times: IdleTimes,
        readiness: Option<Readiness>,
    ) -> Self {
        Self {
            name,
            labels,
            idle_times: Cell::new(idle_times),
            lifetime: RefCell::default(),
            defaults: Cell::default(),
            readiness: RefCell::new(readiness),
            named: RefCell::new(None),
            private: RefCell::new(Vec::new()),
            commands: RefCell::new(None),
        }
    }

    /// Adds the life cycle of the manifest to the flags.
    ///
    /// # Errors
    /// [`RunError::Argument`]: what this sandbox cannot do.
    pub(in crate::run) fn resolve_lifecycle(
        &self,
        manifest: &Manifest,
        group: &RunCgroup,
    ) -> Result<(), RunError> {
        let (flags, block) = (self.idle_times.get(), manifest.sandbox.as_ref());
        let times = IdleTimes::resolve(flags, block, group.can_pause());
        let refused = |error: LifecycleError| RunError::Argument {
            code: "sandbox_lifecycle",
            what: "sandbox",
            object: self
                .name
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            problem: error.to_string(),
            hint: None,
        };
        self.idle_times.set(times.map_err(refused)?);
        Ok(())
    }

    /// Says when it ends, and what the configuration allows later.
    pub(in crate::run) fn limit_life(&self, end: Option<Duration>, maximum: &Maximum<Duration>) {
        let place = maximum.stated_at.clone();
        let maximum = place.map(|place| (maximum.value, place));
        *self.lifetime.borrow_mut() = Lifetime { end, maximum };
    }

    /// Takes the times out of the manifest: they are limits of each command.
    ///
    /// # Errors
    /// [`RunError::Argument`]: no cgroup counts the CPU time of a command.
    pub(in crate::run) fn take_times(
        &self,
        manifest: &mut Manifest,
        group: &RunCgroup,
    ) -> Result<(), RunError> {
        let is_time = |limit| matches!(limit, Limit::WallTime | Limit::CpuTime);
        let lowest = |limit| {
            let stated = manifest.limits.iter();
            let stated = stated.filter(|stated| stated.limit == limit);
            stated.min_by_key(|stated| stated.value).cloned()
        };
        let (timeout, cpu_time) = (lowest(Limit::WallTime), lowest(Limit::CpuTime));
        manifest.limits.retain(|stated| !is_time(stated.limit));
        if let Some(stated) = &cpu_time
            && !group.can_limit(&CommandLimits {
                cpu_time_ms: Some(stated.value),
                ..CommandLimits::default()
            })
        {
            return Err(RunError::Argument {
                code: "limit_unenforceable",
                what: "the limit",
                object: stated.source.clone(),
                problem: "cannot be enforced: no cgroup counts the CPU time of a command"
                    .to_owned(),
                hint: Some(
                    "remove it, or see `runner doctor`; --cpu-time limits all commands together"
                        .to_owned(),
                ),
            });
        }
        self.defaults.set(CommandDefaults {
            timeout_ms: timeout.map(|stated| stated.value),
            cpu_time_ms: cpu_time.map(|stated| stated.value),
        });
        Ok(())
    }

    /// Makes the control socket, which refuses clients until the commands are served.
    ///
    /// # Errors
    /// [`RunError::Argument`]: the name is taken, or there are as many sandboxes as may be;
    /// [`RunError::Resources`].
    pub(in crate::run) fn claim_name(
        &self,
        record: &mut RunRecord,
        run_id: &str,
        start_unix_s: i64,
        most: Option<usize>,
    ) -> Result<(), RunError> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => SandboxName::parse(run_id)
                .map_err(|_id| RunError::host("name the sandbox")(rustix::io::Errno::INVAL))?,
        };
        let socket = record.bind_socket(&name, most).map_err(refused)?;
        *self.named.borrow_mut() = Some(Named {
            state: SandboxState {
                name,
                run_id: run_id.to_owned(),
                start_unix_s,
                is_paused: false,
                labels: self.labels.clone(),
                run_time_ms: 0,
                ends_in_ms: None,
                idle_timeout_ms: None,
                commands: Vec::new(),
                ended: EndedCommands::default(),
            },
            socket: Some(socket),
        });
        Ok(())
    }

    /// Keeps a directory that only the sandbox writes, for `diff` and `snapshot`.
    pub(in crate::run) fn keep(&self, directory: PrivateDirectory) {
        self.private.borrow_mut().push(directory);
    }

    /// Serves commands from now on: each gets `common` besides its words.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of listen(2).
    pub(in crate::run) fn serve(
        &self,
        common: CommandPlan,
        masks: StreamMasks,
    ) -> Result<(), RunError> {
        let mut named = self.named.borrow_mut();
        let parts = named
            .as_mut()
            .map(|named| (named.socket.take(), named.state.clone()));
        if let Some((Some(socket), state)) = parts {
            let plan = CommandsPlan {
                socket,
                common,
                defaults: self.defaults.get(),
                built_ins: BUILT_INS,
                private: self.private.take(),
                state,
                masks: output_masks(masks),
                lifetime: self.lifetime.take(),
                idle_times: self.idle_times.get(),
            };
            let commands = Commands::new(plan).map_err(RunError::host("listen for commands"))?;
            *self.commands.borrow_mut() = Some(commands);
        }
        Ok(())
    }

    pub(in crate::run) fn commands(&self) -> std::cell::RefMut<'_, Option<Commands>> {
        self.commands.borrow_mut()
    }

    /// Leaves the caller's directory, which could not be unmounted while the sandbox stays. No relative path
    /// is used after the launch.
    ///
    /// # Errors
    /// [`RunError::Host`] with the errno of chdir(2).
    pub(in crate::run) fn leave_directory(&self) -> Result<(), RunError> {
        rustix::process::chdir(c"/").map_err(RunError::host("leave the working directory"))
    }

    /// Tells the process that waits, which ends then.
    ///
    /// # Errors
    /// [`RunError::Host`]: it is gone.
    pub(in crate::run) fn announce(&self) -> Result<(), RunError> {
        let named = self.named.borrow();
        match (self.readiness.take(), &*named) {
            (Some(readiness), Some(named)) => readiness
                .announce(named.state.name.as_str().as_bytes())
                .map_err(RunError::host(
                    "tell the caller that the sandbox has started",
                )),
            _ => Ok(()),
        }
    }

    /// Removes the control socket.
    pub(in crate::run) fn give_up_name(&self, record: &mut RunRecord) -> Option<WarningReport> {
        let named = self.named.borrow();
        let removed = record.remove_socket(&named.as_ref()?.state.name);
        let error = removed.err()?;
        Some(WarningReport::new("cleanup_failed", with_causes(&error)))
    }
}

/// Masks the values of secrets in what is kept of the output of commands.
fn output_masks(masks: StreamMasks) -> OutputMasks {
    OutputMasks(Box::new(move || {
        let mut mask = masks.begin();
        Box::new(move |piece, is_last| {
            mask.pass(piece);
            if is_last {
                piece.extend(mask.finish());
            }
        })
    }))
}

fn refused(error: RecordsError) -> RunError {
    match error {
        RecordsError::NameTaken { name, run_id } => RunError::Argument {
            code: "sandbox_exists",
            what: "sandbox",
            object: name.to_string(),
            problem: format!("exists, as run {run_id}"),
            hint: Some(format!(
                "choose another --name, or remove it: runner sandbox rm -f {name}"
            )),
        },
        RecordsError::TooManySandboxes { count, most } => RunError::Argument {
            code: "too_many_sandboxes",
            what: "the limit",
            object: format!("--max-sandboxes {most}"),
            problem: format!(
                "is reached: {count} sandboxes of this user exist or are being created"
            ),
            hint: None,
        },
        error => ResourcesError::from(error).into(),
    }
}
