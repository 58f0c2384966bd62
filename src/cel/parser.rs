//! From the words of an expression to its tree, with the messages of kube-apiserver's parser for what does not parse.
//!
//! Grammar: <https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax>. Depth is bounded twice: how deep the parser
//! calls itself, and how deep the tree is that comes out; whoever walks a tree may do so by recursion.

use std::sync::Arc;

use super::ast::{Ast, Entry, Id, Kind, Literal, Node};
use super::lexer::{Sort, Sorts, Word, unescaped, words};
use super::source::{CompileError, Findings};
use super::words::RESERVED;

/// Deepest nesting, of what is written and of the tree; kube-apiserver's number.
pub(super) const DEPTH_MAX: u16 = 250;
/// Longest expression in code points; kube-apiserver's number.
const CODE_POINTS_MAX: usize = 100_000;

const PRIMARY: Sorts = Sorts::of(&[
    Sort::LeftBracket,
    Sort::LeftBrace,
    Sort::LeftParen,
    Sort::Dot,
    Sort::Minus,
    Sort::Not,
    Sort::True,
    Sort::False,
    Sort::Null,
    Sort::Float,
    Sort::Int,
    Sort::Uint,
    Sort::String,
    Sort::Bytes,
    Sort::Identifier,
]);

/// What may come after an operand.
const AFTER: Sorts = Sorts::of(&[
    Sort::Equal,
    Sort::NotEqual,
    Sort::In,
    Sort::Less,
    Sort::LessEqual,
    Sort::GreaterEqual,
    Sort::Greater,
    Sort::And,
    Sort::Or,
    Sort::LeftBracket,
    Sort::Dot,
    Sort::Minus,
    Sort::Plus,
    Sort::Star,
    Sort::Slash,
    Sort::Percent,
]);

/// Takes an expression apart.
pub(super) fn parse(source: &str) -> Result<Ast, CompileError> {
    let mut findings = Findings::default();
    let size = source.chars().count();
    if size > CODE_POINTS_MAX {
        findings.add_whole(format!(
            "expression code point size exceeds limit: size: {size}, limit {CODE_POINTS_MAX}"
        ));
        return Err(findings.into_error(source));
    }
    let words = words(source, &mut findings);
    let mut parser = Parser {
        source,
        words,
        at: 0,
        nesting: 0,
        nodes: Vec::new(),
        depths: Vec::new(),
        findings,
    };
    match parser.whole() {
        Ok(root) if parser.findings.is_empty() => Ok(Ast {
            nodes: parser.nodes,
            root,
        }),
        _ => Err(parser.findings.into_error(source)),
    }
}

/// Something was told and nothing more can be made of the expression.
#[derive(Debug)]
pub(super) struct Stop;

pub(super) struct Parser<'a> {
    source: &'a str,
    words: Vec<Word>,
    at: usize,
    nesting: u16,
    nodes: Vec<Node>,
    /// How deep the tree below each node is.
    depths: Vec<u16>,
    findings: Findings,
}

