//! Go's regular expressions (RE2 syntax), as CRDs and CEL have them, on the `regex` crate.
//!
//! Both are automata without backtracking, so matching takes time linear in the text. Their syntax differs in places: Go's `\d`,
//! `\w`, `\s` and `\b` know ASCII alone, `{` may stand for itself, sets know no `&&`, and what Rust takes for a word's start (`\<`)
//! is a character in Go. So an expression is parsed here by Go's grammar, with Go's complaints, and written anew.

use regex::{Regex, RegexBuilder};

/// Largest compiled expression, in bytes. Go has bounds of its own that lie higher for some expressions and lower for others.
const SIZE_MAX: usize = 1 << 20;
/// Largest cache of states while matching, in bytes; what needs more is matched slower.
const CACHE_MAX: usize = 1 << 18;
/// Groups within groups, as in Go.
const DEPTH_MAX: usize = 1_000;
/// Most repetitions of one counted expression, those of what it stands in multiplied, as in Go.
const REPEAT_MAX: u64 = 1_000;

/// Compiles an expression. Matches anywhere in a text, as Go's `MatchString`.
///
/// # Errors
/// Go's text: ``error parsing regexp: missing closing ]: `[a` ``.
pub(crate) fn compile(expression: &str) -> Result<Regex, String> {
    let translated = translate(expression)?;
    RegexBuilder::new(&translated)
        .size_limit(SIZE_MAX)
        .dfa_size_limit(CACHE_MAX)
        .nest_limit(DEPTH_MAX as u32 + 10)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => fault("expression too large", expression),
            // What is left are names of character properties that are none.
            _ => fault("invalid character class range", expression),
        })
}

/// Whether an expression follows Go's grammar; cheaper than [`compile`].
///
/// # Errors
/// As [`compile`], but for unknown properties and expressions that compile to too much.
pub(crate) fn check(expression: &str) -> Result<(), String> {
    translate(expression).map(|_| ())
}

fn fault(code: &str, fragment: &str) -> String {
    format!("error parsing regexp: {code}: `{fragment}`")
}

/// The expression in the `regex` crate's syntax.
fn translate(expression: &str) -> Result<String, String> {
    let mut parser = Parser {
        whole: expression,
        rest: expression,
        out: String::with_capacity(expression.len() + 8),
        groups: Vec::new(),
        last: Last::Nothing,
        last_start: 0,
        last_repeats: 1,
        previous_repeat: None,
    };
    parser.run()?;
    Ok(parser.out)
}

/// What a repetition would repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Atom,
}

struct Group {
    /// Where it begins in the output.
    start: usize,
    /// Greatest product of counted repetitions within.
    repeats: u64,
}

struct Parser<'e> {
    whole: &'e str,
    rest: &'e str,
    out: String,
    groups: Vec<Group>,
    last: Last,
    /// Where the last atom begins in the output.
    last_start: usize,
    /// Greatest product of counted repetitions in it.
    last_repeats: u64,
    /// The input from the repetition on that was just read.
    previous_repeat: Option<&'e str>,
}

