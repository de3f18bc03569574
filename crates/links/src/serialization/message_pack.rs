//! MessagePack: each document is a map with `type`; unknown members are ignored.
//!
//! `elements` has the names of the fields once, and each element's values in their order: `{type,
//! stream, schema, version, fields: [name], elements: [{epoch, number, timestamp, received, key,
//! quality, values: [value]}]}`. Epochs and schemas are strings of 16 hexadecimal digits, times are
//! nanoseconds, samples are a map `{start, period_ns, values}`. `origin` and null members may be
//! left out.

use chappe_stream::{
    Epoch, Field, Position, Quality, Samples, StreamElement, StreamSchema, Timestamp, Value,
};

use super::pack::{self, Item, Reader};
use super::{
    Document, ELEMENTS_MAX, Elements, FIELDS_MAX, Lost, Rollback, SchemaId, SchemaRef,
    SerializationError, Structure, limit, loss_of, quality_of, quality_word, type_of, type_word,
};

pub(super) fn encode(document: &Document, schema: &StreamSchema, bytes: &mut Vec<u8>) {
    match document {
        Document::Structure(structure) => write_structure(structure, bytes),
        Document::Elements(elements) => {
            begin("elements", 6 + usize::from(elements.last.is_some()), bytes);
            member("stream", &elements.stream, bytes);
            write_schema(elements.schema, bytes);
            pack::text("fields", bytes);
            pack::array(schema.fields.len(), bytes);
            for field in &schema.fields {
                pack::text(&field.name, bytes);
            }
            if let Some(last) = elements.last {
                pack::text("last", bytes);
                pack::unsigned(last, bytes);
            }
            pack::text("elements", bytes);
            pack::array(elements.elements.len(), bytes);
            for element in &elements.elements {
                write_element(element, bytes);
            }
        }
        Document::Lost(lost) => {
            begin("lost", 6, bytes);
            member("stream", &lost.stream, bytes);
            member("epoch", &lost.epoch.to_string(), bytes);
            pack::text("from", bytes);
            pack::unsigned(lost.from, bytes);
            pack::text("next", bytes);
            pack::unsigned(lost.next, bytes);
            member("reason", lost.reason.as_str(), bytes);
        }
        Document::Rollback(rollback) => {
            begin("rollback", 4, bytes);
            member("stream", &rollback.stream, bytes);
            let kept = rollback.kept.map(|kept| kept.to_string());
            optional("kept", kept.as_deref(), bytes);
            member("next", &rollback.next.to_string(), bytes);
        }
        Document::Alive(after) => {
            begin("alive", 1 + usize::from(after.is_some()), bytes);
            if let Some(after) = after {
                member("after", &after.to_string(), bytes);
            }
        }
    }
}

fn begin(kind: &str, members: usize, bytes: &mut Vec<u8>) {
    pack::map(members, bytes);
    member("type", kind, bytes);
}

fn member(name: &str, text: &str, bytes: &mut Vec<u8>) {
    pack::text(name, bytes);
    pack::text(text, bytes);
}

fn optional(name: &str, text: Option<&str>, bytes: &mut Vec<u8>) {
    pack::text(name, bytes);
    match text {
        Some(text) => pack::text(text, bytes),
        None => pack::nil(bytes),
    }
}

fn write_schema(schema: SchemaRef, bytes: &mut Vec<u8>) {
    member("schema", &schema.id.to_string(), bytes);
    pack::text("version", bytes);
    pack::unsigned(u64::from(schema.version), bytes);
}

fn write_structure(structure: &Structure, bytes: &mut Vec<u8>) {
    let schema = &structure.schema;
    begin("structure", 6, bytes);
    member("stream", &structure.stream, bytes);
    let (id, version) = (SchemaId::of(schema), structure.version);
    write_schema(SchemaRef { id, version }, bytes);
    optional("key", schema.key.as_deref(), bytes);
    pack::text("fields", bytes);
    pack::array(schema.fields.len(), bytes);
    for field in &schema.fields {
        pack::map(5, bytes);
        member("name", &field.name, bytes);
        member("type", type_word(field.field_type), bytes);
        optional("unit", field.unit.as_deref(), bytes);
        optional(
            "observed_property",
            field.observed_property.as_deref(),
            bytes,
        );
        optional("description", field.description.as_deref(), bytes);
    }
}

