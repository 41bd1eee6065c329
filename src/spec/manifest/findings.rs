//! All errors of one manifest: bounded, in the order of the text, without those that only follow.

use std::cmp::Ordering;

use crate::spec::document::Place;
use crate::spec::manifest::problem::did_you_mean;
use crate::spec::manifest::{ManifestError, Problem};

/// Most errors that are told one by one.
pub const ERRORS_MAX: usize = 100;

/// Where an error belongs in the text: the place in the manifest, whether it lies behind it in
/// another document, and the place there.
type Order = (Option<Place>, u8, Option<Place>);

/// What was found wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    errors: Vec<ManifestError>,
    /// Errors beyond [`ERRORS_MAX`].
    more: usize,
}

impl Findings {
    /// Whether further errors are only counted.
    pub(crate) const fn is_full(&self) -> bool {
        ERRORS_MAX <= self.errors.len()
    }

    pub(crate) fn add(&mut self, error: ManifestError) {
        if self.errors.contains(&error) {
            return;
        }
        if self.is_full() {
            self.more = self.more.saturating_add(1);
        } else {
            self.errors.push(error);
        }
    }

    /// The errors in the order of the text, and one more that counts the rest.
    pub(crate) fn sorted(
        self,
        file: &str,
        order: impl Fn(&ManifestError) -> Order,
    ) -> Vec<ManifestError> {
        let Self { errors, more } = self;
        let mut kept: Vec<(Order, ManifestError)> = errors
            .iter()
            .filter(|error| !errors.iter().any(|other| follows_from(error, other)))
            .map(|error| (order(error), error.clone()))
            .collect();
        kept.sort_by(|(one, _), (other, _)| compare(one, other));
        let mut sorted: Vec<ManifestError> = kept.into_iter().map(|(_, error)| error).collect();
        if 0 < more {
            sorted.push(ManifestError {
                file: file.to_owned(),
                place: None,
                pointer: None,
                problem: Box::new(Problem::More { more }),
            });
        }
        sorted
    }
}

/// What has no place comes last.
fn compare(one: &Order, other: &Order) -> Ordering {
    let last = |order: &Order| (order.0.is_none(), order.0, order.1, order.2);
    last(one).cmp(&last(other))
}

/// A key that is missing because it is misspelt is told once.
fn follows_from(error: &ManifestError, other: &ManifestError) -> bool {
    let (
        Problem::MissingKey { key },
        Problem::UnknownKey {
            near: Some(near), ..
        },
    ) = (&*error.problem, &*other.problem)
    else {
        return false;
    };
    let map = other
        .pointer
        .as_deref()
        .and_then(|pointer| pointer.rsplit_once('/'))
        .map(|(map, _)| map);
    error.file == other.file && map == error.pointer.as_deref() && *near == did_you_mean(key)
}
