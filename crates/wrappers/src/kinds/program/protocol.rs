//! The lines that a program and the node exchange: one JSON object a line (docs/reference/programs.md).

use std::borrow::Cow;

use chappe_log::Level;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use chappe_stream::view::ElementView;
use chappe_stream::{Field, FieldType, StreamSchema};

use crate::{Batch, MARK_BYTES_MAX, Mark, StreamDefinition};

/// Longest line in bytes; reason: it is held whole, and the longest element that the log takes is as
/// long.
pub(super) const LINE_BYTES_MAX: usize = chappe_stream::lines::LINE_BYTES_MAX;

/// Longest state of a processor in bytes; reason: each batch stores it twice.
const STATE_BYTES_MAX: usize = 64 << 10;

/// A line of the program.
#[derive(Debug, PartialEq)]
pub enum Message<'l> {
    /// It defines a stream.
    Stream(Box<StreamMessage>),
    /// An element of a stream, as JSON text; without a name, of the only one.
    Element {
        /// The stream.
        stream: Option<Cow<'l, str>>,
        /// A JSON object whose members are the fields, `source_time`, `key` and `quality`.
        element: &'l str,
        /// How far the program has read its source, this element included.
        mark: Option<Mark>,
    },
    /// How far the program has read its source: everything before this line.
    Mark(Mark),
    /// Elements up to this mark of the node are stored, or processed.
    Stored {
        /// The mark.
        mark: u64,
        /// What a processor is to continue with after a restart.
        state: Option<Mark>,
    },
    /// An element will never be accepted.
    Refused(Refusal),
    /// What hinders the program; `None` once nothing does.
    Trouble(Option<String>),
    /// The answer to a command.
    Answer(Answer),
    /// It is ready, and has the elements up to these positions already.
    Ready(Vec<Reached>),
}

/// A stream that a program defines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamMessage {
    pub(super) name: String,
    /// What the key of an element identifies, if elements have a key.
    subject: Option<String>,
    description: Option<String>,
    fields: Vec<FieldMessage>,
}

/// A field of such a stream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldMessage {
    name: String,
    #[serde(rename = "type")]
    field_type: FieldType,
    unit: Option<String>,
    observed_property: Option<String>,
    description: Option<String>,
}

impl StreamMessage {
    /// The definition of the stream.
    pub(super) fn definition(&self, level: Option<Level>) -> StreamDefinition {
        let fields = self.fields.iter().map(|field| Field {
            name: field.name.clone(),
            field_type: field.field_type,
            unit: field.unit.clone(),
            observed_property: field.observed_property.clone(),
            description: field.description.clone(),
        });
        StreamDefinition {
            schema: StreamSchema {
                fields: fields.collect(),
                key: self.subject.clone(),
            },
            level,
            description: self.description.clone(),
        }
    }
}

/// An element that a program refuses for good.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    pub(super) stream: String,
    /// `EPOCH:NUMBER`.
    pub(super) position: String,
    pub(super) reason: String,
}

/// The newest element of a stream that a program has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    pub(super) stream: String,
    /// `EPOCH:NUMBER`.
    pub(super) position: String,
}

/// The answer to a command: a result or an error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) result: Json,
    pub(super) error: Option<String>,
}

