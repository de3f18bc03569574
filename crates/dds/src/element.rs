//! Stream elements as samples: one IDL struct for each stream, derived from its schema.
//!
//! Each struct starts with the position of the element at its source, which identifies it across restarts of both
//! sides, followed by one member for each field of the schema. Fields without a value are listed in `absent`, and
//! their member is zero or empty.
//!
//! Out of scope: IDL by others. Their topics can be read if they have this structure.

use std::fmt::Write as _;

use chappe_stream::{
    Epoch, FieldType, Position, Quality, Samples, SchemaError, StreamElement, StreamSchema,
    Timestamp, Value,
};

use crate::cdr::{Decoder, Encoder};
use crate::{CdrError, Payload};

/// The largest number of fields; reason: absent ones are listed as numbers of 16 bits.
pub const FIELDS_MAX: usize = u16::MAX as usize;

/// Definitions used by all types.
const SHARED: &str = "  enum Quality { GOOD, QUESTIONABLE, BAD };\n\n  /* Evenly spaced samples. */\n  \
                      @final struct Samples {\n    long long start_ns; /* nanoseconds since 1970 */\n    \
                      unsigned long long period_ns;\n    sequence<double> values;\n  };\n";

/// The members before the fields.
const HEAD: [&str; 8] = [
    "stream",
    "instance",
    "epoch",
    "number",
    "previous",
    "source_time_ns",
    "quality",
    "absent",
];

/// Keywords of IDL 4.2, clause 7.2.4, in lower case like fields.
const KEYWORDS: &str = " abstract any alias attribute bitfield bitmask bitset boolean case char \
    component connector const consumes context custom default double exception emits enum \
    eventtype factory false finder fixed float getraises getter home import in inout int16 int32 \
    int64 int8 interface local long manages map mirrorport module multiple native object octet \
    oneway out port porttype primarykey private provides public publishes raises readonly sequence \
    setraises setter short string struct supports switch true truncatable typedef typeid typename \
    typeprefix uint16 uint32 uint64 uint8 union unsigned uses valuebase valuetype void wchar wstring ";

/// The type of a stream's samples.
///
/// ```
/// use chappe_dds::ElementType;
/// use chappe_stream::{Field, FieldType, StreamSchema};
/// let schema = StreamSchema {
///     fields: vec![Field {
///         name: "temperature".into(),
///         field_type: FieldType::Double,
///         unit: Some("Cel".into()),
///         observed_property: None,
///         description: None,
///     }],
///     key: None,
/// };
/// let of_stream = ElementType::new("ward.bed-3", schema)?;
/// assert_eq!(of_stream.type_name(), "chappe::Ward_bed_3");
/// assert!(of_stream.idl().contains("    double temperature; /* Cel */\n"));
/// # Ok::<(), chappe_stream::SchemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementType {
    stream: String,
    schema: StreamSchema,
}

/// A decoded sample.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedSample {
    /// The name of the stream at its source.
    pub stream: String,
    /// The number of the previous element; 0: accept it after any element.
    pub previous: u64,
    /// The element.
    pub element: StreamElement,
}

impl ElementType {
    /// Derives the type of a stream.
    ///
    /// # Errors
    /// A field has an invalid or repeated name, or there are too many.
    pub fn new(stream: &str, schema: StreamSchema) -> Result<Self, SchemaError> {
        schema.check_names()?;
        if let Some(field) = schema.fields.get(FIELDS_MAX) {
            return Err(SchemaError::Name(field.name.clone()));
        }
        Ok(Self {
            stream: stream.to_owned(),
            schema,
        })
    }

    /// The fields.
    #[must_use]
    pub fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// The scoped name of the type: that of the stream, with `_` for characters that IDL does not allow.
    #[must_use]
    pub fn type_name(&self) -> String {
        format!("chappe::{}", self.struct_name())
    }

