//! seccomp(2): load a filter that was compiled before.
