//! Little-endian integers at offsets, without panics.

use crate::{FormatError, Reason};

/// The `N` bytes at `offset`, zeros where there are none. For places whose bounds were proven when the file was opened.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

pub(crate) fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(array_at(bytes, offset))
}

/// `len` bytes at `offset`, or the error that says how many are missing.
pub(crate) fn slice<'a>(
    bytes: &'a [u8],
    offset: usize,
    len: usize,
    part: &'static str,
) -> Result<&'a [u8], FormatError> {
    bytes.get(offset..).and_then(|rest| rest.get(..len)).ok_or_else(|| {
        let available = bytes.len().saturating_sub(offset) as u64;
        FormatError::new(
            offset,
            Reason::Truncated {
                part,
                needed: len as u64,
                available,
            },
        )
    })
}

/// The text at `offset`.
pub(crate) fn text<'a>(
    bytes: &'a [u8],
    offset: usize,
    len: usize,
    field: &'static str,
) -> Result<&'a str, FormatError> {
    std::str::from_utf8(slice(bytes, offset, len, field)?).map_err(|_| FormatError::new(offset, Reason::Utf8 { field }))
}

/// Adds zeros until the length is a multiple of `step` (a power of two).
pub(crate) fn pad(out: &mut Vec<u8>, step: usize) {
    out.resize(out.len().next_multiple_of(step), 0);
}
