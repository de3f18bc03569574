//! Goal: messages carry every value unchanged, requests of other versions or structures get the errors of
//! the specification, and each request is answered as its call is.
//! Method: messages as text; a registry in memory.

use chappe_registry::uddi::message::{
    Answer, Message, NAMESPACE, Port, Request, fault, receive, wsdl,
};
use chappe_registry::uddi::{
    BusinessEntity, Error, ErrorCode, KeyedReference, MAX_ANSWER_BYTES, PublisherAssertion,
    RELATIONSHIPS, Taxonomies,
};
use chappe_soap::v1_1::{self, Envelope, Fault, FaultCode};
use chappe_xml::{Element, Limits, Name};

use super::{Desk, binding, business, reference, service, tmodel};

/// The document of a request.
pub(crate) fn document(name: &str, attributes: &str, inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='{}'><s:Body><{name} generic='2.0' xmlns='{NAMESPACE}' {attributes}>\
         {inner}</{name}></s:Body></s:Envelope>",
        v1_1::NAMESPACE
    )
}

fn read(port: Port, document: &str) -> Result<Message, Fault> {
    receive(document.as_bytes(), Limits::default(), port, "test")
}

fn inquiry(name: &str, attributes: &str, inner: &str) -> Result<Request, Fault> {
    read(Port::Inquiry, &document(name, attributes, inner)).map(|message| message.request)
}

fn publication(name: &str, inner: &str) -> Result<Request, Fault> {
    let inner = format!("<authInfo>t</authInfo>{inner}");
    read(Port::Publication, &document(name, "", &inner)).map(|message| message.request)
}

/// The error in a fault: its code and its number.
fn code<T: std::fmt::Debug>(result: Result<T, Fault>) -> (String, String) {
    let fault = result.unwrap_err();
    let report = &fault.detail[0];
    assert!(report.name.is(NAMESPACE, "dispositionReport"), "{report:?}");
    assert_eq!(report.attribute(&Name::local("generic")), Some("2.0"));
    assert_eq!(report.attribute(&Name::local("operator")), Some("test"));
    let result = report.child(&Name::new(NAMESPACE, "result")).unwrap();
    let info = result.child(&Name::new(NAMESPACE, "errInfo")).unwrap();
    let text = |element: &Element, name| {
        element
            .attribute(&Name::local(name))
            .unwrap_or_default()
            .to_owned()
    };
    (text(info, "errCode"), text(result, "errno"))
}

fn is(found: (String, String), expected: ErrorCode) {
    let number = expected.errno().to_string();
    assert_eq!(found, (expected.as_str().to_owned(), number));
}

/// The element in the body of an answer.
pub(crate) fn body(answer: &Answer) -> Element {
    let text = answer.to_text("test");
    Envelope::parse(text.as_bytes(), Limits::default())
        .unwrap()
        .body
}

/// What a request to save the values of an answer says.
pub(crate) fn resaved(answer: &Answer, name: &'static str) -> Request {
    let element = |local| Element::new(Name::new(NAMESPACE, local));
    let request = element(name)
        .with_attribute(Name::local("generic"), "2.0")
        .with_child(element("authInfo").with_text("t"))
        .with_children(body(answer).elements().cloned());
    let message = read(Port::Publication, &v1_1::to_text(request)).unwrap();
    assert_eq!(message.token.as_deref(), Some("t"));
    message.request
}

#[test]
fn requests_of_other_versions_are_refused() {
    let find = |namespace: &str, generic: &str| {
        let text = document("find_business", "", "").replace(NAMESPACE, namespace);
        code(read(Port::Inquiry, &text.replace("generic='2.0'", generic)))
    };
    for (namespace, generic) in [
        (NAMESPACE, "generic='1.0'"),
        (NAMESPACE, "generic='3.0'"),
        (NAMESPACE, ""),
        ("urn:uddi-org:api", "generic='1.0'"),
        ("urn:uddi-org:api_v3", ""),
    ] {
        is(find(namespace, generic), ErrorCode::UnrecognizedVersion);
    }
    is(find("urn:other", "generic='2.0'"), ErrorCode::Unsupported);
}

