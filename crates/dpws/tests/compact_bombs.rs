//! Goal: a compact message of a few kilobytes is not a large tree: EXI names a namespace, a name or a
//! value that it had before in a few bits.
//!
//! Method: messages whose data repeats one long text are decoded under a counting allocator.

use chappe_dpws::eventing::{Compact, CompactCodec};
use chappe_xml::{Element, Name};

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;

/// A tree of 1 MiB as the limits of a datagram have it, twice for vectors that grow, and the codec's
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
fn what_repeats_a_long_text_is_refused() {
    let long = "x".repeat(50_000);
    let namespace = Element::new(Name::owned(long.clone(), "a"));
    let name = Element::new(Name::owned("", long.clone()));
    let value = Element::new(Name::local("a")).with_text(long.clone());
    let attribute = Element::new(Name::local("a")).with_attribute(Name::local("b"), long);
    for child in [namespace, name, value, attribute] {
        let bytes = CompactCodec::default()
            .encode(&message(&child, 2_000))
            .expect("it is small");
        assert!(bytes.len() < 60_000, "{} bytes", bytes.len());
        let (held, decoded) = bounds::peak_bytes(|| CompactCodec::default().decode(&bytes));
        assert!(held < BYTES_MAX, "{held} bytes for {}", bytes.len());
        let error = decoded.expect_err("it is refused").to_string();
        assert!(error.contains("expanded_bytes"), "{error}");
    }
}

#[test]
fn names_of_one_message_share_their_namespace() {
    let long = "urn:".to_owned() + &"x".repeat(900);
    let sent = message(&Element::new(Name::owned(long, "a")), 800);
    let mut codec = CompactCodec::default();
    let bytes = codec.encode(&sent).expect("it is small");
    let _ = codec.decode(&bytes);
    let (held, decoded) = bounds::peak_bytes(|| codec.decode(&bytes));
    assert_eq!(decoded.expect("within the limits").data, sent.data);
    // 120 bytes for an element, as many again while the vector grows, and half as many for its name.
    assert!(held < 800 * 400, "{held} bytes");
}
