//! A device described in a TOML file: its metadata, its events with a recording to replay, and named values
//! that can be read and set.
//!
//! ```toml
//! name = "thermometer, window side"
//! manufacturer = "Example"
//! model = "T1"
//! namespace = "https://example.org/thermometer"
//! types = ["Thermometer"]
//! scopes = ["https://example.org/ward/3"]
//!
//! [[event]]
//! name = "Temperature"
//! period_ms = 1000
//! recording = "temperature.csv"
//!
//! [[event.field]]
//! name = "celsius"
//! type = "double"
//! unit = "Cel"
//! property = "https://example.org/property/air-temperature"
//!
//! [[value]]
//! name = "Limit"
//! type = "double"
//! initial = "38.5"
//! settable = true
//! ```
//!
//! With a table `tls` the device has https addresses alone. Without `certificate` its certificate is made from `key`,
//! an Ed25519 key that is created if it is missing. If it trusts somebody, by `authorities` or by `fingerprints`, it
//! serves only clients with such a certificate; events need one.
//!
//! ```toml
//! [tls]
//! key = "device.key"
//! certificate = "device.pem"
//! authorities = "ward-ca.pem"
//! fingerprints = ["6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"]
//! usages = ["1.2.840.10004.20701.1.1"]
//! revocation_lists = "ward-ca.crl"
//! ```
//!
//! An event with `deadline_ms` is late on a notification tree after that time: sinks count it. A field of type
//! `dateTime` without a column in the recording carries the time of the event. A field with `sample_period_ms`
//! is a waveform: each event carries as many rows as fit its period. An error names the file, the line, the key
//! and, if one is known, a remedy.
//!
//! A device that starts stores the version of its description next to the file, with the suffix `.metadata`. The
//! version rises with each start after a change, so clients read the description again: also after two changes in
//! one second, and after a return to an older file.

mod device;
mod error;
mod recording;
mod replay;
mod text;

use std::collections::HashSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use chappe_soap::schema::{FlatField, FlatType, XsdType};
use chappe_transport::tls::Files;
use chappe_xml::Name;

pub use device::FileDevice;
pub use error::FileError;
pub use recording::Recording;
pub use replay::Replay;

use text::{EventText, FieldText, FileText, TlsText, ValueText};

/// The largest number of fields in one event.
const FIELDS_MAX: usize = 256;
/// The shortest event period.
const PERIOD_MS_MIN: f64 = 1.0;
/// The longest event period: a day.
const PERIOD_MS_MAX: f64 = 86_400_000.0;

/// The longest event deadline: an hour.
const DEADLINE_MS_MAX: f64 = 3_600_000.0;

/// A described device.
#[derive(Debug, Clone)]
pub struct File {
    /// Its friendly name.
    pub name: String,
    /// Its manufacturer.
    pub manufacturer: String,
    /// Its model.
    pub model: String,
    /// Its model's number.
    pub model_number: Option<String>,
    /// The version of its firmware.
    pub firmware: Option<String>,
    /// Its serial number.
    pub serial_number: Option<String>,
    /// The stable identifier, if the file sets it.
    pub uuid: Option<uuid::Uuid>,
    /// The namespace of its types, elements and actions.
    pub namespace: String,
    /// Its types, in addition to a DPWS device.
    pub types: Vec<Name>,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// Its certificate and whom it trusts, if it is served with TLS.
    pub tls: Option<Files>,
    /// Its events.
    pub events: Vec<Event>,
    /// Its values.
    pub values: Vec<Value>,
    /// The lowest version of the description: the modification time of the file, in seconds since 1970. A device that
    /// starts with a changed file announces at least this one, and a higher one than before.
    pub version: u32,
    /// The text and its file, if it was read from one.
    origin: Option<(PathBuf, String)>,
}

