//! Types that Chappe did not define: structs of IDL (DDS-XTypes 1.3), from a writer's announcement or from an IDL file.
//!
//! - [`Structure`] is a type, [`Datum`] a value of it; [`Structure::decode`] reads one from
//!   all encodings of CDR.
//! - [`Flat`] is the stream of a type: members become fields. [`SampleMap`] is the other direction: fields become members,
//!   and [`Structure::encode`] writes the sample.
//! - [`Structure::differences`] names the members in which two types differ.
//!
//! Everything read here was written by strangers: types, samples and files are bounded, and their faults have a path, an
//! offset, or a line and column.
//!
//! Out of scope: unions, maps, wide text, bit sets and 128-bit numbers. A type with one is refused, by its path.

mod decode;
mod differences;
mod encode;
mod flat;
mod idl;
mod map;
#[cfg(cyclone)]
mod object;

use std::fmt;
use std::sync::Arc;

pub use decode::Datum;
pub use encode::EncodeError;
pub use flat::{Flat, column_name, time_of};
pub use idl::{IdlError, Include, idl};
pub use map::{MapRules, Missing, SampleMap};
#[cfg(cyclone)]
pub(crate) use object::resolve;

use crate::DdsError;

/// The identity of an announced type (DDS-XTypes 1.3, clause 7.3.4.8).
pub type TypeHash = [u8; 14];

/// The largest number of members, also of the structs within; reason: the memory of a type that a stranger announces.
pub const MEMBERS_MAX: usize = 4_096;
/// How deep types may be within each other; reason: the stack, and no message in use has more than eight.
pub const DEPTH_MAX: usize = 16;

/// A struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// Its scoped name, such as `sensor_msgs::msg::dds_::Imu_`.
    pub name: String,
    /// How it may be extended, which decides how it is encoded.
    pub extensibility: Extensibility,
    /// Whether its author has stated that. A struct of an IDL file without the annotation is appendable, and written in
    /// version 1 of CDR, in which that makes no difference.
    pub is_extensibility_stated: bool,
    /// Its members, those of base types first.
    pub members: Vec<Member>,
}

/// How a type may be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extensibility {
    /// Not at all.
    Final,
    /// With members at its end: the default of IDL 4.2.
    #[default]
    Appendable,
    /// With members in any place.
    Mutable,
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its identifier, 28 bits.
    pub id: u32,
    /// Whether it is part of the key.
    pub is_key: bool,
    /// Whether it may be absent.
    pub is_optional: bool,
    /// Its type.
    pub of: Type,
}

/// The type of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// True or false.
    Boolean,
    /// A character of 8 bits.
    Char,
    /// A whole number.
    Integer {
        /// Its size: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it may be negative.
        is_signed: bool,
    },
    /// A number.
    Float {
        /// Its size: 4 or 8.
        bytes: u8,
    },
    /// Bits with names: a whole number without a sign, but no primitive type.
    Mask {
        /// Its size: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// Text in UTF-8.
    Text,
    /// One of several names.
    Enumeration(Arc<Enumeration>),
    /// A struct.
    Structure(Arc<Structure>),
    /// Any number of elements.
    Sequence(Arc<Type>),
    /// A fixed number of elements, of all dimensions.
    Array(Arc<Type>, u32),
    /// A kind of type that is not read.
    Unsupported(&'static str),
}

/// The names of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// Its scoped name.
    pub name: String,
    /// The size of its values: 1, 2 or 4.
    pub bytes: u8,
    /// Its values, in order, with their names.
    literals: Vec<(i32, String)>,
}

impl Enumeration {
    pub(crate) fn new(name: String, bytes: u8, mut literals: Vec<(i32, String)>) -> Self {
        literals.sort_by_key(|(value, _)| *value);
        Self {
            name,
            bytes,
            literals,
        }
    }

    /// The name of a value.
    #[must_use]
    pub fn literal(&self, value: i64) -> Option<&str> {
        let found = self
            .literals
            .binary_search_by_key(&value, |(one, _)| i64::from(*one));
        found.ok().map(|index| &*self.literals[index].1)
    }

    /// The value with this name, or of this number.
    #[must_use]
    pub fn value(&self, text: &str) -> Option<i32> {
        let named = self.literals.iter().find(|(_, name)| name == text);
        named.map(|(value, _)| *value).or_else(|| text.parse().ok())
    }

    /// The value where there is none: 0 if it has a name, or else the lowest one.
    fn initial(&self) -> i32 {
        let lowest = self.literals.first().map_or(0, |(value, _)| *value);
        self.literal(0).map_or(lowest, |_| 0)
    }
}

