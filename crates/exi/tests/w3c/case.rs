//! One reference stream: the options that its name encodes, its source, its schema.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_exi::{
    Alignment, CanonicalOptions, Decoder, Encoder, Event, HeaderOptions, Name, Options, QName,
    Representation, Schema, SchemaId, Value, XsdSource, text,
};

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use crate::infoset::{self, Item};

type Take<'t> = dyn FnMut(Event<'_>) -> Result<(), text::Error> + 't;

/// The result of a check.
pub(crate) enum Outcome {
    Ok,
    Failed(String),
}

/// Schemas by their path.
#[derive(Default)]
pub(crate) struct Schemas {
    known: HashMap<String, Result<Arc<Schema>, String>>,
}

/// A reference stream.
pub(crate) struct Case {
    pub(crate) group: String,
    pub(crate) label: String,
    stream: PathBuf,
    source: PathBuf,
    options: Options,
    header: HeaderOptions,
    schema: Option<String>,
    suite: PathBuf,
    /// The options of a canonical stream; none for others.
    canonical: Option<CanonicalOptions>,
    /// The parts of the stream's name.
    parts: Vec<String>,
}

impl Case {
    /// A stream of a folder whose streams are all canonical or all not.
    pub(crate) fn of(suite: &Path, folder: &str, canonical: bool, stream: &Path) -> Self {
        let relative = stream
            .strip_prefix(suite.join(folder))
            .expect("it is in there");
        let relative = relative.to_string_lossy().into_owned();
        let (name, rest) = relative.split_once(".exi").expect("it is a stream");
        let parts: Vec<&str> = rest.split('%').collect();
        let part = |at: usize| parts.get(at).copied().unwrap_or_default();
        let (preserve, flags) = (part(1), part(2));
        let mut options = Options::default();
        options.preserve.comments = preserve.contains('c');
        options.preserve.dtd = preserve.contains('d');
        options.preserve.lexical_values = preserve.contains('l');
        options.preserve.pis = preserve.contains('p');
        options.preserve.prefixes = preserve.contains('x');
        options.strict = flags.contains('v');
        options.fragment = flags.contains('f');
        options.self_contained = flags.contains('r');
        options.compression = flags.contains('c');
        if flags.contains('a') {
            options.alignment = Alignment::ByteAligned;
        }
        if flags.contains('p') {
            options.alignment = Alignment::PreCompression;
        }
        options.value_partition_capacity = part(3).parse().ok();
        options.value_max_length = part(4).parse().ok();
        options.block_size = part(5).parse().unwrap_or(Options::BLOCK_SIZE);
        // Names of canonical streams also have a part for the profile.
        let at = if canonical { 7 } else { 6 };
        let informed = flags.contains('i') || !part(at).is_empty();
        let schema = informed.then(|| {
            part(at)
                .replace('@', "/")
                .replace("builtinGrammar", "builtInGrammar")
                .replace("contentHandling.xsd", "ContentHandling.xsd")
        });
        for entry in parts.get(at + 1..).unwrap_or_default() {
            let (datatype, representation) = entry.split_once('-').expect("a pair of types");
            let name = |namespace: &str, local: &str| QName {
                namespace: namespace.into(),
                local: local.into(),
            };
            options.datatype_representation_map.push(Representation {
                datatype: name("http://www.w3.org/2001/XMLSchema", datatype),
                representation: name("http://www.w3.org/2009/exi", representation),
            });
        }
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let source = name.replace("builtinGrammar", "builtInGrammar");
        let mut path = suite.join(format!("{source}.xml"));
        if !path.exists() {
            path = suite.join(&source);
        }
        Self {
            group: folder.to_owned(),
            label: relative.clone(),
            stream: stream.to_owned(),
            source: path,
            options,
            header: HeaderOptions {
                cookie: flags.contains('m'),
                options: flags.contains('o') || flags.contains('s'),
            },
            schema,
            suite: suite.to_owned(),
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            canonical: canonical.then(|| CanonicalOptions {
                omit_options_document: !flags.contains('s'),
                utc_time: flags.contains('u'),
            }),
        }
    }

