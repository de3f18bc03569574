//! GSN's structures and elements as schemas and elements of streams, and back.
//!
//! | GSN | a stream's field |
//! |---|---|
//! | `varchar`, `char` | text |
//! | `tinyint`, `smallint`, `integer`, `bigint` | integer; `bigint` is exact |
//! | `float`, `double` | double |
//! | `binary` | bytes |
//! | `time` | none: GSN declares it and has no values of it |
//!
//! Back, a Boolean becomes a `tinyint` of 0 or 1, and samples have no place. Names are in upper case in frames, and in
//! lower case in schemas. The time of an element is its source time, in milliseconds: a server stores at most one
//! element of a sensor for each.

use chappe_stream::{Field, FieldType, Quality, StreamElement, StreamSchema, Timestamp, Value};

use crate::kryo::{DataField, DataType, GsnElement, GsnValue};

/// The declared length of a text: GSN needs one. 4,000 fits the rows of all its databases.
const TEXT_CHARACTERS: usize = 4_000;
const NS_PER_MS: i64 = 1_000_000;

/// A structure or an element that has no counterpart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A field has a type without a counterpart.
    #[error("field {field:?} is of type {found}, which has no counterpart")]
    Type {
        /// The field.
        field: String,
        /// Its type.
        found: String,
    },
    /// Two fields have one name.
    #[error("field {field:?} exists twice, or its name is not usable")]
    Name {
        /// The field.
        field: String,
    },
    /// A value does not fit its field.
    #[error("the value of field {field:?} does not fit its type")]
    Value {
        /// The field.
        field: String,
    },
    /// The element has other fields than the stream.
    #[error("the element has the field {field:?}, which the structure does not have")]
    Unknown {
        /// The field.
        field: String,
    },
    /// The time is beyond the years 1678 to 2262.
    #[error("the time {timed_ms} ms is out of range")]
    Time {
        /// The time, in milliseconds since 1970.
        timed_ms: i64,
    },
}

/// The schema of a sensor's stream.
///
/// # Errors
/// A field has no counterpart, or two have one name.
pub fn schema(fields: &[DataField]) -> Result<StreamSchema, MappingError> {
    let field = |field: &DataField| {
        let field_type = match field.data_type {
            DataType::Varchar | DataType::Char => FieldType::Text,
            DataType::Tinyint | DataType::Smallint | DataType::Integer | DataType::Bigint => {
                FieldType::Integer
            }
            DataType::Float | DataType::Double => FieldType::Double,
            DataType::Binary => FieldType::Bytes,
            DataType::Time => {
                return Err(MappingError::Type {
                    field: field.name.clone(),
                    found: field.declared.clone(),
                });
            }
        };
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(Field {
            name: field_name(&field.name),
            field_type,
            unit: given(&field.unit),
            observed_property: None,
            description: given(&field.description).filter(|text| text != NO_DESCRIPTION),
        })
    };
    let schema = StreamSchema {
        fields: fields.iter().map(field).collect::<Result<_, _>>()?,
        key: None,
    };
    match schema.check_names() {
        Ok(()) => Ok(schema),
        Err(error) => Err(MappingError::Name {
            field: match error {
                chappe_stream::SchemaError::Name(field) => field,
                other => other.to_string(),
            },
        }),
    }
}

/// The structure of an element by itself: its names and types, without units and descriptions.
#[must_use]
pub fn fields(element: &GsnElement) -> Vec<DataField> {
    let fields = element.names.iter().zip(&element.types);
    let field = |(name, data_type): (&String, &DataType)| DataField {
        name: name.clone(),
        data_type: *data_type,
        declared: String::new(),
        unit: String::new(),
        description: String::new(),
    };
    fields.map(field).collect()
}

/// What a server sends for a field without a description.
const NO_DESCRIPTION: &str = "Not Provided";

/// The name of a field: in lower case, with `_` for everything that a column name cannot have.
#[must_use]
pub fn field_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let name = name.chars().flat_map(char::to_lowercase);
    let name: String = name.map(|c| if fits(c) { c } else { '_' }).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// The structure of a stream's sensor.
///
/// # Errors
/// A field of samples.
pub fn structure(schema: &StreamSchema) -> Result<Vec<DataField>, MappingError> {
    let field = |field: &Field| {
        let (data_type, declared) = data_type(field)?;
        Ok(DataField {
            name: field.name.to_uppercase(),
            data_type,
            declared,
            unit: field.unit.clone().unwrap_or_default(),
            description: field
                .description
                .clone()
                .unwrap_or_else(|| NO_DESCRIPTION.to_owned()),
        })
    };
    schema.fields.iter().map(field).collect()
}

