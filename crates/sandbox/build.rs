//! Compiles the system call policies to the seccomp programs of the target.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use filter::{Arch, compile, default_policy, strict_policy};

fn main() -> Result<(), Box<dyn Error>> {
    // The policies are part of the crate `filter`: cargo runs this again after a change of them.
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("CARGO_CFG_TARGET_ARCH")?;
    let arch = Arch::ALL.into_iter().find(|arch| arch.name() == target);
    let arch = arch.ok_or("no system call policy for this architecture: see policies/README.md")?;
    let programs = format!(
        "static DEFAULT: &[Instruction] = &{:?};\nstatic STRICT: &[Instruction] = &{:?};\n",
        compile(&default_policy(arch)?),
        compile(&strict_policy(arch)?),
    );
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("programs.rs"),
        programs,
    )?;
    Ok(())
}
