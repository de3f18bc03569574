//! Writes samples of any type, in the version of CDR that their readers expect.
//!
//! Structs without optional members whose author has not stated that they are appendable or mutable are plain CDR of version
//! 1, which all libraries read, and ROS 2 writes. Others are version 2: in version 1 libraries differ in how they write them.

use super::decode::encoding_of;
use super::{Datum, Extensibility, Structure, Type, joined};
use crate::{Encoding, Endian, Payload};

/// The marker of a member that a reader has to understand: those of the key (DDS-XTypes 1.3, clause 7.4.3.4.2).
const MUST_BE_UNDERSTOOD: u64 = 1 << 31;
/// The code of a size that follows the identifier of a member, and of one that the member itself starts with.
const SIZE_FOLLOWS: u64 = 4;
const SIZE_IS_MEMBER: u64 = 5;

/// A value that its type does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub struct EncodeError {
    /// The path of the member, with dots.
    pub path: String,
    /// The reason.
    pub why: String,
}

impl EncodeError {
    /// The error of something within this member.
    fn within(self, member: &str) -> Self {
        let path = match &*self.path {
            "" => member.to_owned(),
            path => joined(member, path),
        };
        Self { path, ..self }
    }
}

fn fault(why: impl Into<String>) -> EncodeError {
    EncodeError {
        path: String::new(),
        why: why.into(),
    }
}

type Written = Result<(), EncodeError>;

impl Structure {
    /// Whether its samples are written in version 2 of CDR.
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        (self.is_extensibility_stated && self.extensibility != Extensibility::Final)
            || self
                .members
                .iter()
                .any(|member| member.is_optional || member.of.is_version_2())
    }

    /// Encodes a sample, a [`Datum::Structure`].
    ///
    /// # Errors
    /// A value that the type does not have.
    pub fn encode(&self, sample: &Datum) -> Result<Payload, EncodeError> {
        let is_version_2 = self.is_version_2();
        let mut out = Out {
            bytes: Vec::new(),
            is_version_2,
        };
        out.structure(self, sample)?;
        let encoding = match is_version_2 {
            true => encoding_of(self.extensibility, true),
            false => Encoding::Plain1,
        };
        Ok(Payload {
            endian: Endian::Little,
            encoding,
            bytes: out.bytes.into(),
        })
    }
}

impl Type {
    fn is_version_2(&self) -> bool {
        match self {
            Self::Structure(of) => of.is_version_2(),
            Self::Sequence(element) | Self::Array(element, _) => element.is_version_2(),
            _ => false,
        }
    }

    /// The value where there is none: zero, nothing, or for an enumeration 0.
    pub(super) fn initial(&self) -> Datum {
        match self {
            Self::Boolean => Datum::Boolean(false),
            Self::Char => Datum::Text("\0".to_owned()),
            Self::Integer { .. } | Self::Mask { .. } => Datum::Integer(0),
            Self::Float { .. } => Datum::Double(0.0),
            Self::Text | Self::Unsupported(_) => Datum::Text(String::new()),
            Self::Enumeration(of) => Datum::Text(of.initial().to_string()),
            Self::Structure(of) => of.initial(),
            Self::Sequence(element) => elements(element, 0),
            Self::Array(element, count) => elements(element, *count as usize),
        }
    }

    /// The least bytes of a value.
    pub(super) fn bytes_min(&self) -> usize {
        match self {
            Self::Integer { bytes, .. } | Self::Float { bytes } | Self::Mask { bytes } => {
                usize::from(*bytes)
            }
            Self::Structure(of) => of.bytes_min(),
            Self::Array(element, count) => element.bytes_min().saturating_mul(*count as usize),
            _ => 1,
        }
    }
}

impl Structure {
    /// The sample where nothing is known: optional members are absent.
    pub(super) fn initial(&self) -> Datum {
        let members = self.members.iter();
        Datum::Structure(
            members
                .map(|member| (!member.is_optional).then(|| member.of.initial()))
                .collect(),
        )
    }

    /// The least bytes of a sample. One without members counts too, for it takes memory.
    pub(super) fn bytes_min(&self) -> usize {
        let required = self.members.iter().filter(|member| !member.is_optional);
        let bytes = required.map(|member| member.of.bytes_min());
        bytes.fold(1, usize::saturating_add)
    }
}

