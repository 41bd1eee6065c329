//! Runs the demonstration: the built-in bundle, once for each scene, in this process.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use crate::plan::demonstration::{ATTEMPTS, MANIFEST, Scene, Seen, network};
use crate::run::error::RunError;
use crate::run::{execute, random_bytes};
use spec::demonstration::Demonstration;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::report::EnforcementState;
use spec::request::Caller;

/// How long a connection that was closed long ago is read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs every scene; stops at the first that is refused, that fails, or that a signal to this
/// process ends.
///
/// The calling process must have one thread only, as for [`execute`].
///
/// # Errors
/// [`RunError::Host`] where the bundle's directory cannot be written or removed.
pub(crate) fn demonstrate(caller: &Caller, policy: &HostPolicy) -> Result<Demonstration, RunError> {
    let mut name = String::from("runner-demo-");
    for byte in random_bytes()? {
        name.push_str(&format!("{byte:02x}"));
    }
    let directory = std::env::temp_dir().join(name);
    let written = write_bundle(&directory);
    let demonstration = match &written {
        Ok(()) => listen().and_then(|listener| scenes(&directory, caller, policy, &listener)),
        Err(_) => Ok(Demonstration::default()),
    };
    let removed = std::fs::remove_dir_all(&directory);
    written.map_err(in_directory("write", &directory))?;
    removed.map_err(in_directory("remove", &directory))?;
    demonstration.map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        RunError::host("listen for the demonstration on 127.0.0.1")(errno)
    })
}

/// The host on the list of the scene of the network.
fn listen() -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn scenes(
    directory: &Path,
    caller: &Caller,
    policy: &HostPolicy,
    listener: &TcpListener,
) -> std::io::Result<Demonstration> {
    let mut demonstration = Demonstration::default();
    let port = listener.local_addr()?.port();
    for scene in Scene::ALL {
        let request = scene.request(directory.to_path_buf(), caller, port);
        let report = match scene {
            Scene::Network => execute(&request, &network::policy(policy)),
            _ => execute(&request, policy),
        };
        demonstration.runs += 1;
        if report.outcome == Outcome::Cancelled {
            demonstration.cancelled_by = report.cancelled_by;
            break;
        }
        if report.error.is_some() {
            demonstration.error = report.error;
            break;
        }
        let seen = Seen {
            survivors: survivors(&report.run_id),
            heard: match scene {
                Scene::Network => hear(listener)?,
                _ => Vec::new(),
            },
        };
        demonstration.rows.extend(scene.rows(&report, &seen));
        for axis in report.enforcement {
            let known = |known: &spec::report::Enforcement| known.axis == axis.axis;
            if axis.state != EnforcementState::Enforced
                && !demonstration.weaknesses.iter().any(known)
            {
                demonstration.weaknesses.push(axis);
            }
        }
    }
    Ok(demonstration)
}

/// What the run's one connection said: it waits where the kernel has taken it, and was closed when
/// the run ended.
fn hear(listener: &TcpListener) -> std::io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    match listener.accept() {
        Ok((connection, _)) => {
            connection.set_nonblocking(false)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            let bytes_max = u64::try_from(network::GREETING.len()).unwrap_or(u64::MAX);
            connection.take(bytes_max + 1).read_to_end(&mut heard)?;
            Ok(heard)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(heard),
        Err(error) => Err(error),
    }
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
