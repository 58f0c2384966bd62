//! The grammar of `labelSelector`.
//!
//! Grammar and error texts are those of `k8s.io/apimachinery/pkg/labels`, since people search for the texts:
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = [ "!" ] key | key ( "=" | "==" | "!=" | ">" | "<" ) value | key ( "in" | "notin" ) "(" values ")"
//! ```

use std::collections::BTreeSet;

use super::quote::quoted;
use crate::store::Requirement;

/// Parses a label selector. The empty selector has no requirements.
///
/// # Errors
/// The text that kube-apiserver answers a malformed selector with (400 `BadRequest`).
pub(in crate::api) fn parse(selector: &str) -> Result<Vec<Requirement>, String> {
    let tokens = Lexer::new(selector).tokens();
    let mut parser = Parser { tokens, position: 0 };
    parser.selector()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Error,
    End,
    ClosedParenthesis,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Above,
    Identifier,
    In,
    Below,
    NotEquals,
    NotIn,
    OpenParenthesis,
}

/// Keywords and operators; anything else made of letters is an identifier.
fn keyword(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::ClosedParenthesis,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Above,
        "in" => Token::In,
        "<" => Token::Below,
        "!=" => Token::NotEquals,
        "notin" => Token::NotIn,
        "(" => Token::OpenParenthesis,
        _ => return None,
    })
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