fn write_element(element: &StreamElement, bytes: &mut Vec<u8>) {
    pack::map(7 + usize::from(element.origin.is_some()), bytes);
    member("epoch", &element.position.epoch.to_string(), bytes);
    pack::text("number", bytes);
    pack::unsigned(element.position.sequence, bytes);
    pack::text("timestamp", bytes);
    pack::signed(element.source_time.0, bytes);
    pack::text("received", bytes);
    pack::signed(element.receive_time.0, bytes);
    optional("key", element.key.as_deref(), bytes);
    member("quality", quality_word(element.quality), bytes);
    if let Some(origin) = element.origin {
        member("origin", &origin.to_string(), bytes);
    }
    pack::text("values", bytes);
    pack::array(element.values.len(), bytes);
    for value in &element.values {
        match value {
            Value::Null => pack::nil(bytes),
            Value::Boolean(flag) => pack::boolean(*flag, bytes),
            Value::Integer(number) => pack::signed(*number, bytes),
            Value::Double(number) => pack::double(*number, bytes),
            Value::Text(text) => pack::text(text, bytes),
            Value::Bytes(data) => pack::binary(data, bytes),
            Value::Samples(samples) => write_samples(samples, bytes),
        }
    }
}

fn write_samples(samples: &Samples, bytes: &mut Vec<u8>) {
    pack::map(3, bytes);
    pack::text("start", bytes);
    pack::signed(samples.start.0, bytes);
    pack::text("period_ns", bytes);
    pack::unsigned(samples.period_ns, bytes);
    pack::text("values", bytes);
    pack::array(samples.values.len(), bytes);
    for sample in &samples.values {
        pack::double(*sample, bytes);
    }
}

/// The members of a document's map, of any type.
#[derive(Default)]
struct Members<'a> {
    kind: Option<&'a str>,
    stream: Option<&'a str>,
    schema: Option<SchemaId>,
    version: Option<u32>,
    key: Option<&'a str>,
    fields: Vec<FieldMember>,
    elements: Vec<StreamElement>,
    epoch: Option<Epoch>,
    last: Option<u64>,
    after: Option<Position>,
    from: Option<u64>,
    next: Option<u64>,
    next_position: Option<Position>,
    kept: Option<Position>,
    reason: Option<&'a str>,
}

/// A field: its name, or its whole description.
struct FieldMember {
    name: String,
    whole: Option<Field>,
}

pub(super) fn decode(bytes: &[u8]) -> Result<(Document, usize), SerializationError> {
    let mut reader = Reader::new(bytes);
    let mut members = Members::default();
    for _ in 0..reader.map("the document")? {
        let name = reader.text("a member's name")?;
        read_member(&mut reader, name, &mut members)?;
    }
    let used = reader.offset();
    let missing = |name: &str| SerializationError::Malformed {
        offset: used,
        why: format!("missing or invalid member {name}"),
    };
    let kind = members.kind.ok_or_else(|| missing("type"))?;
    if kind == "alive" {
        return Ok((Document::Alive(members.after), used));
    }
    let stream = members.stream.ok_or_else(|| missing("stream"))?.to_owned();
    let document = match kind {
        "structure" => {
            let whole = |field: FieldMember| field.whole.ok_or_else(|| missing("fields[].type"));
            let fields = members.fields.into_iter().map(whole);
            Document::Structure(Structure {
                stream,
                version: members.version.ok_or_else(|| missing("version"))?,
                schema: StreamSchema {
                    fields: fields.collect::<Result<_, _>>()?,
                    key: members.key.map(str::to_owned),
                },
            })
        }
        "elements" => {
            let id = members.schema.ok_or_else(|| missing("schema"))?;
            let version = members.version.ok_or_else(|| missing("version"))?;
            let names: Vec<String> = members.fields.into_iter().map(|it| it.name).collect();
            let width = names.len();
            if members
                .elements
                .iter()
                .any(|element| element.values.len() != width)
            {
                return Err(
                    reader.malformed("the number of values differs from the number of fields")
                );
            }
            Document::Elements(Elements {
                stream,
                schema: SchemaRef { id, version },
                names,
                elements: members.elements,
                last: members.last,
            })
        }
        "lost" => Document::Lost(Lost {
            stream,
            epoch: members.epoch.ok_or_else(|| missing("epoch"))?,
            from: members.from.ok_or_else(|| missing("from"))?,
            next: members.next.ok_or_else(|| missing("next"))?,
            reason: members
                .reason
                .and_then(loss_of)
                .ok_or_else(|| missing("reason"))?,
        }),
        "rollback" => Document::Rollback(Rollback {
            stream,
            kept: members.kept,
            next: members.next_position.ok_or_else(|| missing("next"))?,
        }),
        other => {
            let why = format!(
                "{:?} is not a document of a link",
                other.chars().take(64).collect::<String>()
            );
            return Err(reader.malformed(why));
        }
    };
    Ok((document, used))
}

