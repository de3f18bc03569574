//! Decoding restores every encoded document, for any schema and options. Schemas consist of nested
//! sequences, choices, all-groups and mixed content with all kinds of datatypes. Documents follow
//! the schemas; unless the stream is strict, they also deviate: undeclared elements and attributes,
//! values of other types, comments, processing instructions. Options are drawn from all
//! combinations that the specification allows.

use std::sync::Arc;

use chappe_exi::{
    Decoder, Encoder, Event, HeaderOptions, Options, Schema, SchemaId, XsdSource, text,
};
use proptest::prelude::*;

mod generated;

use generated::{Model, document, model, options, xsd};

fn schema(model: &Model) -> Arc<Schema> {
    let xsd = xsd(model);
    let source = XsdSource {
        name: "r.xsd".into(),
        document: xsd.clone().into_bytes(),
    };
    let made = Schema::from_xsd(vec![source], &mut |_, _| None);
    Arc::new(made.unwrap_or_else(|error| panic!("{error}: {xsd}")))
}

/// Encodes a document and marks some elements as self-contained.
fn encode(
    schema: &Arc<Schema>,
    options: &Options,
    header: HeaderOptions,
    document: &str,
) -> Result<Vec<u8>, String> {
    let mut encoder = Encoder::new(schema.clone());
    let writing = encoder.begin_with(options, header);
    let mut writing = writing.map_err(|error| error.to_string())?;
    let document = document.as_bytes();
    let read = text::read(
        document,
        options,
        text::TextLimits::default(),
        &mut |event| {
            let contained =
                matches!(event, Event::StartElement(name) if name.local.ends_with(['1', '3', 'r']));
            writing.event(event)?;
            if contained && options.self_contained {
                writing.event(Event::SelfContained)?;
            }
            Ok(())
        },
    );
    read.map_err(|error| error.to_string())?;
    let stream = writing.finish().map_err(|error| error.to_string())?;
    Ok(stream.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn decoding_restores_the_document(
        model in model(),
        options in options(),
        drawn in prop::collection::vec(any::<u16>(), 1..60),
        which in 0..3u8,
        in_band in any::<bool>(),
        cookie in any::<bool>(),
    ) {
        let (schema, schema_id) = match which {
            0 => (Arc::new(Schema::none()), SchemaId::None),
            1 => (Arc::new(Schema::built_in_types()), SchemaId::BuiltInTypes),
            _ => {
                let schema = Schema::clone(&schema(&model)).with_id("r");
                (Arc::new(schema), SchemaId::Named("r".into()))
            }
        };
        let options = Options { schema_id, ..options };
        let (sent, back) = document(&model, &options, &drawn);
        let header = HeaderOptions { cookie, options: in_band };
        let stream = encode(&schema, &options, header, &sent);
        let stream = stream.unwrap_or_else(|error| panic!("{error}: {sent}"));
        let mut decoder = Decoder::new(schema);
        let known = (!in_band).then_some(&options);
        let read = text::decode(&mut decoder, &stream, known);
        prop_assert_eq!(read.as_deref(), Ok(back.as_str()), "{}", sent);
    }
}
