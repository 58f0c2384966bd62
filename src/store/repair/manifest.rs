//! The manifest of a damaged directory: as it stands, with one byte put right, or made anew from the files that are there.

use std::collections::BTreeMap;

use flatkube_format::manifest::{MANIFEST_LEN_MAX, Manifest, PartEntry, ResourceEntry, SegmentEntry};
use flatkube_format::shelf::Shelf;
use flatkube_format::{FormatError, Reason, segment};

use super::{RepairError, read_file};
use crate::store::disk::Disk;
use crate::store::error::Damaged;
use crate::store::files;

/// Where a manifest comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It stands there.
    Disk,
    /// It stands there but for one byte.
    Corrected,
    /// Made anew.
    Files,
}

/// Bytes of a manifest's head.
const HEAD_LEN: usize = 24;

pub(super) fn read(disk: &dyn Disk, damaged: &mut Vec<Damaged>) -> Result<(Manifest, Source), RepairError> {
    let path = disk.path(files::MANIFEST);
    let Some(bytes) = read_file(disk, files::MANIFEST)? else {
        damaged.push(Damaged {
            file: path,
            offset: 0,
            reason: "it is not there".into(),
        });
        return Ok((from_files(disk)?, Source::Files));
    };
    let error = match Manifest::decode(&bytes) {
        Ok(manifest) => return Ok((manifest, Source::Disk)),
        Err(error) => error,
    };
    if matches!(error.reason, Reason::NewerFormat { .. }) {
        return Err(RepairError::of(&path, &error));
    }
    damaged.push(Damaged::of(&path, &error));
    let mut fitting = corrected(&bytes).into_iter().filter(|manifest| fits(disk, manifest));
    if let (Some(manifest), None) = (fitting.next(), fitting.next()) {
        return Ok((manifest, Source::Corrected));
    }
    Ok((from_files(disk)?, Source::Files))
}

