//! User-defined metadata in a header round-trips in every layout, canonical streams omit it, and
//! metadata beyond the limit are refused.

use std::sync::Arc;

use chappe_exi::{
    CanonicalOptions, Cause, Decoder, Encoder, Event, HeaderOptions, Metadata, Name, Options,
    QName, Schema,
};

fn name(local: &str) -> QName {
    QName {
        namespace: "urn:example:plant".into(),
        local: local.into(),
    }
}

fn with(metadata: Vec<Metadata>) -> Options {
    Options {
        metadata,
        ..Options::default()
    }
}

/// A stream of one empty element under these options.
fn stream(options: &Options) -> Vec<u8> {
    let mut encoder = Encoder::new(Arc::new(Schema::none()));
    let header = HeaderOptions {
        cookie: true,
        options: true,
    };
    let mut writing = encoder.begin_with(options, header).expect("valid options");
    for event in [
        Event::StartElement(Name::new("", "a")),
        Event::EndElement,
        Event::EndDocument,
    ] {
        writing.event(event).expect("it is a document");
    }
    writing.finish().expect("it is whole").to_vec()
}

#[test]
fn metadata_round_trip() {
    let metadata = vec![
        Metadata::Start(name("origin")),
        Metadata::Attribute(name("line"), "7".into()),
        Metadata::Text("press".into()),
        Metadata::Start(name("checked")),
        Metadata::End,
        Metadata::End,
        Metadata::Start(name("count")),
        Metadata::Type(QName {
            namespace: "http://www.w3.org/2001/XMLSchema".into(),
            local: "int".into(),
        }),
        Metadata::Text("12".into()),
        Metadata::End,
    ];
    for compression in [false, true] {
        for fragment in [false, true] {
            let options = Options {
                compression,
                fragment,
                ..with(metadata.clone())
            };
            let stream = stream(&options);
            let mut decoder = Decoder::new(Arc::new(Schema::none()));
            // Read twice, because a repeated header is matched with the cached one.
            for _ in 0..2 {
                let reading = decoder.begin(&stream, None).expect("it is a header");
                assert_eq!(reading.options(), &options);
            }
        }
    }
    assert!(with(metadata).canonical().metadata.is_empty());
}

#[test]
fn canonical_streams_omit_metadata() {
    let options = with(vec![Metadata::Start(name("origin")), Metadata::End]);
    let mut encoder = Encoder::new(Arc::new(Schema::none()));
    let mut writing = encoder
        .begin_canonical(&options, CanonicalOptions::default())
        .expect("valid options");
    for event in [
        Event::StartElement(Name::new("", "a")),
        Event::EndElement,
        Event::EndDocument,
    ] {
        writing.event(event).expect("it is a document");
    }
    let canonical = writing.finish().expect("it is whole").to_vec();
    let mut decoder = Decoder::new(Arc::new(Schema::none()));
    let reading = decoder.begin(&canonical, None).expect("it is a header");
    assert_eq!(reading.options(), &Options::default());
}

#[test]
fn excess_metadata_is_refused() {
    let text = "x".repeat(2_000);
    let mut metadata = Vec::new();
    // In the stream, every repetition takes only a few bits.
    for _ in 0..100 {
        metadata.push(Metadata::Start(name("note")));
        metadata.push(Metadata::Text(text.clone()));
        metadata.push(Metadata::End);
    }
    let stream = stream(&with(metadata));
    assert!(stream.len() < 4_000, "{}", stream.len());
    let mut decoder = Decoder::new(Arc::new(Schema::none()));
    let error = decoder.begin(&stream, None).expect_err("it is too much");
    let limit =
        |cause: &Cause| matches!(cause, Cause::Limit { limit, .. } if *limit == "metadata_bytes");
    assert!(limit(&error.cause), "{error}");
}

#[test]
fn encoders_and_decoders_are_send() {
    fn assert_send<T: Send>() {}
    fn assert_sync<T: Send + Sync>() {}
    assert_send::<Encoder>();
    assert_send::<Decoder>();
    assert_sync::<Schema>();
}
