//! XML: one document per line, one element per document.
//!
//! ```xml
//! <stream-element stream="ward.a" epoch="00000000000000a1" number="5" timestamp="1700000000000000000"
//!   received="1700000000000000005" quality="good" schema="0123456789abcdef" version="0">
//!   <field name="t" type="double">21.5</field></stream-element>
//! ```
//! Times are nanoseconds since 1970. A document is one line; line breaks within texts are character
//! references, and text that XML cannot represent is base64.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_stream::{
    Epoch, Field, Position, Quality, Samples, StreamElement, StreamSchema, Timestamp, Value,
};
use chappe_xml::{Element, Limits, Name, Reason};

use super::{
    DOCUMENT_BYTES_MAX, Document, ELEMENTS_MAX, Elements, FIELDS_MAX, Lost, Rollback, SchemaId,
    SchemaRef, SerializationError, Structure, limit, loss_of, quality_of, quality_word, type_of,
    type_word,
};

pub(super) fn encode(document: &Document, schema: &StreamSchema, bytes: &mut Vec<u8>) {
    let mut text = String::with_capacity(256);
    match document {
        Document::Structure(structure) => write_structure(structure, &mut text),
        Document::Elements(elements) => match elements.elements.as_slice() {
            [element] => write_element(elements, element, elements.last, schema, &mut text),
            several => {
                text.push_str("<stream-elements");
                attribute(&mut text, "stream", &elements.stream);
                attribute(&mut text, "schema", elements.schema.id);
                attribute(&mut text, "version", elements.schema.version);
                if let Some(last) = elements.last {
                    attribute(&mut text, "last", last);
                }
                text.push('>');
                for element in several {
                    write_element(elements, element, None, schema, &mut text);
                }
                text.push_str("</stream-elements>");
            }
        },
        Document::Lost(lost) => {
            text.push_str("<lost");
            attribute(&mut text, "stream", &lost.stream);
            attribute(&mut text, "epoch", lost.epoch);
            attribute(&mut text, "from", lost.from);
            attribute(&mut text, "next", lost.next);
            attribute(&mut text, "reason", lost.reason.as_str());
            text.push_str("/>");
        }
        Document::Rollback(rollback) => {
            text.push_str("<rollback");
            attribute(&mut text, "stream", &rollback.stream);
            if let Some(kept) = rollback.kept {
                attribute(&mut text, "kept", kept);
            }
            attribute(&mut text, "next", rollback.next);
            text.push_str("/>");
        }
        Document::Alive(after) => {
            text.push_str("<alive");
            if let Some(after) = after {
                attribute(&mut text, "after", after);
            }
            text.push_str("/>");
        }
    }
    text.push('\n');
    bytes.extend_from_slice(text.as_bytes());
}

fn write_structure(structure: &Structure, text: &mut String) {
    text.push_str("<structure");
    attribute(text, "stream", &structure.stream);
    attribute(text, "schema", SchemaId::of(&structure.schema));
    attribute(text, "version", structure.version);
    if let Some(key) = &structure.schema.key {
        optional(text, "key", key);
    }
    text.push('>');
    for field in &structure.schema.fields {
        text.push_str("<field");
        attribute(text, "name", &field.name);
        attribute(text, "type", type_word(field.field_type));
        for (name, value) in [
            ("unit", &field.unit),
            ("observed-property", &field.observed_property),
            ("description", &field.description),
        ] {
            if let Some(value) = value {
                optional(text, name, value);
            }
        }
        text.push_str("/>");
    }
    text.push_str("</structure>");
}