#[test]
fn requests_that_do_not_exist_at_an_address_are_refused() {
    is(
        code(inquiry("find_everything", "", "")),
        ErrorCode::Unsupported,
    );
    is(
        code(inquiry("save_business", "", "")),
        ErrorCode::Unsupported,
    );
    is(
        code(publication("find_business", "")),
        ErrorCode::Unsupported,
    );
    let upload = "<uploadRegister>http://example.com/</uploadRegister>";
    is(
        code(publication("save_business", upload)),
        ErrorCode::Unsupported,
    );
}

#[test]
fn documents_that_are_no_requests_are_refused() {
    for text in ["", "<a/>", "no xml", "<!DOCTYPE a><a/>"] {
        let fault = read(Port::Inquiry, text).unwrap_err();
        assert_eq!(fault.code, FaultCode::Client, "{text}");
        is(code(Err::<(), _>(fault)), ErrorCode::FatalError);
    }
    let other = document("find_business", "", "");
    let other = other.replace(v1_1::NAMESPACE, chappe_soap::NAMESPACE);
    let fault = read(Port::Inquiry, &other).unwrap_err();
    assert_eq!(fault.code, FaultCode::VersionMismatch);
    let header = "<s:Header><h xmlns='urn:h' s:mustUnderstand='1'/></s:Header><s:Body>";
    let text = document("find_business", "", "").replace("<s:Body>", header);
    assert_eq!(
        read(Port::Inquiry, &text).unwrap_err().code,
        FaultCode::MustUnderstand
    );
    let limits = Limits {
        bytes: 100,
        ..Limits::default()
    };
    let long = document("find_business", "", "");
    let long = receive(long.as_bytes(), limits, Port::Inquiry, "test");
    is(code(long), ErrorCode::MessageTooLarge);
    is(
        code(inquiry("find_business", "", "<tModel/>")),
        ErrorCode::FatalError,
    );
    is(
        code(inquiry("find_business", "maxRows='many'", "")),
        ErrorCode::FatalError,
    );
}

#[test]
fn keys_languages_and_words_are_checked() {
    let key = |text: &str| {
        inquiry(
            "get_serviceDetail",
            "",
            &format!("<serviceKey>{text}</serviceKey>"),
        )
    };
    let service = "A035A07C-F362-44DD-8F95-E2B134BF43B4";
    assert!(
        matches!(key(service), Ok(Request::ServiceDetail(keys)) if keys[0].to_string() == service)
    );
    assert!(
        key(&format!("\n {service} \n")).is_ok(),
        "white space around a key"
    );
    for wrong in ["", "1", "uuid:A035A07C-F362-44DD-8F95-E2B134BF43B4"] {
        is(code(key(wrong)), ErrorCode::InvalidKeyPassed);
    }
    let name = |language: &str| {
        let name = format!("<name xml:lang='{language}'>x</name>");
        inquiry("find_business", "", &name)
    };
    assert!(name("en-US").is_ok() && name("").is_ok());
    is(code(name("not a language")), ErrorCode::LanguageError);
    let qualifier = |words: &[&str]| {
        let words = words
            .iter()
            .map(|word| format!("<findQualifier>{word}</findQualifier>"));
        let words: String = words.collect();
        inquiry(
            "find_service",
            "",
            &format!("<findQualifiers>{words}</findQualifiers>"),
        )
    };
    assert!(qualifier(&["exactNameMatch"]).is_ok());
    is(code(qualifier(&["soundex"])), ErrorCode::Unsupported);
    is(
        code(qualifier(&["sortByNameAsc", "sortByNameDesc"])),
        ErrorCode::TooManyOptions,
    );
    let status = "<completionStatus>status:none</completionStatus>";
    let asked = publication("get_assertionStatusReport", status);
    is(code(asked), ErrorCode::InvalidCompletionStatus);
    let kind = "<bindingTemplate bindingKey=''><accessPoint URLType='pigeon'>a</accessPoint></bindingTemplate>";
    is(
        code(publication("save_binding", kind)),
        ErrorCode::ValueNotAllowed,
    );
}

#[test]
fn rows_below_one_are_no_limit() {
    for (text, expected) in [("5", Some(5)), ("0", None), ("-1", None), ("", None)] {
        let asked = inquiry("find_tModel", &format!("maxRows='{text}'"), "");
        assert!(matches!(asked, Ok(Request::FindTModel(ask)) if ask.max_rows == expected));
    }
}

