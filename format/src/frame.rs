//! Log records: one write each, self-contained, aligned to 16 bytes.
//!
//! A record is a header of [`HEADER_LEN`] bytes and a payload: resource name, key, JSON, sidecar, previous JSON, previous
//! sidecar, zeros up to the next multiple of 16. The header has a checksum of its own, so that no length is believed
//! unproven, and holds the payload's. Both are seeded with the store's id and the segment's number, the payload's also
//! with the checksum of the record before it: neither stale bytes nor a record of another life ever validate.

use std::ops::Range;

use crate::bytes::{array_at, slice, text, u16_at, u32_at, u64_at};
use crate::sidecar::{digit_count, digits};
use crate::{FormatError, Reason};

pub use crate::record::{Kind, NewRecord, Previous, Record, Spans};

/// First bytes of a record. The first of them occurs in no UTF-8 text, so neither does a record.
pub const MAGIC: [u8; 4] = *b"\xfffkR";
/// Version of the record format that is written.
pub const VERSION: u8 = 1;
/// Bytes of a record's header.
pub const HEADER_LEN: usize = 96;
/// Records begin at multiples of this many bytes.
pub const ALIGN: usize = 16;
/// The longest record, in bytes.
pub const RECORD_LEN_MAX: usize = 16 << 20;

const FLAG_PREVIOUS_MASK: u16 = 0b11;
const FLAG_PREVIOUS_INLINE: u16 = 1;
const FLAG_PREVIOUS_REFERENCE: u16 = 2;

/// What checksums of a segment's records are seeded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// The store's id.
    pub store: u128,
    /// The segment's number.
    pub segment: u64,
}

impl Seed {
    /// A CRC-32 that has taken in the store's id and the segment's number.
    pub(crate) fn hasher(&self) -> crc32fast::Hasher {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.store.to_le_bytes());
        hasher.update(&self.segment.to_le_bytes());
        hasher
    }

    fn header_crc(&self, header: &[u8]) -> u32 {
        let mut hasher = self.hasher();
        hasher.update(header.get(..HEADER_CRC_AT).unwrap_or(header));
        hasher.finalize()
    }

    fn payload_crc(&self, previous_crc: u32, payload: &[u8]) -> u32 {
        let mut hasher = self.hasher();
        hasher.update(&previous_crc.to_le_bytes());
        hasher.update(payload);
        hasher.finalize()
    }
}

/// Bytes that [`encode`] will append for this record; more than [`RECORD_LEN_MAX`] when it is too long.
pub fn encoded_len(record: &NewRecord<'_>) -> usize {
    let previous = match record.previous {
        Previous::Inline { json, sidecar, .. } => json.len().saturating_add(sidecar.len()),
        Previous::None | Previous::Reference { .. } => 0,
    };
    [
        json_len(record),
        record.resource.len(),
        record.key.len(),
        record.sidecar.len(),
        previous,
    ]
    .into_iter()
    .fold(HEADER_LEN, usize::saturating_add)
    .checked_next_multiple_of(ALIGN)
    .unwrap_or(usize::MAX)
}

fn json_len(record: &NewRecord<'_>) -> usize {
    let digits = if record.kind == Kind::Marker {
        0
    } else {
        digit_count(record.revision)
    };
    record.json[0]
        .len()
        .saturating_add(record.json[1].len())
        .saturating_add(digits)
}

/// Whether a record can be written: its length, or the reason why not.
pub fn check(record: &NewRecord<'_>) -> Result<usize, FormatError> {
    let limit = |field, value: usize, limit: usize| {
        if value <= limit {
            return Ok(());
        }
        Err(FormatError::new(
            0,
            Reason::Limit {
                field,
                value: value as u64,
                limit: limit as u64,
            },
        ))
    };
    limit("resource length", record.resource.len(), usize::from(u16::MAX))?;
    limit("key length", record.key.len(), usize::from(u16::MAX))?;
    let len = encoded_len(record);
    limit("record length", len, RECORD_LEN_MAX)?;
    let fits = match record.kind {
        Kind::Create => record.previous == Previous::None,
        Kind::Update | Kind::Delete => record.previous != Previous::None,
        Kind::Marker => record.previous == Previous::None && len == HEADER_LEN,
    };
    if fits {
        Ok(len)
    } else {
        Err(FormatError::new(0, IMPOSSIBLE_PREVIOUS))
    }
}

