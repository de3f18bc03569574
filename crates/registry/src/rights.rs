//! Rights: who may read, annotate, change and administer an entity.
//!
//! Each right includes those before it: who may change an entity may annotate it, and who may annotate it may
//! read it. The owner has all rights to its entities, and the operator to all. Besides these, an entity states
//! who has a right: everybody, any account, or named accounts, groups and roles of the node.
//!
//! [`Entity::permits`] is the one place where a right is decided. What a principal may read is also how the
//! indexes are divided ([`crate::groups`]), which follows [`readers`]; a property test compares the two.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use chappe_identity::{Principal, Role};

use crate::access::Access;
use crate::entity::{Entity, MAX_LIST};
use crate::error::Error;

/// A right to an entity. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Find and read the entity.
    Read,
    /// Attach metadata to it, as entities of one's own.
    Annotate,
    /// Replace or remove it.
    Write,
    /// Read and change its rights.
    Administer,
}

impl Right {
    /// Every right, the least first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Annotate, Self::Write, Self::Administer];

    /// The name in the REST interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Annotate => "annotate",
            Self::Write => "write",
            Self::Administer => "administer",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who has a right.
///
/// ```
/// use chappe_registry::Holder;
/// let holder: Holder = "group:ward-3".parse()?;
/// assert_eq!(holder, Holder::Group("ward-3".to_owned()));
/// assert_eq!(holder.to_string(), "group:ward-3");
/// # Ok::<(), chappe_registry::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// Everybody, with or without a credential.
    Everybody,
    /// Every account.
    AnyAccount,
    /// The account of this name.
    Account(String),
    /// The accounts in this group.
    Group(String),
    /// The accounts with this role for the whole node.
    Role(Role),
}

impl Holder {
    /// Whether `principal` is one of those it stands for. The operator is, of all.
    #[must_use]
    pub fn covers(&self, principal: &Principal) -> bool {
        if principal.is_operator() {
            return true;
        }
        match self {
            Self::Everybody => true,
            Self::AnyAccount => principal.name().is_some(),
            Self::Account(name) => principal.name() == Some(name),
            Self::Group(group) => principal.groups().binary_search(group).is_ok(),
            Self::Role(role) => principal.roles().iter().any(|has| has.includes(*role)),
        }
    }
}

/// `everybody`, `accounts`, `account:NAME`, `group:NAME` or `role:ROLE`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("everybody"),
            Self::AnyAccount => f.write_str("accounts"),
            Self::Account(name) => write!(f, "account:{name}"),
            Self::Group(name) => write!(f, "group:{name}"),
            Self::Role(role) => write!(f, "role:{role}"),
        }
    }
}

impl FromStr for Holder {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || {
            let shown: String = text.chars().take(80).collect();
            Error::InvalidEntity {
                field: "rights",
                reason: format!(
                    "name {shown:?} (hint: everybody, accounts, account:NAME, group:NAME, or role: with read, \
                     write, operate or administer)"
                ),
            }
        };
        match text.split_once(':') {
            None if text == "everybody" => Ok(Self::Everybody),
            None if text == "accounts" => Ok(Self::AnyAccount),
            Some((_, "")) | None => Err(invalid()),
            Some(("account", name)) => Ok(Self::Account(name.to_owned())),
            Some(("group", name)) => Ok(Self::Group(name.to_owned())),
            Some(("role", role)) => role.parse().map(Self::Role).map_err(|_| invalid()),
            Some(_) => Err(invalid()),
        }
    }
}

/// The rights to an entity that are stated, besides those of its owner and of its [`Access`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rights {
    /// Who may read it, besides those whom [`Access`] admits.
    pub read: Vec<Holder>,
    /// Who may annotate it. `None`: if everybody may read it, the accounts with the role `write` may.
    pub annotate: Option<Vec<Holder>>,
    /// Who may change and remove it.
    pub write: Vec<Holder>,
    /// Who may read and change its rights.
    pub administer: Vec<Holder>,
}

impl Rights {
    /// Whether nothing is stated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those who are stated to have `right`, without those who have it because they have a greater one.
    #[must_use]
    pub fn stated(&self, right: Right) -> &[Holder] {
        match right {
            Right::Read => &self.read,
            Right::Annotate => self.annotate.as_deref().unwrap_or_default(),
            Right::Write => &self.write,
            Right::Administer => &self.administer,
        }
    }

