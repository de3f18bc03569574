//! The stream of a type: members become fields.
//!
//! Structs within structs become fields whose names join those on their path; the path itself, with dots, is the field's
//! description. Numbers in sequences and arrays become samples, names of enumerations become text, and key members become
//! the element's key. Members that no field can hold are left out and listed.

use chappe_stream::{
    Field, FieldType, Position, Quality, Samples, StreamElement, StreamSchema, Timestamp, Value,
};

use super::{Datum, Structure, Type, joined};

/// The largest number of fields; reason: each is a column of the stream's table.
const FIELDS_MAX: usize = 512;
/// The longest name of a field; reason: the limit of a stream.
const NAME_BYTES_MAX: usize = 64;
/// Nanoseconds in a second.
const SECOND_NS: i128 = 1_000_000_000;

/// How samples of a type become elements of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flat {
    schema: StreamSchema,
    pub(super) fields: Vec<Leaf>,
    pub(super) keys: Vec<Leaf>,
    /// The members that are neither.
    pub(super) others: Vec<Leaf>,
    left_out: Vec<String>,
}

/// A member, at the end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) path: String,
    pub(super) indexes: Vec<usize>,
    pub(super) of: Type,
}

impl Flat {
    /// The stream of a type.
    #[must_use]
    pub fn new(of: &Structure) -> Self {
        let mut flat = Self {
            schema: StreamSchema {
                fields: Vec::new(),
                key: None,
            },
            fields: Vec::new(),
            keys: Vec::new(),
            others: Vec::new(),
            left_out: Vec::new(),
        };
        flat.add(of, "", &mut Vec::new(), Part::Outermost);
        let names: Vec<String> = flat.keys.iter().map(|key| column_name(&key.path)).collect();
        flat.schema.key = (!names.is_empty()).then(|| names.join("_"));
        flat
    }

    /// The fields and the key of its elements.
    #[must_use]
    pub const fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// The members that are no fields, each with its path and the reason.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    fn add(&mut self, of: &Structure, path: &str, indexes: &mut Vec<usize>, part: Part) {
        // Without key members, all of a struct that is a key is part of it (DDS-XTypes 1.3, clause 7.2.2.4.4.4).
        let has_keys = of.members.iter().any(|member| member.is_key);
        for (index, member) in of.members.iter().enumerate() {
            let path = joined(path, &member.name);
            let is_key = match part {
                Part::Outermost => member.is_key,
                Part::Key => member.is_key || !has_keys,
                Part::Value => false,
            };
            indexes.push(index);
            match &member.of {
                Type::Structure(inner) => {
                    let part = if is_key { Part::Key } else { Part::Value };
                    self.add(inner, &path, indexes, part);
                }
                other => {
                    let (indexes, of) = (indexes.clone(), other.clone());
                    self.leaf(Leaf { path, indexes, of }, is_key);
                }
            }
            indexes.pop();
        }
    }

    fn leaf(&mut self, leaf: Leaf, is_key: bool) {
        let Leaf { path, of, .. } = &leaf;
        let Some(field_type) = field_type(of) else {
            self.left_out.push(format!("{path}: no field holds a {of}"));
            self.others.push(leaf);
            return;
        };
        if is_key && !matches!(field_type, FieldType::Bytes | FieldType::Samples) {
            self.keys.push(leaf);
            return;
        }
        let name = column_name(path);
        let is_known = self.schema.fields.iter().any(|field| field.name == name);
        let why = match () {
            () if is_known => format!("another member has the field {name}"),
            () if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                format!("the name of a field has 1 to {NAME_BYTES_MAX} characters")
            }
            () if self.fields.len() >= FIELDS_MAX => {
                format!("a stream has at most {FIELDS_MAX} fields")
            }
            () => {
                self.schema.fields.push(Field {
                    name,
                    field_type,
                    unit: None,
                    observed_property: None,
                    description: path.contains('.').then(|| path.clone()),
                });
                self.fields.push(leaf);
                return;
            }
        };
        self.left_out.push(format!("{path}: {why}"));
        self.others.push(leaf);
    }

    /// The element of a sample that was written at this time.
    ///
    /// # Errors
    /// A value that the stream cannot hold, with its path.
    pub fn element(&self, sample: &Datum, time: Timestamp) -> Result<StreamElement, String> {
        let mut values = Vec::with_capacity(self.fields.len());
        for leaf in &self.fields {
            let value = match leaf.find(sample) {
                Some(datum) => value(datum, time).map_err(|why| format!("{}: {why}", leaf.path))?,
                None => Value::Null,
            };
            values.push(value);
        }
        let mut keys: Vec<String> = self.keys.iter().map(|key| key.text(sample)).collect();
        if keys.len() > 1 {
            // Different keys stay different after they are joined.
            for key in &mut keys {
                *key = key.replace('%', "%25").replace('/', "%2F");
            }
        }
        Ok(StreamElement {
            position: Position::default(),
            source_time: time,
            receive_time: time,
            key: (!keys.is_empty()).then(|| keys.join("/")),
            values,
            quality: Quality::Good,
            origin: None,
        })
    }
}