impl<'l> Message<'l> {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &'l str) -> Result<Self, String> {
        let members = members(line)?;
        let [mut stream, mut element, mut mark, mut stored, mut state] = [None; 5];
        for (name, value) in &members {
            let slot = match &**name {
                "stream" => &mut stream,
                "element" => &mut element,
                "mark" => &mut mark,
                "stored" => &mut stored,
                "state" => &mut state,
                _ if members.len() == 1 => return Self::single(name, value),
                other => return Err(format!("unexpected member {other:?}")),
            };
            if slot.replace(*value).is_some() {
                return Err(format!("{name:?} occurs twice"));
            }
        }
        let mark = mark.map(read_mark).transpose()?;
        match (stream, element, mark, stored, state) {
            (stream, Some(element), mark, None, None) => Ok(Self::Element {
                stream: stream.map(|name| parse(name, "stream")).transpose()?,
                element,
                mark,
            }),
            (Some(stream), None, None, None, None) => Ok(Self::Stream(parse(stream, "stream")?)),
            (None, None, Some(mark), None, None) => Ok(Self::Mark(mark)),
            (None, None, None, Some(stored), state) => Ok(Self::Stored {
                mark: parse(stored, "stored")?,
                state: state.map(read_state).transpose()?,
            }),
            _ => Err("a line has one message: stream, element, mark, stored, refused, trouble, answer or ready".to_owned()),
        }
    }

    fn single(name: &str, value: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Ready {
            #[serde(default)]
            reached: Vec<Reached>,
        }
        Ok(match name {
            "refused" => Self::Refused(parse(value, name)?),
            "trouble" => Self::Trouble(parse(value, name)?),
            "answer" => Self::Answer(parse(value, name)?),
            "ready" => Self::Ready(parse::<Ready>(value, name)?.reached),
            other => return Err(format!("unknown message {other:?}")),
        })
    }
}

fn parse<'l, T: Deserialize<'l>>(value: &'l str, name: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| format!("{name:?}: {error}"))
}

fn read_mark(value: &str) -> Result<Mark, String> {
    // A mark comes back as it was sent.
    Mark::new(value.as_bytes().to_vec())
        .map_err(|error| format!("\"mark\": {error} (limit {MARK_BYTES_MAX})"))
}

fn read_state(value: &str) -> Result<Mark, String> {
    match value.len() {
        0..=STATE_BYTES_MAX => Ok(Mark::long(value.as_bytes().to_vec())),
        bytes => Err(format!(
            "\"state\": it has {bytes} bytes; the limit is {STATE_BYTES_MAX}"
        )),
    }
}

/// The members of a JSON object with the text of their values.
fn members(line: &str) -> Result<Vec<(Cow<'_, str>, &str)>, String> {
    let wrong = |what: &str| format!("not a JSON object: {what}");
    let mut rest = line.trim().strip_prefix('{').ok_or_else(|| wrong("no {"))?;
    let mut members = Vec::new();
    loop {
        rest = rest.trim_start();
        if members.is_empty() && rest == "}" {
            return Ok(members);
        }
        let (name, after) = match plain_name(rest) {
            Some((name, after)) => (Cow::Borrowed(name), after),
            None => {
                let (name, after) = first::<String>(rest).map_err(|error| wrong(&error))?;
                (
                    Cow::Owned(name.ok_or_else(|| wrong("it ends early"))?),
                    after,
                )
            }
        };
        let value = after.trim_start().strip_prefix(':');
        let value = value
            .ok_or_else(|| wrong("a colon is missing"))?
            .trim_start();
        let (found, after) = first::<IgnoredAny>(value).map_err(|error| wrong(&error))?;
        found.ok_or_else(|| wrong("it ends early"))?;
        members.push((name, &value[..value.len() - after.len()]));
        if members.len() > 3 {
            return Err("a message has at most three members".to_owned());
        }
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest == "}" => return Ok(members),
            None => return Err(wrong("} is missing, or text follows it")),
        }
    }
}

/// The JSON string at the start of a text, if it has only letters, and the text after it.
fn plain_name(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix('"')?.split_once('"')?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_plain.then_some((name, after))
}

/// The first JSON value of a text, and the text after it.
fn first<'l, T: Deserialize<'l>>(text: &'l str) -> Result<(Option<T>, &'l str), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<T>();
    let value = values
        .next()
        .transpose()
        .map_err(|error| error.to_string())?;
    let end = values.byte_offset();
    Ok((value, &text[end..]))
}

/// The elements of a batch as lines.
pub(super) fn element_lines(batch: &Batch) -> Vec<u8> {
    #[derive(Serialize)]
    struct Message<'a> {
        element: ElementView<'a>,
    }
    let mut lines = Vec::new();
    for part in &batch.parts {
        for element in &part.elements {
            let element = ElementView {
                stream: Some(&part.stream),
                element,
                schema: &part.definition.schema,
            };
            // Plain data always encodes.
            let _ = serde_json::to_writer(&mut lines, &Message { element });
            lines.push(b'\n');
        }
    }
    lines
}

