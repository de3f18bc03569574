//! Reads what a server answers.

use std::vec::IntoIter;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_stream::Timestamp;
use serde::Deserialize;
use serde_json::Value as Json;

use super::TIMESTAMP;
use crate::descriptor::ucum;
use crate::exchange::content;
use crate::kryo::{DataField, DataType, GsnElement, GsnValue};

/// Bytes of a row that are kept if it cannot be read.
const KEPT_BYTES: usize = 64 << 10;

/// A document that is not one of the interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestError {
    /// It is not JSON, or lacks a member.
    #[error("the document is malformed: {0}")]
    Malformed(String),
    /// A field has a type that GSN does not have.
    #[error("field {field:?} is of type {found:?}, which is not one of GSN")]
    Type {
        /// The field.
        field: String,
        /// Its type.
        found: String,
    },
    /// The answer has values and no field with their time.
    #[error("no field {TIMESTAMP:?} has the time of the values")]
    NoTime,
}

#[derive(Deserialize)]
struct TokenDocument {
    access_token: String,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct Feature {
    properties: Properties,
}

#[derive(Deserialize)]
struct Properties {
    #[serde(default)]
    fields: Vec<FieldDocument>,
    #[serde(default)]
    values: Vec<Vec<Json>>,
}

#[derive(Deserialize)]
struct FieldDocument {
    name: String,
    #[serde(rename = "type")]
    field_type: Option<String>,
    unit: Option<String>,
}

/// Reads an access token, and the seconds for which it is valid, if the server says so.
///
/// # Errors
/// The document has none.
pub fn read_token(document: &[u8]) -> Result<(String, Option<u64>), RestError> {
    let token: TokenDocument = serde_json::from_slice(document).map_err(malformed)?;
    Ok((token.access_token, token.expires_in))
}

// An error of serde shows no values, which may be secret.
fn malformed(error: serde_json::Error) -> RestError {
    let what = match error.classify() {
        serde_json::error::Category::Data => "a member is missing or of another type",
        _ => "it is not JSON",
    };
    let (line, column) = (error.line(), error.column());
    RestError::Malformed(format!("{what} (line {line}, column {column})"))
}

/// The structure of a sensor and some of its elements, which are converted one by one.
#[derive(Debug)]
pub struct Answer {
    /// The fields, without that of the time.
    pub fields: Vec<DataField>,
    /// The place of each field in a row.
    places: Vec<usize>,
    time: usize,
    rows: IntoIter<Vec<Json>>,
    names: Vec<String>,
}

/// A row of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its time in milliseconds since 1970, if it is readable.
    pub timed_ms: Option<i64>,
    /// A number made from its content.
    pub content: u64,
    /// The row as JSON, or its beginning.
    pub text: String,
    /// The element, or why it is none.
    pub element: Result<GsnElement, String>,
}

/// Reads the answer to a call for a sensor or its data.
///
/// # Errors
/// It is malformed, or a field is of no type of GSN.
pub fn read_answer(document: &[u8]) -> Result<Answer, RestError> {
    let feature: Feature = serde_json::from_slice(document).map_err(malformed)?;
    let Properties { fields, values } = feature.properties;
    let named = |name: &str| {
        let mut fields = fields.iter();
        fields.position(|field| field.name.eq_ignore_ascii_case(name))
    };
    let time = named(TIMESTAMP).or_else(|| named("timed"));
    if time.is_none() && !values.is_empty() {
        return Err(RestError::NoTime);
    }
    let (mut known, mut places) = (Vec::new(), Vec::new());
    for (place, field) in fields.into_iter().enumerate() {
        let declared = field.field_type.unwrap_or_else(|| "double".to_owned());
        match data_type(&declared) {
            // The time of the element, which GSN may repeat in another form.
            Some(DataType::Time) => {}
            _ if Some(place) == time => {}
            Some(data_type) => {
                places.push(place);
                known.push(DataField {
                    data_type,
                    declared,
                    unit: field.unit.as_deref().and_then(ucum).unwrap_or_default(),
                    description: String::new(),
                    name: field.name,
                });
            }
            None => {
                let (field, found) = (field.name, declared);
                return Err(RestError::Type { field, found });
            }
        }
    }
    Ok(Answer {
        names: known.iter().map(|field| field.name.clone()).collect(),
        fields: known,
        places,
        time: time.unwrap_or(0),
        rows: values.into_iter(),
    })
}

