//! The files of wrappers and exporters: one TOML file for each connection to a peer.
//!
//! The name of the file without `.toml` is the name of the wrapper. Keys that every kind has
//! ([`WrapperKeys`], [`ExporterKeys`]) are read here; each kind reads the rest with
//! [`PeerFile::settings`] into a struct of its own. Both refuse unknown keys, with line and hint.

use std::path::{Path, PathBuf};

use chappe_format::config::{FormatConfig, StreamConfig};
use chappe_log::Level;
use chappe_stream::descriptor::{DescriptorError, DescriptorFault, Place};
use chappe_stream::{Field, StreamSchema};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{Inputs, StreamDefinition};

/// Largest file in bytes; reason: a person writes it.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Longest name of a wrapper or exporter.
const NAME_BYTES_MAX: usize = 63;
/// Most streams that a wrapper makes, unless its file sets another limit; reason: a message may name a
/// stream, and each stream costs memory for good.
const STREAMS_DEFAULT: u32 = 1_000;
/// Most bytes that a wrapper has received and that are not stored yet, unless its file sets another
/// limit; reason: some hundred milliseconds of a slow disk.
const UNSTORED_BYTES_DEFAULT: u64 = 4 << 20;
/// Most dead letters that are kept, unless the file sets another limit.
const DEAD_LETTERS_DEFAULT: u64 = 10_000;

/// The file of a wrapper or an exporter: the keys that every kind has, and those of its kind.
#[derive(Debug, Clone)]
pub struct PeerFile<C> {
    /// The name: that of the file without `.toml`.
    pub name: String,
    /// The keys that every kind has.
    pub keys: C,
    /// The directory to which relative paths refer.
    pub directory: PathBuf,
    /// The text of the file.
    pub text: String,
    file: String,
    /// Where its table is in the text; empty: the whole text.
    table: Vec<TableStep>,
}

/// A step from the top of a file to a table in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableStep {
    /// The value of a key.
    Key(&'static str),
    /// An item of an array.
    Item(usize),
}

/// The file of a wrapper.
pub type WrapperFile = PeerFile<WrapperKeys>;
/// The file of an exporter.
pub type ExporterFile = PeerFile<ExporterKeys>;

/// Keys that every kind has in one direction.
pub trait CommonKeys: DeserializeOwned {
    /// Their names.
    const NAMES: &'static [&'static str];

    /// Checks that need more than one key.
    ///
    /// # Errors
    /// The key at fault, what is wrong, and a hint.
    fn check(&self) -> Result<(), (&'static str, String, Option<String>)>;
}

/// The keys of every wrapper.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Wrapper")]
pub struct WrapperKeys {
    /// The protocol of the peer.
    pub kind: String,
    /// The purpose.
    pub description: Option<String>,
    /// The former name of this wrapper, whose file was removed or renamed. When this wrapper first runs, it continues
    /// at the mark of the former one and takes over its streams.
    pub continues: Option<String>,
    /// When an element counts as stored, and the peer's message as received. Default: the node's
    /// `log.level`.
    pub level: Option<Level>,
    /// The name of the device that the streams are about, for the registry. Default: the name of the
    /// wrapper.
    pub device: Option<String>,
    /// Types of that device, `{namespace}local`, by which virtual sensors find its streams.
    #[serde(default)]
    pub types: Vec<String>,
    /// Scopes of that device (URIs), by which virtual sensors find its streams.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// How messages become elements (docs/reference/formats.md).
    #[schemars(with = "Option<FormatConfig>")]
    pub format: Option<Spanned<FormatConfig>>,
    /// The streams that the messages become.
    #[serde(default, rename = "stream")]
    #[schemars(with = "Vec<StreamConfig>")]
    pub streams: Vec<Spanned<StreamConfig>>,
    /// Commands, which are called like operations of a device.
    #[serde(default, rename = "command")]
    pub commands: Vec<CommandTable>,
    /// Limits.
    #[serde(default)]
    pub limits: WrapperLimits,
}

