//! Invariants of derived readers of messages for any bytes.

use std::time::{Duration, SystemTime};

use chappe_soap::message::{ReadError, Samples, from_element, from_text, to_element, to_text};
use chappe_xml::{Element, Limits, Namespace};

use crate::bounds::Bound;

/// The namespace of the messages, which the corpus uses.
const NAMESPACE: &str = "urn:m";

/// A child takes 4 bytes of text and, as one of a vector that doubles, up to 800 bytes; the limit of
/// expanded bytes ends it at 64 MiB.
pub(crate) const BOUND: Bound = Bound::memory(1 << 20, 1_000);

#[derive(chappe_soap::message::Message, Debug, PartialEq)]
enum Mode {
    Off,
    On,
}

#[derive(chappe_soap::message::Message, Debug, PartialEq)]
struct Part {
    a: Option<f64>,
    b: Vec<Part>,
    c: Vec<String>,
    d: Option<Mode>,
    e: Option<Duration>,
    f: Option<SystemTime>,
    g: Vec<Vec<u8>>,
    h: Option<Samples<i32>>,
    i: Option<bool>,
    j: Vec<u64>,
    #[attribute]
    k: Option<i16>,
    #[choice]
    l: Vec<Alternative>,
    m: Option<Measured>,
    p: Vec<Option<f64>>,
}

#[derive(chappe_soap::message::Message, Debug, PartialEq)]
enum Alternative {
    #[name("n")]
    None,
    #[name("o")]
    Some(Measured),
}

#[derive(chappe_soap::message::Message, Debug, PartialEq)]
struct Measured {
    #[attribute]
    unit: Option<Mode>,
    #[text]
    value: f32,
}

/// No panic; text is read and written as by the tree, and what was written is read again as the same.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let namespace = Namespace::from(NAMESPACE);
    let by_text = read(data, &namespace);
    let tree = Element::parse(data).map_err(ReadError::from);
    let by_tree = tree.and_then(|tree| from_element::<Part>(&namespace, "m", &tree));
    let (Ok(by_text), Ok(by_tree)) = (&by_text, &by_tree) else {
        assert_eq!(by_text.is_ok(), by_tree.is_ok(), "{by_text:?} {by_tree:?}");
        return;
    };
    // Printed, since a value that is not a number differs from itself.
    assert_eq!(format!("{by_text:?}"), format!("{by_tree:?}"));
    let written = to_text(&namespace, "m", by_text);
    assert_eq!(to_element(&namespace, "m", by_text).to_text(), written);
    let again = read(written.as_bytes(), &namespace).expect("a written message is read");
    assert_eq!(format!("{by_text:?}"), format!("{again:?}"));
}

fn read(data: &[u8], namespace: &Namespace) -> Result<Part, ReadError> {
    from_text(namespace, "m", data, Limits::default())
}