/// Appendix B.2 and B.3: no header for another actor, and no claim about the encoding of an element of UDDI. The fault has
/// no detail.
#[test]
fn actors_and_encodings_are_refused() {
    let plain = document("find_business", "", "<name>a</name>");
    assert!(read(Port::Inquiry, &plain).is_ok());
    let headed = plain.replace(
        "<s:Body>",
        "<s:Header><h xmlns='urn:h' s:actor='urn:other'/></s:Header><s:Body>",
    );
    let encoded = plain.replace("<name>", "<name s:encodingStyle=''>");
    for text in [headed, encoded] {
        let fault = read(Port::Inquiry, &text).unwrap_err();
        assert_eq!(
            (fault.code, fault.detail.len()),
            (FaultCode::Client, 0),
            "{text}"
        );
    }
}

/// find_business and find_service: without any argument nothing is found; a businessKey is one, an empty one is none.
#[test]
fn a_find_without_arguments_finds_nothing() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    desk.service("ada", ward, "Pulse");
    let count = |name: &str, attributes: &str, inner: &str| {
        let request = inquiry(name, attributes, inner).unwrap();
        let answer = desk.inquiry().answer(request, &Taxonomies::default());
        match answer.unwrap() {
            Answer::BusinessList(found) => found.items.len(),
            Answer::ServiceList(found) => found.items.len(),
            other => panic!("{other:?}"),
        }
    };
    let qualifiers =
        "<findQualifiers><findQualifier>sortByNameAsc</findQualifier></findQualifiers>";
    let of_ward = format!("businessKey='{ward}'");
    for (name, attributes, inner, found) in [
        ("find_business", "", qualifiers, 0),
        ("find_business", "maxRows='5'", "<categoryBag/>", 0),
        ("find_business", "", "<name>%</name>", 1),
        ("find_service", "businessKey=''", qualifiers, 0),
        ("find_service", "", "<name>%</name>", 1),
        ("find_service", of_ward.as_str(), "", 1),
    ] {
        assert_eq!(
            count(name, attributes, inner),
            found,
            "{name} {attributes} {inner}"
        );
    }
}

/// add_ and set_publisherAssertions: all parts of the keyedReference have to be there, if only empty.
#[test]
fn an_assertion_has_all_parts() {
    let key = "uuid:807A2C6A-EE22-470D-ADC7-E0424A337C03";
    for (reference, is_whole) in [
        (format!("tModelKey='{key}' keyName='' keyValue=''"), true),
        (format!("tModelKey='{key}' keyValue='x'"), false),
        ("keyName='x' keyValue='x'".to_owned(), false),
        (format!("tModelKey='{key}' keyName='x'"), false),
    ] {
        let business = "4cd7e4bc-648b-426d-9936-443eaac8ae23";
        let inner = format!(
            "<publisherAssertion><fromKey>{business}</fromKey><toKey>{business}</toKey>\
             <keyedReference {reference}/></publisherAssertion>"
        );
        for name in ["add_publisherAssertions", "set_publisherAssertions"] {
            let read = publication(name, &inner);
            match is_whole {
                true => assert!(read.is_ok(), "{read:?}"),
                false => is(code(read), ErrorCode::FatalError),
            }
        }
    }
}

#[test]
fn faults_say_whose_they_are() {
    let of = |code| fault(&Error::new(code, "why & how"), "test");
    assert_eq!(of(ErrorCode::Busy).code, FaultCode::Server);
    assert_eq!(of(ErrorCode::UserMismatch).code, FaultCode::Client);
    let text = v1_1::to_text(of(ErrorCode::UserMismatch).into_element());
    assert!(
        text.contains("errCode=\"E_userMismatch\"") && text.contains("why &amp; how"),
        "{text}"
    );
}