    pub(crate) fn run(&self, schemas: &mut Schemas) -> Vec<(&'static str, Outcome)> {
        let schema = match self.schema(schemas) {
            Ok(schema) => schema,
            Err(error) => return vec![("schema", Outcome::Failed(error))],
        };
        let stream = std::fs::read(&self.stream).expect("the suite can be read");
        let source = self.source();
        if self.canonical.is_some() {
            return vec![("decoded", outcome(self.canonical_again(&schema, &stream)))]
                .into_iter()
                .chain(self.encode(&schema, &source, &stream))
                .collect();
        }
        let wanted = match self.wanted() {
            Ok(wanted) => wanted,
            Err(error) => return vec![("decoded", Outcome::Failed(error))],
        };
        let mut outcomes = Vec::new();
        let decoded = self.decode(&schema, &stream, &wanted);
        let good = decoded.is_ok();
        outcomes.push(("decoded", outcome(decoded)));
        if good {
            outcomes.push((
                "round trip",
                outcome(self.round_trip(&schema, &source, &wanted)),
            ));
            outcomes.extend(self.encode(&schema, &source, &stream));
        }
        outcomes
    }

    /// The events of the source as the suite's framework produces them: without white space around
    /// texts, namespace declarations in reverse order, an internal subset by its declarations, and
    /// with the marks of self-contained elements.
    fn read(&self, source: &[u8], take: &mut Take<'_>) -> Result<(), text::Error> {
        let folder = self.source.parent();
        let mut external = |system: &str| std::fs::read(folder?.join(system)).ok();
        let mut declared: Vec<(String, String, bool)> = Vec::new();
        let take = &mut |event: Event<'_>| match event {
            _ if self.canonical.is_some() => take(event),
            Event::Namespace {
                prefix,
                namespace,
                of_element,
            } => {
                declared.push((prefix.to_owned(), namespace.to_owned(), of_element));
                Ok(())
            }
            event => {
                while let Some((prefix, namespace, of_element)) = declared.pop() {
                    take(Event::Namespace {
                        prefix: &prefix,
                        namespace: &namespace,
                        of_element,
                    })?;
                }
                self.made_up(event, take)
            }
        };
        let limits = Default::default();
        text::read_with(source, &self.options, limits, &mut external, take)
    }

    fn made_up(&self, event: Event<'_>, take: &mut Take<'_>) -> Result<(), text::Error> {
        // All self-contained elements of the suite have this name.
        let contained = |name: &Name<'_>| name.namespace == "urn:foo" && name.local == "ANY";
        match event {
            Event::StartElement(name) if self.options.self_contained && contained(&name) => {
                take(event)?;
                take(Event::SelfContained)
            }
            Event::DocType {
                name,
                public,
                system,
                text,
            } => take(Event::DocType {
                name,
                public,
                system,
                text: &infoset::subset(text),
            }),
            event => trimmed(event).map_or(Ok(()), take),
        }
    }

    fn decode(&self, schema: &Arc<Schema>, stream: &[u8], wanted: &[Item]) -> Result<(), String> {
        let schema = match (self.header.options, &self.schema) {
            // The stream chooses the name of its schema.
            (true, Some(_)) => match named(stream, schema) {
                SchemaId::Named(id) => Arc::new(Schema::clone(schema).with_id(&id)),
                _ => schema.clone(),
            },
            _ => schema.clone(),
        };
        let mut decoder = Decoder::new(schema);
        let mut reading = decoder
            .begin(stream, Some(&self.options))
            .map_err(|error| error.to_string())?;
        let options = reading.options().clone();
        let mut found = Vec::new();
        loop {
            match reading.next_event() {
                Ok(Some(event)) => found.push(Item::of(&event)),
                Ok(None) => break,
                Err(error) => return Err(format!("{error}, after {:?}", found.last())),
            }
        }
        infoset::compare(wanted, &found, &options)
    }

    /// Our stream of the source, with the header that the name requests.
    pub(crate) fn ours(&self, schemas: &mut Schemas) -> Result<Vec<u8>, String> {
        let schema = self.schema(schemas)?;
        let stream = std::fs::read(&self.stream).map_err(|error| error.to_string())?;
        let options = Options {
            schema_id: named(&stream, &schema),
            ..self.options.clone()
        };
        let mut encoder = Encoder::new(schema);
        self.made(&mut encoder, &options, self.header, &self.source())
    }

    /// Decodes a stream of the case; returns the document and the options.
    pub(crate) fn decoded(
        &self,
        schemas: &mut Schemas,
        stream: &[u8],
    ) -> Result<(Vec<Item>, Options), String> {
        let schema = self.schema(schemas)?;
        let schema = match named(stream, &schema) {
            SchemaId::Named(id) => Arc::new(Schema::clone(&schema).with_id(&id)),
            _ => schema,
        };
        let mut decoder = Decoder::new(schema);
        let reading = decoder.begin(stream, Some(&self.options));
        let mut reading = reading.map_err(|error| error.to_string())?;
        let options = reading.options().clone();
        let mut found = Vec::new();
        while let Some(event) = reading.next_event().map_err(|error| error.to_string())? {
            found.push(Item::of(&event));
        }
        Ok((found, options))
    }

    /// The document of the source.
    pub(crate) fn wanted(&self) -> Result<Vec<Item>, String> {
        let mut wanted = Vec::new();
        let read = self.read(&self.source(), &mut |event| {
            wanted.push(Item::of(&event));
            Ok(())
        });
        read.map_err(|error| format!("the source: {error}"))?;
        Ok(wanted)
    }

    pub(crate) fn source_path(&self) -> &Path {
        &self.source
    }

    /// The original source if it was changed later.
    pub(crate) fn changed_source(&self) -> Option<Vec<u8>> {
        let now = std::fs::read(&self.source).expect("every stream has its source");
        let then = self.source();
        (now != then).then_some(then)
    }

    fn source(&self) -> Vec<u8> {
        let source = std::fs::read(&self.source).expect("every stream has its source");
        as_encoded(&self.source, source)
    }

    /// The options in the format of the Java program.
    pub(crate) fn job(&self) -> String {
        let part = |at: usize| self.parts.get(at).map_or("", String::as_str);
        let schema = match self.schema.as_deref() {
            None => "-".to_owned(),
            Some("") => String::new(),
            Some(path) => self.suite.join(path).display().to_string(),
        };
        let map = self.parts.get(7..).unwrap_or_default().join(" ");
        let own = [part(1), part(2), part(3), part(4), part(5)].join("\t");
        format!("{own}\t{schema}\t{map}")
    }

    fn schema(&self, schemas: &mut Schemas) -> Result<Arc<Schema>, String> {
        match &self.schema {
            None => Ok(Arc::new(Schema::none())),
            Some(path) => schemas.get(&self.suite, path),
        }
    }

    /// Checks that a canonical stream is the same after decoding and encoding.
    fn canonical_again(&self, schema: &Arc<Schema>, stream: &[u8]) -> Result<(), String> {
        let mut encoder = Encoder::new(schema.clone());
        let schema_id = named(stream, schema);
        let schema = match &schema_id {
            SchemaId::Named(id) => Arc::new(Schema::clone(schema).with_id(id)),
            _ => schema.clone(),
        };
        let options = Options {
            schema_id,
            ..self.options.clone()
        };
        let canonical = self.canonical.unwrap_or_default();
        let writing = encoder.begin_canonical(&options, canonical);
        let mut writing = writing.map_err(|error| error.to_string())?;
        let mut decoder = Decoder::new(schema);
        let reading = decoder.begin(stream, Some(&options.canonical()));
        let mut reading = reading.map_err(|error| error.to_string())?;
        while let Some(event) = reading.next_event().map_err(|error| error.to_string())? {
            writing.event(event).map_err(|error| error.to_string())?;
        }
        let made = writing.finish().map_err(|error| error.to_string())?;
        same_bytes(made, stream)
    }

    fn round_trip(
        &self,
        schema: &Arc<Schema>,
        source: &[u8],
        wanted: &[Item],
    ) -> Result<(), String> {
        let mut encoder = Encoder::new(schema.clone());
        let stream = self.made(
            &mut encoder,
            &self.options,
            HeaderOptions::default(),
            source,
        )?;
        let mut decoder = Decoder::new(schema.clone());
        let mut reading = decoder
            .begin(&stream, Some(&self.options))
            .map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        while let Some(event) = reading.next_event().map_err(|error| error.to_string())? {
            found.push(Item::of(&event));
        }
        infoset::compare(wanted, &found, &self.options)
    }

    fn made(
        &self,
        encoder: &mut Encoder,
        options: &Options,
        header: HeaderOptions,
        source: &[u8],
    ) -> Result<Vec<u8>, String> {
        let writing = match self.canonical {
            Some(canonical) => encoder.begin_canonical(options, canonical),
            None => encoder.begin_with(options, header),
        };
        let mut writing = writing.map_err(|error| error.to_string())?;
        let written = self.read(source, &mut |event| Ok(writing.event(event)?));
        written.map_err(|error| error.to_string())?;
        Ok(writing
            .finish()
            .map_err(|error| error.to_string())?
            .to_vec())
    }

    /// The options of the stream; those in its header take precedence over those in its name.
    fn effective(&self, stream: &[u8], schema: &Arc<Schema>) -> Options {
        let schema_id = named(stream, schema);
        let schema = match &schema_id {
            SchemaId::Named(id) => Arc::new(Schema::clone(schema).with_id(id)),
            _ => schema.clone(),
        };
        let mut decoder = Decoder::new(schema);
        match decoder.begin(stream, None) {
            Ok(reading) => reading.options().clone(),
            Err(_) => Options {
                schema_id,
                ..self.options.clone()
            },
        }
    }

    /// Checks that the source encodes to the stream. Compressed streams are compared after
    /// inflating, because compressors differ.
    fn encode(
        &self,
        schema: &Arc<Schema>,
        source: &[u8],
        stream: &[u8],
    ) -> Vec<(&'static str, Outcome)> {
        let mut encoder = Encoder::new(schema.clone());
        let options = self.effective(stream, schema);
        let mut made = match self.made(&mut encoder, &options, self.header, source) {
            Ok(made) => made,
            Err(error) => return vec![("same bytes", Outcome::Failed(error))],
        };
        if self.canonical.is_none() {
            // The reference streams carry preview versions: 1 0000, 1 0001 and 1 0010.
            let at = if self.header.cookie { 4 } else { 0 };
            made[at] = made[at] & 0xe0 | stream[at] & 0x1f;
        }
        let mut outcomes = vec![("same bytes", outcome(same_bytes(&made, stream)))];
        if self.options.compression && self.canonical.is_none() {
            let inflated = |stream: &[u8]| inflated(stream, &options, schema);
            let same = inflated(&made)
                .and_then(|made| inflated(stream).and_then(|stream| same_bytes(&made, &stream)));
            outcomes.push(("inflated", outcome(same)));
        }
        outcomes
    }
}

