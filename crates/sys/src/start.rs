//! What C's `main` is given.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;

/// The words of the command line, from the arguments of C's `main`.
///
/// [`std::env::args_os`] has them too where the C library is glibc, which hands them to
/// initialisers; with musl only Rust's own `main` tells std.
///
/// # Safety
/// `words` must point to `count` strings that end in a NUL byte and are not changed meanwhile.
#[must_use]
pub unsafe fn words(count: c_int, words: *const *const c_char) -> Vec<OsString> {
    let count = usize::try_from(count).unwrap_or(0);
    let mut read = Vec::with_capacity(count);
    for place in 0..count {
        // SAFETY: the caller vouches for `count` pointers.
        let word = unsafe { words.wrapping_add(place).read() };
        // SAFETY: the caller vouches for what they point to.
        let word = unsafe { CStr::from_ptr(word) };
        read.push(OsStr::from_bytes(word.to_bytes()).to_owned());
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_bytes_and_there_may_be_none() {
        let given = [c"runner", c"", c"\xff\xfe"].map(CStr::as_ptr);
        // SAFETY: three strings that end in a NUL byte.
        let read = unsafe { words(3, given.as_ptr()) };
        assert_eq!(
            read,
            ["runner".as_bytes(), b"", b"\xff\xfe"].map(OsStr::from_bytes)
        );
        // SAFETY: no string is read.
        let none = unsafe { words(0, std::ptr::null()) };
        assert!(none.is_empty());
    }
}
