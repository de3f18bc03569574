//! Numbers at fixed offsets: registers, frames of field buses, payloads of LoRaWAN.
//!
//! A path, and a placeholder, is the name of a field of `layout` or `header`. Whole numbers of 64 bits
//! are exact unless they have `scale` or `add`.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;

use super::OptionFault;
use crate::config::{BinaryConfig, ByteOrder, LayoutField};
use crate::decoder::{Record, Sink, whole};
use crate::fault::{Fault, Location, Reason};
use crate::value::Raw;

/// Most fields, and the end of the last one; reason: people write layouts.
const FIELDS_MAX: usize = 1_024;
const END_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct BinaryFormat {
    fields: Vec<Field>,
    header_bytes: usize,
    record_bytes: Option<usize>,
    /// The bytes that header and record need at least.
    header_end: usize,
    record_end: usize,
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    is_header: bool,
    at: usize,
    coding: Coding,
    is_little: bool,
    bits: Option<(u32, u32)>,
    scale: Option<f64>,
    add: Option<f64>,
    count: Option<usize>,
    null_number: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// Bytes of a whole number.
    Unsigned(usize),
    Signed(usize),
    Single,
    Double,
    /// With the length; `None`: to the end of the record.
    Text(Option<usize>),
    Bytes(Option<usize>),
}

impl Coding {
    /// The least bytes.
    const fn bytes(self) -> usize {
        match self {
            Self::Unsigned(bytes) | Self::Signed(bytes) => bytes,
            Self::Single => 4,
            Self::Double => 8,
            Self::Text(length) | Self::Bytes(length) => match length {
                Some(length) => length,
                None => 0,
            },
        }
    }
}

impl BinaryFormat {
    pub(crate) fn new(config: &Spanned<BinaryConfig>) -> Result<Self, OptionFault> {
        let (span, config) = (config.span(), config.get_ref());
        let count = config.layout.len() + config.header.len();
        if config.layout.is_empty() || count > FIELDS_MAX {
            let message = format!("there are {count} fields, not 1 to {FIELDS_MAX}");
            return Err(OptionFault::new(span, "layout", message));
        }
        let mut fields: Vec<Field> = Vec::new();
        let tables = [(&config.layout, false), (&config.header, true)];
        for (table, is_header) in tables {
            for entry in table {
                let field = field(entry, is_header, config.byte_order)?;
                if fields.iter().any(|other| other.name == field.name) {
                    let message = format!("there is another field {:?}", field.name);
                    return Err(OptionFault::new(entry.span(), "name", message));
                }
                fields.push(field);
            }
        }
        let end = |is_header: bool| {
            let fields = fields.iter().filter(|field| field.is_header == is_header);
            fields.map(Field::end).max().unwrap_or(0)
        };
        let (record_end, header_end) = (end(false), end(true));
        let record_bytes = match &config.record_bytes {
            None => None,
            Some(bytes) => match usize::try_from(*bytes.get_ref()) {
                Ok(number) if number >= record_end.max(1) => Some(number),
                _ => {
                    let message = format!("the layout needs {record_end} bytes");
                    return Err(OptionFault::new(bytes.span(), "record_bytes", message));
                }
            },
        };
        Ok(Self {
            header_bytes: usize::try_from(config.header_bytes).unwrap_or(usize::MAX),
            record_bytes,
            header_end,
            record_end,
            fields,
        })
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        let found = self.fields.iter().position(|field| field.name == path);
        let index =
            found.ok_or_else(|| format!("{path:?} is not one of {}", self.names().join(", ")))?;
        match self.fields[index].count {
            Some(_) => Err(format!("{path:?} has a count, for a field of type samples")),
            None => Ok(index),
        }
    }

