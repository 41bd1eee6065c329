//! Every hostile archive of the corpus through the program itself.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::corpus::{Hostile, Verdict, all};
use support::{Done, Ground, skip};

/// The number of concurrent cases, each on its own ground.
const AT_ONCE: usize = 2;

/// A-01 … A-58: the rows about the contents of archives, end to end, with the ten invariants after each.
#[test]
#[expect(clippy::print_stdout, reason = "the count is what others publish")]
fn every_hostile_archive_is_refused_or_contained() {
    if Command::new("getfattr").arg("--version").output().is_err() {
        // The bodies look for extended attributes with it.
        return skip("no getfattr (package attr)");
    }
    let grounds: Vec<Ground> = (0..AT_ONCE).map(|_| Ground::new()).collect();
    let [refused, contained, escaped] = [const { AtomicUsize::new(0) }; 3];
    let mut count = 0;
    std::thread::scope(|scope| {
        for (turn, ground) in grounds.iter().enumerate() {
            let corpus = all(ground.path("canary").to_str().expect("UTF-8"));
            check_rows(&corpus);
            count = corpus.len();
            let (refused, contained, escaped) = (&refused, &contained, &escaped);
            scope.spawn(move || {
                for (number, hostile) in corpus.iter().enumerate() {
                    if number % AT_ONCE == turn {
                        // A failure is printed; the other archives are still tried.
                        let tried = catch_unwind(AssertUnwindSafe(|| run(ground, number, hostile)));
                        let count = match (tried, hostile.verdict) {
                            (Err(_panic), _) => escaped,
                            (Ok(()), Verdict::Refused(_)) => refused,
                            (Ok(()), Verdict::Contained) => contained,
                        };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [refused, contained, escaped] = [refused, contained, escaped].map(AtomicUsize::into_inner);
    println!(
        "archives: {count} hostile archives: {refused} refused, {contained} contained, {escaped} escaped"
    );
    assert_eq!((refused + contained, escaped), (count, 0));
}

/// Each row in the comment of the test above has an archive.
fn check_rows(corpus: &[Hostile]) {
    let tried: BTreeSet<&str> = corpus.iter().map(|hostile| hostile.row).collect();
    for number in 1..=58 {
        let row = format!("A-{number:02}");
        assert!(tried.contains(row.as_str()), "no archive for {row}");
    }
}

fn run(ground: &Ground, number: usize, hostile: &Hostile) {
    let what = format!("archive {number}, {}", hostile.row);
    let bundle = ground.write(&format!("{number}.tar.gz"), &hostile.archive);
    let policy = ground.write(
        &format!("{number}.yaml"),
        hostile.policy.unwrap_or_default(),
    );
    let flags = ["--policy", policy.to_str().expect("UTF-8")];
    let flags = if hostile.policy.is_some() {
        &flags[..]
    } else {
        &[]
    };
    let done = ground.exec(flags, &bundle);
    match hostile.verdict {
        Verdict::Refused(code) => assert_refused(&done, code, &what),
        Verdict::Contained => {
            let seen = (done.outcome(), done.code, done.text());
            assert_eq!(
                seen,
                ("exited", 0, "contained\n".to_owned()),
                "{what}: {done:#?}"
            );
        }
    }
    let obeyed = |sign: char| sign != '\n' && (sign.is_control() || sign == '\u{202e}');
    assert!(!done.stderr.contains(obeyed), "{what}: {:?}", done.stderr);
    assert!(done.stderr.len() < 16_384, "{what}: {}", done.stderr.len());
}

#[track_caller]
fn assert_refused(done: &Done, code: &str, what: &str) {
    let seen = (done.outcome(), done.code, done.error());
    assert_eq!(seen, ("refused", 125, code), "{what}: {done:#?}");
    assert!(done.report["exit"].is_null(), "{what}: {done:#?}");
    assert!(done.stdout.is_empty(), "{what}: {done:#?}");
    assert!(!done.stderr.is_empty(), "{what}");
}
