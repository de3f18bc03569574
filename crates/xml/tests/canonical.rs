//! Goal: canonical forms are those of the recommendation, and of other implementations.
//!
//! Method: forms that libxml2 2.14 writes, except those with `#default`, which follow from RFC 3741
//! section 3; then properties of random documents: a form is its own form, and what the form leaves
//! out (order of attributes, quotes, white space in tags, unused declarations, comments, CDATA
//! sections) does not change it.

use chappe_xml::canonical::{Exclusive, FORM_BYTES_MAX, Fragment, Scanner, Step, canonicalize};
use chappe_xml::{Element, Limits, Reason};
use proptest::prelude::*;

/// Document, indices of children from the root to the element, prefix list, form.
#[rustfmt::skip]
const FORMS: &[(&str, &[usize], &str, &str)] = &[
    ("<a/>", &[], "", "<a></a>"),
    ("<x:a xmlns:x='urn:x' xmlns:unused='urn:u'><x:b/><c/></x:a>", &[], "", "<x:a xmlns:x=\"urn:x\"><x:b></x:b><c></c></x:a>"),
    ("<x:a xmlns:x='urn:x' xmlns:y='urn:y'><x:b><y:c/><y:d/></x:b></x:a>", &[0], "", "<x:b xmlns:x=\"urn:x\"><y:c xmlns:y=\"urn:y\"></y:c><y:d xmlns:y=\"urn:y\"></y:d></x:b>"),
    ("<a xmlns='urn:a'><b xmlns=''><c xmlns='urn:a'/><d/></b></a>", &[], "", "<a xmlns=\"urn:a\"><b xmlns=\"\"><c xmlns=\"urn:a\"></c><d></d></b></a>"),
    ("<a xmlns='urn:a'><b xmlns=''><c/></b></a>", &[0], "", "<b><c></c></b>"),
    ("<a xmlns='urn:a' xmlns:p='urn:p'><p:b><c xmlns=''/></p:b></a>", &[], "", "<a xmlns=\"urn:a\"><p:b xmlns:p=\"urn:p\"><c xmlns=\"\"></c></p:b></a>"),
    ("<a xmlns:p='urn:p'><b><c p:q='1'/></b></a>", &[0], "", "<b><c xmlns:p=\"urn:p\" p:q=\"1\"></c></b>"),
    ("<a xmlns:p='urn:1'><p:b xmlns:p='urn:2'><p:c xmlns:p='urn:1'><p:d xmlns:p='urn:2'/></p:c></p:b></a>", &[], "", "<a><p:b xmlns:p=\"urn:2\"><p:c xmlns:p=\"urn:1\"><p:d xmlns:p=\"urn:2\"></p:d></p:c></p:b></a>"),
    ("<a xmlns:p='urn:p' xmlns:q='urn:q'><b>p:name</b></a>", &[0], "p", "<b xmlns:p=\"urn:p\">p:name</b>"),
    ("<a xmlns:p='urn:p' xmlns:q='urn:q'><b><c>p:name</c></b></a>", &[0], "p q", "<b xmlns:p=\"urn:p\" xmlns:q=\"urn:q\"><c>p:name</c></b>"),
    ("<a xmlns='urn:d' xmlns:p='urn:p'><p:b><p:c xmlns='urn:e'/></p:b></a>", &[0], "#default", "<p:b xmlns=\"urn:d\" xmlns:p=\"urn:p\"><p:c xmlns=\"urn:e\"></p:c></p:b>"),
    ("<a xmlns='urn:d' xmlns:p='urn:p'><p:b><p:c xmlns=''/></p:b></a>", &[0], "#default p", "<p:b xmlns=\"urn:d\" xmlns:p=\"urn:p\"><p:c xmlns=\"\"></p:c></p:b>"),
    ("<a xmlns:p='urn:p'><b xmlns:p='urn:r'><c xmlns:p='urn:r'><d xmlns:p='urn:p'/></c></b></a>", &[0], "p", "<b xmlns:p=\"urn:r\"><c><d xmlns:p=\"urn:p\"></d></c></b>"),
    ("<a z='3' y='2' xmlns:b='urn:a' xmlns:a='urn:b' b:m='1' a:l='0' xml:lang='de'/>", &[], "", "<a xmlns:a=\"urn:b\" xmlns:b=\"urn:a\" y=\"2\" z=\"3\" xml:lang=\"de\" b:m=\"1\" a:l=\"0\"></a>"),
    ("<a xml:space='preserve' xml:lang='fr'><b/></a>", &[0], "", "<b></b>"),
    ("<a b=' x\ty\n &#9;&#10;&#13;&lt;&gt;&amp;&quot;&apos;'>&#13;&lt;&gt;&amp;&quot;&apos;\t\n</a>", &[], "", "<a b=\" x y  &#x9;&#xA;&#xD;&lt;>&amp;&quot;'\">&#xD;&lt;&gt;&amp;\"'\t\n</a>"),
    ("<a>one\r\ntwo\rthree<![CDATA[<four>&]]></a>", &[], "", "<a>one\ntwo\nthree&lt;four&gt;&amp;</a>"),
    ("<?p before?><a><?p  data more ?><?q?></a><?p after?>", &[], "", "<a><?p data more ?><?q?></a>"),
    ("<a\n  b = '1'\n  c=\"2\"\n></a\n>", &[], "", "<a b=\"1\" c=\"2\"></a>"),
    ("<e\u{301} \u{e4}='\u{1f600}'>\u{20ac}</e\u{301}>", &[], "", "<e\u{301} \u{e4}=\"\u{1f600}\">\u{20ac}</e\u{301}>"),
    ("<a xmlns:xml='http://www.w3.org/XML/1998/namespace'><b xml:id='i'/></a>", &[0], "xml", "<b xml:id=\"i\"></b>"),
    ("<a xmlns:b='urn:b'><b:c b:d='1' xmlns:e='urn:b' e:f='2'/></a>", &[], "", "<a><b:c xmlns:b=\"urn:b\" xmlns:e=\"urn:b\" b:d=\"1\" e:f=\"2\"></b:c></a>"),
];

