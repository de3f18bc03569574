//! Goal: the source written for a WSDL compiles, its types read and write the messages of the schema,
//! and what has no type says why.
//! Method: a WSDL with everything that schemas of devices have; its source is a module here, equal to
//! what is written (`chappe describe everything.wsdl --rust`, but with the traits of this crate).

use std::time::{Duration, UNIX_EPOCH};

use chappe_soap::message::{self, Faults, Samples};
use chappe_soap::rust::{Modules, SourceError};
use chappe_soap::schema::{Argument, ComposeReason, Model, Schemas};
use chappe_soap::wsdl::Wsdl;
use chappe_soap::{Fault, schema};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

#[rustfmt::skip]
#[expect(dead_code, unreachable_pub, reason = "the source is for libraries, and all of it is written")]
mod everything;

use everything::plant::{
    Mode, Option2, Place, Pump, PumpChoice, StartPumpFault, Started, StartedThen, TooHot,
};

fn documents() -> (Wsdl, Schemas) {
    let mut wsdl = Wsdl::parse(include_bytes!("everything.wsdl")).unwrap();
    let mut schemas = Schemas::default();
    for schema in std::mem::take(&mut wsdl.schemas) {
        schemas.add("everything.wsdl", &schema).unwrap();
    }
    (wsdl, schemas)
}

fn written() -> String {
    let (wsdl, schemas) = documents();
    let mut modules = Modules::new("chappe_soap");
    modules.add("Plant", &wsdl, &schemas).unwrap();
    modules
        .finish("Types for the messages of everything.wsdl, written by `chappe describe --rust`.")
}

fn name(local: &'static str) -> Name {
    Name::new("urn:plant", local)
}

fn pump() -> Pump {
    Pump {
        id: "p1".into(),
        mode: Mode::HalfSpeed,
        power: 80,
        r#type: None,
        self_: true,
        at: UNIX_EPOCH,
        run_time: Duration::from_secs(60),
        picture: vec![1, 2],
        raw: None,
        wave: Samples(vec![1.5, 2.0]),
        alarm: vec![Option2 {
            unit: "bar".into(),
            mode: Some(Mode::Off),
            r#type: None,
            text: 2.5,
        }],
        probe: vec![Some(21.5), Some(22.0)],
        owner: "ward 3".into(),
        choice: Some(PumpChoice::Level(0.5)),
        low: Some(1),
        high: Some(2),
        exact: None,
        place: Some(Place { floor: 3 }),
        inner: None,
        parts: Vec::new(),
        extra: None,
    }
}

#[test]
fn the_module_is_what_is_written() {
    let written = written();
    if written != include_str!("everything.rs") {
        // The new text, to look at or to copy.
        let path = std::env::temp_dir().join("everything.rs");
        std::fs::write(&path, &written).unwrap();
        panic!(
            "everything.rs is not what is written now, see {}",
            path.display()
        );
    }
}

#[test]
fn written_types_are_those_of_the_schema() {
    let sent = Pump {
        inner: Some(Box::new(pump())),
        parts: vec![pump()],
        probe: vec![Some(21.5), None],
        ..pump()
    };
    let element = message::to_element(&"urn:plant".into(), "Start", &sent);
    let place = element.child(&name("place")).unwrap();
    assert!(place.child(&Name::local("floor")).is_some(), "{place:?}");
    assert_eq!(
        message::from_element(&"urn:plant".into(), "Start", &element),
        Ok(sent)
    );
    let answer = Started::Then(StartedThen { minutes: 5 });
    let element = message::to_element(&"urn:plant".into(), "Started", &answer);
    assert_eq!(
        message::from_element(&"urn:plant".into(), "Started", &element),
        Ok(answer)
    );
    // Other stacks say only in the detail which fault it is.
    let hot = StartPumpFault::TooHot(TooHot { celsius: 90.0 });
    let mut fault = hot.clone().into_fault(&"urn:plant".into());
    fault.subcode = None;
    assert_eq!(
        StartPumpFault::from_fault(&fault, &"urn:plant".into()),
        Some(hot)
    );
    let other = Fault::sender(name("other"), "other");
    assert_eq!(
        StartPumpFault::from_fault(&other, &"urn:plant".into()),
        None
    );
}

