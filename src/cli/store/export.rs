//! `flatkube store export`: all objects as JSON lines, each as the API would answer it.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use super::directory::{Directory, Found};
use crate::cli::Failure;
use crate::resources;

pub(super) fn run(directory: &Directory, only: Option<&str>) -> Result<(), Failure> {
    let log = directory.log()?;
    let names: BTreeSet<&str> = directory
        .manifest()
        .resources
        .iter()
        .map(|entry| entry.name.as_str())
        .chain(log.resources.keys().map(String::as_str))
        .filter(|name| only.is_none_or(|only| only == *name))
        .collect();
    let mut output = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for name in names {
        // Stored JSON leaves out what is the same for all objects of a built-in kind.
        let head = resources::stored(name)
            .map(|resource| {
                format!(
                    "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",",
                    resource.api_version(),
                    resource.kind
                )
            })
            .unwrap_or_default();
        directory.objects(name, log.delta(name), &mut |found| {
            write_line(&mut output, &head, found).map_err(|error| super::output_failed(&error))
        })?;
    }
    output.flush().map_err(|error| super::output_failed(&error))
}

fn write_line(output: &mut impl Write, head: &str, found: &Found<'_>) -> io::Result<()> {
    let body = if head.is_empty() {
        found.json
    } else {
        found.json.strip_prefix(b"{").unwrap_or(found.json)
    };
    output.write_all(head.as_bytes())?;
    output.write_all(body)?;
    output.write_all(b"\n")
}
