//! A script's text as a tree.

/// How deep lists may be nested.
const DEPTH_MAX: usize = 24;

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// `$NAME`, `${NAME}`
    Variable(String),
    /// `$((…))`
    Arithmetic(String),
    /// `$(…)`
    Output(String),
}

pub(super) type Word = Vec<Part>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// `;` and the end of a line, `&&`, `||`, `|`, `&`, `(`, `)`, `>`, `<`
    Sign(&'static str),
}

/// Commands one after the other.
pub(super) type Block = Vec<Node>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Simple {
        words: Vec<Word>,
        /// Files that the output goes to.
        to: Vec<Word>,
    },
    /// The last one's result counts.
    Pipe(Vec<Node>),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Background(Box<Node>),
    Group(Block),
    /// Conditions with what is done then, and what otherwise.
    If(Vec<(Block, Block)>, Block),
    /// `while` (`true`) or `until`.
    Loop(bool, Block, Block),
    For(String, Vec<Word>, Block),
}

/// The tokens of a script; `None` for what is not understood.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let letters: Vec<char> = text.chars().collect();
    let mut at = 0;
    let mut tokens = Vec::new();
    while let Some(&letter) = letters.get(at) {
        let next = letters.get(at + 1).copied();
        let (sign, length) = match (letter, next) {
            ('\n' | ';', _) => (";", if next == Some(';') && letter == ';' { 2 } else { 1 }),
            ('&', Some('&')) => ("&&", 2),
            ('|', Some('|')) => ("||", 2),
            ('|', _) => ("|", 1),
            ('(', _) => ("(", 1),
            (')', _) => (")", 1),
            ('>' | '&', Some('>')) => (">", 2),
            ('&', _) => ("&", 1),
            ('>', _) => (">", 1),
            ('<', _) => ("<", 1),
            (' ' | '\t' | '\r', _) => {
                at += 1;
                continue;
            }
            ('#', _) => {
                while letters.get(at).is_some_and(|letter| *letter != '\n') {
                    at += 1;
                }
                continue;
            }
            ('\\', Some('\n')) => {
                at += 2;
                continue;
            }
            _ => {
                let word = word(&letters, &mut at)?;
                tokens.push(Token::Word(word));
                continue;
            }
        };
        at += length;
        // `2>&1`: output to where output goes already.
        if sign == ">" {
            if let Some(Token::Word(word)) = tokens.last()
                && matches!(word.as_slice(), [Part::Text(digit)] if matches!(digit.as_str(), "1" | "2"))
                && letters.get(at - length - 1).is_some_and(char::is_ascii_digit)
            {
                tokens.pop();
            }
            if letters.get(at) == Some(&'&') {
                at += 1;
                while letters.get(at).is_some_and(char::is_ascii_digit) {
                    at += 1;
                }
                continue;
            }
        }
        tokens.push(Token::Sign(sign));
    }
    Some(tokens)
}

