//! The log of a damaged directory: which records are whole, which are not, and what became of the writes of the latter.

use std::collections::{BTreeMap, HashSet};

use flatkube_format::frame::{self, Kind, Previous, Record, Seed};
use flatkube_format::manifest::{Manifest, SegmentEntry};
use flatkube_format::salvage::{Gap, Known, walk};
use flatkube_format::segment::{self, Footer, FooterBuilder, FooterEntry, namespace_crc};

use super::part::DamagedPart;
use super::{Loss, RepairError, read_file};
use crate::store::disk::Disk;
use crate::store::error::Damaged;
use crate::store::files;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: usize,
    pub(super) revision: u64,
    pub(super) is_delete: bool,
}

/// What the log tells of one resource.
#[derive(Default)]
pub(super) struct Logged {
    /// The newest record of each key that was written after the resource was shelved.
    pub(super) delta: BTreeMap<String, Place>,
    /// Records of shelved objects that damaged parts want: the newest up to when the resource was shelved.
    shelved: BTreeMap<String, Place>,
}

/// Bytes that a segment should have at an offset.
type Patch = (u64, Vec<u8>);

#[derive(Default)]
pub(super) struct LogState {
    pub(super) resources: BTreeMap<String, Logged>,
    /// Damaged places with the number of the segment, and what its footer says of the records there.
    gaps: Vec<(u64, Gap, Option<Vec<Indexed>>)>,
    patches: BTreeMap<u64, Vec<Patch>>,
    /// Highest revision that is known to have been given out.
    pub(super) last_revision: u64,
    /// Revisions of previous versions that records behind a gap carry.
    replaced: HashSet<u64>,
    /// Offsets of previous versions that records behind a gap refer to.
    referred: HashSet<(u64, usize)>,
}

/// A segment as the manifest knows it.
struct Seen<'a> {
    manifest: &'a Manifest,
    entry: &'a SegmentEntry,
    next_revision: Option<u64>,
    /// The manifest is the one that was written: it says what was published.
    is_certain: bool,
    parts: &'a BTreeMap<u64, DamagedPart>,
}

/// A record that a footer names.
struct Indexed {
    resource: String,
    revision: u64,
    offset: usize,
}

pub(super) fn read(
    disk: &dyn Disk,
    manifest: &Manifest,
    is_certain: bool,
    parts: &BTreeMap<u64, DamagedPart>,
    damaged: &mut Vec<Damaged>,
    progress: &dyn Fn(u64),
) -> Result<LogState, RepairError> {
    let mut log = LogState {
        last_revision: manifest.revision,
        ..LogState::default()
    };
    for (index, entry) in manifest.segments.iter().enumerate() {
        let name = files::segment(entry.number);
        let bytes = read_file(disk, &name)?;
        let mut tell = |offset: usize, reason: String| {
            damaged.push(Damaged {
                file: disk.path(&name),
                offset: offset as u64,
                reason,
            });
        };
        if bytes.is_none() {
            tell(0, "it is not there".into());
        }
        let bytes = bytes.unwrap_or_default();
        let seen = Seen {
            manifest,
            entry,
            next_revision: manifest.segments.get(index + 1).map(|next| next.first_revision),
            is_certain,
            parts,
        };
        log.read_segment(&seen, &bytes, &mut tell)
            .map_err(|error| RepairError::of(&disk.path(&name), &error))?;
        progress(bytes.len() as u64);
    }
    Ok(log)
}

