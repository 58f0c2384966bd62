//! JSON values as YAML text, as `sigs.k8s.io/yaml` writes it (go-yaml 2): keys sorted by what people read, the simplest style
//! that reads back as the same value, lines folded at 80 columns, lists not indented below their key.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::Value;

/// Columns after which a line is folded at the next space.
const WIDTH: usize = 80;

/// `value` as a YAML document. O(size); recurses as deep as the value is.
pub(super) fn write(value: &Value) -> String {
    let mut writer = Writer { text: String::new() };
    match value {
        Value::Object(map) if !map.is_empty() => writer.map(map, 0, 0),
        Value::Array(items) if !items.is_empty() => writer.list(items, 0, 0),
        scalar => {
            writer.scalar(scalar, 0, false);
            writer.text.push('\n');
        }
    }
    writer.text
}

struct Writer {
    text: String,
}

impl Writer {
    fn indent(&mut self, columns: usize) {
        self.text.extend(std::iter::repeat_n(' ', columns));
    }

    fn column(&self) -> usize {
        let line = self.text.rsplit('\n').next().unwrap_or("");
        line.chars().count()
    }

    /// A mapping whose keys stand at `at`; the first one where the text is now, `ahead` columns of its indentation written.
    fn map(&mut self, map: &serde_json::Map<String, Value>, at: usize, ahead: usize) {
        let mut keys: Vec<&String> = map.keys().collect();
        keys.sort_by(|one, other| key_order(one, other));
        for (i, key) in keys.into_iter().enumerate() {
            self.indent(if i == 0 { at - ahead } else { at });
            self.key(key, at);
            match &map[key] {
                Value::Object(inner) if !inner.is_empty() => {
                    self.text.push('\n');
                    self.map(inner, at + 2, 0);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.text.push('\n');
                    self.list(items, at, 0);
                }
                scalar => {
                    self.text.push(' ');
                    self.scalar(scalar, at + 2, false);
                    self.text.push('\n');
                }
            }
        }
    }

    /// A key and its colon; one that is long or has several lines needs a question mark before it.
    fn key(&mut self, key: &str, at: usize) {
        if key.len() > 128 || key.contains('\n') {
            self.text.push_str("? ");
            self.string(key, at + 2, false);
            self.text.push('\n');
            self.indent(at);
            self.text.push(':');
        } else {
            self.string(key, at + 2, true);
            self.text.push(':');
        }
    }

    /// A list whose dashes stand at `at`.
    fn list(&mut self, items: &[Value], at: usize, ahead: usize) {
        for (i, item) in items.iter().enumerate() {
            self.indent(if i == 0 { at - ahead } else { at });
            self.text.push_str("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.map(map, at + 2, at + 2),
                Value::Array(inner) if !inner.is_empty() => self.list(inner, at + 2, at + 2),
                scalar => {
                    self.scalar(scalar, at + 2, false);
                    self.text.push('\n');
                }
            }
        }
    }

