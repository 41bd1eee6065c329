//! cgroupfs: one function per interface file, version 1 and 2.