fn word(letters: &[char], at: &mut usize) -> Option<Word> {
    let mut parts: Word = Vec::new();
    let mut text = String::new();
    let mut is_quoted = false;
    while let Some(&letter) = letters.get(*at) {
        match letter {
            '"' => is_quoted = !is_quoted,
            '\'' if !is_quoted => {
                let length = letters[*at + 1..].iter().position(|letter| *letter == '\'')?;
                text.extend(&letters[*at + 1..*at + 1 + length]);
                *at += length + 1;
                if length == 0 && parts.is_empty() && text.is_empty() {
                    parts.push(Part::Text(String::new()));
                }
            }
            '\\' => {
                *at += 1;
                text.extend(letters.get(*at));
            }
            '$' => {
                let part = substitution(letters, at)?;
                match part {
                    Part::Text(literal) => text.push_str(&literal),
                    part => {
                        if !text.is_empty() {
                            parts.push(Part::Text(std::mem::take(&mut text)));
                        }
                        parts.push(part);
                    }
                }
                continue;
            }
            '`' => {
                let length = letters[*at + 1..].iter().position(|letter| *letter == '`')?;
                parts.push(Part::Text(std::mem::take(&mut text)));
                parts.push(Part::Output(letters[*at + 1..*at + 1 + length].iter().collect()));
                *at += length + 1;
            }
            ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '>' | '<' if !is_quoted => break,
            letter => text.push(letter),
        }
        *at += 1;
    }
    if is_quoted {
        return None;
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    Some(parts)
}

/// What a `$` at this place stands for.
fn substitution(letters: &[char], at: &mut usize) -> Option<Part> {
    let rest = &letters[*at + 1..];
    match rest {
        ['(', '(', ..] => {
            let end = rest.windows(2).position(|pair| pair == [')', ')'])?;
            *at += end + 3;
            Some(Part::Arithmetic(rest[2..end].iter().collect()))
        }
        ['(', ..] => {
            let mut depth = 0;
            let end = rest.iter().position(|letter| {
                depth += i32::from(*letter == '(') - i32::from(*letter == ')');
                depth == 0
            })?;
            *at += end + 2;
            Some(Part::Output(rest[1..end].iter().collect()))
        }
        ['{', ..] => {
            let end = rest.iter().position(|letter| *letter == '}')?;
            *at += end + 2;
            Some(Part::Variable(rest[1..end].iter().collect()))
        }
        [first, ..] if first.is_alphabetic() || *first == '_' => {
            let length = rest
                .iter()
                .take_while(|letter| letter.is_alphanumeric() || **letter == '_')
                .count();
            *at += length + 1;
            Some(Part::Variable(rest[..length].iter().collect()))
        }
        [first, ..] if first.is_ascii_digit() || "?!@*#$".contains(*first) => {
            *at += 2;
            Some(Part::Variable(first.to_string()))
        }
        _ => {
            *at += 1;
            Some(Part::Text("$".into()))
        }
    }
}

/// A whole script; `None` for what is not understood.
pub(super) fn script(text: &str) -> Option<Block> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let block = parser.block(&[])?;
    (parser.at == parser.tokens.len()).then_some(block)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn keyword(&self) -> Option<&str> {
        match self.tokens.get(self.at)? {
            Token::Word(word) => match word.as_slice() {
                [Part::Text(text)] => Some(text),
                _ => None,
            },
            Token::Sign(_) => None,
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.at), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.keyword() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Commands up to one of these words or a closing sign.
    fn block(&mut self, ends: &[&str]) -> Option<Block> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut block = Vec::new();
        loop {
            while self.takes(";") {}
            let is_end = self.keyword().is_some_and(|word| ends.contains(&word));
            let is_closed = matches!(self.tokens.get(self.at), None | Some(Token::Sign(")")));
            if is_end || is_closed {
                break;
            }
            let node = self.chain()?;
            block.push(if self.takes("&") {
                Node::Background(node.into())
            } else {
                node
            });
        }
        self.depth -= 1;
        Some(block)
    }

    fn chain(&mut self) -> Option<Node> {
        let mut node = self.pipe()?;
        loop {
            let is_and = self.takes("&&");
            if !is_and && !self.takes("||") {
                return Some(node);
            }
            while self.takes(";") {}
            let next = self.pipe()?;
            node = if is_and {
                Node::And(node.into(), next.into())
            } else {
                Node::Or(node.into(), next.into())
            };
        }
    }

    fn pipe(&mut self) -> Option<Node> {
        if self.takes_word("!") {
            return self.pipe_plain().map(|node| Node::Not(node.into()));
        }
        self.pipe_plain()
    }

    fn pipe_plain(&mut self) -> Option<Node> {
        let mut nodes = vec![self.command()?];
        while self.takes("|") {
            nodes.push(self.command()?);
        }
        if nodes.len() == 1 {
            nodes.pop()
        } else {
            Some(Node::Pipe(nodes))
        }
    }

    fn command(&mut self) -> Option<Node> {
        if self.takes("(") {
            let block = self.block(&[])?;
            return self.takes(")").then_some(Node::Group(block));
        }
        let keyword = self.keyword().unwrap_or("").to_owned();
        let node = match keyword.as_str() {
            "{" => {
                self.at += 1;
                let block = self.block(&["}"])?;
                self.takes_word("}").then_some(Node::Group(block))?
            }
            "if" => self.condition()?,
            "while" | "until" => {
                self.at += 1;
                let condition = self.block(&["do"])?;
                let body = self.body()?;
                Node::Loop(keyword == "while", condition, body)
            }
            "for" => {
                self.at += 1;
                let name = self.keyword()?.to_owned();
                self.at += 1;
                let mut words = Vec::new();
                if self.takes_word("in") {
                    while let Some(Token::Word(word)) = self.tokens.get(self.at) {
                        words.push(word.clone());
                        self.at += 1;
                    }
                }
                while self.takes(";") {}
                Node::For(name, words, self.body()?)
            }
            "case" | "function" | "select" => return None,
            _ => return self.simple(),
        };
        // Where the output of a whole block goes decides nothing.
        while self.takes(">") || self.takes("<") {
            self.at += 1;
        }
        Some(node)
    }

    fn body(&mut self) -> Option<Block> {
        if !self.takes_word("do") {
            return None;
        }
        let body = self.block(&["done"])?;
        self.takes_word("done").then_some(body)
    }

    fn condition(&mut self) -> Option<Node> {
        self.at += 1;
        let mut branches = Vec::new();
        loop {
            let condition = self.block(&["then"])?;
            if !self.takes_word("then") {
                return None;
            }
            let then = self.block(&["elif", "else", "fi"])?;
            branches.push((condition, then));
            if self.takes_word("elif") {
                continue;
            }
            let otherwise = if self.takes_word("else") {
                self.block(&["fi"])?
            } else {
                Vec::new()
            };
            return self.takes_word("fi").then_some(Node::If(branches, otherwise));
        }
    }

    fn simple(&mut self) -> Option<Node> {
        let (mut words, mut to) = (Vec::new(), Vec::new());
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Word(word)) => words.push(word.clone()),
                Some(Token::Sign(sign @ (">" | "<"))) => {
                    let is_output = *sign == ">";
                    self.at += 1;
                    let Some(Token::Word(file)) = self.tokens.get(self.at) else {
                        return None;
                    };
                    if is_output {
                        to.push(file.clone());
                    }
                }
                _ => break,
            }
            self.at += 1;
        }
        (!words.is_empty() || !to.is_empty()).then_some(Node::Simple { words, to })
    }
}
