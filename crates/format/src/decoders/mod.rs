//! The formats. Each finds the records of a message and the values at its paths.

pub(crate) mod binary;
pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod key_value;
pub(crate) mod line_protocol;
pub(crate) mod nmea;
pub(crate) mod regex;
pub(crate) mod senml;
pub(crate) mod xml;

use std::ops::Range;

pub(crate) use csv::CsvHeader;

use crate::config::{Common, FormatTable};
use crate::decoder::{Message, Sink};
use crate::fault::Fault;

/// The byte order mark of UTF-8, with which some programs begin a text.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// A fault of a format's options.
#[derive(Debug)]
pub(crate) struct OptionFault {
    pub(crate) span: Option<Range<usize>>,
    pub(crate) key: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl OptionFault {
    pub(crate) fn new(span: Range<usize>, key: &'static str, message: impl Into<String>) -> Self {
        Self {
            span: Some(span),
            key,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A compiled format with the paths that are used.
#[derive(Debug)]
pub(crate) enum Kind {
    Json(json::JsonFormat),
    Csv(csv::CsvFormat),
    KeyValue(key_value::KeyValueFormat),
    Regex(regex::RegexFormat),
    LineProtocol(line_protocol::LineProtocolFormat),
    Senml(senml::SenmlFormat),
    Nmea(nmea::NmeaFormat),
    Binary(binary::BinaryFormat),
    Xml(xml::XmlFormat),
}

/// Calls a method of the format.
macro_rules! each_kind {
    ($kind:expr, $format:ident => $call:expr) => {
        match $kind {
            Kind::Json($format) => $call,
            Kind::Csv($format) => $call,
            Kind::KeyValue($format) => $call,
            Kind::Regex($format) => $call,
            Kind::LineProtocol($format) => $call,
            Kind::Senml($format) => $call,
            Kind::Nmea($format) => $call,
            Kind::Binary($format) => $call,
            Kind::Xml($format) => $call,
        }
    };
}

impl Kind {
    /// Compiles the one format of a table.
    pub(crate) fn compile(table: &FormatTable) -> Result<Self, OptionFault> {
        if let Some(config) = &table.json {
            return json::JsonFormat::new(config).map(Self::Json);
        }
        if let Some(config) = &table.csv {
            return csv::CsvFormat::new(config).map(Self::Csv);
        }
        if let Some(config) = &table.key_value {
            return key_value::KeyValueFormat::new(config).map(Self::KeyValue);
        }
        if let Some(config) = &table.regex {
            return regex::RegexFormat::new(config).map(Self::Regex);
        }
        if let Some(config) = &table.line_protocol {
            let format = line_protocol::LineProtocolFormat::new(config);
            return Ok(Self::LineProtocol(format));
        }
        if let Some(config) = &table.senml {
            return Ok(Self::Senml(senml::SenmlFormat::new(config)));
        }
        if let Some(config) = &table.nmea {
            return Ok(Self::Nmea(nmea::NmeaFormat::new(config)));
        }
        if let Some(config) = &table.binary {
            return binary::BinaryFormat::new(config).map(Self::Binary);
        }
        if let Some(config) = &table.xml {
            return xml::XmlFormat::new(config).map(Self::Xml);
        }
        Err(OptionFault {
            span: None,
            key: "format",
            message: "it names no format".to_owned(),
            hint: None,
        })
    }

    /// The index of a path; the error is the reason why it is none.
    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        each_kind!(self, format => format.slot(path))
    }

    /// The index of a path to the time of a record.
    pub(crate) fn time_slot(&mut self, path: &str) -> Result<usize, String> {
        match self {
            Self::Json(format) => format.time_slot(path),
            Self::Xml(format) => format.time_slot(path),
            other => other.slot(path),
        }
    }

    /// The index of a path to samples.
    pub(crate) fn samples_slot(&mut self, path: &str) -> Result<usize, String> {
        match self {
            Self::Json(format) => format.samples_slot(path),
            Self::Binary(format) => format.samples_slot(path),
            _ => Err("samples exist in json (an array) and binary (a count)".to_owned()),
        }
    }

    /// The path of a field that has none.
    pub(crate) fn default_path(&self, name: &str) -> String {
        match self {
            Self::Json(_) => format!("$.{name}"),
            _ => name.to_owned(),
        }
    }

    /// The names that the format gives to placeholders; `None` if only messages know them.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::Json(_) | Self::Xml(_) => Some(Vec::new()),
            Self::Csv(format) => format.names(),
            Self::Regex(format) => Some(format.names()),
            Self::Senml(_) => Some(senml::NAMES.map(str::to_owned).to_vec()),
            Self::Binary(format) => Some(format.names()),
            Self::KeyValue(_) | Self::LineProtocol(_) | Self::Nmea(_) => None,
        }
    }

    pub(crate) fn is_decimal_comma(&self) -> bool {
        match self {
            Self::Csv(format) => format.is_decimal_comma,
            _ => false,
        }
    }

    /// Passes the records of a message to `sink`.
    pub(crate) fn decode(
        &self,
        message: &Message<'_>,
        sink: &mut Sink<'_>,
        csv_header: &mut Option<CsvHeader>,
    ) -> Result<(), Box<Fault>> {
        let text = message.body.strip_prefix(MARK).unwrap_or(message.body);
        match self {
            Self::Json(format) => format.decode(text, sink),
            Self::Csv(format) => format.decode(text, message.is_continuation, sink, csv_header),
            Self::KeyValue(format) => format.decode(text, sink),
            Self::Regex(format) => format.decode(text, sink),
            Self::LineProtocol(format) => format.decode(text, sink),
            Self::Senml(format) => format.decode(text, sink),
            Self::Nmea(format) => format.decode(text, sink),
            Self::Binary(format) => format.decode(message.body, sink),
            Self::Xml(format) => format.decode(text, sink),
        }
    }
}

impl FormatTable {
    /// The options that every format has.
    pub(crate) fn common(&self) -> Common<'_> {
        let json = self.json.as_ref().map(|config| config.common());
        let csv = || self.csv.as_ref().map(|config| config.common());
        let key_value = || self.key_value.as_ref().map(|config| config.common());
        let regex = || self.regex.as_ref().map(|config| config.common());
        let line_protocol = || self.line_protocol.as_ref().map(|config| config.common());
        let senml = || self.senml.as_ref().map(|config| config.common());
        let nmea = || self.nmea.as_ref().map(|config| config.common());
        let binary = || self.binary.as_ref().map(|config| config.get_ref().common());
        let xml = || self.xml.as_ref().map(|config| config.common());
        json.or_else(csv)
            .or_else(key_value)
            .or_else(regex)
            .or_else(line_protocol)
            .or_else(senml)
            .or_else(nmea)
            .or_else(binary)
            .or_else(xml)
            .unwrap_or(Common::NONE)
    }
}

/// Paths that are names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(pub(crate) Vec<String>);

impl Names {
    /// The index of a name, which is added if it is new.
    pub(crate) fn slot(&mut self, name: &str) -> Result<usize, String> {
        if name.is_empty() {
            return Err("the path is empty".to_owned());
        }
        let known = self.0.iter().position(|other| other == name);
        Ok(known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        }))
    }
}

/// A line of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'m> {
    /// From 1.
    pub(crate) number: u64,
    /// The byte at which it begins.
    pub(crate) byte: u64,
    /// Without its end.
    pub(crate) bytes: &'m [u8],
}

/// The lines of a text that are not blank.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut byte = 0;
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.map(move |(bytes, number)| {
        let line = Line {
            number,
            byte,
            bytes: bytes.strip_suffix(b"\r").unwrap_or(bytes),
        };
        byte += bytes.len() as u64 + 1;
        line
    });
    lines.filter(|line| !line.bytes.iter().all(u8::is_ascii_whitespace))
}