/// The header, followed by the inflated content of each compressed stream of the body.
fn inflated(stream: &[u8], options: &Options, schema: &Arc<Schema>) -> Result<Vec<u8>, String> {
    let schema = match &options.schema_id {
        SchemaId::Named(id) => Arc::new(Schema::clone(schema).with_id(id)),
        _ => schema.clone(),
    };
    let mut decoder = Decoder::new(schema);
    let reading = decoder.begin(stream, Some(options));
    let reading = reading.map_err(|error| error.to_string())?;
    let body = reading.bit_offset().div_ceil(8) as usize;
    let (header, mut rest) = stream.split_at(body);
    let mut all = header.to_vec();
    while !rest.is_empty() {
        let mut state = InflateState::new(DataFormat::Raw);
        let mut block = vec![0; 1 << 20];
        let result = inflate(&mut state, rest, &mut block, MZFlush::Finish);
        if result.status != Ok(MZStatus::StreamEnd) {
            return Err("the body does not inflate".into());
        }
        rest = &rest[result.bytes_consumed..];
        all.extend_from_slice(b"|");
        all.extend_from_slice(&block[..result.bytes_written]);
    }
    Ok(all)
}

fn same_bytes(made: &[u8], stream: &[u8]) -> Result<(), String> {
    if made == stream {
        return Ok(());
    }
    let differs = made.iter().zip(stream).take_while(|(a, b)| a == b).count();
    Err(format!(
        "{} bytes for {}, differing at {differs}: {:02x?} for {:02x?}",
        made.len(),
        stream.len(),
        &made[differs..made.len().min(differs + 8)],
        &stream[differs..stream.len().min(differs + 8)],
    ))
}

