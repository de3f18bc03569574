//! Invariants of UDDI messages for any bytes.

use chappe_registry::uddi::message::{Answer, NAMESPACE, Port, Request, fault_text, receive};
use chappe_registry::uddi::{List, Owned};
use chappe_soap::v1_1::{self, Envelope};
use chappe_xml::{Element, Limits, Name};

use crate::bounds::Bound;

/// The tree of the request, its values, and both again when they are written and read.
const BOUND: Bound = Bound::memory(4 << 20, 600);

/// No panic; values that a request saves are the same when an answer brings them and a request saves
/// them again, and each fault is a message.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    for port in [Port::Inquiry, Port::Publication] {
        match receive(data, Limits::datagram(), port, "test") {
            Ok(message) => check_again(&message.request),
            Err(fault) => {
                let text = fault_text(fault);
                let read = Envelope::parse(text.as_bytes(), Limits::default());
                assert!(read.is_ok(), "{read:?}: {text}");
            }
        }
    }
}

fn owned<T: Clone>(values: &[T]) -> Vec<Owned<T>> {
    let owned = values.iter().map(|value| Owned {
        value: value.clone(),
        authorized_name: "ada".to_owned(),
    });
    owned.collect()
}

/// Saves the values of a request once more, as an answer brings them.
fn check_again(request: &Request) {
    let (name, answer) = match request {
        Request::SaveBusiness(values) => ("save_business", Answer::BusinessDetail(owned(values))),
        Request::SaveService(values) => ("save_service", Answer::ServiceDetail(values.clone())),
        Request::SaveTModel(values) => ("save_tModel", Answer::TModelDetail(owned(values))),
        Request::SaveBinding(values) => {
            let list = List {
                items: values.clone(),
                is_truncated: false,
            };
            ("save_binding", Answer::BindingDetail(list))
        }
        Request::SetAssertions(values) => {
            let answer = Answer::Assertions("ada".to_owned(), values.clone());
            ("set_publisherAssertions", answer)
        }
        _ => return,
    };
    let text = answer.to_text("test");
    let read = Envelope::parse(text.as_bytes(), Limits::default());
    let body = read.unwrap_or_else(|error| panic!("{error}: {text}")).body;
    let again = Element::new(Name::new(NAMESPACE, name))
        .with_attribute(Name::local("generic"), "2.0")
        .with_children(body.elements().cloned());
    let text = v1_1::to_text(again);
    let again = receive(
        text.as_bytes(),
        Limits::default(),
        Port::Publication,
        "test",
    );
    let again = again.unwrap_or_else(|fault| panic!("{fault:?}: {text}"));
    // Requests have no equality, because those of inquiries need none.
    assert_eq!(format!("{:?}", again.request), format!("{request:?}"));
}
