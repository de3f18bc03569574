//! The same message whichever way it comes, and bounds of what strangers send.

use chappe_exi::{Encoder, HeaderOptions, MessageSchema, Options, Schema, SchemaId, xml};
use chappe_soap::message::{self, Message};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_xml::{Element, Limits, Name, Node};
use proptest::prelude::*;

use super::*;

/// Bytes that no message of these tests exceeds.
const BOUND: usize = 1 << 20;

fn limits(bytes: usize) -> Limits {
    Limits {
        bytes,
        ..Limits::default()
    }
}

fn encoded(text: &str) -> Vec<u8> {
    DEVICES.stream(text.as_bytes()).expect("a document")
}

fn decoded(stream: &[u8], bytes: usize) -> Result<String, DecodeError> {
    let decoded = decode(stream, limits(bytes), &ServiceSchemas::default());
    decoded.map(|decoded| decoded.text)
}

#[test]
fn a_few_bits_do_not_become_a_large_text() {
    let long = format!("<b>{}</b>", "x".repeat(60_000));
    let bomb = encoded(&format!("<a>{}</a>", long.repeat(60)));
    assert!(bomb.len() < 10_000, "{} bytes", bomb.len());
    assert_eq!(decoded(&bomb, BOUND), Err(DecodeError::TooLarge));
    assert!(decoded(&bomb, 4 << 20).is_ok());
}

#[test]
fn values_beyond_the_bound_are_too_large_and_not_broken() {
    let long = format!("<a>{}</a>", "x".repeat(66_000));
    let values: String = (0..8_000)
        .map(|number| format!("<b>{}.{}</b>", number * 7_919, number * 104_729 % 1_000_003))
        .collect();
    for text in [long, format!("<a>{values}</a>")] {
        let stream = encoded(&text);
        assert_eq!(decoded(&stream, 64 << 10), Err(DecodeError::TooLarge));
        assert_eq!(decoded(&stream, BOUND).unwrap(), text);
    }
}

