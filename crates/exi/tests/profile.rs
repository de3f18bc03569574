//! Streams within the limits of the EXI Profile decode without knowledge of these limits. Documents
//! are encoded under all kinds of limits, with and without a schema; the header's element `p` must
//! round-trip, and the limits must show in the streams.

use std::sync::Arc;

use chappe_exi::{
    Alignment, Decoder, Encoder, Event, HeaderOptions, Options, Preserve, Profile, Schema,
    SchemaId, Value, text,
};

const DOCUMENT: &[u8] = b"<a x='1'><b y='2'>one</b><c>two<d/></c><b y='3'>one<e/></b><c z='4'>two</c>\
    <b xmlns:i='http://www.w3.org/2001/XMLSchema-instance' xmlns:s='http://www.w3.org/2001/XMLSchema' \
    i:type='s:int'>5</b><d/><d/><f>one</f><f>one</f></a>";

fn profile(grammars: Option<u32>, productions: Option<u32>, local: bool) -> Profile {
    Profile {
        local_value_partitions: local,
        maximum_number_of_built_in_element_grammars: grammars,
        maximum_number_of_built_in_productions: productions,
    }
}

fn profiles() -> Vec<Profile> {
    let numbers = [None, Some(0), Some(1), Some(2), Some(3), Some(5), Some(100)];
    let mut all = Vec::new();
    for grammars in numbers {
        for productions in numbers {
            all.extend([true, false].map(|local| profile(grammars, productions, local)));
        }
    }
    all
}

/// The events of a document without the types that the profile inserts.
fn plain(schema: &Arc<Schema>, stream: &[u8], options: &Options) -> Vec<String> {
    let mut decoder = Decoder::new(schema.clone());
    let mut reading = decoder
        .begin(stream, Some(options))
        .expect("it has a header");
    let mut plain = Vec::new();
    while let Some(event) = reading.next_event().expect("it decodes") {
        plain.extend(match event {
            Event::StartElement(name) => Some(format!("<{}", name.local)),
            Event::Attribute(
                _,
                Value::QName {
                    local: "anyType", ..
                },
            ) => None,
            Event::Attribute(name, value) => Some(format!("{}={value:?}", name.local)),
            Event::Characters(value) => Some(value.to_string()),
            Event::EndElement => Some(">".into()),
            _ => None,
        });
    }
    plain
}

fn encoded(schema: &Arc<Schema>, options: &Options, in_band: bool) -> Vec<u8> {
    let mut encoder = Encoder::new(schema.clone());
    let header = HeaderOptions {
        cookie: false,
        options: in_band,
    };
    let made = text::encode(&mut encoder, options, header, DOCUMENT);
    made.expect("it is a document").to_vec()
}

#[test]
fn profile_streams_decode_without_the_profile() {
    for (schema, schema_id) in [
        (Schema::none(), SchemaId::None),
        (Schema::built_in_types(), SchemaId::BuiltInTypes),
    ] {
        let schema = Arc::new(schema);
        for alignment in [Alignment::BitPacked, Alignment::PreCompression] {
            for prefixes in [false, true] {
                let unlimited = Options {
                    alignment,
                    schema_id: schema_id.clone(),
                    preserve: Preserve {
                        prefixes,
                        ..Preserve::default()
                    },
                    ..Options::default()
                };
                let wanted = encoded(&schema, &unlimited, false);
                let wanted = plain(&schema, &wanted, &unlimited);
                for profile in profiles() {
                    let limited = Options {
                        profile: Some(profile),
                        ..unlimited.clone()
                    };
                    let stream = encoded(&schema, &limited, false);
                    let read = plain(&schema, &stream, &unlimited);
                    assert_eq!(read, wanted, "{profile:?}");
                }
            }
        }
    }
}

#[test]
fn header_carries_the_profile() {
    let schema = Arc::new(Schema::built_in_types());
    for profile in profiles()
        .into_iter()
        .filter(|one| *one != Profile::default())
    {
        let options = Options {
            profile: Some(profile),
            schema_id: SchemaId::BuiltInTypes,
            ..Options::default()
        };
        let stream = encoded(&schema, &options, true);
        let mut decoder = Decoder::new(schema.clone());
        let reading = decoder.begin(&stream, None).expect("it has a header");
        assert_eq!(reading.options(), &options);
    }
}

/// The elements with an inserted xs:anyType.
fn casts(options: &Options) -> Vec<String> {
    let schema = Arc::new(Schema::built_in_types());
    let stream = encoded(&schema, options, false);
    let mut decoder = Decoder::new(schema);
    let mut reading = decoder
        .begin(&stream, Some(options))
        .expect("it has a header");
    let (mut casts, mut open) = (Vec::new(), String::new());
    while let Some(event) = reading.next_event().expect("it decodes") {
        match event {
            Event::StartElement(name) => open = name.local.to_owned(),
            Event::Attribute(name, value)
                if name.local == "type" && value.to_string() == "anyType" =>
            {
                casts.push(open.clone());
            }
            _ => {}
        }
    }
    casts
}

#[test]
fn exhausted_grammars_get_any_type() {
    let limited = |grammars, productions| Options {
        profile: Some(profile(grammars, productions, true)),
        ..Options::default()
    };
    let all = ["a", "b", "c", "d", "b", "e", "c", "d", "d", "f", "f"];
    assert_eq!(casts(&limited(Some(0), None)), all);
    assert_eq!(casts(&limited(None, Some(0))), all);
    assert_eq!(casts(&limited(None, None)), [""; 0]);
    // Only the grammars of `a` and `b` learn.
    let others = ["c", "d", "e", "c", "d", "d", "f", "f"];
    assert_eq!(casts(&limited(Some(2), None)), others);
}

#[test]
fn profile_disables_local_value_partitions() {
    let schema = Arc::new(Schema::none());
    let with = |local| Options {
        profile: Some(profile(None, None, local)),
        ..Options::default()
    };
    assert_ne!(
        encoded(&schema, &with(true), false),
        encoded(&schema, &with(false), false)
    );
}
