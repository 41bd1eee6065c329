//! How values are written as bytes between two processes of the same version of this program.
//!
//! No format for anybody else: no versions, no names, numbers as this machine has them. Each type
//! is taken apart by a pattern that names all its fields, so a new field that is not written does
//! not compile.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;

use crate::spec::secret::Secret;

/// Bytes that no process of this version wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bytes that this version does not write, at {what}")]
pub(super) struct Garbled {
    /// What was to be read.
    pub(super) what: &'static str,
}

/// Takes bytes, or counts them.
pub(super) type Out<'out> = &'out mut dyn FnMut(&[u8]);

/// A value that goes from one process to the other.
pub(super) trait Wire: Sized {
    /// Writes it.
    fn put(&self, out: Out<'_>);
    /// Reads it from the start of `from`, which is shortened by it.
    fn take(from: &mut &[u8]) -> Result<Self, Garbled>;
}

/// The bytes of a value, behind their length. They are laid down once and never moved, so that
/// [`Secret`] overwrites all there is of them.
pub(super) fn framed<T: Wire>(value: &T) -> Secret {
    let mut length = 0;
    value.put(&mut |bytes| length += bytes.len());
    let mut all = Vec::with_capacity(size_of::<u64>() + length);
    all.extend_from_slice(&u64::try_from(length).unwrap_or(u64::MAX).to_ne_bytes());
    value.put(&mut |bytes| all.extend_from_slice(bytes));
    Secret::new(all)
}

/// The value, and nothing behind it.
pub(super) fn unframed<T: Wire>(mut bytes: &[u8]) -> Result<T, Garbled> {
    let value = T::take(&mut bytes)?;
    match bytes.is_empty() {
        true => Ok(value),
        false => Err(Garbled { what: "the end" }),
    }
}

fn part<'from>(
    from: &mut &'from [u8],
    length: usize,
    what: &'static str,
) -> Result<&'from [u8], Garbled> {
    let (head, rest) = from.split_at_checked(length).ok_or(Garbled { what })?;
    *from = rest;
    Ok(head)
}

fn slice<'from>(from: &mut &'from [u8], what: &'static str) -> Result<&'from [u8], Garbled> {
    let length = u64::take(from)?;
    part(from, usize::try_from(length).unwrap_or(usize::MAX), what)
}

fn put_slice(bytes: &[u8], out: Out<'_>) {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX).put(out);
    out(bytes);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: Out<'_>) {
                out(&self.to_ne_bytes());
            }
            fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
                let what = stringify!($number);
                let bytes = part(from, size_of::<Self>(), what)?;
                let bytes = bytes.try_into().map_err(|_length| Garbled { what })?;
                Ok(Self::from_ne_bytes(bytes))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32, f64);

impl Wire for bool {
    fn put(&self, out: Out<'_>) {
        u8::from(*self).put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbled { what: "bool" }),
        }
    }
}

