//! Every tree round-trips through text, and no input causes a panic.
//!
//! Random trees with unusual names, prefixes, default namespaces and characters are written and
//! read; random bytes and mutated documents are read.

use chappe_xml::{Element, EventSource as _, Limits, Name, Node, Reason, text};
use proptest::prelude::*;

const NAMESPACES: [&str; 5] = [
    "",
    "urn:a",
    "urn:b&<\"'>",
    "http://example.org/c",
    "urn:d\te",
];
const PREFIXES: [&str; 5] = ["", "a", "b", "ns1", "ns2"];

fn local() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        "[a-z_][a-z0-9.-]{0,5}",
        Just("\u{e9}t\u{e9}".to_owned())
    ]
    .prop_filter("reserved", |name| name != "xmlns")
}

fn name() -> impl Strategy<Value = Name> {
    (prop::sample::select(&NAMESPACES[..]), local())
        .prop_map(|(namespace, local)| Name::owned(namespace, local))
}

fn characters() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\t\n\r]{1,12}",
        Just("]]>".to_owned()),
        Just("<![CDATA[&amp;".to_owned()),
        "[\u{80}-\u{fffd}]{1,4}",
        Just("\u{1f600}".to_owned()),
    ]
}

fn tree() -> impl Strategy<Value = Element> {
    let declarations = prop::collection::btree_map(
        prop::sample::select(&PREFIXES[..]),
        prop::sample::select(&NAMESPACES[..]),
        0..3,
    );
    let attributes = prop::collection::btree_map(name(), characters(), 0..4);
    let head = (name(), declarations, attributes);
    let leaf = (head, prop::option::of(characters()))
        .prop_map(|((name, declared, attributes), text)| {
            let mut element = Element::new(name);
            for (prefix, namespace) in declared {
                // A prefix cannot be unbound, and a default cannot contradict the element's own name.
                let contradicts = prefix.is_empty() && element.name.namespace.is_empty();
                if !namespace.is_empty() && !contradicts
                    || prefix.is_empty() && namespace.is_empty()
                {
                    element = element.with_namespace(prefix, namespace);
                }
            }
            element.attributes = attributes
                .into_iter()
                .map(|(name, value)| (name, value.into()))
                .collect();
            text.into_iter().fold(element, Element::with_text)
        })
        .boxed();
    leaf.clone().prop_recursive(5, 40, 4, move |inner| {
        let child = prop_oneof![
            inner.prop_map(Node::Element),
            characters().prop_map(|text| Node::Text(text.into())),
        ];
        (leaf.clone(), prop::collection::vec(child, 0..4)).prop_map(|(mut element, children)| {
            element.children.extend(children);
            element
        })
    })
}

/// The tree as the reader returns it: adjacent texts are merged, generated declarations are
/// omitted.
fn canonical(element: &Element) -> Element {
    let mut out = Element::new(element.name.clone());
    out.attributes.clone_from(&element.attributes);
    for child in &element.children {
        match (child, out.children.last_mut()) {
            (Node::Text(text), Some(Node::Text(before))) => before.to_mut().push_str(text),
            (Node::Text(text), _) => out.children.push(Node::Text(text.clone())),
            (Node::Element(child), _) => out.children.push(Node::Element(canonical(child))),
        }
    }
    out
}

/// Returns true if every sent declaration is present, in order, before the generated ones.
fn declarations_kept(sent: &Element, read: &Element) -> bool {
    let kept = read.namespaces.get(..sent.namespaces.len()) == Some(&sent.namespaces[..]);
    kept && sent
        .elements()
        .zip(read.elements())
        .all(|(sent, read)| declarations_kept(sent, read))
}

fn read_all(document: &[u8], limits: Limits) -> Result<usize, chappe_xml::Error> {
    let mut reader = text::Reader::new(document, limits)?;
    let mut events = 0;
    while reader.next_event()?.is_some() {
        events += 1;
    }
    Ok(events)
}

proptest! {
    #[test]
    fn trees_round_trip(tree in tree()) {
        let mut writer = text::Writer::default();
        tree.write(&mut writer).expect("the tree is a document");
        let text = writer.finish().expect("a whole document");
        prop_assert_eq!(&text, &tree.to_text());
        let read = Element::parse(text.as_bytes()).map_err(|error| {
            TestCaseError::fail(format!("{error}: {text}"))
        })?;
        prop_assert_eq!(canonical(&read), canonical(&tree), "{}", text);
        prop_assert!(declarations_kept(&tree, &read), "{}", text);
    }

    #[test]
    fn invalid_trees_are_written_as_documents(
        names in prop::collection::vec((".{0,6}", ".{0,6}", ".{0,6}", ".{0,6}"), 1..6),
    ) {
        let tree = names.into_iter().fold(Element::new(Name::local("a")), |inner, (a, b, c, d)| {
            Element::new(Name::owned(a.clone(), b.clone()))
                .with_namespace(c.clone(), d.clone())
                .with_attribute(Name::owned(c, d.clone()), b)
                .with_attribute(Name::owned("", d.clone()), a)
                .with_text(d)
                .with_child(inner)
        });
        let text = tree.to_text();
        prop_assert!(Element::parse(text.as_bytes()).is_ok(), "{}", text);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_all(&bytes, Limits::datagram());
    }

    #[test]
    fn accepted_mutations_round_trip(tree in tree(), at in any::<prop::sample::Index>(), with in "[<>&;/!?=\"' a-z:\\[\\]-]{0,6}") {
        let mut text = tree.to_text();
        let mut cut = at.index(text.len() + 1);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        text.insert_str(cut, &with);
        if let Ok(read) = Element::parse(text.as_bytes()) {
            // An accepted document is written with the same meaning.
            let again = Element::parse(read.to_text().as_bytes()).expect("what was written");
            prop_assert_eq!(canonical(&again), canonical(&read));
        }
    }

    #[test]
    fn every_prefix_of_a_document_is_truncated_or_malformed(tree in tree(), at in any::<prop::sample::Index>()) {
        let text = tree.to_text();
        let mut cut = at.index(text.len());
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        prop_assert!(Element::parse(&text.as_bytes()[..cut]).is_err());
    }

    #[test]
    fn limits_are_named(depth in 1_usize..40, attributes in 1_usize..40) {
        let nested = format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        let many: String = (0..attributes).map(|n| format!(" a{n}='1'")).collect();
        let wide = format!("<a{many}/>");
        let limits = Limits { depth: 20, attributes: 20, ..Limits::default() };
        for (document, size, limit) in [(nested, depth, "depth"), (wide, attributes, "attributes")] {
            let reason = read_all(document.as_bytes(), limits).err().map(|error| error.reason);
            let wanted = (size > 20).then_some(Reason::Limit { limit, bound: 20 });
            prop_assert_eq!(reason, wanted);
        }
    }
}
