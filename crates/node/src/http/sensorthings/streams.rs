//! Streams as datastreams: each field is one, and in the streams that this interface defines the field
//! `result` alone, beside which further fields keep the other properties of an observation.

use std::sync::Arc;

use chappe_format::units::{self, Vocabulary};
use chappe_sensorthings::{Entity, EntityType, Fault, encode_percent};
use chappe_stream::{
    Field, FieldType, Position, Quality, StreamElement, StreamSchema, Timestamp, Value,
};
use serde_json::{Map, Value as Json, json};

use super::documents::Document;
use crate::catalogue::Entry;

/// The field of a created datastream that has the results.
pub(super) const RESULT: &str = "result";
/// The fields that keep the other properties of observations, with their descriptions.
pub(super) const FURTHER: [(&str, &str); 6] = [
    ("result_time", "resultTime of the observation (RFC 3339)"),
    (
        "phenomenon_end",
        "end of its phenomenonTime, if it is a period (RFC 3339)",
    ),
    ("valid_time", "validTime of the observation"),
    (
        "result_quality",
        "resultQuality of the observation, as JSON",
    ),
    ("parameters", "parameters of the observation, as JSON"),
    ("feature_of_interest", "id of its FeatureOfInterest"),
];
/// The start of the definitions of units.
pub(super) const UCUM: &str = "http://www.opengis.net/def/uom/UCUM/0/";
/// The start of the types of observations.
const OM: &str = "http://www.opengis.net/def/observationType/OGC-OM/2.0/";

/// A field of a stream as a datastream.
#[derive(Clone)]
pub(super) struct Datastream {
    pub(super) id: String,
    pub(super) entry: Arc<Entry>,
    pub(super) field: Field,
    /// What a client created it with.
    pub(super) document: Option<Arc<Document>>,
    pub(super) thing: String,
    pub(super) sensor: String,
    pub(super) property: String,
}

/// The id of the datastream of a field.
pub(super) fn datastream_id(stream: &str, field: &str) -> String {
    format!("{stream}:{field}")
}

/// The stream and the field of a datastream's id.
pub(super) fn parse_datastream_id(id: &str) -> Option<(&str, &str)> {
    id.split_once(':')
}

/// Stream, field and position of an observation's id.
pub(super) fn parse_observation_id(id: &str) -> Option<(&str, &str, Position)> {
    let (stream, rest) = id.split_once(':')?;
    let (field, position) = rest.split_once(':')?;
    Some((stream, field, position.parse().ok()?))
}

/// The type of observations whose results have a type.
pub(super) fn observation_type(field_type: FieldType) -> String {
    let name = match field_type {
        FieldType::Boolean => "OM_TruthObservation",
        FieldType::Integer => "OM_CountObservation",
        FieldType::Double => "OM_Measurement",
        FieldType::Text | FieldType::Bytes | FieldType::Samples => "OM_Observation",
    };
    format!("{OM}{name}")
}

/// The type of the results of a type of observations.
///
/// # Errors
/// The standard has no such type.
pub(super) fn result_type(observation_type: &str) -> Result<FieldType, Fault> {
    match observation_type.strip_prefix(OM).unwrap_or_default() {
        "OM_TruthObservation" => Ok(FieldType::Boolean),
        "OM_CountObservation" => Ok(FieldType::Integer),
        "OM_Measurement" => Ok(FieldType::Double),
        // The latter as JSON, because its results have any type.
        "OM_CategoryObservation" | "OM_Observation" => Ok(FieldType::Text),
        _ => Err(Fault::Invalid(format!(
            "Datastream: observationType must be {OM} and OM_Measurement, OM_CountObservation, \
             OM_TruthObservation, OM_CategoryObservation or OM_Observation"
        ))),
    }
}

/// The unit of a field as the standard has it.
pub(super) fn unit_of_measurement(unit: Option<&str>) -> Json {
    let Some(code) = unit else {
        return json!({"name": null, "symbol": null, "definition": null});
    };
    json!({
        "name": units::name(code).unwrap_or(code),
        "symbol": units::from_ucum(Vocabulary::SensorThings, code).unwrap_or(code),
        "definition": format!("{UCUM}{}", encode_percent(code)),
    })
}