    /// Each right with those who are stated to have it.
    pub fn iter(&self) -> impl Iterator<Item = (Right, &Holder)> {
        let of = |right| self.stated(right).iter().map(move |holder| (right, holder));
        Right::ALL.into_iter().flat_map(of)
    }

    /// Those who are stated to have `right` or a greater one.
    fn holders(&self, right: Right) -> impl Iterator<Item = &Holder> {
        let all = self.iter();
        all.filter_map(move |(stated, holder)| (stated >= right).then_some(holder))
    }

    /// Sorts the lists and drops repetitions: rights are equal if they are the same rights.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        let annotate = self.annotate.as_mut();
        let lists = [&mut self.read, &mut self.write, &mut self.administer];
        for list in lists.into_iter().chain(annotate) {
            list.sort_unstable();
            list.dedup();
        }
        self
    }

    /// Checks the sizes of the lists and names.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let invalid = |reason: String| Error::InvalidEntity {
            field: "rights",
            reason,
        };
        if self.iter().nth(MAX_LIST).is_some() {
            let hint = "hint: put the accounts into a group";
            return Err(invalid(format!("name more than {MAX_LIST} ({hint})")));
        }
        for (_, holder) in self.iter() {
            if let Holder::Account(name) | Holder::Group(name) = holder {
                crate::entity::text("rights", name)?;
            }
        }
        Ok(())
    }
}

/// Those who may read an entity of `owner`: everybody, or these and the operator.
pub(crate) fn readers(owner: &str, access: &Access, rights: &Rights) -> BTreeSet<Holder> {
    let mut readers: BTreeSet<Holder> = rights.holders(Right::Read).cloned().collect();
    match access {
        Access::Public => drop(readers.insert(Holder::Everybody)),
        Access::Owner => {}
        Access::Readers(names) => readers.extend(names.iter().cloned().map(Holder::Account)),
    }
    narrowed(owner, readers)
}

/// Those who may read and change the rights to an entity of `owner`.
pub(crate) fn administrators(owner: &str, rights: &Rights) -> BTreeSet<Holder> {
    narrowed(owner, rights.holders(Right::Administer).cloned().collect())
}

/// The holders with the owner, and without those whom others include.
fn narrowed(owner: &str, mut holders: BTreeSet<Holder>) -> BTreeSet<Holder> {
    if holders.contains(&Holder::Everybody) {
        return BTreeSet::from([Holder::Everybody]);
    }
    // Anybody whom a name, a group or a role stands for has an account.
    if holders.contains(&Holder::AnyAccount) {
        return BTreeSet::from([Holder::AnyAccount]);
    }
    holders.insert(Holder::Account(owner.to_owned()));
    holders
}

/// An owner and the rule for its entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedRule {
    pub(crate) owner: String,
    pub(crate) access: Access,
    pub(crate) rights: Rights,
}

impl OwnedRule {
    pub(crate) fn of(entity: &Entity) -> Self {
        Self {
            owner: entity.owner.clone(),
            access: entity.access.clone(),
            rights: entity.rights.clone(),
        }
    }

    pub(crate) fn permits(&self, principal: &Principal, right: Right) -> bool {
        permits(&self.owner, &self.access, &self.rights, principal, right)
    }
}

/// Whether `principal` has `right` to an entity of `owner` with this access rule and these rights.
fn permits(
    owner: &str,
    access: &Access,
    rights: &Rights,
    principal: &Principal,
    right: Right,
) -> bool {
    let is_stated = || rights.holders(right).any(|holder| holder.covers(principal));
    if principal.may_act_for(owner) || is_stated() {
        return true;
    }
    let is_public = || *access == Access::Public || rights.read.contains(&Holder::Everybody);
    match right {
        Right::Read => access.allows(owner, principal),
        Right::Annotate => {
            let writes = Holder::Role(Role::Write);
            rights.annotate.is_none() && is_public() && writes.covers(principal)
        }
        Right::Write | Right::Administer => false,
    }
}

