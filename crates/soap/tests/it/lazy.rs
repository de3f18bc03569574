//! Goal: a message whose body is read by its type is the same message as its tree, written and read; and
//! whatever is wrong with it is the same error on both ways.
//!
//! Method: envelopes made of headers and bodies in unusual but valid forms, then damaged: fragments
//! removed, repeated or exchanged, bytes changed, limits lowered.

use chappe_soap::message::{Message, from_element};
use chappe_soap::{
    Addressing, AddressingVersion, Body, EndpointReference, Envelope, Error, Fault, LazyEnvelope,
    NAMESPACE,
};
use chappe_xml::{Element, Limits, Name, Namespace};
use proptest::prelude::*;

const WSA: &str = "http://www.w3.org/2005/08/addressing";
const WSA_2004: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing";

#[derive(Message, Debug, Clone, PartialEq)]
struct Part {
    number: Option<i32>,
    text: Vec<String>,
    part: Vec<Part>,
}

fn namespace() -> Namespace {
    "urn:m".into()
}

/// The message by its tree.
fn by_tree(document: &str, limits: Limits) -> Result<Envelope, Error> {
    Envelope::from_element(Element::parse_within(document.as_bytes(), limits)?)
}

/// The message without a tree.
fn lazily(document: &str, limits: Limits) -> Result<LazyEnvelope, Error> {
    LazyEnvelope::parse_within(document.to_owned().into(), limits)
}

/// Both ways give the same message or the same error, and the same value or error of the body's type.
fn same(document: &str, limits: Limits) {
    let (tree, lazy) = (by_tree(document, limits), lazily(document, limits));
    let (tree, lazy) = match (tree, lazy) {
        (Ok(tree), Ok(lazy)) => (tree, lazy),
        (tree, lazy) => {
            let (tree, lazy) = (tree.err(), lazy.err());
            assert_eq!(lazy, tree, "{document}");
            return;
        }
    };
    assert_eq!(
        lazy.clone().into_envelope().as_ref(),
        Ok(&tree),
        "{document}"
    );
    let faults = [lazy.fault(), tree.fault()].map(|fault| fault.map(with_tree));
    assert_eq!(faults[0], faults[1], "{document}");
    for (lazy, tree) in lazy.body.iter().zip(&tree.body) {
        assert_eq!(*lazy.name(), tree.name);
        let by_tree = from_element::<Part>(&namespace(), "Do", tree);
        assert_eq!(lazy.read::<Part>(&namespace(), "Do"), by_tree, "{document}");
        let known = lazy.read_known::<Part>(&namespace(), "Do");
        let tree = Body::from(tree.clone());
        assert_eq!(
            known,
            tree.read_known::<Part>(&namespace(), "Do"),
            "{document}"
        );
    }
    // Written again it is the same message.
    let again = by_tree_of(&lazy);
    assert_eq!(
        without_declarations(again),
        without_declarations(tree),
        "{document}"
    );
}

fn by_tree_of(lazy: &LazyEnvelope) -> Envelope {
    by_tree(&lazy.to_text(), Limits::default()).expect("a written message")
}

fn clear(element: &mut Element) {
    element.namespaces.clear();
    for child in &mut element.children {
        if let chappe_xml::Node::Element(child) = child {
            clear(child);
        }
    }
}

/// The fault with a detail of trees, without declarations: only texts have those of outer elements.
fn with_tree(fault: Fault) -> Fault {
    let detail = fault.detail.into_iter().map(|detail| {
        let mut element = detail.into_element().expect("it was read");
        clear(&mut element);
        Body::from(element)
    });
    Fault {
        detail: detail.collect(),
        ..fault
    }
}

/// Prefixes may differ once a message is written again.
fn without_declarations(mut envelope: Envelope) -> Envelope {
    let Addressing {
        from,
        reply_to,
        fault_to,
        ..
    } = &mut envelope.addressing;
    for reference in [from, reply_to, fault_to].into_iter().flatten() {
        reference.reference_parameters.iter_mut().for_each(clear);
    }
    envelope.headers.iter_mut().for_each(clear);
    envelope.body.iter_mut().for_each(clear);
    envelope
}

