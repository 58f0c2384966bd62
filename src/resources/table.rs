//! Table rows: rendered when an object is written, save for what depends on the clock or the revision; that is filled in when
//! the row is sent. Nothing is parsed then and no object is read.

use std::io::Write;

use flatkube_format::shelf::{RowFrame, RowHoles};
use flatkube_format::sidecar::{ArchivedFill, ArchivedSidecar, Fill, Hole, digits};

use super::cell::Cell;
use super::duration::{human_duration, write_human_duration};
use crate::tree::{Value, write_text};

/// What rows on shelves have around the object's metadata: that of `includeObject=Metadata`, as most clients ask for.
pub(super) const ROW_FRAME: RowFrame = RowFrame {
    before: r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
    behind: "}",
};

/// The text of a row, from its `{` up to the value of `object`, and its holes.
pub(super) fn row(cells: &[Cell]) -> (String, Vec<Hole>) {
    let mut text = Vec::with_capacity(256);
    let mut holes = Vec::new();
    text.extend_from_slice(br#"{"cells":["#);
    let columns = cells.iter().filter(|cell| !matches!(cell, Cell::Json(_)));
    for (index, cell) in columns.enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match cell {
            Cell::Null | Cell::Json(_) => text.extend_from_slice(b"null"),
            Cell::Bool(value) => write_display(value, &mut text),
            Cell::Integer(value) => write_display(value, &mut text),
            Cell::Number(value) => Value::from(*value).write(&mut text),
            Cell::Text(string) => write_text(string, &mut text),
            Cell::Age(at) => write_age("", *at, "", &mut text, &mut holes),
            Cell::TextAge { before, at, after } => write_age(before, *at, after, &mut text, &mut holes),
            Cell::Duration { start, end: 0 } => write_around("", Fill::Since(*start), "", &mut text, &mut holes),
            Cell::Duration { start, end } => write_text(&human_duration(end.saturating_sub(*start)), &mut text),
            Cell::Revision => write_around("", Fill::Revision, "", &mut text, &mut holes),
        }
    }
    text.push(b']');
    let conditions = cells.iter().find_map(|cell| match cell {
        Cell::Json(conditions) => Some(conditions),
        _ => None,
    });
    if let Some(conditions) = conditions {
        text.extend_from_slice(br#","conditions":"#);
        text.extend_from_slice(conditions.as_bytes());
    }
    text.extend_from_slice(br#","object":"#);
    let text = String::from_utf8(text).expect("all that was written is UTF-8");
    (text, holes)
}

/// The instant 0 stands for one that is not known.
fn write_age(before: &str, at: i64, after: &str, text: &mut Vec<u8>, holes: &mut Vec<Hole>) {
    if at == 0 {
        write_text(&format!("{before}<unknown>{after}"), text);
    } else {
        write_around(before, Fill::Since(at), after, text, holes);
    }
}

/// A JSON string with a hole in it. What fills holes needs no escapes.
fn write_around(before: &str, fill: Fill, after: &str, text: &mut Vec<u8>, holes: &mut Vec<Hole>) {
    write_text(before, text);
    text.pop();
    let at = text.len();
    holes.push(Hole { at: at as u32, fill });
    write_text(after, text);
    text.remove(at);
}

fn write_display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    let _ = write!(out, "{value}");
}

/// What goes into a hole has at most so many bytes: a revision has 20 digits, a time two numbers and two units.
const FILL_LEN_MAX: usize = 24;

/// What [`write_rows`] writes at most, in bytes, for that much text.
pub fn rows_len_max(text_len: usize, holes: usize) -> usize {
    text_len + holes * FILL_LEN_MAX
}

/// Writes rows of a shelf, whose holes are told by their places in `text`, at the Unix second `now_s`. Appends to `out`.
///
/// Rows are made at about the same time as a rule, so the text of a time is made once for all that follow and are as old.
pub fn write_rows(text: &[u8], holes: RowHoles<'_>, now_s: i64, out: &mut Vec<u8>) {
    let mut from = 0;
    let mut last = (None, [0; FILL_LEN_MAX], 0);
    for (at, since) in holes {
        out.extend_from_slice(text.get(from..at).unwrap_or_default());
        from = at;
        let seconds = now_s.saturating_sub(since);
        if last.0 == Some(seconds) {
            out.extend_from_slice(last.1.get(..last.2).unwrap_or_default());
            continue;
        }
        let start = out.len();
        write_human_duration(seconds, out);
        let written = out.get(start..).unwrap_or_default();
        if let Some(kept) = last.1.get_mut(..written.len()) {
            kept.copy_from_slice(written);
            (last.0, last.2) = (Some(seconds), written.len());
        }
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
}

/// Writes the row of an object that is not stored, as [`write_row`] writes that of one that is.
pub fn write_cells(cells: &[Cell], now_s: i64, revision: u64, out: &mut Vec<u8>) {
    let (row, holes) = row(cells);
    let mut from = 0;
    for hole in holes {
        let at = hole.at as usize;
        out.extend_from_slice(row.as_bytes().get(from..at).unwrap_or_default());
        from = at;
        match hole.fill {
            Fill::Since(at) => write_human_duration(now_s.saturating_sub(at), out),
            Fill::Revision => out.extend_from_slice(digits(revision).as_bytes()),
        }
    }
    out.extend_from_slice(row.as_bytes().get(from..).unwrap_or_default());
}

/// What [`write_row`] writes at most, in bytes.
pub fn row_len_max(sidecar: &ArchivedSidecar) -> usize {
    sidecar.row.len() + sidecar.holes.len() * FILL_LEN_MAX
}

/// Writes a row up to the value of its `object`: `{"cells":[…],"object":`, as kube-apiserver prints it at the Unix second
/// `now_s`.
///
/// `revision` is the object's; only a column that shows it needs it. Appends to `out`.
pub fn write_row(sidecar: &ArchivedSidecar, now_s: i64, revision: u64, out: &mut Vec<u8>) {
    for (piece, fill) in sidecar.row_pieces() {
        out.extend_from_slice(piece);
        match fill {
            None => {}
            Some(ArchivedFill::Since(at)) => write_human_duration(now_s.saturating_sub(at.to_native()), out),
            Some(ArchivedFill::Revision) => out.extend_from_slice(digits(revision).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flatkube_format::sidecar::{Sidecar, access};

    use super::*;

    fn rendered(cells: &[Cell], now_s: i64) -> String {
        let (row, holes) = row(cells);
        let bytes = Sidecar {
            row,
            holes,
            ..Sidecar::default()
        }
        .archive();
        let mut out = Vec::new();
        let sidecar = access(&bytes).unwrap();
        write_row(sidecar, now_s, 42, &mut out);
        assert!(out.len() <= row_len_max(sidecar));
        let row = String::from_utf8(out).unwrap();
        let cells = row.strip_prefix(r#"{"cells":"#).unwrap();
        cells.strip_suffix(r#","object":"#).unwrap().to_owned()
    }

    #[test]
    fn cells_that_depend_on_the_clock_are_rendered_for_the_moment_they_are_sent() {
        let cells = [
            Cell::Age(1000),
            Cell::TextAge {
                before: "5 (".into(),
                at: 1060,
                after: " ago)".into(),
            },
            Cell::Duration { start: 1000, end: 1010 },
            Cell::Duration { start: 1000, end: 0 },
            Cell::Age(0),
        ];
        assert_eq!(
            rendered(&cells, 1090),
            r#"["90s","5 (30s ago)","10s","90s","<unknown>"]"#
        );
        assert_eq!(
            rendered(&cells, 1000 + 7200),
            r#"["120m","5 (119m ago)","10s","120m","<unknown>"]"#
        );
        assert_eq!(rendered(&[Cell::Age(1010)], 1000), r#"["<invalid>"]"#);
    }

    #[test]
    fn texts_are_escaped_and_row_conditions_are_no_column() {
        let cells = [
            Cell::Text("a\"b\n".into()),
            Cell::Integer(-3),
            Cell::Bool(false),
            Cell::Null,
            Cell::Number(0.5),
            Cell::Number(1e21),
            Cell::Revision,
            Cell::TextAge {
                before: "\"".into(),
                at: 7,
                after: "\\".into(),
            },
            Cell::TextAge {
                before: "\t".into(),
                at: 0,
                after: String::new(),
            },
            Cell::Json("[1]".into()),
        ];
        assert_eq!(
            rendered(&cells, 9),
            r#"["a\"b\n",-3,false,null,0.5,1e+21,"42","\"2s\\","\t<unknown>"],"conditions":[1]"#
        );
        assert_eq!(rendered(&[], 0), "[]");
    }
}