/// A type that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// The library could not provide it.
    #[error(transparent)]
    Library(#[from] DdsError),
    /// An announced type that contradicts the standard.
    #[error("an announced type is invalid: {what} at byte {offset} of its description")]
    Invalid {
        /// The problem.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// A type that is too large.
    #[error("{what}; the limit is {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A kind of type that is not read.
    #[error("member {path} is a {kind}, which is not supported")]
    Unsupported {
        /// The path of the member, with dots.
        path: String,
        /// The kind.
        kind: &'static str,
    },
}

impl Structure {
    /// Checks that all of its members can be read.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), TypeError> {
        self.check_within("", &mut 0, 0)
    }

    fn check_within(&self, path: &str, seen: &mut usize, depth: usize) -> Result<(), TypeError> {
        for member in &self.members {
            *seen += 1;
            if *seen > MEMBERS_MAX {
                let what = "the type has too many members";
                return Err(TypeError::TooLarge {
                    what,
                    limit: MEMBERS_MAX,
                });
            }
            let path = joined(path, &member.name);
            let mut of = &member.of;
            let mut depth = depth + 1;
            loop {
                if depth > DEPTH_MAX {
                    let what = "types are too deep within each other";
                    return Err(TypeError::TooLarge {
                        what,
                        limit: DEPTH_MAX,
                    });
                }
                match of {
                    Type::Sequence(element) | Type::Array(element, _) => of = element,
                    Type::Structure(inner) => {
                        inner.check_within(&path, seen, depth)?;
                        break;
                    }
                    Type::Unsupported(kind) => return Err(TypeError::Unsupported { path, kind }),
                    _ => break,
                }
                depth += 1;
            }
        }
        Ok(())
    }
}

impl Type {
    /// Whether arrays of it have no size before them in version 2 of CDR.
    const fn is_primitive(&self) -> bool {
        matches!(
            self,
            Self::Boolean | Self::Char | Self::Integer { .. } | Self::Float { .. }
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Char => f.write_str("char"),
            Self::Integer { bytes, is_signed } => {
                let sign = if *is_signed { "int" } else { "uint" };
                write!(f, "{sign}{}", u32::from(*bytes) * 8)
            }
            Self::Float { bytes: 4 } => f.write_str("float"),
            Self::Float { .. } => f.write_str("double"),
            Self::Mask { bytes } => write!(f, "bitmask{}", u32::from(*bytes) * 8),
            Self::Text => f.write_str("string"),
            Self::Enumeration(of) => f.write_str(&of.name),
            Self::Structure(of) => f.write_str(&of.name),
            Self::Sequence(of) => write!(f, "sequence<{of}>"),
            Self::Array(of, count) => write!(f, "{of}[{count}]"),
            Self::Unsupported(kind) => f.write_str(kind),
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// The name of a topic as its users write it: topics of ROS 2 have a prefix in DDS.
#[must_use]
pub fn shown_topic(name: &str) -> String {
    match name.strip_prefix("rt/") {
        Some(rest) => format!("/{rest}"),
        None => name.to_owned(),
    }
}

/// The name of a topic in DDS: one that starts with `/` is a topic of ROS 2.
#[must_use]
pub fn dds_topic(name: &str) -> String {
    match name.strip_prefix('/') {
        Some(rest) => format!("rt/{rest}"),
        None => name.to_owned(),
    }
}

/// The name of a type in DDS, on this topic: ROS 2 has `sensor_msgs::msg::dds_::Imu_` for `sensor_msgs::msg::Imu`.
#[must_use]
pub fn dds_type(name: &str, topic: &str) -> String {
    match name.rsplit_once("::") {
        Some((package, rest)) if topic.starts_with('/') && !package.ends_with("::dds_") => {
            format!("{package}::dds_::{rest}_")
        }
        _ => name.to_owned(),
    }
}

/// The name of a type as its users write it: `sensor_msgs::msg::dds_::Imu_` is `sensor_msgs/msg/Imu` in ROS 2.
#[must_use]
pub fn shown_type(name: &str) -> String {
    let plain = name
        .split_once("::dds_::")
        .and_then(|(package, rest)| Some((package, rest.strip_suffix('_')?)));
    match plain {
        Some((package, rest)) => format!("{}/{rest}", package.replace("::", "/")),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ros_are_shown_and_accepted_without_their_prefixes() {
        assert_eq!(shown_topic("rt/imu/data"), "/imu/data");
        assert_eq!(dds_topic("/imu/data"), "rt/imu/data");
        assert_eq!(
            (shown_topic("ward/x"), dds_topic("ward/x")),
            ("ward/x".into(), "ward/x".into())
        );
        assert_eq!(
            shown_type("sensor_msgs::msg::dds_::Imu_"),
            "sensor_msgs/msg/Imu"
        );
        assert_eq!(shown_type("chappe::Ward"), "chappe::Ward");
        let imu = "sensor_msgs::msg::dds_::Imu_";
        assert_eq!(dds_type("sensor_msgs::msg::Imu", "/imu"), imu);
        assert_eq!(dds_type(imu, "/imu"), imu);
        assert_eq!(dds_type("lab::Pose", "pose"), "lab::Pose");
    }

    #[test]
    fn unsupported_members_are_named_by_their_path() {
        let inner = Structure {
            name: "In".into(),
            extensibility: Extensibility::Final,
            is_extensibility_stated: true,
            members: vec![member("choice", Type::Unsupported("union"))],
        };
        let outer = Structure {
            name: "Out".into(),
            extensibility: Extensibility::Final,
            is_extensibility_stated: true,
            members: vec![member(
                "all",
                Type::Sequence(Type::Structure(inner.into()).into()),
            )],
        };
        let error = outer.check().unwrap_err().to_string();
        assert!(error.starts_with("member all.choice is a union"), "{error}");
    }

    fn member(name: &str, of: Type) -> Member {
        Member {
            name: name.into(),
            id: 0,
            is_key: false,
            is_optional: false,
            of,
        }
    }
}