/// The schemas of one element with this content.
fn element_of(content: &str) -> (Schemas, Name) {
    let text = format!(
        "<xs:schema xmlns:xs='{}' xmlns:t='urn:t' targetNamespace='urn:t'
            elementFormDefault='qualified'>{content}</xs:schema>",
        schema::NAMESPACE
    );
    let mut schemas = Schemas::default();
    schemas
        .add("t.xsd", &Element::parse(text.as_bytes()).unwrap())
        .unwrap();
    (schemas, Name::new("urn:t", "E"))
}

fn arguments(given: &[(&str, &str)]) -> Argument {
    let mut arguments = Argument::none();
    for (path, value) in given {
        arguments
            .add(path, Argument::Value((*value).to_owned()))
            .unwrap();
    }
    arguments
}

#[test]
fn arguments_become_messages_in_the_order_of_the_schema() {
    let (_, schemas) = documents();
    let mut model = Model::new(&schemas);
    let start = model.element(&name("Start")).unwrap();
    let given = arguments(&[
        ("power", "80"),
        ("mode", "half speed"),
        ("id", "p1"),
        ("self", "true"),
        ("at", "1970-01-01T00:00:00Z"),
        ("run-time", "PT1M"),
        ("picture", "AQI="),
        ("wave", "1.5 2"),
        ("alarm.unit", "bar"),
        ("alarm.text", "2.5"),
        ("alarm.mode", "off"),
        ("probe", "21.5"),
        ("probe", "22"),
        ("owner", "ward 3"),
        ("level", "0.5"),
        ("low", "1"),
        ("high", "2"),
        ("place.floor", "3"),
    ]);
    let element = model.compose(&start, &given).unwrap();
    let read: Pump = message::from_element(&"urn:plant".into(), "Start", &element).unwrap();
    assert_eq!(read, pump());
    let children: Vec<_> = element.elements().map(|child| &*child.name.local).collect();
    assert_eq!(children[..4], ["id", "mode", "power", "self"]);
    let stop = model.element(&name("Stop")).unwrap();
    assert_eq!(
        model
            .compose(&stop, &Argument::none())
            .unwrap()
            .elements()
            .count(),
        0
    );
}