fn read_member<'a>(
    reader: &mut Reader<'a>,
    name: &str,
    members: &mut Members<'a>,
) -> Result<(), SerializationError> {
    match name {
        "type" => members.kind = Some(reader.text("type")?),
        "stream" => members.stream = Some(reader.text("stream")?),
        "schema" => {
            let id = SchemaId::parse(reader.text("schema")?);
            members.schema = Some(id.ok_or_else(|| reader.malformed("schema is not a valid id"))?);
        }
        "version" => {
            let version = u32::try_from(reader.unsigned("version")?);
            let version = version.map_err(|_| reader.malformed("version exceeds 32 bits"))?;
            members.version = Some(version);
        }
        "key" => members.key = reader.optional_text("key")?,
        "fields" => members.fields = read_fields(reader)?,
        "elements" => members.elements = read_elements(reader)?,
        "epoch" => members.epoch = Some(read_epoch(reader)?),
        "last" => members.last = Some(reader.unsigned("last")?),
        "after" => {
            let text = reader.optional_text("after")?;
            members.after = text.map(|text| position(reader, text)).transpose()?;
        }
        "from" => members.from = Some(reader.unsigned("from")?),
        "next" => match reader.item()? {
            Item::Unsigned(next) => members.next = Some(next),
            Item::Text(text) => members.next_position = Some(position(reader, text)?),
            _ => return Err(reader.malformed("next is neither a number nor a position")),
        },
        "kept" => {
            let text = reader.optional_text("kept")?;
            members.kept = text.map(|text| position(reader, text)).transpose()?;
        }
        "reason" => members.reason = Some(reader.text("reason")?),
        _ => reader.skip()?,
    }
    Ok(())
}

fn position(reader: &Reader<'_>, text: &str) -> Result<Position, SerializationError> {
    let parsed = text.parse();
    parsed.map_err(|error: chappe_stream::PositionError| reader.malformed(error.to_string()))
}

fn read_epoch(reader: &mut Reader<'_>) -> Result<Epoch, SerializationError> {
    let text = reader.text("epoch")?;
    let number = u64::from_str_radix(text, 16);
    let wrong = |_| reader.malformed("epoch is not 16 hexadecimal digits");
    number.map(Epoch).map_err(wrong)
}

fn read_fields(reader: &mut Reader<'_>) -> Result<Vec<FieldMember>, SerializationError> {
    let length = reader.array("fields")?;
    limit("the number of fields", length, FIELDS_MAX)?;
    let mut fields: Vec<FieldMember> = Vec::new();
    for _ in 0..length {
        let field = match reader.item()? {
            Item::Text(name) => FieldMember {
                name: name.to_owned(),
                whole: None,
            },
            Item::Map(members) => read_field(reader, members)?,
            _ => return Err(reader.malformed("a field is neither a name nor a map")),
        };
        if fields.iter().any(|other| other.name == field.name) {
            return Err(reader.malformed(format!("field {:?} occurs twice", field.name)));
        }
        fields.push(field);
    }
    Ok(fields)
}

fn read_field(reader: &mut Reader<'_>, members: usize) -> Result<FieldMember, SerializationError> {
    let (mut name, mut field_type) = (None, None);
    let (mut unit, mut observed_property, mut description) = (None, None, None);
    for _ in 0..members {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        match reader.text("a member's name")? {
            "name" => name = Some(reader.text("name")?.to_owned()),
            "type" => {
                let word = reader.text("type")?;
                let found = type_of(word);
                field_type = Some(found.ok_or_else(|| reader.malformed("unknown type"))?);
            }
            "unit" => unit = owned(reader.optional_text("unit")?),
            "observed_property" => {
                observed_property = owned(reader.optional_text("observed_property")?);
            }
            "description" => description = owned(reader.optional_text("description")?),
            _ => reader.skip()?,
        }
    }
    let name = name.ok_or_else(|| reader.malformed("a field has no name"))?;
    let whole = field_type.map(|field_type| Field {
        name: name.clone(),
        field_type,
        unit,
        observed_property,
        description,
    });
    Ok(FieldMember { name, whole })
}

