//! `flatkube store inspect`: one object's bytes, its sidecar, where they lie, and what the log still tells of it.

use std::fmt::Write;

use flatkube_format::frame::{Kind, Previous};
use flatkube_format::sidecar;

use super::directory::{Directory, damaged};
use crate::cli::{Exit, Failure};
use crate::store::files;

pub(super) fn run(directory: &Directory, resource: &str, key: &str) -> Result<(), Failure> {
    let log = directory.log()?;
    let mut text = String::new();
    let _ = writeln!(text, "resource  {resource}\nkey       {key}");
    let found = if let Some(place) = log.delta(resource).get(key) {
        let file = directory.file(&files::segment(place.segment));
        let state = if place.kind == Kind::Delete { "deleted" } else { "live" };
        let _ = writeln!(text, "revision  {} ({state})", place.revision);
        let _ = writeln!(
            text,
            "lies in   {}, the record at offset {} ({} bytes)",
            file.display(),
            place.offset,
            place.len
        );
        let _ = writeln!(
            text,
            "          JSON at {:?}, sidecar at {:?}",
            place.json, place.sidecar
        );
        let json = directory.read_log(place.segment, &place.json)?;
        let archive = directory.read_log(place.segment, &place.sidecar)?;
        describe(&mut text, &json, &archive).map_err(|error| damaged(&file, &error.at(place.sidecar.start)))?;
        true
    } else {
        describe_shelved(directory, resource, key, &mut text)?
    };
    let history = history(directory, resource, key, &mut text)?;
    if !found && history == 0 {
        return Err(Failure::new(
            Exit::Failure,
            format!("there is no {resource} {key:?} in {}", directory.path().display()),
        )
        .advise("'flatkube store export DIR --resource RESOURCE' shows what there is"));
    }
    super::print(text.as_bytes())
}

fn describe_shelved(directory: &Directory, resource: &str, key: &str, text: &mut String) -> Result<bool, Failure> {
    let parts = directory
        .resource(resource)
        .map(|entry| entry.parts.as_slice())
        .unwrap_or_default();
    let Some(part) = parts
        .iter()
        .find(|part| part.first_key.as_str() <= key && key <= part.last_key.as_str())
    else {
        return Ok(false);
    };
    let part = directory.part(part.file)?;
    let Ok(index) = part.shelf.find(&part.bytes, key) else {
        return Ok(false);
    };
    let entry = part.shelf.entry(&part.bytes, index);
    for block in part.shelf.block_of(entry.json.start..entry.sidecar.end) {
        part.shelf
            .check_block(&part.bytes, block)
            .map_err(|error| damaged(&part.file, &error))?;
    }
    let _ = writeln!(text, "revision  {} (live)", entry.revision);
    let _ = writeln!(
        text,
        "lies in   {}, object {index} of {}, as of revision {}",
        part.file.display(),
        part.shelf.count(),
        part.shelf.as_of()
    );
    let _ = writeln!(
        text,
        "          JSON at {:?}, sidecar at {:?}, shape {}",
        entry.json, entry.sidecar, entry.shape
    );
    describe(text, &part.bytes[entry.json], &part.bytes[entry.sidecar.clone()])
        .map_err(|error| damaged(&part.file, &error.at(entry.sidecar.start)))?;
    Ok(true)
}

fn describe(text: &mut String, json: &[u8], archive: &[u8]) -> Result<(), flatkube_format::FormatError> {
    let archived = sidecar::access(archive)?;
    let _ = writeln!(text, "\nJSON ({} bytes)\n{}", json.len(), String::from_utf8_lossy(json));
    let _ = writeln!(text, "\nsidecar ({} bytes)\n{archived:#?}", archive.len());
    Ok(())
}

/// Every record of the object that the log keeps, the oldest first. Returns how many there are.
fn history(directory: &Directory, resource: &str, key: &str, text: &mut String) -> Result<u64, Failure> {
    let mut count = 0;
    let _ = writeln!(text, "\nin the log");
    for entry in &directory.manifest().segments {
        let name = files::segment(entry.number);
        let file = directory.file(&name);
        let bytes = directory.read(&name)?;
        let scanned = directory.scan(entry, &bytes, |record| {
            if record.resource != resource || record.key != key {
                return;
            }
            count += 1;
            let previous = match record.previous {
                Previous::None => String::new(),
                Previous::Inline { revision, .. } => format!(", holds revision {revision} before it"),
                Previous::Reference { offset } => format!(", the one before it is at offset {offset}"),
            };
            let _ = writeln!(
                text,
                "revision {}: {:?} in {name} at offset {}, {} bytes{previous}",
                record.revision, record.kind, record.offset, record.len
            );
        });
        scanned.map_err(|error| damaged(&file, &error))?;
    }
    if count == 0 {
        let _ = writeln!(text, "nothing any more");
    }
    Ok(count)
}
