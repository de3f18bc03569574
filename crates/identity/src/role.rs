//! Roles of accounts, and the streams to which they are restricted.
//!
//! A grant is written as a role and its areas: `read`, `write=ward.*,lab.pulse`,
//! `read=sdc.ctxt.loc:/ward`. An area is a stream, a prefix of stream names that ends in `*`, or a scope,
//! which contains a colon. Without areas a grant is not restricted.
//!
//! Which scopes a stream has is the caller's knowledge: [`Rights::allow`] asks for it.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Grants of one account.
pub const GRANTS_MAX: usize = 16;
/// Areas of one grant.
pub const AREAS_MAX: usize = 64;
/// Bytes of one area; reason: the registry's limit of a scope.
pub const AREA_BYTES_MAX: usize = 1_024;
/// Bytes of the name of an account.
pub const NAME_BYTES_MAX: usize = 64;

/// What an account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Read streams and the registry.
    Read,
    /// Define streams, and write elements and entities.
    Write,
    /// Change virtual sensors and links, and remove streams. Includes `read`.
    Operate,
    /// Manage accounts and read the audit stream. Includes all other roles.
    Administer,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Operate, Self::Administer];

    /// Its name in configuration, REST and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// Whether an account with this role has the role `other` too.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        match self {
            Self::Read | Self::Write => self as u8 == other as u8,
            Self::Operate => matches!(other, Self::Operate | Self::Read),
            Self::Administer => true,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or(Error::Role)
    }
}

/// Streams to which a grant is restricted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// The stream of this name.
    Stream(String),
    /// The streams whose names have this prefix.
    Prefix(String),
    /// The streams of devices in this scope, by the rule `rfc3986` of WS-Discovery.
    Scope(String),
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Scope(scope) => f.write_str(scope),
        }
    }
}

impl FromStr for Area {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > AREA_BYTES_MAX || !is_printable || text.contains(',') {
            return Err(Error::Area);
        }
        if text.contains(':') {
            return Ok(Self::Scope(text.to_owned()));
        }
        let (name, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
        match (name.bytes().all(is_allowed), is_prefix) {
            (false, _) => Err(Error::Area),
            (true, true) => Ok(Self::Prefix(name.to_owned())),
            (true, false) => Ok(Self::Stream(name.to_owned())),
        }
    }
}

