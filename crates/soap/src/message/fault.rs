//! The faults of an operation as a Rust enum.

use std::convert::Infallible;

use chappe_xml::{Name, Namespace};

use super::{Message, Types};
use crate::{Body, Fault};

/// The names of declared faults.
pub type FaultNames = Vec<&'static str>;

/// The faults with which an operation may answer. Made by `#[derive(Fault)]` from an enum; each
/// variant is a fault of the WSDL. Its detail is the message of its one field without name, or has its named fields,
/// with the attributes of a message's fields.
///
/// The subcode is the variant's name in the service's namespace, the reason its doc comment.
///
/// ```
/// use chappe_soap::message::{Fault, Faults, Message};
/// #[derive(Message, Debug, PartialEq)]
/// struct Limits { from: f64, to: f64 }
/// #[derive(Fault, Debug, PartialEq)]
/// enum Refused {
///     /// the period is out of range
///     OutOfRange(Limits),
///     TooHot { #[unit("Cel")] celsius: f64, sensor: Option<String> },
///     NotNow,
/// }
/// let namespace = "urn:x".into();
/// let fault = Refused::OutOfRange(Limits { from: 0.1, to: 60.0 }).into_fault(&namespace);
/// assert_eq!(fault.subcode.as_ref().unwrap().local, "OutOfRange");
/// assert_eq!(fault.reason, "the period is out of range");
/// let read = Refused::from_fault(&fault, &namespace);
/// assert_eq!(read, Some(Refused::OutOfRange(Limits { from: 0.1, to: 60.0 })));
/// let fault = Refused::TooHot { celsius: 90.0, sensor: None }.into_fault(&namespace);
/// let read = Refused::from_fault(&fault, &namespace);
/// assert_eq!(read, Some(Refused::TooHot { celsius: 90.0, sensor: None }));
/// ```
/// A fault is an enum,
/// ```compile_fail
/// #[derive(chappe_soap::message::Fault)]
/// struct Refused;
/// ```
/// and several fields of a variant have names.
/// ```compile_fail
/// #[derive(chappe_soap::message::Fault)]
/// enum Refused { OutOfRange(f64, f64) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a fault of an operation",
    note = "derive it for an enum: `#[derive(Fault)]`; an operation that never fails returns \
            `Result<_, std::convert::Infallible>`"
)]
pub trait Faults: Sized {
    /// Declares the messages of the details; returns the names of the faults.
    fn declare(types: &mut Types) -> FaultNames;

    /// The fault in a message.
    fn into_fault(self, namespace: &Namespace) -> Fault;

    /// Reads a fault; `None` if it is none of these.
    fn from_fault(fault: &Fault, namespace: &Namespace) -> Option<Self>;
}

impl Faults for Infallible {
    fn declare(_: &mut Types) -> FaultNames {
        Vec::new()
    }

    fn into_fault(self, _: &Namespace) -> Fault {
        match self {}
    }

    fn from_fault(_: &Fault, _: &Namespace) -> Option<Self> {
        None
    }
}

/// Any fault, of which the WSDL says nothing.
impl Faults for Fault {
    fn declare(_: &mut Types) -> FaultNames {
        Vec::new()
    }

    fn into_fault(self, _: &Namespace) -> Fault {
        self
    }

    fn from_fault(fault: &Fault, _: &Namespace) -> Option<Self> {
        Some(fault.clone())
    }
}

/// A fault with this name as subcode, and this message as detail.
#[must_use]
pub fn declared<T: Message>(
    namespace: &Namespace,
    name: &'static str,
    reason: &'static str,
    detail: &T,
) -> Fault {
    let mut fault = Fault::sender(Name::inside(namespace, name), reason);
    fault.detail.push(Body::of(namespace, name, detail));
    fault
}

/// The message in the detail of a fault of this name. Stacks that write no subcode say only by the
/// element of the detail which fault it is.
#[doc(hidden)]
#[must_use]
pub fn detail_of<T: Message>(fault: &Fault, namespace: &Namespace, name: &str) -> Option<T> {
    if let Some(subcode) = &fault.subcode
        && !subcode.is(namespace, name)
    {
        return None;
    }
    match fault.detail.first() {
        Some(detail) => detail.read(namespace, name).ok(),
        // A detail without content may be left out.
        None if fault.subcode.is_some() => {
            let empty = Body::of(namespace, name, &());
            empty.read(namespace, name).ok()
        }
        None => None,
    }
}
