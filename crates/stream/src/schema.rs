//! The structure and meaning of a stream's elements.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::ucum::Conversion;
use crate::{Samples, StreamElement, Value};

/// Maximum number of versions of a stream's schema. 256: one a day would last most of a year, and
/// the log accepts 256 KiB of metadata.
pub const SCHEMA_VERSIONS_MAX: usize = 256;

/// The structure of a stream's elements.
///
/// ```
/// use chappe_stream::{Field, FieldType, StreamSchema};
/// let schema = StreamSchema {
///     fields: vec![Field {
///         name: "temperature".into(),
///         field_type: FieldType::Double,
///         unit: Some("Cel".into()),
///         observed_property: Some("http://www.w3.org/2006/03/wn/wn20/instances/synset-temperature-noun-1".into()),
///         description: None,
///     }],
///     key: None,
/// };
/// assert!(schema.check_names().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSchema {
    /// The fields in order.
    pub fields: Vec<Field>,
    /// The subject that an element's key identifies (a handle, a bed, a machine), for streams with
    /// keys.
    pub key: Option<String>,
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// A column name: lower case letters, digits and `_`, not starting with a digit.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub field_type: FieldType,
    /// The unit as a UCUM code.
    pub unit: Option<String>,
    /// The observed property, as a URI.
    pub observed_property: Option<String>,
    /// For a person to read.
    pub description: Option<String>,
}

/// The types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// True or false.
    Boolean,
    /// A whole number of 64 bits.
    Integer,
    /// A number of double precision.
    Double,
    /// Text.
    Text,
    /// Opaque bytes.
    Bytes,
    /// Evenly spaced samples.
    Samples,
}

/// An element or a schema that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The number of values is not that of the fields.
    #[error("the element has {values} values, its schema {fields} fields")]
    Width {
        /// Values of the element.
        values: usize,
        /// Fields of the schema.
        fields: usize,
    },
    /// A value of another type than its field.
    #[error("field {field:?} must be {wanted:?}")]
    Type {
        /// The field.
        field: String,
        /// Its type.
        wanted: FieldType,
    },
    /// A name that is not a column name, or occurs twice.
    #[error("{0:?} is not a usable field name, or occurs twice: use a-z, 0-9 and _")]
    Name(String),
}

impl StreamSchema {
    /// `values` of an element of schema `from`, converted to this one: fields by name, numbers into the
    /// unit of this schema. Null for fields that are missing or have another type, and for numbers
    /// whose unit does not convert.
    #[must_use]
    pub fn project(&self, from: &StreamSchema, mut values: Vec<Value>) -> Vec<Value> {
        if self.fields == from.fields {
            return values;
        }
        let project = |field: &Field| {
            let (index, conversion) = from.origin_of(field)?;
            let value = std::mem::replace(values.get_mut(index)?, Value::Null);
            match conversion {
                Some(conversion) => converted(value, conversion),
                None => Some(value),
            }
        };
        let fields = self.fields.iter().map(project);
        fields.map(|value| value.unwrap_or(Value::Null)).collect()
    }

    /// Where an element of this schema has the value of a field of another one, and how its numbers
    /// become those of that field; `None` if it has none: no field of this name and type, or a unit
    /// that does not convert.
    pub(crate) fn origin_of(&self, field: &Field) -> Option<(usize, Option<Conversion>)> {
        let fits = |own: &Field| own.name == field.name && own.field_type == field.field_type;
        let index = self.fields.iter().position(fits)?;
        let is_number = matches!(
            field.field_type,
            FieldType::Double | FieldType::Integer | FieldType::Samples
        );
        match (&self.fields[index].unit, &field.unit) {
            (Some(from), Some(to)) if from != to && is_number => {
                let conversion = Conversion::new(from, to).ok()?;
                Some((index, Some(conversion)))
            }
            // A unit that is stated later, or no more, is no other one.
            _ => Some((index, None)),
        }
    }

    /// Checks that the field names are distinct column names.
    ///
    /// # Errors
    /// The first name that is not a distinct column name.
    pub fn check_names(&self) -> Result<(), SchemaError> {
        match self.wrong_name() {
            Some(index) => Err(SchemaError::Name(self.fields[index].name.clone())),
            None => Ok(()),
        }
    }

    /// The first field whose name is no column name, or that of an earlier field.
    pub(crate) fn wrong_name(&self) -> Option<usize> {
        let mut names = HashSet::with_capacity(self.fields.len());
        self.fields
            .iter()
            .position(|field| !names.insert(&*field.name) || !is_column_name(&field.name))
    }

    /// Whether elements of both schemas have the same meaning: the schemas differ at most in
    /// descriptions.
    #[must_use]
    pub fn equals_but_descriptions(&self, other: &Self) -> bool {
        let same = |(one, other): (&Field, &Field)| {
            (&one.name, one.field_type) == (&other.name, other.field_type)
                && (&one.unit, &one.observed_property) == (&other.unit, &other.observed_property)
        };
        self.key == other.key
            && self.fields.len() == other.fields.len()
            && self.fields.iter().zip(&other.fields).all(same)
    }

