//! Writes a descriptor as TOML, without keys that have their default.

use std::fmt::Write as _;
use std::time::Duration;

use super::{
    Command, Descriptor, FALLBACK_AFTER, FieldInput, KEYS, MetadataQuery, MetadataValue, Output,
    Selection, Source, Statement, StreamQuery,
};
use crate::{
    AHEAD, BindingPolicy, EarlyPolicy, Extent, Field, FieldType, LatePolicy, Value, WindowClock,
};

pub(super) fn toml(descriptor: &Descriptor) -> String {
    let mut out = Writer::default();
    out.text("name", &descriptor.name);
    out.text_if("description", descriptor.description.as_deref());
    if descriptor.is_protected {
        out.raw("protected", "true");
    }
    if !descriptor.metadata.is_empty() {
        out.head("[metadata]");
        for (property, value) in &descriptor.metadata {
            let value = match value {
                Value::Boolean(value) => value.to_string(),
                Value::Integer(value) => value.to_string(),
                Value::Double(value) => format!("{value:?}"),
                Value::Text(text) => quoted(text),
                Value::Null | Value::Bytes(_) | Value::Samples(_) => continue,
            };
            out.raw(&key(property), &value);
        }
    }
    for command in &descriptor.commands {
        write_command(&mut out, command);
    }
    let plain = match &descriptor.statements[..] {
        [only] if only.name.is_none() && only.rate.is_none() && only.count.is_none() => Some(only),
        _ => None,
    };
    if plain.is_some() {
        for source in &descriptor.sources {
            write_source(&mut out, "[[source]]", source);
        }
    } else {
        for (index, statement) in descriptor.statements.iter().enumerate() {
            write_statement(&mut out, statement);
            for source in descriptor.sources_of(index) {
                write_source(&mut out, "[[statement.source]]", source);
            }
        }
    }
    write_output(&mut out, &descriptor.name, &descriptor.output, plain);
    out.text
}

fn write_command(out: &mut Writer, command: &Command) {
    out.head("[[command]]");
    out.text("name", &command.name);
    if let Some(pass) = &command.pass_to {
        let wrapper = quoted(&pass.wrapper);
        let passed = quoted(&pass.command);
        let text = match pass.command == command.name {
            true => format!("{{ wrapper = {wrapper} }}"),
            false => format!("{{ wrapper = {wrapper}, command = {passed} }}"),
        };
        out.raw("pass_to", &text);
    }
    for field in &command.fields {
        out.head("[[command.field]]");
        out.text("name", &field.name);
        out.text("type", field.input.word());
        if field.is_required {
            out.raw("required", "true");
        }
        let choices = field.input.choices();
        if !choices.is_empty() {
            let choices: Vec<String> = choices.iter().map(|choice| quoted(choice)).collect();
            out.raw("choices", &format!("[{}]", choices.join(", ")));
        }
        if let FieldInput::Binary {
            bytes_max: Some(bytes),
        } = field.input
        {
            out.raw("max_bytes", &bytes.to_string());
        }
        out.text_if("description", field.description.as_deref());
    }
}

fn write_statement(out: &mut Writer, statement: &Statement) {
    out.head("[[statement]]");
    out.text_if("name", statement.name.as_deref());
    out.text("sql", &statement.sql);
    out.time_if("rate", statement.rate);
    if let Some(count) = statement.count {
        out.raw("count", &count.to_string());
    }
}

