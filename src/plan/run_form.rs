//! Which program a `run` value becomes: file, exec or shell.
