//! The command line of `runner serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use spec::units::{parse_cpus, parse_duration};

const HELP: &str = "\
Clients on the unix socket must have your uid and may do what you may. With --listen, clients on
loopback that have the token may create sandboxes of --templates, and use those sandboxes alone,
and run bundles with --run-templates.
docs/serve.md describes the calls; the server has its OpenAPI document at /openapi.json.

Examples:
  runner serve
  runner serve --listen 127.0.0.1:8080 --token-file token --templates templates.yaml
  runner serve --listen 127.0.0.1:8080 --token-file token --templates templates.yaml --mcp agent
  curl --unix-socket $XDG_RUNTIME_DIR/runner/api.sock http://runner/v1/sandboxes

Exit codes: 0 after SIGTERM or SIGINT; 125 it could not start.";

/// Serve an HTTP API for sandboxes that stay
#[derive(Debug, clap::Parser)]
#[command(
    name = "serve",
    bin_name = "runner serve",
    after_help = HELP,
    max_term_width = 100
)]
pub(super) struct Flags {
    /// The unix socket [default: api.sock in the runtime directory, or the one that systemd passes]
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// Listen on this address of the loopback interface, too
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file")]
    pub(super) listen: Option<SocketAddr>,
    /// A file with the token of clients of --listen, which nobody else may read
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(super) token_file: Option<PathBuf>,
    /// What clients of --listen speak: v1, or e2b, for the SDKs of E2B
    #[arg(
        long,
        value_name = "API",
        default_value = "v1",
        requires_if("e2b", "listen")
    )]
    pub(super) api: Api,
    /// A file of templates, YAML or JSON: names, and lists of flags of `runner sandbox create`
    #[arg(long, value_name = "FILE")]
    pub(super) templates: Option<PathBuf>,
    /// A file of templates of runs: names, and lists of flags of `runner exec`
    #[arg(long, value_name = "FILE")]
    pub(super) run_templates: Option<PathBuf>,
    /// The most runs at once
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) max_runs: usize,
    /// How many runs are kept for clients; of more, the oldest that ended are removed
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = read_count)]
    pub(super) keep_runs: usize,
    /// Offer MCP at /mcp; each session has a sandbox of this template
    #[arg(long, value_name = "TEMPLATE", requires = "templates")]
    pub(super) mcp: Option<String>,
    /// The most sandboxes of this user at which one more is created
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) max_sandboxes: usize,
    /// The most memory that the sandboxes and runs of this user may use together, by their limits
    #[arg(long, value_name = "SIZE", value_parser = read_size)]
    pub(super) max_memory: Option<u64>,
    /// The most processors that they may use together; one without --cpus counts as all
    #[arg(long, value_name = "N", value_parser = parse_cpus)]
    pub(super) max_cpus: Option<u64>,
    /// The --idle-timeout of sandboxes whose flags or template have none
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = read_time)]
    pub(super) idle_timeout: Duration,
    /// The most calls at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = read_count)]
    pub(super) max_calls: usize,
    /// The most bytes of a file that is read or written
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = read_size)]
    pub(super) max_file: u64,
    /// How long calls in progress may go on after SIGTERM or SIGINT
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = read_time)]
    pub(super) stop_timeout: Duration,
}

/// What clients of --listen speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    V1,
    E2b,
}

impl std::str::FromStr for Api {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "v1" => Ok(Self::V1),
            "e2b" => Ok(Self::E2b),
            _ => Err("expected `v1` or `e2b`"),
        }
    }
}

fn read_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        false => Ok(time),
        true => Err("0 would leave no time".to_owned()),
    }
}

fn read_size(text: &str) -> Result<u64, String> {
    spec::units::parse_size_bytes(text).map_err(|error| error.to_string())
}

/// As many as a semaphore can count.
fn read_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=100_000) => Ok(count),
        _ => Err("expected a number from 1 to 100000".to_owned()),
    }
}
