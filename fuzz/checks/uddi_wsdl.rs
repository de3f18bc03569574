//! Invariants of WSDL documents in the registry, and of the messages about them, for any bytes.

use chappe_registry::uddi::message::fault_text;
use chappe_registry::uddi::{ErrorCode, Publisher};
use chappe_registry::wsdl::message::{Request, receive};
use chappe_registry::wsdl::{FindInterface, NewDocument, resolve};
use chappe_registry::{Access, MemoryJournal, Principal, Registry};
use chappe_soap::v1_1::Envelope;
use chappe_xml::Limits;

use crate::bounds::Bound;

/// The tree of a document, its statements, their indexes, and what finds read.
const BOUND: Bound = Bound::memory(8 << 20, 3_000);

/// No panic; a document that is taken comes back byte for byte, its operations are found, and nothing of it is left
/// after its removal; each fault is a message.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    // Larger ones differ only in time.
    if data.len() > 1 << 16 {
        return;
    }
    BOUND.hold(data.len(), || {
        check_message(data);
        check_document(data);
    });
}

fn check_message(data: &[u8]) {
    match receive(data, Limits::datagram(), "test") {
        Ok(message) => {
            if let Request::Add(add) = &message.request
                && let Some(content) = &add.content
            {
                check_document(content);
            }
            let registry = Registry::open(MemoryJournal::new()).expect("an empty registry opens");
            let answer = message
                .request
                .answer(&registry.uddi(&Principal::Anonymous));
            if let Ok(answer) = answer {
                let text = answer.to_text();
                assert!(
                    Envelope::parse(text.as_bytes(), Limits::default()).is_ok(),
                    "{text}"
                );
            }
        }
        Err(fault) => {
            let text = fault_text(fault);
            assert!(
                Envelope::parse(text.as_bytes(), Limits::default()).is_ok(),
                "{text}"
            );
        }
    }
}

fn check_document(data: &[u8]) {
    let document = NewDocument::new("http://192.0.2.1/a/b?wsdl", data);
    let Ok(document) = document.prepare() else {
        return;
    };
    for import in document.imports() {
        let _ = resolve(document.location(), import);
    }
    let registry = Registry::open(MemoryJournal::new()).expect("an empty registry opens");
    let mut bits = 0_u128;
    let mut random = || {
        bits += 1;
        bits
    };
    let mut ada = Publisher::new(&registry, "ada", Access::Public, 0, &mut random);
    let saved = ada
        .put_documents(&[document], None)
        .and_then(chappe_registry::uddi::Saved::wait);
    let saved = match saved {
        Ok(saved) => saved,
        Err(error) => {
            let is_known = matches!(
                error.code,
                ErrorCode::ValueNotAllowed | ErrorCode::NameTooLong | ErrorCode::MessageTooLarge
            );
            assert!(is_known, "{error}");
            return;
        }
    };
    let key = &saved[0].key;
    let inquiry = registry.uddi(&Principal::Anonymous);
    let (_, bytes) = inquiry
        .document(key)
        .expect("a document that was added is there");
    assert_eq!(bytes, data);
    if let Ok(operations) = inquiry.operations_at(key) {
        for operation in operations.iter().take(8) {
            let ask = FindInterface {
                operation: Some(operation.iri.clone()),
                ..FindInterface::default()
            };
            let found = inquiry
                .find_interfaces(&ask)
                .expect("a small registry answers");
            assert!(
                found.items.iter().any(|it| it.iri == operation.interface),
                "{operation:?}"
            );
        }
    }
    let mut ada = Publisher::new(&registry, "ada", Access::Public, 0, &mut random);
    let removed = ada.remove_documents(std::slice::from_ref(key));
    removed
        .and_then(chappe_registry::uddi::Saved::wait)
        .expect("an own document is removed");
    assert_eq!(registry.statistics().entities, 0);
}