const IMPOSSIBLE_PREVIOUS: Reason = Reason::Value {
    field: "previous version for the kind of record",
    value: 0,
};

// Offsets in the header; `docs/format.md` has the table.
const VERSION_AT: usize = 4;
const KIND_AT: usize = 5;
const FLAGS_AT: usize = 6;
const LEN_AT: usize = 8;
const JSON_LEN_AT: usize = 12;
const SIDECAR_LEN_AT: usize = 16;
const PREVIOUS_JSON_LEN_AT: usize = 20;
const PREVIOUS_SIDECAR_LEN_AT: usize = 24;
const RESOURCE_LEN_AT: usize = 28;
const KEY_LEN_AT: usize = 30;
const REVISION_AT: usize = 32;
const PREVIOUS_REVISION_AT: usize = 40;
const SPLICE_AT: usize = 48;
const SHAPE_AT: usize = 52;
const PREVIOUS_SHAPE_AT: usize = 56;
const PREVIOUS_OFFSET_AT: usize = 60;
const ENCODING_AT: usize = 64;
const SYNCED_AT: usize = 72;
const RESERVED_AT: usize = 76;
const PREVIOUS_CRC_AT: usize = 84;
const PAYLOAD_CRC_AT: usize = 88;
const HEADER_CRC_AT: usize = 92;

/// Appends a record to `out` and returns its checksum, to be given as `previous_crc` for the next one. The first record
/// of a segment follows the checksum of the segment's header.
///
/// Cost: one copy and one CRC-32 of the record.
///
/// # Panics
/// When [`check`] refuses the record.
pub fn encode(record: &NewRecord<'_>, seed: &Seed, previous_crc: u32, out: &mut Vec<u8>) -> u32 {
    let len = match check(record) {
        Ok(len) => len,
        Err(error) => panic!("the record was not checked: {error}"),
    };
    let start = out.len();
    out.reserve(len);
    let mut header = [0; HEADER_LEN];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(VERSION_AT, &[VERSION]);
    put(KIND_AT, &[record.kind as u8]);
    put(LEN_AT, &(len as u32).to_le_bytes());
    put(JSON_LEN_AT, &(json_len(record) as u32).to_le_bytes());
    put(SIDECAR_LEN_AT, &(record.sidecar.len() as u32).to_le_bytes());
    put(RESOURCE_LEN_AT, &(record.resource.len() as u16).to_le_bytes());
    put(KEY_LEN_AT, &(record.key.len() as u16).to_le_bytes());
    put(REVISION_AT, &record.revision.to_le_bytes());
    put(SPLICE_AT, &(record.json[0].len() as u32).to_le_bytes());
    put(SHAPE_AT, &record.shape.to_le_bytes());
    put(SYNCED_AT, &record.synced.to_le_bytes());
    put(PREVIOUS_CRC_AT, &previous_crc.to_le_bytes());
    let flags = match record.previous {
        Previous::None => 0,
        Previous::Inline {
            revision,
            json,
            sidecar,
            shape,
        } => {
            put(PREVIOUS_JSON_LEN_AT, &(json.len() as u32).to_le_bytes());
            put(PREVIOUS_SIDECAR_LEN_AT, &(sidecar.len() as u32).to_le_bytes());
            put(PREVIOUS_REVISION_AT, &revision.to_le_bytes());
            put(PREVIOUS_SHAPE_AT, &shape.to_le_bytes());
            FLAG_PREVIOUS_INLINE
        }
        Previous::Reference { offset } => {
            put(PREVIOUS_OFFSET_AT, &offset.to_le_bytes());
            FLAG_PREVIOUS_REFERENCE
        }
    };
    put(FLAGS_AT, &flags.to_le_bytes());
    out.extend_from_slice(&header);

    let payload_start = out.len();
    out.extend_from_slice(record.resource.as_bytes());
    out.extend_from_slice(record.key.as_bytes());
    out.extend_from_slice(record.json[0]);
    if record.kind != Kind::Marker {
        out.extend_from_slice(digits(record.revision).as_bytes());
    }
    out.extend_from_slice(record.json[1]);
    out.extend_from_slice(record.sidecar);
    if let Previous::Inline { json, sidecar, .. } = record.previous {
        out.extend_from_slice(json);
        out.extend_from_slice(sidecar);
    }
    out.resize(start + len, 0);

    let payload_crc = seed.payload_crc(previous_crc, &out[payload_start..]);
    out[start + PAYLOAD_CRC_AT..start + HEADER_CRC_AT].copy_from_slice(&payload_crc.to_le_bytes());
    let header_crc = seed.header_crc(&out[start..payload_start]);
    out[start + HEADER_CRC_AT..payload_start].copy_from_slice(&header_crc.to_le_bytes());
    header_crc
}