fn header() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<a:Action>urn:x/Do</a:Action>",
        "<a:Action> urn:x/<!-- c -->Do\n</a:Action>",
        "<a:Action/>",
        "<o:Action>urn:x/Do</o:Action>",
        "<Action xmlns='http://www.w3.org/2005/08/addressing'>urn:x</Action>",
        "<a:To s:mustUnderstand='true'>urn:uuid:1</a:To>",
        "<a:To s:role='http://www.w3.org/2003/05/soap-envelope/role/none'>urn:uuid:1</a:To>",
        "<a:To s:role=' http://www.w3.org/2003/05/soap-envelope/role/next '>urn:uuid:2</a:To>",
        "<a:To><a:Address/></a:To>",
        "<o:To>urn:uuid:1</o:To>",
        "<a:MessageID>urn:uuid:&#x31;<![CDATA[2]]></a:MessageID>",
        "<a:MessageID><x/>urn:uuid:<x/>3</a:MessageID>",
        "<a:MessageID a='1' xmlns:b='urn:b' b:c='2'>urn:uuid:4</a:MessageID>",
        "<a:RelatesTo>urn:uuid:5</a:RelatesTo>",
        "<a:RelatesTo RelationshipType='http://www.w3.org/2005/08/addressing/reply'>u</a:RelatesTo>",
        "<a:RelatesTo RelationshipType='a:Reply'>u</a:RelatesTo>",
        "<a:RelatesTo RelationshipType='urn:other'>u</a:RelatesTo>",
        "<o:RelatesTo RelationshipType='o:Reply'>u</o:RelatesTo>",
        "<a:ReplyTo><a:Address>urn:y</a:Address></a:ReplyTo>",
        "<a:ReplyTo><a:Address>urn:y</a:Address><a:ReferenceParameters><m:p>m:q</m:p></a:ReferenceParameters></a:ReplyTo>",
        "<a:ReplyTo/>",
        "<a:FaultTo><a:Address>urn:z</a:Address></a:FaultTo>",
        "<a:From><b/></a:From>",
        "<m:Security s:mustUnderstand='1'><m:inner/></m:Security>",
        "<Other/>",
        "text",
        " ",
    ])
}

fn content() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<m:number>7</m:number>",
        "<m:number> -7<!-- c --> </m:number>",
        "<m:number>x</m:number>",
        "<m:number/>",
        "<m:number a='1' xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:type='m:x'>1</m:number>",
        "<number xmlns='urn:m' xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:nil='true'/>",
        "<number>1</number>",
        "<m:number><m:part/></m:number>",
        "<m:text>a &lt;b&gt; &#x26; <![CDATA[<c/>]]>\r\n\td</m:text>",
        "<m:text/>",
        "<q:text xmlns:q='urn:m'>q</q:text>",
        "<m:text xmlns:m='urn:other'>other</m:text>",
        "<m:part><m:part><m:text>deep</m:text></m:part></m:part>",
        "<m:part xmlns:m='urn:other'><p:text xmlns:p='urn:m'/></m:part>",
        "<m:unknown>1<m:number>2</m:number></m:unknown>",
        "<?pi data?>",
        "<!-- <m:number> -->",
        " \n",
        "text",
        "&amp;",
    ])
}

fn block() -> impl Strategy<Value = String> {
    let content = || prop::collection::vec(content(), 0..6).prop_map(|parts| parts.concat());
    prop_oneof![
        8 => content().prop_map(|it| format!("<m:Do>{it}</m:Do>")),
        1 => content().prop_map(|it| format!("<Do xmlns='urn:m' xmlns:a='urn:a'>{it}</Do>")),
        1 => content().prop_map(|it| format!("<m:Other>{it}</m:Other>")),
        1 => Just("text".to_owned()),
        2 => content().prop_map(|it| fault(&it)),
    ]
}

fn fault(content: &str) -> String {
    let fault = Fault::sender(Name::new("urn:m", "No"), "no").to_element();
    let text = fault.with_namespace("s", NAMESPACE).to_text();
    let detail = format!("<s:Detail><m:Do>{content}</m:Do></s:Detail><s:Detail/></s:Fault>");
    text.replace("</s:Fault>", &detail)
}