/// A command of a wrapper.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct CommandTable {
    /// Its name.
    pub name: String,
    /// For a person to read.
    pub description: Option<String>,
    /// What the kind needs to know: a path, a topic.
    #[serde(flatten)]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub settings: toml::Table,
}

/// Limits of a wrapper.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WrapperLimits {
    /// Maximum number of streams; an element that needs another one becomes a dead letter.
    #[schemars(range(min = 1, max = 100_000))]
    pub streams: u32,
    /// Maximum number of bytes received and not yet stored; at the limit, the peer is slowed down.
    #[schemars(range(min = 65_536, max = 1_073_741_824), extend("x-unit" = "bytes"))]
    pub unstored_bytes: u64,
    /// Maximum number of dead letters; the oldest are dropped first.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub dead_letters: u64,
}

impl Default for WrapperLimits {
    fn default() -> Self {
        Self {
            streams: STREAMS_DEFAULT,
            unstored_bytes: UNSTORED_BYTES_DEFAULT,
            dead_letters: DEAD_LETTERS_DEFAULT,
        }
    }
}

/// The keys of every exporter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Exporter")]
pub struct ExporterKeys {
    /// The protocol of the peer.
    pub kind: String,
    /// The purpose.
    pub description: Option<String>,
    /// The streams to export: names, or prefixes ending in `*`.
    #[schemars(length(min = 1))]
    pub streams: Vec<String>,
    /// Where to start with a stream that was never exported. Default: first.
    #[serde(default)]
    pub start: StartKey,
    /// Maximum number of dead letters, elements that the peer refused; the oldest are dropped
    /// first.
    #[serde(default = "dead_letters_default")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub dead_letters: u64,
}

fn dead_letters_default() -> u64 {
    DEAD_LETTERS_DEFAULT
}

/// Where a stream starts that was never exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartKey {
    /// At the oldest element that is kept.
    #[default]
    First,
    /// At the next element.
    New,
}

impl CommonKeys for WrapperKeys {
    const NAMES: &'static [&'static str] = &[
        "kind",
        "description",
        "continues",
        "level",
        "device",
        "types",
        "scopes",
        "format",
        "stream",
        "command",
        "limits",
    ];

    fn check(&self) -> Result<(), (&'static str, String, Option<String>)> {
        if let Some(former) = self.continues.as_ref().filter(|name| !is_name(name)) {
            let text = format!("{former:?} is not a name of a wrapper");
            return Err(("continues", text, None));
        }
        let limits = &self.limits;
        let ranges = [
            ("streams", u64::from(limits.streams), 1, 100_000),
            ("unstored_bytes", limits.unstored_bytes, 65_536, 1 << 30),
            ("dead_letters", limits.dead_letters, 1, 1_000_000),
        ];
        for (key, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                let text = format!("{key}: {value} is not within {low} to {high}");
                return Err(("limits", text, None));
            }
        }
        Ok(())
    }
}

impl CommonKeys for ExporterKeys {
    const NAMES: &'static [&'static str] =
        &["kind", "description", "streams", "start", "dead_letters"];

    fn check(&self) -> Result<(), (&'static str, String, Option<String>)> {
        let hint = || Some("write a name, or a prefix and `*`: \"plant.*\"".to_owned());
        if self.streams.is_empty() {
            return Err(("streams", "no stream is selected".to_owned(), hint()));
        }
        if let Some(text) = self.inputs().fault() {
            return Err(("streams", text, hint()));
        }
        if !(1..=1_000_000).contains(&self.dead_letters) {
            let text = format!("{} is not within 1 to 1000000", self.dead_letters);
            return Err(("dead_letters", text, None));
        }
        Ok(())
    }
}

impl ExporterKeys {
    /// The streams that it reads.
    #[must_use]
    pub fn inputs(&self) -> Inputs {
        Inputs {
            streams: self.streams.clone(),
            start: self.start,
        }
    }
}

