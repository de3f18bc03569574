//! Resource limits for one stream.

/// Resource limits for one stream. [`Cause::Limit`](crate::Cause::Limit) names the one that was
/// exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open elements. Default 256.
    pub depth: usize,
    /// Maximum characters of a string, or bytes of a binary value. Default 16 Mi.
    pub string_characters: usize,
    /// Maximum bytes of all strings in the string tables. Default 64 MiB.
    pub table_bytes: usize,
    /// Maximum number of events. Default 10 million.
    pub events: u64,
    /// Maximum bytes that one compressed block may inflate to. Default 64 MiB.
    pub block_bytes: usize,
    /// Maximum number of productions that built-in grammars may learn (8.4). Default 1 million.
    pub productions: usize,
    /// Maximum number of grammar states of one schema, checked when it is compiled. Default
    /// 200,000.
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
    /// Limits for one datagram, enough for any valid message of 64 KiB.
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
