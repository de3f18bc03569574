//! Announced types, from the descriptions that `unsafe_cyclone/types.c` makes of the library's type objects
//! (DDS-XTypes 1.3, clause 7.3.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    DEPTH_MAX, Enumeration, Extensibility, MEMBERS_MAX, Member, Structure, Type, TypeError,
    TypeHash,
};
use crate::DdsError;

/// The largest number of types in one; reason: each is requested from its writer.
const TYPES_MAX: usize = 256;
/// The largest number of names of one enumeration; reason: the memory of a type that a stranger announces.
const LITERALS_MAX: usize = 4_096;

/// Kinds of types (DDS-XTypes 1.3, annex B).
mod kind {
    pub(super) const BOOLEAN: u8 = 1;
    pub(super) const BYTE: u8 = 2;
    pub(super) const INT16: u8 = 3;
    pub(super) const INT32: u8 = 4;
    pub(super) const INT64: u8 = 5;
    pub(super) const UINT16: u8 = 6;
    pub(super) const UINT32: u8 = 7;
    pub(super) const UINT64: u8 = 8;
    pub(super) const FLOAT32: u8 = 9;
    pub(super) const FLOAT64: u8 = 10;
    pub(super) const FLOAT128: u8 = 11;
    pub(super) const INT8: u8 = 12;
    pub(super) const UINT8: u8 = 13;
    pub(super) const CHAR8: u8 = 16;
    pub(super) const CHAR16: u8 = 17;
    pub(super) const STRING8: u8 = 32;
    pub(super) const STRING16: u8 = 33;
    pub(super) const ALIAS: u8 = 48;
    pub(super) const ENUM: u8 = 64;
    pub(super) const BITMASK: u8 = 65;
    pub(super) const STRUCTURE: u8 = 81;
    pub(super) const UNION: u8 = 82;
    pub(super) const BITSET: u8 = 83;
    pub(super) const SEQUENCE: u8 = 96;
    pub(super) const ARRAY: u8 = 97;
    pub(super) const MAP: u8 = 98;
    pub(super) const HASH: u8 = 242;
}

/// Flags of structs and members (DDS-XTypes 1.3, annex B).
const IS_FINAL: u32 = 1;
const IS_MUTABLE: u32 = 1 << 2;
const IS_OPTIONAL: u32 = 1 << 3;
const IS_KEY: u32 = 1 << 5;

/// Returns the description of a type; `None` while it is being requested.
type Fetch<'a> = dyn FnMut(&TypeHash) -> Result<Option<Vec<u8>>, DdsError> + 'a;

/// The struct with this hash; `None` while it is being requested.
///
/// # Errors
/// It is invalid, too large, or not supported.
pub(crate) fn resolve(
    hash: &TypeHash,
    fetch: &mut Fetch<'_>,
) -> Result<Option<Arc<Structure>>, TypeError> {
    let mut resolver = Resolver {
        fetch,
        known: BTreeMap::new(),
        members: 0,
        is_waiting: false,
    };
    let found = resolver.of_hash(hash, 0)?;
    if resolver.is_waiting {
        return Ok(None);
    }
    match found {
        Type::Structure(found) => {
            found.check()?;
            Ok(Some(found))
        }
        _ => Err(TypeError::Invalid {
            what: "it is not a struct",
            offset: 0,
        }),
    }
}

struct Resolver<'a> {
    fetch: &'a mut Fetch<'a>,
    known: BTreeMap<TypeHash, Type>,
    members: usize,
    /// Whether a type is still being requested: the others are requested too, and the result is not used.
    is_waiting: bool,
}

