//! The TOML of a descriptor, key by key, and its checks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use chappe_log::Level;
use chappe_machine::time_unit;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use toml::Spanned;

use super::about::{self, RawFact};
use super::command::{self, RawCommand};
use super::error::{DescriptorError, DescriptorFault, HINT, Place, nearest};
use super::source::RawSource;
use super::statement::{self, RawStatement};
use super::{DESCRIPTOR_BYTES_MAX, Descriptor, Output};
use crate::{
    Extent, Field, FieldType, QueryError, RESERVED_COLUMNS, Retention, SchemaError, StreamSchema,
    WINDOW_ELEMENTS_MAX, check_name,
};

/// A virtual sensor.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Virtual sensor")]
struct RawDescriptor {
    /// The name, also of the output stream: lower case, with dots between parts.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// The purpose.
    description: Option<String>,
    /// Only accounts may read the sensor: a node with `access.read = "open"` does not run it.
    /// Default: false.
    #[serde(default)]
    protected: bool,
    /// Facts about the sensor by property, which become triples of the registry.
    #[schemars(with = "Option<BTreeMap<String, RawFact>>")]
    metadata: Option<Spanned<BTreeMap<String, RawFact>>>,
    /// Commands, which are called over REST. A call is an element of the command's stream.
    #[schemars(with = "Option<Vec<RawCommand>>")]
    command: Option<Spanned<Vec<Spanned<RawCommand>>>>,
    /// The sources. Either these and `output.sql`, or `statement`.
    #[schemars(with = "Option<Vec<RawSource>>")]
    source: Option<Spanned<Vec<Spanned<RawSource>>>>,
    /// Several statements, each over sources of its own.
    #[schemars(with = "Option<Vec<RawStatement>>")]
    statement: Option<Spanned<Vec<Spanned<RawStatement>>>>,
    /// The output.
    output: RawOutput,
}

/// The treatment of elements with a field that is null.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawNulls {
    Keep,
    Drop,
}

/// Which columns a result may have.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawColumns {
    Exact,
    Any,
}

/// The output of a virtual sensor.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawOutput {
    /// The name of the stream. Default: the name of the sensor.
    #[schemars(with = "Option<String>")]
    stream: Option<Spanned<String>>,
    /// When an element counts as stored. Default: power.
    level: Option<Level>,
    /// How long elements are kept; `{}`: as long as the log has room. Default: as the node keeps any
    /// stream (`log.keep_elements`, `log.keep_age_s`).
    retention: Option<RawRetention>,
    /// One SELECT over the aliases, and `<alias>_samples` for waveforms.
    #[schemars(with = "Option<String>")]
    sql: Option<Spanned<String>>,
    /// Elements sooner than this after the last one are dropped, such as "500ms".
    rate: Option<RawDuration>,
    /// Drop an element unless its source time is after that of the last one with its key. Default:
    /// false.
    #[serde(default)]
    unique_times: bool,
    /// Keep or drop elements with a field that is null. Default: keep.
    nulls: Option<RawNulls>,
    /// `exact`: the statement has a column for each field, and no other. `any`: a column without a field is passed
    /// over, and a field without a column is null. Default: exact.
    columns: Option<RawColumns>,
    /// The subject that the key of an element identifies, if the statement has a column `key`.
    key: Option<String>,
    /// The fields of the elements: columns of the statement.
    #[schemars(with = "Vec<RawField>")]
    field: Spanned<Vec<Spanned<RawField>>>,
}

/// How long elements are kept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawRetention {
    /// Number of newest elements, such as 1000, plus up to a sixteenth (at least 16).
    #[schemars(range(min = 1))]
    elements: Option<NonZeroU64>,
    /// Elements up to this age, such as "7d", and up to a sixteenth older.
    age: Option<RawDuration>,
}

/// A field of the output.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawField {
    /// The name: a column of the statement.
    name: String,
    /// The type.
    #[serde(rename = "type")]
    field_type: RawType,
    /// The unit, a UCUM code.
    unit: Option<String>,
    /// The observed property, a URI.
    observed_property: Option<String>,
    /// The description.
    description: Option<String>,
}

/// The type of a field.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawType {
    Boolean,
    Integer,
    Double,
    Text,
    Bytes,
    Samples,
}

pub(super) struct RawExtent(pub(super) Extent);

/// The extent of a window, for the JSON Schema.
pub(super) struct WindowSchema;

pub(super) struct RawDuration(pub(super) Duration);

/// The JSON Schema of descriptors, for editors.
#[must_use]
pub fn descriptor_json_schema() -> Schema {
    schemars::schema_for!(RawDescriptor)
}