/// Works on bytes: every byte that ends a token is ASCII, so slices never split a character.
struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str) -> Self {
        // Upstream's lexer takes a NUL for the end of the text.
        let end = text.find('\0').unwrap_or(text.len());
        Self {
            text: &text[..end],
            position: 0,
        }
    }

    /// All tokens with their literals; the last is always [`Token::End`]. At most one token a byte.
    fn tokens(mut self) -> Vec<(Token, String)> {
        let mut tokens = Vec::new();
        loop {
            let (token, literal) = self.next();
            tokens.push((token, literal));
            if token == Token::End {
                return tokens;
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn next(&mut self) -> (Token, String) {
        while self.peek().is_some_and(is_blank) {
            self.position += 1;
        }
        match self.peek() {
            None => (Token::End, String::new()),
            Some(byte) if is_special(byte) => self.special(),
            Some(_) => self.identifier(),
        }
    }

    fn identifier(&mut self) -> (Token, String) {
        let start = self.position;
        while self.peek().is_some_and(|byte| !is_special(byte) && !is_blank(byte)) {
            self.position += 1;
        }
        let text = &self.text[start..self.position];
        (keyword(text).unwrap_or(Token::Identifier), text.to_owned())
    }

    /// The longest operator that starts here.
    fn special(&mut self) -> (Token, String) {
        let start = self.position;
        let mut found = None;
        while self.peek().is_some_and(is_special) {
            self.position += 1;
            let text = &self.text[start..self.position];
            match keyword(text) {
                Some(token) => found = Some((token, text.to_owned())),
                None if found.is_some() => {
                    self.position -= 1;
                    break;
                }
                None => {}
            }
        }
        found.unwrap_or_else(|| {
            let text = &self.text[start..self.position];
            (Token::Error, format!("error expected: keyword found '{text}'"))
        })
    }
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// The token at the cursor. Where a value or key may stand, the words `in` and `notin` are ordinary ones.
    fn look(&self) -> (Token, &str) {
        let (token, literal) = &self.tokens[self.position.min(self.tokens.len() - 1)];
        let token = match token {
            Token::In | Token::NotIn => Token::Identifier,
            token => *token,
        };
        (token, literal)
    }

    fn take(&mut self) -> (Token, String) {
        let (token, literal) = self.look();
        let taken = (token, literal.to_owned());
        self.position += 1;
        taken
    }

    fn take_operator(&mut self) -> (Token, String) {
        let taken = self.tokens[self.position.min(self.tokens.len() - 1)].clone();
        self.position += 1;
        taken
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.look() {
                (Token::Identifier | Token::Not, _) => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.take() {
                        (Token::End, _) => return Ok(requirements),
                        (Token::Comma, _) => match self.look() {
                            (Token::Identifier | Token::Not, _) => {}
                            (_, found) => return Err(format!("found '{found}', expected: identifier after ','")),
                        },
                        (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, found) => return Err(format!("found '{found}', expected: !, identifier, or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check_key(&key)?;
        if negated {
            return Ok(Requirement::LabelAbsent(key));
        }
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(Requirement::LabelExists(key));
        }
        let (operator, found) = self.take_operator();
        let values = match operator {
            Token::In | Token::NotIn => self.values()?,
            Token::Equals | Token::DoubleEquals | Token::NotEquals | Token::Above | Token::Below => {
                BTreeSet::from([self.value()?])
            }
            _ => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        requirement(key, operator, values)
    }

    /// One value; nothing before a comma or the end is the empty value.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (Token::Identifier, value) => Ok(value),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }

    /// A list in parentheses; `()` holds the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, found) = self.take();
        if token != Token::OpenParenthesis {
            return Err(format!("found '{found}' expected: '('"));
        }
        let first = self.look().1.to_owned();
        match self.look().0 {
            Token::ClosedParenthesis => {
                self.position += 1;
                Ok(BTreeSet::from([String::new()]))
            }
            Token::Identifier | Token::Comma => {
                let values = self.value_list()?;
                match self.take() {
                    (Token::ClosedParenthesis, _) => Ok(values),
                    _ => Err(format!("found '{first}', expected: ')'")),
                }
            }
            _ => Err(format!("found '{first}', expected: ',', ')' or identifier")),
        }
    }

    /// What stands between the parentheses, up to the closing one. A missing value is the empty one.
    fn value_list(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.take() {
                (Token::Identifier, value) => {
                    values.insert(value);
                    match self.look() {
                        (Token::Comma, _) => {}
                        (Token::ClosedParenthesis, _) => return Ok(values),
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.look().0 {
                        Token::ClosedParenthesis => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.position += 1;
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
    }
}

/// Checks the values and makes the requirement. Several broken rules are listed in brackets, as upstream joins errors.
fn requirement(key: String, operator: Token, values: BTreeSet<String>) -> Result<Requirement, String> {
    let mut errors = Vec::new();
    let mut number = 0;
    if matches!(operator, Token::Above | Token::Below) {
        for (i, value) in values.iter().enumerate() {
            match parse_integer(value) {
                Some(parsed) => number = parsed,
                None => errors.push(format!(
                    "values[{i}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    quoted(value)
                )),
            }
        }
    }
    for (i, value) in values.iter().enumerate() {
        let broken = broken_value_rules(value);
        if !broken.is_empty() {
            let value = quoted(value);
            errors.push(format!(
                "values[{i}][{key}]: Invalid value: {value}: {}",
                broken.join("; ")
            ));
        }
    }
    match errors.len() {
        0 => {}
        1 => return Err(errors.remove(0)),
        _ => return Err(format!("[{}]", errors.join(", "))),
    }
    let values: Vec<String> = values.into_iter().collect();
    Ok(match operator {
        Token::NotIn | Token::NotEquals => Requirement::LabelNotIn { name: key, values },
        Token::Above => Requirement::LabelAbove {
            name: key,
            value: number,
        },
        Token::Below => Requirement::LabelBelow {
            name: key,
            value: number,
        },
        _ => Requirement::LabelIn { name: key, values },
    })
}

/// An integer as Go's `strconv.ParseInt(…, 10, 64)` reads it: an optional sign, then digits.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

const NAME_LEN_MAX: usize = 63;
const SUBDOMAIN_LEN_MAX: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn check_key(key: &str) -> Result<(), String> {
    let broken = broken_key_rules(key);
    if broken.is_empty() {
        return Ok(());
    }
    // `<nil>` stands where upstream prints a field path that a query parameter does not have.
    Err(format!("<nil>: Invalid value: {}: {}", quoted(key), broken.join("; ")))
}

fn broken_key_rules(key: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                broken.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > SUBDOMAIN_LEN_MAX {
                    broken.push(format!("prefix part must be no more than {SUBDOMAIN_LEN_MAX} bytes"));
                }
                if !is_subdomain(prefix) {
                    broken.push(format!("prefix part {SUBDOMAIN_RULE}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        broken.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_LEN_MAX {
        broken.push(format!("name part must be no more than {NAME_LEN_MAX} bytes"));
    }
    if !is_name(name) {
        broken.push(format!("name part {NAME_RULE}"));
    }
    broken
}

fn broken_value_rules(value: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if value.len() > NAME_LEN_MAX {
        broken.push(format!("must be no more than {NAME_LEN_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        broken.push(VALUE_RULE.to_owned());
    }
    broken
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_name(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match text.as_bytes() {
        [] => false,
        [one] => one.is_ascii_alphanumeric(),
        [first, middle @ .., last] => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && middle.iter().all(inner)
        }
    }
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`
fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|part| match part.as_bytes() {
        [] => false,
        [one] => alphanumeric(one),
        [first, middle @ .., last] => {
            alphanumeric(first) && alphanumeric(last) && middle.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(values: &[&str]) -> Requirement {
        Requirement::LabelIn {
            name: "a".into(),
            values: values.iter().map(ToString::to_string).collect(),
        }
    }

    fn without(values: &[&str]) -> Requirement {
        Requirement::LabelNotIn {
            name: "a".into(),
            values: values.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn every_operator_is_understood() {
        let cases = [
            ("", vec![]),
            ("  ", vec![]),
            ("a=b", vec![within(&["b"])]),
            ("a==b", vec![within(&["b"])]),
            (" a = b ", vec![within(&["b"])]),
            ("a=", vec![within(&[""])]),
            ("a=,a", vec![within(&[""]), Requirement::LabelExists("a".into())]),
            ("a!=b", vec![without(&["b"])]),
            ("a in (c, b,c)", vec![within(&["b", "c"])]),
            ("a in ()", vec![within(&[""])]),
            ("a in (,b)", vec![within(&["", "b"])]),
            ("a in (b,)", vec![within(&["", "b"])]),
            ("a notin(in,notin)", vec![without(&["in", "notin"])]),
            ("a", vec![Requirement::LabelExists("a".into())]),
            ("in", vec![Requirement::LabelExists("in".into())]),
            ("!a", vec![Requirement::LabelAbsent("a".into())]),
            (
                "x.io/a>3,a<7",
                vec![
                    Requirement::LabelAbove {
                        name: "x.io/a".into(),
                        value: 3,
                    },
                    Requirement::LabelBelow {
                        name: "a".into(),
                        value: 7,
                    },
                ],
            ),
        ];
        for (selector, expected) in cases {
            assert_eq!(parse(selector), Ok(expected), "{selector}");
        }
    }

    #[test]
    fn malformed_selectors_are_told_in_upstreams_words() {
        let cases = [
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a=b!", "found '!', expected: ',' or 'end of string'"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("!!", "unable to parse requirement: found '!', expected: identifier"),
            ("a,", "found '', expected: identifier after ','"),
            ("!a in (b)", "found 'in', expected: ',' or 'end of string'"),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, expected) in cases {
            assert_eq!(parse(selector), Err(expected.to_owned()), "{selector}");
        }
    }

    #[test]
    fn keys_and_values_follow_the_rules_of_labels() {
        let error = parse("-a=b").unwrap_err();
        assert!(
            error.starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"),
            "{error}"
        );
        let error = parse("x/y/z=1").unwrap_err();
        assert!(
            error.contains("\"x/y/z\": a valid label key must consist of"),
            "{error}"
        );
        assert!(error.ends_with("(e.g. 'example.com/MyName')"), "{error}");
        let long = "v".repeat(64);
        assert_eq!(
            parse(&format!("a={long}")),
            Err(format!(
                "unable to parse requirement: values[0][a]: Invalid value: \"{long}\": must be no more than 63 bytes"
            ))
        );
        assert!(
            parse("Upper.io/a=b")
                .unwrap_err()
                .contains("prefix part a lowercase RFC 1123")
        );
        assert!(parse("/a=b").unwrap_err().contains("prefix part must be non-empty"));
        assert!(parse("é=b").is_err());
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        let pieces = [
            "a", "in", "notin", "(", ")", ",", "!", "=", "<", ">", " ", "é", "\0", "-1",
        ];
        // Every text of four pieces.
        for n in 0..pieces.len().pow(4) {
            let mut text = String::new();
            let mut rest = n;
            for _ in 0..4 {
                text.push_str(pieces[rest % pieces.len()]);
                rest /= pieces.len();
            }
            let _ = parse(&text);
        }
    }
}