impl Resolver<'_> {
    fn of_hash(&mut self, hash: &TypeHash, depth: usize) -> Result<Type, TypeError> {
        if let Some(known) = self.known.get(hash) {
            return Ok(known.clone());
        }
        if depth > DEPTH_MAX || self.known.len() >= TYPES_MAX {
            let (what, limit) = match depth > DEPTH_MAX {
                true => ("types are too deep within each other", DEPTH_MAX),
                false => ("the type consists of too many types", TYPES_MAX),
            };
            return Err(TypeError::TooLarge { what, limit });
        }
        let Some(bytes) = (self.fetch)(hash)? else {
            self.is_waiting = true;
            return Ok(Type::Unsupported("type that is being requested"));
        };
        let mut input = Input {
            bytes: &bytes,
            offset: 0,
        };
        let found = self.object(&mut input, depth)?;
        self.known.insert(*hash, found.clone());
        Ok(found)
    }

    fn object(&mut self, input: &mut Input<'_>, depth: usize) -> Result<Type, TypeError> {
        Ok(match input.u8()? {
            kind::STRUCTURE => Type::Structure(Arc::new(self.structure(input, depth)?)),
            kind::ENUM => Type::Enumeration(Arc::new(enumeration(input)?)),
            kind::BITMASK => Type::Mask {
                bytes: size_of_bits(input.u32()?),
            },
            kind::ALIAS => self.within(input, depth)?,
            kind::SEQUENCE => {
                input.u32()?;
                Type::Sequence(Arc::new(self.within(input, depth)?))
            }
            kind::ARRAY => self.array(input, depth)?,
            other => Type::Unsupported(name_of(other)),
        })
    }

    fn structure(&mut self, input: &mut Input<'_>, depth: usize) -> Result<Structure, TypeError> {
        let flags = input.u32()?;
        let name = input.name()?;
        let mut members = match self.within(input, depth)? {
            Type::Structure(base) => base.members.clone(),
            _ => Vec::new(),
        };
        for _ in 0..input.u32()? {
            self.members += 1;
            if self.members > MEMBERS_MAX {
                let what = "the type has too many members";
                return Err(TypeError::TooLarge {
                    what,
                    limit: MEMBERS_MAX,
                });
            }
            let id = input.u32()?;
            let flags = input.u32()?;
            members.push(Member {
                name: input.name()?,
                id,
                is_key: flags & IS_KEY != 0,
                is_optional: flags & IS_OPTIONAL != 0,
                of: self.within(input, depth)?,
            });
        }
        Ok(Structure {
            name,
            extensibility: match flags {
                flags if flags & IS_FINAL != 0 => Extensibility::Final,
                flags if flags & IS_MUTABLE != 0 => Extensibility::Mutable,
                _ => Extensibility::Appendable,
            },
            is_extensibility_stated: true,
            members,
        })
    }

    fn array(&mut self, input: &mut Input<'_>, depth: usize) -> Result<Type, TypeError> {
        let mut count: u32 = 1;
        for _ in 0..input.u32()? {
            let bound = input.u32()?;
            count = count
                .checked_mul(bound)
                .ok_or_else(|| input.wrong("an array has more than 2^32 elements"))?;
        }
        Ok(Type::Array(Arc::new(self.within(input, depth)?), count))
    }

    /// A type within another.
    fn within(&mut self, input: &mut Input<'_>, depth: usize) -> Result<Type, TypeError> {
        let integer = |bytes, is_signed| Type::Integer { bytes, is_signed };
        Ok(match input.u8()? {
            kind::BOOLEAN => Type::Boolean,
            kind::BYTE | kind::UINT8 => integer(1, false),
            kind::INT8 => integer(1, true),
            kind::INT16 => integer(2, true),
            kind::INT32 => integer(4, true),
            kind::INT64 => integer(8, true),
            kind::UINT16 => integer(2, false),
            kind::UINT32 => integer(4, false),
            kind::UINT64 => integer(8, false),
            kind::FLOAT32 => Type::Float { bytes: 4 },
            kind::FLOAT64 => Type::Float { bytes: 8 },
            kind::CHAR8 => Type::Char,
            kind::STRING8 => Type::Text,
            kind::SEQUENCE => {
                input.u32()?;
                Type::Sequence(Arc::new(self.within(input, depth)?))
            }
            kind::ARRAY => self.array(input, depth)?,
            kind::HASH => self.of_hash(&input.hash()?, depth + 1)?,
            other => Type::Unsupported(name_of(other)),
        })
    }
}