fn form(document: &str, prefixes: &str) -> String {
    let exclusive = Exclusive::default().with_prefix_list(prefixes).unwrap();
    let mut form = Vec::new();
    let sink = |bytes: &[u8]| form.extend_from_slice(bytes);
    canonicalize(document.as_bytes(), &exclusive, Limits::default(), sink).unwrap();
    String::from_utf8(form).unwrap()
}

/// The element at `path`.
fn cut<'d>(document: &'d str, path: &[usize]) -> Fragment<'d> {
    let mut scanner = Scanner::new(document.as_bytes(), Limits::default()).unwrap();
    // The number of children seen at each depth; the indices of the open elements.
    let mut children = vec![0];
    let mut open = Vec::new();
    let mut start = None;
    while let Some(step) = scanner.next_step().unwrap() {
        match step {
            Step::Start { .. } => {
                let index = children.last_mut().unwrap();
                open.push(*index);
                *index += 1;
                children.push(0);
                if open[1..] == *path {
                    start = Some(scanner.fragment_start());
                }
            }
            Step::End => {
                if open[1..] == *path {
                    return scanner.fragment(start.unwrap()).unwrap();
                }
                open.pop();
                children.pop();
            }
        }
    }
    panic!("no element {path:?}")
}

#[test]
fn forms_are_those_of_libxml2() {
    for (document, path, prefixes, expected) in FORMS {
        let exclusive = Exclusive::default().with_prefix_list(prefixes).unwrap();
        let fragment = cut(document, path);
        let found = fragment.canonical(&exclusive).unwrap();
        assert_eq!(
            std::str::from_utf8(&found).unwrap(),
            *expected,
            "{document}"
        );
        if path.is_empty() {
            assert_eq!(form(document, prefixes), *expected, "{document}");
        }
        // The form is its own form, and its tree the one that was signed.
        assert_eq!(form(expected, prefixes), *expected, "{document}");
        let (element, _) = fragment.read(&exclusive).unwrap();
        assert_eq!(element, Element::parse(expected.as_bytes()).unwrap());
    }
}