impl Iterator for Answer {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let row = self.rows.next()?;
        let mut text = serde_json::to_string(&row).unwrap_or_default();
        let content = content(text.as_bytes());
        let timed_ms = row.get(self.time).and_then(milliseconds);
        let element = match timed_ms {
            Some(timed_ms) => self.element(timed_ms, &row),
            None => Err("it has no readable time".to_owned()),
        };
        if text.len() > KEPT_BYTES {
            let end = (0..=KEPT_BYTES)
                .rev()
                .find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
        }
        Some(Row {
            timed_ms,
            content,
            text,
            element,
        })
    }
}

impl Answer {
    fn element(&self, timed_ms: i64, row: &[Json]) -> Result<GsnElement, String> {
        let mut values = Vec::with_capacity(self.fields.len());
        for (field, place) in self.fields.iter().zip(&self.places) {
            let name = &field.name;
            let absent = || format!("it has no value for field {name:?}");
            let value = row.get(*place).ok_or_else(absent)?;
            let misfit = || {
                format!(
                    "the value of field {name:?} is not of type {}",
                    field.declared
                )
            };
            values.push(self::value(field.data_type, value).ok_or_else(misfit)?);
        }
        Ok(GsnElement {
            timed_ms,
            is_timed: true,
            names: self.names.clone(),
            types: self.fields.iter().map(|field| field.data_type).collect(),
            values,
        })
    }
}

/// A time in milliseconds since 1970, or as text with a time zone.
fn milliseconds(value: &Json) -> Option<i64> {
    match value {
        Json::Number(_) => integer(value),
        Json::String(text) => {
            let time = Timestamp::parse(text)?;
            Some(time.0.div_euclid(1_000_000))
        }
        _ => None,
    }
}

fn data_type(declared: &str) -> Option<DataType> {
    let base = declared.split(['(', ':']).next().unwrap_or_default();
    Some(match base.trim().to_ascii_lowercase().as_str() {
        "varchar" | "string" => DataType::Varchar,
        "char" => DataType::Char,
        "int" | "integer" => DataType::Integer,
        "bigint" => DataType::Bigint,
        "binary" | "blob" => DataType::Binary,
        "double" | "numeric" => DataType::Double,
        "time" => DataType::Time,
        "tinyint" => DataType::Tinyint,
        "smallint" => DataType::Smallint,
        "float" => DataType::Float,
        _ => return None,
    })
}

/// A whole number, which some servers write with a fraction of zero.
fn integer(value: &Json) -> Option<i64> {
    let whole = |double: &f64| double.fract() == 0.0 && double.abs() < 2_f64.powi(63);
    value
        .as_i64()
        .or_else(|| value.as_f64().filter(whole).map(|double| double as i64))
}