impl WrapperFile {
    /// The streams that need no message: names, keys and fields without placeholders of the message, each
    /// with the definition that its elements have.
    #[must_use]
    pub fn fixed_streams(&self) -> Vec<(String, StreamDefinition)> {
        let streams = self.keys.streams.iter().map(Spanned::get_ref);
        let is_fixed = |text: &str| !text.contains('{');
        let is_all_fixed = |stream: &&StreamConfig| {
            let mut fields = stream.fields.get_ref().iter();
            is_fixed(stream.name.get_ref())
                && fields.all(|field| is_fixed(field.get_ref().name.get_ref()))
        };
        let fixed = streams.filter(is_all_fixed).map(|stream| {
            let definition = StreamDefinition {
                schema: schema(stream),
                level: self.keys.level,
                description: None,
            };
            (stream.name.get_ref().clone(), definition)
        });
        fixed.collect()
    }

    /// Whether the file decides that the wrapper fills this stream, and no message: it names the stream, or
    /// the names that its kind makes have no placeholders.
    #[must_use]
    pub fn names_stream(&self, stream: &str) -> bool {
        let mut names = self
            .keys
            .streams
            .iter()
            .map(|table| table.get_ref().name.get_ref());
        names.clone().any(|name| name == stream) || !names.any(|name| name.contains('{'))
    }
}

/// The schema that the decoder gives the elements of a stream.
fn schema(stream: &StreamConfig) -> StreamSchema {
    let fields = stream.fields.get_ref().iter().map(|field| {
        let field = field.get_ref();
        Field {
            name: field.name.get_ref().clone(),
            field_type: *field.field_type.get_ref(),
            unit: field.unit.as_ref().map(|unit| unit.get_ref().clone()),
            observed_property: field.observed_property.clone(),
            description: field.description.clone(),
        }
    });
    let key = stream.key.as_ref().map(|key| {
        let only = key
            .get_ref()
            .strip_prefix('{')
            .and_then(|it| it.strip_suffix('}'));
        let only = only.filter(|name| !name.contains(['{', '}']));
        stream
            .subject
            .clone()
            .unwrap_or_else(|| only.unwrap_or("key").to_owned())
    });
    StreamSchema {
        fields: fields.collect(),
        key,
    }
}

impl<C: CommonKeys> PeerFile<C> {
    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub fn parse(path: &Path, text: &str) -> Result<Self, DescriptorError> {
        let file = path.display().to_string();
        let place = Place { file: &file, text };
        let whole = |message: String| place.error(DescriptorFault::Value, 0, "", message, None);
        if text.len() > FILE_BYTES_MAX {
            return Err(whole(format!(
                "the file is longer than {FILE_BYTES_MAX} bytes"
            )));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !is_name(&name) {
            let message = format!("{name:?} is not a name: use a-z, 0-9, `_` and `-` for the file");
            return Err(whole(message));
        }
        Self::parse_table(path, text, &name, Vec::new())
    }

    /// Reads a table of the file at `path`, in which it stands with others; `name` is its name.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub fn parse_table(
        path: &Path,
        text: &str,
        name: &str,
        table: Vec<TableStep>,
    ) -> Result<Self, DescriptorError> {
        let file = path.display().to_string();
        let place = Place { file: &file, text };
        let (common, _) = divide::<C>(text, &table).map_err(|error| place.toml(&error))?;
        let starts: Vec<(String, usize)> = common
            .get_ref()
            .keys()
            .map(|key| (key.get_ref().to_string(), key.span().start))
            .collect();
        let common = toml::Deserializer::from(common);
        let keys = C::deserialize(common).map_err(|error| place.toml(&error))?;
        keys.check().map_err(|(key, message, hint)| {
            let start = starts.iter().find(|(name, _)| name == key);
            let at = start.map_or(0, |(_, at)| *at);
            place.error(DescriptorFault::Value, at, key, message, hint)
        })?;
        Ok(Self {
            name: name.to_owned(),
            keys,
            directory: path.parent().unwrap_or(Path::new("")).to_owned(),
            text: text.to_owned(),
            file,
            table,
        })
    }

