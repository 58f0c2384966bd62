//! The words of an expression.

use super::source::Findings;

/// Sorts of words, in the order in which messages list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Sort {
    End,
    Equal,
    NotEqual,
    In,
    Less,
    LessEqual,
    GreaterEqual,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    Escaped,
}

const NAMES: [&str; 36] = [
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

/// A set of sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sorts(u64);

impl Sorts {
    pub(super) const fn of(sorts: &[Sort]) -> Sorts {
        let (mut bits, mut i) = (0, 0);
        while i < sorts.len() {
            bits |= 1 << sorts[i] as u64;
            i += 1;
        }
        Sorts(bits)
    }

    pub(super) const fn with(self, sort: Sort) -> Sorts {
        Sorts(self.0 | 1 << sort as u64)
    }

    pub(super) fn has(self, sort: Sort) -> bool {
        self.0 >> sort as u64 & 1 == 1
    }

    /// As messages show a set: `{'[', '('}`, or the one alone.
    pub(super) fn shown(self) -> String {
        let names: Vec<&str> = (0..NAMES.len())
            .filter(|i| self.0 >> i & 1 == 1)
            .map(|i| NAMES[i])
            .collect();
        match &names[..] {
            [one] => (*one).to_owned(),
            _ => format!("{{{}}}", names.join(", ")),
        }
    }
}

/// A word: its sort and its bytes in the expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    pub(super) sort: Sort,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Takes an expression apart. What is no word is told and skipped; the last word is the end.
pub(super) fn words(source: &str, findings: &mut Findings) -> Vec<Word> {
    let bytes = source.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match word(bytes, at) {
            Found::Gap(end) => at = end,
            Found::Word(sort, end) => {
                words.push(Word {
                    sort,
                    start: at as u32,
                    end: end as u32,
                });
                at = end;
            }
            Found::Nothing(wrong) => {
                // The character at which no word was possible any more is part of what is wrong.
                let end = source[wrong..].chars().next().map_or(wrong, |c| wrong + c.len_utf8());
                let shown = source[at..end]
                    .replace('\n', "\\n")
                    .replace('\r', "\\r")
                    .replace('\t', "\\t");
                findings.add(
                    at as u32,
                    format!("Syntax error: token recognition error at: '{shown}'"),
                );
                at = end;
            }
        }
    }
    let end = source.len() as u32;
    words.push(Word {
        sort: Sort::End,
        start: end,
        end,
    });
    words
}

enum Found {
    Word(Sort, usize),
    Gap(usize),
    /// No word begins here; where that became certain.
    Nothing(usize),
}

fn word(bytes: &[u8], at: usize) -> Found {
    let next = bytes.get(at + 1).copied();
    let one = |sort| Found::Word(sort, at + 1);
    let pair = |second: u8, both: Sort, alone: Option<Sort>| match (next == Some(second), alone) {
        (true, _) => Found::Word(both, at + 2),
        (false, Some(sort)) => Found::Word(sort, at + 1),
        (false, None) => Found::Nothing((at + 1).min(bytes.len())),
    };
    match bytes[at] {
        b' ' | b'\t' | b'\r' | b'\n' | 0x0c => Found::Gap(at + 1),
        b'/' if next == Some(b'/') => {
            let len = bytes[at..].iter().take_while(|byte| **byte != b'\n').count();
            Found::Gap(at + len)
        }
        b'=' => pair(b'=', Sort::Equal, None),
        b'!' => pair(b'=', Sort::NotEqual, Some(Sort::Not)),
        b'<' => pair(b'=', Sort::LessEqual, Some(Sort::Less)),
        b'>' => pair(b'=', Sort::GreaterEqual, Some(Sort::Greater)),
        b'&' => pair(b'&', Sort::And, None),
        b'|' => pair(b'|', Sort::Or, None),
        b'[' => one(Sort::LeftBracket),
        b']' => one(Sort::RightBracket),
        b'{' => one(Sort::LeftBrace),
        b'}' => one(Sort::RightBrace),
        b'(' => one(Sort::LeftParen),
        b')' => one(Sort::RightParen),
        b'.' if next.is_some_and(|byte| byte.is_ascii_digit()) => number(bytes, at),
        b'.' => one(Sort::Dot),
        b',' => one(Sort::Comma),
        b'-' => one(Sort::Minus),
        b'?' => one(Sort::Question),
        b':' => one(Sort::Colon),
        b'+' => one(Sort::Plus),
        b'*' => one(Sort::Star),
        b'/' => one(Sort::Slash),
        b'%' => one(Sort::Percent),
        b'0'..=b'9' => number(bytes, at),
        b'`' => escaped(bytes, at),
        b'"' | b'\'' => text(bytes, at, at, false, Sort::String),
        b'r' | b'R' if matches!(next, Some(b'"' | b'\'')) => text(bytes, at, at + 1, true, Sort::String),
        b'b' | b'B' if matches!(next, Some(b'"' | b'\'')) => text(bytes, at, at + 1, false, Sort::Bytes),
        b'b' | b'B' if matches!(next, Some(b'r' | b'R')) && matches!(bytes.get(at + 2), Some(b'"' | b'\'')) => {
            text(bytes, at, at + 2, true, Sort::Bytes)
        }
        byte if byte == b'_' || byte.is_ascii_alphabetic() => {
            let len = bytes[at..]
                .iter()
                .take_while(|byte| **byte == b'_' || byte.is_ascii_alphanumeric())
                .count();
            let sort = match &bytes[at..at + len] {
                b"in" => Sort::In,
                b"true" => Sort::True,
                b"false" => Sort::False,
                b"null" => Sort::Null,
                _ => Sort::Identifier,
            };
            Found::Word(sort, at + len)
        }
        _ => Found::Nothing(at),
    }
}

