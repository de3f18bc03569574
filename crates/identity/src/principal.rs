//! The party that makes a request.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Role, check_account_name};

/// Groups of one account; reason: an answer is computed from one set of indexes for each.
pub const GROUPS_MAX: usize = 16;

/// The requester, in the terms of access rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Principal {
    /// Unknown: sees public data, changes nothing.
    #[default]
    Anonymous,
    /// A party with a credential of this name: sees and changes its own data and data opened to it.
    Named(String),
    /// A party like [`Principal::Named`] that is in groups or has roles.
    Member(Arc<Membership>),
    /// The operator of the node: sees and changes everything.
    Operator,
}

/// A name with the groups and roles that rights may name instead of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    name: String,
    groups: Vec<String>,
    roles: Vec<Role>,
}

impl Principal {
    /// The party `name`, which is in these groups and has these roles for the whole node.
    #[must_use]
    pub fn account(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = String>,
        roles: impl IntoIterator<Item = Role>,
    ) -> Self {
        let name = name.into();
        let (mut groups, mut roles): (Vec<_>, Vec<_>) =
            (groups.into_iter().collect(), roles.into_iter().collect());
        if groups.is_empty() && roles.is_empty() {
            return Self::Named(name);
        }
        groups.sort_unstable();
        groups.dedup();
        roles.sort_unstable();
        roles.dedup();
        Self::Member(Arc::new(Membership {
            name,
            groups,
            roles,
        }))
    }

    /// The groups that it is in, in order, each once.
    #[must_use]
    pub fn groups(&self) -> &[String] {
        match self {
            Self::Member(of) => &of.groups,
            Self::Anonymous | Self::Named(_) | Self::Operator => &[],
        }
    }

    /// The roles that it has for the whole node, in order, each once. The operator has all, and none is listed.
    #[must_use]
    pub fn roles(&self) -> &[Role] {
        match self {
            Self::Member(of) => &of.roles,
            Self::Anonymous | Self::Named(_) | Self::Operator => &[],
        }
    }

    /// The name that access rules use; none for an anonymous principal.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Named(name) => Some(name),
            Self::Member(of) => Some(&of.name),
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
            Self::Member(of) => of.name == owner,
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

/// Checks the name of a group: the characters of the name of an account.
///
/// # Errors
/// [`Error::Group`].
pub fn check_group_name(name: &str) -> Result<(), Error> {
    check_account_name(name).map_err(|_| Error::Group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_in_its_groups_in_order() {
        let groups = ["ward", "lab", "ward"].map(str::to_owned);
        let ada = Principal::account("ada", groups, [Role::Write, Role::Write]);
        assert_eq!(ada.groups(), ["lab", "ward"]);
        assert_eq!(ada.roles(), [Role::Write]);
        assert_eq!((ada.name(), ada.to_string().as_str()), (Some("ada"), "ada"));
        assert!(ada.may_act_for("ada") && !ada.may_act_for("ward"));
        let alone = Principal::account("ada", [], []);
        assert_eq!(alone, Principal::Named("ada".to_owned()));
        assert!(check_group_name("ward-3").is_ok());
        assert_eq!(check_group_name("group:x"), Err(Error::Group));
    }

    #[test]
    fn a_name_is_not_the_role_of_the_same_word() {
        assert!(!Principal::Named("operator".into()).is_operator());
        assert!(!Principal::Named("ada".into()).may_act_for("bob"));
        assert!(!Principal::Anonymous.may_act_for(""));
        assert!(Principal::Operator.may_act_for("bob"));
    }
}
