//! From the elements of a file to a descriptor.

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_stream::DescriptorError;
use chappe_stream::descriptor::DescriptorFault as Fault;
use chappe_stream::descriptor::{SOURCES_MAX, STATEMENTS_MAX};

use super::model::{
    Address, Extent, GsnDescriptor, History, OutputField, Place, ProcessingClass, Source, Stream,
    WebCommand, WebField,
};
use super::tree::{File, Tag};

/// Attributes of `storage` that name a database.
const DATABASE: [&str; 6] = [
    "driver",
    "url",
    "user",
    "password",
    "identifier",
    "storage-directory",
];

struct Reading<'t> {
    file: File<'t>,
    unknown: Vec<(Place, String)>,
}

type Result<T> = std::result::Result<T, DescriptorError>;

pub(super) fn read(file: &str, text: &str) -> Result<GsnDescriptor> {
    let file = File::new(file, text);
    let root = file.tree()?;
    let mut reading = Reading {
        file,
        unknown: Vec::new(),
    };
    if root.name != "virtual-sensor" {
        let message = format!("the root is <{}>, not <virtual-sensor>", root.name);
        return Err(file.error(Fault::Syntax, root.place, "", message, None));
    }
    let mut descriptor = reading.root(&root)?;
    reading
        .unknown
        .sort_by_key(|(place, _)| (place.line, place.column));
    descriptor.unknown = reading.unknown;
    Ok(descriptor)
}

