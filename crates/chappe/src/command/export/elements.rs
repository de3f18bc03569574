//! The elements of a stream, by one request after another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_stream::{
    Field, FieldType, Position, Quality, Samples, StreamElement, StreamSchema, Timestamp, Value,
};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::command::node_client::{Lines, NodeClient};
use crate::command::query::percent;
use crate::output::Failure;

/// Elements that are returned at once, at most.
const ELEMENTS: usize = 4_096;
/// Where a range begins that has no start; reason: a range passes over gaps, and this is the first time that a node
/// takes.
const FIRST_TIME: &str = "1678-01-01T00:00:00Z";
/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// The schema of a stream, as the node describes it.
pub(in crate::command) fn schema(stream: &Json) -> Result<StreamSchema, Failure> {
    Ok(StreamSchema {
        fields: Vec::<Field>::deserialize(&stream["fields"])?,
        key: stream["key"].as_str().map(str::to_owned),
    })
}

/// An element as the node writes it, or the end of an answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Element(ElementLine),
    End(EndLine),
}

#[derive(Deserialize)]
struct ElementLine {
    epoch: String,
    number: u64,
    source_time: String,
    receive_time: String,
    key: Option<String>,
    quality: Quality,
    values: Map<String, Json>,
}

#[derive(Deserialize)]
struct EndLine {
    truncated: bool,
    next_after: Option<String>,
    damaged: u64,
}

/// Reads the elements of a stream up to a number.
pub(in crate::command) struct Elements<'a> {
    node: &'a NodeClient,
    /// The path of the elements with the range of time.
    path: String,
    /// The number of the last element to read.
    last_number: u64,
    schema: &'a StreamSchema,
    /// The answer that is being read.
    lines: Option<Lines>,
    /// Where the next answer begins; `None` at the end.
    after: Option<String>,
    first: Option<Position>,
    last: Option<Position>,
    count: u64,
    damaged: u64,
}

impl<'a> Elements<'a> {
    pub(in crate::command) fn new(
        node: &'a NodeClient,
        stream: &str,
        (from, to): (&Option<String>, &Option<String>),
        last_number: u64,
        schema: &'a StreamSchema,
    ) -> Self {
        let from = percent(from.as_deref().unwrap_or(FIRST_TIME));
        let to = to.as_deref().map(|to| format!("&to={}", percent(to)));
        let to = to.unwrap_or_default();
        Self {
            node,
            path: format!("{stream}/elements?from={from}{to}"),
            last_number,
            schema,
            lines: None,
            after: Some("0:0".to_owned()),
            first: None,
            last: None,
            count: 0,
            damaged: 0,
        }
    }

    pub(in crate::command) fn count(&self) -> u64 {
        self.count
    }

    pub(in crate::command) fn damaged(&self) -> u64 {
        self.damaged
    }

    pub(in crate::command) fn first(&self) -> Option<Position> {
        self.first
    }

    pub(in crate::command) fn last(&self) -> Option<Position> {
        self.last
    }

    /// The next elements; `None` after the last.
    pub(in crate::command) async fn next(&mut self) -> Result<Option<Vec<StreamElement>>, Failure> {
        let mut found = Vec::new();
        while found.len() < ELEMENTS {
            let lines = match &mut self.lines {
                Some(lines) => lines,
                None => {
                    let Some(after) = &self.after else { break };
                    let path = format!("{}&after={}", self.path, percent(after));
                    self.lines.insert(self.node.lines(&path).await?)
                }
            };
            let Some(line) = lines.next().await? else {
                return Err(Failure::new("an answer of the node is incomplete")
                    .coded("answer_incomplete")
                    .hint("repeat the command; the node's log says why"));
            };
            match serde_json::from_str(&line)? {
                Line::End(end) => {
                    self.lines = None;
                    self.damaged += end.damaged;
                    self.after = end.next_after.filter(|_| end.truncated);
                }
                Line::Element(element) if element.number > self.last_number => {
                    (self.lines, self.after) = (None, None);
                }
                Line::Element(element) => {
                    let element = self.element(element)?;
                    self.count += 1;
                    self.first.get_or_insert(element.position);
                    self.last = Some(element.position);
                    found.push(element);
                }
            }
        }
        Ok((!found.is_empty()).then_some(found))
    }

