//! Resource limits for one document.

/// Resource limits for one document. [`Reason::Limit`](crate::Reason::Limit) names the one that was
/// exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of the document. Default 4 MiB: the largest known SDC description has about 1
    /// MiB.
    pub bytes: usize,
    /// Maximum number of open elements. Default 64, so that recursion fits any stack.
    pub depth: usize,
    /// Maximum number of events (starts, attributes, declarations, texts). Default 500,000.
    pub events: usize,
    /// Maximum attributes and namespace declarations of one element. Default 128.
    pub attributes: usize,
    /// Maximum bytes of one qualified name or one namespace. Default 1,024.
    pub name_bytes: usize,
    /// Maximum number of namespace declarations in scope. Default 256: messages of devices have 20,
    /// and each QName in content is looked up among them.
    pub namespaces: usize,
    /// Maximum bytes of the tree with the namespace of every name counted, see
    /// [`Element::expanded_bytes`](crate::Element::expanded_bytes). Default 64 MiB: a description
    /// of 4 MiB takes about 50 MiB.
    pub expanded_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            depth: 64,
            events: 500_000,
            attributes: 128,
            name_bytes: 1_024,
            namespaces: 256,
            expanded_bytes: 64 << 20,
        }
    }
}

impl Limits {
    /// Limits for one datagram: 64 KiB and few elements.
    #[must_use]
    pub const fn datagram() -> Self {
        Self {
            bytes: 65_535,
            depth: 32,
            events: 8_192,
            attributes: 64,
            name_bytes: 1_024,
            namespaces: 64,
            expanded_bytes: 1 << 20,
        }
    }
}