impl<'e> Parser<'e> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.chars().next() {
            let repeat_before = self.previous_repeat.take();
            let before = self.rest;
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.out.push('|');
                    self.rest = &self.rest[1..];
                    self.last = Last::Nothing;
                }
                '^' | '$' | '.' => {
                    self.begin_atom();
                    self.out.push(c);
                    self.rest = &self.rest[1..];
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.rest = &self.rest[1..];
                    self.repeat(&c.to_string(), 1, before, repeat_before)?;
                }
                '{' => match count(self.rest) {
                    None => {
                        self.begin_atom();
                        self.out.push_str("\\{");
                        self.rest = &self.rest[1..];
                    }
                    Some((min, max, rest)) => {
                        self.rest = rest;
                        let (low, high) = (min.unwrap_or(REPEAT_MAX + 1), max.unwrap_or(0));
                        let backwards = max.is_some_and(|max| low > max);
                        if low > REPEAT_MAX || high > REPEAT_MAX || backwards {
                            return Err(fault("invalid repeat count", consumed(before, rest)));
                        }
                        let written = &before[..before.len() - rest.len()];
                        self.repeat(written, low.max(high).max(1), before, repeat_before)?;
                    }
                },
                '\\' => self.escape()?,
                c => {
                    self.begin_atom();
                    push_literal(&mut self.out, c);
                    self.rest = &self.rest[c.len_utf8()..];
                }
            }
        }
        if self.groups.is_empty() {
            Ok(())
        } else {
            Err(fault("missing closing )", self.whole))
        }
    }

    fn begin_atom(&mut self) {
        self.last = Last::Atom;
        self.last_start = self.out.len();
        self.last_repeats = 1;
    }

    fn open(&mut self) -> Result<(), String> {
        if self.groups.len() >= DEPTH_MAX {
            return Err(fault("expression nests too deeply", self.whole));
        }
        if self.rest.starts_with("(?") {
            return self.flags();
        }
        self.push_group("(?:", 1);
        Ok(())
    }

    fn push_group(&mut self, written: &str, read: usize) {
        self.groups.push(Group {
            start: self.out.len(),
            repeats: 1,
        });
        self.out.push_str(written);
        self.rest = &self.rest[read..];
        self.last = Last::Nothing;
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(group) = self.groups.pop() else {
            return Err(fault("unexpected )", self.whole));
        };
        self.out.push(')');
        self.rest = &self.rest[1..];
        self.last = Last::Atom;
        self.last_start = group.start;
        self.last_repeats = group.repeats;
        self.note_repeats(group.repeats);
        Ok(())
    }

    /// The group around knows what is repeated within.
    fn note_repeats(&mut self, repeats: u64) {
        if let Some(around) = self.groups.last_mut() {
            around.repeats = around.repeats.max(repeats);
        }
    }

    /// `(?flags)`, `(?flags:`, `(?P<name>`, `(?<name>`.
    fn flags(&mut self) -> Result<(), String> {
        let start = self.rest;
        for named in ["(?P<", "(?<"] {
            let Some(after) = start.strip_prefix(named) else {
                continue;
            };
            let Some(end) = after.find('>') else {
                return Err(fault("invalid named capture", start));
            };
            let name = &after[..end];
            let fine = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let whole = named.len() + end + 1;
            if !fine {
                return Err(fault("invalid named capture", &start[..whole]));
            }
            self.push_group("(?:", whole);
            return Ok(());
        }
        let (mut negated, mut any_since) = (false, false);
        let body = &start[2..];
        for (at, c) in body.char_indices() {
            match c {
                'i' | 'm' | 's' | 'U' => any_since = true,
                '-' if !negated => {
                    negated = true;
                    any_since = false;
                }
                ':' | ')' => {
                    if negated && !any_since {
                        return Err(fault("invalid or unsupported Perl syntax", &start[..=2 + at]));
                    }
                    let written = &start[..=2 + at];
                    if c == ':' {
                        self.push_group(written, written.len());
                    } else {
                        // `(?)` sets nothing.
                        if at > 0 {
                            self.out.push_str(written);
                        }
                        self.rest = &start[written.len()..];
                        self.last = Last::Nothing;
                    }
                    return Ok(());
                }
                other => {
                    let end = 2 + at + other.len_utf8();
                    return Err(fault("invalid or unsupported Perl syntax", &start[..end]));
                }
            }
        }
        Err(fault("missing closing )", self.whole))
    }

    fn repeat(
        &mut self,
        written: &str,
        times: u64,
        before: &'e str,
        repeat_before: Option<&'e str>,
    ) -> Result<(), String> {
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.rest = &self.rest[1..];
        }
        if let Some(first) = repeat_before {
            return Err(fault("invalid nested repetition operator", consumed(first, self.rest)));
        }
        if self.last == Last::Nothing {
            let read = consumed(before, self.rest);
            let read = if lazy { &read[..read.len() - 1] } else { read };
            return Err(fault("missing argument to repetition operator", read));
        }
        let repeats = self.last_repeats.saturating_mul(times);
        if times > 1 && repeats > REPEAT_MAX {
            return Err(fault("invalid repeat count", consumed(before, self.rest)));
        }
        self.last_repeats = repeats;
        self.note_repeats(repeats);
        self.out.push_str(written);
        if lazy {
            self.out.push('?');
        }
        self.previous_repeat = Some(before);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let start = self.rest;
        self.begin_atom();
        let simple = match start[1..].chars().next() {
            Some('A') => "\\A",
            Some('z') => "\\z",
            Some('b') => "(?-u:\\b)",
            // The ASCII one could match inside a character.
            Some('B') => "\\B",
            Some('C') => return Err(fault("invalid escape sequence", "\\C")),
            Some('Q') => {
                let body = &start[2..];
                let (literal, rest) = body.split_once("\\E").unwrap_or((body, ""));
                for c in literal.chars() {
                    self.begin_atom();
                    push_literal(&mut self.out, c);
                }
                if literal.is_empty() {
                    self.out.push_str("(?:)");
                }
                self.rest = rest;
                return Ok(());
            }
            _ => "",
        };
        if !simple.is_empty() {
            self.out.push_str(simple);
            self.rest = &start[2..];
            return Ok(());
        }
        if let Some((class, rest)) = perl_class(start) {
            self.out.push_str(class);
            self.rest = rest;
            return Ok(());
        }
        if let Some((property, rest)) = property(start)? {
            self.out.push_str(&property);
            self.rest = rest;
            return Ok(());
        }
        let (c, rest) = character(start)?;
        push_literal(&mut self.out, c);
        self.rest = rest;
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        self.begin_atom();
        self.out.push('[');
        let mut rest = &whole[1..];
        if let Some(after) = rest.strip_prefix('^') {
            self.out.push('^');
            rest = after;
        }
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if rest.len() > 2
                && rest.starts_with("[:")
                && let Some(end) = rest[2..].find(":]")
            {
                let name = &rest[..end + 4];
                let bare = &rest[2..end + 2];
                let bare = bare.strip_prefix('^').unwrap_or(bare);
                if !POSIX.contains(&bare) {
                    return Err(fault("invalid character class range", name));
                }
                self.out.push_str(name);
                rest = &rest[name.len()..];
                continue;
            }
            if let Some((property, after)) = property(rest)? {
                self.out.push_str(&property);
                rest = after;
                continue;
            }
            if let Some((class, after)) = perl_class(rest) {
                self.out.push_str(class);
                rest = after;
                continue;
            }
            let range = rest;
            let (low, after) = class_character(rest, whole)?;
            rest = after;
            let mut high = low;
            if rest.len() >= 2 && rest.starts_with('-') && !rest[1..].starts_with(']') {
                let (to, after) = class_character(&rest[1..], whole)?;
                rest = after;
                high = to;
                if high < low {
                    return Err(fault("invalid character class range", consumed(range, rest)));
                }
            }
            push_hex(&mut self.out, low);
            if high != low {
                self.out.push('-');
                push_hex(&mut self.out, high);
            }
        }
        self.out.push(']');
        self.rest = &rest[1..];
        Ok(())
    }
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// What was read between two points.
fn consumed<'e>(from: &'e str, to: &str) -> &'e str {
    &from[..from.len() - to.len()]
}

