//! The stream element.

use super::class::Class;
use super::reader::Reader;
use super::writer::Writer;
use super::{DataType, KryoError};

/// The largest number of fields. Databases that GSN uses have at most 4,096 columns.
pub const FIELDS_MAX: usize = 4_096;

/// An element as GSN sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct GsnElement {
    /// Its time in milliseconds since 1970.
    pub timed_ms: i64,
    /// The Boolean after the time; true in all elements of a running server.
    pub is_timed: bool,
    /// The names of its fields, mostly in upper case: they are not sensitive to case.
    pub names: Vec<String>,
    /// The types of its fields.
    pub types: Vec<DataType>,
    /// One value for each field.
    pub values: Vec<GsnValue>,
}

/// A value of an element.
#[derive(Debug, Clone, PartialEq)]
pub enum GsnValue {
    /// No value.
    Null,
    /// `varchar` and `char`.
    Text(String),
    /// `tinyint`.
    Byte(i8),
    /// `smallint`.
    Short(i16),
    /// `integer`.
    Integer(i32),
    /// `bigint`.
    Long(i64),
    /// `float`.
    Float(f32),
    /// `double`.
    Double(f64),
    /// `binary`.
    Bytes(Vec<u8>),
}

/// Reads an element.
///
/// # Errors
/// The frame is anything else.
pub fn decode_element(frame: &[u8]) -> Result<GsnElement, KryoError> {
    let mut reader = Reader::new(frame);
    if !reader.new_object()? {
        return reader.malformed("the element is null");
    }
    let names = names(&mut reader)?;
    let types = types(&mut reader)?;
    let values = values(&mut reader)?;
    let timed_ms = reader.var_i64("the time")?;
    let is_timed = match reader.byte("the last Boolean")? {
        0 => false,
        1 => true,
        _ => return reader.malformed("the last Boolean is neither 0 nor 1"),
    };
    reader.end()?;
    if names.len() != types.len() || names.len() != values.len() {
        return reader.malformed("names, types and values differ in number");
    }
    Ok(GsnElement {
        timed_ms,
        is_timed,
        names,
        types,
        values,
    })
}

fn fields(reader: &mut Reader<'_>, what: &'static str) -> Result<usize, KryoError> {
    match reader.length(what)? {
        None => reader.malformed("an array is null"),
        Some(count) if count > FIELDS_MAX => Err(KryoError::Limit {
            limit: "fields",
            bound: FIELDS_MAX,
        }),
        Some(count) => Ok(count),
    }
}

fn names(reader: &mut Reader<'_>) -> Result<Vec<String>, KryoError> {
    const WHAT: &str = "the field names";
    if !reader.new_object()? {
        return reader.malformed("the field names are null");
    }
    let count = fields(reader, WHAT)?;
    let name = |_| match reader.shared_text(WHAT)? {
        Some(name) => Ok(name),
        None => reader.malformed("a field name is null"),
    };
    (0..count).map(name).collect()
}

fn types(reader: &mut Reader<'_>) -> Result<Vec<DataType>, KryoError> {
    const WHAT: &str = "the field types";
    if !reader.new_object()? {
        return reader.malformed("the field types are null");
    }
    let count = fields(reader, WHAT)?;
    let kind = |_| {
        if reader.byte(WHAT)? != 1 {
            return reader.malformed("a field type is null");
        }
        let code = reader.byte(WHAT)?;
        match DataType::from_code(code) {
            Some(kind) => Ok(kind),
            None => reader.malformed("a field has an unknown type"),
        }
    };
    (0..count).map(kind).collect()
}

fn values(reader: &mut Reader<'_>) -> Result<Vec<GsnValue>, KryoError> {
    let offset = reader.offset();
    match reader.class()? {
        Some(Class::Values) => {}
        None => return reader.malformed("the values are null"),
        Some(class) => {
            let class = format!("{class:?}");
            return Err(KryoError::Class { class, offset });
        }
    }
    if !reader.new_object()? {
        return reader.malformed("the values are null");
    }
    let count = fields(reader, "the values")?;
    (0..count).map(|_| value(reader)).collect()
}

