//! One JSON object as an element.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::LineError;
use super::shape::{Draft, Shape, Slot, integral, shown, time};
use crate::{FieldType, Samples, StreamElement, Timestamp, Value};

/// The members of an object in their order, repeats included.
struct Members(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a member for each field")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The values of an object as they are written.
struct Texts<'t>(Vec<&'t RawValue>);

impl<'de> Deserialize<'de> for Texts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts<'de>, A::Error> {
                let mut texts = Vec::new();
                while let Some((_, text)) = map.next_entry::<IgnoredAny, &RawValue>()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The element of an object.
pub(super) fn element(
    text: &str,
    shape: &Shape,
    now: Timestamp,
) -> Result<StreamElement, LineError> {
    let malformed = |error: serde_json::Error| LineError::Syntax(format!("not JSON: {error}"));
    let Members(members) = serde_json::from_str(text).map_err(malformed)?;
    let mut draft = shape.draft();
    let mut seen = Vec::with_capacity(members.len());
    let mut texts = None;
    for (at, (name, value)) in members.into_iter().enumerate() {
        let slot = shape.slot(&name)?;
        if seen.contains(&slot) {
            return Err(LineError::Twice(name));
        }
        seen.push(slot);
        if let (Slot::Field(index), Json::Number(number)) = (slot, &value)
            && shape.field(index).field_type == FieldType::Integer
            && number.as_i64().is_none()
        {
            // It was read as a double, which rounds.
            if texts.is_none() {
                texts = Some(serde_json::from_str::<Texts<'_>>(text).map_err(malformed)?);
            }
            let texts = texts.iter().flat_map(|Texts(texts)| texts);
            let text = texts.map(|text| text.get()).nth(at).unwrap_or_default();
            let number = integral(text).ok_or_else(|| shape.wrong_type(index, text))?;
            draft.set(index, Value::Integer(number));
            continue;
        }
        set(&mut draft, slot, value, shape)?;
    }
    shape.finish(draft, now)
}

fn set(draft: &mut Draft, slot: Slot, value: Json, shape: &Shape) -> Result<(), LineError> {
    match (slot, value) {
        (_, Json::Null) => Ok(()),
        (Slot::SourceTime, Json::String(text)) => draft.set_time(&text),
        (Slot::Key, Json::String(key)) => {
            draft.set_key(key);
            Ok(())
        }
        (Slot::Quality, Json::String(word)) => draft.set_quality(&word),
        (Slot::Field(index), value) => {
            draft.set(index, field(index, value, shape)?);
            Ok(())
        }
        (Slot::SourceTime, other) => time("source_time", &other.to_string()).map(drop),
        (Slot::Key, _) => Err(LineError::Key("a key is a text")),
        (Slot::Quality, other) => Err(LineError::Quality(shown(&other.to_string()))),
    }
}

fn field(index: usize, value: Json, shape: &Shape) -> Result<Value, LineError> {
    let name = || shape.field(index).name.clone();
    let wrong = |value: &Json| shape.wrong_type(index, &value.to_string());
    match (shape.field(index).field_type, value) {
        (FieldType::Boolean, Json::Bool(flag)) => Ok(Value::Boolean(flag)),
        (FieldType::Integer, Json::Number(number)) => match number.as_i64() {
            Some(number) => Ok(Value::Integer(number)),
            None => Err(wrong(&Json::Number(number))),
        },
        (FieldType::Double, Json::Number(number)) => match number.as_f64() {
            Some(number) if number.is_finite() => Ok(Value::Double(number)),
            _ => Err(LineError::NotFinite(name())),
        },
        (FieldType::Text, Json::String(text)) => Ok(Value::Text(text)),
        (FieldType::Bytes, Json::String(text)) => match STANDARD.decode(&text) {
            Ok(bytes) => Ok(Value::Bytes(bytes)),
            Err(_) => Err(shape.wrong_type(index, "a text that is not base64")),
        },
        (FieldType::Samples, Json::Object(members)) => samples(index, members, shape),
        (_, other) => Err(wrong(&other)),
    }
}

fn samples(
    index: usize,
    mut members: serde_json::Map<String, Json>,
    shape: &Shape,
) -> Result<Value, LineError> {
    let wrong = |found: &str| shape.wrong_type(index, found);
    let start = members.remove("start");
    let start = start.as_ref().and_then(Json::as_str);
    let start = start.ok_or_else(|| wrong("an object without the text start"))?;
    let start = time("start", start)?;
    let period_s = members.remove("period_s").as_ref().and_then(Json::as_f64);
    let period_ns = period_s.map_or(0.0, |period| (period * 1e9).round());
    if !(1.0..=1e18).contains(&period_ns) {
        return Err(wrong("an object without a period_s of 1e-9 to 1e9"));
    }
    let Some(Json::Array(values)) = members.remove("values") else {
        return Err(wrong("an object without the array values"));
    };
    if let Some(name) = members.keys().next() {
        return Err(wrong(&format!("an object with {name:?}")));
    }
    let number = |value: &Json| value.as_f64().filter(|number| number.is_finite());
    let values: Option<Vec<f64>> = values.iter().map(number).collect();
    let values = values.ok_or_else(|| wrong("an array of other values than finite numbers"))?;
    Ok(Value::Samples(Samples {
        start,
        period_ns: period_ns as u64,
        values,
    }))
}
