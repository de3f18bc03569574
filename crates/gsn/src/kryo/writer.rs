//! Kryo's primitives, written. No object is written as a reference to an earlier one: a reader need not see that two
//! texts are the same.

use super::class::Class;

/// Writes one frame.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    classes: Vec<Class>,
}

impl Writer {
    /// A writer that appends to `bytes`.
    pub(super) const fn after(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            classes: Vec::new(),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn i16(&mut self, value: i16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn f32(&mut self, value: f32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn f64(&mut self, value: f64) {
        self.bytes(&value.to_be_bytes());
    }

    /// A number of one to five bytes, seven bits in each, the lowest first.
    pub(super) fn var_u32(&mut self, mut value: u32) {
        while value > 0x7F {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// The same, with the sign in the lowest bit.
    pub(super) fn var_i32(&mut self, value: i32) {
        self.var_u32((value << 1 ^ value >> 31) as u32);
    }

    /// A number of one to nine bytes, seven bits in each but eight in the ninth, with the sign in the lowest bit.
    pub(super) fn var_i64(&mut self, value: i64) {
        let mut value = (value << 1 ^ value >> 63) as u64;
        for _ in 0..8 {
            if value <= 0x7F {
                return self.byte(value as u8);
            }
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// Text without a reference.
    pub(super) fn text(&mut self, text: &str) {
        let units = text.encode_utf16().count();
        if text.is_ascii() && (2..64).contains(&units) {
            let (first, last) = text.as_bytes().split_at(units - 1);
            self.bytes(first);
            return self.byte(last[0] | 0x80);
        }
        self.text_length(units + 1);
        for unit in text.encode_utf16() {
            let low = 0x80 | (unit & 0x3F) as u8;
            let middle = 0x80 | (unit >> 6 & 0x3F) as u8;
            match unit {
                0..=0x7F => self.byte(unit as u8),
                0x80..=0x7FF => self.bytes(&[0xC0 | (unit >> 6) as u8, low]),
                _ => self.bytes(&[0xE0 | (unit >> 12) as u8, middle, low]),
            }
        }
    }

    /// Six bits in the first byte, seven in each further one.
    fn text_length(&mut self, length: usize) {
        let first = 0x80 | (length & 0x3F) as u8;
        let mut rest = length >> 6;
        if rest == 0 {
            return self.byte(first);
        }
        self.byte(first | 0x40);
        while rest > 0x7F {
            self.byte(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.byte(rest as u8);
    }

    /// The class of the object that follows.
    pub(super) fn class(&mut self, class: Class) {
        if let Some(number) = class.number() {
            return self.var_u32(number + 2);
        }
        self.var_u32(1);
        let known = self.classes.iter().position(|known| *known == class);
        let number = known.unwrap_or(self.classes.len());
        // There are fewer classes than fingers.
        self.var_u32(number as u32);
        if known.is_none() {
            self.classes.push(class);
            self.text(class.name());
        }
    }

    /// No object.
    pub(super) fn null(&mut self) {
        self.var_u32(0);
    }

    /// An object that references could name follows.
    pub(super) fn new_object(&mut self) {
        self.var_u32(1);
    }

    /// Text that references could name.
    pub(super) fn shared_text(&mut self, text: &str) {
        self.new_object();
        self.text(text);
    }
}
