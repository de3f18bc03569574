//! What is wrong with a Thing Description.

use std::fmt;

/// Faults reported of one document; reason: a person reads them.
const MAX_FAULTS: usize = 32;

/// A fault of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The member, as `properties.status.forms.0.href`; `(root)` for the document.
    pub field: String,
    /// The fault.
    pub description: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.description)
    }
}

/// Collects faults with the path to each.
#[derive(Debug, Default)]
pub(super) struct Faults {
    path: Vec<String>,
    found: Vec<Fault>,
}

impl Faults {
    /// Bytes of a member's name in a path.
    const NAME_BYTES: usize = 64;

    /// Adds a fault of the member at the path.
    pub(super) fn add(&mut self, description: impl Into<String>) {
        if self.found.len() < MAX_FAULTS {
            let field = match self.path.is_empty() {
                true => "(root)".to_owned(),
                false => self.path.join("."),
            };
            self.found.push(Fault {
                field,
                description: description.into(),
            });
        }
    }

    /// Checks a member of the one at the path.
    pub(super) fn at(&mut self, name: impl fmt::Display, check: impl FnOnce(&mut Self)) {
        let mut name = name.to_string();
        if name.len() > Self::NAME_BYTES {
            name = name.chars().take(Self::NAME_BYTES / 4).collect();
            name.push('…');
        }
        self.path.push(name);
        check(self);
        self.path.pop();
    }

    /// All faults, unless there are none.
    pub(super) fn into_result(self) -> Result<(), Vec<Fault>> {
        match self.found.is_empty() {
            true => Ok(()),
            false => Err(self.found),
        }
    }
}