/// The source as it was when its streams were made. Three sources were changed later; their streams
/// hold the documents that this function restores.
fn as_encoded(path: &Path, source: Vec<u8>) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match &*name {
        "doc-13.xml" => {
            let text = String::from_utf8(source).expect("it is UTF-8");
            let text = text.replace(" xmlns=\"http://www.w3.org/1999/xhtml\"", "");
            text.into_bytes()
        }
        "indexed-11.xml" => {
            let value = |number| format!("<a>test{number:02}</a>");
            let values: String = (0..100).chain(0..100).map(value).collect();
            format!("<root>{values}</root>").into_bytes()
        }
        "qname-invalid-00.xml" => QNAME_INVALID.to_vec(),
        _ => source,
    }
}

const QNAME_INVALID: &[u8] =
    br#"<root QName="xsi:type" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
    xmlns:xsd="http://www.w3.org/2001/XMLSchema">
    <QName xmlns:test="http://example.org/test">test:qname</QName>
    <QName xsi:type="xsd:QName">test:qname</QName>
    <QName xmlns:test="http://example.org/test" xsi:type="test:QName">test:qname</QName>
</root>"#;

/// The schemaId in the header of a stream.
fn named(stream: &[u8], schema: &Arc<Schema>) -> SchemaId {
    let mut decoder = Decoder::new(schema.clone());
    match decoder
        .begin(stream, None)
        .map(|reading| reading.options().schema_id.clone())
    {
        Ok(id) => id,
        Err(error) => match error.cause {
            chappe_exi::Cause::Schema { wanted, .. } => SchemaId::Named(wanted),
            _ => SchemaId::Absent,
        },
    }
}