fn write_source(out: &mut Writer, head: &str, source: &Source) {
    out.head(head);
    out.text("alias", source.table());
    match &source.selection {
        Selection::Stream(name) => out.text("stream", name),
        Selection::Query(query) => out.raw("query", &query_of(query)),
        Selection::Command(name) => out.text("command", name),
        // Its table comes after the keys of the source.
        Selection::Wrapper(wrapper) => out.text_if("stream", wrapper.stream.as_deref()),
    }
    if !source.fallback.is_empty() {
        let choices = source.fallback.iter().map(|choice| match choice {
            Selection::Stream(name) | Selection::Command(name) => {
                format!("{{ stream = {} }}", quoted(name))
            }
            Selection::Query(query) => format!("{{ query = {} }}", query_of(query)),
            Selection::Wrapper(wrapper) => {
                let keys = toml::Value::Table(wrapper.keys.clone());
                match &wrapper.stream {
                    Some(stream) => format!("{{ stream = {}, wrapper = {keys} }}", quoted(stream)),
                    None => format!("{{ wrapper = {keys} }}"),
                }
            }
        });
        let choices = choices.collect::<Vec<_>>().join(", ");
        out.raw("fallback", &format!("[{choices}]"));
        if source.fallback_after != FALLBACK_AFTER {
            out.text("fallback_after", &time(source.fallback_after));
        }
    }
    if source.policy == BindingPolicy::All {
        out.text("bind", "all");
    }
    out.extent("window", source.window);
    out.extent("slide", source.slide);
    if source.first != 1 {
        out.raw("first", &source.first.to_string());
    }
    write_timing(out, source);
    if source.sampling < 1.0 {
        out.raw("sampling", &format!("{:?}", source.sampling));
    }
    out.text_if("sql", source.sql.as_deref());
    if let Selection::Wrapper(wrapper) = &source.selection {
        let head = head.trim_matches(['[', ']']);
        write_wrapper(out, &format!("{head}.wrapper"), &wrapper.keys);
    }
}

/// The keys of a wrapper: its tables, and the tables of its arrays, after the rest.
fn write_wrapper(out: &mut Writer, head: &str, keys: &toml::Table) {
    out.head(&format!("[{head}]"));
    let is_array = |value: &toml::Value| match value {
        toml::Value::Array(items) => !items.is_empty() && items.iter().all(toml::Value::is_table),
        _ => false,
    };
    for (name, value) in keys.iter().filter(|(_, value)| !is_array(value)) {
        out.raw(&key(name), &value.to_string());
    }
    for (name, value) in keys.iter().filter(|(_, value)| is_array(value)) {
        for item in value.as_array().into_iter().flatten() {
            out.head(&format!("[[{head}.{}]]", key(name)));
            for (name, value) in item.as_table().into_iter().flatten() {
                out.raw(&key(name), &value.to_string());
            }
        }
    }
}

fn write_timing(out: &mut Writer, source: &Source) {
    let timing = &source.timing;
    if timing.clock == WindowClock::Node {
        out.text("clock", "node");
    }
    out.time_if("wait", timing.wait);
    match source.late {
        LatePolicy::Insert => {}
        LatePolicy::Drop => out.text("late", "drop"),
        LatePolicy::DeadLetter => out.text("late", "dead_letter"),
    }
    if timing.ahead != AHEAD {
        out.text("ahead", &time(timing.ahead));
    }
    if timing.early == EarlyPolicy::DeadLetter {
        out.text("early", "dead_letter");
    }
    if timing.unique_times {
        out.raw("unique_times", "true");
    }
    if let Some(per) = &source.per {
        out.text("per", &per.column);
        if per.keys != KEYS {
            out.raw("keys", &per.keys.to_string());
        }
    }
}

fn query_of(query: &StreamQuery) -> String {
    let parts = [
        ("observed_property", &query.observed_property),
        ("unit", &query.unit),
        ("type", &query.entity_type),
        ("scope", &query.scope),
        ("name_prefix", &query.name_prefix),
        ("sparql", &query.sparql),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key} = {}", quoted(value.as_ref()?))));
    let mut parts: Vec<String> = parts.collect();
    if !query.by.is_empty() {
        parts.push(format!("by = {}", list(&query.by)));
    }
    if !query.metadata.is_empty() {
        let pieces: Vec<String> = query.metadata.iter().map(metadata_of).collect();
        parts.push(format!("metadata = [{}]", pieces.join(", ")));
    }
    format!("{{ {} }}", parts.join(", "))
}

