//! The party that makes a request.

use std::fmt;

/// The requester, in the terms of access rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Principal {
    /// Unknown: sees public data, changes nothing.
    #[default]
    Anonymous,
    /// A party with a credential of this name: sees and changes its own data and data opened to it.
    Named(String),
    /// The operator of the node: sees and changes everything.
    Operator,
}

impl Principal {
    /// The name that access rules use; none for an anonymous principal.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Named(name) => Some(name),
            Self::Operator => Some("operator"),
        }
    }

    /// Whether this is the operator.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        *self == Self::Operator
    }

    /// Whether this may act for `owner`.
    #[must_use]
    pub fn may_act_for(&self, owner: &str) -> bool {
        match self {
            Self::Anonymous => false,
            Self::Named(name) => name == owner,
            Self::Operator => true,
        }
    }
}

/// `anonymous`, `operator`, or the name.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("anonymous"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_the_role_of_the_same_word() {
        assert!(!Principal::Named("operator".into()).is_operator());
        assert!(!Principal::Named("ada".into()).may_act_for("bob"));
        assert!(!Principal::Anonymous.may_act_for(""));
        assert!(Principal::Operator.may_act_for("bob"));
    }
}