    fn struct_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = self.stream.chars().map(plain).collect();
        let mut letters = name.chars();
        match letters.next() {
            Some(first) if first.is_ascii_alphabetic() => {
                first.to_ascii_uppercase().to_string() + letters.as_str()
            }
            _ => format!("Stream_{name}"),
        }
    }

    /// Its IDL (4.2), with the schema's description of each field.
    #[must_use]
    pub fn idl(&self) -> String {
        let mut idl = format!(
            "/* Elements of the stream {}. */\n",
            comment_text(&self.stream)
        );
        let _ = write!(idl, "module chappe {{\n{SHARED}\n");
        let _ = write!(
            idl,
            "  @final struct {} {{\n    \
             @key string stream; /* name of the stream at its source */\n    \
             @key string instance; /* {}; empty where there is none */\n    \
             unsigned long long epoch; /* identifies the element, with stream and number */\n    \
             unsigned long long number; /* increases by one; 0: none */\n    \
             unsigned long long previous; /* the previous number; 0: accept it after any element */\n    \
             long long source_time_ns; /* nanoseconds since 1970 */\n    \
             Quality quality;\n    \
             sequence<unsigned short> absent; /* indexes of the members below that have no value, from 0 */\n",
            self.struct_name(),
            comment_text(
                self.schema
                    .key
                    .as_deref()
                    .unwrap_or("the instance of the element")
            ),
        );
        for field in &self.schema.fields {
            let _ = write!(
                idl,
                "    {} {};",
                idl_type(field.field_type),
                self.member(&field.name)
            );
            let said = [&field.unit, &field.observed_property, &field.description];
            let said: Vec<String> = said
                .iter()
                .filter_map(|said| Some(comment_text(said.as_ref()?)))
                .collect();
            if !said.is_empty() {
                let _ = write!(idl, " /* {} */", said.join("; "));
            }
            idl.push('\n');
        }
        idl.push_str("  };\n};\n");
        idl
    }

    /// The name of a field's member.
    fn member(&self, field: &str) -> String {
        // IDL names that differ only in case are equal.
        if HEAD.contains(&field) || self.struct_name().eq_ignore_ascii_case(field) {
            return format!("{field}_");
        }
        match field.starts_with('_') || KEYWORDS.contains(&format!(" {field} ")) {
            // A leading `_` escapes a keyword, and is not part of the name.
            true => format!("_{field}"),
            false => field.to_owned(),
        }
    }

    /// Encodes an element as a sample. `previous` is the number of the previous element if a reader must accept
    /// it only after that one, else 0.
    ///
    /// # Errors
    /// The element does not match the schema.
    pub fn encode(&self, element: &StreamElement, previous: u64) -> Result<Payload, SchemaError> {
        self.schema.check(element)?;
        let mut cdr = Encoder::default();
        cdr.text(&self.stream);
        cdr.text(element.key.as_deref().unwrap_or_default());
        cdr.u64(element.position.epoch.0);
        cdr.u64(element.position.sequence);
        cdr.u64(previous);
        cdr.i64(element.source_time.0);
        cdr.u32(match element.quality {
            Quality::Good => 0,
            Quality::Questionable => 1,
            Quality::Bad => 2,
        });
        let places = element.values.iter().zip(0_u16..);
        let absent: Vec<u16> = places
            .filter_map(|(value, place)| (*value == Value::Null).then_some(place))
            .collect();
        cdr.length(absent.len());
        absent.iter().for_each(|place| cdr.u16(*place));
        for (field, value) in self.schema.fields.iter().zip(&element.values) {
            encode_value(&mut cdr, field.field_type, value);
        }
        Ok(cdr.finish())
    }

    /// Decodes a sample; the position of the element is that at its source.
    ///
    /// # Errors
    /// The payload is not of this type.
    pub fn decode(&self, payload: &Payload) -> Result<DecodedSample, CdrError> {
        let mut cdr = Decoder::new(payload);
        let stream = cdr.text()?.to_owned();
        let key = Some(cdr.text()?).filter(|key| !key.is_empty());
        let key = key.map(str::to_owned);
        let position = Position {
            epoch: Epoch(cdr.u64()?),
            sequence: cdr.u64()?,
        };
        let previous = cdr.u64()?;
        let source_time = Timestamp(cdr.i64()?);
        let quality = match cdr.u32()? {
            0 => Quality::Good,
            1 => Quality::Questionable,
            2 => Quality::Bad,
            _ => return Err(cdr.wrong("a quality is not 0, 1 or 2")),
        };
        let fields = &self.schema.fields;
        let mut absent = vec![false; fields.len()];
        for _ in 0..cdr.length(2)? {
            let place = usize::from(cdr.u16()?);
            match absent.get_mut(place) {
                Some(place) if !*place => *place = true,
                _ => return Err(cdr.wrong("an absent member is not in the type, or is repeated")),
            }
        }
        let mut values = Vec::with_capacity(fields.len());
        for (field, absent) in fields.iter().zip(absent) {
            let value = decode_value(&mut cdr, field.field_type)?;
            values.push(if absent { Value::Null } else { value });
        }
        cdr.finish()?;
        let element = StreamElement {
            position,
            source_time,
            receive_time: Timestamp(0),
            key,
            values,
            quality,
            origin: None,
        };
        Ok(DecodedSample {
            stream,
            previous,
            element,
        })
    }
}

