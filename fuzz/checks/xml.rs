//! Invariants of the XML reader and writer for any bytes.

use chappe_xml::{Element, EventSource as _, Limits, Reason, text};

use crate::bounds::Bound;

/// A tree of 70 bytes for a byte at most, three times: read, read again and compared.
const BOUND: Bound = Bound::memory(256 << 10, 250);

/// No panic; written documents are equivalent to those read; nothing exceeds a limit.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let limits = Limits::datagram();
    let mut events = 0;
    if let Ok(mut reader) = text::Reader::new(data, limits) {
        while let Ok(Some(_)) = reader.next_event() {
            events += 1;
        }
    }
    assert!(events <= 2 * limits.events, "{events} events");
    let Ok(tree) = Element::parse_within(data, limits) else {
        return;
    };
    let written = tree.to_text();
    match Element::parse_within(written.as_bytes(), limits) {
        Ok(again) => assert_eq!(without_declarations(again), without_declarations(tree)),
        // Generated declarations may exceed what the sender's own form did not.
        Err(error) => assert!(
            matches!(error.reason, Reason::Limit { .. }),
            "{error}: {written}"
        ),
    }
}

fn without_declarations(mut element: Element) -> Element {
    element.namespaces.clear();
    let children = std::mem::take(&mut element.children);
    element.children = children
        .into_iter()
        .map(|child| match child {
            chappe_xml::Node::Element(inner) => {
                chappe_xml::Node::Element(without_declarations(inner))
            }
            text => text,
        })
        .collect();
    element
}