/// The record at `offset`, everything checked: both checksums, every length, the digits in the JSON. For recovery and
/// verification. That `previous_crc` is the checksum of the record before is for the caller (or
/// [`crate::segment::scan`]) to see.
///
/// Errors count offsets from the start of the segment.
pub fn read<'a>(segment: &'a [u8], offset: usize, seed: &Seed) -> Result<Record<'a>, FormatError> {
    let header = proven_header(segment, offset, seed)?;
    let len = u32_at(header, LEN_AT) as usize;
    if !(HEADER_LEN..=RECORD_LEN_MAX).contains(&len) {
        let reason = Reason::Limit {
            field: "record length",
            value: len as u64,
            limit: RECORD_LEN_MAX as u64,
        };
        return Err(FormatError::new(offset + LEN_AT, reason));
    }
    let payload = slice(segment, offset + HEADER_LEN, len - HEADER_LEN, "record payload")?;
    let computed = seed.payload_crc(u32_at(header, PREVIOUS_CRC_AT), payload);
    let stored = u32_at(header, PAYLOAD_CRC_AT);
    if stored != computed {
        let reason = Reason::Checksum {
            part: "record payload",
            stored,
            computed,
        };
        return Err(FormatError::new(offset + HEADER_LEN, reason));
    }
    // from here on a fault is no damage: a writer of this store meant it, or a bug did
    let record = view(segment, offset)?;
    let bad = |at: usize, field, value| Err(FormatError::new(offset + at, Reason::Value { field, value }));
    if record.synced as usize > offset {
        return bad(SYNCED_AT, "synced", record.synced.into());
    }
    if record.kind != Kind::Marker {
        let from_splice = record.json.get(record.splice as usize..).unwrap_or_default();
        if !from_splice.starts_with(digits(record.revision).as_bytes()) {
            return bad(SPLICE_AT, "splice", record.splice.into());
        }
    }
    Ok(record)
}

/// The header at `offset` once magic, checksum and version hold. What it says is then what a writer of this store and
/// segment said, whatever became of the payload.
fn proven_header<'a>(segment: &'a [u8], offset: usize, seed: &Seed) -> Result<&'a [u8; HEADER_LEN], FormatError> {
    let header = header_at(segment, offset)?;
    let (stored, computed) = (u32_at(header, HEADER_CRC_AT), seed.header_crc(header));
    if stored != computed {
        let reason = Reason::Checksum {
            part: "record header",
            stored,
            computed,
        };
        return Err(FormatError::new(offset, reason));
    }
    check_version(header, offset)?;
    Ok(header)
}

