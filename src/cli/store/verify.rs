//! `flatkube store verify`: every checksum, every archive, every place that one file names in another.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use flatkube_format::frame::{Previous, Record};
use flatkube_format::manifest::{PartEntry, ResourceEntry, SegmentEntry};
use flatkube_format::segment::{Footer, Verdict};
use flatkube_format::shelf::Shelf;
use flatkube_format::sidecar::{self, digit_count};
use flatkube_format::{FormatError, Reason};
use indicatif::{HumanBytes, HumanCount};

use super::directory::Directory;
use crate::cli::progress::Quiet;
use crate::cli::{Exit, Failure};
use crate::store::files;

/// What was found so far.
#[derive(Default)]
struct Findings {
    /// Damaged places, each said already.
    damaged: u64,
    /// Set once a file turns out to be of a newer format.
    newer: bool,
    bytes: u64,
    records: u64,
    objects: u64,
}

impl Findings {
    fn damage(&mut self, file: &Path, error: &FormatError) {
        self.damaged += 1;
        self.newer |= matches!(error.reason, Reason::NewerFormat { .. });
        eprintln!("{}: offset {}: {}", file.display(), error.offset, error.reason);
    }

    fn contradiction(&mut self, file: &Path, what: &str) {
        self.damaged += 1;
        eprintln!("{}: offset 0: {what}", file.display());
    }
}

pub(super) fn run(directory: &Directory, quiet: Quiet) -> Result<(), Failure> {
    let started = Instant::now();
    let manifest = directory.manifest();
    let mut findings = Findings::default();
    let segments = manifest.segments.iter().map(|segment| files::segment(segment.number));
    let parts = manifest.resources.iter().flat_map(|resource| &resource.parts);
    let len_of = |name: String| std::fs::metadata(directory.file(&name)).map_or(0, |metadata| metadata.len());
    let len = segments
        .chain(parts.map(|part| files::part(part.file)))
        .map(len_of)
        .sum();
    let bar = quiet.bytes(Some(len), "verify");
    for segment in &manifest.segments {
        verify_segment(directory, segment, &mut findings)?;
        bar.set_position(findings.bytes);
    }
    for resource in &manifest.resources {
        let mut last_key: Option<&str> = None;
        for part in &resource.parts {
            if last_key.is_some_and(|last| last >= part.first_key.as_str()) {
                let file = directory.file(files::MANIFEST);
                findings.contradiction(
                    &file,
                    &format!("parts of {} overlap at {:?}", resource.name, part.first_key),
                );
            }
            last_key = Some(&part.last_key);
            verify_part(directory, resource, part, &mut findings)?;
            bar.set_position(findings.bytes);
        }
    }
    bar.finish_and_clear();
    note_leftovers(directory)?;
    if findings.damaged > 0 {
        let places = if findings.damaged == 1 {
            "place is"
        } else {
            "places are"
        };
        let exit = if findings.newer {
            Exit::NewerFormat
        } else {
            Exit::Damaged
        };
        return Err(Failure::new(exit, format!("{} {places} damaged", findings.damaged))
            .advise(
                "nothing was changed; see what can be mended with 'flatkube store verify --repair --dry-run', or restore a backup",
            ));
    }
    if quiet.is_quiet() {
        return Ok(());
    }
    let parts: usize = manifest.resources.iter().map(|resource| resource.parts.len()).sum();
    super::print(
        format!(
            "sound: {} segments with {} records, {parts} shelf parts with {} objects; {} checked in {:.1} s\n",
            manifest.segments.len(),
            HumanCount(findings.records),
            HumanCount(findings.objects),
            HumanBytes(findings.bytes),
            started.elapsed().as_secs_f64(),
        )
        .as_bytes(),
    )
}

fn verify_segment(directory: &Directory, entry: &SegmentEntry, findings: &mut Findings) -> Result<(), Failure> {
    let name = files::segment(entry.number);
    let file = directory.file(&name);
    if !file.exists() {
        findings.contradiction(&file, "the manifest names it, but it is not there");
        return Ok(());
    }
    let bytes = directory.read(&name)?;
    findings.bytes += bytes.len() as u64;
    let mut wrong = Vec::new();
    let scan = directory.scan(entry, &bytes, |record| {
        findings.records += 1;
        wrong.extend(verify_record(&record));
    });
    for error in &wrong {
        findings.damage(&file, error);
    }
    match scan {
        Err(error) => findings.damage(&file, &error),
        Ok(scan) => match scan.verdict {
            Verdict::Clean => {}
            Verdict::Torn { at, until, reason } if !scan.verdict.runs_out() => {
                eprintln!(
                    "{}: offset {at}: note: {} bytes of a write that was never acknowledged ({reason}); the next start \
                     keeps them aside",
                    file.display(),
                    until - at
                );
            }
            Verdict::Torn { at, reason, .. } | Verdict::Corrupt { at, reason, .. } => findings.damage(
                &file,
                &FormatError {
                    offset: at as u64,
                    reason,
                },
            ),
        },
    }
    if let Some(sealed) = &entry.sealed
        && sealed.footer_len > 0
    {
        let (offset, len) = (sealed.end as usize, sealed.footer_len as usize);
        if let Err(error) = Footer::open(&bytes, offset, len, &directory.seed(entry.number)) {
            findings.damage(&file, &error);
        }
    }
    Ok(())
}

