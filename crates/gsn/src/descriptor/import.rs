//! From GSN's descriptor to Chappe's, with a report.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_stream::descriptor::DescriptorFault as Fault;
use chappe_stream::descriptor::{
    Command, CommandField, FALLBACK_AFTER, FALLBACK_MAX, FieldInput, KEYS, Output, PerKey, Source,
    Statement,
};
use chappe_stream::{
    BindingPolicy, Descriptor, DescriptorError, Field, LatePolicy, Retention, Selection,
    StreamSchema, Timing, Value,
};
use serde::Serialize;

use super::model::{Address, Extent, GsnDescriptor, History, OutputField, Place};
use super::model::{Source as GsnSource, Stream, WebField};
use super::report::Report;
use super::tree::File;
use super::wrappers::{self, Unequal};
use super::{classes, sql, types};

/// A file as Chappe's descriptor.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The descriptor.
    pub descriptor: Descriptor,
    /// What became of each part of the file.
    pub report: Report,
    /// Streams of other servers that the sensor reads.
    pub links: Vec<NeededLink>,
}

/// A stream of another server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NeededLink {
    /// Its name there, and here.
    pub stream: String,
    /// The server, as far as the file names it: host, port or contact point, without credentials.
    pub server: Option<String>,
}

/// Wrappers that read a stream of the same server.
const LOCAL: [&str; 1] = ["local"];
/// Wrappers that read a stream of another server, or of the same.
const REMOTE: [&str; 9] = [
    "remote",
    "remote-rest",
    "remote-direct",
    "remote-api",
    "zeromq",
    "zeromq-async",
    "zeromq-sync",
    "remote-http",
    "remote-zeromq",
];
/// The longest time that a descriptor may have.
const AGE_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Attributes of GSN's dialects that no descriptor needs here.
const DIALECTS: [(&str, &str); 4] = [
    ("@index", "the log is indexed by time and number"),
    ("@defaultvalue", "a missing value is null"),
    ("@data-path-field", "bytes are stored in the stream"),
    ("@statistics", "the node counts the elements of each stream"),
];

struct Importer<'t> {
    file: File<'t>,
    report: Report,
    links: Vec<NeededLink>,
    /// The places of parts, by the keys of Chappe's descriptor.
    places: BTreeMap<String, Place>,
}

type Result<T> = std::result::Result<T, DescriptorError>;

/// Reads a file of GSN as Chappe's descriptor; `file` names it in errors.
///
/// # Errors
/// The first fault with its place: the file's own ([`GsnDescriptor::read`]), or a part that has no
/// counterpart and would change the data.
pub fn import(file: &str, text: &str) -> Result<Imported> {
    let read = GsnDescriptor::read(file, text)?;
    let mut importer = Importer {
        file: File::new(file, text),
        report: Report::default(),
        links: Vec::new(),
        places: BTreeMap::new(),
    };
    let made = importer.descriptor(&read)?;
    // Chappe's own checks, whose places are those of its TOML.
    let descriptor = Descriptor::parse(file, &made.to_toml());
    let descriptor = descriptor.map_err(|error| importer.placed(error))?;
    for (place, item) in &read.unknown {
        let known = DIALECTS.iter().find(|(name, _)| item.ends_with(name));
        let reason = known.map_or("GSN's descriptor does not have it", |(_, reason)| reason);
        importer.report.ignored(*place, item, reason);
    }
    importer.report.lines.sort_by_key(|line| line.line);
    Ok(Imported {
        descriptor,
        report: importer.report,
        links: importer.links,
    })
}