#[test]
fn wrong_arguments_name_the_field_and_what_is_allowed() {
    let content = "<xs:complexType name='P'><xs:sequence>
            <xs:element name='x' type='xs:double'/><xs:element name='y' type='xs:short' minOccurs='0'/>
        </xs:sequence></xs:complexType>
        <xs:element name='E'><xs:complexType><xs:sequence>
            <xs:element name='n'><xs:simpleType><xs:restriction base='xs:int'>
                <xs:minExclusive value='0'/><xs:maxInclusive value='10'/></xs:restriction></xs:simpleType>
            </xs:element>
            <xs:element name='c' minOccurs='0'><xs:simpleType><xs:restriction base='xs:string'>
                <xs:enumeration value='a'/><xs:enumeration value='b'/></xs:restriction></xs:simpleType>
            </xs:element>
            <xs:element name='p' type='t:P' minOccurs='0' maxOccurs='2'/>
            <xs:element name='s' minOccurs='0'><xs:simpleType><xs:restriction base='xs:string'>
                <xs:minLength value='2'/><xs:maxLength value='3'/></xs:restriction></xs:simpleType>
            </xs:element>
            <xs:element name='d' type='xs:duration' minOccurs='0'/>
            <xs:element name='u' minOccurs='0'><xs:simpleType>
                <xs:union memberTypes='xs:int xs:boolean'/></xs:simpleType></xs:element>
            <xs:choice minOccurs='0'><xs:element name='k' type='xs:int'/><xs:element name='l' type='xs:int'/>
            </xs:choice>
            <xs:element name='any' minOccurs='0'/>
        </xs:sequence></xs:complexType></xs:element>";
    let (schemas, name) = element_of(content);
    let mut model = Model::new(&schemas);
    let element = model.element(&name).unwrap();
    for (given, wanted) in [
        (&[][..], "n is missing: it is xs:int above 0 to 10"),
        (
            &[("n", "0")],
            "n cannot be \"0\": it is xs:int above 0 to 10",
        ),
        (
            &[("n", "11")],
            "n cannot be \"11\": it is xs:int above 0 to 10",
        ),
        (
            &[("n", "x")],
            "n cannot be \"x\": it is xs:int above 0 to 10",
        ),
        (
            &[("n", "1"), ("n", "2")],
            "n is given 2 times, but 1 is the number",
        ),
        (
            &[("n", "1"), ("m", "2")],
            "m is not an argument: there are n, c, p, s, d, u, k, l, any",
        ),
        (
            &[("n", "1"), ("c", "d")],
            "c cannot be \"d\": it is one of a, b",
        ),
        (
            &[("n", "1"), ("p.y", "1")],
            "p.x is missing: it is xs:double",
        ),
        (
            &[("n", "1"), ("p.x", "1"), ("p.z", "1")],
            "p.z is not an argument: there are x, y",
        ),
        (
            &[("n", "1"), ("p.x", "1"), ("p.y", "40000")],
            "p.y cannot be \"40000\": it is xs:short from -32768 to 32767",
        ),
        (
            &[("n", "1"), ("p", "1")],
            "p has parts, there are x, y, and no value of its own",
        ),
        (
            &[("n", "1"), ("s", "abcd")],
            "s cannot be \"abcd\": it is xs:string of 2 to 3 characters",
        ),
        (
            &[("n", "1"), ("d", "10 s")],
            "d cannot be \"10 s\": it is xs:duration",
        ),
        (
            &[("n", "1"), ("u", "yes")],
            "u cannot be \"yes\": it is xs:int from -2147483648 to 2147483647, or xs:boolean",
        ),
        (&[("n", "1"), ("k", "1"), ("l", "1")], "E needs one of k, l"),
        (
            &[("n", "1"), ("any", "1")],
            "any cannot be given by arguments: any content is allowed",
        ),
        (
            &[("n.a", "1")],
            "n has no parts: it is xs:int above 0 to 10",
        ),
    ] {
        let error = model.compose(&element, &arguments(given)).unwrap_err();
        assert_eq!(error.to_string(), wanted, "{given:?}");
    }
    let three = arguments(&[("n", "1")]);
    let Argument::Fields(mut fields) = three else {
        panic!()
    };
    let point = arguments(&[("x", "1")]);
    fields.push((
        "p".into(),
        Argument::List(vec![point.clone(), point.clone()]),
    ));
    let given = Argument::Fields(fields.clone());
    let made = model.compose(&element, &given).unwrap();
    assert_eq!(made.elements().count(), 3);
    fields[1].1 = Argument::List(vec![point.clone(), point.clone(), point]);
    let error = model
        .compose(&element, &Argument::Fields(fields))
        .unwrap_err();
    assert!(
        matches!(error.reason, ComposeReason::Count { count: 3, .. }),
        "{error}"
    );
    assert!(Argument::none().add("a..b", Argument::none()).is_err());
}

#[test]
fn hostile_schemas_are_bounded() {
    // Each type contains two of the next: the work would double with each.
    let mut content = String::new();
    for number in 0..40 {
        let next = number + 1;
        content += &format!(
            "<xs:group name='g{number}'><xs:sequence><xs:group ref='t:g{next}'/><xs:group ref='t:g{next}'/>
             </xs:sequence></xs:group>"
        );
    }
    content +=
        "<xs:element name='E'><xs:complexType><xs:group ref='t:g0'/></xs:complexType></xs:element>";
    let (schemas, name) = element_of(&content);
    let mut model = Model::new(&schemas);
    let _ = model.element(&name);
    // A required element in itself has no end.
    let endless =
        "<xs:complexType name='P'><xs:sequence><xs:element name='p' type='t:P'/></xs:sequence>
        </xs:complexType><xs:element name='E' type='t:P'/>";
    let (schemas, name) = element_of(endless);
    let mut model = Model::new(&schemas);
    let element = model.element(&name).unwrap();
    assert!(model.compose(&element, &Argument::none()).is_err());
    let mut modules = Modules::new("chappe_soap");
    let written: Result<(), SourceError> = modules.add("x", &Wsdl::default(), &schemas);
    assert_eq!(written, Ok(()));
}