fn read_elements(reader: &mut Reader<'_>) -> Result<Vec<StreamElement>, SerializationError> {
    let length = reader.array("elements")?;
    limit("the number of elements", length, ELEMENTS_MAX)?;
    let mut elements = Vec::new();
    for _ in 0..length {
        elements.push(read_element(reader)?);
    }
    Ok(elements)
}

fn read_element(reader: &mut Reader<'_>) -> Result<StreamElement, SerializationError> {
    let mut element = StreamElement {
        position: Position::default(),
        source_time: Timestamp(0),
        receive_time: Timestamp(0),
        key: None,
        values: Vec::new(),
        quality: Quality::Good,
        origin: None,
    };
    let (mut source_time, mut receive_time, mut number, mut epoch) = (None, None, None, None);
    for _ in 0..reader.map("an element")? {
        match reader.text("a member's name")? {
            "epoch" => epoch = Some(read_epoch(reader)?),
            "number" => number = Some(reader.unsigned("number")?),
            "timestamp" => source_time = Some(Timestamp(reader.signed("timestamp")?)),
            "received" => receive_time = Some(Timestamp(reader.signed("received")?)),
            "key" => element.key = reader.optional_text("key")?.map(str::to_owned),
            "quality" => {
                let quality = quality_of(reader.text("quality")?);
                element.quality = quality.ok_or_else(|| reader.malformed("unknown quality"))?;
            }
            "origin" => {
                let text = reader.optional_text("origin")?;
                element.origin = text.map(|text| position(reader, text)).transpose()?;
            }
            "values" => element.values = read_values(reader)?,
            _ => reader.skip()?,
        }
    }
    let missing = |name: &str| reader.malformed(format!("an element has no {name}"));
    element.source_time = source_time.ok_or_else(|| missing("timestamp"))?;
    element.receive_time = receive_time.unwrap_or(element.source_time);
    element.position = Position {
        epoch: epoch.ok_or_else(|| missing("epoch"))?,
        sequence: number.ok_or_else(|| missing("number"))?,
    };
    Ok(element)
}

fn read_values(reader: &mut Reader<'_>) -> Result<Vec<Value>, SerializationError> {
    let length = reader.array("values")?;
    limit("the number of fields", length, FIELDS_MAX)?;
    let mut values = Vec::new();
    for _ in 0..length {
        values.push(match reader.item()? {
            Item::Nil => Value::Null,
            Item::Boolean(flag) => Value::Boolean(flag),
            Item::Signed(number) => Value::Integer(number),
            Item::Unsigned(number) => match i64::try_from(number) {
                Ok(number) => Value::Integer(number),
                Err(_) => return Err(reader.malformed("an integer exceeds 64 bits")),
            },
            Item::Double(number) => Value::Double(number),
            Item::Text(text) => Value::Text(text.to_owned()),
            Item::Binary(data) => Value::Bytes(data.to_vec()),
            Item::Map(members) => Value::Samples(read_samples(reader, members)?),
            Item::Array(_) | Item::Other => {
                return Err(reader.malformed("a value has an unsupported type"));
            }
        });
    }
    Ok(values)
}

fn read_samples(reader: &mut Reader<'_>, members: usize) -> Result<Samples, SerializationError> {
    let mut samples = Samples::default();
    for _ in 0..members {
        match reader.text("a member's name")? {
            "start" => samples.start = Timestamp(reader.signed("start")?),
            "period_ns" => samples.period_ns = reader.unsigned("period_ns")?,
            "values" => {
                for _ in 0..reader.array("values")? {
                    samples.values.push(match reader.item()? {
                        Item::Double(number) => number,
                        Item::Signed(number) => number as f64,
                        Item::Unsigned(number) => number as f64,
                        _ => return Err(reader.malformed("a sample is not a number")),
                    });
                }
            }
            _ => reader.skip()?,
        }
    }
    Ok(samples)
}
