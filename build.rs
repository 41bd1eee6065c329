//! How the program is linked: at fixed addresses, where it is static.
//!
//! A position-independent static program relocates itself at each start: 85 pages are written
//! before `main`, copied at the clone and again by whoever writes first. That is a tenth of a
//! launch. Stack, heap and mappings stay at random addresses.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| {
        std::env::var(variable).is_ok_and(|list| list.split(',').any(|word| word == value))
    };
    if is("CARGO_CFG_TARGET_FEATURE", "crt-static") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // `-no-pie` alone would cancel the `-static-pie` that rustc gives, and with it `-static`.
        println!("cargo::rustc-link-arg-bins=-no-pie");
        println!("cargo::rustc-link-arg-bins=-static");
    }
}
