//! Two runs at a time: a run mostly waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::tracer::Point;

const CREW: usize = 2;

/// The result of `act` for each of `list`, in order; the message of its panic if it panics.
pub fn each<T: Sync, R: Send>(list: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<Result<R, String>> {
    let next = AtomicUsize::new(0);
    let said = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CREW {
            scope.spawn(|| {
                while let Some((number, one)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    list.get(number).map(|one| (number, one))
                } {
                    let result = catch_unwind(AssertUnwindSafe(|| act(one)));
                    let result = result.map_err(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text = text.or_else(|| {
                            panic.downcast_ref::<&str>().map(|text| (*text).to_owned())
                        });
                        text.unwrap_or_else(|| "a panic without words".to_owned())
                    });
                    said.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((number, result));
                }
            });
        }
    });
    let mut said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
    said.sort_by_key(|(number, _)| *number);
    said.into_iter().map(|(_, result)| result).collect()
}

/// One of each kind of call: the first of each process with that name.
pub fn sample(points: &[Point]) -> Vec<&Point> {
    let mut sample: Vec<&Point> = Vec::new();
    for point in points {
        if !sample
            .iter()
            .any(|known| (known.role, known.call) == (point.role, point.call))
        {
            sample.push(point);
        }
    }
    sample
}
