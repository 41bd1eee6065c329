//! Runs the demonstration: the built-in bundle, once for each scene, in this process.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::plan::demonstration::{ATTEMPTS, MANIFEST, Scene};
use crate::run::error::RunError;
use crate::run::{execute, host};
use crate::spec::demonstration::Demonstration;
use crate::spec::host_policy::HostPolicy;
use crate::spec::outcome::Outcome;
use crate::spec::report::EnforcementState;
use crate::spec::request::Caller;

/// Runs every scene; stops at the first that is refused, that fails, or that a signal to this
/// process ends.
///
/// The calling process must have one thread only, as for [`execute`].
///
/// # Errors
/// [`RunError::Host`] where the bundle's directory cannot be written or removed.
pub fn demonstrate(caller: &Caller, policy: &HostPolicy) -> Result<Demonstration, RunError> {
    let mut name = String::from("runner-demo-");
    for byte in host::random_bytes()? {
        name.push_str(&format!("{byte:02x}"));
    }
    let directory = std::env::temp_dir().join(name);
    let written = write_bundle(&directory);
    let demonstration = match &written {
        Ok(()) => scenes(&directory, caller, policy),
        Err(_) => Demonstration::default(),
    };
    let removed = std::fs::remove_dir_all(&directory);
    written.map_err(in_directory("write", &directory))?;
    removed.map_err(in_directory("remove", &directory))?;
    Ok(demonstration)
}

fn scenes(directory: &Path, caller: &Caller, policy: &HostPolicy) -> Demonstration {
    let mut demonstration = Demonstration::default();
    for scene in Scene::ALL {
        let report = execute(&scene.request(directory.to_path_buf(), caller), policy);
        demonstration.runs += 1;
        if report.outcome == Outcome::Cancelled {
            demonstration.cancelled_by = report.cancelled_by;
            break;
        }
        if report.error.is_some() {
            demonstration.error = report.error;
            break;
        }
        demonstration
            .rows
            .extend(scene.rows(&report, survivors(&report.run_id)));
        for axis in report.enforcement {
            let known = |known: &crate::spec::report::Enforcement| known.axis == axis.axis;
            if axis.state != EnforcementState::Enforced
                && !demonstration.weaknesses.iter().any(known)
            {
                demonstration.weaknesses.push(axis);
            }
        }
    }
    demonstration
}

/// How many processes of the host carry the run's id in their environment.
fn survivors(run_id: &str) -> usize {
    let wanted = format!("RUNNER_RUN_ID={run_id}");
    let carries = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("environ")).is_ok_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        })
    };
    std::fs::read_dir("/proc").map_or(0, |entries| {
        entries.flatten().filter(|entry| carries(entry)).count()
    })
}

fn write_bundle(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    std::fs::write(directory.join("manifest.yaml"), MANIFEST)?;
    std::fs::write(directory.join("attempts.sh"), ATTEMPTS)
}

fn in_directory(act: &str, directory: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    let act = format!("{act} {}", directory.display());
    move |error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        RunError::host(act)(errno)
    }
}
