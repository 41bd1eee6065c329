//! What a run tells of itself before its body starts: what it pulls, unpacks and installs. It tells,
//! and whoever started it shows.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sandbox::supervise::meter;
use sources::oci::listener::Progress;
use spec::network::PublishedPort;

/// How often an act is told of that has nothing to count.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Hears what a run does before its body starts. Never once the body may write.
///
/// It is told from inside of a connection too: hence `Send` and `Sync`.
pub trait ProgressListener: Debug + Send + Sync {
    fn update(&self, phase: &Phase<'_>);
}

/// What happens to one image, source or kind of package.
#[derive(Debug, Clone, Copy)]
pub enum Phase<'now> {
    /// Bytes go from one place to another, or somebody is waited for.
    Transfer {
        /// `image oci:DIR`, `source models`.
        what: &'now str,
        /// How far it is.
        progress: Progress<'now>,
    },
    /// A preparation run goes on.
    Preparing {
        /// `npm packages left-pad`.
        what: &'now str,
        elapsed: Duration,
    },
    /// A free port of the host was chosen.
    Published {
        /// The port that it is, and where it leads to.
        ports: PublishedPort,
    },
    /// It is over, well or not.
    Over {
        what: &'now str,
        /// `pulled`, `in the store`, `installed`; else `failed`.
        how: &'static str,
        elapsed: Duration,
    },
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoListener;

impl ProgressListener for NoListener {
    fn update(&self, _phase: &Phase<'_>) {}
}

/// One thing that is done before the body starts. Its end is told whatever becomes of it.
#[derive(Debug)]
pub(super) struct Act {
    listener: Arc<dyn ProgressListener>,
    what: String,
    begun: Instant,
    how: OnceLock<&'static str>,
}

impl Act {
    /// Nothing is told yet: what is in the store takes no time.
    pub(super) fn begin(listener: &Arc<dyn ProgressListener>, what: String) -> Self {
        Self {
            listener: Arc::clone(listener),
            what,
            begun: Instant::now(),
            how: OnceLock::new(),
        }
    }

    /// Bytes have come, or somebody is waited for.
    pub(super) fn transfer(&self, progress: &Progress<'_>) {
        self.listener.update(&Phase::Transfer {
            what: &self.what,
            progress: *progress,
        });
    }

    /// It succeeded; the first word counts.
    pub(super) fn succeeded(&self, how: &'static str) {
        self.how.get_or_init(|| how);
    }

    fn goes_on(&self) {
        self.listener.update(&Phase::Preparing {
            what: &self.what,
            elapsed: self.begun.elapsed(),
        });
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        self.listener.update(&Phase::Over {
            what: &self.what,
            how: self.how.get().copied().unwrap_or("failed"),
            elapsed: self.begun.elapsed(),
        });
    }
}

/// Tells that an act goes on, every second.
#[derive(Debug)]
pub(super) struct Ticker<'run> {
    act: &'run Act,
    next: Instant,
}

impl<'run> Ticker<'run> {
    /// The first time at once.
    pub(super) fn start(act: &'run Act) -> Self {
        act.goes_on();
        Self {
            act,
            next: Instant::now() + TOLD_EVERY,
        }
    }
}

impl meter::Ticker for Ticker<'_> {
    fn next(&self) -> Instant {
        self.next
    }

    fn turn(&mut self, now: Instant) {
        if self.next <= now {
            self.act.goes_on();
            self.next = now + TOLD_EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::supervise::meter::Ticker as _;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<String>>);

    impl ProgressListener for Kept {
        fn update(&self, phase: &Phase<'_>) {
            let text = match phase {
                Phase::Transfer { what, .. } => format!("{what} moves"),
                Phase::Preparing { what, .. } => format!("{what} goes on"),
                Phase::Over { what, how, .. } => format!("{what} {how}"),
                Phase::Published { ports } => format!("{ports}"),
            };
            self.0.lock().expect("not poisoned").push(text);
        }
    }

    #[test]
    fn the_end_of_an_act_is_told_whatever_becomes_of_it() {
        let kept = Arc::new(Kept::default());
        let listener: Arc<dyn ProgressListener> = Arc::<Kept>::clone(&kept);
        let act = Act::begin(&listener, "a".to_owned());
        act.transfer(&Progress::Done);
        drop(act);
        let act = Act::begin(&listener, "b".to_owned());
        let mut ticker = Ticker::start(&act);
        let next = ticker.next();
        ticker.turn(next - Duration::from_millis(1));
        ticker.turn(next);
        assert_eq!(ticker.next(), next + TOLD_EVERY);
        act.succeeded("installed");
        drop(act);
        let told = kept.0.lock().expect("not poisoned").clone();
        let expected = [
            "a moves",
            "a failed",
            "b goes on",
            "b goes on",
            "b installed",
        ];
        assert_eq!(told, expected);
    }
}