impl Parser<'_> {
    fn whole(&mut self) -> Result<Id, Stop> {
        let root = self.expression(PRIMARY)?;
        if self.sort() != Sort::End {
            let word = self.word();
            if self.words[self.at + 1].sort == Sort::End {
                self.tell_word(word, "extraneous input", Sorts::of(&[Sort::End]));
            } else {
                self.tell_word(word, "mismatched input", AFTER.with(Sort::Question).with(Sort::End));
            }
            return Err(Stop);
        }
        Ok(root)
    }

    fn word(&self) -> Word {
        self.words[self.at]
    }

    fn sort(&self) -> Sort {
        self.word().sort
    }

    fn text(&self, word: Word) -> &str {
        &self.source[word.start as usize..word.end as usize]
    }

    /// Takes the word if it is of that sort.
    fn take(&mut self, sort: Sort) -> Option<Word> {
        let word = self.word();
        (word.sort == sort).then(|| {
            self.at += usize::from(sort != Sort::End);
            word
        })
    }

    fn tell_word(&mut self, word: Word, what: &str, expected: Sorts) {
        let shown = if word.sort == Sort::End {
            "<EOF>"
        } else {
            self.text(word)
        };
        let text = format!("Syntax error: {what} '{shown}' expecting {}", expected.shown());
        self.findings.add(word.start, text);
    }

    pub(super) fn tell(&mut self, at: u32, what: impl Into<String>) {
        self.findings.add(at, what);
    }

    pub(super) fn kind(&self, id: Id) -> &Kind {
        &self.nodes[id as usize].kind
    }

    pub(super) fn place(&self, id: Id) -> u32 {
        self.nodes[id as usize].at
    }

    /// Makes a node over others.
    pub(super) fn node(&mut self, at: u32, kind: Kind, below: &[Id]) -> Result<Id, Stop> {
        let deepest = below.iter().map(|id| self.depths[*id as usize]).max();
        let depth = deepest.map_or(1, |depth| depth + 1);
        if depth > DEPTH_MAX {
            self.findings.add_whole("max recursion depth exceeded");
            return Err(Stop);
        }
        self.nodes.push(Node { at, kind });
        self.depths.push(depth);
        Ok(self.nodes.len() as Id - 1)
    }

    /// `operand ? operand : expression`, or just an operand. `expected` is what messages say could begin here.
    fn expression(&mut self, expected: Sorts) -> Result<Id, Stop> {
        self.nesting += 1;
        if self.nesting > DEPTH_MAX {
            self.findings
                .add_whole(format!("expression recursion limit exceeded: {DEPTH_MAX}"));
            return Err(Stop);
        }
        let condition = self.binary(0, expected)?;
        let whole = match self.take(Sort::Question) {
            None => condition,
            Some(question) => {
                let then = self.binary(0, PRIMARY)?;
                if self.take(Sort::Colon).is_none() {
                    let word = self.word();
                    self.tell_word(word, "mismatched input", AFTER.with(Sort::Colon));
                    return Err(Stop);
                }
                let otherwise = self.expression(PRIMARY)?;
                self.node(
                    question.start,
                    Kind::Conditional(condition, then, otherwise),
                    &[condition, then, otherwise],
                )?
            }
        };
        self.nesting -= 1;
        Ok(whole)
    }

    /// Operands joined by operators that bind at least as strongly as `strength`.
    fn binary(&mut self, strength: u8, expected: Sorts) -> Result<Id, Stop> {
        let mut left = self.unary(expected)?;
        while let Some((binds, name)) = operator(self.sort()) {
            if binds < strength {
                break;
            }
            if name.is_empty() {
                left = self.logic(left, binds)?;
                continue;
            }
            let operator = self.word();
            self.at += 1;
            let right = self.binary(binds + 1, PRIMARY)?;
            left = self.call(operator.start, name, &[left, right])?;
        }
        Ok(left)
    }

    /// A row of `&&` or of `||` as a balanced tree: long rows are no deep trees.
    fn logic(&mut self, first: Id, binds: u8) -> Result<Id, Stop> {
        let sort = self.sort();
        let mut terms = vec![first];
        let mut operators = Vec::new();
        while let Some(operator) = self.take(sort) {
            operators.push(operator.start);
            terms.push(self.binary(binds + 1, PRIMARY)?);
        }
        self.balanced(&terms, &operators, sort == Sort::And)
    }

    fn balanced(&mut self, terms: &[Id], operators: &[u32], and: bool) -> Result<Id, Stop> {
        if let [term] = terms {
            return Ok(*term);
        }
        let middle = operators.len() / 2;
        let left = self.balanced(&terms[..=middle], &operators[..middle], and)?;
        let right = self.balanced(&terms[middle + 1..], &operators[middle + 1..], and)?;
        let kind = if and {
            Kind::And(left, right)
        } else {
            Kind::Or(left, right)
        };
        self.node(operators[middle], kind, &[left, right])
    }

    fn call(&mut self, at: u32, function: &str, args: &[Id]) -> Result<Id, Stop> {
        let kind = Kind::Call {
            function: function.into(),
            target: None,
            args: args.to_vec(),
        };
        self.node(at, kind, args)
    }

    fn unary(&mut self, expected: Sorts) -> Result<Id, Stop> {
        let first = self.word();
        let name = match first.sort {
            Sort::Not => "!_",
            Sort::Minus => "-_",
            _ => return self.member(expected),
        };
        let mut count = 0;
        while self.take(first.sort).is_some() {
            count += 1;
        }
        if count == 1 && first.sort == Sort::Minus && matches!(self.sort(), Sort::Int | Sort::Float) {
            // The smallest integer can only be written with its sign.
            let literal = self.number(first.start, true)?;
            return self.members(literal);
        }
        let operand = self.member(PRIMARY)?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        self.call(first.start, name, &[operand])
    }

    fn member(&mut self, expected: Sorts) -> Result<Id, Stop> {
        let primary = self.primary(expected)?;
        self.members(primary)
    }

    /// What follows an operand: `.field`, `.function(…)`, `[index]`.
    fn members(&mut self, mut operand: Id) -> Result<Id, Stop> {
        loop {
            if let Some(dot) = self.take(Sort::Dot) {
                let optional = self.take(Sort::Question).is_some();
                let name = self.word();
                let field: Arc<str> = match name.sort {
                    Sort::Identifier => self.text(name).into(),
                    Sort::Escaped => {
                        self.tell(dot.start, "unsupported syntax: '`'");
                        return Err(Stop);
                    }
                    _ => {
                        let text = if name.sort == Sort::End { "" } else { self.text(name) };
                        let text = format!("Syntax error: no viable alternative at input '.{text}'");
                        self.tell(name.start, text);
                        return Err(Stop);
                    }
                };
                self.at += 1;
                if !optional && let Some(open) = self.take(Sort::LeftParen) {
                    let args = self.arguments()?;
                    operand = self.member_call(open.start, operand, field, args)?;
                    continue;
                }
                let kind = Kind::Select {
                    operand,
                    field,
                    test: false,
                    optional,
                };
                operand = self.node(dot.start, kind, &[operand])?;
            } else if let Some(open) = self.take(Sort::LeftBracket) {
                let optional = self.take(Sort::Question).is_some();
                let first = if optional {
                    PRIMARY
                } else {
                    PRIMARY.with(Sort::Question)
                };
                let index = self.expression(first)?;
                self.close(Sort::RightBracket)?;
                let name = if optional { "_[?_]" } else { "_[_]" };
                operand = self.call(open.start, name, &[operand, index])?;
            } else {
                return Ok(operand);
            }
        }
    }

    /// A closing word. One too many before it is told and skipped, a missing one is told.
    fn close(&mut self, sort: Sort) -> Result<(), Stop> {
        if self.take(sort).is_some() {
            return Ok(());
        }
        let word = self.word();
        let expected = Sorts::of(&[sort]);
        if word.sort != Sort::End && self.words[self.at + 1].sort == sort {
            self.tell_word(word, "extraneous input", expected);
            self.at += 2;
            return Ok(());
        }
        if word.sort == Sort::End {
            let text = format!("Syntax error: missing {} at '<EOF>'", expected.shown());
            self.tell(word.start, text);
        } else {
            self.tell_word(word, "mismatched input", AFTER.with(Sort::Question).with(sort));
        }
        Err(Stop)
    }

    /// Arguments up to the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Id>, Stop> {
        let mut args = Vec::new();
        if self.take(Sort::RightParen).is_some() {
            return Ok(args);
        }
        args.push(self.expression(PRIMARY.with(Sort::RightParen))?);
        while self.take(Sort::Comma).is_some() {
            args.push(self.expression(PRIMARY)?);
        }
        self.close(Sort::RightParen)?;
        Ok(args)
    }

    /// Skips words that are too many before an operand, and tells each.
    fn skip_extraneous(&mut self, expected: Sorts) {
        loop {
            let word = self.word();
            let follows = self.words.get(self.at + 1).map_or(Sort::End, |next| next.sort);
            if word.sort == Sort::End || PRIMARY.has(word.sort) || !expected.has(follows) {
                return;
            }
            self.tell_word(word, "extraneous input", expected);
            self.at += 1;
        }
    }

    fn primary(&mut self, expected: Sorts) -> Result<Id, Stop> {
        self.skip_extraneous(expected);
        let word = self.word();
        match word.sort {
            Sort::LeftParen => {
                self.at += 1;
                let inner = self.expression(PRIMARY)?;
                self.close(Sort::RightParen)?;
                Ok(inner)
            }
            Sort::LeftBracket => self.list(word),
            Sort::LeftBrace => self.map(word),
            Sort::Dot | Sort::Identifier => self.named(),
            Sort::True | Sort::False => {
                self.at += 1;
                self.node(word.start, Kind::Literal(Literal::Bool(word.sort == Sort::True)), &[])
            }
            Sort::Null => {
                self.at += 1;
                self.node(word.start, Kind::Literal(Literal::Null), &[])
            }
            Sort::Int | Sort::Uint | Sort::Float => self.number(word.start, false),
            Sort::String | Sort::Bytes => self.text_literal(word),
            _ => {
                self.tell_word(word, "mismatched input", expected);
                Err(Stop)
            }
        }
    }

    /// A name (with its dots, if it is that of a type to be made), a call of a function, or `Name{…}`.
    fn named(&mut self) -> Result<Id, Stop> {
        let start = self.word().start;
        let dot = self.take(Sort::Dot).is_some();
        let Some(word) = self.take(Sort::Identifier) else {
            let word = self.word();
            let text = if word.sort == Sort::End { "" } else { self.text(word) };
            let text = format!("Syntax error: no viable alternative at input '.{text}'");
            self.tell(word.start, text);
            return Err(Stop);
        };
        let name = self.text(word).to_owned();
        if self.ahead_is_object() {
            return self.object(start, name);
        }
        if RESERVED.contains(&name.as_str()) {
            self.tell(word.start, format!("reserved identifier: {name}"));
        }
        let name: Arc<str> = if dot { format!(".{name}").into() } else { name.into() };
        if let Some(open) = self.take(Sort::LeftParen) {
            let args = self.arguments()?;
            return self.global_call(open.start, name, args);
        }
        self.node(start, Kind::Ident(name), &[])
    }

    /// Whether the words from here on are `{`, or `.name` again and again and then `{`.
    fn ahead_is_object(&self) -> bool {
        let mut rest = self.words[self.at..].iter();
        loop {
            match rest.next().map(|word| word.sort) {
                Some(Sort::LeftBrace) => return true,
                Some(Sort::Dot) if rest.next().is_some_and(|word| word.sort == Sort::Identifier) => {}
                _ => return false,
            }
        }
    }

    fn object(&mut self, start: u32, mut name: String) -> Result<Id, Stop> {
        while self.take(Sort::Dot).is_some() {
            name.push('.');
            let word = self.word();
            name.push_str(self.text(word));
            self.at += 1;
        }
        let open = self.word();
        self.at += 1;
        let (mut fields, mut below) = (Vec::new(), Vec::new());
        while self.sort() != Sort::RightBrace {
            let optional = self.take(Sort::Question).is_some();
            let Some(field) = self.take(Sort::Identifier) else {
                let word = self.word();
                let expected = [
                    Sort::RightBrace,
                    Sort::Comma,
                    Sort::Question,
                    Sort::Identifier,
                    Sort::Escaped,
                ];
                self.tell_word(word, "mismatched input", Sorts::of(&expected));
                return Err(Stop);
            };
            let field_name: Arc<str> = self.text(field).into();
            self.colon()?;
            let value = self.expression(PRIMARY)?;
            below.push(value);
            let entry = Entry {
                key: value,
                value,
                optional,
            };
            fields.push((field_name, entry));
            if self.take(Sort::Comma).is_none() {
                break;
            }
        }
        self.end_of_items(Sort::RightBrace)?;
        let at = if fields.is_empty() {
            open.start
        } else {
            start.max(open.start)
        };
        self.node(
            at,
            Kind::Object {
                name: name.into(),
                fields,
            },
            &below,
        )
    }

    fn colon(&mut self) -> Result<(), Stop> {
        if self.take(Sort::Colon).is_some() {
            return Ok(());
        }
        let word = self.word();
        let shown = if word.sort == Sort::End {
            "<EOF>"
        } else {
            self.text(word)
        };
        let text = format!("Syntax error: missing ':' at '{shown}'");
        self.tell(word.start, text);
        Err(Stop)
    }

    /// The end of a list or map, where a comma was possible, too.
    fn end_of_items(&mut self, close: Sort) -> Result<(), Stop> {
        if self.take(close).is_some() {
            return Ok(());
        }
        let word = self.word();
        self.tell_word(word, "mismatched input", Sorts::of(&[close, Sort::Comma]));
        Err(Stop)
    }

    fn list(&mut self, open: Word) -> Result<Id, Stop> {
        self.at += 1;
        let (mut items, mut below) = (Vec::new(), Vec::new());
        let mut expected = PRIMARY.with(Sort::RightBracket).with(Sort::Comma).with(Sort::Question);
        while self.sort() != Sort::RightBracket {
            let optional = self.take(Sort::Question).is_some();
            let item = self.expression(expected)?;
            items.push((item, optional));
            below.push(item);
            if self.take(Sort::Comma).is_none() {
                break;
            }
            expected = PRIMARY.with(Sort::RightBracket).with(Sort::Question);
        }
        self.end_of_items(Sort::RightBracket)?;
        self.node(open.start, Kind::List(items), &below)
    }

    fn map(&mut self, open: Word) -> Result<Id, Stop> {
        self.at += 1;
        let (mut entries, mut below) = (Vec::new(), Vec::new());
        let mut expected = PRIMARY.with(Sort::RightBrace).with(Sort::Comma).with(Sort::Question);
        while self.sort() != Sort::RightBrace {
            let optional = self.take(Sort::Question).is_some();
            let key = self.expression(expected)?;
            self.colon()?;
            let value = self.expression(PRIMARY)?;
            entries.push(Entry { key, value, optional });
            below.extend([key, value]);
            if self.take(Sort::Comma).is_none() {
                break;
            }
            expected = PRIMARY.with(Sort::RightBrace).with(Sort::Question);
        }
        self.end_of_items(Sort::RightBrace)?;
        self.node(open.start, Kind::Map(entries), &below)
    }

    fn number(&mut self, start: u32, negative: bool) -> Result<Id, Stop> {
        let word = self.word();
        self.at += 1;
        let text = self.text(word).to_owned();
        let sign = if negative { "-" } else { "" };
        let hexadecimal = text.strip_prefix("0x");
        let literal = match word.sort {
            Sort::Int => match hexadecimal {
                Some(digits) => i64::from_str_radix(&format!("{sign}{digits}"), 16),
                None => format!("{sign}{text}").parse(),
            }
            .ok()
            .map(Literal::Int),
            Sort::Uint => {
                let digits = hexadecimal.unwrap_or(&text).trim_end_matches(['u', 'U']);
                let radix = if hexadecimal.is_some() { 16 } else { 10 };
                u64::from_str_radix(digits, radix).ok().map(Literal::Uint)
            }
            _ => format!("{sign}{text}")
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Literal::Double),
        };
        let literal = literal.unwrap_or_else(|| {
            let name = match word.sort {
                Sort::Int => "int",
                Sort::Uint => "uint",
                _ => "double",
            };
            self.tell(start, format!("invalid {name} literal"));
            Literal::Null
        });
        self.node(start, Kind::Literal(literal), &[])
    }

    fn text_literal(&mut self, word: Word) -> Result<Id, Stop> {
        self.at += 1;
        let is_bytes = word.sort == Sort::Bytes;
        let literal = match unescaped(self.text(word), is_bytes) {
            Some(bytes) if is_bytes => Literal::Bytes(bytes.into()),
            // Escapes of texts become whole characters, so this is UTF-8 as the expression is.
            Some(bytes) => Literal::String(String::from_utf8_lossy(&bytes).as_ref().into()),
            None => {
                self.tell(word.start, "unable to unescape string");
                Literal::Null
            }
        };
        self.node(word.start, Kind::Literal(literal), &[])
    }
}

/// How strongly an operator binds, and its name as a function (none for `&&` and `||`).
fn operator(sort: Sort) -> Option<(u8, &'static str)> {
    Some(match sort {
        Sort::Or => (1, ""),
        Sort::And => (2, ""),
        Sort::Equal => (3, "_==_"),
        Sort::NotEqual => (3, "_!=_"),
        Sort::Less => (3, "_<_"),
        Sort::LessEqual => (3, "_<=_"),
        Sort::Greater => (3, "_>_"),
        Sort::GreaterEqual => (3, "_>=_"),
        Sort::In => (3, "@in"),
        Sort::Plus => (4, "_+_"),
        Sort::Minus => (4, "_-_"),
        Sort::Star => (5, "_*_"),
        Sort::Slash => (5, "_/_"),
        Sort::Percent => (5, "_%_"),
        _ => return None,
    })
}