    pub(crate) fn samples_slot(&mut self, path: &str) -> Result<usize, String> {
        let found = self.fields.iter().position(|field| field.name == path);
        found
            .filter(|index| self.fields[*index].count.is_some())
            .ok_or_else(|| format!("there is no field {path:?} with a count"))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name.clone()).collect()
    }

    pub(crate) fn decode(&self, body: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        let location = Location::default();
        let needed = self.header_bytes.max(self.header_end);
        let (Some(header), Some(mut rest)) = (body.get(..), body.get(self.header_bytes..)) else {
            return Err(whole(location, short(needed, body.len())));
        };
        if body.len() < needed {
            return Err(whole(location, short(needed, body.len())));
        }
        if self.record_bytes.is_none() && rest.len() < self.record_end {
            return Err(whole(location, short(self.record_end, rest.len())));
        }
        let mut byte = self.header_bytes as u64;
        loop {
            let length = self.record_bytes.unwrap_or(rest.len());
            let location = Location {
                record: sink.next_record(),
                line: 0,
                byte,
            };
            if rest.len() < length {
                sink.fault(location, short(length, rest.len()));
                return Ok(());
            }
            let (bytes, after) = rest.split_at(length);
            let record = Layout {
                format: self,
                header,
                bytes,
            };
            if sink.record(location, &record).is_err() || after.is_empty() {
                return Ok(());
            }
            rest = after;
            byte += length as u64;
        }
    }
}

const fn short(wanted: usize, found: usize) -> Reason {
    Reason::Short {
        wanted: wanted as u64,
        found: found as u64,
    }
}

fn field(
    entry: &Spanned<LayoutField>,
    is_header: bool,
    order: ByteOrder,
) -> Result<Field, OptionFault> {
    let config = entry.get_ref();
    let length = config
        .length
        .and_then(|length| usize::try_from(length).ok());
    let code = config.layout_type.get_ref().as_str();
    let coding = match code {
        "u8" => Coding::Unsigned(1),
        "u16" => Coding::Unsigned(2),
        "u24" => Coding::Unsigned(3),
        "u32" => Coding::Unsigned(4),
        "u64" => Coding::Unsigned(8),
        "i8" => Coding::Signed(1),
        "i16" => Coding::Signed(2),
        "i24" => Coding::Signed(3),
        "i32" => Coding::Signed(4),
        "i64" => Coding::Signed(8),
        "f32" => Coding::Single,
        "f64" => Coding::Double,
        "text" => Coding::Text(length),
        "bytes" => Coding::Bytes(length),
        _ => {
            let message = format!("{code:?} is not a type of a layout");
            let hint = "there are u8, i8, u16, i16, u24, i24, u32, i32, u64, i64, f32, f64, text and bytes";
            return Err(OptionFault::new(config.layout_type.span(), "type", message).hint(hint));
        }
    };
    let is_number = !matches!(coding, Coding::Text(_) | Coding::Bytes(_));
    let has_scale = config.scale.is_some() || config.add.is_some();
    let has_number_options = has_scale || config.count.is_some() || config.null_number.is_some();
    if config.length.is_some() == is_number && config.length.is_some()
        || !is_number && has_number_options
    {
        let message =
            "length is for text and bytes; scale, add, count and null_number are for numbers";
        return Err(OptionFault::new(entry.span(), "layout", message));
    }
    let bits = match (&config.bit, config.bits) {
        (None, None) => None,
        (None, Some(_)) => {
            let message = "bits need the first `bit`";
            return Err(OptionFault::new(entry.span(), "bits", message));
        }
        (Some(bit), bits) => {
            let (first, bits) = (*bit.get_ref(), bits.unwrap_or(1));
            let width = match coding {
                Coding::Unsigned(bytes) => u32::try_from(bytes * 8).unwrap_or(64),
                _ => 0,
            };
            if bits == 0 || first.checked_add(bits).is_none_or(|end| end > width) {
                let message = format!("a number of type {code} has {width} unsigned bits");
                return Err(OptionFault::new(bit.span(), "bit", message));
            }
            Some((first, bits))
        }
    };
    let is_finite = |number: Option<f64>| number.is_none_or(f64::is_finite);
    if !is_finite(config.scale) || !is_finite(config.add) {
        let message = "scale and add are finite";
        return Err(OptionFault::new(entry.span(), "scale", message));
    }
    let count = u64::from(config.count.unwrap_or(1));
    let end = u64::from(config.at) + coding.bytes() as u64 * count;
    if end > END_MAX || count == 0 {
        let message = format!("it ends at byte {end}, a layout at most at {END_MAX}");
        return Err(OptionFault::new(entry.span(), "at", message));
    }
    Ok(Field {
        name: config.name.clone(),
        is_header,
        at: usize::try_from(config.at).unwrap_or(usize::MAX),
        coding,
        is_little: config.byte_order.unwrap_or(order) == ByteOrder::Little,
        bits,
        scale: config.scale,
        add: config.add,
        count: config.count.and_then(|count| usize::try_from(count).ok()),
        null_number: config.null_number,
    })
}