    /// The keys of the kind.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub fn settings<K: DeserializeOwned>(&self) -> Result<K, DescriptorError> {
        let locate = |error: toml::de::Error| self.place().toml(&error);
        let (_, own) = divide::<C>(&self.text, &self.table).map_err(locate)?;
        K::deserialize(toml::Deserializer::from(own)).map_err(locate)
    }

    /// A fault of a key.
    #[must_use]
    pub fn fault(&self, key: &str, message: String, hint: Option<String>) -> DescriptorError {
        let table = located(&self.text, &self.table).map(Spanned::into_inner);
        let table = table.unwrap_or_default();
        let mut keys = table.keys();
        let found = keys.find(|name| *name.get_ref() == key);
        let at = found.map_or(0, |name| name.span().start);
        self.place()
            .error(DescriptorFault::Value, at, key, message, hint)
    }

    /// Its table without the places of its keys.
    #[must_use]
    pub fn table(&self) -> toml::Table {
        let top = toml::from_str::<toml::Table>(&self.text).unwrap_or_default();
        let mut value = toml::Value::Table(top);
        for step in &self.table {
            let found = match (step, value) {
                (TableStep::Key(key), toml::Value::Table(mut table)) => table.remove(*key),
                (TableStep::Item(index), toml::Value::Array(items)) => {
                    items.into_iter().nth(*index)
                }
                _ => None,
            };
            value = found.unwrap_or(toml::Value::Boolean(false));
        }
        match value {
            toml::Value::Table(table) => table,
            _ => toml::Table::new(),
        }
    }

    /// A path of the file, which is relative to its directory.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// The text with its name, for faults.
    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            file: &self.file,
            text: &self.text,
        }
    }
}

/// A table with the places of its keys in the text.
type Located<'t> = Spanned<DeTable<'t>>;

/// The table of a text to which steps lead; an empty one if there is none.
fn located<'t>(text: &'t str, steps: &[TableStep]) -> Result<Located<'t>, toml::de::Error> {
    let top = DeTable::parse(text)?;
    let mut span = top.span();
    let mut value = DeValue::Table(top.into_inner());
    for step in steps {
        let found = match (step, value) {
            (TableStep::Key(key), DeValue::Table(table)) => {
                let mut pairs = table.into_iter();
                let found = pairs.find(|(name, _)| &**name.get_ref() == *key);
                found.map(|(_, value)| value)
            }
            (TableStep::Item(index), DeValue::Array(items)) => items.into_iter().nth(*index),
            _ => None,
        };
        let Some(found) = found else {
            return Ok(Spanned::new(span, DeTable::new()));
        };
        span = found.span();
        value = found.into_inner();
    }
    let table = match value {
        DeValue::Table(table) => table,
        _ => DeTable::new(),
    };
    Ok(Spanned::new(span, table))
}

/// The keys that every kind has, and those of the kind.
fn divide<'t, C: CommonKeys>(
    text: &'t str,
    steps: &[TableStep],
) -> Result<(Located<'t>, Located<'t>), toml::de::Error> {
    let table = located(text, steps)?;
    let span = table.span();
    let (mut common, mut own) = (DeTable::new(), DeTable::new());
    for (key, value) in table.into_inner() {
        let of_every_kind = C::NAMES.contains(&&**key.get_ref());
        let table = if of_every_kind { &mut common } else { &mut own };
        table.insert(key, value);
    }
    Ok((Spanned::new(span.clone(), common), Spanned::new(span, own)))
}

fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
kind = "file"
path = "a.csv"
format = "csv"