fn elements(of: &Type, count: usize) -> Datum {
    match of {
        Type::Mask { bytes: 1 }
        | Type::Integer {
            bytes: 1,
            is_signed: false,
        } => Datum::Bytes(vec![0; count]),
        Type::Boolean | Type::Integer { .. } | Type::Float { .. } | Type::Mask { .. } => {
            Datum::Numbers(vec![0.0; count])
        }
        Type::Char => Datum::Text("\0".repeat(count)),
        other => Datum::List(vec![other.initial(); count]),
    }
}

/// The bytes so far.
struct Out {
    bytes: Vec<u8>,
    is_version_2: bool,
}

impl Out {
    fn structure(&mut self, of: &Structure, sample: &Datum) -> Written {
        let values = match sample {
            Datum::Structure(values) if values.len() == of.members.len() => &**values,
            _ => return Err(fault(format!("it is not of type {}", of.name))),
        };
        match (self.is_version_2, of.extensibility) {
            (true, Extensibility::Appendable) => self.sized(|out| out.in_order(of, values)),
            (true, Extensibility::Mutable) => self.sized(|out| out.identified(of, values)),
            _ => self.in_order(of, values),
        }
    }

    fn in_order(&mut self, of: &Structure, values: &[Option<Datum>]) -> Written {
        for (member, value) in of.members.iter().zip(values) {
            let at_member = |error: EncodeError| error.within(&member.name);
            if member.is_optional {
                self.bytes.push(value.is_some().into());
            }
            match value {
                Some(value) => self.value(&member.of, value).map_err(at_member)?,
                None if member.is_optional => {}
                None => return Err(at_member(fault("it has no value"))),
            }
        }
        Ok(())
    }

    /// Members with their identifiers.
    fn identified(&mut self, of: &Structure, values: &[Option<Datum>]) -> Written {
        for (member, value) in of.members.iter().zip(values) {
            let at_member = |error: EncodeError| error.within(&member.name);
            let Some(value) = value else {
                match member.is_optional {
                    true => continue,
                    false => return Err(at_member(fault("it has no value"))),
                }
            };
            let code = match &member.of {
                Type::Boolean | Type::Char => 0,
                Type::Integer { bytes, .. } | Type::Float { bytes } | Type::Mask { bytes } => {
                    u64::from(bytes.trailing_zeros())
                }
                Type::Enumeration(of) => u64::from(of.bytes.trailing_zeros()),
                Type::Text => SIZE_IS_MEMBER,
                _ => SIZE_FOLLOWS,
            };
            let key = if member.is_key { MUST_BE_UNDERSTOOD } else { 0 };
            self.number(4, key | code << 28 | u64::from(member.id));
            let written = match code {
                SIZE_FOLLOWS => self.sized(|out| out.value(&member.of, value)),
                _ => self.value(&member.of, value),
            };
            written.map_err(at_member)?;
        }
        Ok(())
    }

    /// Writes something after its size.
    fn sized(&mut self, write: impl FnOnce(&mut Self) -> Written) -> Written {
        self.number(4, 0);
        let start = self.bytes.len();
        write(self)?;
        let size = u32::try_from(self.bytes.len() - start).map_err(|_| fault("it is too large"))?;
        self.bytes[start - 4..start].copy_from_slice(&size.to_le_bytes());
        Ok(())
    }

    fn value(&mut self, of: &Type, value: &Datum) -> Written {
        match (of, value) {
            (Type::Boolean, Datum::Boolean(value)) => self.bytes.push((*value).into()),
            (Type::Char, Datum::Text(text)) => match latin(text).as_deref() {
                Some([letter]) => self.bytes.push(*letter),
                _ => return Err(fault(format!("{text:?} is not a character of 8 bits"))),
            },
            (Type::Integer { .. } | Type::Mask { .. }, Datum::Integer(value)) => {
                self.whole(of, (*value).into())?;
            }
            (Type::Integer { .. } | Type::Mask { .. }, Datum::Unsigned(value)) => {
                self.whole(of, (*value).into())?;
            }
            (Type::Float { .. }, Datum::Double(value)) => self.decimal(of, *value)?,
            (Type::Text, Datum::Text(text)) => {
                if text.contains('\0') {
                    return Err(fault("a text has no zero byte"));
                }
                self.count(text.len() + 1)?;
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.push(0);
            }
            (Type::Enumeration(of), Datum::Text(text)) => {
                let value = of.value(text);
                let value =
                    value.ok_or_else(|| fault(format!("{text:?} is not a name of {}", of.name)))?;
                let number = Type::Integer {
                    bytes: of.bytes,
                    is_signed: true,
                };
                self.whole(&number, value.into())?;
            }
            (Type::Structure(of), sample) => self.structure(of, sample)?,
            (Type::Sequence(element), value) => self.collection(element, None, value)?,
            (Type::Array(element, count), value) => {
                self.collection(element, Some(*count as usize), value)?;
            }
            _ => return Err(fault(format!("it is not of type {of}"))),
        }
        Ok(())
    }

