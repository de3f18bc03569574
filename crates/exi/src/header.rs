//! The header of a stream (5): cookie, version, options document.
//!
//! The options document is a strict EXI body under the schema of appendix C, which this module
//! builds from its content models.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::bits::{BitReader, BitWriter};
use crate::error::Cause;
use crate::event::{Event, Name};
use crate::options::{Alignment, Metadata, Options, Profile, QName, Representation, SchemaId};
use crate::representation::EXI_NAMESPACE as EXI;
use crate::schema::model::{Content, Namespaces, Particle, Term, complex_type};
use crate::schema::{Builder, ElementDeclaration, NONE, Schema, XSD_NAMESPACE};
use crate::value::{Decimal, Value, reversed, unreversed};

const COOKIE: &[u8; 4] = b"$EXI";

/// Maximum bytes of names and values in user-defined metadata. Reason: a few bits can repeat a long
/// value from a string table, and options are list in memory.
const METADATA_BYTES_MAX: usize = 64 << 10;

/// The fixed part of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The header starts with the cookie, the four bytes `$EXI`.
    pub cookie: bool,
    /// The version number is of a preview of the format.
    pub preview: bool,
    /// An options document follows.
    pub options: bool,
}

/// Reads the header up to the options document.
pub(crate) fn read_preamble(reader: &mut BitReader<'_>) -> Result<Header, Cause> {
    while reader.rest().len() <= COOKIE.len() && reader.read_more()? {}
    let cookie = reader.rest().starts_with(COOKIE);
    let first = reader.rest().first().copied();
    if cookie {
        reader.skip(COOKIE.len());
    }
    if reader.raw_bits(2)? != 0b10 {
        return Err(Cause::NotExi(match first {
            Some(b'<') => "text XML",
            Some(0x1f) => "gzip",
            Some(0xef | 0xfe | 0xff) => "text XML with a byte order mark",
            _ => "",
        }));
    }
    let options = reader.raw_bits(1)? == 1;
    let preview = reader.raw_bits(1)? == 1;
    let mut version = 1;
    loop {
        let more = reader.raw_bits(4)?;
        version += more;
        if more < 15 {
            break;
        }
        if version > 1 << 10 {
            return Err(Cause::Version(version));
        }
    }
    // The preview versions that interoperability tests use are identical to the final format.
    let known = if preview { 3 } else { 1 };
    if version > known {
        return Err(Cause::Version(version));
    }
    Ok(Header {
        cookie,
        preview,
        options,
    })
}

/// Writes the header up to the options document, for version 1.
pub(crate) fn write_preamble(writer: &mut BitWriter, header: &Header) {
    if header.cookie {
        writer.octets(COOKIE);
    }
    writer.raw_bits(0b10, 2);
    writer.raw_bits(u32::from(header.options), 1);
    writer.raw_bits(u32::from(header.preview), 1);
    writer.raw_bits(0, 4);
}