fn number(bytes: &[u8], start: usize) -> Found {
    let digits = |at: usize| at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unsigned = |end: usize, sort: Sort| match bytes.get(end) {
        Some(b'u' | b'U') => Found::Word(Sort::Uint, end + 1),
        _ => Found::Word(sort, end),
    };
    if bytes[start] == b'0' && bytes.get(start + 1) == Some(&b'x') {
        let end = start
            + 2
            + bytes[start + 2..]
                .iter()
                .take_while(|byte| byte.is_ascii_hexdigit())
                .count();
        if end > start + 2 {
            return unsigned(end, Sort::Int);
        }
        return Found::Word(Sort::Int, start + 1);
    }
    let mut end = digits(start);
    let whole = end;
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    if end == whole {
        unsigned(end, Sort::Int)
    } else {
        Found::Word(Sort::Float, end)
    }
}

fn escaped(bytes: &[u8], start: usize) -> Found {
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(byte);
    let end = start + 1 + bytes[start + 1..].iter().take_while(|byte| known(byte)).count();
    if end > start + 1 && bytes.get(end) == Some(&b'`') {
        Found::Word(Sort::Escaped, end + 1)
    } else {
        Found::Nothing(end)
    }
}

/// A text or bytes; `open` is where its quotes begin.
fn text(bytes: &[u8], start: usize, open: usize, raw: bool, sort: Sort) -> Found {
    debug_assert!(start <= open);
    let quote = bytes[open];
    let three = bytes.get(open + 1) == Some(&quote) && bytes.get(open + 2) == Some(&quote);
    let mut at = open + if three { 3 } else { 1 };
    loop {
        let Some(byte) = bytes.get(at).copied() else {
            // `""` is a text, even where a third quote was hoped for.
            return Found::Nothing(bytes.len());
        };
        match byte {
            _ if byte == quote && !three => return Found::Word(sort, at + 1),
            _ if byte == quote && bytes.get(at + 1) == Some(&quote) && bytes.get(at + 2) == Some(&quote) => {
                return Found::Word(sort, at + 3);
            }
            b'\n' | b'\r' if !three => return Found::Nothing(at),
            b'\\' if !raw => match escape_len(&bytes[at..]) {
                Ok(len) => at += len,
                Err(len) => return Found::Nothing((at + len).min(bytes.len())),
            },
            _ => at += 1,
        }
    }
}

/// The length of an escape sequence in bytes; or where it stopped being one.
fn escape_len(bytes: &[u8]) -> Result<usize, usize> {
    let digits = |count: usize, known: fn(&u8) -> bool| {
        let found = bytes.iter().skip(2).take(count).take_while(|byte| known(byte)).count();
        if found == count { Ok(2 + count) } else { Err(2 + found) }
    };
    match bytes.get(1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(2),
        Some(b'x' | b'X') => digits(2, u8::is_ascii_hexdigit),
        Some(b'u') => digits(4, u8::is_ascii_hexdigit),
        Some(b'U') => digits(8, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => digits(2, |byte| (b'0'..=b'7').contains(byte)),
        _ => Err(1),
    }
}

/// What a text or bytes stand for: their bytes, escapes resolved. `None` for escapes that mean nothing.
pub(super) fn unescaped(word: &str, is_bytes: bool) -> Option<Vec<u8>> {
    let body = word.trim_start_matches(['b', 'B']);
    let raw = body.starts_with(['r', 'R']);
    let body = body.trim_start_matches(['r', 'R']);
    let quotes = if body.len() >= 6 && (body.starts_with("\"\"\"") || body.starts_with("'''")) {
        3
    } else {
        1
    };
    let body = body.get(quotes..body.len().checked_sub(quotes)?)?;
    if raw {
        return Some(body.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let len = escape_len(rest.as_bytes()).ok()?;
        let escape = &rest[1..len];
        rest = &rest[len..];
        let simple = match escape.as_bytes()[0] {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            sign @ (b'"' | b'\'' | b'\\' | b'?' | b'`') => sign,
            kind => {
                let (digits, radix) = if kind.is_ascii_digit() {
                    (escape, 8)
                } else {
                    (&escape[1..], 16)
                };
                let number = u32::from_str_radix(digits, radix).ok()?;
                if !is_bytes {
                    let mut buffer = [0; 4];
                    out.extend_from_slice(char::from_u32(number)?.encode_utf8(&mut buffer).as_bytes());
                } else if matches!(kind, b'u' | b'U') {
                    return None;
                } else {
                    out.push(number as u8);
                }
                continue;
            }
        };
        out.push(simple);
    }
    out.extend_from_slice(rest.as_bytes());
    Some(out)
}
