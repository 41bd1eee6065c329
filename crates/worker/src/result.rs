//! `runner result`: the report of a run, its logs and its output files.

use std::io::Write as _;
use std::path::{Component, Path};
use std::process::ExitCode;

use companion::run_state::State;
use companion::{FAILED, complain};

use crate::Failure;
use crate::engine::Engine;
use crate::flags::ResultFlags;
use crate::messages::{ObjectDigest, RunResult};
use crate::objects::FetchError;

const NOT_SUCCEEDED: u8 = 1;

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        Self::failed("fetch_failed", error.to_string())
    }
}

pub(crate) async fn show(flags: ResultFlags) -> Result<ExitCode, Failure> {
    let engine = Engine::open(&flags.engine).await?;
    let id = &flags.id;
    if flags.cancel && engine.result(id).await?.is_none() {
        engine.cancel(id).await?;
    }
    let result = match flags.wait {
        true => Some(engine.wait_for_result(id).await?),
        false => engine.result(id).await?,
    };
    let result = result.ok_or_else(|| {
        Failure::refused("no_result", format!("the run {id} has no result"))
            .with_hint("--wait waits for it; whether such a run was submitted is not known")
    })?;
    if let Some(directory) = &flags.out_dir {
        fetch_outputs(&engine, &result, directory).await?;
    }
    let written = match flags.logs {
        true => {
            let stdout = fetch(&engine, result.stdout).await?;
            let stderr = fetch(&engine, result.stderr).await?;
            std::io::stdout()
                .write_all(&stdout)
                .and_then(|()| std::io::stderr().write_all(&stderr))
        }
        false => std::io::stdout().write_all(&fetch(&engine, result.report).await?),
    };
    if written.is_err() {
        return Ok(ExitCode::from(FAILED));
    }
    Ok(tell(&result))
}

/// Says why the run did not succeed.
fn tell(result: &RunResult) -> ExitCode {
    let what = match result.state {
        State::Succeeded => return ExitCode::SUCCESS,
        State::Cancelled => "was cancelled",
        State::Failed | State::Pending | State::Running | State::Suspended => "failed",
    };
    if let Some(error) = &result.error {
        let code = serde_json::to_value(error.code).unwrap_or_default();
        let code = code.as_str().unwrap_or_default();
        let message = format!("the run {} {what}: {} ({code})", result.id, error.message);
        complain(&message, error.hint.as_deref());
    }
    ExitCode::from(NOT_SUCCEEDED)
}

async fn fetch(engine: &Engine, digest: Option<ObjectDigest>) -> Result<Vec<u8>, Failure> {
    let Some(digest) = digest else {
        return Ok(Vec::new());
    };
    let failed = |error: std::io::Error| Failure::failed("host_failed", error.to_string());
    let directory = tempfile::tempdir().map_err(failed)?;
    let path = directory.path().join("object");
    engine.files.fetch(digest.0, &path, u64::MAX).await?;
    std::fs::read(path).map_err(failed)
}

/// Writes the output files below `directory`, in place of those of the same names.
async fn fetch_outputs(
    engine: &Engine,
    result: &RunResult,
    directory: &Path,
) -> Result<(), Failure> {
    let failed = |path: &Path, error: &std::io::Error| {
        Failure::failed("host_failed", format!("{}: {error}", path.display()))
    };
    for artifact in &result.artifacts {
        let relative = Path::new(&artifact.path);
        // The bucket may have been written by others than workers.
        let is_below = |part| matches!(part, Component::Normal(_));
        if !relative.components().all(is_below) {
            let message = format!("the output {} leaves the directory", artifact.path);
            return Err(Failure::refused("output_path", message));
        }
        let path = directory.join(relative);
        let above = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(above).map_err(|error| failed(above, &error))?;
        let temporary = tempfile::tempdir_in(above).map_err(|error| failed(above, &error))?;
        let fetched = temporary.path().join("object");
        engine
            .files
            .fetch(artifact.digest.0, &fetched, u64::MAX)
            .await?;
        std::fs::rename(&fetched, &path).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}