/// One of each request, run against a registry; the names of the answers are those of the WSDL.
#[test]
fn every_request_has_its_answer() {
    let mut desk = Desk::new();
    desk.registry
        .publish_canonical_tmodels("node", 0)
        .unwrap()
        .unwrap()
        .wait()
        .unwrap();
    let (ward, lab) = (desk.business("ada", "Ward 3"), desk.business("ada", "Lab"));
    let pulse = desk.service("ada", ward, "Pulse");
    let colours = desk.tmodel("ada", "colours");
    let bound = desk
        .save_binding("ada", binding(Some(pulse), &[colours]))
        .unwrap();
    let bound = bound.key.unwrap();
    let assertion = format!(
        "<publisherAssertion><fromKey>{ward}</fromKey><toKey>{lab}</toKey><keyedReference \
         tModelKey='{RELATIONSHIPS}' keyName='part' keyValue='parent-child'/></publisherAssertion>"
    );
    let publish: [(&str, String, &str); 14] = [
        (
            "add_publisherAssertions",
            assertion.clone(),
            "dispositionReport",
        ),
        (
            "get_publisherAssertions",
            String::new(),
            "publisherAssertions",
        ),
        (
            "get_assertionStatusReport",
            String::new(),
            "assertionStatusReport",
        ),
        (
            "set_publisherAssertions",
            assertion.clone(),
            "publisherAssertions",
        ),
        ("get_registeredInfo", String::new(), "registeredInfo"),
        (
            "save_business",
            "<businessEntity businessKey=''><name>New</name></businessEntity>".into(),
            "businessDetail",
        ),
        (
            "save_service",
            format!(
                "<businessService serviceKey='' businessKey='{lab}'><name>N</name></businessService>"
            ),
            "serviceDetail",
        ),
        (
            "save_binding",
            format!(
                "<bindingTemplate serviceKey='{pulse}' bindingKey=''><accessPoint URLType='http'>\
                 http://a</accessPoint><tModelInstanceDetails><tModelInstanceInfo \
                 tModelKey='{colours}'/></tModelInstanceDetails></bindingTemplate>"
            ),
            "bindingDetail",
        ),
        (
            "save_tModel",
            "<tModel tModelKey=''><name>t</name></tModel>".into(),
            "tModelDetail",
        ),
        ("delete_publisherAssertions", assertion, "dispositionReport"),
        (
            "delete_binding",
            format!("<bindingKey>{bound}</bindingKey>"),
            "dispositionReport",
        ),
        (
            "delete_service",
            format!("<serviceKey>{pulse}</serviceKey>"),
            "dispositionReport",
        ),
        (
            "delete_tModel",
            format!("<tModelKey>{colours}</tModelKey>"),
            "dispositionReport",
        ),
        (
            "delete_business",
            format!("<businessKey>{lab}</businessKey>"),
            "dispositionReport",
        ),
    ];
    let ask = [
        (
            "find_binding",
            format!("serviceKey='{pulse}'"),
            String::new(),
            "bindingDetail",
        ),
        (
            "find_business",
            String::new(),
            "<name>ward</name>".into(),
            "businessList",
        ),
        (
            "find_relatedBusinesses",
            String::new(),
            format!("<businessKey>{ward}</businessKey>"),
            "relatedBusinessesList",
        ),
        (
            "find_service",
            String::new(),
            "<name>p%</name>".into(),
            "serviceList",
        ),
        (
            "find_tModel",
            String::new(),
            "<name>colours</name>".into(),
            "tModelList",
        ),
        (
            "get_bindingDetail",
            String::new(),
            format!("<bindingKey>{bound}</bindingKey>"),
            "bindingDetail",
        ),
        (
            "get_businessDetail",
            String::new(),
            format!("<businessKey>{ward}</businessKey>"),
            "businessDetail",
        ),
        (
            "get_businessDetailExt",
            String::new(),
            format!("<businessKey>{ward}</businessKey>"),
            "businessDetailExt",
        ),
        (
            "get_serviceDetail",
            String::new(),
            format!("<serviceKey>{pulse}</serviceKey>"),
            "serviceDetail",
        ),
        (
            "get_tModelDetail",
            String::new(),
            format!("<tModelKey>{colours}</tModelKey>"),
            "tModelDetail",
        ),
        (
            "validate_values",
            String::new(),
            String::new(),
            "dispositionReport",
        ),
    ];
    let mut described = wsdl(Port::Inquiry, "http://a") + &wsdl(Port::Publication, "http://a");
    for (name, inner, expected) in publish.iter().take(5) {
        run_publication(&mut desk, name, inner, expected);
    }
    for (name, attributes, inner, expected) in &ask {
        let request = inquiry(name, attributes, inner).unwrap();
        let answer = desk
            .inquiry()
            .answer(request, &Taxonomies::default())
            .unwrap();
        let found = body(&answer);
        assert!(found.name.is(NAMESPACE, expected), "{name}: {found:?}");
        let empty = found
            .elements()
            .all(|child| child.children.is_empty() && child.attributes.is_empty());
        assert!(!empty, "{name} has nothing: {found:?}");
        described = described.replace(&format!("<operation name=\"{name}\">"), "");
    }
    for (name, inner, expected) in publish.iter().skip(5) {
        run_publication(&mut desk, name, inner, expected);
    }
    for (name, ..) in &publish {
        described = described.replace(&format!("<operation name=\"{name}\">"), "");
    }
    // The two of tokens, each described twice: by the port type and by the binding.
    assert_eq!(
        described.matches("<operation name=").count(),
        4,
        "{described}"
    );
}

