//! Goal: each message is answered, and malformed ones get a fault with the reason.
//! Method: messages as text over a registry in memory.

use chappe_registry::wsdl::message::{NAMESPACE, Request, receive, wsdl};
use chappe_xml::Limits;

use super::{WARD, WARD_URL, desk, prepared, put};

fn envelope(name: &str, inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body><{name} xmlns='{NAMESPACE}'>{inner}\
         </{name}></s:Body></s:Envelope>"
    )
}

fn fault(name: &str, inner: &str) -> String {
    let text = envelope(name, inner);
    let fault = receive(text.as_bytes(), Limits::default(), "node").unwrap_err();
    chappe_registry::uddi::message::fault_text(fault)
}

#[test]
fn inquiries_are_answered() {
    let mut desk = desk();
    let ward = super::ward_of(&mut desk, "ada");
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
    let ask = |name: &str, inner: &str| {
        let message = receive(envelope(name, inner).as_bytes(), Limits::default(), "node").unwrap();
        assert!(!message.request.is_change());
        message.request.answer(&desk.inquiry()).unwrap().to_text()
    };
    let operation = format!("<operation>{}</operation>", super::READ);
    let url = format!("<url>{WARD_URL}</url>");
    let key = format!("<key>{WARD_URL}</key>");
    for (name, inner, expected) in [
        ("getWSDLAdvertContent", key.as_str(), "<content>PD94"),
        (
            "getWSDLAdvertContentByURL",
            &url,
            "<mediaType>text/xml</mediaType>",
        ),
        (
            "getAllWSDLFiles",
            "<maxRows>1</maxRows>",
            "<targetNamespace>http://example.org/ward<",
        ),
        ("getOperationsByURL", &url, "<name>Read</name>"),
        (
            "getInputMessageOfOperation",
            &operation,
            "<name>ReadIn</name>",
        ),
        (
            "getOutputMessageOfOperation",
            &operation,
            "<meaning>http://example.org/meaning#Pulse<",
        ),
        (
            "getFaultMessageOfOperation",
            &operation,
            "<name>NoSensor</name>",
        ),
        (
            "findInterfaceByOperation",
            "<operation>Read</operation>",
            "<name>HeartRate</name>",
        ),
        (
            "findOperationByMessagePart",
            "<part>body</part><direction>input</direction>",
            "<name>Read</name>",
        ),
        (
            "findServicesByInterface",
            "<interface>HeartRate</interface>",
            "<name>Monitor</name>",
        ),
    ] {
        let answer = ask(name, inner);
        assert!(answer.contains(expected), "{name}: {answer}");
    }
}

#[test]
fn malformed_requests_get_the_reason() {
    for (name, inner, reason) in [
        ("addWSDLFile", "", "neither url nor content"),
        ("addWSDLFile", "<content>?</content>", "not base64"),
        (
            "addWSDLFileAdvert",
            "<url>http://a/</url>",
            "businessKey is missing",
        ),
        (
            "addWSDLFileAdvert",
            "<url>http://a/</url><businessKey>x</businessKey>",
            "E_invalidKeyPassed",
        ),
        (
            "getAllWSDLFiles",
            "<maxRows>0</maxRows>",
            "not a number above 0",
        ),
        ("getWSDLAdvertContent", "<key/>", "key is empty or missing"),
        (
            "getWSDLAdvertContent",
            "<key>a</key><key>b</key>",
            "more than one key",
        ),
        (
            "getWSDLAdvertContent",
            "<key><a/></key>",
            "contains text, not a",
        ),
        (
            "getWSDLAdvertContent",
            "text<key>a</key>",
            "does not contain text",
        ),
        (
            "getWSDLAdvertContent",
            "<key>a</key><x/>",
            "does not contain x",
        ),
        (
            "findOperationByMessagePart",
            "<part>a</part><direction>up</direction>",
            "not input, output or fault",
        ),
        ("find_service", "", "E_unsupported"),
    ] {
        let text = fault(name, inner);
        assert!(text.contains(reason), "{name} {inner}: {text}");
    }
}

#[test]
fn a_document_in_a_message_is_given_as_base64() {
    let message = receive(
        envelope(
            "addWSDLFile",
            "<url>urn:x</url><content>PGEv\n Pg==</content>",
        )
        .as_bytes(),
        Limits::default(),
        "node",
    )
    .unwrap();
    let Request::Add(add) = message.request else {
        panic!()
    };
    assert_eq!(add.content.as_deref(), Some(b"<a/>".as_slice()));
    assert!(wsdl("http://a/").contains("base64Binary"));
}
