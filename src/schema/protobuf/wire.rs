//! The pieces that messages and their envelopes are written with.

use super::MAGIC;

/// What stands behind the object in its envelope: no `contentEncoding` and no `contentType`, as Go writes these.
const ENVELOPE_END: &[u8] = &[0x1a, 0, 0x22, 0];

/// Begins a body with an object of that kind; its message is to follow, and then [`close_envelope`] with what this returns.
pub(crate) fn open_envelope(api_version: &str, kind: &str, out: &mut Vec<u8>) -> usize {
    envelope_head(api_version, kind, out);
    begin(2, out)
}

/// Ends a body that [`open_envelope`] began.
pub(crate) fn close_envelope(object: usize, out: &mut Vec<u8>) {
    end(object, out);
    out.extend_from_slice(ENVELOPE_END);
}

/// Begins a body whose object has a message of that length, and tells what is to follow it.
pub(crate) fn open_envelope_of_known_length(
    api_version: &str,
    kind: &str,
    len: u64,
    out: &mut Vec<u8>,
) -> &'static [u8] {
    envelope_head(api_version, kind, out);
    out.push(2 << 3 | BYTES);
    varint(len, out);
    ENVELOPE_END
}

fn envelope_head(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let meta = begin(1, out);
    text(1, api_version, out);
    text(2, kind, out);
    end(meta, out);
}

/// Wire types.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

fn tag(number: u8, wire: u8, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | u64::from(wire), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes a number takes.
fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Most bytes before an item of a list.
pub(crate) const ITEM_HEAD_LEN_MAX: usize = 11;

/// Appends what stands before an item, of that length, of a list.
pub(crate) fn item_head(len: usize, out: &mut Vec<u8>) {
    tag(2, BYTES, out);
    varint(len as u64, out);
}

/// How many bytes an item whose message is that long takes in a list.
pub(crate) fn item_len(len: usize) -> u64 {
    (1 + varint_len(len as u64) + len) as u64
}

/// Appends a field with a floating point number.
pub(crate) fn double(number: u8, value: f64, out: &mut Vec<u8>) {
    tag(number, FIXED64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with a text.
pub(crate) fn text(number: u8, text: &str, out: &mut Vec<u8>) {
    tag(number, BYTES, out);
    varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a field with a number.
pub(crate) fn integer(number: u8, value: i64, out: &mut Vec<u8>) {
    tag(number, VARINT, out);
    // Negative numbers are ten bytes long.
    varint(value as u64, out);
}

/// Begins a field with a message or with bytes; [`end`] with what this returns ends it.
pub(crate) fn begin(number: u8, out: &mut Vec<u8>) -> usize {
    tag(number, BYTES, out);
    out.push(0);
    out.len()
}

/// Ends what [`begin`] began.
pub(crate) fn end(start: usize, out: &mut Vec<u8>) {
    let len = out.len() - start;
    let more = varint_len(len as u64) - 1;
    if more > 0 {
        out.resize(out.len() + more, 0);
        out.copy_within(start..start + len, start + more);
    }
    let mut left = len;
    for byte in &mut out[start - 1..start + more] {
        *byte = left as u8 | 0x80;
        left >>= 7;
    }
    out[start + more - 1] &= 0x7f;
}
