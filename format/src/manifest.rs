//! The small file that names all others: live segments with their cuts, shelf parts, and each resource's floor.
//!
//! It is replaced whole: written under another name, synced, renamed, directory synced. So it is either the old one or
//! the new one, and no reader ever sees half of it.

use crate::bytes::{slice, text, u32_at};
use crate::{FormatError, Reason};

/// First bytes of a manifest.
pub const MAGIC: [u8; 8] = *b"\xfffkMANI\n";
/// Version of the format that is written; it counts changes to the whole data directory.
pub const VERSION: u32 = 1;
/// The longest manifest, in bytes.
pub const MANIFEST_LEN_MAX: usize = 64 << 20;

const HEAD_LEN: usize = 24;
const HEAD_CRC_AT: usize = 20;

/// What a data directory holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The store's id, random, chosen once.
    pub store: u128,
    /// Raised by every replacement.
    pub generation: u64,
    /// Whether the store was last written with `--durability=os`: an unclean end may have lost revisions.
    pub durability_os: bool,
    /// Whether the store was closed in order after this was written.
    pub clean: bool,
    /// Highest revision known when this was written.
    pub revision: u64,
    /// Files numbered from here on have never existed.
    pub next_file: u64,
    /// Live segments, ascending by number. Only the last one may be unsealed; the engine checks that.
    pub segments: Vec<SegmentEntry>,
    /// What is shelved, ascending by the bytes of the resources' names.
    pub resources: Vec<ResourceEntry>,
}

/// A live segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Its number, which names its file and seeds its checksums.
    pub number: u64,
    /// No record in it has a lower revision.
    pub first_revision: u64,
    /// Set once no record will be added.
    pub sealed: Option<Sealed>,
}

/// How a segment ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Where its records end, in bytes. What lies behind is the footer, or was cut.
    pub end: u32,
    /// Length of the footer that begins at `end`; 0 when there is none.
    pub footer_len: u32,
    /// Highest revision in it.
    pub last_revision: u64,
    /// When it was sealed, Unix seconds.
    pub sealed_at: i64,
}

/// What is shelved of a resource, and how far back its history goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceEntry {
    /// Storage resource.
    pub name: String,
    /// The shelf holds the effect of every write of the resource up to and including this revision.
    pub shelved_revision: u64,
    /// Revision of the newest record of the resource that was discarded with its segment; 0 when none was.
    pub floor: u64,
    /// The parts of the shelf, ascending by key range.
    pub parts: Vec<PartEntry>,
}

/// One part of a shelf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartEntry {
    /// Number of the file.
    pub file: u64,
    /// Objects in it.
    pub count: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Key of the first object.
    pub first_key: String,
    /// Key of the last object.
    pub last_key: String,
    /// Checksum in the part's header ([`crate::shelf::Shelf::header_crc`]), which covers all other checksums of the part.
    pub header_crc: u32,
}