fn enumeration(input: &mut Input<'_>) -> Result<Enumeration, TypeError> {
    let bits = input.u32()?;
    let name = input.name()?;
    let count = input.u32()? as usize;
    if count > LITERALS_MAX {
        let what = "an enumeration has too many names";
        return Err(TypeError::TooLarge {
            what,
            limit: LITERALS_MAX,
        });
    }
    let mut literals = Vec::new();
    for _ in 0..count {
        literals.push((input.u32()?.cast_signed(), input.name()?));
    }
    let bytes = size_of_bits(bits).min(4);
    Ok(Enumeration::new(name, bytes, literals))
}

/// The bytes of an enumeration or bit mask with this bound.
const fn size_of_bits(bits: u32) -> u8 {
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

const fn name_of(of: u8) -> &'static str {
    match of {
        kind::FLOAT128 => "number of 128 bits",
        kind::CHAR16 => "wide character",
        kind::STRING16 => "wide text",
        kind::UNION => "union",
        kind::BITSET => "bit set",
        kind::MAP => "map",
        _ => "type without a description",
    }
}

/// Reads a description.
struct Input<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Input<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], TypeError> {
        let end = self.offset.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.offset..end));
        let taken = taken.ok_or_else(|| self.wrong("it ends too early"))?;
        self.offset += count;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, TypeError> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, TypeError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    fn name(&mut self) -> Result<String, TypeError> {
        let count = self.u32()? as usize;
        Ok(String::from_utf8_lossy(self.take(count)?).into_owned())
    }

    fn hash(&mut self) -> Result<TypeHash, TypeError> {
        let mut hash = [0; 14];
        hash.copy_from_slice(self.take(14)?);
        Ok(hash)
    }

    const fn wrong(&self, what: &'static str) -> TypeError {
        TypeError::Invalid {
            what,
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A struct with one member of this type.
    fn object(member: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind::STRUCTURE];
        bytes.extend(IS_FINAL.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(b"S\0");
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend([7, 0, 0, 0, 0x20, 0, 0, 0]);
        bytes.extend(1_u32.to_le_bytes());
        bytes.push(b'm');
        bytes.extend(member);
        bytes
    }

    #[test]
    fn a_struct_is_resolved_once_its_parts_are_there() {
        let mut inner_is_there = false;
        for _ in 0..2 {
            let found = resolve(&[1; 14], &mut |hash| {
                let member = [&[kind::HASH][..], &[2; 14]].concat();
                Ok(match hash[0] {
                    1 => Some(object(&member)),
                    _ if inner_is_there => Some(object(&[kind::INT16])),
                    _ => None,
                })
            });
            let found = found.unwrap();
            assert_eq!(found.is_some(), inner_is_there);
            if let Some(found) = found {
                let member = &found.members[0];
                assert_eq!((member.id, member.is_key, &*member.name), (7, true, "m"));
                let Type::Structure(inner) = &member.of else {
                    panic!("{member:?}");
                };
                assert_eq!(inner.members[0].of.to_string(), "int16");
            }
            inner_is_there = true;
        }
    }

    #[test]
    fn a_type_within_itself_is_refused() {
        let member = [&[kind::HASH][..], &[1; 14]].concat();
        let error = resolve(&[1; 14], &mut |_| Ok(Some(object(&member)))).unwrap_err();
        assert!(matches!(error, TypeError::TooLarge { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn any_description_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = resolve(&[1; 14], &mut |_| Ok(Some(bytes.clone())));
            let _ = resolve(&[1; 14], &mut |_| Ok(Some(object(&bytes))));
        }
    }
}
