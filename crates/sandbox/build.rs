//! Compiles the system call policies to the seccomp programs of the target.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use filter::{
    Arch, TRACED_CALLS, compile, compile_observed, compile_traced, default_policy, init_policy,
    program_statics, strict_policy,
};

fn main() -> Result<(), Box<dyn Error>> {
    // The policies are part of the crate `filter`: cargo runs this again after a change of them.
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("CARGO_CFG_TARGET_ARCH")?;
    let mut statics = program_statics(
        &target,
        &[
            ("DEFAULT", &|arch| Ok(compile(&default_policy(arch)?))),
            ("DEFAULT_OBSERVED", &|arch| {
                Ok(compile_observed(&default_policy(arch)?))
            }),
            ("DEFAULT_TRACED", &|arch| {
                Ok(compile_traced(&default_policy(arch)?))
            }),
            ("STRICT", &|arch| Ok(compile(&strict_policy(arch)?))),
            ("STRICT_OBSERVED", &|arch| {
                Ok(compile_observed(&strict_policy(arch)?))
            }),
            ("STRICT_TRACED", &|arch| {
                Ok(compile_traced(&strict_policy(arch)?))
            }),
            ("INIT", &|arch| {
                Ok(compile(&init_policy(arch, cfg!(feature = "planted-bugs"))?))
            }),
        ],
    )?;
    statics.push_str(&traced_numbers(&target)?);
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("programs.rs"),
        statics,
    )?;
    Ok(())
}

/// The numbers of the traced calls, ascending, with their index in [`TRACED_CALLS`].
fn traced_numbers(target: &str) -> Result<String, Box<dyn Error>> {
    let arch = Arch::ALL.into_iter().find(|arch| arch.name() == target);
    let policy = default_policy(arch.ok_or("an unknown architecture")?)?;
    let calls = TRACED_CALLS.iter().enumerate();
    let mut numbers: Vec<(u32, usize)> = calls
        .filter_map(|(index, call)| Some((policy.number_of(call.name)?, index)))
        .collect();
    numbers.sort_unstable();
    Ok(format!(
        "static TRACED_NUMBERS: &[(u32, usize)] = &{numbers:?};\n"
    ))
}
