//! The command lines of `runner worker`, `runner submit` and `runner result`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use spec::digest::Digest;
use spec::units::{parse_cpus, parse_duration, parse_size_bytes};

use crate::messages::{RunId, StreamName};

const WORKER_HELP: &str = "\
On SIGTERM or SIGINT it takes no new messages and waits for its runs. A second signal kills them.
docs/workers.md describes the stream, its buckets and what happens when something fails.

Examples:
  runner worker --nats nats://queue.internal --stream builds
  runner worker --nats tls://queue.internal --nkey /etc/runner/worker.nk -- --timeout 10m --memory 1g

Exit codes: 0 after SIGTERM or SIGINT; 125 it could not start, or a second signal came.";

const SUBMIT_HELP: &str = "\
Prints the id of the run. The same id twice is one run.

Examples:
  runner submit --nats nats://queue.internal --stream builds tool.tar.gz --inputs '{\"n\": 1}'
  runner submit --id build-7 --in data=data.csv tool.tar.gz -- --fast";

const RESULT_HELP: &str = "\
Prints the report of `runner exec` for the run.

Examples:
  runner result --nats nats://queue.internal --stream builds --wait build-7
  runner result --out-dir outputs --logs build-7
  runner result --cancel --wait build-7

Exit codes: 0 the run succeeded; 1 it did not; 125 there is no result, or the server fails.";

/// The words after `runner`.
#[derive(Debug, clap::Parser)]
#[command(
    name = "runner",
    bin_name = "runner",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) enum Verb {
    /// Take runs from a stream of NATS JetStream, and keep their results
    #[command(after_help = WORKER_HELP)]
    Worker(WorkerFlags),
    /// Submit a run to workers
    #[command(after_help = SUBMIT_HELP)]
    Submit(SubmitFlags),
    /// Print the report of a run that was submitted
    #[command(after_help = RESULT_HELP)]
    Result(ResultFlags),
}

/// Where the stream is, and who asks.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineFlags {
    /// The server, nats://HOST:PORT or tls://HOST:PORT; of several with commas, one that answers
    #[arg(long, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    pub(crate) nats: String,
    /// The stream of the runs
    #[arg(long, value_name = "NAME", default_value = "runs", value_parser = StreamName::parse)]
    pub(crate) stream: StreamName,
    /// A file with the seed of an NKey, which nobody else may read
    #[arg(long, value_name = "FILE", conflicts_with = "creds")]
    pub(crate) nkey: Option<PathBuf>,
    /// A file with the credentials of a user (JWT and seed), which nobody else may read
    #[arg(long, value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,
    /// Certificates that the server's must be signed by, PEM [default: those of the host]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate of this client, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerFlags {
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    /// The most runs at once [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_runs: Option<u16>,
    /// The most memory that runs and sandboxes of this user may use together, by their limits
    #[arg(long, value_name = "SIZE", value_parser = read_size)]
    pub(crate) max_memory: Option<u64>,
    /// The most processors that they may use together; one without --cpus counts as all
    #[arg(long, value_name = "N", value_parser = parse_cpus)]
    pub(crate) max_cpus: Option<u64>,
    /// The largest bundle or input file that is fetched
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = read_size)]
    pub(crate) max_file: u64,
    /// Execute this bundle and no other; may be repeated [default: any]
    #[arg(long, value_name = "DIGEST", value_parser = read_digest)]
    pub(crate) bundle: Vec<Digest>,
    /// What is kept of bundles, so that they need not be fetched again
    #[arg(long, value_name = "SIZE", default_value = "4g", value_parser = read_size)]
    pub(crate) bundle_cache: u64,
    /// When the server gives a message to another worker, of which it has not heard
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = read_time)]
    pub(crate) ack_wait: Duration,
    /// How often a message is delivered; then its run has failed as `orphaned`
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_deliveries: u64,
    /// How long a result is kept for a server that does not answer
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = read_time)]
    pub(crate) give_up_after: Duration,
    /// How long results are kept in buckets that this worker makes
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = read_time)]
    pub(crate) keep: Duration,
    /// Serve metrics for Prometheus at this address of the loopback interface
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = read_loopback)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Flags of `runner exec` for each run. Requests cannot add any
    #[arg(value_name = "FLAGS", last = true)]
    pub(crate) exec: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SubmitFlags {
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    /// The id of the run [default: a new one]
    #[arg(long, value_name = "ID", value_parser = RunId::parse)]
    pub(crate) id: Option<RunId>,
    /// The structured input: JSON, or a file with it
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) inputs: Option<String>,
    /// An input file, which the body finds at /scratch/KEY
    #[arg(long = "in", value_name = "KEY=FILE", value_parser = read_file)]
    pub(crate) files: Vec<(String, PathBuf)>,
    /// The bundle, a file
    pub(crate) bundle: PathBuf,
    /// Appended to the arguments of the body
    #[arg(value_name = "ARGUMENTS", last = true)]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResultFlags {
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    /// Wait until there is a result
    #[arg(long)]
    pub(crate) wait: bool,
    /// Cancel the run first, queued or running
    #[arg(long)]
    pub(crate) cancel: bool,
    /// Write what the body wrote to standard output and standard error, in place of the report
    #[arg(long)]
    pub(crate) logs: bool,
    /// Write the output files into this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out_dir: Option<PathBuf>,
    /// The id of the run
    #[arg(value_name = "ID", value_parser = RunId::parse)]
    pub(crate) id: RunId,
}

fn read_size(text: &str) -> Result<u64, String> {
    parse_size_bytes(text).map_err(|error| error.to_string())
}

fn read_digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text)
        .ok_or_else(|| "expected sha256: and 64 lower-case hexadecimal digits".to_owned())
}

fn read_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match time < Duration::from_secs(1) {
        false => Ok(time),
        true => Err("expected at least 1s".to_owned()),
    }
}

fn read_loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_error| "expected ADDRESS:PORT, such as 127.0.0.1:9100".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("expected an address of the loopback interface".to_owned()),
    }
}

fn read_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((key, path)) if !key.is_empty() && !path.is_empty() => {
            Ok((key.to_owned(), PathBuf::from(path)))
        }
        _ => Err("expected KEY=FILE".to_owned()),
    }
}
