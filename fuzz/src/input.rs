//! Taking an input apart. What is missing at the end reads as zero, so that every prefix of an input is one, too.

/// What is left of an input.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let byte = self.rest.first().copied().unwrap_or_default();
        self.rest = self.rest.get(1..).unwrap_or_default();
        byte
    }

    /// A number of two bytes, little-endian.
    pub(super) fn short(&mut self) -> usize {
        let low = self.byte();
        usize::from(u16::from_le_bytes([low, self.byte()]))
    }

    /// One of `count` things.
    pub(super) fn choice(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// The next `len` bytes, or what is left.
    pub(super) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Everything up to the next `end`, which is taken, too.
    pub(super) fn until(&mut self, end: u8) -> &'a [u8] {
        let len = self.rest.iter().position(|&byte| byte == end);
        let bytes = self.bytes(len.unwrap_or(self.rest.len()));
        self.byte();
        bytes
    }

    /// Everything that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Everything that is left, if it is text.
    pub(super) fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.rest).ok()
    }
}
