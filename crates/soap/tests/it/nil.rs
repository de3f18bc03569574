//! Goal: an element without value (`xsi:nil`) is `None` where a field may be, and refused where it needs a value.
//! Method: handwritten messages, read as text and as a tree.

use chappe_soap::message::{self, Message, Types};
use chappe_xml::Limits;

use crate::message::{NAMESPACE, from_text, namespace, text_of};

#[derive(Message, Debug, PartialEq)]
struct Sized {
    #[attribute]
    unit: Option<String>,
    #[text]
    size: f64,
}

#[derive(Message, Debug, PartialEq)]
struct Reading {
    celsius: Option<f64>,
    size: Option<Sized>,
    note: String,
}

#[test]
fn an_optional_element_that_is_nil_has_no_value() {
    const NIL: &str = "xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:nil";
    let read = |content: &str| {
        let text = format!("<R xmlns='{NAMESPACE}'>{content}</R>");
        let tree = from_text::<Reading>("R", text.as_bytes());
        let limits = Limits::default();
        let direct = message::from_text(&namespace(), "R", text.as_bytes(), limits);
        assert_eq!(tree, direct, "{content}");
        direct.map_err(|error| error.to_string())
    };
    let nothing = Reading {
        celsius: None,
        size: None,
        note: String::new(),
    };
    for content in [
        format!("<celsius {NIL}='true'/><size unit='m' {NIL}=' 1 '></size><note/>"),
        "<note/>".to_owned(),
    ] {
        assert_eq!(read(&content).as_ref(), Ok(&nothing), "{content}");
    }
    let sized = read(&format!("<size unit='m' {NIL}='false'>2</size><note/>")).unwrap();
    let (unit, size) = (Some("m".to_owned()), 2.0);
    assert_eq!(sized.size, Some(Sized { unit, size }));
    for (content, error) in [
        (
            format!("<celsius {NIL}='true'>1</celsius><note/>"),
            "R/celsius: \"1\" is not a valid content of an element that is nil",
        ),
        (
            format!("<celsius {NIL}='true'><a/></celsius><note/>"),
            "R/celsius has an element where a value is expected",
        ),
        // Without the namespace it is any attribute.
        (
            "<celsius nil='true'/><note/>".to_owned(),
            "R/celsius: \"\" is not a valid xs:double",
        ),
    ] {
        assert_eq!(read(&content), Err(error.to_owned()));
    }
    assert!(!text_of("R", &nothing).contains("nil"));
}

#[derive(Message, Debug, PartialEq)]
struct Channels {
    celsius: Vec<Option<f64>>,
    labels: Vec<String>,
    label: String,
}

/// The same in a namespace of its own.
#[derive(Message, Debug, PartialEq)]
#[message(namespace = "")]
struct Unqualified {
    celsius: Vec<Option<f64>>,
}

#[test]
fn a_repeated_element_that_is_nil_keeps_its_place() {
    let channels = Channels {
        celsius: vec![Some(1.5), None, Some(2.5)],
        labels: Vec::new(),
        label: "a".into(),
    };
    let text = text_of("C", &channels);
    assert_eq!(
        text,
        "<m:C xmlns:m=\"https://example.org/everything\"><m:celsius>1.5</m:celsius>\
         <m:celsius xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" i:nil=\"true\"/>\
         <m:celsius>2.5</m:celsius><m:label>a</m:label></m:C>"
    );
    assert_eq!(message::to_text(&namespace(), "C", &channels), text);
    let read = |text: &str| {
        let tree = from_text::<Channels>("C", text.as_bytes());
        let limits = Limits::default();
        let direct = message::from_text(&namespace(), "C", text.as_bytes(), limits);
        assert_eq!(tree, direct, "{text}");
        direct.map_err(|error| error.to_string())
    };
    assert_eq!(read(&text), Ok(channels));
    // A text would be empty otherwise, which is a value, too.
    const NIL: &str = "xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:nil='1'";
    for (content, error) in [
        (
            format!("<labels/><labels {NIL}/><label/>"),
            "C/labels is nil, but needs a value",
        ),
        (
            format!("<label {NIL}/>"),
            "C/label is nil, but needs a value",
        ),
        (
            format!("<celsius {NIL}>1</celsius><label/>"),
            "C/celsius: \"1\" is not a valid content of an element that is nil",
        ),
    ] {
        let text = format!("<C xmlns='{NAMESPACE}'>{content}</C>");
        assert_eq!(read(&text), Err(error.to_owned()));
    }

    let celsius = vec![None, Some(2.5)];
    let unqualified = Unqualified { celsius };
    let text = message::to_text(&namespace(), "U", &unqualified);
    let tree = message::to_element(&namespace(), "U", &unqualified);
    for text in [text, tree.to_text()] {
        assert_eq!(from_text("U", text.as_bytes()).as_ref(), Ok(&unqualified));
    }
}

#[test]
fn the_schema_says_which_elements_may_be_nil() {
    let mut types = Types::new(namespace());
    types.element::<Channels>("C", "");
    let schema = types.to_schema().unwrap().to_text();
    assert_eq!(schema.matches("nillable=\"true\"").count(), 1, "{schema}");
}