/// A message of the node as a line.
pub(super) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A mark as the JSON value that the program sent.
pub(super) fn mark_value(mark: &Mark) -> Json {
    serde_json::from_slice(mark.bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(text: &str) -> Mark {
        Mark::new(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn each_message_is_read() {
        let element = |stream: Option<&'static str>, mark| Message::Element {
            stream: stream.map(Into::into),
            element: "{\"celsius\": 21.5}",
            mark,
        };
        let cases = [
            (r#"{"element": {"celsius": 21.5}}"#, element(None, None)),
            (
                r#" {"stream":"a.b", "element": {"celsius": 21.5}, "mark" : 7 } "#,
                element(Some("a.b"), Some(mark("7"))),
            ),
            (
                r#"{"mark":{"file":"a","offset":1}}"#,
                Message::Mark(mark(r#"{"file":"a","offset":1}"#)),
            ),
            (
                r#"{"stored":12}"#,
                Message::Stored {
                    mark: 12,
                    state: None,
                },
            ),
            (
                r#"{"stored":12, "state": {"sum": 3} }"#,
                Message::Stored {
                    mark: 12,
                    state: Some(mark(r#"{"sum": 3}"#)),
                },
            ),
            (r#"{"trouble":null}"#, Message::Trouble(None)),
            (
                r#"{"trouble":"no port"}"#,
                Message::Trouble(Some("no port".to_owned())),
            ),
            (
                r#"{"answer":{"id":3,"error":"busy"}}"#,
                Message::Answer(Answer {
                    id: 3,
                    result: Json::Null,
                    error: Some("busy".to_owned()),
                }),
            ),
            (r#"{"ready":{}}"#, Message::Ready(Vec::new())),
        ];
        for (line, message) in cases {
            assert_eq!(Message::read(line), Ok(message), "{line}");
        }
        let line = r#"{"stream":{"name":"a","fields":[{"name":"n","type":"integer"}]}}"#;
        assert!(matches!(Message::read(line), Ok(Message::Stream(table)) if table.name == "a"));
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        let long = format!("{{\"mark\":\"{}\"}}", "x".repeat(MARK_BYTES_MAX));
        let state = format!(
            "{{\"stored\":1,\"state\":\"{}\"}}",
            "x".repeat(STATE_BYTES_MAX)
        );
        let deep = format!("{{\"element\":{}", "[".repeat(100_000));
        let cases = [
            ("", "no {"),
            ("21.5", "no {"),
            ("{}", "one message"),
            ("{\"element\":", "ends early"),
            ("{\"element\":{}} x", "text follows"),
            ("{\"elment\":{}}", "unknown message \"elment\""),
            ("{\"element\":{},\"element\":{}}", "twice"),
            ("{\"element\":{},\"trouble\":null}", "unexpected member"),
            ("{\"mark\":1,\"stream\":\"a\"}", "one message"),
            ("{\"stored\":-1}", "\"stored\""),
            ("{\"state\":1}", "one message"),
            ("{\"stored\":1,\"mark\":1}", "one message"),
            (&*state, "65536"),
            (&*long, "1024"),
            (&*deep, "EOF"),
        ];
        for (line, reason) in cases {
            let error = Message::read(line).unwrap_err();
            assert!(error.contains(reason), "{line:.60}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in ".{0,200}") {
            let _ = Message::read(&line);
        }

        #[test]
        fn members_are_those_of_the_object(names in proptest::collection::vec("[a-z\"\\\\é]{0,6}", 0..=3)) {
            let values = ["1 ", "[{\"a\": \"}\"}]", "\"\\\"\""];
            let text: Vec<String> = names.iter().zip(values)
                .map(|(name, value)| format!("{}:{value}", serde_json::to_string(name).unwrap()))
                .collect();
            let text = format!("{{{}}}", text.join(" , "));
            let read = members(&text).unwrap();
            let names = names.into_iter().map(Cow::<str>::Owned);
            let expected: Vec<(Cow<'_, str>, &str)> = names.zip(values.map(str::trim)).collect();
            prop_assert_eq!(read, expected);
        }
    }
}