fn value(reader: &mut Reader<'_>) -> Result<GsnValue, KryoError> {
    let offset = reader.offset();
    let Some(class) = reader.class()? else {
        return Ok(GsnValue::Null);
    };
    Ok(match class {
        Class::Integer => GsnValue::Integer(reader.var_i32("an integer")?),
        Class::Float => GsnValue::Float(reader.f32("a float")?),
        Class::Byte => GsnValue::Byte(reader.byte("a tinyint")? as i8),
        Class::Short => GsnValue::Short(reader.i16("a smallint")?),
        Class::Long => GsnValue::Long(reader.var_i64("a bigint")?),
        Class::Double => GsnValue::Double(reader.f64("a double")?),
        Class::Text => match reader.shared_text("a text")? {
            Some(text) => GsnValue::Text(text),
            None => return reader.malformed("a text with a class is null"),
        },
        Class::Bytes => {
            if !reader.new_object()? {
                return reader.malformed("a binary with a class is null");
            }
            match reader.length("a binary")? {
                Some(count) => GsnValue::Bytes(reader.take(count, "a binary")?.to_vec()),
                None => return reader.malformed("a binary with a class is null"),
            }
        }
        Class::Values => {
            let class = class.name().to_owned();
            return Err(KryoError::Class { class, offset });
        }
    })
}

/// Writes an element after the bytes of `out`, which may hold a topic.
///
/// # Errors
/// Names, types and values differ in number, or are more than [`FIELDS_MAX`].
pub fn encode_element(element: &GsnElement, out: Vec<u8>) -> Result<Vec<u8>, KryoError> {
    let count = element.names.len();
    let same = element.types.len() == count && element.values.len() == count;
    if !same || count > FIELDS_MAX {
        return Err(KryoError::Unrepresentable {
            name: element.names.first().cloned().unwrap_or_default(),
            what: "names, types and values must be of one number, at most 4,096",
        });
    }
    // Bounded by FIELDS_MAX.
    let length = count as u32 + 1;
    let mut writer = Writer::after(out);
    writer.new_object();
    writer.new_object();
    writer.var_u32(length);
    for name in &element.names {
        writer.shared_text(name);
    }
    writer.new_object();
    writer.var_u32(length);
    for kind in &element.types {
        writer.bytes(&[1, kind.code()]);
    }
    writer.class(Class::Values);
    writer.new_object();
    writer.var_u32(length);
    for value in &element.values {
        write_value(&mut writer, value);
    }
    writer.var_i64(element.timed_ms);
    writer.byte(u8::from(element.is_timed));
    Ok(writer.into_bytes())
}

fn write_value(writer: &mut Writer, value: &GsnValue) {
    match value {
        GsnValue::Null => writer.null(),
        GsnValue::Text(text) => {
            writer.class(Class::Text);
            writer.shared_text(text);
        }
        GsnValue::Byte(value) => {
            writer.class(Class::Byte);
            writer.byte(*value as u8);
        }
        GsnValue::Short(value) => {
            writer.class(Class::Short);
            writer.i16(*value);
        }
        GsnValue::Integer(value) => {
            writer.class(Class::Integer);
            writer.var_i32(*value);
        }
        GsnValue::Long(value) => {
            writer.class(Class::Long);
            writer.var_i64(*value);
        }
        GsnValue::Float(value) => {
            writer.class(Class::Float);
            writer.f32(*value);
        }
        GsnValue::Double(value) => {
            writer.class(Class::Double);
            writer.f64(*value);
        }
        GsnValue::Bytes(bytes) => {
            writer.class(Class::Bytes);
            writer.new_object();
            // A message has at most 16 MiB.
            writer.var_u32(bytes.len() as u32 + 1);
            writer.bytes(bytes);
        }
    }
}