impl Importer<'_> {
    fn wrong(
        &self,
        fault: Fault,
        place: Place,
        key: &str,
        message: impl Into<String>,
        hint: Option<&str>,
    ) -> DescriptorError {
        self.file.error(fault, place, key, message, hint)
    }

    /// An error of the descriptor that was made, at the place of the part that it came from.
    fn placed(&self, mut error: DescriptorError) -> DescriptorError {
        let mut key = error.key.as_str();
        let place = loop {
            if let Some(place) = self.places.get(key) {
                break *place;
            }
            match key.rfind(['.', '[']) {
                Some(end) => key = &key[..end],
                None => break Place { line: 1, column: 1 },
            }
        };
        (error.line, error.column) = (place.line, place.column);
        error
    }

    fn descriptor(&mut self, from: &GsnDescriptor) -> Result<Descriptor> {
        let root = from.places.root;
        let name = types::stream_name(&from.name);
        match name == from.name.to_ascii_lowercase() {
            true => self.report.taken(root, "virtual-sensor@name"),
            false => self.report.changed(
                root,
                "virtual-sensor@name",
                format!("{name}: a name has parts of a-z, 0-9, _ and -"),
            ),
        }
        if from.is_protected {
            self.report.changed(
                root,
                "virtual-sensor@protected",
                "protected: the node runs it where access.read is \"token\"; `chappe account add` \
                 --role 'read=NAME' lets an account read it",
            );
        }
        self.top_level(from);
        let schema = self.schema(&from.class.fields)?;
        let mut made = Descriptor {
            description: from.description.clone(),
            is_protected: from.is_protected,
            metadata: self.metadata(from),
            commands: self.commands(from, &name)?,
            sources: Vec::new(),
            statements: Vec::new(),
            output: Output {
                stream: name.clone(),
                // GSN does not say when an element counts as stored.
                level: chappe_log::Level::Power,
                retention: from.history.map(|history| match history {
                    History::Elements(count) => Retention {
                        elements: Some(count.get()),
                        age: None,
                    },
                    History::Age(age) => Retention {
                        elements: None,
                        age: Some(age).filter(|age| *age <= AGE_MAX),
                    },
                }),
                rate: from.class.rate,
                unique_times: from.class.unique_times,
                drops_nulls: false,
                takes_any_columns: true,
                schema,
            },
            name,
        };
        let is_plain =
            matches!(&from.streams[..], [only] if only.rate.is_none() && only.count.is_none());
        let mut names: Vec<String> = Vec::new();
        for (index, stream) in from.streams.iter().enumerate() {
            let name = self.statement_name(index, stream, is_plain, &names);
            names.extend(name.clone());
            let several = from.streams.len() > 1;
            self.stream(&mut made, index, stream, name, several)?;
        }
        classes::apply(from, &mut made, &mut self.report).map_err(|wrong| {
            let (place, hint) = (from.class.place, Some(wrong.hint));
            let key = "processing-class/class-name";
            self.wrong(Fault::Value, place, key, wrong.message, hint)
        })?;
        Ok(made)
    }

    /// Attributes that concern the sensor as a whole.
    fn top_level(&mut self, from: &GsnDescriptor) {
        let report = &mut self.report;
        let places = from.places;
        if from.description.is_some() {
            report.taken(places.description, "description");
        }
        for (value, place, item, reason) in [
            (
                &from.priority,
                places.root,
                "virtual-sensor@priority",
                "each sensor is evaluated when its elements arrive",
            ),
            (
                &from.time_zone,
                places.root,
                "virtual-sensor@time-zone",
                "times are UTC; the console shows them in the time zone of the browser",
            ),
            (
                &from.pool_size,
                places.life_cycle,
                "life-cycle@pool-size",
                "a sensor is one machine, as in GSN 2",
            ),
        ] {
            if value.is_some() {
                report.ignored(place, item, reason);
            }
        }
        match from.history {
            Some(History::Age(age)) if age > AGE_MAX => report.changed(
                places.storage,
                "storage@history-size",
                "output.retention: no limit, because an age has at most 366 days",
            ),
            Some(_) => report.changed(
                places.storage,
                "storage@history-size",
                "output.retention: a stream keeps up to a sixteenth more",
            ),
            None => report.changed(
                places.root,
                "storage@history-size",
                "not given: the node's log.keep_elements and log.keep_age_s apply",
            ),
        }
        for name in &from.own_database {
            report.ignored(
                places.storage,
                format!("storage@{name}"),
                "every stream is stored in the node's log",
            );
        }
        let class = &from.class;
        report.taken(class.place, "processing-class@unique-timestamps");
        if class.rate.is_some() {
            report.changed(
                class.place,
                "processing-class/output-specification@rate",
                "output.rate: in source time, not in the server's; drops are counted",
            );
        }
        if let Some(field) = &class.partition_field {
            report.ignored(
                class.place,
                "processing-class/output-structure@partition-field",
                format!("the log is partitioned by size, not by {field}"),
            );
        }
        if class.has_command_password {
            report.ignored(
                class.place,
                "processing-class/web-input@password",
                "a change needs an account with the role operate",
            );
        }
    }

    fn schema(&mut self, fields: &[OutputField]) -> Result<StreamSchema> {
        let mut schema = StreamSchema::default();
        for (index, field) in fields.iter().enumerate() {
            let item = format!("processing-class/output-structure/field[{index}]");
            self.places
                .insert(format!("output.field[{index}]"), field.place);
            let (field_type, note) = types::field_type(&field.field_type)
                .map_err(|why| self.wrong(Fault::Value, field.place, &item, why, None))?;
            if let Some(note) = note {
                self.report
                    .changed(field.place, format!("{item}@type"), note);
            } else {
                self.report.taken(field.place, format!("{item}@type"));
            }
            let mut description = field.description.clone();
            let mut unit = None;
            if let Some(written) = &field.unit {
                unit = types::ucum(written);
                let item = format!("{item}@unit");
                match &unit {
                    Some(code) if code == written => self.report.taken(field.place, item),
                    Some(code) => self
                        .report
                        .changed(field.place, item, format!("UCUM: {code}")),
                    None => {
                        let text = description.take().unwrap_or_default();
                        let text = format!("{text} (unit: {written})").trim().to_owned();
                        description = Some(text);
                        let reason = "not a UCUM code, or another in UCUM: kept in the description";
                        self.report.changed(field.place, item, reason);
                    }
                }
            }
            schema.fields.push(Field {
                name: field.name.clone(),
                field_type,
                unit,
                observed_property: None,
                description,
            });
        }
        Ok(schema)
    }

    fn metadata(&mut self, from: &GsnDescriptor) -> BTreeMap<String, Value> {
        let place = from.places.addressing;
        let mut facts = BTreeMap::new();
        for (key, text) in &from.addressing {
            let item = format!("addressing/predicate[{key}]");
            let lower = key.to_ascii_lowercase();
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            let (property, value) = match (lower.as_str(), number) {
                ("latitude" | "longitude" | "altitude", Some(number)) => {
                    (lower, Value::Double(number))
                }
                _ => (key.clone(), Value::Text(text.clone())),
            };
            match facts.contains_key(&property) {
                true => self.report.ignored(place, item, "the key is there twice"),
                false => {
                    self.report
                        .changed(place, item, "metadata: a triple of the registry");
                    facts.insert(property, value);
                }
            }
        }
        facts
    }

    fn commands(&mut self, from: &GsnDescriptor, sensor: &str) -> Result<Vec<Command>> {
        let mut commands = Vec::new();
        for (index, command) in from.class.commands.iter().enumerate() {
            self.places
                .insert(format!("command[{index}]"), command.place);
            let mut fields = Vec::new();
            for field in &command.fields {
                let key = "processing-class/web-input/command/field@type";
                let made = command_field(field)
                    .map_err(|why| self.wrong(Fault::Value, field.place, key, why, None))?;
                fields.push(made);
            }
            let item = format!("processing-class/web-input/command[{}]", command.name);
            let made = Command {
                name: command.name.clone(),
                fields,
                pass_to: None,
            };
            let reason = format!(
                "command: `chappe sensor call` stores each call in the stream {sensor}.command.{}; a source with \
                 `command` reads it, and `pass_to` passes it on to a wrapper",
                made.stream_part()
            );
            self.report.changed(command.place, item, reason);
            commands.push(made);
        }
        Ok(commands)
    }

    fn statement_name(
        &mut self,
        index: usize,
        stream: &Stream,
        is_plain: bool,
        names: &[String],
    ) -> Option<String> {
        let item = format!("streams/stream[{index}]@name");
        if is_plain {
            if stream.name.is_some() {
                self.report
                    .ignored(stream.place, item, "the only statement needs no name");
            }
            return None;
        }
        let written = stream.name.as_deref();
        let mut name = match written {
            Some(written) => chappe_stream::name_part(written),
            None => format!("stream-{}", index + 1),
        };
        if names.contains(&name) {
            name = format!("{name}-{}", index + 1);
        }
        match written {
            Some(written) if written == name => self.report.taken(stream.place, item),
            Some(_) => self.report.changed(stream.place, item, name.clone()),
            None => {}
        }
        Some(name)
    }

    fn stream(
        &mut self,
        made: &mut Descriptor,
        index: usize,
        stream: &Stream,
        name: Option<String>,
        several: bool,
    ) -> Result<()> {
        let path = format!("streams/stream[{index}]");
        let key = match &name {
            Some(_) => format!("statement[{index}]."),
            None => String::new(),
        };
        let sql_key = match &name {
            Some(_) => format!("statement[{index}].sql"),
            None => "output.sql".to_owned(),
        };
        self.places.insert(sql_key, stream.query_place);
        self.places
            .insert(format!("statement[{index}]"), stream.place);
        if stream.rate.is_some() {
            self.report.changed(
                stream.place,
                format!("{path}@rate"),
                "statement.rate: in source time, not in the server's; drops are counted",
            );
        }
        if stream.count.is_some() {
            self.report.taken(stream.place, format!("{path}@count"));
        }
        let statement = self.sql(&stream.query, stream.query_place, &format!("{path}/query"))?;
        for (position, source) in stream.sources.iter().enumerate() {
            let path = format!("{path}/source[{position}]");
            let source_key = format!("{key}source[{position}]");
            self.places.insert(source_key.clone(), source.place);
            self.places
                .insert(format!("{source_key}.sql"), source.query_place);
            let full = [
                Some(made.name.as_str()),
                name.as_deref(),
                Some(&source.alias),
            ];
            let full: Vec<&str> = full.into_iter().flatten().collect();
            let mut source = self.source(source, &path, &full.join("."))?;
            source.statement = index;
            if several {
                let name = name.as_deref().unwrap_or_default();
                source.alias = format!("{name}.{}", source.alias);
            }
            made.sources.push(source);
        }
        made.statements.push(Statement {
            name,
            sql: statement,
            rate: stream.rate,
            count: stream.count,
        });
        Ok(())
    }

    /// A statement in SQLite's SQL.
    fn sql(&mut self, written: &str, place: Place, item: &str) -> Result<String> {
        let rewritten =
            sql::from_h2(written).map_err(|why| self.wrong(Fault::Sql, place, item, why, None))?;
        for note in &rewritten.notes {
            self.report.changed(place, item, note);
        }
        if rewritten.notes.is_empty() {
            match rewritten.sql == written.to_lowercase() {
                true => self.report.taken(place, item),
                false => self.report.changed(place, item, rewritten.sql.clone()),
            }
        }
        Ok(rewritten.sql)
    }

    fn source(&mut self, from: &GsnSource, path: &str, full: &str) -> Result<Source> {
        let place = from.place;
        self.report.taken(place, format!("{path}@alias"));
        for (given, name) in [(from.window, "storage-size"), (from.slide, "slide")] {
            if given.is_some() {
                self.report.taken(place, format!("{path}@{name}"));
            }
        }
        if from.sampling.is_some() {
            let reason = "sampling: by a hash of the element, where GSN selects by its time";
            self.report
                .changed(place, format!("{path}@sampling-rate"), reason);
        }
        if from.buffer.is_some() {
            self.report.ignored(
                place,
                format!("{path}@disconnected-buffer-size"),
                "a sensor continues after the last element that it evaluated, from the log",
            );
        }
        let mut own = None;
        if let Some(query) = &from.query {
            let item = format!("{path}/query");
            let sql = self.sql(query, from.query_place, &item)?;
            own = Some(sql).filter(|sql| !sql::passes_on(sql, "wrapper"));
        }
        let (selection, inner) = match from.addresses.first() {
            Some(address) => self.address(address, &format!("{path}/address[0]"), full)?,
            None => (Selection::Stream(types::stream_name(full)), None),
        };
        let fallback = self.fallback(from, path, full, inner.as_deref())?;
        if let Some(inner) = inner {
            if own.is_some() {
                let message = "both the source and the predicate `query` of its address select";
                let hint = Some("write the whole selection into the source's query");
                let key = format!("{path}/address");
                return Err(self.wrong(Fault::Sql, place, &key, message, hint));
            }
            own = Some(inner);
        }
        let extent = |given: Option<Extent>| match given {
            Some(Extent::Elements(count)) => chappe_stream::Extent::Count(count),
            Some(Extent::Time(length)) => chappe_stream::Extent::Time(length),
            None => chappe_stream::Extent::Count(1),
        };
        let (window, slide) = (extent(from.window), extent(from.slide));
        Ok(Source {
            alias: from.alias.clone(),
            statement: 0,
            sql: own,
            sampling: from.sampling.unwrap_or(1.0),
            selection,
            fallback,
            fallback_after: FALLBACK_AFTER,
            policy: BindingPolicy::One,
            window,
            slide,
            first: first_evaluation(window, slide),
            late: LatePolicy::Drop,
            timing: Timing {
                unique_times: true,
                ..Timing::default()
            },
            per: self.per(from, path),
        })
    }

    /// The window for each key of a source.
    fn per(&mut self, from: &GsnSource, path: &str) -> Option<PerKey> {
        let address = from.addresses.first()?;
        let column = address.order_key.as_ref()?.to_ascii_lowercase();
        let reason = format!("per: a window for each {column}, where GSN has one for all");
        let item = format!("{path}/address[0]@partial-order-key");
        self.report.changed(address.place, item, reason);
        Some(PerKey { column, keys: KEYS })
    }

    /// The further choices of a source. `inner` is the statement that its first address names.
    fn fallback(
        &mut self,
        from: &GsnSource,
        path: &str,
        full: &str,
        inner: Option<&str>,
    ) -> Result<Vec<Selection>> {
        let mut choices = Vec::new();
        for (index, address) in from.addresses.iter().enumerate().skip(1) {
            let item = format!("{path}/address[{index}]");
            let wrapper = address.wrapper.to_ascii_lowercase();
            let full = format!("{full}.{}", choices.len() + 2);
            let is_stream = LOCAL.contains(&&*wrapper) || REMOTE.contains(&&*wrapper);
            let reason = match wrappers::equal(address, &types::stream_name(&full)) {
                _ if choices.len() == FALLBACK_MAX => Some(format!(
                    "a source has at most {FALLBACK_MAX} further choices"
                )),
                Err(Unequal::Kind) if !is_stream => {
                    Some(format!("the wrapper {wrapper} is not run here"))
                }
                Err(Unequal::Reason(reason)) if !is_stream => {
                    Some(format!("the wrapper {wrapper} is not run here: {reason}"))
                }
                _ => None,
            };
            if let Some(reason) = reason {
                self.report.ignored(address.place, item, reason);
                continue;
            }
            let (choice, own) = self.address(address, &item, &full)?;
            let reason = match (own.as_deref(), inner) {
                (None, None) => "fallback: used while those before it deliver nothing",
                (own, inner) if own == inner => {
                    "fallback: used while those before it deliver nothing"
                }
                (None, Some(_)) => "fallback: the query of the first address applies to it, too",
                (Some(_), _) => {
                    let reason = "its query differs from that of the first address";
                    self.report.ignored(address.place, item, reason);
                    continue;
                }
            };
            self.report.changed(address.place, item, reason);
            choices.push(choice);
        }
        Ok(choices)
    }

    /// The stream of an address, and the statement over it that the address names.
    fn address(
        &mut self,
        address: &Address,
        item: &str,
        full: &str,
    ) -> Result<(Selection, Option<String>)> {
        let wrapper = address.wrapper.to_ascii_lowercase();
        let is_remote = REMOTE.contains(&wrapper.as_str());
        let stream = types::stream_name(full);
        if !address.fields.is_empty() {
            let item = format!("{item}/output-structure");
            match wrappers::takes_fields(&wrapper) {
                true => self.report.taken(address.place, item),
                false => {
                    let reason = "the fields are those of the stream";
                    self.report.ignored(address.place, item, reason);
                }
            }
        }
        let why = match wrappers::equal(address, &stream) {
            Ok(equal) => {
                self.report
                    .changed(address.place, format!("{item}@wrapper"), equal.note);
                for (key, _) in &address.predicates {
                    let item = format!("{item}/predicate[{key}]");
                    match equal.used.iter().any(|used| used.eq_ignore_ascii_case(key)) {
                        true => self.report.taken(address.place, item),
                        false => {
                            let reason = "the wrapper has no such key";
                            self.report.ignored(address.place, item, reason);
                        }
                    }
                }
                return Ok((Selection::Wrapper(equal.wrapper), None));
            }
            Err(Unequal::Reason(reason)) => format!(": {reason}"),
            Err(Unequal::Kind) => String::new(),
        };
        if !is_remote && !LOCAL.contains(&wrapper.as_str()) {
            let reason = format!(
                "stream {stream}: the wrapper is not run here{why}; write its elements to the stream \
                 (chappe stream create, chappe write), or let a wrapper of the node produce it"
            );
            self.report
                .changed(address.place, format!("{item}@wrapper"), reason);
            for (key, _) in &address.predicates {
                let item = format!("{item}/predicate[{key}]");
                let reason = "the wrapper is not run here";
                self.report.ignored(address.place, item, reason);
            }
            return Ok((Selection::Stream(stream), None));
        }
        let (stream, inner) = self.named_stream(address, item)?;
        if is_remote {
            let server = server(address);
            let to = server.as_deref().unwrap_or("HOST:PORT");
            let reason = format!(
                "stream {stream}, over a link: chappe link add NAME http://{} --streams {stream}",
                to.trim_start_matches("http://")
                    .trim_start_matches("tcp://")
            );
            self.report
                .changed(address.place, format!("{item}@wrapper"), reason);
            let stream = stream.clone();
            self.links.push(NeededLink { stream, server });
        } else {
            let reason = format!("stream {stream}");
            self.report
                .changed(address.place, format!("{item}@wrapper"), reason);
        }
        Ok((Selection::Stream(stream), inner))
    }

    /// The stream that the predicates of an address name, and the statement over it.
    fn named_stream(&mut self, address: &Address, item: &str) -> Result<(String, Option<String>)> {
        let names = ["name", "vsensor", "vs", "sensor", "virtual-sensor"];
        if let Some(name) = address.predicate(&names).filter(|name| !name.is_empty()) {
            return Ok((types::stream_name(name), None));
        }
        let wrong = |message: &str| {
            let hint = "add <predicate key=\"name\">, the name of the sensor that it reads";
            self.wrong(Fault::Value, address.place, item, message, Some(hint))
        };
        let Some(query) = address.predicate(&["query"]) else {
            return Err(wrong("the address names no sensor"));
        };
        let rewritten = sql::from_h2(query).map_err(|why| wrong(&why))?;
        let (table, inner) = sql::single_table(&rewritten.sql)
            .ok_or_else(|| wrong("the predicate `query` does not read one sensor"))?;
        let passes = sql::passes_on(&inner, "wrapper");
        Ok((types::stream_name(&table), (!passes).then_some(inner)))
    }
}