pub(super) fn parse(file: &str, text: &str) -> Result<Descriptor, DescriptorError> {
    let place = Place { file, text };
    if text.len() > DESCRIPTOR_BYTES_MAX {
        let message = format!("the descriptor is longer than {DESCRIPTOR_BYTES_MAX} bytes");
        return Err(place.error(DescriptorFault::Value, 0, "", message, None));
    }
    let raw: RawDescriptor = toml::from_str(text).map_err(|error| place.toml(&error))?;
    stream_name(place, "name", &raw.name)?;
    let mut raw = raw;
    let sql = raw.output.sql.take();
    let commands = command::commands(place, raw.command)?;
    let (statements, sources) =
        statement::statements(place, &commands, raw.statement, raw.source, sql)?;
    let name = raw.name.into_inner();
    let output = output(place, raw.output, &name)?;
    let descriptor = Descriptor {
        name,
        description: raw.description,
        is_protected: raw.protected,
        metadata: about::metadata(place, raw.metadata)?,
        commands,
        sources,
        statements,
        output,
    };
    if let Some(letters) = descriptor.dead_letters() {
        check_name(&letters).map_err(|error| {
            let fault = DescriptorFault::Value;
            let hint = Some("shorten the name of the output stream".to_owned());
            place.error(fault, 0, "output.stream", error.to_string(), hint)
        })?;
    }
    check_commands(place, &descriptor)?;
    Ok(descriptor)
}

/// Checks the names of the commands' streams.
fn check_commands(place: Place<'_>, descriptor: &Descriptor) -> Result<(), DescriptorError> {
    let fault = DescriptorFault::Value;
    for (index, command) in descriptor.commands.iter().enumerate() {
        check_name(&descriptor.command_stream(command)).map_err(|error| {
            let hint = Some("shorten the name of the output stream".to_owned());
            let key = format!("command[{index}].name");
            place.error(fault, 0, key, error.to_string(), hint)
        })?;
    }
    Ok(())
}

pub(super) fn stream_name(
    place: Place<'_>,
    key: &str,
    name: &Spanned<String>,
) -> Result<(), DescriptorError> {
    check_name(name.get_ref()).map_err(|error| {
        let near = name
            .get_ref()
            .split('.')
            .map(crate::name_part)
            .collect::<Vec<_>>()
            .join(".");
        let hint = check_name(&near).is_ok().then(|| format!("write {near:?}"));
        let at = name.span().start;
        place.error(DescriptorFault::Value, at, key, error.to_string(), hint)
    })
}

fn output(place: Place<'_>, raw: RawOutput, name: &str) -> Result<Output, DescriptorError> {
    if let Some(stream) = &raw.stream {
        stream_name(place, "output.stream", stream)?;
    }
    let schema = output_schema(place, raw.field, raw.key)?;
    Ok(Output {
        stream: raw
            .stream
            .map_or_else(|| name.to_owned(), Spanned::into_inner),
        level: raw.level.unwrap_or(Level::Power),
        retention: raw.retention.map(|retention| Retention {
            elements: retention.elements.map(NonZeroU64::get),
            age: retention.age.map(|age| age.0),
        }),
        rate: raw.rate.map(|rate| rate.0),
        unique_times: raw.unique_times,
        drops_nulls: matches!(raw.nulls, Some(RawNulls::Drop)),
        takes_any_columns: matches!(raw.columns, Some(RawColumns::Any)),
        schema,
    })
}

fn output_schema(
    place: Place<'_>,
    raw: Spanned<Vec<Spanned<RawField>>>,
    key: Option<String>,
) -> Result<StreamSchema, DescriptorError> {
    let fault = DescriptorFault::Value;
    let start = raw.span().start;
    let raw = raw.into_inner();
    if raw.len() > FIELDS_MAX {
        let message = format!("the output has {} fields, above {FIELDS_MAX}", raw.len());
        return Err(place.error(fault, start, "output.field", message, None));
    }
    let mut starts = Vec::with_capacity(raw.len());
    let mut schema = StreamSchema {
        fields: Vec::new(),
        key,
    };
    for (index, raw) in raw.into_iter().enumerate() {
        let at = raw.span().start;
        let raw = raw.into_inner();
        let name = format!("output.field[{index}].name");
        if RESERVED_COLUMNS.contains(&raw.name.as_str()) {
            let message = format!("every element has {:?} besides its fields", raw.name);
            let hint = Some("rename the field".to_owned());
            return Err(place.error(fault, at, name, message, hint));
        }
        schema.fields.push(Field {
            name: raw.name,
            field_type: match raw.field_type {
                RawType::Boolean => FieldType::Boolean,
                RawType::Integer => FieldType::Integer,
                RawType::Double => FieldType::Double,
                RawType::Text => FieldType::Text,
                RawType::Bytes => FieldType::Bytes,
                RawType::Samples => FieldType::Samples,
            },
            unit: raw.unit,
            observed_property: raw.observed_property,
            description: raw.description,
        });
        starts.push(at);
    }
    if let Some(index) = schema.wrong_name() {
        let error = SchemaError::Name(schema.fields[index].name.clone());
        let name = format!("output.field[{index}].name");
        return Err(place.error(fault, starts[index], name, error.to_string(), None));
    }
    if schema.fields.is_empty() {
        let message = "the output has no fields";
        return Err(place.error(fault, start, "output.field", message, None));
    }
    Ok(schema)
}

