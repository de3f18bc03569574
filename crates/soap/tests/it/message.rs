//! Goal: a typed message is the same whether it passes as a tree or as text, its schema says what it
//! is, and wrong messages are refused with the path of the field.
//! Method: arbitrary messages with every kind of field; handwritten wrong ones; arbitrary bytes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_soap::message::{
    self, Fault, Faults, Message, ReadError, Samples, Types, TypesError, Writer,
};
use chappe_soap::schema::{FieldPlace, Model, Part, Schemas, TypeContent, XsdType};
use chappe_soap::{Addressing, AddressingVersion, Body, Envelope, LazyEnvelope};
use chappe_xml::{Element, Limits, Name, Namespace, Node, text};
use proptest::prelude::*;

pub(crate) const NAMESPACE: &str = "https://example.org/everything";

/// The state of a pump.
#[derive(Message, Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// It stands still.
    Off,
    #[name("half-speed")]
    Half,
    Full,
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Range {
    #[unit("mm[Hg]")]
    low: f64,
    #[unit("mm[Hg]")]
    high: Option<f64>,
}

/// All kinds of fields.
#[derive(Message, Debug, Clone, PartialEq)]
struct Everything {
    /// Whether it runs.
    running: bool,
    r#type: String,
    #[name("State")]
    mode: Mode,
    small: i8,
    large: u64,
    ratio: f32,
    age: Duration,
    at: SystemTime,
    picture: Vec<u8>,
    #[unit("mV")]
    #[sample_period_ms(4)]
    wave: Samples<f64>,
    counts: Vec<i32>,
    #[unit("Cel")]
    probes: Vec<Option<f64>>,
    limits: Vec<Range>,
    inner: Option<Crate>,
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Crate {
    children: Vec<Crate>,
    label: Option<String>,
}

pub(crate) fn namespace() -> Namespace {
    NAMESPACE.into()
}

pub(crate) fn text_of<T: Message>(name: &str, message: &T) -> String {
    let mut writer = text::Writer::default();
    Writer::new(&mut writer, &namespace())
        .root(name, message)
        .unwrap();
    writer.finish().unwrap()
}

pub(crate) fn from_text<T: Message>(name: &str, text: &[u8]) -> Result<T, ReadError> {
    let mut reader = text::Reader::new(text, Limits::default())?;
    message::from_source(&namespace(), name, &mut reader, Limits::default())
}

/// Text that survives XML: no carriage returns, which parsers replace, and no forbidden characters.
fn any_text() -> impl Strategy<Value = String> {
    "[ -~äß€\u{1f600}\n\t]{0,20}"
}

fn boxes() -> impl Strategy<Value = Crate> {
    let label = proptest::option::of(any_text());
    let leaf = label.prop_map(|label| Crate {
        children: Vec::new(),
        label,
    });
    leaf.prop_recursive(4, 16, 3, |inner| {
        let children = proptest::collection::vec(inner, 0..3);
        (children, proptest::option::of(any_text()))
            .prop_map(|(children, label)| Crate { children, label })
    })
}

prop_compose! {
    fn limits()(low in any::<f64>().prop_filter("equal to itself", |low| !low.is_nan()),
        high in proptest::option::of(-1e9..1e9)) -> Range {
        Range { low, high }
    }
}

prop_compose! {
    fn everything()(
        (running, r#type, small, large) in (any::<bool>(), any_text(), any::<i8>(), any::<u64>()),
        mode in prop_oneof![Just(Mode::Off), Just(Mode::Half), Just(Mode::Full)],
        ratio in any::<f32>().prop_filter("equal to itself", |ratio| !ratio.is_nan()),
        age in 0..i64::MAX as u64,
        at in any::<i64>(),
        picture in proptest::collection::vec(any::<u8>(), 0..40),
        wave in proptest::collection::vec(-1e6..1e6, 0..40),
        counts in proptest::collection::vec(any::<i32>(), 0..5),
        probes in proptest::collection::vec(proptest::option::of(-1e9..1e9), 0..4),
        limits in proptest::collection::vec(limits(), 0..3),
        inner in proptest::option::of(boxes()),
    ) -> Everything {
        let distance = Duration::from_nanos(at.unsigned_abs());
        let at = if at < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance };
        Everything {
            running, r#type, mode, small, large, ratio, age: Duration::from_nanos(age), at, picture,
            wave: Samples(wave), counts, probes, limits, inner,
        }
    }
}

proptest! {
    #[test]
    fn tree_and_text_have_the_same_infoset(sent in everything()) {
        let tree = message::to_element(&namespace(), "All", &sent);
        let text = text_of("All", &sent);
        prop_assert_eq!(&tree.to_text(), &text);
        let by_tree: Everything = message::from_element(&namespace(), "All", &tree).unwrap();
        let by_text: Everything = from_text("All", text.as_bytes()).unwrap();
        let parsed = Element::parse(text.as_bytes()).unwrap();
        let by_both: Everything = message::from_element(&namespace(), "All", &parsed).unwrap();
        prop_assert_eq!(&by_tree, &sent);
        prop_assert_eq!(&by_text, &sent);
        prop_assert_eq!(&by_both, &sent);
    }

    #[test]
    fn damaged_text_is_read_as_by_the_tree(sent in everything(), at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut text = text_of("All", &sent).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let by_text = from_text::<Everything>("All", &text);
        // What is no document is refused by both; the first fault that each finds may differ.
        let by_tree = Element::parse(&text).map_err(ReadError::from)
            .and_then(|tree| message::from_element::<Everything>(&namespace(), "All", &tree));
        prop_assert_eq!(by_text.is_ok(), by_tree.is_ok());
        if let (Ok(by_text), Ok(by_tree)) = (by_text, by_tree) {
            prop_assert_eq!(format!("{by_text:?}"), format!("{by_tree:?}"));
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_text::<Everything>("All", &bytes);
    }
}

#[test]
fn the_schema_is_that_of_the_type() {
    let mut types = Types::new(namespace());
    let name = types.element::<Everything>("All", "");
    let limits = types.element::<Range>("Limits", "");
    let flag = types.element::<Flags>("Flags", "");
    let schema = types.to_schema().unwrap();
    let mut schemas = Schemas::default();
    schemas.add("all.xsd", &schema).unwrap();
    // Nested, so events of it need path rules.
    assert!(schemas.flat(&name).is_err());

    let flat = schemas.flat(&limits).unwrap();
    assert_eq!(flat.fields.len(), 2);
    assert_eq!(flat.fields[0].data_type, XsdType::Double);
    assert_eq!(flat.fields[0].unit.as_deref(), Some("mm[Hg]"));
    assert!(!flat.fields[0].optional && flat.fields[1].optional);

    let flat = schemas.flat(&flag).unwrap();
    let [mode, wave, bytes, at] = flat.fields.as_slice() else {
        panic!("{flat:?}")
    };
    assert_eq!(mode.place, FieldPlace::Element);
    assert_eq!(mode.enumeration, ["Off", "half-speed", "Full"]);
    assert_eq!(mode.doc.as_deref(), Some("How it runs, and why."));
    assert!(wave.list && wave.data_type == XsdType::Float);
    assert_eq!(
        wave.sample_period,
        Some(Duration::from_micros(3_906) + Duration::from_nanos(250))
    );
    assert!(bytes.repeated && bytes.data_type == XsdType::Base64Binary);
    assert_eq!(at.data_type, XsdType::DateTime);
    let text = schema.to_text();
    for documentation in [
        "All kinds of fields.",
        "Whether it runs.",
        "It stands still.",
    ] {
        assert!(text.contains(documentation), "{documentation}");
    }
}

#[derive(Message)]
struct Flags {
    /// How it runs,
    /// and why.
    mode: Mode,
    #[sample_period_ms(3.90625)]
    wave: Option<Samples<f32>>,
    pictures: Vec<Vec<u8>>,
    at: SystemTime,
}

#[test]
fn the_error_names_the_field() {
    let read = |content: &str| {
        let text = format!("<L xmlns='{NAMESPACE}'>{content}</L>");
        from_text::<Outer>("L", text.as_bytes())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(read("<a><low>1</low></a>"), Ok(()));
    assert_eq!(read("<!-- c --> <a b='1'> <low> 1 </low> </a> "), Ok(()));
    let wrong = [
        ("", "L/a is missing"),
        ("<a/>", "L/a/low is missing"),
        (
            "<a><low>x</low></a>",
            "L/a/low: \"x\" is not a valid xs:double",
        ),
        ("<a><low/></a>", "L/a/low: \"\" is not a valid xs:double"),
        ("<a><low>1</low><low>2</low></a>", "L/a/low is repeated"),
        (
            "<a><low><b/></low></a>",
            "L/a/low has an element where a value is expected",
        ),
        (
            "<a>text<low>1</low></a>",
            "L/a has text between its elements",
        ),
        (
            "<a><low>1</low><hihg>2</hihg></a>",
            "L/a has no element {https://example.org/everything}hihg",
        ),
        ("<a xmlns=''/>", "L has no element a"),
    ];
    for (content, error) in wrong {
        assert_eq!(read(content), Err(error.to_owned()), "{content}");
    }
    let other = from_text::<Outer>("L", b"<M/>").unwrap_err();
    assert_eq!(other.to_string(), "L is expected, not M");
}

#[derive(Message, Debug)]
struct Outer {
    a: Range,
}

#[test]
fn a_long_message_is_limited() {
    let mut text = format!("<B xmlns='{NAMESPACE}'>");
    text.push_str(&"<children/>".repeat(10_000));
    text.push_str("</B>");
    let mut reader = text::Reader::new(text.as_bytes(), Limits::default()).unwrap();
    let limits = Limits::datagram();
    let read = message::from_source::<Crate>(&namespace(), "B", &mut reader, limits);
    assert!(read.unwrap_err().to_string().contains("expanded_bytes"));
}

#[test]
fn one_name_for_two_types_is_refused() {
    mod other {
        #[derive(chappe_soap::message::Message)]
        pub(super) struct Range {
            pub(super) _low: f64,
        }
    }
    let mut types = Types::new(namespace());
    types.element::<Range>("A", "");
    types.element::<other::Range>("B", "");
    let error = types.to_schema().unwrap_err();
    assert!(matches!(error, TypesError::Type { .. }), "{error}");
    let mut types = Types::new(namespace());
    types.element::<f64>("A", "");
    types.element::<String>("A", "");
    let error = types.to_schema().unwrap_err();
    assert!(matches!(error, TypesError::Element { .. }), "{error}");
}

#[derive(Fault, Debug, Clone, PartialEq)]
enum Refused {
    Whole(Everything),
    /// the value is out of range
    OutOfRange(Range),
    TooHot {
        #[unit("Cel")]
        celsius: f64,
        #[attribute]
        sensor: Option<String>,
        limits: Vec<Option<Range>>,
    },
    NotNow,
}

fn refusals() -> [Refused; 3] {
    let limits = Range {
        low: 1.0,
        high: None,
    };
    let hot = Refused::TooHot {
        celsius: 90.5,
        sensor: Some("coil".into()),
        limits: vec![None, Some(limits.clone())],
    };
    [Refused::OutOfRange(limits), hot, Refused::NotNow]
}

proptest! {
    /// A fault is written without a tree of its detail, and read without one.
    #[test]
    fn faults_by_tree_and_text_have_the_same_infoset(
        sent in prop_oneof![
            everything().prop_map(Refused::Whole),
            limits().prop_map(Refused::OutOfRange),
            (-1e9..1e9, proptest::option::of(any_text()), proptest::collection::vec(proptest::option::of(limits()), 0..3))
                .prop_map(|(celsius, sensor, limits)| Refused::TooHot { celsius, sensor, limits }),
            Just(Refused::NotNow),
        ],
    ) {
        let fault = sent.clone().into_fault(&namespace());
        let body = fault.to_body();
        prop_assert!(matches!(body, Body::Text(_)), "{body:?}");
        let addressing = Addressing::new(AddressingVersion::V200508, "urn:x/fault");
        let head = Envelope::new(addressing);
        let by_tree = head.clone().with_body(fault.to_element()).to_text();
        let by_text = LazyEnvelope { head, body: vec![body] }.to_text();
        let trees = [&by_tree, &by_text].map(|text| {
            let tree = Envelope::parse(text.as_bytes()).unwrap();
            without_declarations(tree.body().unwrap().clone())
        });
        prop_assert_eq!(&trees[0], &trees[1]);
        for text in [by_tree, by_text] {
            let tree = Envelope::parse(text.as_bytes()).unwrap().fault().unwrap();
            let lazy = LazyEnvelope::parse_within(text.into(), Limits::default()).unwrap();
            for read in [tree, lazy.fault().unwrap()] {
                let read = Refused::from_fault(&read, &namespace());
                prop_assert_eq!(read.as_ref(), Some(&sent));
            }
        }
    }
}

/// Prefixes may differ.
fn without_declarations(mut element: Element) -> Element {
    element.namespaces.clear();
    let children = std::mem::take(&mut element.children);
    let children = children.into_iter().map(|child| match child {
        Node::Element(child) => Node::Element(without_declarations(child)),
        text => text,
    });
    element.children = children.collect();
    element
}

#[test]
fn faults_survive_a_message() {
    for (sent, expected) in refusals().into_iter().zip(refusals()) {
        let fault = sent.into_fault(&namespace());
        let text = fault.to_element().to_text();
        let parsed = Element::parse(text.as_bytes()).unwrap();
        let mut read = chappe_soap::Fault::from_element(&parsed).unwrap();
        assert_eq!(Refused::from_fault(&read, &namespace()), Some(expected));
        read.subcode = Some(Name::new("urn:other", "NotNow"));
        assert_eq!(Refused::from_fault(&read, &namespace()), None);
    }
    let reason = Refused::NotNow.into_fault(&namespace()).reason;
    assert_eq!(reason, "not now");
}

#[test]
fn the_named_fields_of_a_fault_are_a_type_of_the_schema() {
    #[derive(Fault)]
    enum Other {
        TooHot { _kelvin: f64 },
    }
    let mut types = Types::new(namespace());
    assert_eq!(
        Refused::declare(&mut types),
        ["Whole", "OutOfRange", "TooHot", "NotNow"]
    );
    let mut schemas = Schemas::default();
    schemas
        .add("faults.xsd", &types.to_schema().unwrap())
        .unwrap();
    let mut model = Model::new(&schemas);
    let hot = model.element(&Name::new(NAMESPACE, "TooHot")).unwrap();
    let TypeContent::Complex(content) = &model.type_of(hot.data_type).content else {
        panic!("it has fields")
    };
    assert_eq!(content.attributes[0].name.local, "sensor");
    let [Part::Sequence(_, parts)] = content.parts.as_slice() else {
        panic!("{:?}", content.parts)
    };
    let [Part::Element(celsius), Part::Element(limits)] = parts.as_slice() else {
        panic!("{parts:?}")
    };
    assert_eq!(celsius.unit.as_deref(), Some("Cel"));
    assert!(limits.is_nillable && limits.occurs.is_repeated());

    Other::declare(&mut types);
    let error = types.to_schema().unwrap_err();
    assert!(matches!(error, TypesError::Type { .. }), "{error}");
}

/// A value with its unit.
#[derive(Message, Debug, Clone, PartialEq)]
struct Quantity {
    #[attribute]
    unit: String,
    #[attribute]
    mode: Option<Mode>,
    /// The value.
    #[text]
    value: f64,
}

#[derive(Message, Debug, Clone, PartialEq)]
enum Target {
    Position(Quantity),
    Stop,
    #[name("hold-for")]
    Hold(Duration),
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Command {
    #[attribute]
    #[name("id")]
    number: Option<u16>,
    name: String,
    #[choice]
    target: Target,
    #[choice]
    later: Vec<Level>,
    whole: Option<Target>,
}

#[derive(Message, Debug, Clone, PartialEq)]
enum Level {
    Low(()),
    High(f64),
}

#[derive(Message, Debug, Clone, PartialEq)]
#[message(namespace = "")]
struct Local {
    inside: Option<Foreign>,
}

#[derive(Message, Debug, Clone, PartialEq)]
#[message(namespace = "urn:other")]
struct Foreign {
    value: i32,
}

fn command() -> Command {
    let position = Quantity {
        unit: "mm".into(),
        mode: Some(Mode::Half),
        value: 1.5,
    };
    Command {
        number: Some(7),
        name: "go".into(),
        target: Target::Hold(Duration::from_secs(60)),
        later: vec![Level::High(2.0), Level::Low(())],
        whole: Some(Target::Position(position)),
    }
}

#[test]
fn attributes_and_choices_are_read_as_written() {
    let sent = command();
    let text = text_of("Command", &sent);
    assert_eq!(
        text,
        r#"<m:Command xmlns:m="https://example.org/everything" id="7"><m:name>go</m:name><m:hold-for>PT1M</m:hold-for><m:High>2</m:High><m:Low/><m:whole><m:Position unit="mm" mode="half-speed">1.5</m:Position></m:whole></m:Command>"#
    );
    assert_eq!(
        from_text::<Command>("Command", text.as_bytes()),
        Ok(sent.clone())
    );
    let tree = message::to_element(&namespace(), "Command", &sent);
    assert_eq!(
        message::from_element(&namespace(), "Command", &tree),
        Ok(sent)
    );
    let sent = Local {
        inside: Some(Foreign { value: 3 }),
    };
    let text = text_of("Local", &sent);
    let tree = Element::parse(text.as_bytes()).unwrap();
    let inside = tree.child(&Name::local("inside")).unwrap();
    assert_eq!(
        inside
            .child(&Name::new("urn:other", "value"))
            .unwrap()
            .text(),
        "3"
    );
    assert_eq!(from_text::<Local>("Local", text.as_bytes()), Ok(sent));
}

#[test]
fn wrong_attributes_and_choices_are_named() {
    for (inside, wanted) in [
        ("<m:Stop/>", "C/name is missing"),
        ("<m:name/>", "C/Position|Stop|hold-for is missing"),
        (
            "<m:name/><m:Stop/><m:Stop/>",
            "C/Position|Stop|hold-for is repeated",
        ),
        (
            "<m:name/><m:Position>1</m:Position>",
            "C/Position/@unit is missing",
        ),
        (
            "<m:name/><m:Position unit='m' mode='no'>1</m:Position>",
            "C/Position/@mode: ",
        ),
        (
            "<m:name/><m:Position unit='m'>x</m:Position>",
            "C/Position: ",
        ),
        (
            "<m:name/><m:Position unit='m'><m:a/></m:Position>",
            "C/Position has an element",
        ),
        (
            "<m:name/><m:Stop/><m:whole/>",
            "C/whole/Position|Stop|hold-for is missing",
        ),
    ] {
        let text = format!("<m:C xmlns:m='{NAMESPACE}'>{inside}</m:C>");
        let error = from_text::<Command>("C", text.as_bytes()).unwrap_err();
        assert!(
            error.to_string().starts_with(wanted),
            "{error}, not {wanted}"
        );
    }
}

#[test]
fn attributes_and_choices_are_in_the_schema() {
    let mut types = Types::new(namespace());
    let name = types.element::<Quantity>("Quantity", "");
    types.element::<Command>("Command", "");
    let schema = types.to_schema().unwrap();
    let mut schemas = Schemas::default();
    schemas.add("command.xsd", &schema).unwrap();
    let flat = schemas.flat(&name).unwrap();
    let places: Vec<_> = flat.fields.iter().map(|field| field.place).collect();
    let attribute = FieldPlace::Attribute;
    assert_eq!(places, [FieldPlace::Text, attribute, attribute]);
    assert!(!flat.fields[1].optional && flat.fields[2].optional);
    let text = schema.to_text();
    for part in [
        r#"<xs:choice minOccurs="0" maxOccurs="unbounded"><xs:element name="Low""#,
        r#"<xs:attribute name="id" type="xs:unsignedShort"/>"#,
        r#"<xs:element name="whole" type="m:Target" minOccurs="0"/>"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let mut foreign = Types::new(namespace());
    foreign.element::<Local>("Local", "");
    let error = foreign.to_schema().unwrap_err();
    assert!(error.hint().contains("namespace"), "{error}");
}