/// What the record header at `offset` calls synced, if one of this store and segment is there. Its payload may be
/// damaged: the header's checksum proves that a writer said so.
pub(crate) fn synced_at(segment: &[u8], offset: usize, seed: &Seed) -> Option<u32> {
    proven_header(segment, offset, seed)
        .ok()
        .map(|header| u32_at(header, SYNCED_AT))
}

/// Length, whether it is a write, and revision that the record header at `offset` claims, if one of this store and segment is
/// there whose own checksum holds.
pub(crate) fn claim_at(segment: &[u8], offset: usize, seed: &Seed) -> Option<(usize, bool, u64)> {
    let header = proven_header(segment, offset, seed).ok()?;
    let len = u32_at(header, LEN_AT) as usize;
    let is_write = header[KIND_AT] != Kind::Marker as u8;
    (len >= HEADER_LEN && len.is_multiple_of(ALIGN)).then(|| (len, is_write, u64_at(header, REVISION_AT)))
}

fn header_at(segment: &[u8], offset: usize) -> Result<&[u8; HEADER_LEN], FormatError> {
    if !offset.is_multiple_of(ALIGN) {
        return Err(FormatError::new(
            offset,
            Reason::Value {
                field: "record offset",
                value: offset as u64,
            },
        ));
    }
    let rest = segment.get(offset..).unwrap_or_default();
    if rest.first_chunk() != Some(&MAGIC) {
        return Err(FormatError::new(offset, Reason::Magic { part: "record" }));
    }
    rest.first_chunk().ok_or_else(|| {
        let (needed, available) = (HEADER_LEN as u64, rest.len() as u64);
        FormatError::new(
            offset,
            Reason::Truncated {
                part: "record header",
                needed,
                available,
            },
        )
    })
}

fn check_version(header: &[u8; HEADER_LEN], offset: usize) -> Result<(), FormatError> {
    let reason = match header[VERSION_AT] {
        VERSION => return Ok(()),
        found if found > VERSION => Reason::NewerFormat {
            part: "record",
            found: found.into(),
            supported: VERSION.into(),
        },
        found => Reason::Value {
            field: "record version",
            value: found.into(),
        },
    };
    Err(FormatError::new(offset + VERSION_AT, reason))
}

/// Where the parts of the record at `offset` lie: for records that [`view`] or [`read`] accepted before. Only bounds are
/// checked; bytes that are no record give `None` or ranges of no meaning within the segment. Touches the header alone.
pub fn spans(segment: &[u8], offset: usize) -> Option<Spans> {
    let header = segment.get(offset..)?.first_chunk::<HEADER_LEN>()?;
    let key = key_range(header, offset);
    let json = key.end..key.end + u32_at(header, JSON_LEN_AT) as usize;
    let sidecar = json.end..json.end + u32_at(header, SIDECAR_LEN_AT) as usize;
    (sidecar.end <= segment.len()).then(|| Spans {
        revision: u64_at(header, REVISION_AT),
        shape: u32_at(header, SHAPE_AT),
        key,
        json,
        sidecar,
    })
}

/// The bytes of the key of the record at `offset`, on the terms of [`spans`].
pub fn key(segment: &[u8], offset: usize) -> Option<&[u8]> {
    let header = segment.get(offset..)?.first_chunk::<HEADER_LEN>()?;
    segment.get(key_range(header, offset))
}

fn key_range(header: &[u8; HEADER_LEN], offset: usize) -> Range<usize> {
    let start = offset + HEADER_LEN + usize::from(u16_at(header, RESOURCE_LEN_AT));
    start..start + usize::from(u16_at(header, KEY_LEN_AT))
}