/// What is written for a WSDL in which each text is this one.
fn source_with(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let quoted = text.replace('"', "&quot;").replace('\n', "&#10;");
    // Names of operations have at most 256 bytes.
    let name = quoted.replace([';', '&'], " ");
    let name: String = name.chars().skip(90).take(200).collect();
    let document = format!(
        "<w:definitions xmlns:w='http://schemas.xmlsoap.org/wsdl/' xmlns:t='urn:t' targetNamespace='urn:t'>
        <w:types><x:schema xmlns:x='{}' targetNamespace='urn:t'><x:element name='Get'><x:complexType>
        <x:annotation><x:documentation>{text}</x:documentation></x:annotation><x:sequence>
        <x:element name='a'><x:annotation><x:documentation>{text}</x:documentation></x:annotation>
        <x:simpleType><x:restriction base='x:int'><x:enumeration value=\"1\"/>
        <x:enumeration value=\"{quoted}\"/></x:restriction></x:simpleType></x:element>
        </x:sequence></x:complexType></x:element></x:schema></w:types>
        <w:message name='m'><w:part name='p' element='t:Get'/></w:message>
        <w:portType name='P'><w:operation name=\"n{name}\"><w:documentation>{text}</w:documentation>
        <w:input message='t:m'/><w:output message='t:m'/><w:fault name='f' message='t:m'/></w:operation>
        </w:portType></w:definitions>",
        schema::NAMESPACE
    );
    let mut wsdl = Wsdl::parse(document.as_bytes()).unwrap();
    let mut schemas = Schemas::default();
    for schema in std::mem::take(&mut wsdl.schemas) {
        schemas.add("t.wsdl", &schema).unwrap();
    }
    let mut modules = Modules::new("chappe_soap");
    modules.add(&text, &wsdl, &schemas).unwrap();
    modules.finish(&format!(
        "Types of {text}, written by `chappe describe --rust`."
    ))
}

/// Asserts that no line of documentation starts a block of code.
fn has_no_code(source: &str) {
    for line in source.lines().map(str::trim_start) {
        let documentation = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(text) = documentation else { continue };
        assert!(
            !text.starts_with("    ") && !text.starts_with('\t'),
            "{line}"
        );
        let text = text.trim();
        assert!(
            !text.starts_with("```") && !text.starts_with("~~~"),
            "{line}"
        );
    }
}

#[test]
fn documentation_of_a_device_is_no_code() {
    let long = "A".repeat(93);
    let source = source_with(&format!(
        "{long} ``` std::process::abort(); {long} ``` {long} ~~~ {long}\n\n    four(); <b>x</b> [l](http://e)"
    ));
    has_no_code(&source);
    assert!(
        source.contains("/// \\`\\`\\` std::process::abort();"),
        "{source}"
    );
    assert!(
        source.contains("\\<b\\>x\\</b\\> \\[l\\](http://e)"),
        "{source}"
    );
    assert!(source.contains("`chappe describe --rust`."), "{source}");
}

proptest! {
    #[test]
    fn no_documentation_is_code(text in "([-`~<\\[\\]*_#|\\\\&+=.) \n/a1]|```|~~~|    |A{92} ){0,60}") {
        has_no_code(&source_with(&text));
    }
}

#[test]
fn many_fields_of_one_rust_name_are_refused_or_written_in_time() {
    let fields = |count: usize| -> String {
        let names = (0..count).map(|n| format!("a{}{}", ".".repeat(n % 90), "_".repeat(n / 90)));
        names
            .map(|name| format!("<xs:element name='{name}' type='xs:int'/>"))
            .collect()
    };
    for (count, wanted) in [(4_000, Ok(())), (5_000, Err(SourceError::TooLarge))] {
        let content = format!(
            "<xs:element name='E'><xs:complexType><xs:sequence>{}</xs:sequence></xs:complexType></xs:element>",
            fields(count)
        );
        let (schemas, _) = element_of(&content);
        let document = "<w:definitions xmlns:w='http://schemas.xmlsoap.org/wsdl/' xmlns:t='urn:t' targetNamespace='urn:t'>
            <w:message name='m'><w:part name='p' element='t:E'/></w:message>
            <w:portType name='P'><w:operation name='Get'><w:input message='t:m'/></w:operation></w:portType>
            </w:definitions>";
        let wsdl = Wsdl::parse(document.as_bytes()).unwrap();
        assert_eq!(
            Modules::new("chappe_soap").add("x", &wsdl, &schemas),
            wanted
        );
    }
}
