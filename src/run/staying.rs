//! A sandbox that stays: its name, its control socket, and the process that waits for its start.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use crate::run::error::RunError;
use crate::run::sandbox_files::inside;
use sandbox::control::{BuiltIns, Commands};
use sandbox::launch::CommandPlan;
use sandbox::records::{RecordsError, RunRecord};
use sandbox::resources::ResourcesError;
use spec::report::{WarningReport, with_causes};
use spec::sandboxes::{SandboxName, SandboxState};
use sys::detach::Readiness;

/// What commands run that execute no program.
const BUILT_INS: BuiltIns = BuiltIns {
    send_files: inside::send,
    receive_files: inside::receive,
};

/// What `runner sandbox create` adds to a run.
#[derive(Debug)]
pub(crate) struct StayingSandbox {
    /// `None`: its run id.
    name: Option<SandboxName>,
    /// Whom to tell of the start.
    readiness: RefCell<Option<Readiness>>,
    named: RefCell<Option<Named>>,
    /// Held until the process ends: a client that asked for the end waits for that.
    commands: RefCell<Option<Commands>>,
}

#[derive(Debug)]
struct Named {
    state: SandboxState,
    socket: Option<OwnedFd>,
}

impl StayingSandbox {
    pub(crate) fn new(name: Option<SandboxName>, readiness: Option<Readiness>) -> Self {
        Self {
            name,
            readiness: RefCell::new(readiness),
            named: RefCell::new(None),
            commands: RefCell::new(None),
        }
    }

    /// Makes the control socket. Clients wait at it until the commands are served.
    ///
    /// # Errors
    /// [`RunError::Argument`]: the name is taken; [`RunError::Resources`].
    pub(in crate::run) fn claim_name(
        &self,
        record: &mut RunRecord,
        run_id: &str,
        start_unix_s: i64,
    ) -> Result<(), RunError> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => SandboxName::parse(run_id)
                .map_err(|_id| RunError::host("name the sandbox")(rustix::io::Errno::INVAL))?,
        };
        let socket = record.listen(&name).map_err(refused)?;
        *self.named.borrow_mut() = Some(Named {
            state: SandboxState {
                name,
                run_id: run_id.to_owned(),
                start_unix_s,
                is_paused: false,
                commands: Vec::new(),
            },
            socket: Some(socket),
        });
        Ok(())
    }

    /// Serves commands from now on: each gets `common` besides its words.
    pub(in crate::run) fn serve(&self, common: CommandPlan) {
        let mut named = self.named.borrow_mut();
        let parts = named
            .as_mut()
            .map(|named| (named.socket.take(), named.state.clone()));
        if let Some((Some(socket), state)) = parts {
            *self.commands.borrow_mut() = Some(Commands::new(socket, common, BUILT_INS, state));
        }
    }

    pub(in crate::run) fn commands(&self) -> std::cell::RefMut<'_, Option<Commands>> {
        self.commands.borrow_mut()
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
        error => ResourcesError::from(error).into(),
    }
}