/// `{n}`, `{n,}`, `{n,m}` at the beginning: least, most (none: as often as one likes), what comes after. A number that is far
/// too large is `None` as least and more than any bound as most. Anything else is no count but text.
fn count(text: &str) -> Option<(Option<u64>, Option<u64>, &str)> {
    let rest = text.strip_prefix('{')?;
    let (min, rest) = number(rest)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((min, min.or(Some(u64::MAX)), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((min, None, rest));
    }
    let (max, rest) = number(rest)?;
    let rest = rest.strip_prefix('}')?;
    Some((min, max.or(Some(u64::MAX)), rest))
}

/// A number without leading zeros; `None` inside when it is huge.
fn number(text: &str) -> Option<(Option<u64>, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(len);
    if digits.is_empty() || len > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().ok().filter(|n| *n < 100_000_000), rest))
}

/// `\d` and its like.
fn perl_class(text: &str) -> Option<(&'static str, &str)> {
    let class = match text.as_bytes().get(..2)? {
        b"\\d" => "[0-9]",
        b"\\D" => "[^0-9]",
        b"\\w" => "[0-9A-Za-z_]",
        b"\\W" => "[^0-9A-Za-z_]",
        b"\\s" => "[\\t\\n\\x0C\\r ]",
        b"\\S" => "[^\\t\\n\\x0C\\r ]",
        _ => return None,
    };
    Some((class, &text[2..]))
}