fn write_element(
    elements: &Elements,
    element: &StreamElement,
    last: Option<u64>,
    schema: &StreamSchema,
    text: &mut String,
) {
    text.push_str("<stream-element");
    attribute(text, "stream", &elements.stream);
    attribute(text, "epoch", element.position.epoch);
    attribute(text, "number", element.position.sequence);
    attribute(text, "timestamp", element.source_time.0);
    attribute(text, "received", element.receive_time.0);
    if let Some(key) = &element.key {
        optional(text, "key", key);
    }
    attribute(text, "quality", quality_word(element.quality));
    if let Some(origin) = element.origin {
        attribute(text, "origin", origin);
    }
    attribute(text, "schema", elements.schema.id);
    attribute(text, "version", elements.schema.version);
    if let Some(last) = last {
        attribute(text, "last", last);
    }
    text.push('>');
    for (field, value) in schema.fields.iter().zip(&element.values) {
        write_field(field, value, text);
    }
    text.push_str("</stream-element>");
}

fn write_field(field: &Field, value: &Value, text: &mut String) {
    text.push_str("<field");
    attribute(text, "name", &field.name);
    attribute(text, "type", type_word(field.field_type));
    match value {
        Value::Null => return text.push_str(" is-null=\"true\"/>"),
        Value::Boolean(flag) => put(text, format_args!(">{flag}")),
        Value::Integer(number) => put(text, format_args!(">{number}")),
        Value::Double(number) => {
            text.push('>');
            write_double(*number, text);
        }
        Value::Text(value) if value.chars().all(is_plain) => {
            text.push('>');
            escape(value, text);
        }
        Value::Text(value) => put(
            text,
            format_args!(" encoding=\"base64\">{}", STANDARD.encode(value)),
        ),
        Value::Bytes(bytes) => put(text, format_args!(">{}", STANDARD.encode(bytes))),
        Value::Samples(samples) => {
            attribute(text, "start", samples.start.0);
            attribute(text, "period-ns", samples.period_ns);
            text.push('>');
            for (index, sample) in samples.values.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                write_double(*sample, text);
            }
        }
    }
    text.push_str("</field>");
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
}

/// A double as in XML Schema, with the shortest digits that parse to the same number.
fn write_double(number: f64, text: &mut String) {
    let written = match number {
        n if n.is_nan() => "NaN",
        f64::INFINITY => "INF",
        f64::NEG_INFINITY => "-INF",
        n if n != 0.0 && !(1e-5..1e17).contains(&n.abs()) => {
            return put(text, format_args!("{n:e}"));
        }
        n => return put(text, format_args!("{n}")),
    };
    text.push_str(written);
}

fn read_double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "INF" | "+INF" => Some(f64::INFINITY),
        "-INF" => Some(f64::NEG_INFINITY),
        _ => {
            let digits = text
                .bytes()
                .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
            text.parse().ok().filter(|_| digits)
        }
    }
}

fn attribute(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, " {name}=\"{value}\"");
}

/// An attribute of any text.
fn optional(text: &mut String, name: &str, value: &str) {
    let plain = value.chars().all(is_plain);
    let _ = write!(text, " {name}{}=\"", if plain { "" } else { "-base64" });
    match plain {
        true => escape(value, text),
        false => text.push_str(&STANDARD.encode(value)),
    }
    text.push('"');
}

/// `Char` of XML 1.0, production 2.
fn is_plain(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn escape(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            '"' => text.push_str("&quot;"),
            '\t' | '\n' | '\r' => put(text, format_args!("&#{};", u32::from(c))),
            _ => text.push(c),
        }
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<(Document, usize), SerializationError> {
    let blank = bytes.len() - bytes.trim_ascii_start().len();
    let bytes = &bytes[blank..];
    if bytes.is_empty() {
        return Err(SerializationError::Incomplete);
    }
    // Line by line, so that an endless response can be decoded as it arrives.
    let (line, used) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], end + 1),
        None => (bytes, bytes.len()),
    };
    let limits = Limits {
        bytes: DOCUMENT_BYTES_MAX,
        depth: 8,
        ..Limits::default()
    };
    match Element::parse_within(line, limits) {
        Ok(root) => Ok((document(&root)?, blank + used)),
        // Another program may use several lines: they are parsed as one document.
        Err(_) if used < bytes.len() => {
            let root = Element::parse_within(bytes, limits).map_err(refused)?;
            Ok((document(&root)?, blank + bytes.len()))
        }
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: chappe_xml::Error) -> SerializationError {
    match error.reason {
        Reason::Truncated => SerializationError::Incomplete,
        reason => SerializationError::Malformed {
            offset: usize::try_from(error.offset).unwrap_or(usize::MAX),
            why: reason.to_string(),
        },
    }
}