#[test]
fn a_byte_order_mark_moves_no_fragment() {
    let document = "\u{feff}<a xmlns='urn:a'>\u{20ac}<b c='1'/>\n</a>";
    let found = cut(document, &[0]).canonical(&Exclusive::default());
    assert_eq!(found.unwrap(), br#"<b xmlns="urn:a" c="1"></b>"#);
    assert_eq!(cut(document, &[0]).bytes(), b"<b c='1'/>");
}

#[test]
fn a_fragment_ends_with_its_element() {
    let mut scanner = Scanner::new(b"<a><b/></a>", Limits::default()).unwrap();
    scanner.next_step().unwrap();
    let root = scanner.fragment_start();
    scanner.next_step().unwrap();
    assert!(scanner.fragment(root.clone()).is_err());
    scanner.next_step().unwrap();
    assert!(scanner.fragment(root.clone()).is_err());
    scanner.next_step().unwrap();
    assert_eq!(scanner.fragment(root).unwrap().bytes(), b"<a><b/></a>");
}

/// A namespace that each of many elements repeats, of 1,000 bytes in a tag of 8.
#[test]
fn a_form_of_a_hostile_document_is_bounded() {
    let namespace = "u".repeat(1_000);
    let elements = "<p:b/>".repeat(100_000);
    let document = format!("<a xmlns:p='{namespace}'>{elements}</a>");
    let mut bytes = 0;
    let result = canonicalize(
        document.as_bytes(),
        &Exclusive::default(),
        Limits::default(),
        |piece| bytes += piece.len(),
    );
    let reason = result.unwrap_err().reason;
    assert!(matches!(reason, Reason::Limit { .. }), "{reason}");
    assert!(bytes <= FORM_BYTES_MAX);
    let small = Exclusive::default().with_bytes_max(10);
    let result = canonicalize(b"<abcd/>", &small, Limits::default(), |_| {});
    assert!(result.is_err(), "13 bytes");
}

#[test]
fn a_prefix_list_is_bounded() {
    let list: Vec<String> = (0..65).map(|index| format!("p{index}")).collect();
    assert!(
        Exclusive::default()
            .with_prefix_list(&list[..64].join(" "))
            .is_ok()
    );
    assert!(
        Exclusive::default()
            .with_prefix_list(&list.join("\n"))
            .is_err()
    );
}

/// An element of a random document.
#[derive(Debug, Clone)]
struct Model {
    prefix: usize,
    declared: Vec<(usize, usize)>,
    attributes: Vec<(usize, u8, String)>,
    content: Vec<Content>,
}

#[derive(Debug, Clone)]
enum Content {
    Element(Model),
    Text(String),
    Comment,
    Instruction,
}

/// The empty prefix, and three more.
const PREFIXES: [&str; 4] = ["", "p", "q", "r"];
const NAMESPACES: [&str; 4] = ["urn:1", "urn:2", "urn:3", ""];

fn text() -> impl Strategy<Value = String> {
    "[ab<>&\"' \t\n\r\u{e9}]{0,6}"
}

fn model() -> impl Strategy<Value = Model> {
    let attributes = prop::collection::vec((0..4_usize, 0..4_u8, text()), 0..4);
    let declared = prop::collection::vec((0..4_usize, 0..4_usize), 0..3);
    let leaf = (0..4_usize, declared, attributes)
        .prop_map(|(prefix, declared, attributes)| Model {
            prefix,
            declared,
            attributes,
            content: Vec::new(),
        })
        .boxed();
    leaf.clone().prop_recursive(4, 24, 4, move |inner| {
        let content = prop_oneof![
            3 => inner.prop_map(Content::Element),
            2 => text().prop_map(Content::Text),
            1 => Just(Content::Comment),
            1 => Just(Content::Instruction),
        ];
        (leaf.clone(), prop::collection::vec(content, 0..4)).prop_map(|(mut model, content)| {
            model.content = content;
            model
        })
    })
}

/// How a document is written: what the canonical form must not show.
#[derive(Debug, Clone, Copy)]
struct Manner {
    quote: char,
    space: &'static str,
    is_reversed: bool,
    has_cdata: bool,
    line_end: &'static str,
}

const PLAIN: Manner = Manner {
    quote: '"',
    space: " ",
    is_reversed: false,
    has_cdata: false,
    line_end: "\n",
};
const OTHER: Manner = Manner {
    quote: '\'',
    space: "\r\n\t ",
    is_reversed: true,
    has_cdata: true,
    line_end: "\r\n",
};

fn escaped(text: &str, manner: Manner) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' | '&' | '"' | '\'' | '\t' | '\r' => out += &format!("&#{};", c as u32),
            '>' if manner.has_cdata => out += "&gt;",
            '>' => out += "&#x3e;",
            other => out.push(other),
        }
    }
    out
}

