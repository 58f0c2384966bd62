//! The words of the language that may not be names.

/// Words with a meaning.
pub(super) const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Words that may have one some day; they may be names of fields.
pub(super) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether it is neither.
pub(super) fn is_free(word: &str) -> bool {
    !KEYWORDS.contains(&word) && !RESERVED.contains(&word)
}

/// Whether a text can name a variable.
pub fn is_identifier(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().next().is_some_and(|first| !first.is_ascii_digit()) && text.bytes().all(known) && is_free(text)
}
