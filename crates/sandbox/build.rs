//! Compiles the system call policies to the seccomp programs of the target.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use filter::{default_policy, program_statics, strict_policy};

fn main() -> Result<(), Box<dyn Error>> {
    // The policies are part of the crate `filter`: cargo runs this again after a change of them.
    println!("cargo::rerun-if-changed=build.rs");
    let programs = program_statics(
        &env::var("CARGO_CFG_TARGET_ARCH")?,
        &[("DEFAULT", &default_policy), ("STRICT", &strict_policy)],
    )?;
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("programs.rs"),
        programs,
    )?;
    Ok(())
}