    /// The elements of a sequence, or of an array with this many.
    fn collection(&mut self, element: &Type, fixed: Option<usize>, value: &Datum) -> Written {
        match self.is_version_2 && !element.is_primitive() {
            true => self.sized(|out| out.elements(element, fixed, value)),
            false => self.elements(element, fixed, value),
        }
    }

    fn elements(&mut self, element: &Type, fixed: Option<usize>, value: &Datum) -> Written {
        let count = match value {
            Datum::Bytes(bytes) => bytes.len(),
            Datum::Numbers(numbers) => numbers.len(),
            Datum::List(values) => values.len(),
            Datum::Text(text) => text.chars().count(),
            _ => return Err(fault("it has no elements")),
        };
        match fixed {
            None => self.count(count)?,
            Some(fixed) if fixed == count => {}
            Some(fixed) => {
                return Err(fault(format!("it has {count} elements instead of {fixed}")));
            }
        }
        match (element, value) {
            (
                Type::Mask { bytes: 1 }
                | Type::Integer {
                    bytes: 1,
                    is_signed: false,
                },
                Datum::Bytes(bytes),
            ) => self.bytes.extend_from_slice(bytes),
            (Type::Char, Datum::Text(text)) => {
                let letters = latin(text).ok_or_else(|| fault("a character has 8 bits"))?;
                self.bytes.extend_from_slice(&letters);
            }
            (_, Datum::Numbers(numbers)) => {
                for number in numbers {
                    self.decimal(element, *number)?;
                }
            }
            (_, Datum::List(values)) => {
                for value in values {
                    self.value(element, value)?;
                }
            }
            _ => return Err(fault(format!("its elements are not of type {element}"))),
        }
        Ok(())
    }

    /// A number of samples: exact for whole numbers and booleans, rounded for `float`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`float` is rounded, as documented; whole numbers are checked first"
    )]
    fn decimal(&mut self, of: &Type, value: f64) -> Written {
        match of {
            Type::Float { bytes: 4 } => self.number(4, (value as f32).to_bits().into()),
            Type::Float { .. } => self.number(8, value.to_bits()),
            Type::Boolean => match value {
                0.0 => self.bytes.push(0),
                1.0 => self.bytes.push(1),
                _ => return Err(fault(format!("{value} is not a boolean"))),
            },
            Type::Integer { .. } | Type::Mask { .. } if value.fract() == 0.0 => {
                return self.whole(of, value as i128);
            }
            _ => return Err(fault(format!("{value} is not of type {of}"))),
        }
        Ok(())
    }

    /// A whole number, in two's complement.
    fn whole(&mut self, of: &Type, value: i128) -> Written {
        let (bytes, is_signed) = match of {
            Type::Integer { bytes, is_signed } => (*bytes, *is_signed),
            Type::Mask { bytes } => (*bytes, false),
            _ => return Err(fault(format!("{value} is not of type {of}"))),
        };
        let bits = u32::from(bytes) * 8;
        let range = match is_signed {
            true => -(1_i128 << (bits - 1))..1 << (bits - 1),
            false => 0..1 << bits,
        };
        if !range.contains(&value) {
            return Err(fault(format!("{value} is not of type {of}")));
        }
        let low = value.to_le_bytes();
        let mut number = [0; 8];
        number.copy_from_slice(&low[..8]);
        self.number(bytes, u64::from_le_bytes(number));
        Ok(())
    }

    fn count(&mut self, count: usize) -> Written {
        let count = u32::try_from(count).map_err(|_| fault("it has more than 2^32 elements"))?;
        self.number(4, count.into());
        Ok(())
    }

    /// A number of 1, 2, 4 or 8 bytes: the lowest ones.
    fn number(&mut self, bytes: u8, number: u64) {
        let bytes = usize::from(bytes);
        let alignment = if self.is_version_2 {
            bytes.min(4)
        } else {
            bytes
        };
        let aligned = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(aligned, 0);
        self.bytes.extend_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

/// The characters of a text, if each has 8 bits.
fn latin(text: &str) -> Option<Vec<u8>> {
    text.chars()
        .map(|letter| u8::try_from(letter).ok())
        .collect()
}
