//! No input makes the decoder panic or loop. Random bytes and valid streams with changed bytes, in
//! every alignment, with and without a schema, are read until they end or fail, within small
//! limits.

use std::sync::{Arc, OnceLock};

use chappe_exi::{
    Alignment, Decoder, Encoder, HeaderOptions, Limits, Options, Preserve, Schema, XsdSource, text,
};
use proptest::prelude::*;

const XSD: &[u8] = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="a"><xs:complexType mixed="true"><xs:sequence>
    <xs:element name="n" type="xs:integer" minOccurs="0" maxOccurs="unbounded"/>
    <xs:element name="t" type="xs:dateTime" minOccurs="0"/>
    <xs:element name="l" minOccurs="0" nillable="true">
      <xs:simpleType><xs:list itemType="xs:decimal"/></xs:simpleType></xs:element>
    <xs:any minOccurs="0" processContents="lax"/>
  </xs:sequence><xs:attribute name="f" type="xs:float"/><xs:anyAttribute/></xs:complexType></xs:element>
</xs:schema>"#;
const DOCUMENT: &[u8] = b"<a f='1.5' g='x'>text<n>5</n><n>-99999999999999999999</n>\
    <t>2026-11-21T10:00:00.5Z</t><l>1.5 2</l><b c='1'>two<b/>two</b></a>";

fn options() -> impl Strategy<Value = Options> {
    let flags = proptest::collection::vec(any::<bool>(), 7);
    (0..4u8, flags, proptest::option::of(0..4u32)).prop_map(|(layout, flags, capacity)| Options {
        alignment: match layout {
            1 => Alignment::ByteAligned,
            2 => Alignment::PreCompression,
            _ => Alignment::BitPacked,
        },
        compression: layout == 3,
        fragment: flags[0],
        self_contained: flags[1] && layout < 2,
        preserve: Preserve {
            comments: flags[2],
            pis: flags[3],
            dtd: flags[4],
            prefixes: flags[5],
            lexical_values: flags[6],
        },
        block_size: 3,
        value_partition_capacity: capacity,
        ..Options::default()
    })
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
    schemas[usize::from(which)].clone()
}

/// Reads to the end or to the first error, which every further call must return.
fn read(schema: &Arc<Schema>, stream: &[u8], options: &Options) {
    let mut decoder = Decoder::new(schema.clone()).with_limits(Limits::datagram());
    let Ok(mut reading) = decoder.begin(stream, Some(options)) else {
        return;
    };
    loop {
        match reading.next_event() {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => {
                assert_eq!(reading.next_event().err(), Some(error));
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_end_or_fail(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        options in options(),
        which in 0..3u8,
    ) {
        let schema = schema(which);
        read(&schema, &bytes, &options);
        let mut stream = vec![0x80];
        stream.extend(bytes);
        read(&schema, &stream, &options);
        stream[0] = 0xa0;
        read(&schema, &stream, &options);
    }

    #[test]
    fn changed_streams_end_or_fail(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        options in options(),
        which in 0..3u8,
        in_band in any::<bool>(),
    ) {
        let schema = schema(which);
        let header = HeaderOptions { cookie: false, options: in_band };
        let mut encoder = Encoder::new(schema.clone());
        let made = text::encode(&mut encoder, &options, header, DOCUMENT);
        let mut stream = made.expect("it is a document").to_vec();
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        read(&schema, &stream, &options);
    }
}