    /// A value on one line, or a text folded to lines that begin at `indent`.
    fn scalar(&mut self, value: &Value, indent: usize, simple: bool) {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(value) => {
                let _ = write!(self.text, "{value}");
            }
            Value::Number(number) => {
                let text = number.to_string();
                self.text.push_str(&float_text(&text));
            }
            Value::String(text) => self.string(text, indent, simple),
            Value::Array(_) => self.text.push_str("[]"),
            Value::Object(_) => self.text.push_str("{}"),
        }
    }

    fn string(&mut self, text: &str, indent: usize, simple: bool) {
        let facts = Facts::of(text);
        if text.contains('\n') && facts.block && !simple {
            return self.literal(text, indent);
        }
        let multiline = text.contains('\n');
        if !multiline && stays_text(text) && facts.plain {
            self.folded(text, indent, simple, |writer, piece| writer.text.push_str(piece));
        } else if !multiline && stays_text(text) && facts.single {
            self.text.push('\'');
            let escaped = text.replace('\'', "''");
            self.folded(&escaped, indent, simple, |writer, piece| writer.text.push_str(piece));
            self.text.push('\'');
        } else {
            self.double(text, indent, simple);
        }
    }

    /// Writes the words of a text; a single space after column 80 becomes a new line.
    fn folded(&mut self, text: &str, indent: usize, simple: bool, write: impl Fn(&mut Self, &str)) {
        let mut column = self.column();
        let mut characters = text.chars().peekable();
        let mut after_space = false;
        let mut first = true;
        let mut buffer = [0; 4];
        while let Some(letter) = characters.next() {
            let next_is_space = characters.peek() == Some(&' ');
            let last = characters.peek().is_none();
            if letter == ' ' {
                if !simple && !after_space && column > WIDTH && !first && !last && !next_is_space {
                    self.text.push('\n');
                    self.indent(indent);
                    column = indent;
                } else {
                    self.text.push(' ');
                    column += 1;
                }
                after_space = true;
            } else {
                write(self, letter.encode_utf8(&mut buffer));
                column += 1;
                after_space = false;
            }
            first = false;
        }
    }

    /// A text of several lines, as it is, below a `|`.
    fn literal(&mut self, text: &str, indent: usize) {
        self.text.push('|');
        if text.starts_with([' ', '\n']) {
            self.text.push('2');
        }
        let body = text.strip_suffix('\n');
        match body {
            None => self.text.push('-'),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.text.push('+'),
            Some(_) => {}
        }
        for line in body.unwrap_or(text).split('\n') {
            self.text.push('\n');
            if !line.is_empty() {
                self.indent(indent);
                self.text.push_str(line);
            }
        }
    }

    fn double(&mut self, text: &str, indent: usize, simple: bool) {
        self.text.push('"');
        let mut column = self.column();
        let mut after_space = false;
        let count = text.chars().count();
        let mut characters = text.chars().enumerate().peekable();
        while let Some((i, letter)) = characters.next() {
            let before = self.text.len();
            if letter == ' ' && !simple && !after_space && column > WIDTH && i > 0 && i + 1 < count {
                self.text.push('\n');
                self.indent(indent);
                column = indent;
                if characters.peek().is_some_and(|(_, next)| *next == ' ') {
                    self.text.push('\\');
                    column += 1;
                }
                after_space = true;
                continue;
            }
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\0' => self.text.push_str("\\0"),
                '\u{7}' => self.text.push_str("\\a"),
                '\u{8}' => self.text.push_str("\\b"),
                '\t' => self.text.push_str("\\t"),
                '\n' => self.text.push_str("\\n"),
                '\u{b}' => self.text.push_str("\\v"),
                '\u{c}' => self.text.push_str("\\f"),
                '\r' => self.text.push_str("\\r"),
                '\u{1b}' => self.text.push_str("\\e"),
                '\u{85}' => self.text.push_str("\\N"),
                '\u{a0}' => self.text.push_str("\\_"),
                '\u{2028}' => self.text.push_str("\\L"),
                '\u{2029}' => self.text.push_str("\\P"),
                letter if is_printable(letter) => self.text.push(letter),
                letter => {
                    let code = u32::from(letter);
                    let _ = match code {
                        0..=0xff => write!(self.text, "\\x{code:02X}"),
                        0x100..=0xffff => write!(self.text, "\\u{code:04X}"),
                        _ => write!(self.text, "\\U{code:08X}"),
                    };
                }
            }
            column += self.text[before..].chars().count();
            after_space = letter == ' ';
        }
        self.text.push('"');
    }
}

/// A number as go-yaml writes it: whole ones in full, others with an exponent where Go's `%g` has one.
fn float_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['.', 'e', 'E']) {
        return Cow::Borrowed(text);
    }
    let value: f64 = text.parse().unwrap_or(0.0);
    if value.fract() == 0.0 && value.abs() < 1e18 {
        return Cow::Owned(format!("{value}"));
    }
    let scientific = format!("{value:e}");
    match scientific
        .split_once('e')
        .map(|(digits, exponent)| (digits, exponent.parse::<i32>()))
    {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            Cow::Owned(format!("{digits}e{sign}{:02}", exponent.unsigned_abs()))
        }
        _ => Cow::Owned(format!("{value}")),
    }
}

