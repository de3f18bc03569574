//! Documents that are not well-formed are refused with their reason, and unusual but well-formed
//! ones are read.
//!
//! There is one small document for each production or constraint.

use chappe_xml::{Element, Limits, Name, Reason};

fn reason(document: &str) -> Option<Reason> {
    Element::parse(document.as_bytes())
        .err()
        .map(|error| error.reason)
}

#[test]
fn malformed_documents_are_refused() {
    for document in [
        "<a>]]></a>",
        "<a b='<'/>",
        "<a b='1'c='2'/>",
        "<a b=1/>",
        "<a b/>",
        "<a b='1' b='2'/>",
        "<a xmlns:p='urn:x' xmlns:q='urn:x' p:b='1' q:b='2'/>",
        "<a xmlns='urn:x' xmlns='urn:y'/>",
        "<a xmlns:p='urn:x' xmlns:p='urn:x'/>",
        "<a xmlns:xml='urn:x'/>",
        "<a xmlns:p='http://www.w3.org/XML/1998/namespace'/>",
        "<a xmlns='http://www.w3.org/XML/1998/namespace'/>",
        "<a xmlns:xmlns='urn:x'/>",
        "<a xmlns:p='http://www.w3.org/2000/xmlns/'/>",
        "<a xmlns:p=''/>",
        "<xmlns:a/>",
        "<a:b:c xmlns:a='urn:x'/>",
        "<:a/>",
        "<a:/>",
        "<1a/>",
        "<a></b>",
        "<a/><b/>",
        "<a/>text",
        "text<a/>",
        "<a/>\u{a0}",
        "<a/><![CDATA[ ]]>",
        "<a/>&#32;",
        "<a>& </a>",
        "<a>&;</a>",
        "<a>&#0;</a>",
        "<a>&#+65;</a>",
        "<a>&#xD800;</a>",
        "<a b='&#x1;'/>",
        "<a>\u{1}</a>",
        "<a>\u{fffe}</a>",
        "<a><!-- -- --></a>",
        "<a><?xml version='1.0'?></a>",
        "<a><?XML ?></a>",
        "<a><? ?></a>",
        " <?xml version='1.0'?><a/>",
        "<?xml version='1.1'?><a/>",
        "<?xml encoding='utf-8'?><a/>",
        "<?xml version='1.0' standalone='maybe'?><a/>",
        "<?xml version='1.0' standalone='yes' encoding='utf-8'?><a/>",
        "\u{feff}\u{feff}<a/>",
        "<a><!ELEMENT b></a>",
    ] {
        let reason = reason(document);
        assert!(
            matches!(reason, Some(Reason::Malformed(_))),
            "{document}: {reason:?}"
        );
    }
}

#[test]
fn other_reasons_are_distinguished() {
    let unbound = |prefix: &str| Some(Reason::UnboundPrefix(prefix.to_owned()));
    let entity = |name: &str| Some(Reason::Entity(name.to_owned()));
    for (document, wanted) in [
        ("<p:a/>", unbound("p")),
        ("<a p:b='1'/>", unbound("p")),
        ("<a><b xmlns:p='urn:x'/><p:c/></a>", unbound("p")),
        ("<a>&nbsp;</a>", entity("nbsp")),
        ("<a b='&nbsp;'/>", entity("nbsp")),
        ("<!DOCTYPE a><a/>", Some(Reason::DocumentType)),
        (
            "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
            Some(Reason::DocumentType),
        ),
        (
            "<?xml version='1.0' encoding='utf-16'?><a/>",
            Some(Reason::Encoding),
        ),
        ("", Some(Reason::Truncated)),
        ("  ", Some(Reason::Truncated)),
        ("<a>", Some(Reason::Truncated)),
        ("<a><b/>", Some(Reason::Truncated)),
        ("<a", Some(Reason::Truncated)),
        ("<a><!-- ", Some(Reason::Truncated)),
        ("<a><![CDATA[ ", Some(Reason::Truncated)),
    ] {
        assert_eq!(reason(document), wanted, "{document}");
    }
    let error = Element::parse(b"<a>\xff</a>").expect_err("not UTF-8");
    assert_eq!((error.offset, error.reason), (3, Reason::Encoding));
}

