//! Invariants of canonical forms of any bytes.

use chappe_xml::canonical::{Exclusive, Scanner, Step, canonicalize};
use chappe_xml::{Element, Limits, Reason};

use crate::bounds::Bound;

/// Bytes of a form: a small document can have a long one.
const FORM_BYTES_MAX: usize = 65_535;
/// Two forms and two trees at once; a tree takes at most 70 bytes for a byte of its text.
const BOUND: Bound = Bound::memory(12 << 20, 250);

/// No panic; a form is its own form and has the tree of its document; each child of the root can be
/// cut out, and the form of its bytes alone is its form.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn form(document: &[u8], exclusive: &Exclusive) -> Option<Vec<u8>> {
    let mut form = Vec::new();
    let sink = |bytes: &[u8]| form.extend_from_slice(bytes);
    canonicalize(document, exclusive, Limits::datagram(), sink).ok()?;
    Some(form)
}

fn check_unbounded(data: &[u8]) {
    let exclusive = Exclusive::default().with_bytes_max(FORM_BYTES_MAX);
    let inclusive = exclusive.clone().with_prefix_list("a x #default xml");
    let inclusive = inclusive.expect("four prefixes are not too many");
    for exclusive in [&exclusive, &inclusive] {
        let Some(first) = form(data, exclusive) else {
            continue;
        };
        // Only the number of declarations can exceed a limit that the document kept.
        if let Some(second) = form(&first, exclusive) {
            assert_eq!(second, first, "{}", String::from_utf8_lossy(&first));
        }
        let trees = (parse(data), parse(&first));
        if let (Some(of_document), Some(of_form)) = trees {
            assert_eq!(comparable(&of_form), comparable(&of_document));
        }
    }
    let _ = check_children(data, &exclusive);
}

fn parse(document: &[u8]) -> Option<Element> {
    match Element::parse_within(document, Limits::datagram()) {
        Ok(element) => Some(element),
        Err(error) => {
            let is_limit = matches!(error.reason, Reason::Limit { .. });
            assert!(is_limit, "{error}: {}", String::from_utf8_lossy(document));
            None
        }
    }
}

fn check_children(data: &[u8], exclusive: &Exclusive) -> Result<(), chappe_xml::Error> {
    let mut scanner = Scanner::new(data, Limits::datagram())?;
    let mut start = None;
    while let Some(step) = scanner.next_step()? {
        match step {
            Step::Start { .. } if scanner.depth() == 2 => start = Some(scanner.fragment_start()),
            Step::End if scanner.depth() == 1 => {
                let start = start.take().expect("each end has a start");
                let fragment = scanner.fragment(start).expect("this is its end");
                let (element, form) = fragment.read(exclusive)?;
                let alone = Element::parse_within(&form, Limits::default())?;
                assert_eq!(element, alone);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A tree without declarations and empty texts, and with its attributes in one order.
fn comparable(element: &Element) -> Element {
    let mut element = element.clone();
    sort(&mut element);
    element
}

fn sort(element: &mut Element) {
    element.namespaces.clear();
    element.attributes.sort();
    let is_empty = |node: &chappe_xml::Node| *node == chappe_xml::Node::Text("".into());
    element.children.retain(|node| !is_empty(node));
    for child in &mut element.children {
        if let chappe_xml::Node::Element(inner) = child {
            sort(inner);
        }
    }
}
