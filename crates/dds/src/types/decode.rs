//! Samples of any type: CDR of both versions (DDS-XTypes 1.3, clause 7.4).
//!
//! Version 1 aligns numbers to their size, version 2 to at most four bytes. An extensible struct of version 2 starts with its
//! size; a mutable one has an identifier and a size before each member, in both versions.

use std::sync::Arc;

use super::{Enumeration, Extensibility, Structure, Type};
use crate::{CdrError, Encoding, Endian, Payload};

/// The largest number of values in a sample; reason: they take up to 32 bytes each, also those of no bytes, such as
/// structs without members. Numbers in a sequence count one for each eight.
const VALUES_MAX: usize = 1 << 20;

/// Identifiers of parameters (DDS-XTypes 1.3, clause 7.4.1.1.5).
pub(super) const PID_EXTENDED: u16 = 0x3f01;
pub(super) const PID_LIST_END: u16 = 0x3f02;
/// The bits of an identifier after its two flags.
pub(super) const PID_BITS: u16 = 0x3fff;
/// The bits of a member's identifier.
const ID_BITS: u32 = 0x0fff_ffff;

/// A value of a type.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// True or false.
    Boolean(bool),
    /// A whole number that may be negative.
    Integer(i64),
    /// A whole number that may not.
    Unsigned(u64),
    /// A number.
    Double(f64),
    /// Text, a character, or the name of an enumeration's value; the number of a value without a name.
    Text(String),
    /// A sequence or array of numbers of 8 bits without a sign.
    Bytes(Vec<u8>),
    /// A sequence or array of other numbers. Whole numbers above 2^53 are rounded.
    Numbers(Vec<f64>),
    /// Another sequence or array.
    List(Vec<Datum>),
    /// A struct: one value for each member, `None` for absent ones.
    Structure(Vec<Option<Datum>>),
}

impl Structure {
    /// Decodes a sample: a [`Datum::Structure`].
    ///
    /// # Errors
    /// The payload is not of this type.
    pub fn decode(&self, payload: &Payload) -> Result<Datum, CdrError> {
        let is_version_2 = !matches!(payload.encoding, Encoding::Plain1 | Encoding::Parameters1);
        let mut cdr = Cursor {
            bytes: &payload.bytes,
            offset: 0,
            origin: 0,
            end: payload.bytes.len(),
            endian: payload.endian,
            is_version_2,
            values: 0,
        };
        if payload.encoding != encoding_of(self.extensibility, is_version_2) {
            return Err(cdr.wrong("the encoding is not that of the type's extensibility"));
        }
        let found = cdr.structure(self)?;
        match cdr.left() {
            0..=3 => Ok(found),
            left => Err(CdrError::Long {
                offset: cdr.offset,
                left,
            }),
        }
    }
}

/// The encoding of a sample whose type has this extensibility.
pub(super) const fn encoding_of(extensibility: Extensibility, is_version_2: bool) -> Encoding {
    match (is_version_2, extensibility) {
        (false, Extensibility::Mutable) => Encoding::Parameters1,
        (false, _) => Encoding::Plain1,
        (true, Extensibility::Final) => Encoding::Plain2,
        (true, Extensibility::Appendable) => Encoding::Delimited2,
        (true, Extensibility::Mutable) => Encoding::Parameters2,
    }
}

/// A place in a sample.
struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Alignment counts from here.
    origin: usize,
    /// The end of the current struct or member.
    end: usize,
    endian: Endian,
    is_version_2: bool,
    /// The number of values so far.
    values: usize,
}

impl<'a> Cursor<'a> {
    fn structure(&mut self, of: &Structure) -> Result<Datum, CdrError> {
        let values = match (self.is_version_2, of.extensibility) {
            (false, Extensibility::Mutable) => self.parameters_1(of)?,
            (_, Extensibility::Final) | (false, _) => self.in_order(of)?,
            (true, extensibility) => {
                let size = self.size()?;
                self.within(size, |cdr| match extensibility {
                    Extensibility::Mutable => cdr.parameters_2(of),
                    _ => cdr.in_order(of),
                })?
            }
        };
        Ok(Datum::Structure(values))
    }

    /// Members in their order. Those after the end of an extensible struct of version 2 are absent: its writer has an
    /// older version of the type.
    fn in_order(&mut self, of: &Structure) -> Result<Vec<Option<Datum>>, CdrError> {
        self.count(of.members.len())?;
        let is_extensible = self.is_version_2 && of.extensibility == Extensibility::Appendable;
        let mut values = Vec::with_capacity(of.members.len());
        for member in &of.members {
            if is_extensible && self.left() == 0 {
                values.push(None);
                continue;
            }
            values.push(match (member.is_optional, self.is_version_2) {
                (false, _) => Some(self.value(&member.of)?),
                (true, true) => match self.boolean()? {
                    true => Some(self.value(&member.of)?),
                    false => None,
                },
                (true, false) => match self.parameter_1()? {
                    Some((_, 0)) => None,
                    Some((_, size)) => Some(self.parameter(size, &member.of)?),
                    None => return Err(self.wrong("an optional member is missing")),
                },
            });
        }
        Ok(values)
    }

