//! The built-in compiled schemas match their schema documents, and messages round-trip with them.
//!
//! `EXI_COMPILE=1 cargo test -p chappe-exi --test messages` recompiles them.

#![allow(
    clippy::disallowed_methods,
    reason = "the environment requests the recompilation"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_exi::{
    Decoder, Encoder, Event, HeaderOptions, MessageSchema, Options, Schema, SchemaId, XsdSource,
    text,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas")
}

fn source(file: &str) -> Option<XsdSource> {
    let document = std::fs::read(folder().join(file)).ok()?;
    let name = file.to_owned();
    Some(XsdSource { name, document })
}

fn compiled(messages: MessageSchema) -> Schema {
    let files: &[&str] = match messages {
        MessageSchema::Events => &["events.xsd"],
        _ => &["envelope.xsd", "addressing.xsd", "eventing.xsd", "dpws.xsd"],
    };
    let sources = files
        .iter()
        .map(|file| source(file).expect("the schema document exists"));
    let schema = Schema::from_xsd(sources.collect(), &mut |_, location| source(location));
    schema.expect("valid schemas").with_id(messages.schema_id())
}

#[test]
fn compiled_schemas_match_their_documents() {
    for messages in MessageSchema::ALL {
        let compiled = compiled(messages);
        if std::env::var_os("EXI_COMPILE").is_some() {
            let file = match messages {
                MessageSchema::Events => "events.exig",
                _ => "devices.exig",
            };
            std::fs::write(folder().join(file), compiled.to_bytes()).expect("it can be written");
            continue;
        }
        let loaded = Schema::for_messages(messages);
        let same = loaded.to_bytes() == compiled.to_bytes();
        assert!(same, "{messages:?}: recompile with EXI_COMPILE=1");
        assert_eq!(MessageSchema::from_schema_id(loaded.id()), Some(messages));
    }
}

/// The size of the stream, with the options in its header, and the text it decodes to.
fn round_trip(messages: MessageSchema, strict: bool, document: &str) -> (usize, String) {
    let schema = Arc::new(Schema::for_messages(messages));
    let options = Options {
        strict,
        schema_id: SchemaId::Named(schema.id().to_owned()),
        ..Options::default()
    };
    let header = HeaderOptions {
        cookie: false,
        options: true,
    };
    let mut encoder = Encoder::new(schema.clone());
    let stream = text::encode(&mut encoder, &options, header, document.as_bytes());
    let stream = stream.expect("any payload can be encoded").to_vec();
    let read = text::decode(&mut Decoder::new(schema), &stream, None);
    (stream.len(), read.expect("the stream decodes"))
}

const SUBSCRIBE: &str = r#"<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://www.w3.org/2005/08/addressing" xmlns:e="http://schemas.xmlsoap.org/ws/2004/08/eventing"><s:Header><a:Action>http://schemas.xmlsoap.org/ws/2004/08/eventing/Subscribe</a:Action><a:MessageID>urn:uuid:0c8f3a52-77b1-4f0e-8d1c-5a4b9e2f6d31</a:MessageID><a:To s:mustUnderstand="true">http://192.0.2.17:5357/x</a:To><x:Trace xmlns:x="urn:x" depth="3"><x:Hop>7</x:Hop></x:Trace></s:Header><s:Body><e:Subscribe><e:Delivery Mode="http://schemas.xmlsoap.org/ws/2004/08/eventing/DeliveryModes/Push"><e:NotifyTo><a:Address>http://192.0.2.9:5358/sink</a:Address></e:NotifyTo></e:Delivery><e:Expires>PT1H</e:Expires><e:Filter Dialect="http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Action">urn:x/Changed</e:Filter></e:Subscribe></s:Body></s:Envelope>"#;

const EVENT: &str = r#"<o:Event xmlns:o="urn:chappe:events:1"><o:Action>urn:example:plant/Readings</o:Action><o:EventID>0C8F3A5277B14F0E8D1C5A4B9E2F6D31</o:EventID><o:MsgNr>70000</o:MsgNr><o:Sink-IP>C000020914E9</o:Sink-IP><o:IP-List>C000020914E9 C000020A14E9</o:IP-List><o:EventData><r xmlns="urn:r">21.5</r></o:EventData></o:Event>"#;

/// The events of a text, without the prefixes, which are not preserved.
fn events(document: &str) -> Vec<String> {
    let mut events = Vec::new();
    let options = Options::default();
    let read = text::read(
        document.as_bytes(),
        &options,
        Default::default(),
        &mut |event| {
            events.extend(match event {
                Event::StartElement(name) => Some(format!("<{}:{}", name.namespace, name.local)),
                Event::Attribute(name, value) => Some(format!("@{} {value}", name.local)),
                Event::Characters(value) => Some(value.to_string()),
                Event::EndElement => Some(">".to_owned()),
                _ => None,
            });
            Ok(())
        },
    );
    read.expect("it is a document");
    events
}

#[test]
fn undeclared_payload_round_trips() {
    for (messages, document, most) in [
        (MessageSchema::Devices, SUBSCRIBE, 360),
        (MessageSchema::Events, EVENT, 100),
    ] {
        for strict in [false, true] {
            let (size, read) = round_trip(messages, strict, document);
            assert_eq!(events(&read), events(document), "{messages:?} {strict}");
            assert!(size <= most, "{size} bytes, {messages:?} {strict}");
        }
    }
}
