//! Invariants of the EXI decoder and of the schema loader for any bytes.

use std::sync::{Arc, OnceLock};

use chappe_exi::{
    Alignment, Decoder, Encoder, HeaderOptions, Limits, Options, Preserve, Schema, XsdSource, text,
};

use crate::bounds::Bound;

/// The tables, blocks and grammars of [`limits`], in three decoders and two encoders; a schema document is
/// held as tree and as grammar, eight times when it includes itself.
const BOUND: Bound = Bound::memory(8 << 20, 1_000);

/// Has every datatype and every kind of grammar.
const XSD: &[u8] = br###"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="u:a" xmlns="u:a">
  <xs:element name="a"><xs:complexType mixed="true"><xs:sequence>
    <xs:element name="n" type="xs:integer" minOccurs="0" maxOccurs="unbounded"/>
    <xs:element name="t" type="xs:dateTime" minOccurs="0" maxOccurs="200"/>
    <xs:element name="l" minOccurs="0" nillable="true">
      <xs:simpleType><xs:list itemType="xs:decimal"/></xs:simpleType></xs:element>
    <xs:choice minOccurs="0"><xs:element ref="h"/><xs:element name="y" type="xs:byte"/></xs:choice>
    <xs:element name="d" type="derived" minOccurs="0"/>
    <xs:element name="o" minOccurs="0"><xs:complexType><xs:all>
      <xs:element name="p" type="xs:boolean" minOccurs="0"/><xs:element name="q" type="xs:hexBinary"/>
    </xs:all></xs:complexType></xs:element>
    <xs:any minOccurs="0" namespace="##other" processContents="lax"/>
  </xs:sequence><xs:attribute name="f" type="xs:float"/><xs:attribute name="b" type="xs:base64Binary"/>
    <xs:anyAttribute namespace="u:b ##local"/></xs:complexType></xs:element>
  <xs:element name="h" type="code"/><xs:element name="i" type="code" substitutionGroup="h"/>
  <xs:simpleType name="code"><xs:restriction base="xs:string"><xs:pattern value="[a-f]{2}|x*"/></xs:restriction></xs:simpleType>
  <xs:simpleType name="color"><xs:restriction base="xs:token"><xs:enumeration value="red"/>
    <xs:enumeration value="green"/><xs:enumeration value="blue"/></xs:restriction></xs:simpleType>
  <xs:simpleType name="union"><xs:union memberTypes="xs:int color"/></xs:simpleType>
  <xs:complexType name="base"><xs:sequence><xs:element name="c" type="color"/></xs:sequence></xs:complexType>
  <xs:complexType name="derived"><xs:complexContent><xs:extension base="base"><xs:sequence>
    <xs:element name="u" type="union" maxOccurs="3"/></xs:sequence></xs:extension></xs:complexContent></xs:complexType>
</xs:schema>"###;

/// Small, so that limits are reached.
fn limits() -> Limits {
    Limits {
        depth: 16,
        string_characters: 2_000,
        table_bytes: 8_000,
        events: 2_000,
        block_bytes: 20_000,
        productions: 500,
        grammar_states: 2_000,
    }
}

fn schema(which: u8) -> Arc<Schema> {
    static SCHEMAS: OnceLock<[Arc<Schema>; 3]> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| {
        let source = XsdSource {
            name: "a.xsd".into(),
            document: XSD.to_vec(),
        };
        let made = Schema::from_xsd(vec![source], &mut |_, _| None).expect("it is a schema");
        [Schema::none(), Schema::built_in_types(), made].map(Arc::new)
    });
    schemas[usize::from(which) % 3].clone()
}

/// The first byte chooses the schema, the second the preserved content, the third other options; the rest
/// is a body, or a whole stream where the third says so.
///
/// No panic; the stream ends or is refused within the limits, and a refusal repeats itself. What
/// decodes without an error encodes again, and that decodes to the same.
///
/// # Panics
/// When that does not hold.
pub(crate) fn decoder(data: &[u8], alignment: Alignment, compression: bool) {
    BOUND.hold(data.len(), || {
        decoder_unbounded(data, alignment, compression)
    });
}

fn decoder_unbounded(data: &[u8], alignment: Alignment, compression: bool) {
    let [which, preserve, choice, rest @ ..] = data else {
        return;
    };
    let bit = |byte: u8, at: u8| byte >> at & 1 == 1;
    let schema = schema(*which);
    let options = Options {
        alignment,
        compression,
        strict: bit(*choice, 0),
        fragment: bit(*choice, 1),
        self_contained: bit(*choice, 2),
        preserve: Preserve {
            comments: bit(*preserve, 0),
            pis: bit(*preserve, 1),
            dtd: bit(*preserve, 2),
            prefixes: bit(*preserve, 3),
            lexical_values: bit(*preserve, 4),
        },
        block_size: if bit(*choice, 3) {
            3
        } else {
            Options::BLOCK_SIZE
        },
        value_partition_capacity: bit(*choice, 4).then_some(2),
        value_max_length: bit(*choice, 5).then_some(4),
        ..Options::default()
    };
    let whole = bit(*choice, 6);
    let stream = match whole {
        true => rest.to_vec(),
        false => [&[0x80], rest].concat(),
    };
    let Some((text, options)) = read(&schema, &stream, &options) else {
        return;
    };
    // Text has one root, no marks and no event of nothing; what it says must come back.
    let mut encoder = Encoder::new(schema.clone()).with_limits(limits());
    let header = HeaderOptions::default();
    let Ok(again) = text::encode(&mut encoder, &options, header, text.as_bytes()) else {
        return;
    };
    let again = again.to_vec();
    let (same, _) = read(&schema, &again, &options).expect("what was encoded decodes");
    let mut encoder = Encoder::new(schema.clone()).with_limits(limits());
    let twice = text::encode(&mut encoder, &options, header, same.as_bytes());
    let twice = twice.expect("what was decoded encodes").to_vec();
    let (end, _) = read(&schema, &twice, &options).expect("what was encoded decodes");
    assert_eq!(same, end, "a document changes from time to time");
}

/// The text of a stream, with the options in effect; none: it is refused.
fn read(schema: &Arc<Schema>, stream: &[u8], options: &Options) -> Option<(String, Options)> {
    let mut decoder = Decoder::new(schema.clone()).with_limits(limits());
    let mut reading = decoder.begin(stream, Some(options)).ok()?;
    let options = reading.options().clone();
    let mut writer = text::Writer::default();
    let mut events = 0;
    loop {
        events += 1;
        assert!(events <= limits().events + 3, "beyond the limit of events");
        match reading.next_event() {
            Ok(Some(event)) => writer.event(&event),
            Ok(None) => return Some((writer.finish(), options)),
            Err(error) => {
                assert_eq!(reading.next_event().err(), Some(error), "another error");
                return None;
            }
        }
    }
}

/// A schema document, which may include and import itself.
///
/// No panic; it is compiled or refused with a line.
///
/// # Panics
/// When that does not hold.
pub(crate) fn xsd(data: &[u8]) {
    BOUND.hold(data.len(), || xsd_unbounded(data));
}

fn xsd_unbounded(data: &[u8]) {
    let source = |name: &str| XsdSource {
        name: name.into(),
        document: data.to_vec(),
    };
    let mut asked = 0;
    let compiled = Schema::from_xsd_within(
        vec![source("first.xsd")],
        &mut |_, location| {
            asked += 1;
            (asked < 8).then(|| source(location))
        },
        &limits(),
    );
    match compiled {
        Ok(schema) => assert_eq!(schema.id(), ""),
        Err(error) => assert!(!error.reason.is_empty(), "no reason"),
    }
}
