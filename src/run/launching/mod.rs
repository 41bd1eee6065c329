//! Launches the body. Consumes the resolved run with its mounts and secrets, returns the launch plan, or
//! the reason why the program could not be started.

pub(super) mod launch_plan;
pub(super) mod predicted_view;
mod secret_decisions;
pub(super) mod secret_values;
pub(super) mod seen;
pub(super) mod start_failure;
