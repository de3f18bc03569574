//! Messages of SOAP 1.1 in document style: one element in the Body, or a fault.
//!
//! Source: SOAP 1.1 (W3C note, 8 May 2000), sections 4 and 6; restricted to what WS-I Basic Profile
//! 1.0 allows: nothing follows the Body, and the children of a Fault are in no namespace. Encoding
//! styles, actors and attachments are not supported: an element's content is taken as it is.

use chappe_xml::{Element, Limits, Name, Str};

use crate::envelope::take_blocks;
use crate::security::WSSE;
use crate::{Error, NAMESPACE as NAMESPACE_1_2, upgrade_header};

/// The namespace of SOAP 1.1.
pub const NAMESPACE: &str = "http://schemas.xmlsoap.org/soap/envelope/";

/// A message.
///
/// ```
/// use chappe_soap::v1_1::{Envelope, to_text};
/// use chappe_xml::{Element, Limits, Name};
/// let sent = to_text(Element::new(Name::new("urn:x", "get")));
/// let received = Envelope::parse(sent.as_bytes(), Limits::default())?;
/// assert!(received.body.name.is("urn:x", "get"));
/// # Ok::<(), chappe_soap::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The headers.
    pub headers: Vec<Element>,
    /// The element in the Body.
    pub body: Element,
}

impl Envelope {
    /// Parses XML text under these limits.
    ///
    /// # Errors
    /// [`Error`] if the bytes are not a SOAP 1.1 message with one element in its Body.
    pub fn parse(document: &[u8], limits: Limits) -> Result<Self, Error> {
        let mut root = Element::parse_within(document, limits)?;
        if root.name.is(NAMESPACE_1_2, "Envelope") {
            return Err(Error::VersionMismatch);
        }
        let (headers, body) = take_blocks(&mut root, NAMESPACE)?;
        let count = body.len();
        let mut body = body.into_iter();
        match (body.next(), count) {
            (Some(body), 1) => Ok(Self { headers, body }),
            _ => Err(Error::NotOneBlock(count)),
        }
    }

    /// The first header that its receiver must understand. A header for another actor does not count.
    #[must_use]
    pub fn mandatory_header(&self) -> Option<&Element> {
        let must_understand = Name::new(NAMESPACE, "mustUnderstand");
        let actor = Name::new(NAMESPACE, "actor");
        self.headers.iter().find(|header| {
            header.attribute(&must_understand) == Some("1") && header.attribute(&actor).is_none()
        })
    }
}

/// The document of a message with this element in its Body, with an XML declaration.
#[must_use]
pub fn to_text(body: Element) -> String {
    let element = |local| Element::new(Name::new(NAMESPACE, local));
    let envelope = element("Envelope").with_namespace("soap", NAMESPACE);
    let envelope = envelope.with_child(element("Body").with_child(body));
    let text = envelope.to_text();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}")
}

/// The answer to a message of SOAP 1.1 where only SOAP 1.2 is understood, in the version of the sender:
/// a `VersionMismatch` fault and a header with the supported version (SOAP 1.2 part 1, appendix A).
#[must_use]
pub fn version_mismatch() -> String {
    let fault = Fault {
        code: FaultCode::VersionMismatch,
        text: Error::VersionMismatch.to_string().into(),
        detail: Vec::new(),
    };
    let element = |local| Element::new(Name::new(NAMESPACE, local));
    let envelope = element("Envelope")
        .with_namespace("soap", NAMESPACE)
        .with_child(element("Header").with_child(upgrade_header()))
        .with_child(element("Body").with_child(fault.into_element()));
    let text = envelope.to_text();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}")
}

/// The fault codes of SOAP 1.1 (section 4.4.1), and those of WS-Security.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultCode {
    /// The envelope has another namespace.
    VersionMismatch,
    /// A mandatory header is not understood.
    MustUnderstand,
    /// The message is invalid; a retry does not help.
    Client,
    /// The server failed; a retry may help.
    Server,
    /// The signature is not accepted: a code of [`WSSE`], as of
    /// [`SecurityError::fault_subcode`](crate::security::SecurityError::fault_subcode).
    Security(&'static str),
}

impl FaultCode {
    /// The local name of the code.
    #[must_use]
    pub const fn local(self) -> &'static str {
        match self {
            Self::VersionMismatch => "VersionMismatch",
            Self::MustUnderstand => "MustUnderstand",
            Self::Client => "Client",
            Self::Server => "Server",
            Self::Security(local) => local,
        }
    }

    /// The prefix of its namespace in a fault, and the namespace.
    const fn namespace(self) -> (&'static str, &'static str) {
        match self {
            Self::Security(_) => ("wsse", WSSE),
            _ => ("soap", NAMESPACE),
        }
    }
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The responsible party.
    pub code: FaultCode,
    /// An explanation for people.
    pub text: Str,
    /// Further elements; allowed only about the content of the Body.
    pub detail: Vec<Element>,
}

