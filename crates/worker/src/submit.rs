//! `runner submit`: submits a run.

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use companion::complain;
use companion::flags::print;
use spec::path::escape;
use spec::ulid::ulid;

use crate::Failure;
use crate::engine::{Engine, EngineError, First};
use crate::flags::SubmitFlags;
use crate::messages::{MESSAGE_BYTES_MAX, RunId, RunRequest};

pub(crate) async fn submit(flags: SubmitFlags) -> Result<ExitCode, Failure> {
    let inputs = flags.inputs.as_deref().map(read_inputs).transpose()?;
    for path in flags
        .files
        .iter()
        .map(|(_key, path)| path)
        .chain([&flags.bundle])
    {
        check_file(path)?;
    }
    let engine = Engine::open(&flags.engine).await?;
    let id = flags.id.map_or_else(new_id, Ok)?;
    let mut request = RunRequest {
        bundle: engine.bundles.put(&flags.bundle).await?.0.0,
        inputs,
        input_files: std::collections::BTreeMap::new(),
        args: flags.args,
    };
    for (key, path) in flags.files {
        let (digest, _bytes) = engine.files.put(&path).await?;
        if request.input_files.insert(key.clone(), digest).is_some() {
            let message = format!("--in {key}: this key is there twice");
            return Err(Failure::refused("usage", message));
        }
    }
    request
        .check()
        .map_err(|message| Failure::refused("usage", message))?;
    let content = serde_json::to_vec(&request)
        .map_err(|error| Failure::failed("host_failed", error.to_string()))?;
    if content.len() > MESSAGE_BYTES_MAX {
        let message = format!(
            "the request has {} bytes, and a message at most {MESSAGE_BYTES_MAX}",
            content.len()
        );
        return Err(Failure::refused("request_too_large", message)
            .with_hint("pass large inputs as files: --in KEY=FILE"));
    }
    let failed = |error: EngineError| {
        let message = format!("{error}: whether the run {id} was submitted is not known");
        Failure::failed("nats_failed", message).with_hint(format!("with --id {id} it is one run"))
    };
    let is_new = !engine.has_result(&id).await?
        && engine.publish(&id, content).await.map_err(failed)? == First::Yes;
    if !is_new {
        complain(&format!("the run {id} was submitted before"), None);
    }
    Ok(print(&format!("{id}\n")))
}

fn check_file(path: &Path) -> Result<(), Failure> {
    let shown = escape(path.as_os_str().as_encoded_bytes());
    let refused = |problem: String| Failure::refused("file", format!("{shown}: {problem}"));
    let metadata = path
        .metadata()
        .map_err(|error| refused(error.to_string()))?;
    match metadata.is_file() {
        true => Ok(()),
        false => Err(refused("is not a file".to_owned()).with_hint(format!(
            "`runner bundle {shown}` makes a bundle of a directory"
        ))),
    }
}

/// As `runner exec` reads --inputs.
fn read_inputs(text: &str) -> Result<serde_json::Value, Failure> {
    let (text, from) = match text.strip_prefix('@') {
        None => (text.to_owned(), "--inputs".to_owned()),
        Some(path) => {
            let read = std::fs::read_to_string(path);
            let failed = |error| Failure::refused("inputs", format!("--inputs @{path}: {error}"));
            (read.map_err(failed)?, format!("--inputs @{path}"))
        }
    };
    serde_json::from_str(&text)
        .map_err(|error| Failure::refused("inputs", format!("{from}: expected JSON: {error}")))
}

fn new_id() -> Result<RunId, Failure> {
    let failed = |message: String| Failure::failed("host_failed", message);
    let mut random = [0; 10];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| failed(format!("no random numbers: {errno}")))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    RunId::parse(&ulid(now_ms, random)).map_err(failed)
}