/// The UCUM code of a `unitOfMeasurement`, if it has one.
pub(super) fn unit_code(unit: &Json) -> Option<String> {
    let member = |name: &str| unit.get(name).and_then(Json::as_str);
    let defined = member("definition").and_then(|text| {
        let code = text
            .strip_prefix(UCUM)
            .or_else(|| text.strip_prefix("ucum:"))?;
        chappe_sensorthings::decode_percent(code, false).ok()
    });
    let defined = defined.filter(|code| chappe_stream::ucum::Unit::parse(code).is_ok());
    defined
        .or_else(|| units::to_ucum(Vocabulary::SensorThings, member("symbol")?))
        .or_else(|| units::to_ucum(Vocabulary::SensorThings, member("name")?))
}

impl Datastream {
    /// The entity.
    pub(super) fn entity(&self) -> Entity {
        let field = &self.field;
        let mut properties = match &self.document {
            Some(document) => document.properties.clone(),
            None => Map::new(),
        };
        let stream = self.entry.current_name();
        let mut set = |name: &str, value: Json| {
            properties.entry(name).or_insert(value);
        };
        set("name", json!(format!("{stream} {}", field.name)));
        let description = field.description.clone();
        let description = description
            .unwrap_or_else(|| format!("the field {} of the stream {stream}", field.name));
        set("description", json!(description));
        set("observationType", json!(observation_type(field.field_type)));
        set(
            "unitOfMeasurement",
            unit_of_measurement(field.unit.as_deref()),
        );
        // From the index, which includes all times and is close to them.
        if let Some((first, last)) = self.entry.log.log().times() {
            let period = format!("{}/{}", Timestamp(first), Timestamp(last));
            set("phenomenonTime", json!(period));
            if self.document.is_none() {
                set("resultTime", json!(period));
            }
        }
        let level = self.entry.log.log().level().as_str();
        set("properties", json!({}));
        if let Some(Json::Object(own)) = properties.get_mut("properties") {
            own.entry("chappe:stream").or_insert(json!(stream));
            own.entry("chappe:level").or_insert(json!(level));
        }
        Entity {
            kind: EntityType::Datastream,
            id: self.id.clone(),
            properties,
        }
    }

    /// Whether its results may have any type, and are kept as JSON.
    fn has_any_result(&self) -> bool {
        let kind = self
            .document
            .as_ref()
            .and_then(|document| document.properties.get("observationType")?.as_str());
        kind.is_some_and(|kind| kind.ends_with("OM_Observation"))
    }

    /// The place of its field in a schema.
    pub(super) fn place(&self, schema: &StreamSchema) -> Option<usize> {
        let mut fields = schema.fields.iter();
        fields.position(|field| field.name == self.field.name)
    }

    /// The id of the feature that an element names.
    pub(super) fn feature(&self, schema: &StreamSchema, element: &StreamElement) -> Option<String> {
        self.document.as_ref()?;
        text_of(schema, element, "feature_of_interest").map(str::to_owned)
    }

    /// The id of an element as an observation.
    pub(super) fn observation_id(&self, position: Position) -> String {
        format!("{}:{position}", self.id)
    }

