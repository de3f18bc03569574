//! Kryo's primitives, read: numbers of fixed and of variable size, text, classes, references.

use super::KryoError;
use super::class::Class;

/// Bytes of text that references may copy beyond those of the frame: a short frame must not become much memory.
const COPIED_BYTES_MAX: usize = 1 << 20;
/// Objects that references can name. Default elements have three for each field.
const OBJECTS_MAX: usize = 1 << 16;

/// Reads one frame.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The classes named so far, in order: later ones are named by their number.
    classes: Vec<Class>,
    /// The objects read so far. An object has its number before its content is read.
    objects: Vec<Object>,
    copied_bytes: usize,
}

/// An object that a reference may name.
#[derive(Clone)]
enum Object {
    /// Text.
    Text(String),
    /// Something else, to which no reference is accepted.
    Other,
}

/// What precedes an object that references can name.
pub(super) enum Reference {
    /// There is no object.
    Null,
    /// The object follows.
    New,
    /// It is the object with this number.
    Earlier(u32),
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            classes: Vec::new(),
            objects: Vec::new(),
            copied_bytes: 0,
        }
    }

    /// The offset of the next byte, for errors.
    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    /// The number of bytes that are left.
    pub(super) const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Checks that nothing follows.
    pub(super) fn end(&self) -> Result<(), KryoError> {
        match self.left() {
            0 => Ok(()),
            count => Err(KryoError::Trailing {
                count,
                offset: self.at,
            }),
        }
    }

    pub(super) fn malformed<T>(&self, what: &'static str) -> Result<T, KryoError> {
        let offset = self.at;
        Err(KryoError::Malformed { what, offset })
    }

    pub(super) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], KryoError> {
        let offset = self.at;
        let end = self.at.checked_add(count);
        let piece = end.and_then(|end| self.bytes.get(offset..end));
        let piece = piece.ok_or(KryoError::Truncated { what, offset })?;
        self.at += count;
        Ok(piece)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], KryoError> {
        let piece = self.take(N, what)?;
        let mut array = [0; N];
        array.copy_from_slice(piece);
        Ok(array)
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, KryoError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn i16(&mut self, what: &'static str) -> Result<i16, KryoError> {
        Ok(i16::from_be_bytes(self.array(what)?))
    }

    pub(super) fn f32(&mut self, what: &'static str) -> Result<f32, KryoError> {
        Ok(f32::from_be_bytes(self.array(what)?))
    }

    pub(super) fn f64(&mut self, what: &'static str) -> Result<f64, KryoError> {
        Ok(f64::from_be_bytes(self.array(what)?))
    }

    /// A number of one to five bytes, seven bits in each, the lowest first.
    pub(super) fn var_u32(&mut self, what: &'static str) -> Result<u32, KryoError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte(what)?;
            if shift == 28 && byte > 0x0F {
                return self.malformed("a number has more than 32 bits");
            }
            value |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }

    /// The same, with the sign in the lowest bit.
    pub(super) fn var_i32(&mut self, what: &'static str) -> Result<i32, KryoError> {
        let value = self.var_u32(what)?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// A number of one to nine bytes, seven bits in each but eight in the ninth, with the sign in the lowest bit.
    pub(super) fn var_i64(&mut self, what: &'static str) -> Result<i64, KryoError> {
        let mut value = 0;
        for index in 0..9 {
            let byte = self.byte(what)?;
            let bits = if index < 8 { byte & 0x7F } else { byte };
            value |= u64::from(bits) << (7 * index);
            if index < 8 && byte & 0x80 == 0 {
                break;
            }
        }
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The length of an array, of which each item has at least one byte; `None` for no array.
    pub(super) fn length(&mut self, what: &'static str) -> Result<Option<usize>, KryoError> {
        let offset = self.at;
        let Some(length) = self.var_u32(what)?.checked_sub(1) else {
            return Ok(None);
        };
        match usize::try_from(length) {
            Ok(length) if length <= self.left() => Ok(Some(length)),
            _ => Err(KryoError::Truncated { what, offset }),
        }
    }

    /// Text without a reference, or `None` for null.
    pub(super) fn text(&mut self, what: &'static str) -> Result<Option<String>, KryoError> {
        let first = self.byte(what)?;
        if first & 0x80 == 0 {
            return self.ascii(what).map(Some);
        }
        let units = self.text_length(first, what)?;
        let Some(units) = units.checked_sub(1) else {
            return Ok(None);
        };
        if units > self.left() {
            let offset = self.at;
            return Err(KryoError::Truncated { what, offset });
        }
        let mut text = Vec::with_capacity(units);
        for _ in 0..units {
            text.push(self.utf16_unit(what)?);
        }
        match String::from_utf16(&text) {
            Ok(text) => Ok(Some(text)),
            Err(_) => self.malformed("a text has half a surrogate pair"),
        }
    }

    /// ASCII text whose last byte has the highest bit set; its first byte has been read.
    fn ascii(&mut self, what: &'static str) -> Result<String, KryoError> {
        let start = self.at - 1;
        let end = self.bytes[start..].iter().position(|byte| byte & 0x80 != 0);
        let Some(end) = end else {
            let offset = self.bytes.len();
            return Err(KryoError::Truncated { what, offset });
        };
        self.at = start + end + 1;
        let text = self.bytes[start..self.at].iter();
        Ok(text.map(|byte| char::from(byte & 0x7F)).collect())
    }

    /// The length of a text plus one: six bits in the first byte, seven in each further one.
    fn text_length(&mut self, first: u8, what: &'static str) -> Result<usize, KryoError> {
        let mut length = usize::from(first & 0x3F);
        let mut more = first & 0x40 != 0;
        for shift in [6, 13, 20, 27] {
            if !more {
                break;
            }
            let byte = self.byte(what)?;
            if shift == 27 && byte > 0x0F {
                return self.malformed("a text has more than 2^31 characters");
            }
            length |= usize::from(byte & 0x7F) << shift;
            more = byte & 0x80 != 0;
        }
        Ok(length)
    }

    /// One unit of UTF-16, in one to three bytes.
    fn utf16_unit(&mut self, what: &'static str) -> Result<u16, KryoError> {
        let first = self.byte(what)?;
        let rest = |reader: &mut Self| match reader.byte(what)? {
            byte @ 0x80..=0xBF => Ok(u16::from(byte & 0x3F)),
            _ => reader.malformed("a character is not UTF-8"),
        };
        match first {
            0x00..=0x7F => Ok(u16::from(first)),
            0xC0..=0xDF => Ok(u16::from(first & 0x1F) << 6 | rest(self)?),
            0xE0..=0xEF => {
                let high = u16::from(first & 0x0F) << 12 | rest(self)? << 6;
                Ok(high | rest(self)?)
            }
            _ => self.malformed("a character is not UTF-8"),
        }
    }

    /// The class of the object that follows, or `None` for null.
    pub(super) fn class(&mut self) -> Result<Option<Class>, KryoError> {
        let offset = self.at;
        let number = self.var_u32("a class")?;
        let class = match number {
            0 => return Ok(None),
            1 => return self.named_class(offset).map(Some),
            _ => Class::from_number(number - 2),
        };
        let class = class.ok_or_else(|| KryoError::Class {
            class: format!("number {}", number - 2),
            offset,
        })?;
        Ok(Some(class))
    }

    fn named_class(&mut self, offset: usize) -> Result<Class, KryoError> {
        let number = self.var_u32("the number of a class name")?;
        if let Some(class) = self.classes.get(number as usize) {
            return Ok(*class);
        }
        if number as usize != self.classes.len() {
            return self.malformed("a class name has a number out of order");
        }
        let name = self.text("a class name")?.unwrap_or_default();
        let class = Class::from_name(&name).ok_or_else(|| {
            let graphic = |c: char| if c.is_ascii_graphic() { c } else { '?' };
            let class = name.chars().take(128).map(graphic).collect();
            KryoError::Class { class, offset }
        })?;
        self.classes.push(class);
        Ok(class)
    }

    /// What precedes an object that references can name. A new object is numbered at once.
    pub(super) fn reference(&mut self) -> Result<Reference, KryoError> {
        let number = self.var_u32("a reference")?;
        match number {
            0 => Ok(Reference::Null),
            1 => {
                if self.objects.len() >= OBJECTS_MAX {
                    return Err(KryoError::Limit {
                        limit: "objects",
                        bound: OBJECTS_MAX,
                    });
                }
                self.objects.push(Object::Other);
                Ok(Reference::New)
            }
            _ => Ok(Reference::Earlier(number - 2)),
        }
    }

    /// Checks that a new object follows, which is no text.
    pub(super) fn new_object(&mut self) -> Result<bool, KryoError> {
        let offset = self.at;
        match self.reference()? {
            Reference::Null => Ok(false),
            Reference::New => Ok(true),
            Reference::Earlier(reference) => Err(KryoError::Reference { reference, offset }),
        }
    }

    /// Text that references can name, or `None` for null.
    pub(super) fn shared_text(&mut self, what: &'static str) -> Result<Option<String>, KryoError> {
        let offset = self.at;
        match self.reference()? {
            Reference::Null => Ok(None),
            Reference::New => {
                let index = self.objects.len() - 1;
                let text = self.text(what)?;
                let Some(text) = text else {
                    return self.malformed("a text is null after a reference to a new object");
                };
                self.objects[index] = Object::Text(text.clone());
                Ok(Some(text))
            }
            Reference::Earlier(reference) => {
                let Some(Object::Text(text)) = self.objects.get(reference as usize) else {
                    return Err(KryoError::Reference { reference, offset });
                };
                self.copied_bytes += text.len();
                if self.copied_bytes > COPIED_BYTES_MAX {
                    return Err(KryoError::Limit {
                        limit: "copied_bytes",
                        bound: COPIED_BYTES_MAX,
                    });
                }
                Ok(Some(text.clone()))
            }
        }
    }
}