[[stream]]
name = "room.climate"
key = "{machine}"
fields = [{ name = "celsius", type = "double", unit = "Cel" }]
"#;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Own {
        path: String,
    }

    fn parse(text: &str) -> Result<WrapperFile, DescriptorError> {
        WrapperFile::parse(Path::new("wrappers/climate.toml"), text)
    }

    #[test]
    fn a_file_has_the_keys_of_every_kind_and_its_own() {
        let file = parse(TEXT).unwrap();
        assert_eq!(file.name, "climate");
        let (name, definition) = &file.fixed_streams()[0];
        assert_eq!(
            (&**name, definition.schema.key.as_deref()),
            ("room.climate", Some("machine"))
        );
        assert_eq!(definition.schema.fields[0].name, "celsius");
        let own: Own = file.settings().unwrap();
        assert_eq!(own.path, "a.csv");
        assert_eq!(file.path(Path::new("a.csv")), Path::new("wrappers/a.csv"));
    }

    #[test]
    fn faults_have_lines_and_keys() {
        let wrong = |from: &str, to: &str| {
            let file = parse(&TEXT.replace(from, to))?;
            file.settings::<Own>().map(drop)
        };
        let cases = [
            ("path =", "paht =", 3, "paht"),
            ("format =", "formt =", 4, "formt"),
            ("\"csv\"", "\"cvs\"", 4, "format"),
            ("unit =", "unti =", 9, "unti"),
        ];
        for (from, to, line, key) in cases {
            let error = wrong(from, to).unwrap_err();
            assert_eq!((error.line, &*error.key), (line, key), "{to}: {error}");
        }
        assert!(WrapperFile::parse(Path::new("A b.toml"), TEXT).is_err());
    }

    #[test]
    fn a_table_of_a_file_is_read_with_its_places() {
        let text = "name = \"s\"\n[[source]]\nalias = \"a\"\n[source.wrapper]\nkind = \"file\"\n\
                    path = \"a.csv\"\nformat = \"csv\"\n[[source.wrapper.stream]]\nname = \"x\"\n\
                    fields = [{ name = \"v\", type = \"double\" }]\n";
        let steps = vec![
            TableStep::Key("source"),
            TableStep::Item(0),
            TableStep::Key("wrapper"),
        ];
        let read = |text: &str| {
            let path = Path::new("sensors/s.toml");
            let file = WrapperFile::parse_table(path, text, "s.a", steps.clone())?;
            file.settings::<Own>()?;
            file.check_sent("file")?;
            Ok::<_, DescriptorError>(file)
        };
        let file = read(text).unwrap();
        assert_eq!((&*file.name, &*file.keys.kind), ("s.a", "file"));
        assert_eq!(file.fixed_streams()[0].0, "x");
        assert_eq!(file.path(Path::new("a.csv")), Path::new("sensors/a.csv"));
        for (from, to, line, key) in [
            ("kind =", "knd =", 4, "kind"),
            ("path =", "paht =", 6, "paht"),
            ("\"csv\"", "\"cvs\"", 7, "format"),
            ("a.csv", "/etc/passwd", 6, "path"),
        ] {
            let error = read(&text.replace(from, to)).unwrap_err();
            assert_eq!((error.line, &*error.key), (line, key), "{to}: {error}");
        }
    }

    #[test]
    fn the_names_of_the_common_keys_are_those_of_the_schema() {
        fn names<C: JsonSchema>() -> Vec<String> {
            let schema = schemars::schema_for!(C).to_value();
            let keys = schema["properties"].as_object().unwrap().keys();
            keys.cloned().collect()
        }
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        };
        let mut found = names::<WrapperKeys>();
        found.sort();
        assert_eq!(found, sorted(WrapperKeys::NAMES));
        let mut found = names::<ExporterKeys>();
        found.sort();
        assert_eq!(found, sorted(ExporterKeys::NAMES));
    }

    #[test]
    fn an_exporter_selects_streams_by_name_and_prefix() {
        let text = "kind = \"file\"\nstreams = [\"a.*\", \"b\"]\npath = \"x\"";
        let file = ExporterFile::parse(Path::new("out.toml"), text).unwrap();
        let inputs = file.keys.inputs();
        let selected = ["a.b", "b", "a", "b.c"].map(|name| inputs.selects(name));
        assert_eq!(selected, [true, true, false, false]);
        for wrong in ["[]", "[\"A\"]", "[\"*.a\"]"] {
            let text = format!("kind = \"file\"\nstreams = {wrong}");
            let error = ExporterFile::parse(Path::new("out.toml"), &text).unwrap_err();
            assert_eq!((error.line, &*error.key), (2, "streams"), "{wrong}");
        }
    }
}