fn malformed(why: impl Into<String>) -> SerializationError {
    SerializationError::Malformed {
        offset: 0,
        why: why.into(),
    }
}

fn document(root: &Element) -> Result<Document, SerializationError> {
    let name = |local: &'static str| Name::local(local);
    Ok(if root.name == name("stream-element") {
        let (names, element) = read_element(root)?;
        let mut elements = read_head(root)?;
        (elements.names, elements.elements) = (names, vec![element]);
        Document::Elements(elements)
    } else if root.name == name("stream-elements") {
        let mut elements = read_head(root)?;
        for (index, child) in root.children_named(&name("stream-element")).enumerate() {
            limit("the number of elements", index + 1, ELEMENTS_MAX)?;
            let (names, element) = read_element(child)?;
            if index == 0 {
                elements.names = names;
            } else if elements.names != names {
                return Err(malformed("elements of one document have different fields"));
            }
            elements.elements.push(element);
        }
        Document::Elements(elements)
    } else if root.name == name("structure") {
        Document::Structure(read_structure(root)?)
    } else if root.name == name("lost") {
        Document::Lost(Lost {
            stream: text_of(root, "stream")?,
            epoch: epoch(root)?,
            from: number(root, "from")?,
            next: number(root, "next")?,
            reason: loss_of(required(root, "reason")?)
                .ok_or_else(|| malformed("unknown reason"))?,
        })
    } else if root.name == name("rollback") {
        Document::Rollback(Rollback {
            stream: text_of(root, "stream")?,
            kept: position(root, "kept")?,
            next: position(root, "next")?.ok_or_else(|| malformed("missing attribute next"))?,
        })
    } else if root.name == name("alive") {
        Document::Alive(position(root, "after")?)
    } else {
        let found: String = root.name.local.chars().take(64).collect();
        return Err(malformed(format!("{found:?} is not a document of a link")));
    })
}

fn read_head(element: &Element) -> Result<Elements, SerializationError> {
    let id = SchemaId::parse(required(element, "schema")?);
    Ok(Elements {
        stream: text_of(element, "stream")?,
        schema: SchemaRef {
            id: id.ok_or_else(|| malformed("schema is not a valid id"))?,
            version: number(element, "version")?,
        },
        last: match element.attribute(&Name::local("last")) {
            Some(_) => Some(number(element, "last")?),
            None => None,
        },
        ..Elements::default()
    })
}

fn read_element(element: &Element) -> Result<(Vec<String>, StreamElement), SerializationError> {
    let source_time = Timestamp(number(element, "timestamp")?);
    let received = element.attribute(&Name::local("received"));
    let receive_time = match received {
        None => source_time,
        Some(_) => Timestamp(number(element, "received")?),
    };
    let quality = match element.attribute(&Name::local("quality")) {
        None => Quality::Good,
        Some(word) => quality_of(word).ok_or_else(|| malformed("unknown quality"))?,
    };
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for field in element.children_named(&Name::local("field")) {
        limit("the number of fields", names.len() + 1, FIELDS_MAX)?;
        let name = text_of(field, "name")?;
        if names.contains(&name) {
            return Err(malformed(format!("field {name:?} occurs twice")));
        }
        names.push(name);
        values.push(read_value(field)?);
    }
    let element = StreamElement {
        position: Position {
            epoch: epoch(element)?,
            sequence: number(element, "number")?,
        },
        source_time,
        receive_time,
        key: any_text(element, "key")?,
        values,
        quality,
        origin: position(element, "origin")?,
    };
    Ok((names, element))
}

