//! Skips are printed and counted; under `RUNNER_TESTS_STRICT=1` a skip is a failure.

/// Prints that a case cannot run here.
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
    assert!(
        std::env::var_os("RUNNER_TESTS_STRICT").is_none_or(|strict| strict != "1"),
        "a skip is an error under RUNNER_TESTS_STRICT=1: {why}"
    );
}

/// Prints that a case needs root. Not a skip if the same test command has run it as root before.
pub fn needs_root(why: &str) {
    if std::env::var_os("RUNNER_TESTS_HALF").is_some_and(|half| half == "user") {
        println!("was run as root: {why}");
    } else {
        skip(why);
    }
}

/// Whether the tier of this test run includes `tier` (`long` or `soak`).
pub fn tier_includes(tier: &str) -> bool {
    let asked = std::env::var("RUNNER_TESTS_TIER").unwrap_or_default();
    asked == tier || (asked == "soak" && tier == "long")
}

/// Prints that a case belongs to a higher tier, which is not a skip; `true` if the case runs.
pub fn belongs_to_tier(tier: &str) -> bool {
    if !tier_includes(tier) {
        println!("belongs to tier {tier}: scripts/test --{tier}");
    }
    tier_includes(tier)
}
