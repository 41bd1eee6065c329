//! Shows what the run uses while it goes on, in a line that shares a terminal with the body's output.

use std::fmt;
use std::time::{Duration, Instant};

use crate::cgroups::CurrentUsage;

/// Time between two lines.
const PERIOD: Duration = Duration::from_millis(500);

/// Gets what the run uses, or `None` if the line must be removed.
pub type ShowUsage = Box<dyn FnMut(Option<CurrentUsage>)>;

/// The live line of `--stats`. It is removed before the body's output, and drawn again only where this does
/// not end within a line.
pub struct Stats {
    show: ShowUsage,
    /// Whether standard output and standard error are the same terminal.
    shares: [bool; 2],
    next: Instant,
    is_shown: bool,
    is_within_line: bool,
}

impl fmt::Debug for Stats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Stats")
    }
}

impl Stats {
    /// `shares`: whether the body's standard output and standard error go to the terminal of the line.
    #[must_use]
    pub fn new(shares: [bool; 2], show: ShowUsage) -> Self {
        Self {
            show,
            shares,
            next: Instant::now() + PERIOD,
            is_shown: false,
            is_within_line: false,
        }
    }

    /// When the next line is due.
    pub(super) fn deadline(&self) -> Instant {
        self.next
    }

    /// Removes the line.
    pub(super) fn hide(&mut self) {
        if self.is_shown {
            (self.show)(None);
            self.is_shown = false;
        }
    }

    /// Removes the line before output of the streams that are ready.
    pub(super) fn before_output(&mut self, are_ready: [bool; 2]) {
        let mut streams = self.shares.into_iter().zip(are_ready);
        if streams.any(|(is_shared, is_ready)| is_shared && is_ready) {
            self.hide();
        }
    }

    /// Notes the last byte that each stream passed on.
    pub(super) fn after_output(&mut self, last: [Option<u8>; 2]) {
        for (is_shared, last) in self.shares.into_iter().zip(last) {
            if let Some(last) = last.filter(|_| is_shared) {
                self.is_within_line = last != b'\n';
            }
        }
    }

    /// Draws the line if it is due.
    pub(super) fn draw(&mut self, now: Instant, usage: impl FnOnce() -> CurrentUsage) {
        if now < self.next {
            return;
        }
        self.next = now + PERIOD;
        if !self.is_within_line {
            (self.show)(Some(usage()));
            self.is_shown = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn a_line_is_drawn_where_no_output_ends_within_a_line_and_removed_before_more() {
        let shown = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&shown);
        let shares = [true, false];
        let mut stats = Stats::new(
            shares,
            Box::new(move |usage| log.borrow_mut().push(usage.is_some())),
        );
        let start = Instant::now();
        let draw = |stats: &mut Stats, periods: u32| {
            stats.draw(start + (periods + 1) * PERIOD, CurrentUsage::default);
            std::mem::take(&mut *shown.borrow_mut())
        };
        stats.draw(start, CurrentUsage::default);
        assert_eq!(draw(&mut stats, 1), [true], "not before it is due");
        stats.before_output([false, true]);
        stats.after_output([None, Some(b'x')]);
        assert_eq!(draw(&mut stats, 2), [true], "the output goes elsewhere");
        stats.before_output([true, true]);
        stats.before_output([true, true]);
        stats.after_output([Some(b'x'), Some(b'\n')]);
        assert_eq!(
            draw(&mut stats, 3),
            [false],
            "removed once, the output ends within a line"
        );
        stats.after_output([Some(b'\n'), None]);
        assert_eq!(draw(&mut stats, 5), [true]);
    }
}