fn read_value(field: &Element) -> Result<Value, SerializationError> {
    if field.attribute(&Name::local("is-null")) == Some("true") {
        return Ok(Value::Null);
    }
    let word = required(field, "type")?;
    let wrong = || malformed(format!("a value does not parse as {word:.32}"));
    let field_type = type_of(word).ok_or_else(|| malformed("unknown type"))?;
    let text = field.text();
    use chappe_stream::FieldType as Type;
    Ok(match field_type {
        Type::Boolean => match text.trim() {
            "true" | "1" => Value::Boolean(true),
            "false" | "0" => Value::Boolean(false),
            _ => return Err(wrong()),
        },
        Type::Integer => Value::Integer(text.trim().parse().map_err(|_| wrong())?),
        Type::Double => Value::Double(read_double(text.trim()).ok_or_else(wrong)?),
        Type::Text if field.attribute(&Name::local("encoding")) == Some("base64") => {
            Value::Text(utf8(&text).ok_or_else(wrong)?)
        }
        Type::Text => Value::Text(text.into_owned()),
        Type::Bytes => Value::Bytes(STANDARD.decode(text.trim()).map_err(|_| wrong())?),
        Type::Samples => Value::Samples(Samples {
            start: Timestamp(number(field, "start")?),
            period_ns: number(field, "period-ns")?,
            values: text
                .split_ascii_whitespace()
                .map(|sample| read_double(sample).ok_or_else(wrong))
                .collect::<Result<_, _>>()?,
        }),
    })
}

fn read_structure(root: &Element) -> Result<Structure, SerializationError> {
    let mut schema = StreamSchema {
        fields: Vec::new(),
        key: any_text(root, "key")?,
    };
    for field in root.children_named(&Name::local("field")) {
        limit("the number of fields", schema.fields.len() + 1, FIELDS_MAX)?;
        schema.fields.push(Field {
            name: text_of(field, "name")?,
            field_type: type_of(required(field, "type")?)
                .ok_or_else(|| malformed("unknown type"))?,
            unit: any_text(field, "unit")?,
            observed_property: any_text(field, "observed-property")?,
            description: any_text(field, "description")?,
        });
    }
    Ok(Structure {
        stream: text_of(root, "stream")?,
        version: number(root, "version")?,
        schema,
    })
}

fn required<'a>(element: &'a Element, name: &'static str) -> Result<&'a str, SerializationError> {
    let value = element.attribute(&Name::local(name));
    value.ok_or_else(|| malformed(format!("missing attribute {name}")))
}

fn text_of(element: &Element, name: &'static str) -> Result<String, SerializationError> {
    Ok(required(element, name)?.to_owned())
}

/// An attribute of any text, plain or base64.
fn any_text(element: &Element, name: &'static str) -> Result<Option<String>, SerializationError> {
    if let Some(plain) = element.attribute(&Name::local(name)) {
        return Ok(Some(plain.to_owned()));
    }
    let encoded = element.attribute(&Name::owned("", format!("{name}-base64")));
    let decoded = encoded.map(|text| {
        utf8(text).ok_or_else(|| malformed(format!("attribute {name}-base64 is not a text")))
    });
    decoded.transpose()
}

fn utf8(base64: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(base64.trim()).ok()?).ok()
}

fn number<T: std::str::FromStr>(
    element: &Element,
    name: &'static str,
) -> Result<T, SerializationError> {
    let text = required(element, name)?;
    text.parse()
        .map_err(|_| malformed(format!("attribute {name} is not a number in range")))
}

fn epoch(element: &Element) -> Result<Epoch, SerializationError> {
    let text = required(element, "epoch")?;
    let wrong = |_| malformed("epoch is not 16 hexadecimal digits");
    u64::from_str_radix(text, 16).map(Epoch).map_err(wrong)
}

fn position(element: &Element, name: &'static str) -> Result<Option<Position>, SerializationError> {
    let Some(text) = element.attribute(&Name::local(name)) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(position) => Ok(Some(position)),
        Err(error) => Err(malformed(format!("{error}"))),
    }
}
