//! In the steady state neither events nor messages allocate memory.
//!
//! A counting allocator wraps the system's. After a few messages of each kind, further ones must
//! not allocate.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;

use std::sync::Arc;

use chappe_exi::{
    Alignment, Decoder, Encoder, Event, Float, HeaderOptions, MessageSchema, Name, Options, Schema,
    SchemaId, Value, XsdSource,
};

const XSD: &str = r###"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="urn:x"
    targetNamespace="urn:x" elementFormDefault="qualified">
  <xs:simpleType name="word"><xs:restriction base="xs:string">
    <xs:pattern value="[a-z]+"/></xs:restriction></xs:simpleType>
  <xs:element name="Values"><xs:complexType><xs:sequence>
    <xs:element name="Value" type="xs:double" maxOccurs="unbounded"/>
    <xs:element name="Counts"><xs:simpleType><xs:list itemType="xs:int"/></xs:simpleType></xs:element>
    <xs:element name="Word" type="word"/>
    <xs:element name="Data" type="xs:base64Binary"/>
    <xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>
  </xs:sequence><xs:attribute name="count" type="xs:int"/><xs:attribute name="on" type="xs:boolean"/>
  </xs:complexType></xs:element>
</xs:schema>"###;

fn events() -> Vec<Event<'static>> {
    let name = |local| Name::new("urn:x", local);
    let mut events = vec![
        Event::StartDocument,
        Event::StartElement(name("Values")),
        Event::Attribute(Name::new("", "on"), Value::Boolean(true)),
        Event::Attribute(Name::new("", "count"), Value::Integer(150)),
    ];
    for number in 0..150 {
        let value = Value::Float(Float::from_f64(f64::from(number) / 8.0));
        events.extend([
            Event::StartElement(name("Value")),
            Event::Characters(value),
            Event::EndElement,
        ]);
    }
    for (local, value) in [
        ("Counts", Value::Text("1 -2 3000000")),
        ("Word", Value::Text("grün and others")),
        ("Data", Value::Base64(b"\x01\x02\x03")),
    ] {
        events.extend([
            Event::StartElement(name(local)),
            Event::Characters(value),
            Event::EndElement,
        ]);
    }
    for text in [
        "first of its name",
        "second of its name, longer",
        "first of its name",
    ] {
        events.extend([
            Event::StartElement(Name::new("urn:y", "unknown")),
            Event::Attribute(Name::new("urn:y", "at"), Value::Text("urn:somewhere")),
            Event::Characters(Value::Text(text)),
            Event::EndElement,
        ]);
    }
    events.extend([Event::EndElement, Event::EndDocument]);
    events
}

fn schemas() -> [Arc<Schema>; 3] {
    let source = XsdSource {
        name: "x.xsd".into(),
        document: XSD.into(),
    };
    let informed = Schema::from_xsd(vec![source], &mut |_, _| None).expect("it is a schema");
    [
        Schema::none(),
        informed.with_id("x"),
        Schema::for_messages(MessageSchema::Devices),
    ]
    .map(Arc::new)
}

fn layouts() -> Vec<Options> {
    use Alignment::{BitPacked, ByteAligned, PreCompression};
    let mut layouts: Vec<Options> = [BitPacked, ByteAligned, PreCompression]
        .map(|alignment| Options {
            alignment,
            ..Options::default()
        })
        .into();
    layouts.push(Options {
        compression: true,
        ..Options::default()
    });
    layouts.push(Options {
        compression: true,
        block_size: 20,
        value_partition_capacity: Some(3),
        ..Options::default()
    });
    layouts
}

#[test]
fn repeated_messages_allocate_nothing() {
    let events = events();
    for schema in schemas() {
        let mut encoder = Encoder::new(schema.clone());
        let mut decoder = Decoder::new(schema.clone());
        for mut options in layouts() {
            options.schema_id = match schema.id() {
                "" => SchemaId::None,
                id => SchemaId::Named(id.to_owned()),
            };
            let header = HeaderOptions {
                cookie: true,
                options: true,
            };
            let mut stream = Vec::new();
            let mut message = |stream: &mut Vec<u8>| {
                let mut writing = encoder.begin_with(&options, header).expect("valid options");
                for event in &events {
                    writing.event(*event).expect("the schema allows it");
                }
                stream.clear();
                stream.extend_from_slice(writing.finish().expect("it has ended"));
                let mut reading = decoder.begin(stream, None).expect("a header");
                let mut read = 0;
                while reading.next_event().expect("the stream decodes").is_some() {
                    read += 1;
                }
                assert_eq!(read, events.len());
            };
            for _ in 0..3 {
                message(&mut stream);
            }
            let before = bounds::allocations();
            for _ in 0..5 {
                message(&mut stream);
            }
            let allocated = bounds::allocations() - before;
            assert_eq!(allocated, 0, "{:?} {options:?}", schema.id());
        }
    }
}