fn document() -> impl Strategy<Value = String> {
    let headers = prop::collection::vec(header(), 0..6).prop_map(|parts| parts.concat());
    let mandatory = prop::sample::select(vec!["<a:Action>urn:x/Do</a:Action>", ""]);
    let envelope = prop::sample::select(vec![
        NAMESPACE,
        NAMESPACE,
        NAMESPACE,
        NAMESPACE,
        "http://schemas.xmlsoap.org/soap/envelope/",
        "urn:next",
    ]);
    let extra = prop::sample::select(vec!["", "", "", "<s:Header/>", "<s:Body/>", "<m:x/>", "t"]);
    let blocks = prop::collection::vec(block(), 0..3).prop_map(|parts| parts.concat());
    (envelope, mandatory, headers, extra, blocks).prop_map(|(envelope, action, headers, extra, blocks)| {
        format!(
            "<?xml version='1.0'?><s:Envelope xmlns:s='{envelope}' xmlns:a='{WSA}' xmlns:o='{WSA_2004}' \
             xmlns:m='urn:m'><s:Header>{action}{headers}</s:Header>{extra}<s:Body xmlns:b='urn:b'>{blocks}\
             </s:Body></s:Envelope>"
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn messages_are_the_same_with_and_without_a_tree(document in document()) {
        same(&document, Limits::default());
    }

    #[test]
    fn damaged_messages_have_the_same_errors(
        document in document(),
        at in any::<prop::sample::Index>(),
        length in 0..40_usize,
        inserted in prop::sample::select(vec![
            "", "<", ">", "&", "&x;", "</s:Body>", "<m:Do>", "]]>", "\u{1}", "xmlns:m=''", "'", "<!--", "\u{fffe}",
        ]),
    ) {
        let mut characters: Vec<char> = document.chars().collect();
        let start = at.index(characters.len());
        let end = (start + length).min(characters.len());
        characters.splice(start..end, inserted.chars());
        same(&characters.into_iter().collect::<String>(), Limits::default());
    }

    #[test]
    fn limits_are_the_same(
        document in document(),
        bytes in 300..3_000_usize,
        depth in 2..8_usize,
        events in 10..60_usize,
        attributes in 1..5_usize,
        name_bytes in 20..80_usize,
        namespaces in 3..8_usize,
        expanded_bytes in 2_000..16_000_usize,
    ) {
        let limits = Limits { bytes, depth, events, attributes, name_bytes, namespaces, expanded_bytes };
        same(&document, limits);
    }
}

#[test]
fn too_many_blocks_are_refused_in_the_same_order() {
    let many = "<m:x/>".repeat(65);
    let action = "<a:Action>urn:x</a:Action>";
    for (headers, body) in [
        (many.as_str(), Some("")),
        (many.as_str(), Some(&*many)),
        (many.as_str(), None),
        (action, Some(&*many)),
        ("", Some(&*many)),
        ("", None),
        ("", Some("")),
    ] {
        let body = body.map(|body| format!("<s:Body>{body}</s:Body>"));
        let document = format!(
            "<s:Envelope xmlns:s='{NAMESPACE}' xmlns:a='{WSA}' xmlns:m='urn:m'>\
             <s:Header>{headers}</s:Header>{}</s:Envelope>",
            body.unwrap_or_default()
        );
        assert!(lazily(&document, Limits::default()).is_err());
        same(&document, Limits::default());
    }
}

#[test]
fn a_written_message_is_that_of_the_tree() {
    let mut to = EndpointReference::new("urn:uuid:1");
    let parameter = Element::new(Name::new("urn:x", "Id")).with_text("7");
    to.reference_parameters.push(parameter);
    let message = Part {
        number: Some(-7),
        text: vec![String::new(), "<&>\r\u{0}".to_owned()],
        part: Vec::new(),
    };
    for version in [AddressingVersion::V200408, AddressingVersion::V200508] {
        // Headers that are texts alone, and others.
        let plain = Envelope::new(Addressing {
            to: Some("urn:to?<&>\"\r\u{0}".into()),
            message_id: Some("urn:uuid:2".into()),
            relates_to: Some("".into()),
            ..Addressing::new(version, "urn:x/Do")
        });
        let mut referring = plain.clone();
        referring.addressing.reply_to = Some(to.clone());
        let further = plain
            .clone()
            .with_header(Element::new(Name::new("urn:x", "H")));
        for head in [plain, referring, further] {
            let body = Body::of(&namespace(), "Do", &message);
            let tree = body.clone().into_element().unwrap();
            let written = LazyEnvelope {
                head: head.clone(),
                body: vec![body],
            };
            let (lazily, by_tree) = (written.to_text(), head.with_body(tree).to_text());
            assert_eq!(lazily, by_tree);
        }
    }
}

/// Each element of a detail has a copy of the declarations in scope.
#[test]
fn the_detail_of_a_fault_is_limited() {
    let many = format!("<m:Do/>{}", "<m:x/>".repeat(1_000));
    let fault = fault("").replace("<m:Do></m:Do>", &many);
    let document = format!(
        "<s:Envelope xmlns:s='{NAMESPACE}' xmlns:a='{WSA}' xmlns:m='urn:m'><s:Header>\
         <a:Action>urn:x</a:Action></s:Header><s:Body>{fault}</s:Body></s:Envelope>"
    );
    same(&document, Limits::default());
    let read = lazily(&document, Limits::default()).unwrap();
    assert_eq!(read.fault().unwrap().detail.len(), 64);
}