#[test]
fn more_than_a_text_may_have_is_refused() {
    let wide: String = (0..200).map(|number| format!(" a{number}=''")).collect();
    let declared: String = (0..100)
        .map(|number| format!(" xmlns:p{number}='urn:{number}'"))
        .collect();
    let nested = |levels: usize, attributes: &str| {
        let tags = format!("<a{attributes}>").repeat(levels);
        let ends = "</a>".repeat(levels);
        format!("{tags}{ends}")
    };
    // The reader of text refuses them, so their events are written by hand.
    for (levels, attributes) in [(1, &wide), (3, &declared), (70, &String::new())] {
        let text = nested(levels, attributes);
        let limits = Limits {
            attributes: 1_000,
            namespaces: 1_000,
            depth: 1_000,
            ..Limits::default()
        };
        let root = Element::parse_within(text.as_bytes(), limits).expect("a document");
        let mut options = Options {
            schema_id: SchemaId::Named(MessageSchema::Devices.schema_id().to_owned()),
            ..Options::default()
        };
        options.preserve.prefixes = true;
        let schema = Schema::for_messages(MessageSchema::Devices);
        let mut encoder = Encoder::new(schema.into());
        let header = HeaderOptions {
            cookie: false,
            options: true,
        };
        let writing = encoder.begin_with(&options, header).unwrap();
        let mut sink = xml::Sink::new(writing).unwrap();
        root.write(&mut sink).unwrap();
        let stream = sink.finish().unwrap();
        let refused = decoded(stream, BOUND);
        assert!(
            matches!(refused, Err(DecodeError::Broken(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn another_schema_is_refused() {
    let header = HeaderOptions {
        cookie: false,
        options: true,
    };
    let none = Options {
        schema_id: SchemaId::None,
        ..Options::default()
    };
    let mut encoder = Encoder::new(Schema::none().into());
    let stream = chappe_exi::text::encode(&mut encoder, &none, header, b"<a/>").unwrap();
    let refused = decoded(stream, BOUND);
    assert!(
        matches!(refused, Err(DecodeError::OtherSchema(_))),
        "{refused:?}"
    );
    // A schema of the service that only the sender has.
    let stream = valve().stream(&notification(&Level::default())).unwrap();
    let id = valve().id().unwrap().to_owned();
    assert_eq!(decoded(&stream, BOUND), Err(DecodeError::OtherSchema(id)));
}

#[test]
fn text_and_exi_begin_differently() {
    assert!(is_exi(&encoded("<a/>")) && is_exi(b"$EXI"));
    for text in ["<a/>", " <a/>", "\u{feff}<a/>", ""] {
        assert!(!is_exi(text.as_bytes()), "{text:?}");
    }
}

#[test]
fn an_offer_is_a_header_that_nobody_must_understand() {
    let addressing = chappe_soap::Addressing::new(chappe_soap::AddressingVersion::V200508, "urn:x");
    let envelope = Envelope::new(addressing);
    assert!(!is_offered(&envelope));
    let text = envelope.with_header(offer()).to_text();
    let read = Envelope::parse(text.as_bytes()).unwrap();
    assert!(is_offered(&read));
    assert_eq!(read.not_understood(&[]).count(), 0);
}

/// With each kind of value, and an attribute.
#[derive(Message, Debug, Clone, PartialEq, Default)]
struct Level {
    percent: f64,
    share: f32,
    count: i32,
    long: u64,
    small: i8,
    is_open: bool,
    note: String,
    bytes: Vec<u8>,
    opened: Option<std::time::Duration>,
    numbers: Vec<i32>,
    inner: Option<Inner>,
    mode: Mode,
    #[attribute]
    unit: Option<String>,
}

#[derive(Message, Debug, Clone, PartialEq, Default)]
struct Inner {
    at: Option<std::time::SystemTime>,
    name: String,
}

#[derive(Message, Debug, Clone, Copy, PartialEq, Default)]
enum Mode {
    #[default]
    Off,
    On,
}

const SERVICE: &str = "urn:example:valve";

/// The WSDL of a service with a level.
fn wsdl() -> String {
    let mut types = message::Types::new(SERVICE.into());
    let element = types.element::<Level>("Moved", "");
    let service = Service {
        target_namespace: SERVICE.into(),
        name: "Valve".into(),
        operations: vec![ServiceOperation::event("Moved", element)],
        schemas: vec![types.to_schema().expect("a schema")],
        address: None,
    };
    service.to_wsdl().to_text()
}

fn valve() -> ServiceSchema {
    static VALVE: LazyLock<ServiceSchema> = LazyLock::new(|| ServiceSchema::new([&*wsdl()]));
    VALVE.clone()
}

fn envelope(body: &str, prefix: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope' xmlns:wsa='http://www.w3.org/2005/08/addressing'\
         {prefix}><s:Header><wsa:Action>urn:example:valve/Valve/Moved</wsa:Action><wsa:MessageID>\
         urn:uuid:0c8f3a52-77b1-4f0e-8d1c-5a4b9e2f6d31</wsa:MessageID><wsa:To>http://192.0.2.9:5358/sink</wsa:To>\
         </s:Header><s:Body>{body}</s:Body></s:Envelope>"
    )
}

fn notification(level: &Level) -> String {
    envelope(&message::to_text(&SERVICE.into(), "Moved", level), "")
}

#[test]
fn both_ends_make_one_name_of_the_documents() {
    let text = wsdl();
    let ours = ServiceSchema::new([&*text]);
    let id = ours.id().expect("a schema");
    assert_eq!(id.len(), 24);
    // Without comments, with other prefixes, and with the schema in a document of its own.
    let root = Element::parse(text.as_bytes()).unwrap();
    let parsed = chappe_soap::wsdl::Wsdl::from_element(&root).unwrap();
    let schema = parsed.schemas[0].to_text();
    let renamed = schema
        .replace("xs:", "other:")
        .replace("xmlns:xs=", "xmlns:other=");
    let plain = chappe_soap::wsdl::Wsdl {
        schemas: Vec::new(),
        ..parsed
    };
    let apart = ServiceSchema::new([&*plain.to_text(), &*renamed]);
    assert_eq!(apart.id(), Some(id));
    let changed = ServiceSchema::new([&*text.replace("percent", "per_mille")]);
    assert_ne!(changed.id(), Some(id));
    // Nothing to make grammars of.
    for text in ["<a", "<a/>", &"<a/>".repeat(100_000)] {
        assert_eq!(ServiceSchema::new([text]).id(), None);
    }
}

#[test]
fn what_a_strict_stream_would_change_does_not_fit() {
    let valve = valve();
    let level = |change: &dyn Fn(&str) -> String| {
        let text = message::to_text(&SERVICE.into(), "Moved", &Level::default());
        valve.stream(&envelope(&change(&text), ""))
    };
    assert!(level(&str::to_owned).is_some());
    for (from, to) in [
        // Not of its type; unknown; missing.
        ("<m:count>0</m:count>", "<m:count>none</m:count>"),
        ("<m:count>0</m:count>", "<m:count>0</m:count><m:other/>"),
        ("<m:count>0</m:count>", ""),
        ("<m:mode>Off</m:mode>", "<m:mode>Half</m:mode>"),
        // Without its sign it is another number.
        ("<m:percent>0</m:percent>", "<m:percent>-0</m:percent>"),
        ("<m:percent>0</m:percent>", "<m:percent>-0.0E0</m:percent>"),
        // A name with a prefix.
        ("<m:note/>", "<m:note>m:Moved</m:note>"),
    ] {
        let stream = level(&|text: &str| {
            assert!(text.contains(from), "{from} is not in {text}");
            text.replace(from, to)
        });
        assert!(stream.is_none(), "{to}");
    }
    let fault = "<s:Fault><s:Code><s:Value>s:Sender</s:Value></s:Code><s:Reason><s:Text xml:lang='en'>no</s:Text>\
                 </s:Reason></s:Fault>";
    assert!(valve.stream(&envelope(fault, "")).is_none());
    let default = "<x xmlns='urn:x'>name</x>";
    assert!(valve.stream(&envelope(default, "")).is_none());
}

#[test]
fn undeclared_content_is_kept_as_it_is() {
    let valve = valve();
    let body = "<x:y xmlns:x='urn:y' a=' 1 '> 007 <x:z>true</x:z></x:y>";
    let stream = valve.stream(&envelope(body, "")).expect("it fits");
    let decoded = decode(&stream, limits(BOUND), &valve.into()).unwrap();
    let read = Envelope::parse(decoded.text.as_bytes()).unwrap();
    let body = &read.body[0];
    assert_eq!(body.attribute(&Name::local("a")), Some(" 1 "));
    assert_eq!(body.text(), " 007 ");
    assert_eq!(
        body.elements().next().map(Element::text).as_deref(),
        Some("true")
    );
}

#[test]
fn the_latest_schemas_are_kept() {
    let schemas = ServiceSchemas::default();
    let of = |number: usize| ServiceSchema::new([&*wsdl().replace("Valve", &format!("V{number}"))]);
    let first = of(0);
    schemas.add(&first);
    schemas.add(&first);
    for number in 1..=SCHEMAS_MAX {
        schemas.add(&of(number));
    }
    assert!(first.id().is_some());
    assert!(schemas.must_compile());
    let stream = first.stream(&notification(&Level::default())).unwrap();
    let refused = decode(&stream, limits(BOUND), &schemas);
    assert!(matches!(refused, Err(DecodeError::OtherSchema(_))));
    schemas.set([first]);
    assert!(!schemas.must_compile());
    assert!(decode(&stream, limits(BOUND), &schemas).is_ok());
}

impl ServiceSchema {
    /// The stream of a text, however long.
    fn stream(&self, text: &str) -> Option<Vec<u8>> {
        self.coder()?.stream(text.as_bytes())
    }
}

fn level() -> impl Strategy<Value = Level> {
    let text = prop_oneof![
        "[ -~\\n\\t]{0,20}",
        "\\PC{0,9}",
        Just("http://x/y:z".to_owned())
    ];
    let number = prop_oneof![any::<f64>(), Just(0.1), Just(-0.0), Just(f64::MIN_POSITIVE)];
    let values = (
        number,
        any::<f32>(),
        any::<i32>(),
        any::<u64>(),
        any::<i8>(),
    );
    let time = (0_u64..4_000_000_000, 0_u32..1_000_000_000);
    let inner = (prop::option::of(time), text.clone()).prop_map(|(time, name)| Inner {
        at: time.map(|(s, ns)| std::time::UNIX_EPOCH + std::time::Duration::new(s, ns)),
        name,
    });
    let others = (
        any::<bool>(),
        text.clone(),
        prop::collection::vec(any::<u8>(), 0..20),
        prop::option::of(0_u64..1_000_000_000),
        prop::collection::vec(any::<i32>(), 0..20),
        prop::option::of(inner),
        prop::option::of(text),
    );
    (values, others).prop_map(|((percent, share, count, long, small), others)| {
        let (is_open, note, bytes, opened, numbers, inner, unit) = others;
        Level {
            percent,
            share,
            count,
            long,
            small,
            is_open,
            note,
            bytes,
            opened: opened.map(std::time::Duration::from_millis),
            numbers,
            inner,
            mode: if is_open { Mode::On } else { Mode::Off },
            unit,
        }
    })
}

/// Elements of messages and of others, with values that a schema would change.
fn element() -> impl Strategy<Value = Element> {
    let name = prop::sample::select(vec![
        ("http://www.w3.org/2003/05/soap-envelope", "Envelope"),
        ("http://www.w3.org/2003/05/soap-envelope", "Header"),
        ("http://www.w3.org/2003/05/soap-envelope", "Body"),
        ("http://www.w3.org/2005/08/addressing", "MessageID"),
        ("http://www.w3.org/2005/08/addressing", "RelatesTo"),
        ("http://schemas.xmlsoap.org/ws/2004/08/eventing", "Expires"),
        ("urn:x", "value"),
        ("", "plain"),
    ]);
    let attribute = prop::sample::select(vec![
        ("http://www.w3.org/2003/05/soap-envelope", "mustUnderstand"),
        ("http://www.w3.org/2001/XMLSchema-instance", "nil"),
        ("http://www.w3.org/2001/XMLSchema-instance", "type"),
        ("http://www.w3.org/XML/1998/namespace", "lang"),
        ("", "unit"),
    ]);
    let value = prop_oneof![
        Just(" 1 ".to_owned()),
        Just("true".to_owned()),
        Just("x:y".to_owned()),
        Just("-007.50".to_owned()),
        "[ -~\\n\\t]{0,20}",
        "\\PC{0,20}",
    ];
    let attributes = prop::collection::btree_map(attribute, value.clone(), 0..3);
    let new = |((namespace, local), attributes): ((&str, &str), _)| {
        let attributes: std::collections::BTreeMap<(&str, &str), String> = attributes;
        let name = Name::owned(namespace.to_owned(), local.to_owned());
        let element = Element::new(name).with_namespace("x", "urn:x");
        attributes
            .into_iter()
            .fold(element, |element, ((namespace, local), value)| {
                let name = Name::owned(namespace.to_owned(), local.to_owned());
                element.with_attribute(name, value)
            })
    };
    let leaf = (name.clone(), attributes.clone(), value)
        .prop_map(move |(name, attributes, value)| new((name, attributes)).with_text(value));
    leaf.prop_recursive(4, 40, 6, move |inner| {
        let children = prop::collection::vec(inner, 0..6);
        (name.clone(), attributes.clone(), children).prop_map(
            move |(name, attributes, children)| new((name, attributes)).with_children(children),
        )
    })
}

/// The content of an element of a schema.
#[derive(Debug, Clone)]
enum Kind {
    Simple(&'static str),
    /// A sequence, or a choice, of elements with how often they occur.
    Group(bool, Vec<(Kind, u32, Option<u32>)>),
}

impl Kind {
    fn any() -> impl Strategy<Value = Self> {
        let simple = prop::sample::select(vec!["int", "boolean", "string"]).prop_map(Kind::Simple);
        simple.prop_recursive(3, 24, 4, |inner| {
            let occurs = prop_oneof![
                Just((1, Some(1))),
                Just((0, Some(1))),
                Just((0, None)),
                Just((2, Some(3)))
            ];
            let field = (inner, occurs).prop_map(|(kind, (min, max))| (kind, min, max));
            let fields = prop::collection::vec(field, 1..4);
            (any::<bool>(), fields).prop_map(|(is_choice, fields)| Kind::Group(is_choice, fields))
        })
    }

    /// The declaration of an element.
    fn declared(&self, name: &str, occurs: &str) -> String {
        let (is_choice, fields) = match self {
            Kind::Simple(base) => {
                return format!("<xs:element name='{name}' type='xs:{base}'{occurs}/>");
            }
            Kind::Group(is_choice, fields) => (is_choice, fields),
        };
        let group = if *is_choice { "choice" } else { "sequence" };
        let fields = fields.iter().enumerate().map(|(at, (kind, min, max))| {
            let max = max.map_or("unbounded".to_owned(), |max| max.to_string());
            let occurs = format!(" minOccurs='{min}' maxOccurs='{max}'");
            kind.declared(&format!("e{at}"), &occurs)
        });
        let fields: String = fields.collect();
        format!(
            "<xs:element name='{name}'{occurs}><xs:complexType><xs:{group}>{fields}</xs:{group}>\
             </xs:complexType></xs:element>"
        )
    }

    /// An element with valid content, chosen by numbers.
    fn written(&self, name: &str, chosen: &mut impl Iterator<Item = u8>) -> String {
        let mut number = || chosen.next().unwrap_or_default();
        let content = match self {
            Kind::Simple("int") => (i32::from(number()) - 100).to_string(),
            Kind::Simple("boolean") => (number() % 2 == 0).to_string(),
            Kind::Simple(_) => "text ".repeat(usize::from(number() % 4)).trim().to_owned(),
            Kind::Group(is_choice, fields) => {
                let only = is_choice.then(|| usize::from(number()) % fields.len());
                let wanted = |(at, _): &(usize, _)| only.is_none_or(|only| only == *at);
                let mut content = String::new();
                for (at, (kind, min, max)) in fields.iter().enumerate().filter(wanted) {
                    let most = max.unwrap_or(3).max(1);
                    let count =
                        min + u32::from(chosen.next().unwrap_or_default()) % (most - min + 1);
                    for _ in 0..count {
                        content += &kind.written(&format!("e{at}"), chosen);
                    }
                }
                content
            }
        };
        format!("<m:{name}>{content}</m:{name}>")
    }
}

/// An element without its declarations, which a stream may have elsewhere.
fn undeclared(element: &Element) -> Element {
    let children = element.children.iter().map(|node| match node {
        Node::Element(child) => Node::Element(undeclared(child)),
        Node::Text(text) => Node::Text(text.clone()),
    });
    Element {
        namespaces: Vec::new(),
        children: children.collect(),
        ..element.clone()
    }
}

/// Their order has no meaning, and that of a schema's grammar is by name.
fn sort_attributes(element: &mut Element) {
    element.attributes.sort();
    for child in &mut element.children {
        if let Node::Element(child) = child {
            sort_attributes(child);
        }
    }
}

fn is_same(one: f64, other: f64) -> bool {
    one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
}

proptest! {
    #[test]
    fn a_message_is_the_same_whichever_way_it_comes(element in element()) {
        let text = element.to_text();
        let decoded = decoded(&encoded(&text), BOUND).expect("our own stream");
        let [sent, received] = [&text, &decoded].map(|text| {
            let mut root = Element::parse(text.as_bytes()).expect("a document");
            sort_attributes(&mut root);
            root
        });
        prop_assert_eq!(sent, received);
    }

    #[test]
    fn a_typed_message_is_the_same_whichever_way_it_comes(level in level()) {
        let valve = valve();
        let text = notification(&level);
        let schemas = ServiceSchemas::from(valve.clone());
        // What does not fit goes by dev1.
        let stream = valve.stream(&text).unwrap_or_else(|| encoded(&text));
        let decoded = decode(&stream, limits(BOUND), &schemas).expect("our own stream");
        let [sent, received] = [&text, &decoded.text].map(|text| {
            let read = Envelope::parse(text.as_bytes()).expect("a message");
            let body = message::from_element::<Level>(&SERVICE.into(), "Moved", &read.body[0]);
            (read.addressing, body.expect("a level"))
        });
        prop_assert_eq!(&sent.0, &received.0);
        prop_assert!(is_same(sent.1.percent, received.1.percent), "{}", sent.1.percent);
        prop_assert!(is_same(sent.1.share.into(), received.1.share.into()), "{}", sent.1.share);
        let values = |level: &Level| Level { percent: 0.0, share: 0.0, ..level.clone() };
        prop_assert_eq!(values(&sent.1), values(&received.1));
    }

    #[test]
    fn a_message_of_any_schema_is_the_same_in_its_grammars(
        kind in Kind::any(),
        chosen in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        let declared = kind.declared("Moved", "");
        let schema = ServiceSchema::new([&*format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='{SERVICE}' \
             elementFormDefault='qualified'>{declared}</xs:schema>"
        )]);
        prop_assert!(schema.id().is_some(), "{}", declared);
        let body = kind.written("Moved", &mut chosen.into_iter().cycle());
        let text = envelope(&body, &format!(" xmlns:m='{SERVICE}'"));
        let stream = schema.stream(&text);
        prop_assert!(stream.is_some(), "{} does not fit {}", body, declared);
        let decoded = decode(&stream.unwrap(), limits(BOUND), &schema.into()).expect("our own stream");
        let [sent, received] = [&text, &decoded.text].map(|text| {
            let read = Envelope::parse(text.as_bytes()).expect("a message");
            (read.addressing, read.body.iter().map(undeclared).collect::<Vec<_>>())
        });
        prop_assert_eq!(sent, received);
    }

    #[test]
    fn any_bytes_are_decoded_within_the_bound_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        text in "<a( b='[a-z]{0,9}')?>([a-z]{0,9}|<c/>){0,9}</a>",
        level in level(),
        at in any::<prop::sample::Index>(),
    ) {
        let valve = valve();
        let schemas = ServiceSchemas::from(valve.clone());
        let _ = decode(&bytes, limits(4_096), &schemas);
        // A stream with one wrong byte reaches further.
        let by_schema = valve.stream(&notification(&level));
        for mut stream in [Some(encoded(&text)), by_schema].into_iter().flatten() {
            let index = at.index(stream.len());
            stream[index] ^= bytes.first().copied().unwrap_or(1);
            if let Ok(decoded) = decode(&stream, limits(4_096), &schemas) {
                prop_assert!(decoded.text.len() <= 4_096);
            }
        }
    }
}
