//! Compiles the system call policies of confined processes to the seccomp programs of the target.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use filter::{
    Arch, ReaderFiles, compile, fetcher_policy, reader_policy, relay_policy, supervisor_policy,
};

fn main() -> Result<(), Box<dyn Error>> {
    // The policies are part of the crate `filter`: cargo runs this again after a change of them.
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("CARGO_CFG_TARGET_ARCH")?;
    let arch = Arch::ALL.into_iter().find(|arch| arch.name() == target);
    let arch = arch.ok_or("no system call policy for this architecture: see policies/README.md")?;
    let policies = [
        ("READER", reader_policy(arch, ReaderFiles::None)?),
        ("UNPACKER", reader_policy(arch, ReaderFiles::Tree)?),
        ("LAYER_UNPACKER", reader_policy(arch, ReaderFiles::Layer)?),
        ("FETCHER", fetcher_policy(arch)?),
        ("RELAY", relay_policy(arch, false)?),
        ("RESOLVER", relay_policy(arch, true)?),
        ("SUPERVISOR", supervisor_policy(arch)?),
    ];
    let programs = policies.map(|(name, policy)| {
        let program = compile(&policy);
        format!("static {name}: &[Instruction] = &{program:?};\n")
    });
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("programs.rs"),
        programs.concat(),
    )?;
    Ok(())
}