#[test]
fn unusual_well_formed_documents_are_read() {
    let parse = |document: &str| Element::parse(document.as_bytes()).expect(document);
    assert_eq!(parse("\u{feff}<?xml version='1.0' encoding='UTF-8' standalone='no' ?>\r\n<a/>\n<!-- x --><?y z?>").name, Name::local("a"));
    assert_eq!(parse("<a >b</a >").text(), "b");
    assert_eq!(
        parse("<a>x<!-- - -->y<![CDATA[<&]]]]><![CDATA[>]]>&gt;</a>").text(),
        "xy<&]]>>"
    );
    assert_eq!(parse("<a>1\r\n2\r3&#13;\n</a>").text(), "1\n2\n3\r\n");
    let attribute = parse("<a b='1\t2\r\n3&#10;4&#13;&amp;&apos;\"'/>");
    assert_eq!(
        attribute.attribute(&Name::local("b")),
        Some("1 2 3\n4\r&'\"")
    );
    assert_eq!(parse("<a b = '1'  c\n=\n\"2\" />").attributes.len(), 2);
    let unbinding = parse("<a xmlns='urn:x'><b xmlns=''/></a>");
    assert!(unbinding.name.is("urn:x", "a"));
    assert_eq!(
        unbinding.elements().next().map(|b| b.name.clone()),
        Some(Name::local("b"))
    );
    let shadowing = parse("<p:a xmlns:p='urn:x'><p:b xmlns:p='urn:y'/><p:c/></p:a>");
    let names: Vec<_> = shadowing
        .elements()
        .map(|child| child.name.to_string())
        .collect();
    assert_eq!(names, ["{urn:y}b", "{urn:x}c"]);
    let escaped = parse("<p:a xmlns:p='urn:&#120;&amp;'/>");
    assert!(
        escaped.name.is("urn:x&", "a"),
        "a namespace name is the normalised value"
    );
    let lang = parse("<a xml:lang='en' xmlns:xml='http://www.w3.org/XML/1998/namespace'/>");
    let name = Name::new("http://www.w3.org/XML/1998/namespace", "lang");
    assert_eq!(lang.attribute(&name), Some("en"));
    assert!(parse("<a b='1' xmlns:p='urn:x' p:b='2'/>").attributes.len() == 2);
    assert!(
        parse("<a xmlns='urn:x' xmlns:p='urn:x' b='1' p:b='2'/>")
            .attributes
            .len()
            == 2
    );
}

#[test]
fn exceeded_limits_are_named() {
    let mut limits = Limits {
        bytes: 100,
        depth: 3,
        events: 10,
        attributes: 4,
        name_bytes: 8,
        namespaces: 3,
        expanded_bytes: 2_500,
    };
    let limit = |document: &str, limits| match Element::parse_within(document.as_bytes(), limits) {
        Err(chappe_xml::Error {
            reason: Reason::Limit { limit, .. },
            ..
        }) => limit,
        other => panic!("{document}: {other:?}"),
    };
    assert_eq!(
        limit(&format!("<a>{}</a>", " ".repeat(100)), limits),
        "bytes"
    );
    assert_eq!(limit("<a><a><a><a/></a></a></a>", limits), "depth");
    assert_eq!(
        limit("<a><b/><b/><b/><b/><b/><b/><b/><b/><b/><b/></a>", limits),
        "events"
    );
    assert_eq!(limit("<a b='' c='' d='' e='' f=''/>", limits), "attributes");
    assert_eq!(limit("<abcdefghi/>", limits), "name_bytes");
    assert_eq!(limit("<a xmlns:abcdefghi='urn:x'/>", limits), "name_bytes");
    assert_eq!(limit("<a xmlns:b='u:long:long'/>", limits), "name_bytes");
    assert_eq!(
        limit(
            "<a xmlns='u' xmlns:b='u'><a xmlns:c='u' xmlns:d='u'/></a>",
            limits
        ),
        "namespaces"
    );
    limits.expanded_bytes = 1_000;
    assert_eq!(
        limit("<a><b/><b/><b/><b/><b/></a>", limits),
        "expanded_bytes"
    );
}

#[test]
fn errors_repeat() {
    use chappe_xml::EventSource as _;
    let mut reader = chappe_xml::text::Reader::new(b"<a></b></a></a></a>", Limits::default())
        .expect("plain text");
    let first = loop {
        match reader.next_event() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("accepted"),
            Err(error) => break error,
        }
    };
    for _ in 0..5 {
        assert_eq!(reader.next_event(), Err(first.clone()));
    }
}

/// Text is searched in blocks, and tags that repeat are not split again.
#[test]
fn texts_of_each_length_are_read_whole() {
    for length in 0..100 {
        let before = "x".repeat(length);
        for (written, read) in [
            ("", ""),
            ("&amp;", "&"),
            ("\r\n]] >", "\n]] >"),
            ("\u{e9}", "\u{e9}"),
        ] {
            let after = "y".repeat(40);
            let document = format!("<a><b>{before}{written}{after}</b><b>1</b><b/><b ></b ></a>");
            let root = Element::parse(document.as_bytes()).expect("a well-formed document");
            let texts: Vec<String> = root.elements().map(|b| b.text().into_owned()).collect();
            let first = format!("{before}{read}{after}");
            assert_eq!(texts, [first.as_str(), "1", "", ""]);
            let ends_a_section = document.replace('y', "]]>");
            assert!(reason(&ends_a_section).is_some());
        }
    }
}
