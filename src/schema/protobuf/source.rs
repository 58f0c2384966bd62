//! JSON read from left to right, a token at a time: what the encoder walks along.

use super::EncodeError;

/// A place in a text of JSON.
pub(super) struct Source<'a> {
    text: &'a str,
    at: usize,
}

/// What stands between two quotes.
#[derive(Clone, Copy)]
pub(super) enum Quoted<'a> {
    /// As it is.
    Plain(&'a str),
    /// With escapes in it.
    Escaped(&'a str),
}

impl<'a> Source<'a> {
    pub(super) fn new(json: &'a [u8]) -> Result<Source<'a>, EncodeError> {
        let text = std::str::from_utf8(json).map_err(|_| EncodeError::Json("not UTF-8"))?;
        Ok(Source { text, at: 0 })
    }

    /// The next byte that is no space, which stays.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let spaces = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        self.at += spaces;
        rest.get(spaces).copied()
    }

    /// Passes that byte if it is the next.
    pub(super) fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), EncodeError> {
        if self.takes(byte) {
            Ok(())
        } else {
            Err(EncodeError::Json("a value has another form than its field"))
        }
    }

    /// Passes a `null` if it is the next.
    pub(super) fn takes_null(&mut self) -> bool {
        let is_null = self.peek() == Some(b'n');
        if is_null {
            self.word();
        }
        is_null
    }

    /// A number or a word.
    pub(super) fn word(&mut self) -> &'a str {
        let start = self.peek().map_or(self.text.len(), |_| self.at);
        let rest = &self.text.as_bytes()[start..];
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b'"') || byte.is_ascii_whitespace();
        self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
        // Both ends stand beside ASCII.
        self.text.get(start..self.at).unwrap_or("")
    }

    /// A string.
    pub(super) fn quoted(&mut self) -> Result<Quoted<'a>, EncodeError> {
        self.expect(b'"')?;
        let start = self.at;
        let mut is_plain = true;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            let len = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\'))
                .ok_or(EncodeError::Json("a string without an end"))?;
            self.at += len;
            if rest[len] == b'"' {
                break;
            }
            is_plain = false;
            self.at += 2;
        }
        let text = self.text.get(start..self.at).unwrap_or("");
        self.at += 1;
        Ok(if is_plain {
            Quoted::Plain(text)
        } else {
            Quoted::Escaped(text)
        })
    }

    /// A string, or the text of a number or word.
    pub(super) fn quoted_or_word(&mut self) -> Result<Quoted<'a>, EncodeError> {
        if self.peek() == Some(b'"') {
            self.quoted()
        } else {
            Ok(Quoted::Plain(self.word()))
        }
    }

    /// Passes a whole value; its text.
    pub(super) fn skip(&mut self) -> Result<&'a str, EncodeError> {
        let start = self.peek().map_or(self.text.len(), |_| self.at);
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.quoted()?;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') if depth > 0 => self.at += 1,
                Some(_) => {
                    if self.word().is_empty() {
                        return Err(EncodeError::Json("a value is missing"));
                    }
                }
                None => return Err(EncodeError::Json("a value without an end")),
            }
            if depth == 0 {
                return Ok(self.text.get(start..self.at).unwrap_or(""));
            }
        }
    }
}

impl<'a> Quoted<'a> {
    /// The text, when it has no escapes.
    pub(super) fn plain(self) -> Option<&'a str> {
        match self {
            Quoted::Plain(text) => Some(text),
            Quoted::Escaped(_) => None,
        }
    }

    /// Appends the text.
    pub(super) fn append_to(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut rest = match self {
            Quoted::Plain(text) => {
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            Quoted::Escaped(text) => text,
        };
        while let Some((before, after)) = rest.split_once('\\') {
            out.extend_from_slice(before.as_bytes());
            let mut letters = after.chars();
            let letter = letters.next().ok_or(BAD_ESCAPE)?;
            rest = letters.as_str();
            let meant = match letter {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => unit_pair(&mut rest)?,
                other => other,
            };
            out.extend_from_slice(meant.encode_utf8(&mut [0; 4]).as_bytes());
        }
        out.extend_from_slice(rest.as_bytes());
        Ok(())
    }
}

const BAD_ESCAPE: EncodeError = EncodeError::Json("an escape is broken off");

/// The character of one or two escaped units of UTF-16; half of a pair is U+FFFD, as Go reads it.
fn unit_pair(rest: &mut &str) -> Result<char, EncodeError> {
    let high = unit(rest)?;
    if let Some(after) = rest.strip_prefix("\\u").filter(|_| (0xd800..0xdc00).contains(&high)) {
        let mut behind = after;
        let low = unit(&mut behind)?;
        if (0xdc00..0xe000).contains(&low) {
            *rest = behind;
            let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
    Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn unit(rest: &mut &str) -> Result<u32, EncodeError> {
    let digits = rest.get(..4).ok_or(BAD_ESCAPE)?;
    *rest = &rest[4..];
    u32::from_str_radix(digits, 16).map_err(|_| BAD_ESCAPE)
}
