//! The `run` field: a string, an array, or an explicit object.
