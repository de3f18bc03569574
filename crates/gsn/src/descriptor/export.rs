//! From Chappe's descriptor to GSN's, with a report.

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_stream::descriptor::{Command, FieldInput, Source};
use chappe_stream::{
    BindingPolicy, Descriptor, EarlyPolicy, LatePolicy, Retention, Selection, Value, WindowClock,
};

use super::model::{
    Address, Extent, GsnDescriptor, History, OutputField, Place, ProcessingClass,
    Source as GsnSource, Stream, WebCommand, WebField,
};
use super::report::Report;
use super::{sql, types};

/// A descriptor that GSN's format cannot say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportError {
    /// The key of the part.
    pub key: String,
    /// The reason.
    pub message: String,
}

impl std::fmt::Display for ExportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl std::error::Error for ExportError {}

const NOWHERE: Place = Place { line: 0, column: 0 };

/// Makes GSN's descriptor of Chappe's, with what became of each key that is not at its default.
///
/// # Errors
/// A part without a counterpart that would change the data: a source that is found by a query, a field of
/// samples, a window that is no whole number of seconds.
pub fn export(descriptor: &Descriptor) -> Result<(GsnDescriptor, Report), ExportError> {
    let mut report = Report::default();
    let output = &descriptor.output;
    let history = output
        .retention
        .and_then(|retention| history(retention, &mut report));
    for (is_given, key, reason) in [
        (
            output.stream != descriptor.name,
            "output.stream",
            "the stream has the sensor's name",
        ),
        (
            output.level != chappe_log::Level::Power,
            "output.level",
            "GSN's database decides",
        ),
        (
            output.schema.key.is_some(),
            "output.key",
            "elements have no key",
        ),
    ] {
        if is_given {
            report.ignored(NOWHERE, key, reason);
        }
    }
    let mut class = ProcessingClass {
        name: "ch.epfl.gsn.vsensor.BridgeVirtualSensor".to_owned(),
        unique_times: output.unique_times,
        rate: output.rate,
        fields: fields(descriptor, &mut report)?,
        commands: descriptor.commands.iter().map(command).collect(),
        ..ProcessingClass::default()
    };
    if output.rate.is_some() {
        report.changed(NOWHERE, "output.rate", "in the server's time");
    }
    if output.drops_nulls {
        class
            .parameters
            .push(("allow-nulls".to_owned(), "false".to_owned()));
        report.taken(NOWHERE, "output.nulls");
    }
    let mut streams = Vec::new();
    for (index, statement) in descriptor.statements.iter().enumerate() {
        let mut sources = Vec::new();
        for (position, of_statement) in descriptor.sources_of(index).enumerate() {
            let key = match descriptor.statements.len() {
                1 => format!("source[{position}]"),
                _ => format!("statement[{index}].source[{position}]"),
            };
            sources.push(source(of_statement, &key, &mut report)?);
        }
        report.changed(NOWHERE, "sql", "in H2's SQL, as far as it differs");
        streams.push(Stream {
            name: statement.name.clone().or_else(|| Some("data".to_owned())),
            rate: statement.rate,
            count: statement.count,
            query: sql::to_h2(&statement.sql).trim().to_owned(),
            sources,
            ..Stream::default()
        });
    }
    let addressing = descriptor.metadata.iter().map(|(property, value)| {
        let key = match property.as_str() {
            "latitude" | "longitude" | "altitude" => property.to_ascii_uppercase(),
            _ => property.clone(),
        };
        (key, value_text(value))
    });
    let made = GsnDescriptor {
        name: descriptor.name.clone(),
        is_protected: descriptor.is_protected,
        class,
        description: descriptor.description.clone(),
        addressing: addressing.collect(),
        history,
        streams,
        ..GsnDescriptor::default()
    };
    Ok((made, report))
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Double(value) => format!("{value:?}"),
        Value::Text(text) => text.clone(),
        Value::Null | Value::Bytes(_) | Value::Samples(_) => String::new(),
    }
}

fn history(retention: Retention, report: &mut Report) -> Option<History> {
    let key = "output.retention";
    let elements = retention.elements.and_then(NonZeroU64::new);
    let age = retention.age.filter(|age| is_whole(*age));
    match (elements, age) {
        (Some(elements), age) => {
            match age {
                Some(_) => report.changed(NOWHERE, key, "the number of elements alone"),
                None => report.taken(NOWHERE, key),
            }
            Some(History::Elements(elements))
        }
        (None, Some(age)) => {
            report.taken(NOWHERE, key);
            Some(History::Age(age))
        }
        (None, None) => {
            report.ignored(NOWHERE, key, "GSN keeps what has no history-size");
            None
        }
    }
}

fn is_whole(time: Duration) -> bool {
    time.subsec_nanos() == 0 && u32::try_from(time.as_secs()).is_ok()
}