fn run_publication(desk: &mut Desk, name: &str, inner: &str, expected: &str) {
    let request = publication(name, inner).unwrap();
    let saved = desk.ask("ada", |ada| ada.answer(&request));
    let answer = saved
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .wait()
        .unwrap();
    let found = body(&answer);
    assert!(found.name.is(NAMESPACE, expected), "{name}: {found:?}");
    assert!(found.elements().count() > 0, "{name} has nothing");
    if request.is_change() {
        assert!(!request.keys(&answer).is_empty(), "{name} names no key");
    }
}

#[test]
fn a_dispositionreport_of_success_has_no_error() {
    let found = body(&Answer::Success);
    let result = found.child(&Name::new(NAMESPACE, "result")).unwrap();
    assert_eq!(result.attribute(&Name::local("errno")), Some("0"));
    let info = result.child(&Name::new(NAMESPACE, "errInfo")).unwrap();
    assert_eq!(info.attribute(&Name::local("errCode")), Some("E_success"));
}

#[test]
fn relationships_have_their_direction() {
    let mut desk = Desk::new();
    desk.registry
        .publish_canonical_tmodels("node", 0)
        .unwrap()
        .unwrap()
        .wait()
        .unwrap();
    let (ward, lab) = (desk.business("ada", "Ward 3"), desk.business("ada", "Lab"));
    let assertion = PublisherAssertion {
        from_key: ward,
        to_key: lab,
        reference: KeyedReference {
            key_name: Some("part".to_owned()),
            ..reference(RELATIONSHIPS, "parent-child")
        },
    };
    let made = desk.ask("ada", |ada| ada.add_publisher_assertions(&[assertion]));
    made.unwrap().wait().unwrap();
    for (of, direction) in [(ward, "fromKey"), (lab, "toKey")] {
        let request = inquiry(
            "find_relatedBusinesses",
            "",
            &format!("<businessKey>{of}</businessKey>"),
        );
        let answer = desk
            .inquiry()
            .answer(request.unwrap(), &Taxonomies::default())
            .unwrap();
        let text = answer.to_text("test");
        assert!(
            text.contains(&format!("direction=\"{direction}\"")),
            "{text}"
        );
        assert_eq!(text.matches("sharedRelationships ").count(), 1, "{text}");
    }
}

#[test]
fn an_answer_has_a_limit() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let services: Vec<_> = (0..1_000)
        .map(|at| service(ward, &format!("{at}")))
        .collect();
    desk.ask("ada", |ada| ada.save_service(&services))
        .unwrap()
        .wait()
        .unwrap();
    let one = desk.inquiry().business_detail(&[ward]).unwrap();
    assert_eq!(one[0].value.services.len(), 1_000);
    let refused = desk.inquiry().business_detail(&vec![ward; 500]);
    let error = refused.unwrap_err();
    assert_eq!(error.code, ErrorCode::MessageTooLarge);
    assert!(
        error.detail.contains(&MAX_ANSWER_BYTES.to_string()),
        "{error}"
    );
}

#[test]
fn a_tmodel_comes_back_from_its_answer() {
    let mut desk = Desk::new();
    let saved = desk.save_tmodel("ada", tmodel("one")).unwrap();
    let found = desk.inquiry().tmodel_detail(&[saved.key.unwrap()]).unwrap();
    let request = resaved(&Answer::TModelDetail(found), "save_tModel");
    assert!(matches!(request, Request::SaveTModel(values) if values == [saved]));
    let entity: BusinessEntity = business("Ward 3");
    let entity = desk.save_business("ada", entity).unwrap();
    let found = desk
        .inquiry()
        .business_detail(&[entity.key.unwrap()])
        .unwrap();
    let request = resaved(&Answer::BusinessDetail(found), "save_business");
    assert!(matches!(request, Request::SaveBusiness(values) if values == [entity]));
}
