//! One run, from request to report: start reading here.