fn is_printable(letter: char) -> bool {
    let code = u32::from(letter);
    letter == '\n'
        || (0x20..=0x7e).contains(&code)
        || (0xa0..=0xd7ff).contains(&code)
        || ((0xe000..=0xfffd).contains(&code) && code != 0xfeff)
}

/// In which styles a text can be written.
struct Facts {
    plain: bool,
    /// Asked of texts of one line only.
    single: bool,
    block: bool,
}

impl Facts {
    fn of(text: &str) -> Facts {
        if text.is_empty() {
            return Facts {
                plain: false,
                single: true,
                block: false,
            };
        }
        let characters: Vec<char> = text.chars().collect();
        let is_blank =
            |place: Option<&char>| place.is_none_or(|letter| matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{85}'));
        let (mut indicators, mut special) = (text.starts_with("---") || text.starts_with("..."), false);
        let mut space_break = false;
        let mut before_blank = true;
        for (i, letter) in characters.iter().enumerate() {
            let followed_by_blank = is_blank(characters.get(i + 1));
            if i == 0 {
                match letter {
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
                        indicators = true;
                    }
                    '?' | ':' | '-' if followed_by_blank => indicators = true,
                    _ => {}
                }
            } else {
                match letter {
                    ':' if followed_by_blank => indicators = true,
                    '#' if before_blank => indicators = true,
                    _ => {}
                }
            }
            if !is_printable(*letter) {
                special = true;
            }
            if *letter == ' ' && characters.get(i + 1) == Some(&'\n') {
                space_break = true;
            }
            before_blank = is_blank(Some(letter));
        }
        let trailing_space = text.ends_with(' ');
        let breaks = text.contains('\n');
        let edges = text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        Facts {
            plain: !indicators && !special && !edges && !breaks,
            single: !special,
            block: !special && !space_break && !trailing_space,
        }
    }
}

/// Whether a text without quotes is read back as that text, not as a number, a time, a truth.
fn stays_text(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "true",
        "True", "TRUE", "false", "False", "FALSE", "~", "null", "Null", "NULL", ".nan", ".NaN", ".NAN", ".inf", ".Inf",
        ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF", "<<", "",
    ];
    if WORDS.contains(&text) {
        return false;
    }
    let first = text.as_bytes()[0];
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return true;
    }
    !(is_number(text) || is_time(text) || is_base_60(text))
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    let unsigned = plain.strip_prefix(['-', '+']).unwrap_or(&plain);
    let with_base = |prefix: &str, base: u32| {
        unsigned
            .strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base)))
    };
    if with_base("0b", 2) || with_base("0x", 16) || with_base("0X", 16) || with_base("0o", 8) || with_base("0B", 2) {
        return true;
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    exponent && digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty())
}

/// `2001-12-14`, `2001-12-14T21:59:43Z` and what go-yaml takes beside them.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let year = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if year != 4 || bytes.get(4) != Some(&b'-') {
        return false;
    }
    let part = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = &text[5..];
    let Some((month, rest)) = rest.split_once('-') else {
        return false;
    };
    let day_len = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !part(month) || !part(&rest[..day_len]) {
        return false;
    }
    let clock = &rest[day_len..];
    if clock.is_empty() {
        // A date alone is one only with two digits each.
        return month.len() == 2 && day_len == 2;
    }
    let Some(clock) = clock.strip_prefix(['T', 't', ' ']) else {
        return false;
    };
    let mut parts = clock.splitn(3, ':');
    let (hour, minute, seconds) = (parts.next(), parts.next(), parts.next());
    hour.is_some_and(part)
        && minute.is_some_and(part)
        && seconds.is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()))
}

/// Numbers of old in base 60, `12:30:45`: quoted so that older readers do not take them for such.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let Some(first) = parts.next() else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut more = false;
    for part in parts {
        more = true;
        let whole = part.split('.').next().unwrap_or("");
        if !(1..=2).contains(&whole.len()) || !digits(whole) {
            return false;
        }
        let rest = &part[whole.len()..];
        if !rest.is_empty() && !rest[1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
            return false;
        }
    }
    more && digits(first)
}