fn outcome(result: Result<(), String>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ok,
        Err(detail) => Outcome::Failed(detail),
    }
}

/// Removes white space around texts, as the suite does.
pub(crate) fn trimmed<'v>(event: Event<'v>) -> Option<Event<'v>> {
    match event {
        Event::Characters(Value::Text(text)) => match text.trim_matches([' ', '\t', '\n', '\r']) {
            "" => None,
            text => Some(Event::Characters(Value::Text(text))),
        },
        event => Some(event),
    }
}

impl Schemas {
    fn get(&mut self, suite: &Path, path: &str) -> Result<Arc<Schema>, String> {
        let known = self.known.entry(path.to_owned());
        known
            .or_insert_with(|| match path {
                "" => Ok(Arc::new(Schema::built_in_types())),
                path => {
                    let file = suite.join(path);
                    let source = |file: &Path| {
                        let document = std::fs::read(file).ok()?;
                        let name = file.to_string_lossy().into_owned();
                        Some(XsdSource { name, document })
                    };
                    let first = source(&file).ok_or("there is no schema")?;
                    let mut resolve = |from: &str, location: &str| {
                        source(&Path::new(from).parent()?.join(location))
                    };
                    let schema = Schema::from_xsd(vec![first], &mut resolve);
                    schema.map(Arc::new).map_err(|error| error.to_string())
                }
            })
            .clone()
    }
}
