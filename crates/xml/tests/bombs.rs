//! A small document cannot become a large tree or keep the reader busy.
//!
//! The reader and the writer process adversarial documents; the allocator counts memory.

use std::time::Duration;

use chappe_xml::{Element, EventSource, Limits, Name, Reason, text};

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;

/// Bytes of memory for each byte of a document; the worst known is `<a b=''/>`, with 70.
const BYTES_EACH: usize = 100;

fn limit_of(document: &str) -> Option<&'static str> {
    match Element::parse(document.as_bytes()) {
        Ok(_) => None,
        Err(error) => match error.reason {
            Reason::Limit { limit, .. } => Some(limit),
            other => panic!("{other}"),
        },
    }
}

fn held(document: &str) -> usize {
    let (bytes, _tree) = bounds::peak_bytes(|| Element::parse(document.as_bytes()));
    bytes
}

#[test]
fn a_namespace_is_not_copied_into_each_name() {
    let namespace = format!("urn:{}", "x".repeat(1_000));
    for body in ["<p:a/>".repeat(40_000), "<a p:b=''/>".repeat(20_000)] {
        let document = format!("<r xmlns:p='{namespace}'>{body}</r>");
        let (bytes, most) = (held(&document), BYTES_EACH * document.len());
        assert!(bytes <= most, "{bytes} bytes of tree, bound {most}");
    }
}

#[test]
fn short_documents_give_small_trees() {
    for part in [
        "<a/>",
        "<a b=''/>",
        "<a xmlns='u'/>",
        "<a>b</a>",
        "<a><b/></a>",
        "&lt;",
        "<![CDATA[]]>",
        "<!---->",
        "<a>b<c/></a>",
    ] {
        let document = format!("<r>{}</r>", part.repeat(400_000 / part.len()));
        let (bytes, most) = (held(&document), BYTES_EACH * document.len());
        assert!(bytes <= most, "{part}: {bytes} bytes of tree, bound {most}");
    }
}

#[test]
fn oversized_trees_are_refused_while_reading() {
    let namespace = format!("urn:{}", "x".repeat(1_000));
    let document = format!("<r xmlns='{namespace}'>{}</r>", "<a/>".repeat(100_000));
    assert_eq!(limit_of(&document), Some("expanded_bytes"));
    let limits = Limits::datagram();
    let document = format!("<r xmlns='{namespace}'>{}</r>", "<a/>".repeat(2_000));
    assert!(Element::parse_within(document.as_bytes(), limits).is_err());
}

#[test]
fn long_namespaces_and_many_declarations_are_refused() {
    let long = "x".repeat(1_025);
    assert_eq!(
        limit_of(&format!("<a xmlns='{long}'/>")),
        Some("name_bytes")
    );
    let declared = |from: usize| -> String {
        (from..from + 100)
            .map(|n| format!(" xmlns:p{n}='u'"))
            .collect()
    };
    let nested = |levels: usize| {
        let starts: String = (0..levels)
            .map(|n| format!("<a{}>", declared(100 * n)))
            .collect();
        format!("{starts}{}", "</a>".repeat(levels))
    };
    assert_eq!(limit_of(&nested(2)), None);
    assert_eq!(limit_of(&nested(3)), Some("namespaces"));
    // Declarations that are out of scope do not count.
    let siblings: String = (0..50)
        .map(|n| format!("<a{}/>", declared(100 * n)))
        .collect();
    assert_eq!(limit_of(&format!("<r>{siblings}</r>")), None);
}

#[test]
fn writer_looks_up_namespaces_by_index() {
    // Without an index each of these names was compared with 250 long namespaces, twice over.
    let long = "x".repeat(1_000);
    let outer: String = (0..100)
        .map(|n| format!(" xmlns:p{n}='{long}{n:03}'"))
        .collect();
    let inner: String = (100..250)
        .map(|n| format!(" xmlns:p{n}='{long}{n:03}'"))
        .collect();
    let (first, last) = inner.split_at(inner.len() / 150 * 75);
    let names = "<p0:a p1:b='' p0:b=''/>".repeat(10_000);
    let document = format!("<r{outer}><r{first}><r{last}>{names}</r></r></r>");
    let tree = Element::parse(document.as_bytes()).expect("within the limits");
    let bound = bounds::Bound {
        time: Duration::from_secs(1),
        time_each: Duration::from_micros(2),
        ..bounds::Bound::memory(1 << 20, 10)
    };
    let text = bound.hold(document.len(), || tree.to_text());
    assert_eq!(
        Element::parse(text.as_bytes()).expect("what was written"),
        tree
    );
}

#[test]
fn errors_are_short_for_any_document() {
    let long = "x".repeat(100_000);
    for document in [
        format!("<a></{long}>"),
        format!("<a><?{long}:x ?></a>"),
        format!("<a>&{long};</a>"),
        format!("<a>&#{long};</a>"),
        format!("<{long}/>"),
        format!("<a xmlns:{long}='u'/>"),
    ] {
        let error = Element::parse(document.as_bytes()).expect_err("it is malformed");
        assert!(
            error.to_string().len() < 1_000,
            "{}",
            error.to_string().len()
        );
    }
}

#[test]
fn endless_sources_are_refused() {
    struct Repeating<'t>(&'t str, usize);
    impl EventSource for Repeating<'_> {
        fn next_event(&mut self) -> Result<Option<chappe_xml::Event<'_>>, chappe_xml::Error> {
            self.1 += 1;
            Ok(Some(match self.1 {
                1 => chappe_xml::Event::StartElement(Name::local("a")),
                _ => chappe_xml::Event::Text(chappe_xml::Value::Text(self.0.into())),
            }))
        }
    }
    let long = "x".repeat(1 << 20);
    let mut source = Repeating(&long, 0);
    let error = Element::read(&mut source).expect_err("it never ends");
    assert!(matches!(
        error.reason,
        Reason::Limit {
            limit: "expanded_bytes",
            ..
        }
    ));
}

#[test]
fn expanded_bytes_match_the_limit() {
    let document = "<a xmlns:p='urn:p' b='c'><p:d>e</p:d></a>";
    let tree = Element::parse(document.as_bytes()).expect("it is XML");
    let limits = |expanded_bytes| Limits {
        expanded_bytes,
        ..Limits::default()
    };
    let parse = |bytes| Element::parse_within(document.as_bytes(), limits(bytes));
    assert!(parse(tree.expanded_bytes()).is_ok());
    assert!(parse(tree.expanded_bytes() - 1).is_err());
    let mut reader = text::Reader::new(document.as_bytes(), Limits::default()).expect("plain");
    assert!(reader.next_event().is_ok());
}
