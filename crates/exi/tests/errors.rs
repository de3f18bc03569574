//! Errors have the bit of the stream, the path of open elements and the cause. Streams are
//! truncated, changed, read with the wrong schema and beyond each limit.

use std::sync::Arc;

use chappe_exi::{
    Alignment, Cause, Decoder, Encoder, Error, HeaderOptions, Limits, Options, Schema, SchemaId,
    text,
};

const DOCUMENT: &str =
    "<plant><pump><name>P-1</name><name>P-2</name><deep><er><still/></er></deep></pump></plant>";

fn encoded(schema: &Arc<Schema>, options: &Options, document: &str) -> Vec<u8> {
    let mut encoder = Encoder::new(schema.clone());
    let header = HeaderOptions {
        cookie: false,
        options: true,
    };
    let made = text::encode(&mut encoder, options, header, document.as_bytes());
    made.expect("it is a document").to_vec()
}

fn refusal(schema: &Arc<Schema>, stream: &[u8], limits: Limits) -> Option<Error> {
    let mut decoder = Decoder::new(schema.clone()).with_limits(limits);
    let mut reading = match decoder.begin(stream, None) {
        Ok(reading) => reading,
        Err(error) => return Some(error),
    };
    loop {
        match reading.next_event() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

#[test]
fn truncated_streams_report_bit_and_path() {
    let schema = Arc::new(Schema::none());
    let stream = encoded(&schema, &Options::default(), DOCUMENT);
    let mut paths = Vec::new();
    for length in 1..stream.len() {
        let error = refusal(&schema, &stream[..length], Limits::default());
        let error = error.expect("the end is missing");
        assert_eq!(error.cause, Cause::Truncated, "{length}: {error}");
        assert!(error.offset <= length as u64 * 8, "{length}: {error}");
        paths.push(error.path);
    }
    for path in ["", "/plant", "/plant/pump/name", "/plant/pump/deep/er"] {
        assert!(paths.iter().any(|found| found == path), "{path}: {paths:?}");
    }
}

#[test]
fn schema_mismatch_names_both_schemas() {
    let informed = |id: &str| Arc::new(Schema::built_in_types().with_id(id));
    let options = |schema_id| Options {
        schema_id,
        ..Options::default()
    };
    let stream = encoded(
        &informed("plant-2"),
        &options(SchemaId::Named("plant-2".into())),
        DOCUMENT,
    );
    for (loaded, description) in [
        (informed("plant-1"), "\"plant-1\" is loaded"),
        (Arc::new(Schema::none()), "none is loaded"),
        (informed(""), "only the types of XML Schema are loaded"),
    ] {
        let error = refusal(&loaded, &stream, Limits::default()).expect("another schema");
        let text = error.to_string();
        assert!(text.contains("requires schema \"plant-2\""), "{text}");
        assert!(text.contains(description), "{text}");
    }
    assert_eq!(
        refusal(&informed("plant-2"), &stream, Limits::default()),
        None
    );
}

#[test]
fn other_formats_are_named() {
    let schema = Arc::new(Schema::none());
    let message = |stream: &[u8]| {
        let error = refusal(&schema, stream, Limits::default());
        error.expect("the stream is invalid").to_string()
    };
    assert!(message(b"<plant/>").contains("it looks like text XML"));
    assert!(message(b"\x1f\x8b\x08").contains("it looks like gzip"));
    assert!(message(b"\x81\x00").contains("format version 2 is not supported"));
    assert!(message(b"\x80\x00").contains("no options in its header"));
    assert!(message(b"").contains("truncated"));
}

#[test]
fn exceeded_limits_are_named() {
    let schema = Arc::new(Schema::none());
    let compressed = Options {
        compression: true,
        ..Options::default()
    };
    let plain = encoded(&schema, &Options::default(), DOCUMENT);
    let blocks = encoded(&schema, &compressed, DOCUMENT);
    let all = Limits::default();
    for (limit, limits, stream) in [
        ("depth", Limits { depth: 3, ..all }, &plain),
        (
            "string_characters",
            Limits {
                string_characters: 3,
                ..all
            },
            &plain,
        ),
        (
            "table_bytes",
            Limits {
                table_bytes: 8,
                ..all
            },
            &plain,
        ),
        ("events", Limits { events: 5, ..all }, &plain),
        (
            "productions",
            Limits {
                productions: 2,
                ..all
            },
            &plain,
        ),
        (
            "block_bytes",
            Limits {
                block_bytes: 20,
                ..all
            },
            &blocks,
        ),
        ("depth", Limits { depth: 3, ..all }, &blocks),
        ("events", Limits { events: 5, ..all }, &blocks),
    ] {
        let error = refusal(&schema, stream, limits).expect("beyond the limit");
        let Cause::Limit { limit: named, .. } = error.cause else {
            panic!("{limit}: {error}");
        };
        assert_eq!(named, limit, "{error}");
    }
}

#[test]
fn out_of_range_values_report_bit_and_path() {
    let xsd = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r">
        <xs:complexType><xs:sequence><xs:element name="n" maxOccurs="9"><xs:simpleType>
        <xs:restriction base="xs:int"><xs:minInclusive value="1"/><xs:maxInclusive value="5"/></xs:restriction>
        </xs:simpleType></xs:element></xs:sequence></xs:complexType></xs:element></xs:schema>"#;
    let source = chappe_exi::XsdSource {
        name: "r.xsd".into(),
        document: xsd.to_vec(),
    };
    let schema = Schema::from_xsd(vec![source], &mut |_, _| None).expect("it is a schema");
    let schema = Arc::new(schema);
    let options = Options {
        strict: true,
        alignment: Alignment::ByteAligned,
        ..Options::default()
    };
    let mut stream = encoded(&schema, &options, "<r><n>1</n><n>5</n></r>");
    let last = stream
        .iter()
        .rposition(|byte| *byte == 4)
        .expect("5 is 1 and 4");
    stream[last] = 7;
    let error = refusal(&schema, &stream, Limits::default()).expect("the value is 8");
    assert!(matches!(error.cause, Cause::OutOfRange(_)), "{error}");
    assert_eq!(error.path, "/r/n");
    assert_eq!(error.offset, (last as u64 + 1) * 8);
    let mut encoder = Encoder::new(schema);
    let refused = text::encode(
        &mut encoder,
        &options,
        HeaderOptions::default(),
        b"<r><n>1</n><n>8</n></r>",
    );
    let refused = refused.expect_err("8 is out of range").to_string();
    assert!(
        refused.contains("\"8\" is not") && refused.contains("/r/n"),
        "{refused}"
    );
}