fn data_type(field: &Field) -> Result<(DataType, String), MappingError> {
    Ok(match field.field_type {
        FieldType::Boolean => (DataType::Tinyint, "tinyint".to_owned()),
        FieldType::Integer => (DataType::Bigint, "bigint".to_owned()),
        FieldType::Double => (DataType::Double, "double".to_owned()),
        FieldType::Text => (DataType::Varchar, format!("varchar({TEXT_CHARACTERS})")),
        FieldType::Bytes => (DataType::Binary, "binary".to_owned()),
        FieldType::Samples => {
            return Err(MappingError::Type {
                field: field.name.clone(),
                found: "samples".to_owned(),
            });
        }
    })
}

/// The element of a stream with this schema, received at `now`. A field that the element does not have is null.
///
/// # Errors
/// The element has another field, or a value does not fit.
pub fn from_gsn(
    element: &GsnElement,
    schema: &StreamSchema,
    now: Timestamp,
) -> Result<StreamElement, MappingError> {
    let timed_ms = element.timed_ms;
    let source_time = timed_ms.checked_mul(NS_PER_MS).map(Timestamp);
    let source_time = source_time.ok_or(MappingError::Time { timed_ms })?;
    let mut values = vec![Value::Null; schema.fields.len()];
    for (index, (name, value)) in element.names.iter().zip(&element.values).enumerate() {
        let name = field_name(name);
        // Mostly the fields are in the order of the structure.
        let same = |field: &Field| field.name == name;
        let at = match schema.fields.get(index) {
            Some(field) if same(field) => Some(index),
            _ => schema.fields.iter().position(same),
        };
        let Some(at) = at else {
            return Err(MappingError::Unknown { field: name });
        };
        let converted = value_from(value, schema.fields[at].field_type);
        values[at] = converted.ok_or(MappingError::Value { field: name })?;
    }
    Ok(StreamElement {
        position: Default::default(),
        source_time,
        receive_time: now,
        key: None,
        values,
        quality: Quality::Good,
        origin: None,
    })
}

/// The value of a field; `None` if it does not fit. Whole numbers in a field of doubles must be exact.
fn value_from(value: &GsnValue, field_type: FieldType) -> Option<Value> {
    let integer = match value {
        GsnValue::Byte(value) => Some(i64::from(*value)),
        GsnValue::Short(value) => Some(i64::from(*value)),
        GsnValue::Integer(value) => Some(i64::from(*value)),
        GsnValue::Long(value) => Some(*value),
        _ => None,
    };
    match (field_type, value, integer) {
        (_, GsnValue::Null, _) => Some(Value::Null),
        (FieldType::Integer, _, Some(integer)) => Some(Value::Integer(integer)),
        (FieldType::Boolean, _, Some(0)) => Some(Value::Boolean(false)),
        (FieldType::Boolean, _, Some(1)) => Some(Value::Boolean(true)),
        (FieldType::Double, GsnValue::Double(value), _) => Some(Value::Double(*value)),
        (FieldType::Double, GsnValue::Float(value), _) => Some(Value::Double(f64::from(*value))),
        (FieldType::Double, _, Some(integer)) => {
            let double = integer as f64;
            (double as i128 == i128::from(integer)).then_some(Value::Double(double))
        }
        (FieldType::Text, GsnValue::Text(text), _) => Some(Value::Text(text.clone())),
        (FieldType::Bytes, GsnValue::Bytes(bytes), _) => Some(Value::Bytes(bytes.clone())),
        _ => None,
    }
}

/// The element for GSN, of a stream with this schema.
///
/// # Errors
/// A field of samples, or a value of another type than its field.
pub fn to_gsn(element: &StreamElement, schema: &StreamSchema) -> Result<GsnElement, MappingError> {
    let mut gsn = GsnElement {
        timed_ms: element.source_time.0.div_euclid(NS_PER_MS),
        is_timed: true,
        names: Vec::with_capacity(schema.fields.len()),
        types: Vec::with_capacity(schema.fields.len()),
        values: Vec::with_capacity(schema.fields.len()),
    };
    for (field, value) in schema.fields.iter().zip(&element.values) {
        let misfit = value
            .field_type()
            .is_some_and(|found| found != field.field_type);
        if misfit {
            let field = field.name.clone();
            return Err(MappingError::Value { field });
        }
        gsn.names.push(field.name.to_uppercase());
        gsn.types.push(data_type(field)?.0);
        gsn.values.push(match value {
            Value::Null | Value::Samples(_) => GsnValue::Null,
            Value::Boolean(value) => GsnValue::Byte(i8::from(*value)),
            Value::Integer(value) => GsnValue::Long(*value),
            Value::Double(value) => GsnValue::Double(*value),
            Value::Text(text) => GsnValue::Text(text.clone()),
            Value::Bytes(bytes) => GsnValue::Bytes(bytes.clone()),
        });
    }
    Ok(gsn)
}
