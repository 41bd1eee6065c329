//! What Prometheus is told of a worker.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use companion::complain;
use companion::prometheus::{family, gauge};
use companion::run_state::{RunReport, State};
use companion::run_totals::Totals;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::Failure;

const HEAD_TIME: Duration = Duration::from_secs(10);

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Its run has ended, and this worker kept the result.
    State(State),
    /// There was a result.
    Duplicate,
    /// Its subject has no id.
    Malformed,
    GivenBack,
}

impl Settled {
    const fn name(self) -> &'static str {
        match self {
            Self::State(State::Succeeded) => "succeeded",
            Self::State(State::Cancelled) => "cancelled",
            Self::State(State::Failed | State::Pending | State::Running | State::Suspended) => {
                "failed"
            }
            Self::Duplicate => "duplicate",
            Self::Malformed => "malformed",
            Self::GivenBack => "given_back",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    places: usize,
    running: AtomicUsize,
    failed_pulls: AtomicU64,
    settled: Mutex<BTreeMap<&'static str, u64>>,
    runs: Mutex<Totals>,
}

/// Counts a run until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningGuard<'metrics>(&'metrics AtomicUsize);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            running: AtomicUsize::new(0),
            failed_pulls: AtomicU64::new(0),
            settled: Mutex::default(),
            runs: Mutex::default(),
        }
    }

    pub(crate) fn running(&self) -> RunningGuard<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningGuard(&self.running)
    }

    pub(crate) fn settled(&self, settled: Settled) {
        let mut counts = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(settled.name()).or_default() += 1;
    }

    /// `None`: the run ended without a report.
    pub(crate) fn ended(&self, report: Option<&RunReport>) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.add(report);
    }

    pub(crate) fn failed_to_pull(&self) {
        self.failed_pulls.fetch_add(1, Ordering::Relaxed);
    }

    fn render(&self) -> String {
        let counts = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = counts.iter().map(|(name, count)| {
            format!("runner_worker_messages_total{{result=\"{name}\"}} {count}\n")
        });
        let rows: String = rows.collect();
        let failed = self.failed_pulls.load(Ordering::Relaxed);
        let running = self.running.load(Ordering::Relaxed);
        let (messages, pulls) = (
            "runner_worker_messages_total",
            "runner_worker_failed_pulls_total",
        );
        [
            family(messages, "counter", "Messages that were handled.", &rows),
            family(
                pulls,
                "counter",
                "Requests for a message that failed.",
                &format!("{pulls} {failed}\n"),
            ),
            gauge(
                "runner_worker_places",
                "Runs that there may be at once.",
                self.places,
            ),
            gauge("runner_worker_runs", "Runs in progress.", running),
            self.runs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .render(),
        ]
        .concat()
    }
}

/// Answers at this address from now on.
pub(crate) async fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::failed("worker_failed", format!("--metrics {address}: {error}"))
    })?;
    let address = listener.local_addr().unwrap_or(address);
    complain(&format!("metrics at http://{address}/metrics"), None);
    tokio::spawn(async move {
        loop {
            // An error is that of a client that has gone, or of descriptors that others use.
            let Ok((stream, _client)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let metrics = Arc::clone(&metrics);
            let service = service_fn(move |request| {
                let answer = answer(&request, &metrics);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    Ok(())
}

fn answer<Body>(request: &Request<Body>, metrics: &Metrics) -> Response<String> {
    if request.uri().path() != "/metrics" {
        let mut response = Response::new("only /metrics\n".to_owned());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let mut response = Response::new(metrics.render());
    let format = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}