impl Fault {
    /// The element in the Body.
    #[must_use]
    pub fn into_element(self) -> Element {
        let part = |local| Element::new(Name::local(local));
        let (prefix, namespace) = self.code.namespace();
        let code = format!("{prefix}:{}", self.code.local());
        // The prefix is declared where it is used: a peer that copies the fault keeps it.
        let fault = Element::new(Name::new(NAMESPACE, "Fault"))
            .with_namespace(prefix, namespace)
            .with_child(part("faultcode").with_text(code))
            .with_child(part("faultstring").with_text(self.text));
        if self.detail.is_empty() {
            return fault;
        }
        fault.with_child(part("detail").with_children(self.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Envelope, Error> {
        Envelope::parse(text.as_bytes(), Limits::default())
    }

    fn envelope(inner: &str) -> String {
        format!("<e:Envelope xmlns:e='{NAMESPACE}'>{inner}</e:Envelope>")
    }

    #[test]
    fn a_message_has_one_element_in_its_body() {
        let one = parse(&envelope("<e:Body><get xmlns='urn:x'/></e:Body>")).unwrap();
        assert!(one.body.name.is("urn:x", "get") && one.headers.is_empty());
        for (inner, count) in [("", 0), ("<a/><b/>", 2)] {
            let found = parse(&envelope(&format!("<e:Body>{inner}</e:Body>")));
            assert_eq!(found, Err(Error::NotOneBlock(count)));
        }
        assert_eq!(parse(&envelope("")), Err(Error::NoBody));
        let two = parse(&envelope("<e:Body><a/></e:Body><e:Body><b/></e:Body>"));
        assert!(matches!(two, Err(Error::Structure(_))), "{two:?}");
        let other = format!("<e:Envelope xmlns:e='{NAMESPACE_1_2}'><e:Body/></e:Envelope>");
        assert_eq!(parse(&other), Err(Error::VersionMismatch));
        assert!(matches!(parse("<a/>"), Err(Error::NotEnvelope(_))));
    }

    #[test]
    fn declarations_of_the_envelope_hold_in_the_body() {
        let text = format!(
            "<Envelope xmlns='{NAMESPACE}' xmlns:u='urn:u'><Body><u:get/></Body></Envelope>"
        );
        let get = parse(&text).unwrap().body;
        assert_eq!(get.resolve(&[], "u:x"), Some(Name::owned("urn:u", "x")));
    }

    #[test]
    fn another_version_is_answered_in_the_senders() {
        let read = parse(&version_mismatch()).unwrap();
        assert!(read.body.name.is(NAMESPACE, "Fault"));
        let code = read.body.child(&Name::local("faultcode")).unwrap();
        assert_eq!(code.text(), "soap:VersionMismatch");
        let [upgrade] = &read.headers[..] else {
            panic!("{:?}", read.headers);
        };
        let supported = upgrade.elements().next().unwrap();
        let qname = supported.attribute(&Name::local("qname")).unwrap();
        let envelope = Name::new(NAMESPACE_1_2, "Envelope");
        assert_eq!(supported.resolve(&[upgrade], qname), Some(envelope));
    }

    #[test]
    fn mandatory_headers_are_found() {
        let with = |attributes: &str| {
            let header = format!("<e:Header><h xmlns='urn:h' {attributes}/></e:Header>");
            let body = "<e:Body><a/></e:Body>";
            let found = parse(&envelope(&format!("{header}{body}"))).unwrap();
            found.mandatory_header().is_some()
        };
        assert!(with("e:mustUnderstand='1'"));
        assert!(!with("e:mustUnderstand='0'") && !with(""));
        assert!(!with("e:mustUnderstand='1' e:actor='urn:other'"));
    }

    #[test]
    fn a_fault_has_unqualified_children() {
        let fault = Fault {
            code: FaultCode::Client,
            text: "no & no".into(),
            detail: vec![Element::new(Name::new("urn:x", "why"))],
        };
        let text = to_text(fault.into_element());
        assert!(text.contains("<soap:Fault"), "{text}");
        assert!(
            text.contains("<faultcode>soap:Client</faultcode>"),
            "{text}"
        );
        let body = parse(&text).unwrap().body;
        let detail = body.child(&Name::local("detail")).unwrap();
        assert_eq!(detail.elements().count(), 1);
        let code = body.child(&Name::local("faultcode")).unwrap();
        let code = code.resolve(&[&body], &code.text()).unwrap();
        assert!(code.is(NAMESPACE, "Client"));
        assert_eq!(
            body.child(&Name::local("faultstring")).unwrap().text(),
            "no & no"
        );
    }
}
