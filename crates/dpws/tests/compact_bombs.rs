//! Goal: a small compact message cannot expand into a large tree, although EXI encodes a repeated
//! namespace, name or value in a few bits.
//!
//! Method: decodes messages with one long, repeated text under a counting allocator.

use chappe_dpws::eventing::{Compact, CompactCodec};
use chappe_xml::{Element, Name};

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;

/// A tree of 1 MiB (the limit of a datagram), doubled for growing vectors, plus the codec's
/// grammars and buffers.
const BYTES_MAX: usize = 6 << 20;

fn message(child: &Element, count: usize) -> Compact {
    let children = std::iter::repeat_n(child.clone(), count);
    Compact {
        action: "urn:x/Report".into(),
        data: Some(Element::new(Name::new("urn:x", "r")).with_children(children)),
        ..Compact::default()
    }
}

#[test]
fn repeated_long_text_is_rejected() {
    let long = "x".repeat(50_000);
    let namespace = Element::new(Name::owned(long.clone(), "a"));
    let name = Element::new(Name::owned("", long.clone()));
    let value = Element::new(Name::local("a")).with_text(long.clone());
    let attribute = Element::new(Name::local("a")).with_attribute(Name::local("b"), long);
    for child in [namespace, name, value, attribute] {
        let bytes = CompactCodec::default()
            .encode(&message(&child, 2_000))
            .expect("within the limits");
        assert!(bytes.len() < 60_000, "{} bytes", bytes.len());
        let (peak, decoded) = bounds::peak_bytes(|| CompactCodec::default().decode(&bytes));
        assert!(peak < BYTES_MAX, "{peak} bytes for {}", bytes.len());
        let error = decoded.expect_err("it is refused").to_string();
        assert!(error.contains("expanded_bytes"), "{error}");
    }
}

#[test]
fn names_share_one_namespace() {
    let long = "urn:".to_owned() + &"x".repeat(900);
    let sent = message(&Element::new(Name::owned(long, "a")), 800);
    let mut codec = CompactCodec::default();
    let bytes = codec.encode(&sent).expect("within the limits");
    let _ = codec.decode(&bytes);
    let (peak, decoded) = bounds::peak_bytes(|| codec.decode(&bytes));
    assert_eq!(decoded.expect("within the limits").data, sent.data);
    // 120 bytes per element, doubled for the growing vector, and 60 for its name.
    assert!(peak < 800 * 400, "{peak} bytes");
}