    /// Members with their identifiers, of version 1.
    fn parameters_1(&mut self, of: &Structure) -> Result<Vec<Option<Datum>>, CdrError> {
        self.count(of.members.len())?;
        let mut values = vec![None; of.members.len()];
        while let Some((id, size)) = self.parameter_1()? {
            self.member(of, &mut values, id, size)?;
        }
        Ok(values)
    }

    /// Members with their identifiers, of version 2, up to the end of the struct.
    fn parameters_2(&mut self, of: &Structure) -> Result<Vec<Option<Datum>>, CdrError> {
        self.count(of.members.len())?;
        let mut values = vec![None; of.members.len()];
        while self.left() > 0 {
            let head = self.u32()?;
            let size = match (head >> 28) & 7 {
                code @ 0..=3 => 1 << code,
                4 => self.size()?,
                code => {
                    // The size is also the first number of the member.
                    let count = self.size()?;
                    self.offset -= 4;
                    let unit = [1, 4, 8][code as usize - 5];
                    count.saturating_mul(unit).saturating_add(4)
                }
            };
            self.member(of, &mut values, head & ID_BITS, size)?;
        }
        Ok(values)
    }

    /// The next identifier and size of version 1; `None` at the end of the list.
    fn parameter_1(&mut self) -> Result<Option<(u32, usize)>, CdrError> {
        self.align(4)?;
        let (id, size) = (self.u16()?, self.u16()?);
        match id & PID_BITS {
            PID_LIST_END => Ok(None),
            PID_EXTENDED => Ok(Some((self.u32()? & ID_BITS, self.size()?))),
            id => Ok(Some((id.into(), size.into()))),
        }
    }

    /// Reads a member of this size, or skips it if the type has none with this identifier.
    fn member(
        &mut self,
        of: &Structure,
        values: &mut [Option<Datum>],
        id: u32,
        size: usize,
    ) -> Result<(), CdrError> {
        let known = of.members.iter().position(|member| member.id == id);
        match known {
            Some(index) => values[index] = Some(self.parameter(size, &of.members[index].of)?),
            None => {
                self.take(size)?;
            }
        }
        Ok(())
    }

    /// A member of this size. In version 1 its alignment counts from its start.
    fn parameter(&mut self, size: usize, of: &Type) -> Result<Datum, CdrError> {
        let origin = self.origin;
        if !self.is_version_2 {
            self.origin = self.offset;
        }
        let value = self.within(size, |cdr| cdr.value(of));
        self.origin = origin;
        value
    }

    /// Reads within the next bytes, and continues after them.
    fn within<T>(
        &mut self,
        size: usize,
        read: impl FnOnce(&mut Self) -> Result<T, CdrError>,
    ) -> Result<T, CdrError> {
        if size > self.left() {
            return Err(self.short(size));
        }
        let (outer, end) = (self.end, self.offset + size);
        self.end = end;
        let found = read(self)?;
        (self.end, self.offset) = (outer, end);
        Ok(found)
    }

    fn value(&mut self, of: &Type) -> Result<Datum, CdrError> {
        self.count(1)?;
        Ok(match of {
            Type::Boolean => Datum::Boolean(self.boolean()?),
            Type::Char => Datum::Text(char::from(self.take(1)?[0]).to_string()),
            Type::Integer { bytes, is_signed } => {
                let number = self.unsigned(*bytes)?;
                match is_signed {
                    true => Datum::Integer(signed(number, *bytes)),
                    false => Datum::Unsigned(number),
                }
            }
            Type::Float { .. } => Datum::Double(self.number(of)?),
            Type::Mask { bytes } => Datum::Unsigned(self.unsigned(*bytes)?),
            Type::Text => Datum::Text(self.text()?),
            Type::Enumeration(of) => Datum::Text(self.literal(of)?),
            Type::Structure(of) => self.structure(of)?,
            Type::Sequence(element) => self.collection(element, None)?,
            Type::Array(element, count) => self.collection(element, Some(*count))?,
            Type::Unsupported(_) => return Err(self.wrong("a member cannot be read")),
        })
    }

    /// The elements of a sequence, or of an array with this many.
    fn collection(&mut self, element: &Arc<Type>, fixed: Option<u32>) -> Result<Datum, CdrError> {
        if self.is_version_2 && !element.is_primitive() {
            let size = self.size()?;
            return self.within(size, |cdr| cdr.elements(element, fixed));
        }
        self.elements(element, fixed)
    }