/// An event and the source of its content.
#[derive(Debug, Clone)]
pub struct Event {
    /// The name, from which element and action are derived.
    pub name: String,
    /// The element with its fields.
    pub element: FlatType,
    /// Time from one event to the next.
    pub period: Duration,
    /// The time after which an event is late on a notification tree. `None`: the setting of the tree.
    pub deadline: Option<Duration>,
    /// The recording.
    pub recording: Recording,
    /// Whether the recording repeats.
    pub repeat: bool,
    /// The source of each field's content.
    pub sources: Vec<FieldSource>,
}

/// The source of a field's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldSource {
    /// A column of the recording.
    Column(usize),
    /// The clock.
    Clock,
}

/// A named value with operations `GetNAME` and, if it is settable, `SetNAME`.
#[derive(Debug, Clone)]
pub struct Value {
    /// The name.
    pub name: String,
    /// Its type, unit and meaning; the field is called `value`.
    pub field: FlatField,
    /// The initial text.
    pub initial: String,
    /// Whether it can be set.
    pub settable: bool,
}

impl File {
    /// Reads a description and its recordings, whose paths are relative to it.
    ///
    /// # Errors
    /// The first problem, with its position.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| FileError::unreadable(path, &error))?;
        let mut file = Self::parse(&text, path)?;
        let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        let since = changed
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let seconds = since.map_or(1, |since| since.as_secs());
        file.version = u32::try_from(seconds).unwrap_or(u32::MAX);
        file.origin = Some((path.to_owned(), text));
        Ok(file)
    }

    /// Parses a description; errors name `path`, and recordings are relative to it.
    ///
    /// # Errors
    /// The first problem, with its position.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let source = SourceText { text, path };
        let file: FileText =
            toml::from_str(text).map_err(|error| FileError::toml(path, text, &error))?;
        let namespace = file.namespace.get_ref().trim_end_matches('/').to_owned();
        if !namespace.contains(':') {
            let at = file.namespace.span();
            let error = source.error(at, "namespace", "is not an absolute URI");
            return Err(error.with_hint("write for example \"https://example.org/thermometer\""));
        }
        let mut types = Vec::new();
        for text in &file.types {
            types.push(source.type_name(text, &namespace)?);
        }
        let mut names = HashSet::new();
        let mut events = Vec::new();
        for event in &file.event {
            source.unique_name(&event.name, &mut names)?;
            events.push(source.event(event, &namespace)?);
        }
        let mut values = Vec::new();
        for value in &file.value {
            for prefix in ["Get", "Set"] {
                let name = format!("{prefix}{}", value.name.get_ref());
                if !names.insert(name) {
                    let at = value.name.span();
                    return Err(source.error(at, "name", "duplicates the name of an operation"));
                }
            }
            source.unique_name(&value.name, &mut names)?;
            values.push(source.value(value, &namespace)?);
        }
        let uuid = match &file.uuid {
            None => None,
            Some(text) => {
                let error = || source.error(text.span(), "uuid", "is not a UUID");
                Some(text.get_ref().parse().map_err(|_| error())?)
            }
        };
        let tls = file.tls.as_ref().map(|tls| source.tls(tls)).transpose()?;
        Ok(Self {
            name: file.name,
            manufacturer: file.manufacturer,
            model: file.model,
            model_number: file.model_number,
            firmware: file.firmware,
            serial_number: file.serial_number,
            uuid,
            namespace,
            types,
            scopes: file.scopes,
            tls,
            events,
            values,
            version: 1,
            origin: None,
        })
    }
}

/// The text of the file, for errors.
struct SourceText<'a> {
    text: &'a str,
    path: &'a Path,
}