/// `\pL`, `\p{Greek}`, `\P{^Lu}`.
fn property(text: &str) -> Result<Option<(String, &str)>, String> {
    let Some(letter @ ('p' | 'P')) = text.strip_prefix('\\').and_then(|rest| rest.chars().next()) else {
        return Ok(None);
    };
    let after = &text[2..];
    let mut negated = letter == 'P';
    let (name, rest) = if let Some(body) = after.strip_prefix('{') {
        let Some(end) = body.find('}') else {
            return Err(fault("invalid character class range", text));
        };
        (&body[..end], &body[end + 1..])
    } else {
        let Some(c) = after.chars().next() else {
            return Err(fault("invalid character class range", text));
        };
        after.split_at(c.len_utf8())
    };
    let bare = if let Some(bare) = name.strip_prefix('^') {
        negated = !negated;
        bare
    } else {
        name
    };
    let known = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    if !known {
        return Err(fault("invalid character class range", consumed(text, rest)));
    }
    let letter = if negated { 'P' } else { 'p' };
    Ok(Some((format!("\\{letter}{{{bare}}}"), rest)))
}

fn class_character<'e>(text: &'e str, whole: &str) -> Result<(char, &'e str), String> {
    match text.chars().next() {
        None => Err(fault("missing closing ]", whole)),
        Some('\\') => character(text),
        Some(c) => Ok((c, &text[c.len_utf8()..])),
    }
}

/// A character written with a backslash.
fn character(text: &str) -> Result<(char, &str), String> {
    let mut chars = text[1..].chars();
    let Some(c) = chars.next() else {
        return Err(fault("trailing backslash at end of expression", ""));
    };
    let wrong = |rest: &str| Err(fault("invalid escape sequence", consumed(text, rest)));
    let rest = chars.as_str();
    let octal = |rest: &str| {
        let more = rest.bytes().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
        let digits = &text[1..2 + more];
        let value = u32::from_str_radix(digits, 8).unwrap_or(0);
        (char::from_u32(value).unwrap_or('\0'), more)
    };
    let plain = match c {
        '1'..='7' => {
            if !rest.starts_with(|c: char| ('0'..='7').contains(&c)) {
                return wrong(rest);
            }
            let (c, more) = octal(rest);
            return Ok((c, &rest[more..]));
        }
        '0' => {
            let (c, more) = octal(rest);
            return Ok((c, &rest[more..]));
        }
        'x' => {
            let (digits, rest) = if let Some(body) = rest.strip_prefix('{') {
                let len = body.bytes().take_while(u8::is_ascii_hexdigit).count();
                match body[len..].strip_prefix('}') {
                    Some(rest) if len > 0 => (&body[..len], rest),
                    _ => {
                        let next = body[len..].chars().next().map_or(0, char::len_utf8);
                        return wrong(&body[len + next..]);
                    }
                }
            } else {
                let len = rest.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
                if len < 2 {
                    let next = rest[len..].chars().next().map_or(0, char::len_utf8);
                    return wrong(&rest[len + next..]);
                }
                rest.split_at(2)
            };
            let value = u32::from_str_radix(digits, 16).ok().filter(|value| *value <= 0x10_FFFF);
            return match value {
                // Go has halves of surrogate pairs as characters; no text here contains one.
                Some(value) => Ok((char::from_u32(value).unwrap_or('\u{FFFD}'), rest)),
                None => wrong(rest),
            };
        }
        'a' => '\x07',
        'f' => '\x0C',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0B',
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return wrong(rest),
    };
    Ok((plain, rest))
}

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() || c == '_' || c == ' ' {
        out.push(c);
    } else {
        push_hex(out, c);
    }
}