    fn elements(&mut self, element: &Type, fixed: Option<u32>) -> Result<Datum, CdrError> {
        let count = match fixed {
            Some(count) => count as usize,
            None => self.size()?,
        };
        let size = match element {
            Type::Integer { bytes, .. } | Type::Float { bytes } | Type::Mask { bytes } => {
                usize::from(*bytes)
            }
            Type::Boolean | Type::Char => 1,
            _ => {
                self.count(count)?;
                let values = (0..count).map(|_| self.value(element));
                return Ok(Datum::List(values.collect::<Result<_, _>>()?));
            }
        };
        // Checked before memory is taken for them.
        if size.saturating_mul(count) > self.left() {
            return Err(self.short(size.saturating_mul(count)));
        }
        match element {
            Type::Mask { bytes: 1 }
            | Type::Integer {
                bytes: 1,
                is_signed: false,
            } => Ok(Datum::Bytes(self.take(count)?.to_vec())),
            Type::Char => {
                let text = self.take(count)?.iter();
                Ok(Datum::Text(text.map(|byte| char::from(*byte)).collect()))
            }
            _ => {
                self.count(count / 8)?;
                let numbers = (0..count).map(|_| self.number(element));
                Ok(Datum::Numbers(numbers.collect::<Result<_, _>>()?))
            }
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "whole numbers above 2^53 are rounded, as documented"
    )]
    fn number(&mut self, of: &Type) -> Result<f64, CdrError> {
        Ok(match of {
            Type::Integer { bytes, is_signed } => {
                let number = self.unsigned(*bytes)?;
                match is_signed {
                    true => signed(number, *bytes) as f64,
                    false => number as f64,
                }
            }
            Type::Mask { bytes } => self.unsigned(*bytes)? as f64,
            Type::Float { bytes: 4 } => f32::from_bits(self.u32()?).into(),
            Type::Float { .. } => f64::from_bits(self.unsigned(8)?),
            _ => self.boolean()?.into(),
        })
    }

    fn literal(&mut self, of: &Enumeration) -> Result<String, CdrError> {
        let number = signed(self.unsigned(of.bytes)?, of.bytes);
        let Some(name) = of.literal(number) else {
            return Ok(number.to_string());
        };
        // A byte of a sample can name as long a text as the type has.
        self.count(name.len() / 32)?;
        Ok(name.to_owned())
    }

    fn text(&mut self) -> Result<String, CdrError> {
        let size = self.size()?;
        let text = match self.take(size)?.split_last() {
            Some((0, text)) => text,
            // Some writers omit the zero byte of an empty text.
            None => &[],
            Some(_) => return Err(self.wrong("a text does not end with a zero byte")),
        };
        let text = std::str::from_utf8(text).map_err(|_| self.wrong("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    fn boolean(&mut self) -> Result<bool, CdrError> {
        match self.take(1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("a boolean is neither 0 nor 1")),
        }
    }

    /// A number of 1, 2, 4 or 8 bytes.
    fn unsigned(&mut self, bytes: u8) -> Result<u64, CdrError> {
        self.align(bytes.into())?;
        let mut number = [0; 8];
        let (endian, taken) = (self.endian, self.take(bytes.into())?);
        match endian {
            Endian::Little => number[..taken.len()].copy_from_slice(taken),
            Endian::Big => {
                for (to, from) in number.iter_mut().zip(taken.iter().rev()) {
                    *to = *from;
                }
            }
        }
        Ok(u64::from_le_bytes(number))
    }

    fn u16(&mut self) -> Result<u16, CdrError> {
        Ok(u16::try_from(self.unsigned(2)?).unwrap_or_default())
    }

    fn u32(&mut self) -> Result<u32, CdrError> {
        Ok(u32::try_from(self.unsigned(4)?).unwrap_or_default())
    }

    fn size(&mut self) -> Result<usize, CdrError> {
        Ok(self.u32()? as usize)
    }

    fn align(&mut self, size: usize) -> Result<(), CdrError> {
        let size = if self.is_version_2 { size.min(4) } else { size };
        let past = (self.offset - self.origin) % size;
        if past != 0 {
            self.take(size - past)?;
        }
        Ok(())
    }

    fn take(&mut self, wanted: usize) -> Result<&'a [u8], CdrError> {
        if wanted > self.left() {
            return Err(self.short(wanted));
        }
        let taken = &self.bytes[self.offset..self.offset + wanted];
        self.offset += wanted;
        Ok(taken)
    }

    fn count(&mut self, values: usize) -> Result<(), CdrError> {
        self.values = self.values.saturating_add(values);
        match self.values > VALUES_MAX {
            true => Err(self.wrong("a sample has too many values")),
            false => Ok(()),
        }
    }

    const fn left(&self) -> usize {
        self.end - self.offset
    }

    const fn short(&self, wanted: usize) -> CdrError {
        CdrError::Short {
            offset: self.offset,
            wanted,
            left: self.left(),
        }
    }

    const fn wrong(&self, what: &'static str) -> CdrError {
        CdrError::Value {
            offset: self.offset,
            what,
        }
    }
}

/// The number with this two's complement.
const fn signed(number: u64, bytes: u8) -> i64 {
    let unused = 64 - 8 * bytes as u32;
    (number << unused).cast_signed() >> unused
}