impl Entity {
    /// Whether `principal` has `right` to this entity.
    #[must_use]
    pub fn permits(&self, principal: &Principal, right: Right) -> bool {
        permits(&self.owner, &self.access, &self.rights, principal, right)
    }

    /// Whether everybody may read it.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.permits(&Principal::Anonymous, Right::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKind;

    fn entity(access: Access, rights: Rights) -> Entity {
        let mut entity = Entity::new("urn:e", EntityKind::Other, "e");
        "ada".clone_into(&mut entity.owner);
        (entity.access, entity.rights) = (access, rights);
        entity
    }

    fn named(name: &str) -> Principal {
        Principal::Named(name.to_owned())
    }

    /// The greatest right of a principal.
    fn greatest(entity: &Entity, principal: &Principal) -> Option<Right> {
        let has = |right: &Right| entity.permits(principal, *right);
        let greatest = Right::ALL.into_iter().rev().find(has);
        // Each right includes those before it.
        let all = Right::ALL.into_iter().filter(has).count();
        assert_eq!(greatest.map_or(0, |right| right as usize + 1), all);
        greatest
    }

    #[test]
    fn without_a_statement_the_owner_may_do_everything_and_writers_annotate_what_is_public() {
        let writer = Principal::account("bob", [], [Role::Write]);
        let operating = Principal::account("cleo", [], [Role::Operate]);
        let public = entity(Access::Public, Rights::default());
        let own = entity(Access::Owner, Rights::default());
        for (principal, of_public, of_own) in [
            (Principal::Anonymous, Some(Right::Read), None),
            (named("bob"), Some(Right::Read), None),
            (writer, Some(Right::Annotate), None),
            (operating, Some(Right::Read), None),
            (
                named("ada"),
                Some(Right::Administer),
                Some(Right::Administer),
            ),
            (
                Principal::Operator,
                Some(Right::Administer),
                Some(Right::Administer),
            ),
        ] {
            assert_eq!(greatest(&public, &principal), of_public, "{principal}");
            assert_eq!(greatest(&own, &principal), of_own, "{principal}");
        }
    }

    #[test]
    fn stated_rights_are_those_of_whom_they_name() {
        let holders = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        let rights = Rights {
            read: holders(&["accounts"]),
            annotate: Some(holders(&["group:lab"])),
            write: holders(&["account:bob"]),
            administer: holders(&["role:operate"]),
        };
        let entity = entity(Access::Owner, rights);
        let lab = || ["lab".to_owned()];
        for (principal, right) in [
            (Principal::Anonymous, None),
            (named("dora"), Some(Right::Read)),
            // A stated right replaces the default.
            (
                Principal::account("dora", [], [Role::Write]),
                Some(Right::Read),
            ),
            (Principal::account("dora", lab(), []), Some(Right::Annotate)),
            (Principal::account("bob", lab(), []), Some(Right::Write)),
            (
                Principal::account("eve", [], [Role::Operate]),
                Some(Right::Administer),
            ),
            (
                Principal::account("lab", [], [Role::Read]),
                Some(Right::Read),
            ),
        ] {
            assert_eq!(greatest(&entity, &principal), right, "{principal:?}");
        }
    }

    #[test]
    fn holders_are_read_as_they_are_written() {
        for text in [
            "everybody",
            "accounts",
            "account:a@b",
            "group:lab",
            "role:write",
        ] {
            assert_eq!(text.parse::<Holder>().unwrap().to_string(), text);
        }
        for wrong in ["", "ada", "group:", "role:nurse", "accounts:x", "user:ada"] {
            let error = wrong.parse::<Holder>().unwrap_err();
            assert!(error.to_string().contains("hint: everybody"), "{error}");
        }
    }

    #[test]
    fn rights_have_a_limit() {
        let holder = |number: usize| Holder::Account(format!("account{number}"));
        let rights = |count| Rights {
            read: (0..10).map(holder).collect(),
            write: (10..count).map(holder).collect(),
            ..Rights::default()
        };
        assert!(entity(Access::Owner, rights(MAX_LIST)).validate().is_ok());
        let error = entity(Access::Owner, rights(MAX_LIST + 1)).validate();
        assert!(error.unwrap_err().to_string().contains("group"));
    }
}