impl LogState {
    fn read_segment(
        &mut self,
        seen: &Seen<'_>,
        bytes: &[u8],
        tell: &mut dyn FnMut(usize, String),
    ) -> Result<(), flatkube_format::FormatError> {
        let &Seen {
            manifest,
            entry,
            next_revision,
            is_certain,
            parts,
        } = seen;
        let seed = Seed {
            store: manifest.store,
            segment: entry.number,
        };
        let published = if next_revision.is_some() || manifest.durability_os {
            0
        } else {
            manifest.revision
        };
        let known = Known {
            seed,
            first_revision: entry.first_revision,
            sealed: entry.sealed.map(|sealed| (sealed.end as usize, sealed.last_revision)),
            next_revision,
            published,
            is_last: manifest.clean,
        };
        let header = segment::header(seed.store, seed.segment, entry.first_revision);
        let mut patches: Vec<Patch> = Vec::new();
        if bytes.first_chunk() != Some(&header) {
            tell(0, "the header of the segment is damaged".into());
            patches.push((0, header.to_vec()));
        }
        let mut footer = FooterBuilder::new(seed);
        let mut after_gap = !self.gaps.is_empty();
        let mut last_end = segment::HEADER_LEN;
        let walk = walk(bytes, &known, |record| {
            after_gap |= record.offset != last_end;
            last_end = record.end();
            self.add(&record, entry.number, manifest, parts, after_gap);
            if record.kind != Kind::Marker {
                let entry = FooterEntry {
                    revision: record.revision,
                    offset: (record.offset / frame::ALIGN) as u32,
                    namespace: namespace_crc(record.key),
                };
                footer.push(record.resource, entry);
            }
        })?;
        self.last_revision = self.last_revision.max(walk.last_revision);
        let mut index = None;
        if let Some(sealed) = &entry.sealed {
            self.last_revision = self.last_revision.max(sealed.last_revision);
            let (at, len) = (sealed.end as usize, sealed.footer_len as usize);
            match Footer::open(bytes, at, len, &seed) {
                Ok(footer) => index = Some(indexed(&footer, bytes)),
                Err(_) if len == 0 => {}
                Err(error) => {
                    tell(error.offset as usize, error.reason.to_string());
                    patches.push((at as u64, footer.encode(sealed.end)));
                }
            }
        }
        let mut gaps = walk.gaps;
        if walk.is_torn && !is_certain {
            // Without the manifest nothing says that these writes were never acknowledged.
            gaps.push(Gap {
                at: walk.end,
                until: bytes.len(),
                revisions: walk.last_revision + 1..=u64::MAX,
                records: Vec::new(),
                is_complete: false,
            });
        }
        for gap in gaps {
            tell(gap.at, format!("no whole record until {}", gap.until));
            if *gap.revisions.end() < u64::MAX {
                self.last_revision = self.last_revision.max(*gap.revisions.end());
            }
            let lost = index.as_ref().map(|index: &Vec<Indexed>| {
                let inside = index
                    .iter()
                    .filter(|record| (gap.at..gap.until).contains(&record.offset));
                inside
                    .map(|record| Indexed {
                        resource: record.resource.clone(),
                        ..*record
                    })
                    .collect()
            });
            self.gaps.push((entry.number, gap, lost));
        }
        if !patches.is_empty() {
            self.patches.insert(entry.number, patches);
        }
        Ok(())
    }