/// The statement's fault, at its position in the file if known.
pub(super) fn sql_error(
    place: Place<'_>,
    key: &str,
    sql: &Spanned<String>,
    error: &QueryError,
    aliases: &[&str],
) -> DescriptorError {
    let span = sql.span();
    let mut at = span.start;
    let mut hint = None;
    if let QueryError::Statement { message, offset } = error {
        if let Some(offset) = offset
            && let Some(found) = place.text[span.clone()].find(sql.get_ref().as_str())
        {
            // Found literally: there are no escapes between the file and the statement.
            at = span.start + found + offset;
        }
        if let Some(missing) = message.strip_prefix("no such table: ") {
            let near = nearest(missing, aliases);
            let known = aliases.join(", ");
            hint = Some(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the sources are {known}; waveforms are <alias>_samples"),
            });
        }
    }
    let fault = DescriptorFault::Sql;
    place.error(fault, at, key, error.to_string(), hint)
}

/// The longest window, slide or age.
const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Reads `250ms`, `10s`, `5m`, `1h`, `7d`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = time_unit(unit).filter(|unit| *unit >= Duration::from_millis(1));
    let Some(unit) = unit else {
        let hint = "a time is a number and one of ms, s, m, h, d, such as \"10s\"";
        return Err(format!("{text:?} is not a time{HINT}{hint}"));
    };
    let unit_ms = u64::try_from(unit.as_millis()).ok();
    let time = number.parse::<u64>().ok().zip(unit_ms);
    let time = time.and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    let time = time.map(Duration::from_millis);
    match time {
        Some(time) if !time.is_zero() && time <= TIME_MAX => Ok(time),
        _ => Err(format!(
            "{text:?} is out of range{HINT}a time is above zero and at most 366d"
        )),
    }
}

/// Most fields of an output: a bound on the work of a file.
const FIELDS_MAX: usize = 1_000;

/// The largest number of elements between two evaluations.
pub(super) const COUNT_MAX: usize = 1_000_000;

fn count(number: i64) -> Result<Extent, String> {
    match usize::try_from(number) {
        Ok(number) if (1..=COUNT_MAX).contains(&number) => Ok(Extent::Count(number)),
        _ => Err(format!(
            "{number} is out of range{HINT}a count is from 1 to {COUNT_MAX}"
        )),
    }
}

impl<'de> Deserialize<'de> for RawExtent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExtentVisitor;
        impl Visitor<'_> for ExtentVisitor {
            type Value = RawExtent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of elements, or a time such as \"10s\"")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<RawExtent, E> {
                count(number).map(RawExtent).map_err(E::custom)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawExtent, E> {
                let extent = match text.parse::<i64>() {
                    Ok(number) => count(number),
                    Err(_) => duration(text).map(Extent::Time),
                };
                extent.map(RawExtent).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(ExtentVisitor)
    }
}

impl<'de> Deserialize<'de> for RawDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration(&text).map(RawDuration).map_err(D::Error::custom)
    }
}

impl JsonSchema for RawExtent {
    fn schema_name() -> Cow<'static, str> {
        "Extent".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        extent_schema(COUNT_MAX)
    }
}

impl JsonSchema for WindowSchema {
    fn schema_name() -> Cow<'static, str> {
        "Window".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        extent_schema(WINDOW_ELEMENTS_MAX)
    }
}

fn extent_schema(count_max: usize) -> Schema {
    json_schema!({
        "description": "A number of elements, or a time: 250ms, 10s, 5m, 1h, 7d.",
        "oneOf": [
            { "type": "integer", "minimum": 1, "maximum": count_max },
            { "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)?$" }
        ]
    })
}

impl JsonSchema for RawDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time: 250ms, 10s, 5m, 1h, 7d.",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h|d)$"
        })
    }
}
