//! Who may see an entity.
//!
//! Rights are judged here only for reading. Who may publish under which owner is the caller's
//! decision: the registry refuses nothing but a change of owner.

use chappe_identity::Principal;
use serde::{Deserialize, Serialize};

/// Who may see an entity and the triples it brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Everybody.
    #[default]
    Public,
    /// The owner alone.
    Owner,
    /// The owner and the parties named.
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