/// The record at `offset`, bounds checked and no more: for records whose checksums were proven when they were published
/// or recovered. Allocates nothing; touches the header, resource name and key only.
pub fn view(segment: &[u8], offset: usize) -> Result<Record<'_>, FormatError> {
    let header = header_at(segment, offset)?;
    check_version(header, offset)?;
    let bad = |at: usize, field, value| Err(FormatError::new(offset + at, Reason::Value { field, value }));
    let kind = match header[KIND_AT] {
        1 => Kind::Create,
        2 => Kind::Update,
        3 => Kind::Delete,
        4 => Kind::Marker,
        other => return bad(KIND_AT, "record kind", other.into()),
    };
    let flags = u16_at(header, FLAGS_AT);
    let [json_len, sidecar_len, previous_json_len, previous_sidecar_len] = [
        JSON_LEN_AT,
        SIDECAR_LEN_AT,
        PREVIOUS_JSON_LEN_AT,
        PREVIOUS_SIDECAR_LEN_AT,
    ]
    .map(|at| u32_at(header, at) as usize);
    let [resource_len, key_len] = [RESOURCE_LEN_AT, KEY_LEN_AT].map(|at| usize::from(u16_at(header, at)));
    // six numbers of at most 32 bits: the sum cannot overflow 64
    let payload_len = resource_len + key_len + json_len + sidecar_len + previous_json_len + previous_sidecar_len;
    let len = u32_at(header, LEN_AT) as usize;
    if len > RECORD_LEN_MAX {
        let reason = Reason::Limit {
            field: "record length",
            value: len as u64,
            limit: RECORD_LEN_MAX as u64,
        };
        return Err(FormatError::new(offset + LEN_AT, reason));
    }
    if len != (HEADER_LEN + payload_len).next_multiple_of(ALIGN) {
        return bad(LEN_AT, "record length", len as u64);
    }
    slice(segment, offset, len, "record")?;
    if u64_at(header, ENCODING_AT) != 0 {
        return bad(ENCODING_AT, "encoding", u64_at(header, ENCODING_AT));
    }
    if array_at::<8>(header, RESERVED_AT) != [0; 8] {
        return bad(RESERVED_AT, "reserved", u64_at(header, RESERVED_AT));
    }

    let mut at = offset + HEADER_LEN;
    let mut next = |len: usize| {
        at += len;
        at - len
    };
    let resource = text(segment, next(resource_len), resource_len, "resource")?;
    let key = text(segment, next(key_len), key_len, "key")?;
    let json = slice(segment, next(json_len), json_len, "json")?;
    let sidecar = slice(segment, next(sidecar_len), sidecar_len, "sidecar")?;
    let previous_json = slice(segment, next(previous_json_len), previous_json_len, "previous json")?;
    let previous_sidecar = slice(
        segment,
        next(previous_sidecar_len),
        previous_sidecar_len,
        "previous sidecar",
    )?;

    let previous_offset = u32_at(header, PREVIOUS_OFFSET_AT);
    let inline = Previous::Inline {
        revision: u64_at(header, PREVIOUS_REVISION_AT),
        json: previous_json,
        sidecar: previous_sidecar,
        shape: u32_at(header, PREVIOUS_SHAPE_AT),
    };
    let empty = Previous::Inline {
        revision: 0,
        json: &[],
        sidecar: &[],
        shape: 0,
    };
    let previous = match flags & FLAG_PREVIOUS_MASK {
        0 if inline == empty && previous_offset == 0 => Previous::None,
        FLAG_PREVIOUS_INLINE if previous_offset == 0 => inline,
        FLAG_PREVIOUS_REFERENCE if inline == empty => Previous::Reference {
            offset: previous_offset,
        },
        _ => return bad(FLAGS_AT, "flags", flags.into()),
    };
    if flags & !FLAG_PREVIOUS_MASK != 0 {
        return bad(FLAGS_AT, "flags", flags.into());
    }
    if let Previous::Reference { offset: to } = previous
        && (!(to as usize).is_multiple_of(ALIGN) || to as usize >= offset)
    {
        return bad(PREVIOUS_OFFSET_AT, "previous offset", to.into());
    }
    let fits = match kind {
        Kind::Create => previous == Previous::None,
        Kind::Update | Kind::Delete => previous != Previous::None,
        Kind::Marker => previous == Previous::None && payload_len == 0,
    };
    if !fits {
        return Err(FormatError::new(offset + KIND_AT, IMPOSSIBLE_PREVIOUS));
    }
    Ok(Record {
        offset,
        len,
        kind,
        revision: u64_at(header, REVISION_AT),
        resource,
        key,
        json,
        sidecar,
        splice: u32_at(header, SPLICE_AT),
        shape: u32_at(header, SHAPE_AT),
        previous,
        previous_crc: u32_at(header, PREVIOUS_CRC_AT),
        crc: u32_at(header, HEADER_CRC_AT),
        synced: u32_at(header, SYNCED_AT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed {
        store: 0x1234_5678_9abc,
        segment: 3,
    };

    fn create(revision: u64) -> NewRecord<'static> {
        NewRecord {
            kind: Kind::Create,
            revision,
            resource: "pods",
            key: "default/web-0",
            json: [br#"{"metadata":{"resourceVersion":""#, br#""}}"#],
            sidecar: b"sidecar",
            shape: 5,
            previous: Previous::None,
            synced: 0,
        }
    }

    #[test]
    fn the_digits_of_the_revision_are_spliced_into_the_json() {
        let mut out = vec![0; 64];
        let crc = encode(&create(1234), &SEED, 77, &mut out);
        let record = read(&out, 64, &SEED).unwrap();
        assert_eq!(record.json, br#"{"metadata":{"resourceVersion":"1234"}}"#);
        assert_eq!((record.crc, record.previous_crc, record.end()), (crc, 77, out.len()));
        assert_eq!(&out[record.json_range()], record.json);
        assert_eq!(&out[record.sidecar_range()], b"sidecar");
        assert_eq!(view(&out, 64).unwrap(), record);
    }

    #[test]
    fn a_record_of_another_store_or_segment_does_not_validate() {
        let mut out = Vec::new();
        encode(&create(1), &SEED, 0, &mut out);
        for seed in [Seed { store: 1, ..SEED }, Seed { segment: 4, ..SEED }] {
            let error = read(&out, 0, &seed).unwrap_err();
            assert!(
                matches!(
                    error.reason,
                    Reason::Checksum {
                        part: "record header",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn a_previous_version_comes_back_inline_or_as_a_reference() {
        let inline = Previous::Inline {
            revision: 9,
            json: b"{}",
            sidecar: b"old",
            shape: 2,
        };
        let mut out = Vec::new();
        let crc = encode(&create(10), &SEED, 0, &mut out);
        let at = out.len();
        let crc = encode(
            &NewRecord {
                kind: Kind::Update,
                previous: inline,
                ..create(11)
            },
            &SEED,
            crc,
            &mut out,
        );
        let last = out.len();
        let reference = Previous::Reference { offset: at as u32 };
        encode(
            &NewRecord {
                kind: Kind::Delete,
                previous: reference,
                ..create(12)
            },
            &SEED,
            crc,
            &mut out,
        );
        let update = read(&out, at, &SEED).unwrap();
        assert_eq!(update.previous, inline);
        let (json, sidecar) = update.previous_ranges().unwrap();
        assert_eq!((&out[json], &out[sidecar]), (&b"{}"[..], &b"old"[..]));
        assert_eq!(read(&out, last, &SEED).unwrap().previous, reference);
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_it_is() {
        let update = NewRecord {
            kind: Kind::Update,
            ..create(1)
        };
        assert_eq!(check(&update).unwrap_err().reason, IMPOSSIBLE_PREVIOUS);
        let long = vec![b' '; RECORD_LEN_MAX];
        let reason = check(&NewRecord {
            sidecar: &long,
            ..create(1)
        })
        .unwrap_err()
        .reason;
        assert!(matches!(
            reason,
            Reason::Limit {
                field: "record length",
                ..
            }
        ));
    }
}