/// The archives of a record, and whether they speak of its JSON.
fn verify_record(record: &Record<'_>) -> Option<FormatError> {
    if record.resource.is_empty() {
        return None;
    }
    let own = verify_sidecar(
        record.json,
        record.sidecar,
        record.revision,
        record.sidecar_range().start,
    );
    let previous = match (record.previous, record.previous_ranges()) {
        (
            Previous::Inline {
                revision,
                json,
                sidecar,
                ..
            },
            Some((_, range)),
        ) => verify_sidecar(json, sidecar, revision, range.start),
        _ => None,
    };
    own.or(previous)
}

/// `offset` is where the sidecar lies in its file.
fn verify_sidecar(json: &[u8], archive: &[u8], revision: u64, offset: usize) -> Option<FormatError> {
    let archived = match sidecar::access(archive) {
        Ok(archived) => archived,
        Err(error) => return Some(error.at(offset)),
    };
    let span = archived.metadata_span(digit_count(revision));
    if span.start <= span.end && span.end <= json.len() {
        return None;
    }
    let reason = Reason::Value {
        field: "end of metadata in the sidecar",
        value: span.end as u64,
    };
    Some(FormatError {
        offset: offset as u64,
        reason,
    })
}

fn verify_part(
    directory: &Directory,
    resource: &ResourceEntry,
    entry: &PartEntry,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let name = files::part(entry.file);
    let file = directory.file(&name);
    if !file.exists() {
        findings.contradiction(&file, "the manifest names it, but it is not there");
        return Ok(());
    }
    let bytes = directory.read(&name)?;
    findings.bytes += bytes.len() as u64;
    let shelf = match Shelf::open(&bytes) {
        Ok(shelf) => shelf,
        Err(error) => {
            findings.damage(&file, &error);
            return Ok(());
        }
    };
    let count = shelf.count();
    findings.objects += count as u64;
    let as_named = shelf.header_crc() == entry.header_crc
        && count as u64 == entry.count
        && shelf.resource(&bytes) == resource.name
        && shelf.store() == directory.manifest().store
        && count > 0
        && shelf.key(&bytes, 0) == entry.first_key
        && shelf.key(&bytes, count - 1) == entry.last_key;
    if !as_named {
        findings.contradiction(&file, "it is not the part that the manifest names");
    }
    // Block by block, so that every damaged one is named and not the first alone.
    let before = findings.damaged;
    for block in 0..shelf.block_count() {
        if let Err(error) = shelf.check_block(&bytes, block) {
            findings.damage(&file, &error);
        }
    }
    if findings.damaged == before {
        if let Err(error) = shelf.verify(&bytes) {
            findings.damage(&file, &error);
        }
        for index in 0..count {
            let entry = shelf.entry(&bytes, index);
            let (json, archive) = (&bytes[entry.json], &bytes[entry.sidecar.clone()]);
            if let Some(error) = verify_sidecar(json, archive, entry.revision, entry.sidecar.start) {
                findings.damage(&file, &error);
            }
        }
    }
    Ok(())
}

/// Files that nothing names are harmless; a person may wonder about them.
fn note_leftovers(directory: &Directory) -> Result<(), Failure> {
    let manifest = directory.manifest();
    let parts = manifest
        .resources
        .iter()
        .flat_map(|resource| &resource.parts)
        .map(|part| files::part(part.file));
    let named: HashSet<String> = manifest
        .segments
        .iter()
        .map(|segment| files::segment(segment.number))
        .chain(parts)
        .collect();
    let path = directory.path();
    let entries = std::fs::read_dir(path).map_err(|error| Failure::io("read", path, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Failure::io("read", path, &error))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if files::is_disposable(&name) && !named.contains(&name) && name != files::SPARE {
            eprintln!(
                "{}: note: not in use; the next start removes it",
                entry.path().display()
            );
        }
    }
    Ok(())
}