/// An element of the options document.
enum OptionsElement {
    /// An empty element, used as a flag.
    Flag(&'static str),
    Unsigned(&'static str),
    Group(&'static str, Vec<OptionsElement>),
    Choice(&'static str, Vec<OptionsElement>),
    /// `xs:string`, nillable.
    Text(&'static str),
    /// Any number of elements of other namespaces.
    Metadata,
    /// Any number of `datatypeRepresentationMap` elements.
    Map,
}

/// The schema of appendix C.
pub(crate) fn options_schema() -> Schema {
    use OptionsElement::{Choice, Flag, Group, Map, Metadata, Text, Unsigned};
    let uncommon = [
        Metadata,
        Choice("alignment", [Flag("byte"), Flag("pre-compress")].into()),
        Flag("selfContained"),
        Unsigned("valueMaxLength"),
        Unsigned("valuePartitionCapacity"),
        Map,
    ];
    let preserve = ["dtd", "prefixes", "lexicalValues", "comments", "pis"].map(Flag);
    let less_common = [
        Group("uncommon", uncommon.into()),
        Group("preserve", preserve.into()),
        Unsigned("blockSize"),
    ];
    let common = [Flag("compression"), Flag("fragment"), Text("schemaId")];
    let header = [
        Group("lesscommon", less_common.into()),
        Group("common", common.into()),
        Flag("strict"),
    ];
    let mut builder = Builder::new(true);
    for name in REPRESENTATIONS {
        builder.add_name(EXI, name);
    }
    let header = add_element(&mut builder, &Group("header", header.into()), true);
    debug_assert_ne!(header, NONE);
    builder.finish("")
}

/// Type names that the schema declares for datatype representation maps.
const REPRESENTATIONS: [&str; 17] = [
    "base64Binary",
    "hexBinary",
    "boolean",
    "decimal",
    "double",
    "integer",
    "string",
    "dateTime",
    "date",
    "time",
    "gYearMonth",
    "gMonthDay",
    "gYear",
    "gMonth",
    "gDay",
    "ieeeBinary32",
    "ieeeBinary64",
];

fn particle(builder: &mut Builder, part: &OptionsElement, min: u32) -> Particle {
    let (max, term) = match part {
        OptionsElement::Metadata => (None, Term::Wildcard(Namespaces::Any)),
        OptionsElement::Map => {
            let any = || Particle {
                min: 1,
                max: Some(1),
                term: Term::Wildcard(Namespaces::Any),
            };
            let pair = Term::Sequence([any(), any()].into());
            (
                None,
                declare_element(builder, "datatypeRepresentationMap", pair),
            )
        }
        part => {
            let at = add_element(builder, part, false);
            let name = builder.elements[at as usize].name.clone();
            (Some(1), Term::Element([(name, at)].into()))
        }
    };
    Particle { min, max, term }
}

fn declare_element(builder: &mut Builder, local: &str, term: Term) -> Term {
    let type_ = builder.reserve_type();
    let particle = Particle {
        min: 1,
        max: Some(1),
        term,
    };
    let content = Content::Model {
        particle: Some(particle),
        mixed: false,
    };
    // These models are far below the limit of states.
    let _ = complex_type(builder, type_, Vec::new(), None, &content);
    let name = (EXI.to_string(), local.to_string());
    let at = builder.declare_element(ElementDeclaration {
        name: name.clone(),
        type_,
        nillable: false,
        global: false,
    });
    Term::Element([(name, at)].into())
}

fn add_element(builder: &mut Builder, part: &OptionsElement, global: bool) -> u32 {
    let type_ = builder.reserve_type();
    let mut nillable = false;
    let children = |builder: &mut Builder, parts: &[OptionsElement], min: u32| -> Vec<Particle> {
        parts
            .iter()
            .map(|part| particle(builder, part, min))
            .collect()
    };
    let (local, content) = match part {
        OptionsElement::Flag(local) => (*local, Content::Empty),
        OptionsElement::Group(local, parts) => {
            let term = Term::Sequence(children(builder, parts, 0));
            (*local, model(term))
        }
        OptionsElement::Choice(local, parts) => {
            let term = Term::Choice(children(builder, parts, 1));
            (*local, model(term))
        }
        OptionsElement::Unsigned(local) | OptionsElement::Text(local) => {
            let text = matches!(part, OptionsElement::Text(_));
            nillable = text;
            let base = builder.built_in_datatype(if text { "string" } else { "unsignedInt" });
            builder.set_simple_type(type_, base.unwrap_or(NONE));
            return declare_options_element(builder, local, type_, nillable, global);
        }
        OptionsElement::Metadata | OptionsElement::Map => ("", Content::Empty),
    };
    let _ = complex_type(builder, type_, Vec::new(), None, &content);
    declare_options_element(builder, local, type_, nillable, global)
}

fn model(term: Term) -> Content {
    let particle = Particle {
        min: 1,
        max: Some(1),
        term,
    };
    Content::Model {
        particle: Some(particle),
        mixed: false,
    }
}

fn declare_options_element(
    builder: &mut Builder,
    local: &str,
    type_: u32,
    nillable: bool,
    global: bool,
) -> u32 {
    builder.declare_element(ElementDeclaration {
        name: (EXI.into(), local.into()),
        type_,
        nillable,
        global,
    })
}

/// The options with which an options document is encoded, as the specification fixes them.
pub(crate) fn document_options() -> Options {
    Options {
        strict: true,
        ..Options::default()
    }
}

/// Collects options from the events of an options document.
pub(crate) struct OptionsReader {
    options: Options,
    path: Vec<(String, String)>,
    map: Vec<QName>,
    /// Bytes left for user-defined metadata.
    room: usize,
}

impl OptionsReader {
    pub(crate) fn new() -> Self {
        Self {
            options: Options::default(),
            path: Vec::new(),
            map: Vec::new(),
            room: METADATA_BYTES_MAX,
        }
    }

    /// Applies one event of the document.
    pub(crate) fn apply(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        let Self {
            options,
            path,
            map,
            room,
        } = self;
        match is_metadata(path, event) {
            true => record_metadata(&mut options.metadata, path, room, event),
            false => apply_option_event(options, path, map, event),
        }
    }

    /// The options, if they agree with each other.
    pub(crate) fn finish(self) -> Result<Options, Cause> {
        self.options.check()?;
        Ok(self.options)
    }
}

/// Returns true if an event belongs to, or starts, an element of another namespace within
/// `uncommon`.
fn is_metadata(path: &[(String, String)], event: &Event<'_>) -> bool {
    match (path.get(3), event) {
        (Some((uri, _)), _) => uri != EXI,
        (None, Event::StartElement(name)) => path.len() == 3 && name.namespace != EXI,
        _ => false,
    }
}

/// Records one event of user-defined metadata, within the remaining `room` in bytes.
fn record_metadata(
    list: &mut Vec<Metadata>,
    path: &mut Vec<(String, String)>,
    room: &mut usize,
    event: &Event<'_>,
) -> Result<(), Cause> {
    let qname = |namespace: &str, local: &str| QName {
        namespace: namespace.into(),
        local: local.into(),
    };
    let (part, bytes) = match event {
        Event::StartElement(name) => {
            path.push((name.namespace.into(), name.local.into()));
            let bytes = name.namespace.len() + name.local.len();
            (Metadata::Start(qname(name.namespace, name.local)), bytes)
        }
        Event::Attribute(
            _,
            Value::QName {
                namespace, local, ..
            },
        ) => {
            let bytes = namespace.len() + local.len();
            (Metadata::Type(qname(namespace, local)), bytes)
        }
        Event::Attribute(name, value) => {
            let (name, value) = (qname(name.namespace, name.local), value.to_string());
            let bytes = name.namespace.len() + name.local.len() + value.len();
            (Metadata::Attribute(name, value), bytes)
        }
        Event::Characters(value) => {
            let text = value.to_string();
            let bytes = text.len();
            (Metadata::Text(text), bytes)
        }
        Event::EndElement => {
            path.pop();
            (Metadata::End, 0)
        }
        _ => return Ok(()),
    };
    // Each item also counts its fixed size.
    let left = room.checked_sub(bytes + size_of::<Metadata>());
    *room = left.ok_or(Cause::limit("metadata_bytes", METADATA_BYTES_MAX as u64))?;
    list.push(part);
    Ok(())
}

/// Applies one event of an options document to the options.
fn apply_option_event(
    options: &mut Options,
    path: &mut Vec<(String, String)>,
    map: &mut Vec<QName>,
    event: &Event<'_>,
) -> Result<(), Cause> {
    match event {
        Event::StartElement(name) => {
            let within_map = matches!(path.last(), Some((uri, local))
                if uri == EXI && local == "datatypeRepresentationMap");
            if within_map {
                map.push(QName {
                    namespace: name.namespace.into(),
                    local: name.local.into(),
                });
            } else if name.namespace == EXI && path.iter().all(|(uri, _)| uri == EXI) {
                set_flag(options, name.local);
            }
            path.push((name.namespace.into(), name.local.into()));
        }
        Event::EndElement => {
            path.pop();
            if let [datatype, representation] = map.as_slice()
                && path.len() == 3
            {
                options.datatype_representation_map.push(Representation {
                    datatype: datatype.clone(),
                    representation: representation.clone(),
                });
                map.clear();
            }
        }
        Event::Attribute(name, value) if name.is_xsi("nil") => {
            if matches!(value, crate::Value::Boolean(true)) {
                options.schema_id = SchemaId::None;
            }
        }
        Event::Characters(value) if path.iter().all(|(uri, _)| uri == EXI) => {
            let element = path.last().map_or("", |(_, local)| local.as_str());
            let mut lexical = String::new();
            value.write_lexical(&mut lexical);
            let number = || {
                let parsed = lexical.parse::<u32>();
                parsed.map_err(|_| Cause::OutOfRange("a number of 32 bits"))
            };
            match element {
                "p" => options.profile = decode_profile(value),
                "valueMaxLength" => options.value_max_length = Some(number()?),
                "valuePartitionCapacity" => options.value_partition_capacity = Some(number()?),
                "blockSize" => options.block_size = number()?,
                "schemaId" if lexical.is_empty() => options.schema_id = SchemaId::BuiltInTypes,
                "schemaId" => options.schema_id = SchemaId::Named(lexical),
                _ => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// Decodes the parameters of the EXI Profile from a decimal: its sign, its integral part and its
/// reversed fraction. The numbers are greater by one; zero means unlimited (EXI Profile, 4).
fn decode_profile(value: &Value<'_>) -> Option<Profile> {
    let Value::Decimal(value) = value else {
        return None;
    };
    let number = |number: u64| {
        number
            .checked_sub(1)
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    };
    let productions = reversed(value.fraction, value.fraction_digits);
    Some(Profile {
        local_value_partitions: value.negative,
        maximum_number_of_built_in_element_grammars: number(value.integral),
        maximum_number_of_built_in_productions: number(productions),
    })
}

fn encode_profile(profile: &Profile) -> Value<'static> {
    let number = |number: Option<u32>| number.map_or(0, |number| u64::from(number) + 1);
    let productions = number(profile.maximum_number_of_built_in_productions);
    let (fraction, fraction_digits) = unreversed(productions).unwrap_or_default();
    Value::Decimal(Decimal {
        negative: profile.local_value_partitions,
        integral: number(profile.maximum_number_of_built_in_element_grammars),
        fraction,
        fraction_digits,
    })
}

/// Sets the option that an empty element stands for.
fn set_flag(options: &mut Options, local: &str) {
    let preserve = &mut options.preserve;
    match local {
        "byte" => options.alignment = Alignment::ByteAligned,
        "pre-compress" => options.alignment = Alignment::PreCompression,
        "selfContained" => options.self_contained = true,
        "dtd" => preserve.dtd = true,
        "prefixes" => preserve.prefixes = true,
        "lexicalValues" => preserve.lexical_values = true,
        "comments" => preserve.comments = true,
        "pis" => preserve.pis = true,
        "compression" => options.compression = true,
        "fragment" => options.fragment = true,
        "strict" => options.strict = true,
        _ => {}
    }
}

/// The event of one item of user-defined metadata.
fn metadata_event(part: &Metadata) -> Event<'_> {
    fn name(name: &QName) -> Name<'_> {
        Name::new(&name.namespace, &name.local)
    }
    match part {
        Metadata::Start(element) => Event::StartElement(name(element)),
        Metadata::Type(type_) => {
            let value = Value::QName {
                namespace: &type_.namespace,
                local: &type_.local,
                prefix: None,
            };
            Event::Attribute(Name::new(crate::schema::XSI_NAMESPACE, "type"), value)
        }
        Metadata::Attribute(attribute, value) => {
            Event::Attribute(name(attribute), Value::Text(value))
        }
        Metadata::Text(text) => Event::Characters(Value::Text(text)),
        Metadata::End => Event::EndElement,
    }
}

/// The events of an options document.
pub(crate) fn options_events<'o>(options: &'o Options, events: &mut Vec<Event<'o>>) {
    let start = |local| Event::StartElement(Name::new(EXI, local));
    fn group<'o>(events: &mut Vec<Event<'o>>, local: &'static str, inner: Vec<Event<'o>>) {
        if !inner.is_empty() {
            events.push(Event::StartElement(Name::new(EXI, local)));
            events.extend(inner);
            events.push(Event::EndElement);
        }
    }
    let flag = |events: &mut Vec<Event<'o>>, set: bool, local| {
        if set {
            events.extend([start(local), Event::EndElement]);
        }
    };
    let number = |events: &mut Vec<Event<'o>>, value: Option<u32>, local| {
        if let Some(value) = value {
            let value = crate::Value::Integer(i64::from(value));
            events.extend([start(local), Event::Characters(value), Event::EndElement]);
        }
    };
    let mut alignment = Vec::new();
    let byte = options.alignment == Alignment::ByteAligned;
    let pre = options.alignment == Alignment::PreCompression;
    flag(&mut alignment, byte, "byte");
    flag(&mut alignment, pre, "pre-compress");
    let mut uncommon = Vec::new();
    uncommon.extend(options.metadata.iter().map(metadata_event));
    let limited = options
        .profile
        .filter(|profile| *profile != Profile::default());
    if let Some(profile) = &limited {
        let decimal = Value::QName {
            namespace: XSD_NAMESPACE,
            local: "decimal",
            prefix: None,
        };
        let type_ = Name::new(crate::schema::XSI_NAMESPACE, "type");
        uncommon.extend([
            start("p"),
            Event::Attribute(type_, decimal),
            Event::Characters(encode_profile(profile)),
            Event::EndElement,
        ]);
    }
    group(&mut uncommon, "alignment", alignment);
    flag(&mut uncommon, options.self_contained, "selfContained");
    number(&mut uncommon, options.value_max_length, "valueMaxLength");
    let capacity = options.value_partition_capacity;
    number(&mut uncommon, capacity, "valuePartitionCapacity");
    for entry in &options.datatype_representation_map {
        uncommon.push(start("datatypeRepresentationMap"));
        for name in [&entry.datatype, &entry.representation] {
            let name = Name::new(&name.namespace, &name.local);
            uncommon.extend([Event::StartElement(name), Event::EndElement]);
        }
        uncommon.push(Event::EndElement);
    }
    let mut preserve = Vec::new();
    flag(&mut preserve, options.preserve.dtd, "dtd");
    flag(&mut preserve, options.preserve.prefixes, "prefixes");
    flag(
        &mut preserve,
        options.preserve.lexical_values,
        "lexicalValues",
    );
    flag(&mut preserve, options.preserve.comments, "comments");
    flag(&mut preserve, options.preserve.pis, "pis");
    let mut less_common = Vec::new();
    group(&mut less_common, "uncommon", uncommon);
    group(&mut less_common, "preserve", preserve);
    let block_size = Some(options.block_size).filter(|size| *size != Options::BLOCK_SIZE);
    number(&mut less_common, block_size, "blockSize");
    let mut common = Vec::new();
    flag(&mut common, options.compression, "compression");
    flag(&mut common, options.fragment, "fragment");
    let id = match &options.schema_id {
        SchemaId::Absent => None,
        SchemaId::None => {
            let nil = Name::new(crate::schema::XSI_NAMESPACE, "nil");
            Some(Event::Attribute(nil, crate::Value::Boolean(true)))
        }
        SchemaId::BuiltInTypes => Some(Event::Characters("".into())),
        SchemaId::Named(id) => Some(Event::Characters(id.as_str().into())),
    };
    if let Some(id) = id {
        common.extend([start("schemaId"), id, Event::EndElement]);
    }
    let mut header = Vec::new();
    group(&mut header, "lesscommon", less_common);
    group(&mut header, "common", common);
    flag(&mut header, options.strict, "strict");
    events.push(start("header"));
    events.extend(header);
    events.push(Event::EndElement);
}