impl Manifest {
    /// The bytes of this manifest.
    ///
    /// # Errors
    /// [`Reason::Limit`] when it would be longer than [`MANIFEST_LEN_MAX`], [`Reason::Order`] when segments, resources or
    /// parts are out of order.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check_order()?;
        let mut out = Writer(vec![0; HEAD_LEN]);
        out.0.extend_from_slice(&self.store.to_le_bytes());
        out.u64(self.generation);
        out.u32(u32::from(self.durability_os) | u32::from(self.clean) << 1);
        out.u64(self.revision);
        out.u64(self.next_file);
        out.u32(self.segments.len() as u32);
        out.u32(self.resources.len() as u32);
        for segment in &self.segments {
            let sealed = segment.sealed.unwrap_or_default();
            out.u64(segment.number);
            out.u64(segment.first_revision);
            out.u32(u32::from(segment.sealed.is_some()));
            out.u32(sealed.end);
            out.u32(sealed.footer_len);
            out.u64(sealed.last_revision);
            out.u64(sealed.sealed_at as u64);
        }
        for resource in &self.resources {
            out.text(&resource.name);
            out.u64(resource.shelved_revision);
            out.u64(resource.floor);
            out.u32(resource.parts.len() as u32);
            for part in &resource.parts {
                out.u64(part.file);
                out.u64(part.count);
                out.u64(part.bytes);
                out.u32(part.header_crc);
                out.text(&part.first_key);
                out.text(&part.last_key);
            }
        }
        let mut out = out.0;
        if out.len() > MANIFEST_LEN_MAX {
            let (value, limit) = (out.len() as u64, MANIFEST_LEN_MAX as u64);
            return Err(FormatError::new(
                0,
                Reason::Limit {
                    field: "manifest length",
                    value,
                    limit,
                },
            ));
        }
        let body_len = (out.len() - HEAD_LEN) as u32;
        let body_crc = crc32fast::hash(&out[HEAD_LEN..]);
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&body_len.to_le_bytes());
        out[16..20].copy_from_slice(&body_crc.to_le_bytes());
        let head_crc = crc32fast::hash(&out[..HEAD_CRC_AT]);
        out[HEAD_CRC_AT..HEAD_LEN].copy_from_slice(&head_crc.to_le_bytes());
        Ok(out)
    }

    /// The manifest in these bytes, which are the whole file. Allocates at most a small multiple of their length.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let body = checked_body(bytes)?;
        let mut reader = Reader { bytes: body, at: 0 };
        let manifest = Self::decode_body(&mut reader).map_err(|error| error.at(HEAD_LEN))?;
        manifest.check_order()?;
        Ok(manifest)
    }

    fn decode_body(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let store = u128::from_le_bytes(reader.array("store id")?);
        let generation = reader.u64("generation")?;
        let flags = reader.flags("manifest flags", 0b11)?;
        let mut manifest = Self {
            store,
            generation,
            durability_os: flags & 1 != 0,
            clean: flags & 2 != 0,
            revision: reader.u64("revision")?,
            next_file: reader.u64("next file")?,
            segments: Vec::new(),
            resources: Vec::new(),
        };
        let segment_count = reader.u32("segment count")?;
        let resource_count = reader.u32("resource count")?;
        // nothing is reserved on the word of a count: every element takes bytes from the reader before it is pushed
        for _ in 0..segment_count {
            manifest.segments.push(reader.segment()?);
        }
        for _ in 0..resource_count {
            manifest.resources.push(reader.resource()?);
        }
        if reader.at != reader.bytes.len() {
            let value = (reader.bytes.len() - reader.at) as u64;
            return Err(FormatError::new(
                reader.at,
                Reason::Value {
                    field: "bytes behind the manifest",
                    value,
                },
            ));
        }
        Ok(manifest)
    }

    fn check_order(&self) -> Result<(), FormatError> {
        let in_order = |holds: bool, field| {
            if holds {
                Ok(())
            } else {
                Err(FormatError::new(0, Reason::Order { field }))
            }
        };
        in_order(self.segments.is_sorted_by(|a, b| a.number < b.number), "segments")?;
        in_order(self.resources.is_sorted_by(|a, b| a.name < b.name), "resources")?;
        for resource in &self.resources {
            in_order(resource.parts.is_sorted_by(|a, b| a.last_key < b.first_key), "parts")?;
            in_order(
                resource.parts.iter().all(|part| part.first_key <= part.last_key),
                "keys of a part",
            )?;
        }
        Ok(())
    }
}

