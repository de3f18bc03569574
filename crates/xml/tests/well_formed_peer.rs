//! Goal: documents are split into markup as by quick-xml, a reader that others wrote.
//! Method: documents made of fragments of markup, and damaged ones. A document that is read here has the
//! same tags, text and sections there; one that is not well-formed there is refused here.

use chappe_xml::{Event, EventSource as _, Limits, Value, text};
use proptest::prelude::*;
use quick_xml::events::Event as PeerEvent;

/// The tags with their local names, and the text between them, of a document that is well-formed for
/// quick-xml; line ends and references are not resolved by it, so documents here have none in text.
fn by_peer(document: &str) -> Option<Vec<String>> {
    let mut reader = quick_xml::Reader::from_str(document);
    let config = reader.config_mut();
    config.expand_empty_elements = true;
    config.check_comments = true;
    let mut parts: Vec<String> = Vec::new();
    let mut depth = 0_usize;
    loop {
        match reader.read_event().ok()? {
            PeerEvent::Start(start) => {
                depth += 1;
                parts.push(format!("<{}", local(start.name().0)));
            }
            PeerEvent::End(_) => {
                depth -= 1;
                parts.push(">".into());
            }
            PeerEvent::Text(text) if depth > 0 => push_text(&mut parts, &text),
            PeerEvent::CData(text) => push_text(&mut parts, &text),
            PeerEvent::GeneralRef(name) => match &*name {
                "lt" => push_text(&mut parts, "<"),
                "amp" => push_text(&mut parts, "&"),
                _ => return None,
            },
            PeerEvent::Eof => return (depth == 0).then_some(parts),
            _ => {}
        }
    }
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or_default()
}

fn push_text(parts: &mut Vec<String>, text: &str) {
    match parts.last_mut() {
        Some(last) if last.starts_with('=') => last.push_str(text),
        _ => parts.push(format!("={text}")),
    }
}

fn here(document: &str) -> Option<Vec<String>> {
    let mut reader = text::Reader::new(document.as_bytes(), Limits::default()).ok()?;
    let mut parts: Vec<String> = Vec::new();
    loop {
        match reader.next_event().ok()? {
            Some(Event::StartElement(name)) => parts.push(format!("<{}", name.local)),
            Some(Event::EndElement) => parts.push(">".into()),
            Some(Event::Text(Value::Text(text))) => push_text(&mut parts, &text),
            Some(_) => {}
            None => return Some(parts),
        }
    }
}

fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<a>",
        "</a>",
        "<p:b xmlns:p='urn:x'>",
        "</p:b>",
        "<c d='>' e=\"'\"/>",
        "</a >",
        "<a\n>",
        "text",
        " ",
        "]",
        "]]",
        ">",
        "&lt;",
        "&amp;",
        "&",
        ";",
        "<![CDATA[x]]>",
        "<![CDATA[",
        "]]>",
        "<!-- c -->",
        "<!---->",
        "<!--",
        "-->",
        "--",
        "<?p i?>",
        "<?",
        "?>",
        "<!",
        "<",
        "/>",
        "'",
        "\"",
        "<a b='1'>",
        "<a/",
        "é",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn markup_is_split_as_by_the_peer(
        fragments in prop::collection::vec(fragment(), 0..12),
        wrapped in any::<bool>(),
    ) {
        let content = fragments.concat();
        let document = if wrapped { format!("<a>{content}</a>") } else { content };
        if let Some(here) = here(&document) {
            prop_assert_eq!(Some(here), by_peer(&document), "{}", document);
        }
    }

    #[test]
    fn only_what_the_productions_forbid_is_refused(
        fragments in prop::collection::vec(prop::sample::select(vec![
            "<a>x</a>", "<p:b xmlns:p='urn:x'>&lt;</p:b>", "<c d='>' e=\"'\"/>", "text", "]", ">",
            "<![CDATA[<&>]]>", "<!-- - -->", "<!---->", "<?p i?>", "<a\n></a >", "é",
        ]), 0..12),
    ) {
        let document = format!("<a>{}</a>", fragments.concat());
        // Only brackets can meet to what is not allowed.
        prop_assume!(!document.contains("]]]>") || document.contains("CDATA"));
        let peer = by_peer(&document);
        match here(&document) {
            Some(here) => prop_assert_eq!(Some(here), peer),
            None => prop_assert!(document.contains("]]"), "{}", document),
        }
    }
}