fn fields(descriptor: &Descriptor, report: &mut Report) -> Result<Vec<OutputField>, ExportError> {
    let mut fields = Vec::new();
    for (index, field) in descriptor.output.schema.fields.iter().enumerate() {
        let key = format!("output.field[{index}]");
        let Some((field_type, note)) = types::gsn_type(field.field_type) else {
            return Err(ExportError {
                key,
                message: "GSN has no type for samples".to_owned(),
            });
        };
        match note {
            Some(note) => report.changed(NOWHERE, &key, note),
            None => report.taken(NOWHERE, &key),
        }
        if field.observed_property.is_some() {
            let key = format!("{key}.observed_property");
            report.ignored(NOWHERE, key, "GSN's fields have none");
        }
        fields.push(OutputField {
            place: NOWHERE,
            name: field.name.clone(),
            field_type: field_type.to_owned(),
            unit: field.unit.clone(),
            description: field.description.clone(),
        });
    }
    Ok(fields)
}

fn command(command: &Command) -> WebCommand {
    let fields = command.fields.iter().map(|field| {
        let input = match &field.input {
            FieldInput::Text => "text".to_owned(),
            FieldInput::Binary { bytes_max: None } => "binary".to_owned(),
            FieldInput::Binary {
                bytes_max: Some(bytes),
            } => match bytes % (1 << 20) {
                0 => format!("binary:{}mb", bytes >> 20),
                _ => format!("binary:{bytes}"),
            },
            FieldInput::Radio(choices) => format!("radio:{}", choices.join("|")),
            FieldInput::Select(choices) => format!("select:{}", choices.join("|")),
            FieldInput::Checkbox(choices) => format!("checkbox:{}", choices.join("|")),
        };
        let star = if field.is_required { "*" } else { "" };
        WebField {
            place: NOWHERE,
            name: field.name.clone(),
            input: format!("{star}{input}"),
            description: field.description.clone(),
        }
    });
    WebCommand {
        place: NOWHERE,
        name: command.name.clone(),
        fields: fields.collect(),
    }
}

fn source(source: &Source, key: &str, report: &mut Report) -> Result<GsnSource, ExportError> {
    let Selection::Stream(stream) = &source.selection else {
        return Err(ExportError {
            key: format!("{key}.query"),
            message: "GSN has no search for streams; name the stream".to_owned(),
        });
    };
    if source.policy == BindingPolicy::All {
        report.ignored(NOWHERE, format!("{key}.bind"), "a source has one stream");
    }
    if source.late == LatePolicy::Drop {
        report.taken(NOWHERE, format!("{key}.late"));
    }
    if source.sampling < 1.0 {
        let reason = "GSN selects by the time of an element";
        report.changed(NOWHERE, format!("{key}.sampling"), reason);
    }
    let timing = &source.timing;
    if source.per.is_some() {
        return Err(ExportError {
            key: format!("{key}.per"),
            message: "GSN has no window for each key".to_owned(),
        });
    }
    if timing.clock == WindowClock::Node {
        let reason = "a slide of time runs on the clock of the server";
        report.changed(NOWHERE, format!("{key}.clock"), reason);
    } else if timing.wait.is_some() {
        report.ignored(
            NOWHERE,
            format!("{key}.wait"),
            "GSN waits for no late element",
        );
    }
    if timing.unique_times {
        report.ignored(
            NOWHERE,
            format!("{key}.unique_times"),
            "GSN knows unique times of outputs",
        );
    }
    if timing.ahead != chappe_stream::AHEAD || timing.early == EarlyPolicy::DeadLetter {
        report.ignored(
            NOWHERE,
            format!("{key}.ahead"),
            "GSN does not look at clocks",
        );
    }
    report.changed(NOWHERE, format!("{key}.stream"), "wrapper local");
    let extent = |extent: chappe_stream::Extent, name: &str| match extent {
        chappe_stream::Extent::Count(count) => Ok(Some(Extent::Elements(count))),
        chappe_stream::Extent::Time(length) if is_whole(length) => Ok(Some(Extent::Time(length))),
        chappe_stream::Extent::Time(length) => Err(ExportError {
            key: format!("{key}.{name}"),
            message: format!("{length:?} is not a whole number of seconds"),
        }),
    };
    let slide = match source.slide {
        chappe_stream::Extent::Count(1) => None,
        other => extent(other, "slide")?,
    };
    Ok(GsnSource {
        alias: source.table().to_owned(),
        window: extent(source.window, "window")?,
        slide,
        sampling: (source.sampling < 1.0).then_some(source.sampling),
        query: Some(match &source.sql {
            Some(own) => sql::to_h2(own).trim().to_owned(),
            None => "select * from wrapper".to_owned(),
        }),
        addresses: vec![Address {
            wrapper: "local".to_owned(),
            predicates: vec![("name".to_owned(), stream.clone())],
            ..Address::default()
        }],
        ..GsnSource::default()
    })
}
