//! The command line: the only room that touches standard output, the environment and exit codes.
#![forbid(unsafe_code)]
