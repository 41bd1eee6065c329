//! `runner-server`: the program behind `runner serve` and `runner mcp`, which execute it.
//!
//! It is a program of its own, since it has threads and an asynchronous runtime, which a process that
//! clones a sandbox must not have. It has no rights of its own either: all that it does is to execute
//! `runner`, which lies beside it, as the same user.
#![forbid(unsafe_code)]

mod mcp;
mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

/// What `runner doctor` asks for: this program, and the clients of others that it is tested with.
fn version() -> String {
    let mut text = concat!("runner-server ", env!("CARGO_PKG_VERSION"), "\n").to_owned();
    for (registry, version) in serve::e2b::TESTED {
        text += &format!("e2b {version} of {registry}\n");
    }
    text
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.split_first() {
        Some((word, [])) if word == "--version" => companion::flags::print(&version()),
        Some((verb, words)) if verb == "mcp" => mcp::run(words),
        Some((verb, words)) if verb == "serve" => serve::run(words),
        _ => {
            let message = "refused: `runner-server` is no program for a command line (usage)";
            companion::complain(message, Some("`runner mcp` and `runner serve` execute it"));
            ExitCode::from(companion::FAILED)
        }
    }
}
