//! Access rules: which principals may see an entity.
//!
//! Only reading is checked here. Whether a principal may publish under an owner is the caller's
//! decision; the registry itself refuses only a change of owner.

use chappe_identity::Principal;
use serde::{Deserialize, Serialize};

/// An access rule for an entity and the triples it brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Visible to everybody.
    #[default]
    Public,
    /// Visible only to the owner.
    Owner,
    /// Visible to the owner and these principals.
    Readers(Vec<String>),
}

impl Access {
    /// Whether `principal` may see an entity of `owner` under this rule.
    #[must_use]
    pub fn allows(&self, owner: &str, principal: &Principal) -> bool {
        match (self, principal) {
            (Self::Public, _) | (_, Principal::Operator) => true,
            (_, Principal::Anonymous) => false,
            (Self::Owner, Principal::Named(name)) => name == owner,
            (Self::Readers(readers), Principal::Named(name)) => {
                name == owner || readers.contains(name)
            }
        }
    }
}