    /// An element as an observation.
    pub(super) fn observation(&self, schema: &StreamSchema, element: &StreamElement) -> Entity {
        let mut properties = Map::new();
        let value = self.place(schema).and_then(|at| element.values.get(at));
        let time = element.source_time.to_string();
        let mut end = None;
        let result = match value {
            None | Some(Value::Null) => Json::Null,
            Some(Value::Text(text)) if self.has_any_result() => {
                serde_json::from_str(text).unwrap_or_else(|_| json!(text))
            }
            Some(Value::Samples(samples)) => {
                let length = samples
                    .period_ns
                    .saturating_mul(samples.values.len() as u64);
                let length = i64::try_from(length).unwrap_or(i64::MAX);
                let last = Timestamp(samples.start.0.saturating_add(length));
                end = Some(last.to_string());
                json!(samples.values)
            }
            Some(value) => json!(chappe_stream::view::ValueView(value)),
        };
        let further = |name| match &self.document {
            Some(_) => text_of(schema, element, name),
            None => None,
        };
        if let Some(text) = further("phenomenon_end") {
            end = Some(text.to_owned());
        }
        let phenomenon_time = match end {
            Some(end) => format!("{time}/{end}"),
            None => time.clone(),
        };
        properties.insert("phenomenonTime".to_owned(), json!(phenomenon_time));
        properties.insert("result".to_owned(), result);
        let result_time = match &self.document {
            Some(_) => json!(further("result_time")),
            // The source stamps its values when it has them.
            None => json!(time),
        };
        properties.insert("resultTime".to_owned(), result_time);
        for (name, kept) in [
            ("resultQuality", further("result_quality")),
            ("parameters", further("parameters")),
        ] {
            if let Some(json) = kept.and_then(|text| serde_json::from_str(text).ok()) {
                properties.insert(name.to_owned(), json);
            }
        }
        if let Some(time) = further("valid_time") {
            properties.insert("validTime".to_owned(), json!(time));
        }
        if element.quality != Quality::Good {
            let quality = match element.quality {
                Quality::Questionable => "questionable",
                _ => "bad",
            };
            properties.entry("resultQuality").or_insert(json!(quality));
        }
        if let Some(key) = &element.key {
            properties
                .entry("parameters")
                .or_insert(json!({ "key": key }));
        }
        Entity {
            kind: EntityType::Observation,
            id: self.observation_id(element.position),
            properties,
        }
    }
}

fn text_of<'a>(schema: &StreamSchema, element: &'a StreamElement, name: &str) -> Option<&'a str> {
    let at = schema.fields.iter().position(|field| field.name == name)?;
    match element.values.get(at)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The value of a result in a field.
///
/// # Errors
/// The result has another type.
pub(super) fn value_of_result(datastream: &Datastream, result: &Json) -> Result<Value, Fault> {
    let field_type = datastream.field.field_type;
    let wrong = || {
        Fault::Invalid(format!(
            "Observation: the results of this datastream are of the type {}, not {}",
            field_type.name(),
            result.to_string().chars().take(80).collect::<String>()
        ))
    };
    Ok(match (field_type, result) {
        (_, Json::Null) => Value::Null,
        (FieldType::Text, any) if datastream.has_any_result() => Value::Text(any.to_string()),
        (FieldType::Boolean, Json::Bool(value)) => Value::Boolean(*value),
        (FieldType::Integer, Json::Number(number)) => {
            Value::Integer(number.as_i64().ok_or_else(wrong)?)
        }
        (FieldType::Double, Json::Number(number)) => {
            Value::Double(number.as_f64().ok_or_else(wrong)?)
        }
        (FieldType::Text, Json::String(text)) => Value::Text(text.clone()),
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_definition_symbol_or_name() {
        for (unit, code) in [
            (json!({"definition": format!("{UCUM}Cel")}), Some("Cel")),
            (json!({"definition": "ucum:mmol%2FL"}), Some("mmol/L")),
            (
                json!({"symbol": "°C", "definition": "http://qudt.example/DEG"}),
                Some("Cel"),
            ),
            (json!({"symbol": "things per hour"}), None),
        ] {
            assert_eq!(unit_code(&unit).as_deref(), code, "{unit}");
        }
        assert_eq!(
            unit_code(&unit_of_measurement(Some("mmol/L"))).as_deref(),
            Some("mmol/L")
        );
    }

    #[test]
    fn ids_have_parts() {
        let id = "lab.room:temperature:0000000000000abc:17";
        let (stream, field, position) = parse_observation_id(id).unwrap();
        assert_eq!(
            (stream, field, position.sequence),
            ("lab.room", "temperature", 17)
        );
        assert_eq!(parse_datastream_id("lab.room:t"), Some(("lab.room", "t")));
        for id in ["", "a", "a:b", "a:b:c", "a:b:0:x"] {
            assert!(parse_observation_id(id).is_none(), "{id}");
        }
    }
}