fn write(out: &mut String, model: &Model, manner: Manner, depth: usize) {
    let prefix = PREFIXES[model.prefix];
    let name = match prefix {
        "" => "e".to_owned(),
        prefix => format!("{prefix}:e"),
    };
    let mut parts: Vec<String> = Vec::new();
    let quoted = |name: &str, value: &str| {
        let q = manner.quote;
        format!(
            "{name}={q}{}{q}",
            escaped(value, manner).replace('\n', "&#10;")
        )
    };
    let mut declared: Vec<(usize, usize)> = model.declared.clone();
    if depth == 0 {
        declared.extend([(1, 0), (2, 1), (3, 2)]);
    }
    let mut seen = Vec::new();
    for (prefix, namespace) in declared {
        let is_valid = prefix == 0 || namespace != 3;
        if is_valid && !seen.contains(&prefix) {
            seen.push(prefix);
            let name = match PREFIXES[prefix] {
                "" => "xmlns".to_owned(),
                prefix => format!("xmlns:{prefix}"),
            };
            parts.push(quoted(&name, NAMESPACES[namespace]));
        }
    }
    let mut seen = Vec::new();
    for (prefix, local, value) in &model.attributes {
        // Two prefixes may have one namespace, so that no local name occurs twice.
        if !seen.contains(local) {
            seen.push(*local);
            let local = format!("a{local}");
            let name = match PREFIXES[*prefix] {
                "" => local,
                prefix => format!("{prefix}:{local}"),
            };
            parts.push(quoted(&name, value));
        }
    }
    if manner.is_reversed {
        parts.reverse();
    }
    *out += &format!("<{name}");
    for part in parts {
        *out += manner.space;
        *out += &part;
    }
    *out += manner.space.trim_start_matches(' ');
    *out += ">";
    for content in &model.content {
        match content {
            Content::Element(inner) => write(out, inner, manner, depth + 1),
            Content::Text(text) if manner.has_cdata && !text.contains('\r') => {
                *out += &format!("<![CDATA[{text}]]><!-- -->");
            }
            Content::Text(text) => {
                *out += &escaped(text, manner).replace('\n', manner.line_end);
            }
            Content::Comment if manner.has_cdata => {}
            Content::Comment => *out += "<!--c-->",
            Content::Instruction => *out += "<?i j?>",
        }
    }
    *out += &format!("</{name}>");
}

fn written(model: &Model, manner: Manner) -> String {
    let mut out = String::new();
    write(&mut out, model, manner, 0);
    out
}

proptest! {
    #[test]
    fn a_form_is_its_own_form_and_shows_no_manner(
        model in model(),
        prefixes in prop::sample::subsequence(vec!["p", "q", "r", "#default"], 0..4),
    ) {
        let prefixes = prefixes.join(" ");
        let plain = written(&model, PLAIN);
        let form_of_plain = form(&plain, &prefixes);
        prop_assert_eq!(&form(&form_of_plain, &prefixes), &form_of_plain);
        prop_assert_eq!(&form(&written(&model, OTHER), &prefixes), &form_of_plain);
    }

    #[test]
    fn an_element_has_the_same_form_wherever_it_is(model in model()) {
        let alone = written(&model, PLAIN);
        let inside = format!("<o xmlns:z='urn:z'><i>\u{20ac}</i> {alone} </o>");
        let form_inside = cut(&inside, &[1]).canonical(&Exclusive::default()).unwrap();
        prop_assert_eq!(String::from_utf8(form_inside).unwrap(), form(&alone, ""));
    }

    #[test]
    fn the_tree_of_the_form_is_the_tree_of_the_document(model in model()) {
        let document = written(&model, PLAIN);
        let without_declarations = |document: &str| {
            let text = Element::parse(document.as_bytes()).unwrap();
            names_and_texts(&text)
        };
        prop_assert_eq!(without_declarations(&form(&document, "")), without_declarations(&document));
    }
}

/// Names, sorted attributes and texts in document order.
fn names_and_texts(element: &Element) -> Vec<String> {
    let mut all = vec![element.name.to_string()];
    let mut attributes: Vec<String> = element
        .attributes
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    attributes.sort();
    all.extend(attributes);
    for child in &element.children {
        match child {
            chappe_xml::Node::Element(inner) => all.extend(names_and_texts(inner)),
            chappe_xml::Node::Text(text) => all.push(text.to_string()),
        }
    }
    all.push("end".to_owned());
    all
}