impl SourceText<'_> {
    fn error(&self, at: std::ops::Range<usize>, key: &str, problem: &str) -> FileError {
        FileError::at(self.path, self.text, at.start, key, problem)
    }

    /// `Name` in the file's namespace, or `{namespace}Name`.
    fn type_name(&self, text: &toml::Spanned<String>, namespace: &str) -> Result<Name, FileError> {
        let whole = text.get_ref();
        let (namespace, local) = match whole.strip_prefix('{').map(|rest| rest.split_once('}')) {
            None => (namespace, whole.as_str()),
            Some(Some(parts)) => parts,
            Some(None) => return Err(self.error(text.span(), "types", "has { without }")),
        };
        if !is_name(local) {
            let error = self.error(text.span(), "types", "is not an XML name");
            return Err(error.with_hint("write Name or {namespace}Name"));
        }
        Ok(Name::owned(namespace, local))
    }

    fn unique_name(
        &self,
        name: &toml::Spanned<String>,
        names: &mut HashSet<String>,
    ) -> Result<(), FileError> {
        if !is_name(name.get_ref()) {
            let error = self.error(name.span(), "name", "is not an XML name");
            return Err(error.with_hint("use a letter first, then letters, digits, - and _"));
        }
        if !names.insert(name.get_ref().clone()) {
            return Err(self.error(name.span(), "name", "occurs twice"));
        }
        Ok(())
    }

    fn tls(&self, tls: &TlsText) -> Result<Files, FileError> {
        let path = |relative: &String| self.resolve(relative);
        Ok(Files {
            certificate: tls.certificate.as_ref().map(path),
            key: Some(path(tls.key.get_ref())),
            authorities: tls.authorities.as_ref().map(path),
            fingerprints: self.parsed(&tls.fingerprints, "tls.fingerprints")?,
            usages: self.parsed(&tls.usages, "tls.usages")?,
            revocation_lists: tls.revocation_lists.as_ref().map(path),
            ..Files::default()
        })
    }

    fn parsed<T: FromStr<Err: Display>>(
        &self,
        texts: &[toml::Spanned<String>],
        key: &str,
    ) -> Result<Vec<T>, FileError> {
        let parse = |text: &toml::Spanned<String>| {
            let parsed = text.get_ref().parse();
            parsed.map_err(|error: T::Err| self.error(text.span(), key, &error.to_string()))
        };
        texts.iter().map(parse).collect()
    }

    fn event(&self, event: &EventText, namespace: &str) -> Result<Event, FileError> {
        let period = self.period(&event.period_ms, "period_ms")?;
        let deadline = event.deadline_ms.as_ref();
        let deadline = deadline
            .map(|deadline| self.period(deadline, "deadline_ms"))
            .transpose()?;
        let path = self.resolve(event.recording.get_ref());
        let recording = Recording::read(&path).map_err(|problem| {
            let error = self.error(event.recording.span(), "recording", &problem);
            error.with_hint("place it next to the description: a line of column names, then rows")
        })?;
        if event.field.is_empty() || event.field.len() > FIELDS_MAX {
            return Err(self.error(event.name.span(), "event.field", "needs 1 to 256 fields"));
        }
        let mut names = HashSet::new();
        let mut fields = Vec::new();
        let mut sources = Vec::new();
        for field in &event.field {
            self.unique_name(&field.name, &mut names)?;
            let (flat, source) = self.field(field, namespace, &recording)?;
            self.check_rows(field, &flat, source, period, &recording)?;
            fields.push(flat);
            sources.push(source);
        }
        let name = event.name.get_ref().clone();
        Ok(Event {
            element: FlatType {
                name: Name::owned(namespace, name.clone()),
                fields,
                doc: event.description.clone(),
            },
            name,
            period,
            deadline,
            recording,
            repeat: event.repeat,
            sources,
        })
    }

    fn field(
        &self,
        field: &FieldText,
        namespace: &str,
        recording: &Recording,
    ) -> Result<(FlatField, FieldSource), FileError> {
        let data_type = self.data_type(&field.data_type)?;
        let name = field.name.get_ref();
        let mut flat = FlatField::new(Name::owned(namespace, name.clone()), data_type);
        flat.doc.clone_from(&field.description);
        flat.unit.clone_from(&field.unit);
        flat.model_reference.extend(field.property.clone());
        if let Some(sample_period) = &field.sample_period_ms {
            flat = flat.with_sample_period(self.period(sample_period, "sample_period_ms")?);
        }
        let column = field
            .column
            .as_ref()
            .map_or(name, |column| column.get_ref());
        let source = match recording.column(column) {
            Some(index) => FieldSource::Column(index),
            None if data_type == XsdType::DateTime && field.column.is_none() => FieldSource::Clock,
            None => {
                let at = field.column.as_ref().unwrap_or(&field.name).span();
                let columns = recording.columns().join(", ");
                let error = self.error(at, "column", "is not a column of the recording");
                return Err(error.with_hint(format!("the columns are {columns}")));
            }
        };
        Ok((flat, source))
    }

    /// Checks that each cell has the type of the field, and that a waveform has a whole period.
    fn check_rows(
        &self,
        field: &FieldText,
        flat: &FlatField,
        source: FieldSource,
        period: Duration,
        recording: &Recording,
    ) -> Result<(), FileError> {
        let FieldSource::Column(column) = source else {
            return Ok(());
        };
        if rows_per_event(flat, period) > recording.rows() {
            let problem = "has a period with more samples than the recording has rows";
            return Err(self.error(field.name.span(), "sample_period_ms", problem));
        }
        for row in 0..recording.rows() {
            let cell = recording.cell(row, column);
            if !is_valid(flat.data_type, cell) {
                let local = flat.data_type.local();
                let line = recording.line(row);
                let problem =
                    format!("is not an xs:{local} in line {line} of the recording: {cell:?}");
                return Err(self.error(field.data_type.span(), "type", &problem));
            }
        }
        Ok(())
    }

    fn value(&self, value: &ValueText, namespace: &str) -> Result<Value, FileError> {
        let data_type = self.data_type(&value.data_type)?;
        let initial = value.initial.get_ref().clone();
        if !is_valid(data_type, &initial) {
            let problem = format!("is not an xs:{}", data_type.local());
            return Err(self.error(value.initial.span(), "initial", &problem));
        }
        let mut field = FlatField::new(Name::owned(namespace, "value"), data_type);
        field.doc.clone_from(&value.description);
        field.unit.clone_from(&value.unit);
        field.model_reference.extend(value.property.clone());
        Ok(Value {
            name: value.name.get_ref().clone(),
            field,
            initial,
            settable: value.settable,
        })
    }

    fn data_type(&self, text: &toml::Spanned<String>) -> Result<XsdType, FileError> {
        XsdType::from_local(text.get_ref()).ok_or_else(|| {
            self.error(text.span(), "type", "is not a type of XML Schema")
                .with_hint("use for example boolean, int, long, double, string, dateTime")
        })
    }

    fn period(&self, period_ms: &toml::Spanned<f64>, key: &str) -> Result<Duration, FileError> {
        let (ms, at) = (*period_ms.get_ref(), period_ms.span());
        let least = if key == "period_ms" {
            PERIOD_MS_MIN
        } else {
            1e-3
        };
        let most = match key {
            "deadline_ms" => DEADLINE_MS_MAX,
            _ => PERIOD_MS_MAX,
        };
        if !(least..=most).contains(&ms) {
            let problem = format!("is not between {least} and {most}");
            return Err(self.error(at, key, &problem));
        }
        Ok(Duration::from_secs_f64(ms / 1_000.0))
    }

    fn resolve(&self, relative: &str) -> PathBuf {
        match self.path.parent() {
            Some(parent) => parent.join(relative),
            None => PathBuf::from(relative),
        }
    }
}