    fn element(&self, line: ElementLine) -> Result<StreamElement, Failure> {
        let wrong = || {
            Failure::new("the node sent an element that cannot be read").coded("answer_incomplete")
        };
        let fields = &self.schema.fields;
        let is_known = |field: &Field| line.values.contains_key(&field.name);
        if line.values.len() != fields.len() || !fields.iter().all(is_known) {
            return Err(
                Failure::new("the fields of the stream changed while it was read")
                    .coded("schema_changed")
                    .hint("repeat the command"),
            );
        }
        let time = |text: &str| Timestamp::parse(text).ok_or_else(wrong);
        let position = format!("{}:{}", line.epoch, line.number).parse();
        let values = fields.iter().map(|field| {
            let json = &line.values[&field.name];
            value(json, field.field_type).ok_or_else(|| {
                let name = &field.name;
                Failure::new(format!(
                    "field {name:?} of element {} cannot be read",
                    line.number
                ))
                .coded("answer_incomplete")
            })
        });
        Ok(StreamElement {
            position: position.map_err(|_| wrong())?,
            source_time: time(&line.source_time)?,
            receive_time: time(&line.receive_time)?,
            values: values.collect::<Result<_, _>>()?,
            key: line.key,
            quality: line.quality,
            origin: None,
        })
    }
}

/// A value of a field.
pub(in crate::command) fn value(json: &Json, field_type: FieldType) -> Option<Value> {
    if json.is_null() {
        return Some(Value::Null);
    }
    Some(match field_type {
        FieldType::Boolean => Value::Boolean(json.as_bool()?),
        FieldType::Integer => Value::Integer(json.as_i64()?),
        FieldType::Double => Value::Double(number(json)?),
        FieldType::Text => Value::Text(json.as_str()?.to_owned()),
        FieldType::Bytes => Value::Bytes(STANDARD.decode(json.as_str()?).ok()?),
        FieldType::Samples => {
            let values = json["values"].as_array()?.iter().map(number);
            Value::Samples(Samples {
                start: Timestamp::parse(json["start"].as_str()?)?,
                period_ns: (json["period_s"].as_f64()? * SECOND_NS).round() as u64,
                values: values.collect::<Option<_>>()?,
            })
        }
    })
}

/// A number, which may not be finite.
fn number(json: &Json) -> Option<f64> {
    match json.as_str() {
        None => json.as_f64(),
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::view::{ElementView, ExactElementView};

    #[test]
    fn an_element_is_read_as_the_node_writes_it() {
        let types = [
            (FieldType::Boolean, Value::Boolean(true)),
            (FieldType::Integer, Value::Integer(i64::MIN)),
            (FieldType::Double, Value::Double(f64::NEG_INFINITY)),
            (FieldType::Text, Value::Text("NaN".to_owned())),
            (FieldType::Bytes, Value::Bytes(vec![0, 255])),
            (
                FieldType::Samples,
                Value::Samples(Samples {
                    start: Timestamp(5),
                    period_ns: 4_000_001,
                    values: vec![0.1, f64::INFINITY],
                }),
            ),
            (FieldType::Text, Value::Null),
        ];
        let fields = types.iter().enumerate().map(|(at, (field_type, _))| Field {
            name: format!("f{at}"),
            field_type: *field_type,
            unit: None,
            observed_property: None,
            description: None,
        });
        let schema = StreamSchema {
            fields: fields.collect(),
            key: None,
        };
        let element = StreamElement {
            position: "000000000000000a:7".parse().unwrap(),
            source_time: Timestamp(-1),
            receive_time: Timestamp(1),
            key: Some("k".to_owned()),
            values: types.iter().map(|(_, value)| value.clone()).collect(),
            quality: Quality::Bad,
            origin: None,
        };
        let view = ElementView {
            stream: None,
            element: &element,
            schema: &schema,
        };
        let text = serde_json::to_string(&ExactElementView(view)).unwrap();
        let address = crate::cli::NodeAddress::at("http://127.0.0.1:1");
        let node = NodeClient::new(&address).ok().unwrap();
        let elements = Elements::new(&node, "/s", (&None, &None), 9, &schema);
        let Ok(Line::Element(line)) = serde_json::from_str(&text) else {
            panic!("{text}");
        };
        assert_eq!(elements.element(line).ok(), Some(element));
        let end = r#"{"truncated":true,"next_after":"000000000000000a:7","damaged":0}"#;
        assert!(matches!(serde_json::from_str(end), Ok(Line::End(_))));
    }
}