/// A text that is safe in a comment.
fn comment_text(words: &str) -> String {
    let line: String = words
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    line.replace("*/", "* /").replace("/*", "/ *")
}

fn idl_type(field: FieldType) -> &'static str {
    match field {
        FieldType::Boolean => "boolean",
        FieldType::Integer => "long long",
        FieldType::Double => "double",
        FieldType::Text => "string",
        FieldType::Bytes => "sequence<octet>",
        FieldType::Samples => "Samples",
    }
}

/// Writes a value of this type; an absent one as zero or empty.
fn encode_value(cdr: &mut Encoder, field: FieldType, value: &Value) {
    match (field, value) {
        (FieldType::Boolean, value) => cdr.boolean(*value == Value::Boolean(true)),
        (FieldType::Integer, Value::Integer(number)) => cdr.i64(*number),
        (FieldType::Integer, _) => cdr.i64(0),
        (FieldType::Double, Value::Double(number)) => cdr.f64(*number),
        (FieldType::Double, _) => cdr.f64(0.0),
        (FieldType::Text, Value::Text(text)) => cdr.text(text),
        (FieldType::Text, _) => cdr.text(""),
        (FieldType::Bytes, Value::Bytes(bytes)) => cdr.octets(bytes),
        (FieldType::Bytes, _) => cdr.octets(&[]),
        (FieldType::Samples, value) => {
            let nothing = Samples::default();
            let samples = match value {
                Value::Samples(samples) => samples,
                _ => &nothing,
            };
            cdr.i64(samples.start.0);
            cdr.u64(samples.period_ns);
            cdr.length(samples.values.len());
            samples.values.iter().for_each(|sample| cdr.f64(*sample));
        }
    }
}

fn decode_value(cdr: &mut Decoder<'_>, field: FieldType) -> Result<Value, CdrError> {
    Ok(match field {
        FieldType::Boolean => Value::Boolean(cdr.boolean()?),
        FieldType::Integer => Value::Integer(cdr.i64()?),
        FieldType::Double => Value::Double(cdr.f64()?),
        FieldType::Text => Value::Text(cdr.text()?.to_owned()),
        FieldType::Bytes => Value::Bytes(cdr.octets()?.to_vec()),
        FieldType::Samples => {
            let start = Timestamp(cdr.i64()?);
            let period_ns = cdr.u64()?;
            let length = cdr.length(8)?;
            let values = (0..length).map(|_| cdr.f64()).collect::<Result<_, _>>()?;
            Value::Samples(Samples {
                start,
                period_ns,
                values,
            })
        }
    })
}
