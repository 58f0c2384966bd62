//! Where in an expression something is wrong, and how that is told.

use std::fmt::Write;

/// Most findings that are told of one expression.
const FINDINGS_MAX: usize = 100;
/// Most bytes that are told of one expression.
const TEXT_MAX: usize = 64 * 1024;
/// Longest line that is shown as a whole, in characters. Of longer ones so many around the place are shown.
const LINE_MAX: usize = 200;

/// Why an expression cannot be used, in kube-apiserver's words: a line `ERROR: <input>:1:5: what` for each finding, with the line of
/// the expression and a mark below the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub(crate) String);

/// What was found wrong, gathered.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<(Option<u32>, String)>,
    /// Bytes of text in them.
    len: usize,
}

impl Findings {
    /// Something wrong at a byte of the expression.
    pub(crate) fn add(&mut self, at: u32, what: impl Into<String>) {
        // One more than is told is enough to know that there are more.
        if self.found.len() <= FINDINGS_MAX {
            self.push(Some(at), what.into());
        }
    }

    /// Something wrong with the expression as a whole.
    pub(crate) fn add_whole(&mut self, what: impl Into<String>) {
        self.push(None, what.into());
    }

    /// Keeps a finding: as much of its text as will be told.
    fn push(&mut self, at: Option<u32>, mut what: String) {
        what.truncate(what.floor_char_boundary(TEXT_MAX - self.len));
        self.len += what.len();
        self.found.push((at, what));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All findings in the order of their places.
    pub(crate) fn into_error(mut self, source: &str) -> CompileError {
        self.found.sort_by_key(|(at, _)| *at);
        let mut text = String::new();
        for (at, what) in self.found.iter().take(FINDINGS_MAX) {
            if !text.is_empty() {
                text.push('\n');
            }
            match at {
                None => {
                    let _ = write!(text, "ERROR: <input>:-1:0: {what}");
                }
                Some(at) => tell(&mut text, source, *at as usize, what),
            }
            if text.len() > TEXT_MAX {
                text.truncate(text.floor_char_boundary(TEXT_MAX));
                break;
            }
        }
        CompileError(text)
    }
}

/// One finding with its line and the mark below.
fn tell(text: &mut String, source: &str, at: usize, what: &str) {
    let at = at.min(source.len());
    let before = source.get(..at).unwrap_or(source);
    let line_number = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[line_start..].lines().next().unwrap_or("");
    let ahead = &source[line_start..before.len()];
    let column = ahead.chars().count();
    let _ = write!(text, "ERROR: <input>:{line_number}:{}: {what}", column + 1);
    if line.is_empty() {
        return;
    }
    let line_is_long = line.chars().nth(LINE_MAX).is_some();
    let first = if line_is_long {
        column.saturating_sub(LINE_MAX / 2)
    } else {
        0
    };
    text.push_str("\n | ");
    let shown = line.chars().skip(first).take(LINE_MAX);
    text.extend(shown.map(|c| if c == '\t' { ' ' } else { c }));
    text.push_str("\n | ");
    // Wide characters have wide dots below them, so that the mark stands where it should.
    text.extend(
        ahead
            .chars()
            .skip(first)
            .map(|c| if c.len_utf8() > 1 { '．' } else { '.' }),
    );
    let marked_is_wide = source[before.len()..].chars().next().is_some_and(|c| c.len_utf8() > 1);
    text.push(if marked_is_wide { '＾' } else { '^' });
}