/// The number of rows that one event carries in this field.
fn rows_per_event(field: &FlatField, period: Duration) -> usize {
    let Some(sample) = field.sample_period else {
        return 1;
    };
    // Rounded: 100 ms at 360 Hz are 36 samples, although 1/360 s is not a whole number of nanoseconds.
    let rows = (period.as_secs_f64() / sample.as_secs_f64()).round();
    // 1 to 10^11.
    let rows = rows as usize;
    rows.max(1)
}

/// Whether the text is in the lexical space of the type, as far as events are parsed.
fn is_valid(data_type: XsdType, text: &str) -> bool {
    use chappe_soap::schema::{ValueFamily, parse_date_time, parse_duration};
    let value = chappe_xml::Value::from(text);
    match data_type.family() {
        ValueFamily::Boolean => value.boolean().is_ok(),
        ValueFamily::Integer => value.integer().is_ok(),
        ValueFamily::Number => value.double().is_ok(),
        ValueFamily::DateTime => parse_date_time(text).is_ok(),
        ValueFamily::Duration => parse_duration(text).is_ok(),
        ValueFamily::Text | ValueFamily::Bytes => true,
    }
}

/// Whether it is an XML name of ASCII letters without colon, which every peer supports.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 128
        && bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"name = "heart"
manufacturer = "Example"
model = "E1"
namespace = "https://example.org/heart"
types = ["Electrocardiogram", "{urn:other}Sensor"]

