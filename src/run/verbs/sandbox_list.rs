//! The states of sandboxes that stay, each asked of its supervisor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::run::verbs::sandboxes::{SandboxError, no_sandbox, open};
use sandbox::control::{ControlError, Refusal};
use sandbox::records::Sandboxes;
use spec::request::Caller;
use spec::sandboxes::{SandboxListing, SandboxName, SandboxState, UnresponsiveSandbox};

/// How long a supervisor may take to answer, on a loaded host, too.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// So many are asked side by side, each with two descriptors.
const ASKED_AT_ONCE: usize = 64;

type Answer = Result<SandboxState, ControlError>;

/// Lists all sandboxes by name, or if there are `names` those only, in this order.
///
/// # Errors
/// [`SandboxError`]: one of `names` does not exist or is ending, or a supervisor answers nonsense.
pub(crate) fn list(caller: &Caller, names: &[SandboxName]) -> Result<SandboxListing, SandboxError> {
    let sandboxes = open(caller)?;
    let all = sandboxes.all()?;
    let named = |name| all.iter().filter(move |(found, _)| found == name).cloned();
    let wanted = match names {
        [] => all.clone(),
        names => names.iter().flat_map(named).collect(),
    };
    let mut listing = SandboxListing {
        sandboxes: Vec::new(),
        unresponsive: Vec::new(),
    };
    for ((name, run_id), answer) in wanted.iter().zip(ask(&sandboxes, &wanted)) {
        match answer {
            Ok(state) => listing.sandboxes.push(state),
            Err(ControlError::Unresponsive) => listing.unresponsive.push(UnresponsiveSandbox {
                name: name.clone(),
                run_id: run_id.clone(),
            }),
            // The socket of a killed supervisor.
            Err(ControlError::NoSandbox) => (),
            Err(ControlError::Refused(Refusal::Ending)) if names.is_empty() => (),
            Err(error) => return Err(SandboxError::of_control(name, error)),
        }
    }
    let answered = listing.sandboxes.iter().map(|state| &state.name);
    let unresponsive = listing.unresponsive.iter().map(|sandbox| &sandbox.name);
    let listed: Vec<_> = answered.chain(unresponsive).collect();
    match names.iter().find(|name| !listed.contains(name)) {
        Some(missing) => Err(no_sandbox(&sandboxes, missing)),
        None => Ok(listing),
    }
}

/// Asks the supervisors of these sockets side by side.
fn ask(sandboxes: &Sandboxes, wanted: &[(SandboxName, String)]) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let ask_some = || {
        let mut answers = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, run_id)) = wanted.get(number) else {
                return answers;
            };
            answers.push((number, sandboxes.ask(name, run_id, ANSWER_TIME)));
        }
    };
    let mut answers = std::thread::scope(|scope| {
        let others = 1..wanted.len().min(ASKED_AT_ONCE);
        // Without a thread, the others ask more of them.
        let threads: Vec<_> = others
            .filter_map(|_| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, ask_some)
                    .ok()
            })
            .collect();
        let mut answers = ask_some();
        for thread in threads {
            match thread.join() {
                Ok(more) => answers.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        answers
    });
    answers.sort_unstable_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
