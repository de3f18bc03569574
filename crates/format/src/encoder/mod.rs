//! Elements as text, for exporters: JSON lines, CSV, InfluxDB's line protocol, SenML.
//!
//! JSON and CSV have the members and columns that clients write (`chappe_stream::lines`), so that an exported
//! stream can be written into another node as it is.

mod form;
mod senml;

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_stream::{Quality, StreamElement, StreamSchema, Value};
use schemars::JsonSchema;
use serde::Deserialize;

/// The format of exported elements. In configuration `"csv"`, or `{ csv = { delimiter = ";" } }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON object a line.
    Json,
    /// Rows, after a header.
    Csv(CsvEncoding),
    /// InfluxDB's line protocol: the stream is the measurement, the key a tag.
    LineProtocol,
    /// A SenML pack an element (RFC 8428).
    Senml,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CsvEncoding {
    /// The character between cells. Default: ",".
    pub delimiter: char,
    /// The decimal sign. Default: ".".
    pub decimal: char,
}

impl Default for CsvEncoding {
    fn default() -> Self {
        Self {
            delimiter: ',',
            decimal: '.',
        }
    }
}

/// An element that the encoding cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A type that the encoding does not have.
    #[error("field {field:?}: {encoding} has no samples")]
    Samples {
        /// The field.
        field: String,
        /// The encoding.
        encoding: &'static str,
    },
    /// The element has no value that the encoding can hold.
    #[error("the element has no value")]
    Empty,
    /// A text that the encoding cannot hold.
    #[error("{field}: {reason}")]
    Text {
        /// The field, or `key`.
        field: String,
        /// The reason.
        reason: &'static str,
    },
    /// The element does not fit the schema of the encoder.
    #[error("{0}")]
    Schema(#[from] chappe_stream::SchemaError),
}

/// Encodes the elements of one stream.
///
/// ```
/// use chappe_format::{Encoder, Encoding};
/// # use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};
/// # let field = |name: &str, field_type| Field { name: name.into(), field_type, unit: None,
/// #     observed_property: None, description: None };
/// let schema = StreamSchema { fields: vec![field("celsius", FieldType::Double)], key: None };
/// # let element = StreamElement { position: Default::default(), source_time: Timestamp(1_000_000_000),
/// #     receive_time: Timestamp(0), key: None, values: vec![Value::Double(21.5)],
/// #     quality: Default::default(), origin: None };
/// let encoder = Encoder::new(Encoding::LineProtocol, "lab.room", schema.into());
/// let mut text = String::new();
/// encoder.encode(&element, &mut text)?;
/// assert_eq!(text, "lab.room celsius=21.5 1000000000\n");
/// # Ok::<(), chappe_format::EncodeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Encoder {
    encoding: Encoding,
    stream: String,
    schema: Arc<StreamSchema>,
}

impl Encoder {
    /// An encoder of the stream with this name and schema.
    #[must_use]
    pub fn new(encoding: Encoding, stream: &str, schema: Arc<StreamSchema>) -> Self {
        Self {
            encoding,
            stream: stream.to_owned(),
            schema,
        }
    }