/// A role, and the areas to which it is restricted; without areas it is not restricted.
///
/// ```
/// use chappe_identity::{Grant, Role};
/// let grant: Grant = "read=ward.*,sdc.ctxt.loc:/ward".parse()?;
/// assert_eq!((grant.role, grant.areas.len()), (Role::Read, 2));
/// assert_eq!(grant.to_string(), "read=ward.*,sdc.ctxt.loc:/ward");
/// # Ok::<(), chappe_identity::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// Its areas.
    pub areas: Vec<Area>,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.role)?;
        for (index, area) in self.areas.iter().enumerate() {
            write!(f, "{}{area}", if index == 0 { '=' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Grant {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((role, areas)) = text.split_once('=') else {
            let (role, areas) = (text.parse()?, Vec::new());
            return Ok(Self { role, areas });
        };
        if areas.split(',').nth(AREAS_MAX).is_some() {
            return Err(Error::TooMany("areas of a role", AREAS_MAX));
        }
        // An empty list must not turn a restricted role into an unrestricted one.
        let areas: Result<Vec<Area>, Error> = areas.split(',').map(str::parse).collect();
        Ok(Self {
            role: role.parse()?,
            areas: areas?,
        })
    }
}

/// How far a role reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The account does not have the role.
    None,
    /// It has the role for some streams.
    Some,
    /// It has the role without restriction.
    All,
}

/// The grants of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights(Vec<Grant>);

impl Rights {
    /// Checks the number of grants.
    ///
    /// # Errors
    /// No grant, or more than [`GRANTS_MAX`].
    pub fn new(grants: Vec<Grant>) -> Result<Self, Error> {
        if grants.is_empty() {
            return Err(Error::NoRole);
        }
        if grants.len() > GRANTS_MAX {
            return Err(Error::TooMany("roles of an account", GRANTS_MAX));
        }
        Ok(Self(grants))
    }

    /// One role without restriction.
    #[must_use]
    pub fn all(role: Role) -> Self {
        let areas = Vec::new();
        Self(vec![Grant { role, areas }])
    }

    /// The grants.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }

    /// How far `role` reaches.
    #[must_use]
    pub fn reach(&self, role: Role) -> Reach {
        let mut reach = Reach::None;
        for grant in self.0.iter().filter(|grant| grant.role.includes(role)) {
            if grant.areas.is_empty() {
                return Reach::All;
            }
            reach = Reach::Some;
        }
        reach
    }

    /// Whether `role` reaches the stream `name`. `in_scope` says whether the stream's device is in a
    /// scope; it is asked only if no name decides.
    #[must_use]
    pub fn allow(&self, role: Role, name: &str, in_scope: impl Fn(&str) -> bool) -> bool {
        let grants = || self.0.iter().filter(|grant| grant.role.includes(role));
        let areas = || grants().flat_map(|grant| &grant.areas);
        grants().any(|grant| grant.areas.is_empty())
            || areas().any(|area| match area {
                Area::Stream(stream) => stream == name,
                Area::Prefix(prefix) => name.starts_with(prefix.as_str()),
                Area::Scope(_) => false,
            })
            || areas().any(|area| matches!(area, Area::Scope(scope) if in_scope(scope)))
    }
}

/// Checks the name of an account: letters, digits, `.`, `_`, `-` and `@`, starting with a letter or digit.
///
/// # Errors
/// [`Error::Name`].
pub fn check_account_name(name: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    match starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(Error::Name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(grants: &[&str]) -> Rights {
        Rights::new(grants.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
    }

    #[test]
    fn a_restricted_role_reaches_only_its_areas() {
        let rights = rights(&["read=ward.*,lab", "write=urn:ward"]);
        let nowhere = |_: &str| false;
        for (name, allowed) in [
            ("ward.a", true),
            ("ward", false),
            ("wards.a", false),
            ("lab", true),
            ("lab.a", false),
        ] {
            assert_eq!(rights.allow(Role::Read, name, nowhere), allowed, "{name}");
        }
        assert!(rights.allow(Role::Write, "x", |scope| scope == "urn:ward"));
        assert!(!rights.allow(Role::Write, "ward.a", nowhere));
        assert!(!rights.allow(Role::Read, "x", |scope| scope == "urn:ward"));
        assert_eq!(rights.reach(Role::Read), Reach::Some);
        assert_eq!(rights.reach(Role::Operate), Reach::None);
    }

    #[test]
    fn roles_include_others_as_documented() {
        let table = [
            (Role::Read, [true, false, false, false]),
            (Role::Write, [false, true, false, false]),
            (Role::Operate, [true, false, true, false]),
            (Role::Administer, [true, true, true, true]),
        ];
        for (role, included) in table {
            for (other, included) in Role::ALL.into_iter().zip(included) {
                assert_eq!(role.includes(other), included, "{role} {other}");
                let reach = if included { Reach::All } else { Reach::None };
                assert_eq!(Rights::all(role).reach(other), reach);
            }
        }
    }

    #[test]
    fn malformed_grants_are_refused() {
        for text in [
            "", "READ", "read=", "read=,", "read=a,", "read=A", "read=a*b", "read=a b", "=a",
            "own=a", "read ", "read=*a",
        ] {
            assert!(text.parse::<Grant>().is_err(), "{text}");
        }
        let many = format!("read={}", vec!["a"; AREAS_MAX + 1].join(","));
        assert!(many.parse::<Grant>().is_err());
        assert!(Rights::new(Vec::new()).is_err());
        for name in ["", ".a", "a b", "-a", "a/b", &"a".repeat(65)] {
            assert!(check_account_name(name).is_err(), "{name}");
        }
        for name in ["ada", "7", "ward-3.gateway", "ada@example.org"] {
            check_account_name(name).unwrap();
        }
    }
}