/// GSN evaluates a window of elements first when it is full, and a window of time after a whole slide of elements.
pub(super) fn first_evaluation(
    window: chappe_stream::Extent,
    slide: chappe_stream::Extent,
) -> usize {
    use chappe_stream::Extent::{Count, Time};
    match (window, slide) {
        (Count(window), Count(_)) => window,
        (Time(_), Count(slide)) => slide,
        (_, Time(_)) => 1,
    }
}

/// The server of an address, without a user and a password.
fn server(address: &Address) -> Option<String> {
    let point = address.predicate(&[
        "remote-contact-point",
        "remote-contact_point",
        "address",
        "url",
    ]);
    let host = address.predicate(&["host"]);
    let server = match (point, host) {
        (Some(point), _) => {
            let (scheme, rest) = point.split_once("://").unwrap_or(("", point));
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let plain = authority.rsplit('@').next().unwrap_or_default();
            match scheme {
                "" => plain.to_owned(),
                _ => format!("{scheme}://{plain}"),
            }
        }
        (None, Some(host)) => match address.predicate(&["port"]) {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        },
        (None, None) => return None,
    };
    (!server.is_empty() && !server.contains(char::is_whitespace)).then_some(server)
}

/// `*binary:2mb`, `radio:a|b`, `select:a|b`, `checkbox:a|b`, `text`; a star is for required ones.
fn command_field(field: &WebField) -> std::result::Result<CommandField, String> {
    let written = field.input.trim();
    let (is_required, written) = match written.strip_prefix('*') {
        Some(rest) => (true, rest.trim()),
        None => (false, written),
    };
    let (kind, rest) = written.split_once(':').unwrap_or((written, ""));
    let choices = || -> Vec<String> {
        let choices = rest.split('|').map(str::trim);
        let choices = choices.filter(|choice| !choice.is_empty());
        choices.map(str::to_owned).collect()
    };
    let input = match kind.trim().to_ascii_lowercase().as_str() {
        "radio" => FieldInput::Radio(choices()),
        "select" => FieldInput::Select(choices()),
        "checkbox" => FieldInput::Checkbox(choices()),
        "binary" => FieldInput::Binary {
            bytes_max: match rest.trim() {
                "" => None,
                size => Some(bytes(size).ok_or_else(|| format!("{size:?} is not a size"))?),
            },
        },
        "text" | "" => FieldInput::Text,
        other => {
            return Err(format!(
                "{other:?} is not text, binary, radio, select or checkbox"
            ));
        }
    };
    Ok(CommandField {
        name: field.name.clone(),
        input,
        is_required,
        description: field.description.clone(),
    })
}

/// `2mb`, `100k`, `512`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}