    /// The content type of HTTP.
    #[must_use]
    pub const fn content_type(&self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/x-ndjson",
            Encoding::Csv(_) => "text/csv",
            Encoding::LineProtocol => "text/plain; charset=utf-8",
            Encoding::Senml => "application/senml+json",
        }
    }

    /// The row before the first element; `None` if the encoding has none.
    #[must_use]
    pub fn header(&self) -> Option<String> {
        let Encoding::Csv(csv) = &self.encoding else {
            return None;
        };
        let mut names = vec!["source_time"];
        if self.schema.key.is_some() {
            names.push("key");
        }
        names.push("quality");
        names.extend(self.schema.fields.iter().map(|field| field.name.as_str()));
        Some(names.join(&csv.delimiter.to_string()) + "\n")
    }

    /// Appends an element to `text`.
    ///
    /// # Errors
    /// The encoding cannot hold it; `text` is as before.
    pub fn encode(&self, element: &StreamElement, text: &mut String) -> Result<(), EncodeError> {
        self.schema.check(element)?;
        let before = text.len();
        let encoded = match &self.encoding {
            Encoding::Json => self.json(element, text),
            Encoding::Csv(csv) => self.csv(csv, element, text),
            Encoding::LineProtocol => self.line_protocol(element, text),
            Encoding::Senml => senml::pack(&self.stream, &self.schema, element, text),
        };
        if encoded.is_err() {
            text.truncate(before);
        }
        encoded
    }

    fn json(&self, element: &StreamElement, text: &mut String) -> Result<(), EncodeError> {
        let _ = write!(text, "{{\"source_time\":\"{}\"", element.source_time);
        if let Some(key) = &element.key {
            text.push_str(",\"key\":");
            push_json(text, key);
        }
        if element.quality != Quality::Good {
            let _ = write!(text, ",\"quality\":\"{}\"", quality(element.quality));
        }
        for (field, value) in self.schema.fields.iter().zip(&element.values) {
            if *value == Value::Null {
                continue;
            }
            text.push(',');
            push_json(text, &field.name);
            text.push(':');
            push_json_value(text, value);
        }
        text.push_str("}\n");
        Ok(())
    }

    fn csv(
        &self,
        csv: &CsvEncoding,
        element: &StreamElement,
        text: &mut String,
    ) -> Result<(), EncodeError> {
        let _ = write!(text, "{}", element.source_time);
        if self.schema.key.is_some() {
            text.push(csv.delimiter);
            if let Some(key) = &element.key {
                push_cell(text, key, csv.delimiter);
            }
        }
        text.push(csv.delimiter);
        text.push_str(quality(element.quality));
        for (field, value) in self.schema.fields.iter().zip(&element.values) {
            text.push(csv.delimiter);
            match value {
                Value::Null => {}
                Value::Double(number) => {
                    let number = number_text(*number);
                    match csv.decimal {
                        '.' => push_cell(text, &number, csv.delimiter),
                        decimal => {
                            let number = number.replace('.', &decimal.to_string());
                            push_cell(text, &number, csv.delimiter);
                        }
                    }
                }
                Value::Boolean(flag) => text.push_str(if *flag { "true" } else { "false" }),
                Value::Integer(number) => {
                    let _ = write!(text, "{number}");
                }
                Value::Text(cell) => push_cell(text, cell, csv.delimiter),
                Value::Bytes(bytes) => push_cell(text, &STANDARD.encode(bytes), csv.delimiter),
                Value::Samples(_) => {
                    return Err(EncodeError::Samples {
                        field: field.name.clone(),
                        encoding: "csv",
                    });
                }
            }
        }
        text.push('\n');
        Ok(())
    }

    fn line_protocol(&self, element: &StreamElement, text: &mut String) -> Result<(), EncodeError> {
        push_escaped(text, &self.stream, &[',', ' ']);
        if let Some(key) = &element.key {
            let wrong = |reason| EncodeError::Text {
                field: "key".to_owned(),
                reason,
            };
            if key.is_empty() || key.contains(['\n', '\r']) {
                return Err(wrong("a tag has neither line ends nor an empty value"));
            }
            let escapes = ["\\,", "\\=", "\\ "];
            if key.ends_with('\\') || escapes.iter().any(|escape| key.contains(escape)) {
                return Err(wrong(
                    "a backslash of a tag would escape the character after it",
                ));
            }
            text.push(',');
            push_escaped(
                text,
                self.schema.key.as_deref().unwrap_or("key"),
                &[',', '=', ' '],
            );
            text.push('=');
            push_escaped(text, key, &[',', '=', ' ']);
        }
        let mut separator = ' ';
        for (field, value) in self.schema.fields.iter().zip(&element.values) {
            if *value == Value::Null {
                continue;
            }
            text.push(separator);
            separator = ',';
            text.push_str(&field.name);
            text.push('=');
            match value {
                Value::Null => {}
                Value::Boolean(flag) => text.push_str(if *flag { "true" } else { "false" }),
                Value::Integer(number) => {
                    let _ = write!(text, "{number}i");
                }
                Value::Double(number) => text.push_str(&number_text(*number)),
                Value::Text(string) => {
                    if string.contains('\n') {
                        return Err(EncodeError::Text {
                            field: field.name.clone(),
                            reason: "line ends are refused by many readers of the line protocol",
                        });
                    }
                    push_string(text, string);
                }
                Value::Bytes(bytes) => push_string(text, &STANDARD.encode(bytes)),
                Value::Samples(_) => {
                    return Err(EncodeError::Samples {
                        field: field.name.clone(),
                        encoding: "line_protocol",
                    });
                }
            }
        }
        if separator == ' ' {
            return Err(EncodeError::Empty);
        }
        let _ = writeln!(text, " {}", element.source_time.0);
        Ok(())
    }
}

const fn quality(quality: Quality) -> &'static str {
    match quality {
        Quality::Good => "good",
        Quality::Questionable => "questionable",
        Quality::Bad => "bad",
    }
}

/// A double so that it is read back as the same one.
fn number_text(number: f64) -> String {
    // Display writes hundreds of digits for the largest and smallest.
    let is_plain = number == 0.0 || (1e-5..1e17).contains(&number.abs());
    match is_plain {
        true => format!("{number}"),
        false => format!("{number:e}"),
    }
}

fn push_json(text: &mut String, string: &str) {
    text.push_str(&serde_json::Value::from(string).to_string());
}

fn push_json_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Boolean(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Integer(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Double(number) if number.is_finite() => text.push_str(&number_text(*number)),
        Value::Double(_) => text.push_str("null"),
        Value::Text(string) => push_json(text, string),
        Value::Bytes(bytes) => push_json(text, &STANDARD.encode(bytes)),
        Value::Samples(samples) => {
            let start = samples.start;
            let period_s = std::time::Duration::from_nanos(samples.period_ns).as_secs_f64();
            let period_s = number_text(period_s);
            let _ = write!(
                text,
                "{{\"start\":\"{start}\",\"period_s\":{period_s},\"values\":["
            );
            for (index, number) in samples.values.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_json_value(text, &Value::Double(*number));
            }
            text.push_str("]}");
        }
    }
}

/// A cell, in quotes if it needs them; an empty text too, because an empty cell is null.
fn push_cell(text: &mut String, cell: &str, delimiter: char) {
    let is_special = |c: char| c == delimiter || matches!(c, '"' | '\n' | '\r');
    let is_padded = cell.trim() != cell;
    if !cell.is_empty() && !is_padded && !cell.contains(is_special) {
        text.push_str(cell);
        return;
    }
    text.push('"');
    text.push_str(&cell.replace('"', "\"\""));
    text.push('"');
}

fn push_escaped(text: &mut String, token: &str, special: &[char]) {
    for c in token.chars() {
        if special.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
}

fn push_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
}