/// What a struct is of a sample.
#[derive(Debug, Clone, Copy)]
enum Part {
    Outermost,
    Key,
    Value,
}

impl Leaf {
    pub(super) fn find<'a>(&self, sample: &'a Datum) -> Option<&'a Datum> {
        let mut found = sample;
        for index in &self.indexes {
            let Datum::Structure(members) = found else {
                return None;
            };
            found = members.get(*index)?.as_ref()?;
        }
        Some(found)
    }

    fn text(&self, sample: &Datum) -> String {
        match self.find(sample) {
            Some(Datum::Boolean(value)) => value.to_string(),
            Some(Datum::Integer(value)) => value.to_string(),
            Some(Datum::Unsigned(value)) => value.to_string(),
            Some(Datum::Double(value)) => value.to_string(),
            Some(Datum::Text(value)) => value.clone(),
            _ => String::new(),
        }
    }
}

/// The time of a member: whole nanoseconds since 1970, or a struct of seconds and nanoseconds as in ROS 2
/// (`builtin_interfaces/Time`).
#[must_use]
pub fn time_of(of: &Structure, path: &str, sample: &Datum) -> Option<Timestamp> {
    let (mut of, mut found) = (of, sample);
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let index = of.members.iter().position(|member| member.name == name)?;
        let Datum::Structure(members) = found else {
            return None;
        };
        found = members.get(index)?.as_ref()?;
        match &of.members[index].of {
            Type::Structure(inner) => of = inner,
            _ if names.peek().is_some() => return None,
            _ => {}
        }
    }
    let whole = |datum: &Datum| match datum {
        Datum::Integer(value) => Some(i128::from(*value)),
        Datum::Unsigned(value) => Some(i128::from(*value)),
        _ => None,
    };
    let ns = match found {
        Datum::Structure(members) => match &**members {
            [Some(seconds), Some(rest)] => whole(seconds)? * SECOND_NS + whole(rest)?,
            _ => return None,
        },
        other => whole(other)?,
    };
    i64::try_from(ns).ok().map(Timestamp)
}

fn field_type(of: &Type) -> Option<FieldType> {
    Some(match of {
        Type::Boolean => FieldType::Boolean,
        Type::Integer { .. } | Type::Mask { .. } => FieldType::Integer,
        Type::Float { .. } => FieldType::Double,
        Type::Char | Type::Text | Type::Enumeration(_) => FieldType::Text,
        Type::Sequence(element) | Type::Array(element, _) => match **element {
            Type::Mask { bytes: 1 }
            | Type::Integer {
                bytes: 1,
                is_signed: false,
            } => FieldType::Bytes,
            Type::Boolean | Type::Integer { .. } | Type::Mask { .. } | Type::Float { .. } => {
                FieldType::Samples
            }
            Type::Char => FieldType::Text,
            _ => return None,
        },
        Type::Structure(_) | Type::Unsupported(_) => return None,
    })
}

fn value(of: &Datum, time: Timestamp) -> Result<Value, String> {
    Ok(match of {
        Datum::Boolean(value) => Value::Boolean(*value),
        Datum::Integer(value) => Value::Integer(*value),
        Datum::Unsigned(value) => match i64::try_from(*value) {
            Ok(value) => Value::Integer(value),
            Err(_) => return Err(format!("{value} is above the largest integer of a stream")),
        },
        Datum::Double(value) => Value::Double(*value),
        Datum::Text(value) => Value::Text(value.clone()),
        Datum::Bytes(value) => Value::Bytes(value.clone()),
        Datum::Numbers(values) => Value::Samples(Samples {
            start: time,
            period_ns: 0,
            values: values.clone(),
        }),
        Datum::List(_) | Datum::Structure(_) => Value::Null,
    })
}

/// The name of a field for the member at this path: `angularVelocity.x` is `angular_velocity_x`.
#[must_use]
pub fn column_name(path: &str) -> String {
    let mut name = String::with_capacity(path.len());
    let mut was_lower = false;
    for letter in path.chars() {
        if letter.is_ascii_uppercase() && was_lower {
            name.push('_');
        }
        was_lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        match letter.is_ascii_alphanumeric() {
            true => name.push(letter.to_ascii_lowercase()),
            false => name.push('_'),
        }
    }
    // No name in IDL starts with a digit, but one that is announced may.
    match name.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}