fn push_hex(out: &mut String, c: char) {
    use std::fmt::Write as _;
    if c.is_ascii_alphanumeric() {
        out.push(c);
    } else {
        // A `String` takes everything.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(c));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, text: &str) -> bool {
        compile(expression)
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
            .is_match(text)
    }

    #[test]
    fn what_is_a_class_in_go_knows_ascii_alone() {
        assert!(matches(r"^\d+$", "0123"));
        assert!(!matches(r"^\d+$", "٣"));
        assert!(!matches(r"^\w+$", "é"));
        assert!(matches(r"^\W$", "é"));
        assert!(!matches(r"^\s$", "\u{a0}"));
        assert!(matches(r"^[\w.-]+$", "a_b.c-d"));
        assert!(matches(r"a\b", "aé"));
    }

    #[test]
    fn what_is_special_to_the_crate_alone_is_text() {
        for (expression, text) in [
            ("^a{$", "a{"),
            ("^{,3}$", "{,3}"),
            ("^a{1,b}$", "a{1,b}"),
            ("^[a&&b]+$", "a&b"),
            ("^[+--]+$", "+,-"),
            ("^[[]$", "["),
            (r"^\<x\>$", "<x>"),
            ("^[a~~b]+$", "~"),
            (r"^\Qa.b*\E+$", "a.b**"),
            (r"^\101\x42\x{43}$", "ABC"),
            ("^#x y$", "#x y"),
            ("^[]a]+$", "a]"),
            ("^[^]a]$", "b"),
            ("^[a-]$", "-"),
            ("(?P<year>\\d{4})-(?<m>\\d\\d)", "on 2026-01"),
            ("(?i)^ABC$", "aBc"),
            ("(?s)^a.b$", "a\nb"),
            ("^(?:a|)$", ""),
            ("^$", ""),
        ] {
            assert!(matches(expression, text), "{expression} on {text}");
        }
        assert!(!matches("^a.b$", "a\nb"));
        assert!(!matches("^a$", "a\n"));
        assert!(matches("b", "abc"));
    }

    #[test]
    fn complaints_are_those_of_go() {
        for (expression, complaint) in [
            ("[a", "missing closing ]: `[a`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*?+", "invalid nested repetition operator: `*?+`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("(|*)", "missing argument to repetition operator: `*`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[[:word2:]]", "invalid character class range: `[:word2:]`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?<n", "invalid named capture: `(?<n`"),
            ("(?P<n-x>a)", "invalid named capture: `(?P<n-x>`"),
            (r"\8", "invalid escape sequence: `\\8`"),
            (r"\1", "invalid escape sequence: `\\1`"),
            (r"\y", "invalid escape sequence: `\\y`"),
            (r"\Z", "invalid escape sequence: `\\Z`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            (r"\pX", "invalid character class range: `\\pX`"),
        ] {
            assert_eq!(
                compile(expression).map(|_| ()),
                Err(format!("error parsing regexp: {complaint}")),
                "{expression}"
            );
        }
    }

    #[test]
    fn an_expression_that_would_be_huge_is_refused() {
        let error = compile(r"(\pL{500}|\pN{500}){2}").unwrap_err();
        assert!(error.contains("expression too large"), "{error}");
        let deep = "(".repeat(2_000);
        assert!(check(&deep).unwrap_err().contains("nests too deeply"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_expression_or_a_complaint(text in "[a-c(){}\\[\\]*+?|^$.\\\\0-9,:PQEpx<>&~-]{0,24}") {
            if let Err(error) = compile(&text) {
                proptest::prop_assert!(error.starts_with("error parsing regexp: "));
            }
        }
    }
}