impl Wire for Vec<u8> {
    fn put(&self, out: Out<'_>) {
        put_slice(self, out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        slice(from, "bytes").map(<[u8]>::to_vec)
    }
}

impl Wire for Secret {
    fn put(&self, out: Out<'_>) {
        put_slice(self.bytes(), out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        Vec::take(from).map(Self::new)
    }
}

impl Wire for String {
    fn put(&self, out: Out<'_>) {
        put_slice(self.as_bytes(), out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let what = "text";
        Self::from_utf8(slice(from, what)?.to_vec()).map_err(|_bytes| Garbled { what })
    }
}

impl Wire for PathBuf {
    fn put(&self, out: Out<'_>) {
        put_slice(self.as_os_str().as_bytes(), out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let bytes = slice(from, "a path")?.to_vec();
        Ok(std::ffi::OsString::from_vec(bytes).into())
    }
}

impl Wire for Duration {
    fn put(&self, out: Out<'_>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let (seconds, nanoseconds) = (u64::take(from)?, u32::take(from)?);
        match nanoseconds < 1_000_000_000 {
            true => Ok(Self::new(seconds, nanoseconds)),
            false => Err(Garbled { what: "a duration" }),
        }
    }
}

impl Wire for IpAddr {
    fn put(&self, out: Out<'_>) {
        match self {
            Self::V4(address) => put_slice(&address.octets(), out),
            Self::V6(address) => put_slice(&address.octets(), out),
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let bytes = slice(from, "an address")?;
        let v4 = <[u8; 4]>::try_from(bytes).map(Self::from);
        let v6 = || <[u8; 16]>::try_from(bytes).map(Self::from);
        v4.or_else(|_longer| v6())
            .map_err(|_length| Garbled { what: "an address" })
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: Out<'_>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: Out<'_>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        match bool::take(from)? {
            true => T::take(from).map(Ok),
            false => E::take(from).map(Err),
        }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: Out<'_>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// Lists of everything but bytes, which are written in one piece.
pub(super) trait Item: Wire {}
impl Item for String {}
impl Item for Vec<u8> {}
impl Item for PathBuf {}
impl<A: Wire, B: Wire> Item for (A, B) {}

impl<T: Item> Wire for Vec<T> {
    fn put(&self, out: Out<'_>) {
        u64::try_from(self.len()).unwrap_or(u64::MAX).put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let count = u64::take(from)?;
        // No capacity ahead: each item takes a byte at least, and what is not there ends this.
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn put(&self, out: Out<'_>) {
        u64::try_from(self.len()).unwrap_or(u64::MAX).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Garbled> {
        let count = u64::take(from)?;
        (0..count)
            .map(|_| Ok((K::take(from)?, V::take(from)?)))
            .collect()
    }
}

/// Writes a structure field by field.
macro_rules! wire_struct {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::resident::wire::Wire for $type {
            fn put(&self, out: $crate::resident::wire::Out<'_>) {
                let Self { $($field),* } = self;
                $($crate::resident::wire::Wire::put($field, out);)*
            }
            fn take(from: &mut &[u8]) -> Result<Self, $crate::resident::wire::Garbled> {
                Ok(Self { $($field: $crate::resident::wire::Wire::take(from)?),* })
            }
        }
        impl $crate::resident::wire::Item for $type {}
    };
}
pub(super) use wire_struct;

/// Writes an enum: a number for the variant, then its fields.
macro_rules! wire_enum {
    ($type:ty { $($number:literal => $variant:ident $({ $($field:ident),* })? $(( $($inner:ident),* ))?),* $(,)? }) => {
        impl $crate::resident::wire::Wire for $type {
            fn put(&self, out: $crate::resident::wire::Out<'_>) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(( $($inner),* ))? => {
                        $crate::resident::wire::Wire::put(&{ let number: u8 = $number; number }, out);
                        $($($crate::resident::wire::Wire::put($field, out);)*)?
                        $($($crate::resident::wire::Wire::put($inner, out);)*)?
                    })*
                }
            }
            fn take(from: &mut &[u8]) -> Result<Self, $crate::resident::wire::Garbled> {
                match <u8 as $crate::resident::wire::Wire>::take(from)? {
                    $($number => {
                        $($(let $field = $crate::resident::wire::Wire::take(from)?;)*)?
                        $($(let $inner = $crate::resident::wire::Wire::take(from)?;)*)?
                        Ok(Self::$variant $({ $($field),* })? $(( $($inner),* ))?)
                    })*
                    _ => Err($crate::resident::wire::Garbled { what: stringify!($type) }),
                }
            }
        }
        impl $crate::resident::wire::Item for $type {}
    };
}
pub(super) use wire_enum;

#[cfg(test)]
mod tests {
    use super::*;

    fn again<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let bytes = framed(value);
        let (length, rest) = bytes.bytes().split_at(8);
        let length = u64::from_ne_bytes(length.try_into().expect("eight"));
        assert_eq!(usize::try_from(length), Ok(rest.len()));
        assert_eq!(unframed::<T>(rest).as_ref(), Ok(value));
        for cut in 0..rest.len() {
            assert!(unframed::<T>(&rest[..cut]).is_err(), "{cut} of {value:?}");
        }
        let longer = [rest, &[0]].concat();
        assert!(unframed::<T>(&longer).is_err(), "{value:?}");
    }

    #[test]
    fn values_come_back_and_what_is_cut_or_longer_does_not() {
        again(&vec![(7_u16, "ü".to_owned()), (0, String::new())]);
        again(&(Some(vec![b"\xff".to_vec()]), None::<bool>));
        again(&Duration::new(u64::MAX, 999_999_999));
        again(&IpAddr::from([127, 0, 0, 1]));
        again(&IpAddr::from([1_u16; 8]));
        again(&PathBuf::from(std::ffi::OsString::from_vec(
            b"/a\xff".to_vec(),
        )));
        again(&Ok::<f64, String>(0.1));
        again(&BTreeMap::from([("a".to_owned(), -1_i32)]));
    }

    #[test]
    fn a_count_without_its_items_takes_no_memory() {
        assert!(unframed::<Vec<String>>(&u64::MAX.to_ne_bytes()).is_err());
    }
}