impl Reading<'_> {
    fn wrong(&self, tag: &Tag, key: &str, message: impl Into<String>) -> DescriptorError {
        let key = format!("{}{key}", tag.name);
        self.file.error(Fault::Value, tag.place, key, message, None)
    }

    fn missing(&self, tag: &Tag, key: &str) -> DescriptorError {
        let (key, message) = (format!("{}{key}", tag.name), "this is missing");
        self.file
            .error(Fault::MissingKey, tag.place, key, message, None)
    }

    fn need<'g>(&self, tag: &'g Tag, name: &str) -> Result<&'g str> {
        let value = tag.attribute(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| self.missing(tag, &format!("@{name}")))
    }

    /// Remembers what was not asked for.
    fn done(&mut self, tag: &Tag, path: &str) {
        let unused = tag.unused().into_iter();
        self.unknown
            .extend(unused.map(|(place, name)| (place, format!("{path}{name}"))));
    }

    fn root(&mut self, root: &Tag) -> Result<GsnDescriptor> {
        let name = self.need(root, "name")?;
        let name: String = name.chars().filter(|c| !c.is_whitespace()).collect();
        let mut descriptor = GsnDescriptor {
            name,
            is_protected: self.boolean(root, "protected", false)?,
            priority: owned(root.attribute("priority")),
            time_zone: owned(root.attribute("time-zone")),
            ..GsnDescriptor::default()
        };
        descriptor.places.root = root.place;
        let class = root.child(&["processing-class"]);
        let class = class.ok_or_else(|| self.missing(root, "/processing-class"))?;
        descriptor.class = self.class(class)?;
        if let Some(text) = root.child(&["description"]) {
            descriptor.description = owned(Some(text.text()));
            descriptor.places.description = text.place;
            self.done(text, "description");
        }
        if let Some(addressing) = root.child(&["addressing"]) {
            descriptor.addressing = self.predicates(addressing, "addressing")?;
            descriptor.places.addressing = addressing.place;
            self.done(addressing, "addressing");
        }
        if let Some(life_cycle) = root.child(&["life-cycle"]) {
            descriptor.pool_size = owned(life_cycle.attribute("pool-size"));
            descriptor.places.life_cycle = life_cycle.place;
            self.done(life_cycle, "life-cycle");
        }
        if let Some(storage) = root.child(&["storage"]) {
            descriptor.history = self.history(storage)?;
            descriptor.places.storage = storage.place;
            for name in DATABASE {
                if storage.attribute(name).is_some() {
                    descriptor.own_database.push(name.to_owned());
                }
            }
            self.done(storage, "storage");
        }
        let streams = root.child(&["streams", "input-streams"]);
        let streams = streams.ok_or_else(|| self.missing(root, "/streams"))?;
        let found = streams.children_named(&["stream", "input-stream"]);
        if found.is_empty() || found.len() > STATEMENTS_MAX {
            let message = format!(
                "there are {} streams; 1 to {STATEMENTS_MAX} are allowed",
                found.len()
            );
            return Err(self.wrong(streams, "", message));
        }
        for (index, stream) in found.into_iter().enumerate() {
            let stream = self.stream(stream, &format!("streams/stream[{index}]"))?;
            descriptor.streams.push(stream);
        }
        self.done(streams, "streams");
        self.done(root, "virtual-sensor");
        Ok(descriptor)
    }

    fn class(&mut self, tag: &Tag) -> Result<ProcessingClass> {
        let name = tag.child(&["class-name"]);
        let name = name.ok_or_else(|| self.missing(tag, "/class-name"))?;
        self.done(name, "processing-class/class-name");
        let mut class = ProcessingClass {
            place: tag.place,
            name: name.text().to_owned(),
            unique_times: true,
            ..ProcessingClass::default()
        };
        // Both forms are in use.
        class.unique_times = match tag.child(&["unique-timestamps"]) {
            Some(text) => self.truth(text, "", text.text())?,
            None => self.boolean(tag, "unique-timestamps", true)?,
        };
        if let Some(parameters) = tag.child(&["init-params"]) {
            for parameter in parameters.children_named(&["param"]) {
                let name = self.need(parameter, "name")?.to_owned();
                let text = parameter.text();
                let value = parameter.attribute("value").unwrap_or(text).to_owned();
                class.parameters.push((name, value));
                self.done(parameter, "processing-class/init-params/param");
            }
            self.done(parameters, "processing-class/init-params");
        }
        if let Some(output) = tag.child(&["output-specification"]) {
            class.rate = self.milliseconds(output, "rate")?;
            self.done(output, "processing-class/output-specification");
        }
        let structure = tag.child(&["output-structure"]);
        let structure = structure.ok_or_else(|| self.missing(tag, "/output-structure"))?;
        class.partition_field = owned(structure.attribute("partition-field"));
        class.fields = self.fields(structure, "processing-class/output-structure")?;
        if class.fields.is_empty() {
            return Err(self.missing(structure, "/field"));
        }
        if let Some(input) = tag.child(&["web-input"]) {
            class.has_command_password = input.attribute("password").is_some();
            for command in input.children_named(&["command"]) {
                class.commands.push(self.command(command)?);
            }
            self.done(input, "processing-class/web-input");
        }
        self.done(tag, "processing-class");
        Ok(class)
    }

    fn fields(&mut self, structure: &Tag, path: &str) -> Result<Vec<OutputField>> {
        let mut fields: Vec<OutputField> = Vec::new();
        for (index, field) in structure.children_named(&["field"]).into_iter().enumerate() {
            let name = self.need(field, "name")?.to_ascii_lowercase();
            if fields.iter().any(|other| other.name == name) {
                return Err(self.wrong(field, "@name", format!("there is another field {name:?}")));
            }
            fields.push(OutputField {
                place: field.place,
                name,
                field_type: self.need(field, "type")?.to_owned(),
                unit: owned(field.attribute("unit")),
                description: owned(Some(field.text())),
            });
            self.done(field, &format!("{path}/field[{index}]"));
        }
        self.done(structure, path);
        Ok(fields)
    }

    fn command(&mut self, tag: &Tag) -> Result<WebCommand> {
        let mut command = WebCommand {
            place: tag.place,
            name: self.need(tag, "name")?.to_owned(),
            fields: Vec::new(),
        };
        for field in tag.children_named(&["field"]) {
            command.fields.push(WebField {
                place: field.place,
                name: self.need(field, "name")?.to_owned(),
                input: field.attribute("type").unwrap_or("text").to_owned(),
                description: owned(Some(field.text())),
            });
            self.done(field, "processing-class/web-input/command/field");
        }
        self.done(tag, "processing-class/web-input/command");
        Ok(command)
    }

    fn stream(&mut self, tag: &Tag, path: &str) -> Result<Stream> {
        let query = tag.child(&["query"]);
        let query = query.ok_or_else(|| self.missing(tag, "/query"))?;
        self.done(query, &format!("{path}/query"));
        let mut stream = Stream {
            place: tag.place,
            name: owned(tag.attribute("name")),
            rate: self.milliseconds(tag, "rate")?,
            count: NonZeroU64::new(self.number(tag, "count")?.unwrap_or(0)),
            query: query.text().to_owned(),
            query_place: query.place,
            sources: Vec::new(),
        };
        let sources = tag.children_named(&["source", "stream-source"]);
        if sources.is_empty() || sources.len() > SOURCES_MAX {
            let message = format!(
                "there are {} sources; 1 to {SOURCES_MAX} are allowed",
                sources.len()
            );
            return Err(self.wrong(tag, "/source", message));
        }
        for (index, source) in sources.into_iter().enumerate() {
            let source = self.source(source, &format!("{path}/source[{index}]"))?;
            stream.sources.push(source);
        }
        self.done(tag, path);
        Ok(stream)
    }

    fn source(&mut self, tag: &Tag, path: &str) -> Result<Source> {
        let mut source = Source {
            place: tag.place,
            alias: self.need(tag, "alias")?.to_ascii_lowercase(),
            window: self.extent(tag, "storage-size")?,
            slide: self.extent(tag, "slide")?,
            sampling: None,
            buffer: owned(tag.attribute("disconnected-buffer-size")),
            query: None,
            query_place: tag.place,
            addresses: Vec::new(),
        };
        if let Some(text) = tag.attribute("sampling-rate") {
            let share = text.parse::<f64>().ok();
            let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
            let message = || format!("{text:?} is not a share above 0 and at most 1");
            source.sampling =
                Some(share.ok_or_else(|| self.wrong(tag, "@sampling-rate", message()))?);
        }
        if let Some(query) = tag.child(&["query"]) {
            source.query = owned(Some(query.text()));
            source.query_place = query.place;
            self.done(query, &format!("{path}/query"));
        }
        for address in tag.children_named(&["address"]) {
            let path = format!("{path}/address");
            let mut made = Address {
                place: address.place,
                wrapper: self.need(address, "wrapper")?.to_owned(),
                order_key: owned(address.attribute("partial-order-key")),
                predicates: self.predicates(address, &path)?,
                fields: Vec::new(),
            };
            if let Some(structure) = address.child(&["output-structure"]) {
                made.fields = self.fields(structure, &format!("{path}/output-structure"))?;
            }
            source.addresses.push(made);
            self.done(address, &path);
        }
        if source.addresses.is_empty() {
            return Err(self.missing(tag, "/address"));
        }
        self.done(tag, path);
        Ok(source)
    }

    fn predicates(&mut self, tag: &Tag, path: &str) -> Result<Vec<(String, String)>> {
        let mut predicates = Vec::new();
        for predicate in tag.children_named(&["predicate"]) {
            let key = self.need(predicate, "key")?.to_owned();
            predicates.push((key, predicate.text().to_owned()));
            self.done(predicate, &format!("{path}/predicate"));
        }
        Ok(predicates)
    }

    fn history(&self, tag: &Tag) -> Result<Option<History>> {
        Ok(match self.extent(tag, "history-size")? {
            Some(Extent::Elements(count)) => NonZeroU64::new(count as u64).map(History::Elements),
            Some(Extent::Time(age)) => Some(History::Age(age)),
            None => None,
        })
    }

    /// A number, or a number with the unit `s`, `m` or `h`; nothing for 0.
    fn extent(&self, tag: &Tag, name: &str) -> Result<Option<Extent>> {
        let Some(text) = tag.attribute(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let unit_s = match text.as_bytes()[text.len() - 1] {
            b's' => Some(1),
            b'm' => Some(60),
            b'h' => Some(3_600),
            _ => None,
        };
        let number = match unit_s {
            Some(_) => text[..text.len() - 1].trim(),
            None => text,
        };
        let extent = match (number.parse::<u32>().ok(), unit_s) {
            (Some(0), _) => return Ok(None),
            (Some(number), Some(unit_s)) => u64::from(number)
                .checked_mul(unit_s)
                .map(|seconds| Extent::Time(Duration::from_secs(seconds))),
            (Some(number), None) => usize::try_from(number).ok().map(Extent::Elements),
            (None, _) => None,
        };
        let message = || format!("{text:?} is not a number, or a time in s, m or h");
        let extent = extent.ok_or_else(|| self.wrong(tag, &format!("@{name}"), message()))?;
        Ok(Some(extent))
    }

    fn number(&self, tag: &Tag, name: &str) -> Result<Option<u64>> {
        let Some(text) = tag.attribute(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let message = || format!("{text:?} is not a whole number");
        let number = text.parse::<u64>();
        let number = number.map_err(|_| self.wrong(tag, &format!("@{name}"), message()))?;
        Ok(Some(number))
    }

    fn milliseconds(&self, tag: &Tag, name: &str) -> Result<Option<Duration>> {
        let number = self.number(tag, name)?.filter(|number| *number > 0);
        Ok(number.map(Duration::from_millis))
    }

    fn boolean(&self, tag: &Tag, name: &str, default: bool) -> Result<bool> {
        match tag.attribute(name).filter(|text| !text.is_empty()) {
            Some(text) => self.truth(tag, &format!("@{name}"), text),
            None => Ok(default),
        }
    }

    fn truth(&self, tag: &Tag, key: &str, text: &str) -> Result<bool> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.wrong(tag, key, format!("{text:?} is neither true nor false"))),
        }
    }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
