//! What flattening may cost.

/// Bytes that the flat types of one device may take. Default 16 MiB: the events of the largest
/// device seen take 300 kB.
const BYTES_MAX: usize = 16 << 20;
/// Cost of a declaration that is only visited.
const VISIT_BYTES: usize = 256;

/// The work that is left for the schemas of one device, in bytes copied from them.
///
/// A few short declarations can name each other so that following them all would never end, or so that
/// one long text stands in each field.
#[derive(Debug)]
pub struct Work {
    left: usize,
}

impl Default for Work {
    fn default() -> Self {
        Self { left: BYTES_MAX }
    }
}

impl Work {
    /// A smaller budget.
    #[must_use]
    pub const fn of_bytes(left: usize) -> Self {
        Self { left }
    }

    /// Whether all of it is used.
    #[must_use]
    pub const fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Pays for a visit that copies so many bytes; false when too little is left, and then there is
    /// nothing left for what follows either.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes.saturating_add(VISIT_BYTES));
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}
