//! What is wrong with JSON that is not well-formed, in the words of Go's scanner, which clients of kube-apiserver see.
//!
//! Runs only after another parser has failed, so it trades speed for wording.

/// Containers open at once beyond this are an error, as in Go.
const DEPTH_MAX: usize = 10_000;

/// The fault of `body`, or none if it is well-formed.
pub(crate) fn fault(body: &[u8]) -> Option<String> {
    let mut scan = Scan { body, at: 0 };
    scan.document().err()
}

struct Scan<'b> {
    body: &'b [u8],
    at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The fault at the current byte, `context` saying where it stands.
    fn wrong<T>(&self, context: &str) -> Result<T, String> {
        match self.peek() {
            None => Err("unexpected end of JSON input".to_owned()),
            Some(byte) => Err(format!("invalid character {} {context}", quoted(byte))),
        }
    }

    fn document(&mut self) -> Result<(), String> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            // At the beginning of a value; a closing bracket may stand here right after the opening one.
            self.space();
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    open.push(Open::Object);
                    if open.len() > DEPTH_MAX {
                        return Err("exceeded max depth".to_owned());
                    }
                    self.space();
                    if self.peek() != Some(b'}') {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    open.push(Open::Array);
                    if open.len() > DEPTH_MAX {
                        return Err("exceeded max depth".to_owned());
                    }
                    self.space();
                    if self.peek() != Some(b']') {
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // After a value: close what can be closed, then a comma or the end.
            loop {
                self.space();
                match (open.last(), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, _) => return self.wrong("after top-level value"),
                    (Some(Open::Object), Some(b'}')) | (Some(Open::Array), Some(b']')) => {
                        self.at += 1;
                        open.pop();
                    }
                    (Some(Open::Object), Some(b',')) => {
                        self.at += 1;
                        self.space();
                        self.key()?;
                        break;
                    }
                    (Some(Open::Array), Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Some(Open::Object), _) => return self.wrong("after object key:value pair"),
                    (Some(Open::Array), _) => return self.wrong("after array element"),
                }
            }
        }
    }

    fn key(&mut self) -> Result<(), String> {
        if self.peek() != Some(b'"') {
            return self.wrong("looking for beginning of object key string");
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return self.wrong("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.wrong("looking for beginning of value"),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return self.wrong(&format!("in literal {word} (expecting {})", quoted(expected)));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return self.wrong("in \\u hexadecimal character escape");
                                }
                                self.at += 1;
                            }
                        }
                        _ => return self.wrong("in string escape code"),
                    }
                }
                Some(byte) if byte >= 0x20 => self.at += 1,
                _ => return self.wrong("in string literal"),
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.wrong("in numeric literal"),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return self.wrong("after decimal point in numeric literal");
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return self.wrong("in exponent of numeric literal");
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }
}

/// A byte as Go quotes a character.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa0 => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_in_the_words_of_go() {
        for (body, text) in [
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            ("", "unexpected end of JSON input"),
            ("{\"kind\":\"ConfigMap\"", "unexpected end of JSON input"),
            ("data:\n", "invalid character 'd' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("tru", "unexpected end of JSON input"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\q\"", "invalid character 'q' in string escape code"),
            (
                "\"\\u12g4\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e,", "invalid character ',' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
        ] {
            assert_eq!(fault(body.as_bytes()).as_deref(), Some(text), "{body}");
        }
    }

    #[test]
    fn well_formed_json_has_no_fault() {
        for body in [
            "{}",
            " [ ] ",
            "{\"a\":[1,{\"b\":null}],\"c\":-0.5e+7}",
            "\"\\u00e9é\"",
            "[[],{}]",
            "true",
        ] {
            assert_eq!(fault(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion() {
        assert_eq!(
            fault("[".repeat(3_000_000).as_bytes()).as_deref(),
            Some("exceeded max depth")
        );
    }
}
