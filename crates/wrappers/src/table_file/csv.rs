//! Rows as comma-separated values. A null has no characters, an empty text is `""`.

use std::io::{self, Write};

use chappe_stream::view::ValueView;
use chappe_stream::{StreamElement, Value};

use super::{OWN_COLUMNS, TableStream, field_columns};

/// A CSV that is being written.
pub(super) struct CsvFile<W> {
    output: W,
    /// The line that is made.
    line: Vec<u8>,
    bytes: u64,
}

impl<W: Write> CsvFile<W> {
    pub(super) fn new(output: W, stream: &TableStream) -> io::Result<Self> {
        let fields = field_columns(&stream.schema)?;
        let own = OWN_COLUMNS.into_iter().map(str::to_owned);
        let names: Vec<String> = own.chain(fields).collect();
        let mut file = Self {
            output,
            line: names.join(",").into_bytes(),
            bytes: 0,
        };
        file.write_line()?;
        Ok(file)
    }

    pub(super) fn push(&mut self, element: &StreamElement) -> io::Result<()> {
        let position = element.position;
        let own = format!(
            "{},{},{},{},",
            position.epoch, position.sequence, element.source_time, element.receive_time
        );
        self.line.extend_from_slice(own.as_bytes());
        if let Some(key) = &element.key {
            self.text(key);
        }
        self.line.push(b',');
        self.line
            .extend_from_slice(element.quality.name().as_bytes());
        for value in &element.values {
            self.line.push(b',');
            self.cell(value)?;
        }
        self.write_line()
    }

    fn cell(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::Null => {}
            Value::Text(text) => self.text(text),
            Value::Double(number) if number.is_nan() => self.line.extend_from_slice(b"NaN"),
            Value::Double(number) if number.is_infinite() => {
                let text: &[u8] = if *number > 0.0 {
                    b"Infinity"
                } else {
                    b"-Infinity"
                };
                self.line.extend_from_slice(text);
            }
            Value::Bytes(_) | Value::Samples(_) => match serde_json::to_value(ValueView(value))? {
                serde_json::Value::String(text) => self.text(&text),
                other => self.text(&other.to_string()),
            },
            Value::Boolean(_) | Value::Integer(_) | Value::Double(_) => {
                serde_json::to_writer(&mut self.line, &ValueView(value))?;
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
            return self.line.extend_from_slice(text.as_bytes());
        }
        self.line.push(b'"');
        self.line
            .extend_from_slice(text.replace('"', "\"\"").as_bytes());
        self.line.push(b'"');
    }

    fn write_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.output.write_all(&self.line)?;
        self.bytes += self.line.len() as u64;
        self.line.clear();
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn finish(self) -> W {
        self.output
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{element, stream};
    use super::*;

    #[test]
    fn null_and_an_empty_text_differ_and_numbers_that_are_not_finite_are_named() {
        let mut file = CsvFile::new(Vec::new(), &stream()).unwrap();
        let mut with_empty = element(1);
        with_empty.key = Some(String::new());
        for one in [with_empty, element(2)] {
            file.push(&one).unwrap();
        }
        let text = String::from_utf8(file.finish()).unwrap();
        let wanted = "epoch,sequence,source_time,receive_time,key,quality,celsius,count,ok,key_,raw,wave\n\
            000000000000000a,1,2020-09-13T12:26:40.000000001Z,2020-09-13T12:26:40.000000002Z,\"\",questionable,\
            NaN,9007199254740993,true,\"a, \"\"b\"\"\n\",AP8=,\
            \"{\"\"period_s\"\":7e-9,\"\"start\"\":\"\"1970-01-01T00:00:00.000000005Z\"\",\"\"values\"\":[1.5,null]}\"\n\
            000000000000000a,2,2020-09-13T12:26:40.000000001Z,2020-09-13T12:26:40.000000002Z,,questionable,,,,,,\n";
        assert_eq!(text, wanted);
    }
}
