//! What a document may cost.

/// Bounds on one document; each has an error that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the document. Default 4 MiB: the largest SDC description seen is about 1 MiB.
    pub bytes: usize,
    /// Open elements. Default 64: recursion in readers stays within any stack.
    pub depth: usize,
    /// Events (starts, attributes, declarations, texts) in all. Default 500,000.
    pub events: usize,
    /// Attributes and namespace declarations of one element. Default 128.
    pub attributes: usize,
    /// Bytes of one qualified name, and of one namespace. Default 1,024.
    pub name_bytes: usize,
    /// Namespace declarations in scope at one place. Default 256: messages of devices have 20, and
    /// each QName in content is looked up among them.
    pub namespaces: usize,
    /// Bytes of the tree with each name's namespace spelled out, see
    /// [`Element::expanded_bytes`](crate::Element::expanded_bytes). Default 64 MiB: a description of
    /// 4 MiB takes about 50 MiB.
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
    /// For one datagram: 64 KiB, few elements.
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
