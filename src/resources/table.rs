//! Table cells from sidecars, rendered when they are sent. Nothing is parsed and no object is read.

use std::io::Write;

use flatkube_format::sidecar::{ArchivedCell, ArchivedSidecar, digits};

use super::duration::write_human_duration;

/// Writes the cells of one row as a JSON array, as kube-apiserver prints them at the Unix second `now_s`.
///
/// `revision` is the object's; only a column that shows it needs it. Appends to `out`.
pub fn render_cells(sidecar: &ArchivedSidecar, now_s: i64, revision: u64, out: &mut Vec<u8>) {
    out.push(b'[');
    let mut first = true;
    let mut scratch = String::new();
    for cell in sidecar.cells.iter() {
        if matches!(cell, ArchivedCell::Json(_)) {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        match cell {
            ArchivedCell::Null | ArchivedCell::Json(_) => out.extend_from_slice(b"null"),
            ArchivedCell::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            ArchivedCell::Integer(value) => write_display(value.to_native(), out),
            ArchivedCell::Number(value) => write_display(value.to_native(), out),
            ArchivedCell::Text(text) => write_text(text, out),
            ArchivedCell::Age(at) => {
                scratch.clear();
                write_age(now_s, at.to_native(), &mut scratch);
                write_text(&scratch, out);
            }
            ArchivedCell::TextAge { before, at, after } => {
                scratch.clear();
                scratch.push_str(before);
                write_age(now_s, at.to_native(), &mut scratch);
                scratch.push_str(after);
                write_text(&scratch, out);
            }
            ArchivedCell::Duration { start, end } => {
                scratch.clear();
                let end = if end.to_native() == 0 { now_s } else { end.to_native() };
                write_human_duration(end.saturating_sub(start.to_native()), &mut scratch);
                write_text(&scratch, out);
            }
            ArchivedCell::Revision => {
                out.push(b'"');
                out.extend_from_slice(digits(revision).as_bytes());
                out.push(b'"');
            }
        }
    }
    out.push(b']');
}

/// The `conditions` of the row as a JSON array, for objects that have such (Pods that are over).
pub fn row_conditions(sidecar: &ArchivedSidecar) -> Option<&str> {
    sidecar.cells.iter().find_map(|cell| match cell {
        ArchivedCell::Json(conditions) => Some(conditions.as_str()),
        _ => None,
    })
}

/// The instant 0 stands for one that is not known.
fn write_age(now_s: i64, at: i64, out: &mut String) {
    if at == 0 {
        out.push_str("<unknown>");
    } else {
        write_human_duration(now_s.saturating_sub(at), out);
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    // A Vec takes every byte, so this cannot fail.
    let _ = serde_json::to_writer(out, text);
}

fn write_display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    let _ = write!(out, "{value}");
}

#[cfg(test)]
mod tests {
    use flatkube_format::sidecar::{Cell, Sidecar, access};

    use super::*;

    fn rendered(cells: Vec<Cell>, now_s: i64) -> String {
        let bytes = Sidecar {
            cells,
            ..Sidecar::default()
        }
        .archive();
        let mut out = Vec::new();
        render_cells(access(&bytes).unwrap(), now_s, 42, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_that_depend_on_the_clock_are_rendered_for_the_moment_they_are_sent() {
        let cells = || {
            vec![
                Cell::Age(1000),
                Cell::TextAge {
                    before: "5 (".into(),
                    at: 1060,
                    after: " ago)".into(),
                },
                Cell::Duration { start: 1000, end: 1010 },
                Cell::Duration { start: 1000, end: 0 },
                Cell::Age(0),
            ]
        };
        assert_eq!(
            rendered(cells(), 1090),
            r#"["90s","5 (30s ago)","10s","90s","<unknown>"]"#
        );
        assert_eq!(
            rendered(cells(), 1000 + 7200),
            r#"["120m","5 (119m ago)","10s","120m","<unknown>"]"#
        );
        assert_eq!(rendered(vec![Cell::Age(1010)], 1000), r#"["<invalid>"]"#);
    }

    #[test]
    fn texts_are_escaped_and_row_conditions_are_no_column() {
        let cells = vec![
            Cell::Text("a\"b\n".into()),
            Cell::Integer(-3),
            Cell::Bool(false),
            Cell::Null,
            Cell::Number(0.5),
            Cell::Revision,
            Cell::Json("[1]".into()),
        ];
        let bytes = Sidecar {
            cells: cells.clone(),
            ..Sidecar::default()
        }
        .archive();
        assert_eq!(row_conditions(access(&bytes).unwrap()), Some("[1]"));
        assert_eq!(rendered(cells, 0), r#"["a\"b\n",-3,false,null,0.5,"42"]"#);
    }
}
