//! Events of which equal ones are merged into one counted entry. Pure.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

/// Maximum number of distinct events; further ones are only counted.
pub const DISTINCT_MAX: usize = 1_000;

/// Equal events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrences {
    /// Time of the first one, in milliseconds since the start of the body.
    pub first_ms: u64,
    pub count: u64,
}

/// Merged events, ordered by first occurrence.
#[derive(Debug)]
pub struct Merged<Event> {
    distinct: Vec<(Event, Occurrences)>,
    /// Indexes of `distinct`.
    index: HashMap<Event, usize>,
    distinct_max: usize,
    /// Events beyond `distinct_max`.
    unlisted: u64,
}

/// At most [`DISTINCT_MAX`] distinct events.
impl<Event> Default for Merged<Event> {
    fn default() -> Self {
        Self::of_at_most(DISTINCT_MAX)
    }
}

impl<Event> Merged<Event> {
    /// None yet; at most `distinct_max` distinct ones.
    #[must_use]
    pub(crate) fn of_at_most(distinct_max: usize) -> Self {
        Self {
            distinct: Vec::new(),
            index: HashMap::new(),
            distinct_max,
            unlisted: 0,
        }
    }
}

impl<Event: Clone + Eq + Hash> Merged<Event> {
    /// Adds one event. Returns whether it is listed now and was not before.
    pub fn add(&mut self, event: Event, now_ms: u64) -> bool {
        if let Some(at) = self.index.get(&event) {
            self.distinct[*at].1.count += 1;
            return false;
        }
        if self.distinct.len() >= self.distinct_max {
            self.unlisted += 1;
            return false;
        }
        self.index.insert(event.clone(), self.distinct.len());
        let first = Occurrences {
            first_ms: now_ms,
            count: 1,
        };
        self.distinct.push((event, first));
        true
    }

    /// From now on, events that are not listed yet are only counted.
    pub(crate) fn close(&mut self) {
        self.distinct_max = self.distinct.len();
    }

    /// Restores what [`Merged::distinct`] and [`Merged::unlisted`] return. `None` if two events are
    /// equal or one did not occur.
    #[must_use]
    pub fn restore(distinct: Vec<(Event, Occurrences)>, unlisted: u64) -> Option<Self> {
        let events = distinct.iter().map(|(event, _)| event.clone());
        let index: HashMap<Event, usize> = events.zip(0..).collect();
        let did_occur = distinct.iter().all(|(_, equal)| equal.count > 0);
        (did_occur && index.len() == distinct.len()).then_some(Self {
            distinct,
            index,
            distinct_max: DISTINCT_MAX,
            unlisted,
        })
    }

    /// The distinct events, ordered by first occurrence.
    pub fn distinct(&self) -> impl Iterator<Item = &(Event, Occurrences)> {
        self.distinct.iter()
    }

    /// Number of events that are only counted.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_events_are_counted_with_the_time_of_the_first() {
        let mut events = Merged::default();
        for now_ms in 0..10_000 {
            events.add(1, 5 + now_ms);
        }
        events.add(2, 7);
        let distinct: Vec<(i32, u64, u64)> = events
            .distinct()
            .map(|(event, equal)| (*event, equal.first_ms, equal.count))
            .collect();
        assert_eq!(distinct, [(1, 5, 10_000), (2, 7, 1)]);
    }

    #[test]
    fn events_beyond_the_limit_are_only_counted() {
        let mut events = Merged::default();
        for port in 0..2_000 {
            events.add(port, 0);
        }
        events.add(0, 0);
        assert_eq!(events.distinct().count(), DISTINCT_MAX);
        assert_eq!(events.unlisted(), 1_000);
    }
}