fn checked_body(bytes: &[u8]) -> Result<&[u8], FormatError> {
    let head = slice(bytes, 0, HEAD_LEN, "manifest head")?;
    if head[..8] != MAGIC {
        return Err(FormatError::new(0, Reason::Magic { part: "manifest" }));
    }
    let (stored, computed) = (u32_at(head, HEAD_CRC_AT), crc32fast::hash(&head[..HEAD_CRC_AT]));
    if stored != computed {
        return Err(FormatError::new(
            0,
            Reason::Checksum {
                part: "manifest head",
                stored,
                computed,
            },
        ));
    }
    match u32_at(head, 8) {
        VERSION => {}
        found if found > VERSION => {
            let reason = Reason::NewerFormat {
                part: "the data directory",
                found,
                supported: VERSION,
            };
            return Err(FormatError::new(8, reason));
        }
        found => {
            return Err(FormatError::new(
                8,
                Reason::Value {
                    field: "manifest version",
                    value: found.into(),
                },
            ));
        }
    }
    let len = u32_at(head, 12) as usize;
    if bytes.len() > MANIFEST_LEN_MAX {
        let (value, limit) = (bytes.len() as u64, MANIFEST_LEN_MAX as u64);
        return Err(FormatError::new(
            12,
            Reason::Limit {
                field: "manifest length",
                value,
                limit,
            },
        ));
    }
    let body = slice(bytes, HEAD_LEN, len, "manifest body")?;
    if body.len() != bytes.len() - HEAD_LEN {
        return Err(FormatError::new(
            12,
            Reason::Value {
                field: "manifest length",
                value: len as u64,
            },
        ));
    }
    let (stored, computed) = (u32_at(head, 16), crc32fast::hash(body));
    if stored != computed {
        return Err(FormatError::new(
            HEAD_LEN,
            Reason::Checksum {
                part: "manifest body",
                stored,
                computed,
            },
        ));
    }
    Ok(body)
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FormatError> {
        let bytes = slice(self.bytes, self.at, N, field)?;
        self.at += N;
        Ok(crate::bytes::array_at(bytes, 0))
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, FormatError> {
        self.array(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, FormatError> {
        self.array(field).map(u64::from_le_bytes)
    }

    fn flags(&mut self, field: &'static str, known: u32) -> Result<u32, FormatError> {
        let at = self.at;
        let flags = self.u32(field)?;
        if flags & !known != 0 {
            return Err(FormatError::new(
                at,
                Reason::Value {
                    field,
                    value: flags.into(),
                },
            ));
        }
        Ok(flags)
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, FormatError> {
        let len = self.u32(field)? as usize;
        let text = text(self.bytes, self.at, len, field)?;
        self.at += len;
        Ok(text)
    }

    fn segment(&mut self) -> Result<SegmentEntry, FormatError> {
        let number = self.u64("segment number")?;
        let first_revision = self.u64("first revision")?;
        let at = self.at;
        let is_sealed = self.flags("segment flags", 1)? == 1;
        let sealed = Sealed {
            end: self.u32("segment end")?,
            footer_len: self.u32("footer length")?,
            last_revision: self.u64("last revision")?,
            sealed_at: self.u64("sealed at")? as i64,
        };
        if !is_sealed && sealed != Sealed::default() {
            return Err(FormatError::new(
                at,
                Reason::Value {
                    field: "segment flags",
                    value: 0,
                },
            ));
        }
        Ok(SegmentEntry {
            number,
            first_revision,
            sealed: is_sealed.then_some(sealed),
        })
    }

    fn resource(&mut self) -> Result<ResourceEntry, FormatError> {
        let mut entry = ResourceEntry {
            name: self.text("resource")?.to_owned(),
            shelved_revision: self.u64("shelved revision")?,
            floor: self.u64("floor")?,
            parts: Vec::new(),
        };
        for _ in 0..self.u32("part count")? {
            entry.parts.push(PartEntry {
                file: self.u64("part file")?,
                count: self.u64("object count")?,
                bytes: self.u64("part length")?,
                header_crc: self.u32("part checksum")?,
                first_key: self.text("first key")?.to_owned(),
                last_key: self.text("last key")?.to_owned(),
            });
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let part = |file, first: &str, last: &str| PartEntry {
            file,
            count: 3,
            bytes: 4096,
            first_key: first.into(),
            last_key: last.into(),
            header_crc: 99,
        };
        Manifest {
            store: 1 << 100,
            generation: 12,
            durability_os: false,
            clean: true,
            revision: 1000,
            next_file: 9,
            segments: vec![
                SegmentEntry {
                    number: 3,
                    first_revision: 500,
                    sealed: Some(Sealed {
                        end: 4096,
                        footer_len: 256,
                        last_revision: 800,
                        sealed_at: 1_700_000_000,
                    }),
                },
                SegmentEntry {
                    number: 4,
                    first_revision: 801,
                    sealed: None,
                },
            ],
            resources: vec![
                ResourceEntry {
                    name: "configmaps".into(),
                    shelved_revision: 900,
                    floor: 400,
                    parts: vec![],
                },
                ResourceEntry {
                    name: "pods".into(),
                    shelved_revision: 950,
                    floor: 0,
                    parts: vec![part(7, "a/a", "a/z"), part(8, "b/a", "c/a")],
                },
            ],
        }
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written() {
        let bytes = manifest().encode().unwrap();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest());
        assert_eq!(
            Manifest::decode(&Manifest::default().encode().unwrap()).unwrap(),
            Manifest::default()
        );
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_manifest_is_seen() {
        let bytes = manifest().encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            Manifest::decode(&damaged).unwrap_err();
        }
        for len in 0..bytes.len() {
            Manifest::decode(&bytes[..len]).unwrap_err();
        }
    }

    #[test]
    fn a_newer_directory_is_named_as_such_and_not_as_damage() {
        let mut bytes = manifest().encode().unwrap();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..HEAD_CRC_AT]);
        bytes[HEAD_CRC_AT..HEAD_LEN].copy_from_slice(&crc.to_le_bytes());
        let reason = Manifest::decode(&bytes).unwrap_err().reason;
        assert_eq!(
            reason,
            Reason::NewerFormat {
                part: "the data directory",
                found: 2,
                supported: 1
            }
        );
    }

    #[test]
    fn a_manifest_out_of_order_is_not_written() {
        let mut manifest = manifest();
        manifest.segments.reverse();
        assert_eq!(
            manifest.encode().unwrap_err().reason,
            Reason::Order { field: "segments" }
        );
    }
}
