//! The seccomp filter: policy data compiled to a tree of BPF instructions.
