//! Archives: from hostile bytes to a tree under an open directory, and back.
#![forbid(unsafe_code)]