fn metadata_of(query: &MetadataQuery) -> String {
    let piece_type = quoted(&query.piece_type);
    let value = match &query.value {
        None => String::new(),
        Some(MetadataValue::Text(text)) => format!(", value = {}", quoted(text)),
        Some(MetadataValue::Uri(uri)) => format!(", uri = {}", quoted(uri)),
    };
    format!("{{ type = {piece_type}{value}, by = {} }}", list(&query.by))
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

fn write_output(out: &mut Writer, name: &str, output: &Output, plain: Option<&Statement>) {
    out.head("[output]");
    if output.stream != name {
        out.text("stream", &output.stream);
    }
    match output.level {
        chappe_log::Level::Memory => out.text("level", "memory"),
        chappe_log::Level::Process => out.text("level", "process"),
        chappe_log::Level::Power => {}
    }
    if let Some(retention) = output.retention {
        let elements = retention
            .elements
            .map(|count| format!("elements = {count}"));
        let age = retention
            .age
            .map(|age| format!("age = {}", quoted(&time(age))));
        let parts: Vec<String> = elements.into_iter().chain(age).collect();
        out.raw("retention", &format!("{{ {} }}", parts.join(", ")));
    }
    out.time_if("rate", output.rate);
    if output.unique_times {
        out.raw("unique_times", "true");
    }
    if output.drops_nulls {
        out.text("nulls", "drop");
    }
    if output.takes_any_columns {
        out.text("columns", "any");
    }
    if let Some(statement) = plain {
        out.text("sql", &statement.sql);
    }
    out.text_if("key", output.schema.key.as_deref());
    for field in &output.schema.fields {
        write_field(out, field);
    }
}

fn write_field(out: &mut Writer, field: &Field) {
    out.head("[[output.field]]");
    out.text("name", &field.name);
    let field_type = match field.field_type {
        FieldType::Boolean => "boolean",
        FieldType::Integer => "integer",
        FieldType::Double => "double",
        FieldType::Text => "text",
        FieldType::Bytes => "bytes",
        FieldType::Samples => "samples",
    };
    out.text("type", field_type);
    out.text_if("unit", field.unit.as_deref());
    out.text_if("observed_property", field.observed_property.as_deref());
    out.text_if("description", field.description.as_deref());
}

#[derive(Default)]
struct Writer {
    text: String,
}

impl Writer {
    fn head(&mut self, head: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.text, "\n{head}\n");
    }

    fn raw(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.text, "{key} = {value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    fn text_if(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn time_if(&mut self, key: &str, value: Option<Duration>) {
        if let Some(value) = value {
            self.text(key, &time(value));
        }
    }

    fn extent(&mut self, key: &str, extent: Extent) {
        match extent {
            Extent::Count(1) => {}
            Extent::Count(count) => self.raw(key, &count.to_string()),
            Extent::Time(length) => self.text(key, &time(length)),
        }
    }
}

/// A text as TOML; one of several lines in three quotes.
fn quoted(text: &str) -> String {
    let several = text.contains('\n');
    let mut out = String::from(if several { "\"\"\"\n" } else { "\"" });
    for c in text.chars() {
        match c {
            '\n' if several => out.push('\n'),
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push_str(if several { "\"\"\"" } else { "\"" });
    out
}

fn key(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match key.bytes().all(is_bare) {
        true => key.to_owned(),
        // A key has no form of several lines.
        false => quoted(&key.replace('\n', " ")),
    }
}

/// A time in the largest unit that divides it.
fn time(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let fits = units
        .into_iter()
        .find(|(length, _)| ms.is_multiple_of(*length));
    let (length, unit) = fits.unwrap_or((1, "ms"));
    format!("{}{unit}", ms / length)
}
