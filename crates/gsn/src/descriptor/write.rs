//! A descriptor as a file.

use std::time::Duration;

use super::model::{
    Address, Extent, GsnDescriptor, History, OutputField, ProcessingClass, Source, Stream,
};

pub(super) fn xml(descriptor: &GsnDescriptor) -> String {
    let mut out = Writer {
        text: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned(),
        depth: 0,
    };
    let protected = descriptor.is_protected.then(|| "true".to_owned());
    out.open(
        "virtual-sensor",
        &[
            ("name", Some(descriptor.name.clone())),
            ("protected", protected),
            ("priority", descriptor.priority.clone()),
            ("time-zone", descriptor.time_zone.clone()),
        ],
    );
    class(&mut out, &descriptor.class);
    out.text_if("description", &[], descriptor.description.as_deref());
    if !descriptor.addressing.is_empty() {
        out.open("addressing", &[]);
        predicates(&mut out, &descriptor.addressing);
        out.close("addressing");
    }
    if let Some(size) = &descriptor.pool_size {
        out.empty("life-cycle", &[("pool-size", Some(size.clone()))]);
    }
    if let Some(history) = descriptor.history {
        let size = match history {
            History::Elements(count) => count.to_string(),
            History::Age(age) => time(age),
        };
        out.empty("storage", &[("history-size", Some(size))]);
    }
    out.open("streams", &[]);
    for one in &descriptor.streams {
        stream(&mut out, one);
    }
    out.close("streams");
    out.close("virtual-sensor");
    out.text
}

fn class(out: &mut Writer, class: &ProcessingClass) {
    out.open("processing-class", &[]);
    out.text("class-name", &[], &class.name);
    if !class.unique_times {
        out.text("unique-timestamps", &[], "false");
    }
    if !class.parameters.is_empty() {
        out.open("init-params", &[]);
        for (name, value) in &class.parameters {
            out.text("param", &[("name", Some(name.clone()))], value);
        }
        out.close("init-params");
    }
    if let Some(rate) = class.rate {
        out.empty("output-specification", &[("rate", Some(ms(rate)))]);
    }
    let partition = class.partition_field.clone();
    out.open("output-structure", &[("partition-field", partition)]);
    fields(out, &class.fields);
    out.close("output-structure");
    if !class.commands.is_empty() {
        out.open("web-input", &[]);
        for command in &class.commands {
            out.open("command", &[("name", Some(command.name.clone()))]);
            for field in &command.fields {
                let attributes = [
                    ("name", Some(field.name.clone())),
                    ("type", Some(field.input.clone())),
                ];
                out.text(
                    "field",
                    &attributes,
                    field.description.as_deref().unwrap_or(""),
                );
            }
            out.close("command");
        }
        out.close("web-input");
    }
    out.close("processing-class");
}

fn fields(out: &mut Writer, fields: &[OutputField]) {
    for field in fields {
        let attributes = [
            ("name", Some(field.name.clone())),
            ("type", Some(field.field_type.clone())),
            ("unit", field.unit.clone()),
        ];
        out.text(
            "field",
            &attributes,
            field.description.as_deref().unwrap_or(""),
        );
    }
}

fn predicates(out: &mut Writer, predicates: &[(String, String)]) {
    for (key, value) in predicates {
        out.text("predicate", &[("key", Some(key.clone()))], value);
    }
}

fn stream(out: &mut Writer, stream: &Stream) {
    out.open(
        "stream",
        &[
            ("name", stream.name.clone()),
            ("rate", stream.rate.map(ms)),
            ("count", stream.count.map(|count| count.to_string())),
        ],
    );
    for one in &stream.sources {
        source(out, one);
    }
    out.text("query", &[], &stream.query);
    out.close("stream");
}

fn source(out: &mut Writer, source: &Source) {
    let sampling = source.sampling.map(|share| share.to_string());
    out.open(
        "source",
        &[
            ("alias", Some(source.alias.clone())),
            ("storage-size", source.window.map(extent)),
            ("slide", source.slide.map(extent)),
            ("sampling-rate", sampling),
            ("disconnected-buffer-size", source.buffer.clone()),
        ],
    );
    for one in &source.addresses {
        address(out, one);
    }
    out.text_if("query", &[], source.query.as_deref());
    out.close("source");
}

fn address(out: &mut Writer, address: &Address) {
    let attributes = [
        ("wrapper", Some(address.wrapper.clone())),
        ("partial-order-key", address.order_key.clone()),
    ];
    if address.predicates.is_empty() && address.fields.is_empty() {
        return out.empty("address", &attributes);
    }
    out.open("address", &attributes);
    predicates(out, &address.predicates);
    if !address.fields.is_empty() {
        out.open("output-structure", &[]);
        fields(out, &address.fields);
        out.close("output-structure");
    }
    out.close("address");
}

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Elements(count) => count.to_string(),
        Extent::Time(length) => time(length),
    }
}

/// Whole seconds in the largest unit that divides them.
fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        _ if seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

fn ms(time: Duration) -> String {
    time.as_millis().to_string()
}

struct Writer {
    text: String,
    depth: usize,
}

type Attributes<'a> = &'a [(&'a str, Option<String>)];

impl Writer {
    fn start(&mut self, name: &str, attributes: Attributes<'_>) {
        self.text.push_str(&"  ".repeat(self.depth));
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            if let Some(value) = value {
                self.text.push_str(&format!(" {name}=\""));
                self.escaped(value, true);
                self.text.push('"');
            }
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        self.start(name, attributes);
        self.text.push_str(">\n");
        self.depth += 1;
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        self.text
            .push_str(&format!("{}</{name}>\n", "  ".repeat(self.depth)));
    }

    fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.start(name, attributes);
        self.text.push_str("/>\n");
    }

    fn text(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        if text.is_empty() {
            return self.empty(name, attributes);
        }
        self.start(name, attributes);
        self.text.push('>');
        self.escaped(text, false);
        self.text.push_str(&format!("</{name}>\n"));
    }

    fn text_if(&mut self, name: &str, attributes: Attributes<'_>, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, attributes, text);
        }
    }

    fn escaped(&mut self, text: &str, is_attribute: bool) {
        for c in text.chars() {
            match c {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' if is_attribute => self.text.push_str("&quot;"),
                '\n' | '\t' if !is_attribute => self.text.push(c),
                '\n' | '\t' | '\r' => self.text.push_str(&format!("&#{};", u32::from(c))),
                c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => self.text.push('\u{fffd}'),
                c => self.text.push(c),
            }
        }
    }
}
