//! Signals that stop a program, and what systemd is told.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use crate::complain;

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// A message: the process cannot listen for signals.
pub async fn wait_for_stop() -> Result<(), String> {
    let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
    let (mut term, mut int) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    tokio::select! {
        _some = term.recv() => (),
        _some = int.recv() => (),
    }
    Ok(())
}

/// Tells systemd, if it started this program; the service manager finds out itself if it is not told.
pub fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        complain(&format!("warning: systemd was not notified: {error}"), None);
    }
}

/// Tells systemd at half of its WatchdogSec= that this program still answers. Needs a runtime of tokio.
pub fn watch_dog() {
    let period = sd_notify::watchdog_enabled().map(|period| period / 2);
    let (Some(period), Some(socket)) = (period, std::env::var_os("NOTIFY_SOCKET")) else {
        return;
    };
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(period.max(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            if let Err(error) = ping(&socket) {
                complain(&format!("warning: systemd was not notified: {error}"), None);
            }
        }
    });
}

/// As `sd_notify::notify`, which blocks, and so the server, while the manager has not read what it was told before.
fn ping(socket: &OsStr) -> std::io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.connect(socket)?;
    match sender.send(NotifyState::Watchdog.to_string().as_bytes()) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => other.map(|_length| ()),
    }
}