    fn add(
        &mut self,
        record: &Record<'_>,
        segment: u64,
        manifest: &Manifest,
        parts: &BTreeMap<u64, DamagedPart>,
        after_gap: bool,
    ) {
        if after_gap {
            match record.previous {
                Previous::None => {}
                Previous::Inline { revision, .. } => drop(self.replaced.insert(revision)),
                Previous::Reference { offset } => drop(self.referred.insert((segment, offset as usize))),
            }
        }
        if record.kind == Kind::Marker {
            return;
        }
        let place = Place {
            segment,
            offset: record.offset,
            revision: record.revision,
            is_delete: record.kind == Kind::Delete,
        };
        let found = manifest
            .resources
            .binary_search_by(|entry| (*entry.name).cmp(record.resource));
        let entry = found.ok().map(|index| &manifest.resources[index]);
        let is_shelved = entry.is_some_and(|entry| record.revision <= entry.shelved_revision);
        if is_shelved {
            let mut parts = entry
                .iter()
                .flat_map(|entry| &entry.parts)
                .filter_map(|part| parts.get(&part.file));
            if !parts.any(|part| part.wants(record.key, record.revision)) {
                return;
            }
        }
        // `entry` would make a string of the name for every record.
        let logged = match self.resources.get_mut(record.resource) {
            Some(logged) => logged,
            None => self.resources.entry(record.resource.to_owned()).or_default(),
        };
        let keys = if is_shelved {
            &mut logged.shelved
        } else {
            &mut logged.delta
        };
        keys.insert(record.key.to_owned(), place);
    }

    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Numbers of the segments that are to be written anew.
    pub(super) fn patched(&self) -> impl Iterator<Item = u64> + '_ {
        self.patches.keys().copied()
    }

    pub(super) fn patches(&self) -> &BTreeMap<u64, Vec<Patch>> {
        &self.patches
    }

    /// Whether the record that made an object at a revision is here.
    pub(super) fn made(&self, resource: &str, key: &str, revision: u64) -> bool {
        self.shelved(resource, key)
            .is_some_and(|place| place.revision == revision)
    }

    /// The record of an object that a damaged part wants.
    pub(super) fn shelved(&self, resource: &str, key: &str) -> Option<Place> {
        let place = *self.resources.get(resource)?.shelved.get(key)?;
        (!place.is_delete).then_some(place)
    }

    /// Whether an object was written after a revision.
    pub(super) fn wrote_after(&self, resource: &str, key: &str, revision: u64) -> bool {
        let place = self.resources.get(resource).and_then(|logged| logged.delta.get(key));
        place.is_some_and(|place| place.revision > revision)
    }

    /// Keys from `first` to `last` of shelved objects whose records are here.
    pub(super) fn shelved_within<'a>(
        &'a self,
        resource: &str,
        first: &'a str,
        last: &'a str,
    ) -> impl Iterator<Item = &'a str> + 'a {
        let logged = self.resources.get(resource);
        let shelved = logged.into_iter().flat_map(move |logged| logged.shelved.iter());
        shelved
            .filter(move |(key, place)| !place.is_delete && first <= key.as_str() && key.as_str() <= last)
            .map(|(key, _)| key.as_str())
    }

    /// Whether damaged records may have been of a resource.
    pub(super) fn may_have_lost(&self, resource: &str) -> bool {
        self.gaps.iter().any(|(_, _, index)| {
            index
                .as_ref()
                .is_none_or(|index| index.iter().any(|record| record.resource == resource))
        })
    }

    /// Writes that are gone and that no shelf or later record makes up for.
    pub(super) fn losses(&self, manifest: &Manifest, parts: &BTreeMap<u64, DamagedPart>) -> Vec<Loss> {
        let is_shelved = |resource: &str, revision: u64| {
            let found = manifest
                .resources
                .iter()
                .enumerate()
                .find(|(_, entry)| entry.name == resource);
            found.is_some_and(|(index, entry)| {
                // What a part holds that names its objects no more is taken from older records.
                let is_nameless = parts.values().any(|part| part.resource == index && part.has_nameless());
                revision <= entry.shelved_revision && !is_nameless
            })
        };
        let mut losses = Vec::new();
        for (segment, gap, index) in &self.gaps {
            let is_made_up_for = |offset: usize, revision: u64| {
                self.replaced.contains(&revision) || self.referred.contains(&(*segment, offset))
            };
            let likely = |offset: usize| {
                let record = gap.records.iter().find(|record| record.offset == offset);
                record.and_then(|record| record.likely.clone())
            };
            if let Some(index) = index {
                let lost = index.iter().filter(|record| {
                    !is_shelved(&record.resource, record.revision) && !is_made_up_for(record.offset, record.revision)
                });
                losses.extend(lost.map(|record| Loss::Writes {
                    from: record.revision,
                    to: record.revision,
                    resource: Some(record.resource.clone()),
                    likely: likely(record.offset),
                }));
            } else if gap.is_complete {
                let lost = gap
                    .records
                    .iter()
                    .filter(|record| !is_made_up_for(record.offset, record.revision));
                losses.extend(lost.map(|record| Loss::Writes {
                    from: record.revision,
                    to: record.revision,
                    resource: None,
                    likely: record.likely.clone(),
                }));
            } else if gap.revisions.start() == gap.revisions.end() && is_made_up_for(gap.at, *gap.revisions.end()) {
                // One record, and a later one has what it wrote.
            } else if !gap.revisions.is_empty() {
                losses.push(Loss::Writes {
                    from: *gap.revisions.start(),
                    to: *gap.revisions.end(),
                    resource: None,
                    likely: None,
                });
            }
        }
        losses
    }
}

fn indexed(footer: &Footer, bytes: &[u8]) -> Vec<Indexed> {
    let mut records = Vec::new();
    for (resource, run) in footer.resources(bytes) {
        records.extend(footer.entries(bytes, run).map(|entry| Indexed {
            resource: resource.to_owned(),
            revision: entry.revision,
            offset: entry.byte_offset(),
        }));
    }
    records.sort_by_key(|record| record.offset);
    records
}