/// All manifests that differ in one byte from `bytes`.
fn corrected(bytes: &[u8]) -> Vec<Manifest> {
    if bytes.len() > MANIFEST_LEN_MAX {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut changed = bytes.to_vec();
    let mut attempt = |at: usize, value: u8| {
        let right = std::mem::replace(&mut changed[at], value);
        found.extend(Manifest::decode(&changed));
        changed[at] = right;
    };
    for (at, byte) in bytes.iter().enumerate().take(HEAD_LEN) {
        for mask in 1..=255 {
            attempt(at, byte ^ mask);
        }
    }
    // In the body, the difference between the two checksums says which one byte it can be, if it is one.
    if let (Some(body), Some(stored)) = (bytes.get(HEAD_LEN..), bytes.get(16..20)) {
        let stored = u32::from_le_bytes(stored.try_into().unwrap_or_default());
        for (at, mask) in one_byte_off(body, stored) {
            attempt(HEAD_LEN + at, body[at] ^ mask);
        }
    }
    found
}

/// Where one byte of `bytes` could be wrong, and in which bits, for the CRC-32 to be `stored`. One pass.
///
/// A checksum is linear: a wrong byte changes it by what a checksum begun with that byte becomes over the zeros behind it. So the
/// difference, taken back over ever more zeros, shows the byte where it fits into one.
pub(super) fn one_byte_off(bytes: &[u8], stored: u32) -> Vec<(usize, u8)> {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let back = |crc: u32| {
        (0..8).fold(crc, |crc, _| match crc >> 31 {
            1 => (crc ^ POLYNOMIAL) << 1 | 1,
            _ => crc << 1,
        })
    };
    let mut difference = crc32fast::hash(bytes) ^ stored;
    let mut found = Vec::new();
    for at in (0..bytes.len()).rev() {
        difference = back(difference);
        if let Ok(mask @ 1..) = u8::try_from(difference) {
            found.push((at, mask));
        }
    }
    found
}

/// Whether every file that a manifest names is there and is the one that it names.
fn fits(disk: &dyn Disk, manifest: &Manifest) -> bool {
    let segments = manifest.segments.iter().all(|entry| {
        let header = segment::header(manifest.store, entry.number, entry.first_revision);
        head(disk, &files::segment(entry.number), header.len()).is_some_and(|found| found == header)
    });
    let mut parts = manifest.resources.iter().flat_map(|resource| &resource.parts);
    segments
        && parts.all(|part| {
            let crc = head(disk, &files::part(part.file), 128).and_then(|head| head[124..].try_into().ok());
            crc.is_some_and(|crc| u32::from_le_bytes(crc) == part.header_crc)
        })
}

fn head(disk: &dyn Disk, name: &str, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    disk.open(name).ok()?.read_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// A manifest that names what is there. Every part must be whole in its index, belong to the same store, and none may overlap
/// another: then nothing of what they hold is in doubt, but for a part whose replacement was under way or whose removal failed.
/// The segments must follow each other.
fn from_files(disk: &dyn Disk) -> Result<Manifest, RepairError> {
    let hopeless = |name: &str, reason: String| {
        RepairError::Hopeless(Damaged {
            file: disk.path(name),
            offset: 0,
            reason: format!("the manifest is lost, and {reason}"),
        })
    };
    let mut names = disk.list().map_err(RepairError::io(disk, "list it", ""))?;
    names.sort();
    let mut manifest = Manifest {
        generation: 1,
        ..Manifest::default()
    };
    let mut store = None;
    let mut belongs = |name: &str, found: u128| {
        if *store.get_or_insert(found) == found {
            Ok(())
        } else {
            Err(hopeless(name, "this is of another store".into()))
        }
    };
    let mut resources: BTreeMap<String, ResourceEntry> = BTreeMap::new();
    for name in &names {
        let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
        if let Some(number) = number("segment-") {
            let bytes = head(disk, name, segment::HEADER_LEN).unwrap_or_default();
            if bytes.iter().all(|&byte| byte == 0) {
                continue; // allocated, never in use
            }
            let header = segment::read_header(&bytes).map_err(|error| newer_or(disk, name, &error, hopeless))?;
            belongs(name, header.store)?;
            let follows = manifest.segments.last().is_none_or(|last| last.number + 1 == number);
            if header.segment != number || !follows {
                return Err(hopeless(name, "the log has a hole before it".into()));
            }
            manifest.segments.push(SegmentEntry {
                number,
                first_revision: header.first_revision,
                sealed: None,
            });
        } else if let Some(file) = number("shelf-") {
            let bytes = read_file(disk, name)?.unwrap_or_default();
            let shelf = Shelf::open(&bytes).map_err(|error| newer_or(disk, name, &error, hopeless))?;
            belongs(name, shelf.store())?;
            let last = shelf.count().saturating_sub(1);
            let resource = shelf.resource(&bytes).to_owned();
            let entry = resources.entry(resource.clone()).or_insert_with(|| ResourceEntry {
                name: resource,
                ..ResourceEntry::default()
            });
            entry.shelved_revision = entry.shelved_revision.max(shelf.as_of());
            entry.parts.push(PartEntry {
                file,
                count: shelf.count() as u64,
                bytes: bytes.len() as u64,
                first_key: shelf.key(&bytes, 0).to_owned(),
                last_key: shelf.key(&bytes, last).to_owned(),
                header_crc: shelf.header_crc(),
            });
            manifest.next_file = manifest.next_file.max(file + 1);
        }
    }
    for entry in resources.values_mut() {
        entry.parts.sort_by(|a, b| a.first_key.cmp(&b.first_key));
        if let Some(pair) = entry
            .parts
            .windows(2)
            .find(|pair| pair[0].last_key >= pair[1].first_key)
        {
            let reason = format!("it is not certain whether this or {} holds", files::part(pair[0].file));
            return Err(hopeless(&files::part(pair[1].file), reason));
        }
    }
    if manifest.segments.is_empty() {
        return Err(hopeless("", "there is no log".into()));
    }
    manifest.store = store.unwrap_or_default();
    manifest.resources = resources.into_values().collect();
    Ok(manifest)
}

fn newer_or(
    disk: &dyn Disk,
    name: &str,
    error: &FormatError,
    hopeless: impl Fn(&str, String) -> RepairError,
) -> RepairError {
    match error.reason {
        Reason::NewerFormat { .. } => RepairError::of(&disk.path(name), error),
        reason => hopeless(name, reason.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_found_wherever_it_is() {
        let right: Vec<u8> = (0..300u32).map(|index| (index * 7) as u8).collect();
        let stored = crc32fast::hash(&right);
        for at in [0, 1, 150, 298, 299] {
            for mask in [1, 0x80, 0xff, 0x5a] {
                let mut wrong = right.clone();
                wrong[at] ^= mask;
                assert!(one_byte_off(&wrong, stored).contains(&(at, mask)), "{at} {mask}");
            }
        }
        assert_eq!(one_byte_off(&right, stored), []);
    }
}
