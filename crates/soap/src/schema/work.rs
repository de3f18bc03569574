//! The budget of flattening.

/// Bytes of the flat types of one device. Default 16 MiB: the largest device seen needs 300 kB.
const BYTES_MAX: usize = 16 << 20;
/// The cost of visiting a declaration.
const VISIT_BYTES: usize = 256;

/// The remaining budget for the schemas of one device, in bytes copied from them.
///
/// It bounds a few short declarations that refer to each other endlessly, or that copy one long
/// text into every field.
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
    /// Creates a smaller budget.
    #[must_use]
    pub const fn with_bytes(left: usize) -> Self {
        Self { left }
    }

    /// Whether the budget is used up.
    #[must_use]
    pub const fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Charges a visit that copies this many bytes. False if the budget is exceeded; then it is
    /// used up.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes.saturating_add(VISIT_BYTES));
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}
