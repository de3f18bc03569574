//! What a stream may cost.

/// Bounds on one stream; each has an error that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open elements. Default 256.
    pub depth: usize,
    /// Characters of one string, or bytes of one binary value. Default 16 Mi.
    pub string_characters: usize,
    /// Bytes of all strings in the string tables. Default 64 MiB.
    pub table_bytes: usize,
    /// Events in all. Default 10 million.
    pub events: u64,
    /// Bytes that one block of a compressed stream may inflate to. Default 64 MiB.
    pub block_bytes: usize,
    /// Productions that built-in grammars may learn (8.4). Default 1 million.
    pub productions: usize,
    /// States of the grammars of one schema, when it is compiled. Default 200,000.
    pub grammar_states: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 256,
            string_characters: 16 << 20,
            table_bytes: 64 << 20,
            events: 10_000_000,
            block_bytes: 64 << 20,
            productions: 1_000_000,
            grammar_states: 200_000,
        }
    }
}

impl Limits {
    /// For one datagram: what a message of 64 KiB can honestly need.
    #[must_use]
    pub const fn datagram() -> Self {
        Self {
            depth: 32,
            string_characters: 65_535,
            table_bytes: 128 << 10,
            events: 8_192,
            block_bytes: 1 << 20,
            productions: 4_096,
            grammar_states: 200_000,
        }
    }
}