/// The order of keys: letters after all else, numbers by their value.
fn key_order(one: &str, other: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            continue;
        }
        let letters = (a[i].is_alphabetic(), b[i].is_alphabetic());
        match letters {
            (true, true) => return a[i].cmp(&b[i]),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        let zero = a[i] == '0' || b[i] == '0';
        // Digits before decide whether a zero counts.
        let before = a[..i]
            .iter()
            .rev()
            .take_while(|digit| digit.is_numeric())
            .any(|digit| *digit != '0');
        let start = u128::from(zero && before);
        let number = |text: &[char]| {
            let digits: Vec<u32> = text.iter().map_while(|digit| digit.to_digit(10)).collect();
            let value = digits.iter().fold(start, |value, digit| {
                value.saturating_mul(10).saturating_add(u128::from(*digit))
            });
            (value, digits.len())
        };
        let ((an, ai), (bn, bi)) = (number(&a[i..]), number(&b[i..]));
        return an.cmp(&bn).then(ai.cmp(&bi)).then(a[i].cmp(&b[i]));
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_as_go_yaml_writes_them() {
        for (value, text) in [
            (
                json!({"b": 1, "a": {"c": [1, {"x": "y", "z": []}], "d": {}}}),
                "a:\n  c:\n  - 1\n  - x: \"y\"\n    z: []\n  d: {}\nb: 1\n",
            ),
            (json!([[1, 2], ["a"]]), "- - 1\n  - 2\n- - a\n"),
            (json!({"s": ""}), "s: \"\"\n"),
            (
                json!({"s": "true", "n": "1.10", "t": "2020-01-01", "x": "2020-01-01T00:00:00Z", "e": "1e3"}),
                "e: \"1e3\"\n\"n\": \"1.10\"\ns: \"true\"\nt: \"2020-01-01\"\nx: \"2020-01-01T00:00:00Z\"\n",
            ),
            (
                json!({"a": "x: y", "b": "- a", "c": "#c", "d": "it's", "e": "a #b", "f": "'q'"}),
                "a: 'x: y'\nb: '- a'\nc: '#c'\nd: it's\ne: 'a #b'\nf: '''q'''\n",
            ),
            (
                json!({"l": "one\ntwo\n", "m": "one\ntwo", "o": "one\n\n"}),
                "l: |\n  one\n  two\nm: |-\n  one\n  two\no: |+\n  one\n\n",
            ),
            (
                json!({"t": "a\tb", "c": "\u{1}", "u": "é", "d": " lead"}),
                "c: \"\\x01\"\nd: ' lead'\nt: \"a\\tb\"\nu: é\n",
            ),
            (
                json!({"k10": 1, "k9": 2, "K": 3, "10": 4}),
                "\"10\": 4\nK: 3\nk9: 2\nk10: 1\n",
            ),
            (json!("plain"), "plain\n"),
            (
                json!({"f": 1.5, "g": 1e6, "h": null, "i": 1_234_567.5, "j": 0.00001}),
                "f: 1.5\ng: 1000000\nh: null\ni: 1.2345675e+06\nj: 1e-05\n",
            ),
        ] {
            assert_eq!(write(&value), text, "{value}");
        }
    }

    #[test]
    fn long_texts_are_folded_after_eighty_columns() {
        let message = "only the following media types are accepted: application/json;stream=watch, \
                       application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(
            write(&json!({"message": message})),
            "message: 'only the following media types are accepted: application/json;stream=watch,\n  \
             application/vnd.kubernetes.protobuf;stream=watch'\n"
        );
        let words = "word ".repeat(30);
        let text = write(&json!({"a": {"b": words.trim_end()}}));
        assert!(text.lines().all(|line| line.len() < 90), "{text}");
        assert!(text.lines().skip(2).all(|line| line.starts_with("    word")), "{text}");
    }
}
