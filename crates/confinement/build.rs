//! Compiles the system call policies of confined processes to the seccomp programs of the target.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use filter::{
    ReaderFiles, compile, fetcher_policy, program_statics, reader_policy, relay_policy,
    supervisor_policy,
};

fn main() -> Result<(), Box<dyn Error>> {
    // The policies are part of the crate `filter`: cargo runs this again after a change of them.
    println!("cargo::rerun-if-changed=build.rs");
    let programs = program_statics(
        &env::var("CARGO_CFG_TARGET_ARCH")?,
        &[
            ("READER", &|arch| {
                Ok(compile(&reader_policy(arch, ReaderFiles::None)?))
            }),
            ("UNPACKER", &|arch| {
                Ok(compile(&reader_policy(arch, ReaderFiles::Tree)?))
            }),
            ("LAYER_UNPACKER", &|arch| {
                Ok(compile(&reader_policy(arch, ReaderFiles::Layer)?))
            }),
            ("FETCHER", &|arch| Ok(compile(&fetcher_policy(arch)?))),
            ("RELAY", &|arch| Ok(compile(&relay_policy(arch, false)?))),
            ("RESOLVER", &|arch| Ok(compile(&relay_policy(arch, true)?))),
            ("SUPERVISOR", &|arch| {
                Ok(compile(&supervisor_policy(arch, false)?))
            }),
            ("TRACER", &|arch| {
                Ok(compile(&supervisor_policy(arch, true)?))
            }),
        ],
    )?;
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("programs.rs"),
        programs,
    )?;
    Ok(())
}