impl Field {
    fn end(&self) -> usize {
        self.at + self.coding.bytes() * self.count.unwrap_or(1)
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = self.at + index * self.coding.bytes();
        start..start + self.coding.bytes()
    }

    /// The whole number of these bytes, most significant first in `u64`.
    fn whole(&self, bytes: &[u8]) -> u64 {
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self.is_little {
            true => bytes.iter().rev().fold(0, join),
            false => bytes.iter().fold(0, join),
        }
    }

    fn number<'m>(&self, bytes: &[u8]) -> Raw<'m> {
        let number = self.whole(bytes);
        let raw = match self.coding {
            Coding::Unsigned(_) => {
                let number = match self.bits {
                    Some((first, bits)) => number >> first & u64::MAX >> (64 - bits),
                    None => number,
                };
                match i64::try_from(number) {
                    Ok(number) => Raw::Integer(number),
                    Err(_) => Raw::Unsigned(number),
                }
            }
            Coding::Signed(length) => {
                let unused = 64 - 8 * length;
                Raw::Integer((number << unused).cast_signed() >> unused)
            }
            Coding::Single => {
                let bits = u32::try_from(number).unwrap_or_default();
                Raw::Double(f64::from(f32::from_bits(bits)))
            }
            Coding::Double => Raw::Double(f64::from_bits(number)),
            Coding::Text(_) | Coding::Bytes(_) => Raw::Missing,
        };
        if let (Raw::Integer(number), Some(null)) = (&raw, self.null_number)
            && *number == null
        {
            return Raw::Null;
        }
        if self.scale.is_none() && self.add.is_none() {
            return raw;
        }
        let number = match raw {
            Raw::Integer(number) => number as f64,
            Raw::Unsigned(number) => number as f64,
            Raw::Double(number) => number,
            other => return other,
        };
        Raw::Double(number * self.scale.unwrap_or(1.0) + self.add.unwrap_or(0.0))
    }
}

struct Layout<'r> {
    format: &'r BinaryFormat,
    header: &'r [u8],
    bytes: &'r [u8],
}

impl Layout<'_> {
    fn read(&self, field: &Field) -> Raw<'_> {
        let bytes = if field.is_header {
            self.header
        } else {
            self.bytes
        };
        let opaque = |length: Option<usize>| match length {
            Some(length) => bytes.get(field.at..field.at + length),
            None => bytes.get(field.at..),
        };
        match field.coding {
            Coding::Bytes(length) => opaque(length).map_or(Raw::Missing, Raw::Bytes),
            Coding::Text(length) => {
                // Texts of fixed length are filled up with zeros or blanks.
                let text =
                    opaque(length).map(|text| match text.iter().position(|byte| *byte == 0) {
                        Some(end) => &text[..end],
                        None => text,
                    });
                let text = text.map(<[u8]>::trim_ascii_end);
                text.map_or(Raw::Missing, |text| match std::str::from_utf8(text) {
                    Ok(text) => Raw::Text(Cow::Borrowed(text)),
                    Err(_) => Raw::Bytes(text),
                })
            }
            _ => match field.count {
                None => bytes
                    .get(field.range(0))
                    .map_or(Raw::Missing, |it| field.number(it)),
                Some(count) => {
                    let sample = |index| match field.number(bytes.get(field.range(index))?) {
                        Raw::Integer(number) => Some(number as f64),
                        Raw::Unsigned(number) => Some(number as f64),
                        Raw::Double(number) => Some(number),
                        _ => None,
                    };
                    let samples = (0..count).map(sample).collect::<Option<_>>();
                    samples.map_or(Raw::Missing, Raw::Numbers)
                }
            },
        }
    }
}

impl Record for Layout<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        Ok(self.read(&self.format.fields[slot]))
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        let field = self.format.fields.iter().find(|field| field.name == name)?;
        let text = self.read(field).text()?.into_owned();
        Some(Cow::Owned(text))
    }
}
