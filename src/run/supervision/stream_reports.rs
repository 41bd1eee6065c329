//! What the report and the history have of an output stream that has ended.

use sandbox::supervise::streams::{Kept, OutputPump};
use spec::history::RECORDED_BYTES_MAX;
use spec::report::StreamReport;

/// What the history keeps of a stream: its start, from the copy or from the captured bytes.
#[must_use]
pub(super) fn recorded_stream(stream: &StreamReport, kept: Option<&Kept>) -> StreamReport {
    let bytes = kept.map_or_else(|| stream.captured_bytes(), |kept| &kept.bytes);
    let start = &bytes[..bytes.len().min(RECORDED_BYTES_MAX)];
    let recorded_bytes = u64::try_from(start.len()).unwrap_or(u64::MAX);
    StreamReport {
        bytes: stream.bytes,
        dropped_bytes: stream.bytes.saturating_sub(recorded_bytes),
        captured: Some(start.to_vec()),
    }
}

/// The report of one stream, and the copy of its passed-through bytes.
#[must_use]
pub(super) fn finish_stream(pump: OutputPump) -> (StreamReport, Option<Kept>) {
    let finished = pump.finish();
    let report = StreamReport {
        bytes: finished.seen_bytes,
        dropped_bytes: finished.dropped_bytes,
        captured: finished.captured,
    };
    (report, finished.copy)
}