[[event]]
name = "Wave"
period_ms = 100
recording = "wave.csv"

[[event.field]]
name = "time"
type = "dateTime"

[[event.field]]
name = "ecg"
type = "double"
unit = "uV"
property = "https://example.org/property/ecg"
sample_period_ms = 2.7777778

[[value]]
name = "Gain"
type = "int"
initial = "3"
settable = true
"#;

    fn parse(text: &str) -> Result<File, FileError> {
        let directory = tempfile::tempdir().unwrap();
        let rows: Vec<String> = (0..100).map(|row| row.to_string()).collect();
        let recording = format!("# unit: uV\necg\n{}\n", rows.join("\n"));
        std::fs::write(directory.path().join("wave.csv"), recording).unwrap();
        File::parse(text, &directory.path().join("heart.toml"))
    }

    #[test]
    fn a_description_is_read_completely() {
        let file = parse(GOOD).unwrap();
        assert!(file.types[0].is("https://example.org/heart", "Electrocardiogram"));
        assert!(file.types[1].is("urn:other", "Sensor"));
        let event = &file.events[0];
        assert_eq!(event.sources, [FieldSource::Clock, FieldSource::Column(0)]);
        assert_eq!(rows_per_event(&event.element.fields[1], event.period), 36);
        assert!(file.values[0].settable);
    }

    #[test]
    fn errors_name_line_key_and_remedy() {
        for (from, to, line, key, hint) in [
            ("type = \"double\"", "type = \"float64\"", 18, "type", true),
            ("type = \"double\"", "type = \"boolean\"", 18, "type", false),
            ("name = \"ecg\"", "name = \"pulse\"", 17, "column", true),
            ("period_ms = 100", "period_ms = 0", 9, "period_ms", false),
            ("\"wave.csv\"", "\"none.csv\"", 10, "recording", true),
            ("initial = \"3\"", "initial = \"x\"", 26, "initial", false),
            ("name = \"Wave\"", "name = \"1\"", 8, "name", true),
            ("name = \"Gain\"", "name = \"Wave\"", 24, "name", false),
            ("\"Electrocardiogram\"", "\"a b\"", 5, "types", true),
            ("https://example.org/heart", "heart", 4, "namespace", true),
            ("settable = true", "setable = true", 27, "setable", true),
            ("model = \"E1\"", "model = 1", 3, "model", true),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let error = parse(&text).unwrap_err();
            assert_eq!((error.line, error.key.as_str()), (line, key), "{error}");
            assert_eq!(error.hint.is_some(), hint, "{error}");
        }
        let missing = parse(&GOOD.replacen("model = \"E1\"\n", "", 1)).unwrap_err();
        assert_eq!(missing.hint.as_deref(), Some("add a line: model = ..."));
        let nowhere = File::read(Path::new("nowhere.toml")).unwrap_err();
        assert!(nowhere.hint.is_some());
    }
}
