//! Writes the manual pages into a directory: `scripts/man DIRECTORY`.
//!
//! An example, so that the program does not carry what is needed once, when it is packaged.

mod pages;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        return Err("usage: scripts/man DIRECTORY".into());
    };
    let directory = PathBuf::from(directory);
    std::fs::create_dir_all(&directory)?;
    for (name, page) in pages::render(runner::cli::args::command())? {
        std::fs::write(directory.join(name), page)?;
    }
    Ok(())
}