    /// Checks that `element` has one value of the right type, or null, for each field.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, element: &StreamElement) -> Result<(), SchemaError> {
        if element.values.len() != self.fields.len() {
            let (values, fields) = (element.values.len(), self.fields.len());
            return Err(SchemaError::Width { values, fields });
        }
        for (field, value) in self.fields.iter().zip(&element.values) {
            if value
                .field_type()
                .is_some_and(|found| found != field.field_type)
            {
                let wanted = field.field_type;
                return Err(SchemaError::Type {
                    field: field.name.clone(),
                    wanted,
                });
            }
        }
        Ok(())
    }
}

/// A whole number in another unit, if that is a whole number, too.
pub(crate) fn converted_integer(whole: i64, conversion: Conversion) -> Option<i64> {
    /// Up to here every whole number is a double.
    const EXACT: u64 = 1 << 53;
    if whole.unsigned_abs() > EXACT {
        return None;
    }
    let number = conversion.apply(whole as f64);
    let is_exact = number.fract() == 0.0 && number.abs() <= EXACT as f64;
    // In the range, and whole.
    is_exact.then_some(number as i64)
}

fn converted(value: Value, conversion: Conversion) -> Option<Value> {
    match value {
        Value::Double(number) => Some(Value::Double(conversion.apply(number))),
        Value::Integer(whole) => converted_integer(whole, conversion).map(Value::Integer),
        Value::Samples(samples) => {
            let values = samples.values.into_iter();
            Some(Value::Samples(Samples {
                values: values.map(|number| conversion.apply(number)).collect(),
                ..samples
            }))
        }
        other => Some(other),
    }
}

impl FieldType {
    /// The name, as in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Samples => "samples",
        }
    }
}

impl Value {
    /// Most bytes that it takes in a record of the log.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        const NUMBER: usize = 11;
        match self {
            Self::Text(text) => NUMBER + text.len(),
            Self::Bytes(bytes) => NUMBER + bytes.len(),
            Self::Samples(samples) => 4 * NUMBER + 8 * samples.values.len(),
            _ => NUMBER,
        }
    }

    /// The type, or `None` for null, which every field accepts.
    #[must_use]
    pub fn field_type(&self) -> Option<FieldType> {
        match self {
            Self::Null => None,
            Self::Boolean(_) => Some(FieldType::Boolean),
            Self::Integer(_) => Some(FieldType::Integer),
            Self::Double(_) => Some(FieldType::Double),
            Self::Text(_) => Some(FieldType::Text),
            Self::Bytes(_) => Some(FieldType::Bytes),
            Self::Samples(_) => Some(FieldType::Samples),
        }
    }
}

pub(crate) fn is_column_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn schema(field_type: FieldType, unit: Option<&str>) -> StreamSchema {
        StreamSchema {
            fields: vec![Field {
                name: "v".to_owned(),
                field_type,
                unit: unit.map(str::to_owned),
                observed_property: None,
                description: None,
            }],
            key: None,
        }
    }

    #[test]
    fn older_values_are_converted_into_the_unit_of_the_schema() {
        let double = Value::Double;
        let (number, whole) = (FieldType::Double, FieldType::Integer);
        for (field_type, from, to, value, wanted) in [
            (number, Some("kPa"), Some("Pa"), double(1.5), double(1500.0)),
            (number, Some("K"), Some("Cel"), double(0.0), double(-273.15)),
            (number, Some("Cel"), Some("Cel"), double(-0.0), double(-0.0)),
            (number, None, Some("Cel"), double(20.0), double(20.0)),
            (number, Some("Cel"), None, double(20.0), double(20.0)),
            // A wrong number is worse than none.
            (number, Some("Cel"), Some("kPa"), double(20.0), Value::Null),
            (number, Some("furlong"), Some("m"), double(1.0), Value::Null),
            (number, Some("m"), Some("km"), Value::Null, Value::Null),
            (
                whole,
                Some("km"),
                Some("m"),
                Value::Integer(3),
                Value::Integer(3_000),
            ),
            (
                whole,
                Some("m"),
                Some("km"),
                Value::Integer(3_500),
                Value::Null,
            ),
            (
                whole,
                Some("km"),
                Some("m"),
                Value::Integer(1 << 60),
                Value::Null,
            ),
            (
                whole,
                Some("km"),
                Some("m"),
                Value::Integer(i64::MIN),
                Value::Null,
            ),
        ] {
            let (old, new) = (schema(field_type, from), schema(field_type, to));
            let shown = format!("{value:?} {from:?} {to:?}");
            assert_eq!(new.project(&old, vec![value]), [wanted], "{shown}");
        }
        let samples = |values| {
            Value::Samples(Samples {
                start: Timestamp(1),
                period_ns: 2,
                values,
            })
        };
        let (old, new) = (
            schema(FieldType::Samples, Some("V")),
            schema(FieldType::Samples, Some("mV")),
        );
        assert_eq!(
            new.project(&old, vec![samples(vec![1.0, -2.0])]),
            [samples(vec![1000.0, -2000.0])]
        );
    }

    #[test]
    fn a_field_of_another_type_has_no_value() {
        let (old, new) = (
            schema(FieldType::Integer, None),
            schema(FieldType::Double, None),
        );
        assert_eq!(new.project(&old, vec![Value::Integer(1)]), [Value::Null]);
    }
}
