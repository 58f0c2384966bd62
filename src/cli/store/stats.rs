//! `flatkube store stats`: what is stored, as a table.

use std::collections::BTreeSet;
use std::fmt::Write;

use indicatif::{HumanBytes, HumanCount};

use super::directory::Directory;
use crate::cli::Failure;

const HEADER: [&str; 8] = [
    "RESOURCE", "OBJECTS", "BYTES", "DELTA", "LOG", "PARTS", "SHELF", "POSTINGS",
];

pub(super) fn run(directory: &Directory) -> Result<(), Failure> {
    let manifest = directory.manifest();
    let log = directory.log()?;
    let names: BTreeSet<&str> = manifest
        .resources
        .iter()
        .map(|entry| entry.name.as_str())
        .chain(log.resources.keys().map(String::as_str))
        .collect();

    let mut rows = Vec::new();
    let (mut objects_all, mut bytes_all, mut log_all, mut shelf_all) = (0, 0, 0, 0);
    for name in names {
        let (mut objects, mut bytes) = (0_u64, 0_u64);
        directory.objects(name, log.delta(name), &mut |found| {
            objects += 1;
            bytes += (found.json.len() + found.sidecar.len()) as u64;
            Ok(())
        })?;
        let parts = directory
            .resource(name)
            .map(|entry| entry.parts.as_slice())
            .unwrap_or_default();
        let mut postings = 0;
        for part in parts {
            postings += directory.part(part.file)?.shelf.hash_count() as u64;
        }
        let shelf: u64 = parts.iter().map(|part| part.bytes).sum();
        let logged = log.resources.get(name).map_or(0, |logged| logged.bytes);
        objects_all += objects;
        bytes_all += bytes;
        log_all += logged;
        shelf_all += shelf;
        rows.push([
            name.to_owned(),
            HumanCount(objects).to_string(),
            HumanBytes(bytes).to_string(),
            HumanCount(log.delta(name).len() as u64).to_string(),
            HumanBytes(logged).to_string(),
            parts.len().to_string(),
            HumanBytes(shelf).to_string(),
            HumanCount(postings).to_string(),
        ]);
    }

    let mut text = String::new();
    let durability = if manifest.durability_os {
        "os (the newest writes may be lost with the machine)"
    } else {
        "fsync"
    };
    let ended = if manifest.clean {
        "cleanly"
    } else {
        "uncleanly (the next start replays the log)"
    };
    let _ = writeln!(text, "directory   {}", directory.path().display());
    let _ = writeln!(text, "store       {:032x}", manifest.store);
    let _ = writeln!(text, "revision    {}", log.revision);
    let _ = writeln!(text, "durability  {durability}");
    let _ = writeln!(text, "ended       {ended}");
    let _ = writeln!(
        text,
        "log         {} segments, {} records, {}",
        manifest.segments.len(),
        HumanCount(log.records),
        HumanBytes(log_all)
    );
    let _ = writeln!(
        text,
        "objects     {}, {} of JSON and sidecars; shelves of {}\n",
        HumanCount(objects_all),
        HumanBytes(bytes_all),
        HumanBytes(shelf_all)
    );
    text.push_str(&table(&rows));
    text.push_str(
        "\nBYTES: JSON and sidecars of live objects. DELTA: keys written since the resource was shelved.\n\
         LOG: records that are kept, history included. POSTINGS: distinct labels and field values in the shelf's index.\n",
    );
    super::print(text.as_bytes())
}

/// The first column to the left, the others to the right, two spaces between.
fn table(rows: &[[String; 8]]) -> String {
    let mut widths = HEADER.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let mut text = String::new();
    let mut line = |cells: [&str; 8]| {
        let _ = write!(text, "{:<width$}", cells[0], width = widths[0]);
        for (cell, width) in cells.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    };
    line(HEADER);
    for row in rows {
        line(row.each_ref().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_titles() {
        let row = [
            "configmaps",
            "1,000",
            "1.40 MiB",
            "0",
            "1.53 MiB",
            "1",
            "1.61 MiB",
            "2,020",
        ]
        .map(str::to_owned);
        let text = table(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].len(), lines[1].len());
        assert!(lines[0].starts_with("RESOURCE    OBJECTS"), "{text}");
        assert!(lines[1].starts_with("configmaps    1,000"), "{text}");
    }
}
