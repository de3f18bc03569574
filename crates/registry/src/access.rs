//! Access rules: which principals may see an entity without a stated right ([`crate::rights`]).

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
    /// Whether `principal` may see an entity of `owner` under this rule alone.
    #[must_use]
    pub fn allows(&self, owner: &str, principal: &Principal) -> bool {
        let is_reader = |name: &str| match self {
            Self::Public => true,
            Self::Owner => false,
            Self::Readers(readers) => readers.iter().any(|reader| reader == name),
        };
        *self == Self::Public
            || principal.may_act_for(owner)
            || principal.name().is_some_and(is_reader)
    }
}
