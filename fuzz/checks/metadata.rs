//! Invariants of messages about metadata for any bytes.

use chappe_registry::Access;
use chappe_registry::metadata::Piece;
use chappe_registry::metadata::message::{Answer, NAMESPACE, Request, receive};
use chappe_soap::v1_1::{self, Envelope};
use chappe_xml::{Element, Limits, Name};

use crate::bounds::Bound;

/// The tree of the request, its values, and both again when they are written and read.
const BOUND: Bound = Bound::memory(4 << 20, 600);

/// No panic; a piece that a request attaches is the same when an answer brings it and a request attaches
/// it again, and each fault is a message.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    match receive(data, Limits::datagram(), "test") {
        Ok(message) => {
            if let Request::Attach(draft) = &message.request {
                let piece = Piece {
                    key: draft.key.clone().unwrap_or_else(|| "urn:uuid:1".to_owned()),
                    subject: draft.subject.clone(),
                    piece_type: draft.piece_type.clone(),
                    value: draft.value.clone(),
                    author: "ada".to_owned(),
                    date_ms: 0,
                    access: Access::Public,
                    rights: Default::default(),
                    lease_s: None,
                };
                check_again(&piece);
            }
        }
        Err(fault) => {
            let text = v1_1::to_text(fault.into_element());
            let read = Envelope::parse(text.as_bytes(), Limits::default());
            assert!(read.is_ok(), "{read:?}: {text}");
        }
    }
}

/// Attaches a piece once more, as an answer brings it.
fn check_again(piece: &Piece) {
    let text = Answer::Piece(Box::new(piece.clone())).to_text("test");
    let read = Envelope::parse(text.as_bytes(), Limits::default());
    let info = read.unwrap_or_else(|error| panic!("{error}: {text}")).body;
    let name = |local| Name::new(NAMESPACE, local);
    let kept = ["metadataType", "metadataValue"];
    let children = info
        .elements()
        .filter(|child| kept.contains(&&*child.name.local));
    let mut metadata = Element::new(name("metadata")).with_children(children.cloned());
    metadata.attributes.clone_from(&info.attributes);
    let key = Element::new(name("stringKey")).with_text(piece.subject.clone());
    let entity = Element::new(name("entityReference")).with_child(key);
    let again = Element::new(name("addMetadataToEntity"))
        .with_child(entity)
        .with_child(metadata);
    let text = v1_1::to_text(again);
    let again = receive(text.as_bytes(), Limits::default(), "test");
    let again = again.unwrap_or_else(|fault| panic!("{fault:?}: {text}"));
    let Request::Attach(again) = again.request else {
        panic!("{text}");
    };
    assert_eq!(again.subject, piece.subject);
    assert_eq!(again.key.as_ref(), Some(&piece.key));
    assert_eq!(again.piece_type, piece.piece_type);
    assert_eq!(format!("{:?}", again.value), format!("{:?}", piece.value));
}