fn value(data_type: DataType, value: &Json) -> Option<GsnValue> {
    Some(match (data_type, value) {
        (_, Json::Null) => GsnValue::Null,
        (DataType::Varchar | DataType::Char, Json::String(text)) => GsnValue::Text(text.clone()),
        (DataType::Varchar | DataType::Char, Json::Number(_) | Json::Bool(_)) => {
            GsnValue::Text(value.to_string())
        }
        (DataType::Double | DataType::Float, Json::Number(number)) => {
            GsnValue::Double(number.as_f64()?)
        }
        (DataType::Double | DataType::Float, Json::String(text)) => {
            GsnValue::Double(text.parse().ok()?)
        }
        (
            DataType::Integer | DataType::Bigint | DataType::Tinyint | DataType::Smallint,
            Json::Number(_),
        ) => GsnValue::Long(integer(value)?),
        (
            DataType::Integer | DataType::Bigint | DataType::Tinyint | DataType::Smallint,
            Json::Bool(value),
        ) => GsnValue::Long(i64::from(*value)),
        (DataType::Binary, Json::String(text)) => GsnValue::Bytes(STANDARD.decode(text).ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATA: &str = r#"{"type":"Feature","geometry":null,"properties":{"vs_name":"station7",
        "values":[[1700000000000,1.5,9007199254740993,"größe",null],
                  ["2023-11-14T22:13:20.001Z",2,3.0,null,"aGFsbG8="],
                  [1700000000002,"x",1,null,null],[null,1,1,null,null],[1700000000003]],
        "fields":[{"name":"timestamp","type":"time","unit":"ms"},{"name":"level","type":"double","unit":"degree Celsius"},
                  {"name":"number","type":"bigint","unit":""},{"name":"note","type":"varchar(64)"},
                  {"name":"raw","type":"binary:image/jpeg","unit":null}]}}"#;

    #[test]
    fn rows_become_elements_with_exact_values() {
        let mut answer = read_answer(DATA.as_bytes()).unwrap();
        assert_eq!(answer.fields[0].unit, "Cel");
        let first = answer.next().unwrap();
        let element = first.element.unwrap();
        assert_eq!(first.timed_ms, Some(1_700_000_000_000));
        assert_eq!(element.names, ["level", "number", "note", "raw"]);
        assert_eq!(
            element.values,
            [
                GsnValue::Double(1.5),
                GsnValue::Long(9_007_199_254_740_993),
                GsnValue::Text("größe".to_owned()),
                GsnValue::Null
            ]
        );
        let second = answer.next().unwrap();
        assert_eq!(second.timed_ms, Some(1_700_000_000_001));
        let values = second.element.unwrap().values;
        assert_eq!(values[1], GsnValue::Long(3));
        assert_eq!(values[3], GsnValue::Bytes(b"hallo".to_vec()));
    }

    #[test]
    fn a_row_that_cannot_be_read_spoils_no_other() {
        let rows: Vec<Row> = read_answer(DATA.as_bytes()).unwrap().skip(2).collect();
        let reasons: Vec<_> = rows
            .iter()
            .map(|row| row.element.clone().unwrap_err())
            .collect();
        assert_eq!(
            reasons,
            [
                "the value of field \"level\" is not of type double",
                "it has no readable time",
                "it has no value for field \"level\""
            ]
        );
        assert_eq!(rows[0].timed_ms, Some(1_700_000_000_002));
    }

    #[test]
    fn documents_of_another_kind_are_refused() {
        assert!(matches!(
            read_answer(b"<html>"),
            Err(RestError::Malformed(_))
        ));
        let untimed = r#"{"properties":{"fields":[{"name":"a","type":"int"}],"values":[[1]]}}"#;
        assert_eq!(
            read_answer(untimed.as_bytes()).unwrap_err(),
            RestError::NoTime
        );
        let other = r#"{"properties":{"fields":[{"name":"a","type":"clob"}]}}"#;
        assert!(matches!(
            read_answer(other.as_bytes()),
            Err(RestError::Type { .. })
        ));
        let token = br#"{"access_token":"abc","token_type":"Bearer","expires_in":15}"#;
        assert_eq!(read_token(token), Ok(("abc".to_owned(), Some(15))));
        assert!(read_token(br#"{"error":"invalid_client"}"#).is_err());
    }

    proptest! {
        #[test]
        fn no_document_is_a_panic(text in ".{0,200}") {
            let _ = read_token(text.as_bytes());
            let _ = read_answer(text.as_bytes()).map(Iterator::count);
            let nested = format!("{{\"properties\":{{\"fields\":[],\"values\":[[{text}]]}}}}");
            let _ = read_answer(nested.as_bytes()).map(Iterator::count);
        }
    }
}
