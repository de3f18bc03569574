//! From Chappe's descriptor to GSN's, with a report.

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_stream::descriptor::{Command, FALLBACK_AFTER, FieldInput, Source};
use chappe_stream::{
    AHEAD, BindingPolicy, Descriptor, EarlyPolicy, LatePolicy, Retention, Selection, Value,
    WindowClock,
};

use super::import::first_evaluation;
use super::model::{
    Address, Extent, GsnDescriptor, History, OutputField, Place, ProcessingClass,
    Source as GsnSource, Stream, WebCommand, WebField,
};
use super::report::Report;
use super::{classes, sql, types, wrappers};

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
        commands: commands(descriptor, &mut report),
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
    let period = period(descriptor)?;
    if let Some(period) = period {
        class.name = "ch.epfl.gsn.vsensor.ScheduledBridgeVirtualSensor".to_owned();
        let period = period.as_millis().to_string();
        class.parameters.push(("rate".to_owned(), period));
        report.changed(
            NOWHERE,
            "source.clock",
            "the class ScheduledBridgeVirtualSensor",
        );
    }
    let mut streams = Vec::new();
    for (index, statement) in descriptor.statements.iter().enumerate() {
        let mut sources = Vec::new();
        for (position, of_statement) in descriptor.sources_of(index).enumerate() {
            let key = match descriptor.statements.len() {
                1 => format!("source[{position}]"),
                _ => format!("statement[{index}].source[{position}]"),
            };
            let full = [
                Some(descriptor.name.as_str()),
                statement.name.as_deref(),
                Some(of_statement.table()),
            ];
            let full: Vec<&str> = full.into_iter().flatten().collect();
            let mut source = source(of_statement, &key, &full.join("."), &mut report)?;
            if period.is_some() {
                source.slide = None;
            }
            sources.push(source);
        }
        report.changed(NOWHERE, "sql", "in H2's SQL, as far as it differs");
        streams.push(Stream {
            name: statement.name.clone().or_else(|| Some("data".to_owned())),
            rate: statement.rate,
            count: statement.count,
            query: sql::to_h2(match period {
                Some(_) => classes::scheduled_statement(descriptor, &statement.sql),
                None => &statement.sql,
            })
            .trim()
            .to_owned(),
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

/// The period of a sensor whose sources are all evaluated in it by the node's clock.
fn period(descriptor: &Descriptor) -> Result<Option<Duration>, ExportError> {
    let mut sources = descriptor.sources.iter();
    let of = |source: &Source| match (source.timing.clock, source.slide) {
        (WindowClock::Node, chappe_stream::Extent::Time(period)) => Some(period),
        _ => None,
    };
    let first = sources.next().and_then(of);
    match sources.all(|source| of(source) == first) {
        true => Ok(first),
        false => Err(ExportError {
            key: "source.clock".to_owned(),
            message: "GSN's clock is that of the class: all sources need the same clock and slide"
                .to_owned(),
        }),
    }
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

/// The commands with a report of each.
fn commands(descriptor: &Descriptor, report: &mut Report) -> Vec<WebCommand> {
    for (index, command) in descriptor.commands.iter().enumerate() {
        let key = format!("command[{index}]");
        report.changed(
            NOWHERE,
            &key,
            "web-input: the processing class decides what it does",
        );
        if command.pass_to.is_some() {
            let reason = "the processing class passes it on, or does not";
            report.ignored(NOWHERE, format!("{key}.pass_to"), reason);
        }
        for (field, input) in command.fields.iter().map(|it| &it.input).enumerate() {
            let key = format!("{key}.field[{field}].type");
            match input {
                FieldInput::Integer | FieldInput::Double => report.changed(NOWHERE, key, "a text"),
                FieldInput::Boolean => report.changed(NOWHERE, key, "radio:true|false"),
                _ => {}
            }
        }
    }
    descriptor.commands.iter().map(command).collect()
}

fn command(command: &Command) -> WebCommand {
    let fields = command.fields.iter().map(|field| {
        let input = match &field.input {
            FieldInput::Text | FieldInput::Integer | FieldInput::Double => "text".to_owned(),
            FieldInput::Boolean => "radio:true|false".to_owned(),
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

/// The address of a choice of a source; `stream` is the name of the stream that a wrapper would write here.
fn address(
    choice: &Selection,
    key: &str,
    stream: &str,
    report: &mut Report,
) -> Result<Address, ExportError> {
    let (part, message) = match choice {
        Selection::Stream(stream) => {
            report.changed(NOWHERE, format!("{key}.stream"), "wrapper local");
            return Ok(Address {
                wrapper: "local".to_owned(),
                predicates: vec![("name".to_owned(), stream.clone())],
                ..Address::default()
            });
        }
        Selection::Query(_) => ("query", "GSN has no search for streams; name the stream"),
        Selection::Command(_) => ("command", "GSN's statements do not read commands"),
        Selection::Wrapper(wrapper) => {
            if let Some(address) = wrappers::address(wrapper, stream) {
                let reason = format!("wrapper {}", address.wrapper);
                report.changed(NOWHERE, format!("{key}.wrapper"), reason);
                return Ok(address);
            }
            ("wrapper", "no wrapper of GSN has these keys")
        }
    };
    Err(ExportError {
        key: format!("{key}.{part}"),
        message: message.to_owned(),
    })
}

fn source(
    source: &Source,
    key: &str,
    full: &str,
    report: &mut Report,
) -> Result<GsnSource, ExportError> {
    let mut addresses = Vec::new();
    for (index, choice) in source.choices().enumerate() {
        let key = match index {
            0 => key.to_owned(),
            _ => format!("{key}.fallback[{}]", index - 1),
        };
        let stream = match index {
            0 => full.to_owned(),
            _ => format!("{full}.{}", index + 1),
        };
        addresses.push(address(choice, &key, &types::stream_name(&stream), report)?);
    }
    if source.policy == BindingPolicy::All {
        report.ignored(NOWHERE, format!("{key}.bind"), "a source has one stream");
    }
    if !source.fallback.is_empty() {
        report.changed(
            NOWHERE,
            format!("{key}.fallback"),
            "further addresses: GSN uses the first that starts, and keeps it",
        );
        if source.fallback_after != FALLBACK_AFTER {
            let reason = "GSN keeps the address that it has started";
            report.ignored(NOWHERE, format!("{key}.fallback_after"), reason);
        }
    }
    let timing = &source.timing;
    let is_source = timing.clock == WindowClock::Source;
    match source.late {
        LatePolicy::Insert if is_source => {
            report.changed(NOWHERE, format!("{key}.late"), "GSN drops late elements");
        }
        LatePolicy::Insert => {}
        LatePolicy::Drop => report.taken(NOWHERE, format!("{key}.late")),
        LatePolicy::DeadLetter => {
            report.changed(NOWHERE, format!("{key}.late"), "dropped, not stored");
        }
    }
    for (is_given, name, reason) in [
        (
            timing.wait.is_some() && is_source,
            "wait",
            "GSN does not wait",
        ),
        (timing.ahead != AHEAD, "ahead", "GSN takes any time"),
        (
            timing.early != EarlyPolicy::Drop,
            "early",
            "GSN takes any time",
        ),
        (
            !timing.unique_times && is_source,
            "unique_times",
            "GSN drops an element with the time of the one before",
        ),
        (
            source.first != first_evaluation(source.window, source.slide),
            "first",
            "GSN evaluates a window of elements first when it is full, one of time after a slide",
        ),
    ] {
        if is_given {
            report.ignored(NOWHERE, format!("{key}.{name}"), reason);
        }
    }
    if let (Some(per), Some(first)) = (&source.per, addresses.first_mut()) {
        first.order_key = Some(per.column.clone());
        let reason = "partial-order-key: one window for all keys";
        report.changed(NOWHERE, format!("{key}.per"), reason);
    }
    if source.sampling < 1.0 {
        let reason = "GSN selects by the time of an element";
        report.changed(NOWHERE, format!("{key}.sampling"), reason);
    }
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
        // GSN 2.0.1 takes a missing rate as 0, and gives nothing.
        sampling: Some(source.sampling),
        query: Some(match &source.sql {
            Some(own) => sql::to_h2(own).trim().to_owned(),
            None => "select * from wrapper".to_owned(),
        }),
        addresses,
        ..GsnSource::default()
    })
}
