//! The messages of UDDI v2: requests, answers and faults, in SOAP 1.1.
//!
//! [`receive`] reads a request, [`Inquiry::answer`](super::Inquiry::answer) and [`Publisher::answer`](super::Publisher::answer) run it, and
//! [`Answer::to_text`] and [`fault`] write what the sender gets. Authentication is the caller's: a
//! [`Message`] has the token of its sender, and [`Request::AuthToken`] what a token is asked with.
//!
//! Source: UDDI 2.04 API specification and the structure of `uddi_v2.xsd`. White space around texts
//! is not data.

mod answer;
mod call;
mod checker;
mod discovery;
pub(crate) mod read;
mod request;
mod schema;
pub(crate) mod write;

use chappe_soap::v1_1::{self, Envelope, Fault, FaultCode};
use chappe_xml::{Element, Limits, Name};

pub use answer::Answer;
pub use checker::read_validation;
pub use request::{GENERIC, Message, NAMESPACE, Port, Request};
pub(crate) use schema::schema_text;
pub use schema::{schema_of_lang, wsdl};

use super::error::{Error, ErrorCode};
pub use super::value::GET_PATH;

/// Reads a request that was sent to a port.
///
/// # Errors
/// The fault to answer with: the document is not SOAP 1.1, has a mandatory header, or its body is
/// not a request of UDDI v2.
pub fn receive(
    document: &[u8],
    limits: Limits,
    port: Port,
    operator: &str,
) -> Result<Message, Fault> {
    let body = body(document, limits, operator)?;
    read::message(&body, port).map_err(|error| client_fault(&error, operator))
}

/// Reads the element in the body of a request.
pub(crate) fn read_body(body: &Element, port: Port) -> Result<Message, Error> {
    read::message(body, port)
}

/// The fault of a request that its sender has to change.
pub(crate) fn client_fault(error: &Error, operator: &str) -> Fault {
    report(FaultCode::Client, error, operator)
}

/// Reads an envelope; returns what is in its body.
///
/// # Errors
/// The fault to answer with.
pub(crate) fn body(document: &[u8], limits: Limits, operator: &str) -> Result<Element, Fault> {
    let client = |error: &Error| client_fault(error, operator);
    let envelope = Envelope::parse(document, limits).map_err(|error| match error {
        chappe_soap::Error::VersionMismatch => Fault {
            code: FaultCode::VersionMismatch,
            text: error.to_string().into(),
            detail: Vec::new(),
        },
        chappe_soap::Error::Xml(chappe_xml::Error {
            reason: chappe_xml::Reason::Limit { .. },
            ..
        }) => client(&Error::new(ErrorCode::MessageTooLarge, error.to_string())),
        _ => client(&Error::new(ErrorCode::FatalError, error.to_string())),
    })?;
    if let Some(unsupported) = unsupported(&envelope) {
        return Err(Fault {
            code: FaultCode::Client,
            text: unsupported.into(),
            detail: Vec::new(),
        });
    }
    if let Some(header) = envelope.mandatory_header() {
        return Err(Fault {
            code: FaultCode::MustUnderstand,
            text: format!("the header {} is not understood", header.name).into(),
            detail: Vec::new(),
        });
    }
    Ok(envelope.body)
}

/// What of SOAP a message must not have: headers for others, and claims about encoding (API, appendix B.2 and B.3).
fn unsupported(envelope: &Envelope) -> Option<&'static str> {
    fn is_encoded(element: &Element) -> bool {
        let style = Name::new(v1_1::NAMESPACE, "encodingStyle");
        let is_of_uddi = element.name.namespace.starts_with(request::NAMESPACES);
        is_of_uddi && element.attribute(&style).is_some() || element.elements().any(is_encoded)
    }
    let actor = Name::new(v1_1::NAMESPACE, "actor");
    let mut headers = envelope.headers.iter();
    if headers.any(|header| header.attribute(&actor).is_some()) {
        return Some("a header with an actor is not supported");
    }
    is_encoded(&envelope.body).then_some("an element of UDDI must not have an encodingStyle")
}

/// The fault of a request that failed.
#[must_use]
pub fn fault(error: &Error, operator: &str) -> Fault {
    let code = match error.code {
        ErrorCode::Busy | ErrorCode::FatalError => FaultCode::Server,
        _ => FaultCode::Client,
    };
    report(code, error, operator)
}

fn report(code: FaultCode, error: &Error, operator: &str) -> Fault {
    let text = match code {
        FaultCode::Server => "Server Error",
        _ => "Client Error",
    };
    Fault {
        code,
        text: text.into(),
        detail: vec![write::disposition(Some(error), operator)],
    }
}

/// The document of a fault.
#[must_use]
pub fn fault_text(fault: Fault) -> String {
    v1_1::to_text(fault.into_element())
}
