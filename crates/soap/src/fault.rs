//! SOAP faults (SOAP 1.2 part 1, section 5.4).

use chappe_xml::text::Writer;
use chappe_xml::{Element, Event, EventSink as _, Name, Node, Str};

use crate::body::{Body, Fragment, declarations, each_child};
use crate::envelope::{BLOCKS_MAX, NAMESPACE};

/// Characters read from a fault's reason. Default 1,024: it is shown to people and stored with the
/// failed object.
const REASON_CHARACTERS_MAX: usize = 1_024;

/// The header of a `VersionMismatch` fault, with the supported version (SOAP 1.2 part 1, section 5.4.7).
#[must_use]
pub fn upgrade_header() -> Element {
    let supported = Element::new(Name::new(NAMESPACE, "SupportedEnvelope"))
        .with_namespace("env", NAMESPACE)
        .with_attribute(Name::local("qname"), "env:Envelope");
    Element::new(Name::new(NAMESPACE, "Upgrade")).with_child(supported)
}

/// A header of a `MustUnderstand` fault, with a header that is not understood (SOAP 1.2 part 1,
/// section 5.4.8).
#[must_use]
pub fn not_understood_header(name: &Name) -> Element {
    let header = Element::new(Name::new(NAMESPACE, "NotUnderstood"));
    let qname = Name::local("qname");
    match name.namespace.is_empty() {
        true => header.with_attribute(qname, name.local.to_string()),
        false => header
            .with_namespace("nu", name.namespace.clone())
            .with_attribute(qname, format!("nu:{}", name.local)),
    }
}

/// The fault codes of SOAP 1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultCode {
    /// The envelope has another SOAP version.
    VersionMismatch,
    /// A mandatory header is not understood.
    MustUnderstand,
    /// The data encoding is not supported.
    DataEncodingUnknown,
    /// The message is invalid; a retry does not help.
    Sender,
    /// The receiver failed; a retry may help.
    Receiver,
}

impl FaultCode {
    const ALL: [(Self, &'static str); 5] = [
        (Self::VersionMismatch, "VersionMismatch"),
        (Self::MustUnderstand, "MustUnderstand"),
        (Self::DataEncodingUnknown, "DataEncodingUnknown"),
        (Self::Sender, "Sender"),
        (Self::Receiver, "Receiver"),
    ];

    /// The local name of the code.
    #[must_use]
    pub fn local(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(code, _)| *code == self)
            .map_or("Receiver", |(_, local)| local)
    }
}

/// A SOAP fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault {}{}: {reason}", code.local(), subcode.as_ref().map(|name| format!(" ({name})")).unwrap_or_default())]
pub struct Fault {
    /// The responsible party.
    pub code: FaultCode,
    /// The code of the specification.
    pub subcode: Option<Name>,
    /// An English explanation for people.
    pub reason: Str,
    /// Further elements, each a tree or the text that a type has written. The first 64 of a message are read.
    pub detail: Vec<Body>,
}

impl Fault {
    /// A fault caused by the sender.
    #[must_use]
    pub fn sender(subcode: Name, reason: impl Into<Str>) -> Self {
        let subcode = Some(subcode);
        Self {
            code: FaultCode::Sender,
            subcode,
            reason: reason.into(),
            detail: Vec::new(),
        }
    }

    /// A fault caused by the receiver.
    #[must_use]
    pub fn receiver(subcode: Name, reason: impl Into<Str>) -> Self {
        Self {
            code: FaultCode::Receiver,
            ..Self::sender(subcode, reason)
        }
    }

    /// Parses the `Fault` of a body. The detail of one that is text stays text, which its type reads.
    #[must_use]
    pub fn from_body(body: &Body) -> Option<Self> {
        match body {
            Body::Tree(element) => Self::from_element(element),
            Body::Text(fragment) if fragment.name().is(NAMESPACE, "Fault") => {
                Self::from_fragment(fragment).ok()?
            }
            Body::Text(_) => None,
        }
    }

    fn from_fragment(fragment: &Fragment) -> Result<Option<Self>, chappe_xml::Error> {
        let mut pull = fragment.pull();
        pull.next_part()?;
        // The fault without its detail.
        let mut head = Element::new(fragment.name().clone());
        head.namespaces = declarations(&pull.in_scope());
        let mut detail = None;
        each_child(&mut pull, |pull| {
            if detail.is_some() || !pull.name().is(NAMESPACE, "Detail") {
                head.children.push(Node::Element(pull.element()?));
                return Ok(());
            }
            let detail = detail.insert(Vec::new());
            each_child(pull, |pull| {
                // Each has a copy of the declarations in scope.
                match detail.len() < BLOCKS_MAX {
                    true => detail.push(Body::Text(fragment.child(pull)?)),
                    false => pull.skip()?,
                }
                Ok(())
            })
        })?;
        let fault = Self::from_element(&head);
        Ok(fault.map(|fault| Self {
            detail: detail.unwrap_or_default(),
            ..fault
        }))
    }

    /// Parses the `Fault` element of a body.
    #[must_use]
    pub fn from_element(element: &Element) -> Option<Self> {
        if !element.name.is(NAMESPACE, "Fault") {
            return None;
        }
        let name = |local| Name::new(NAMESPACE, local);
        let code = element.child(&name("Code"))?;
        let value = code.child(&name("Value"))?;
        let local = value
            .text()
            .trim()
            .rsplit(':')
            .next()
            .unwrap_or_default()
            .to_owned();
        let code_value = FaultCode::ALL.iter().find(|(_, known)| *known == local)?.0;
        let subcode = code.child(&name("Subcode")).and_then(|subcode| {
            let value = subcode.child(&name("Value"))?;
            value.resolve(&[element, code, subcode], value.text().trim())
        });
        let reason = element
            .child(&name("Reason"))
            .and_then(|reason| reason.child(&name("Text")))
            .map(|text| {
                text.text()
                    .trim()
                    .chars()
                    .take(REASON_CHARACTERS_MAX)
                    .collect::<String>()
            })
            .unwrap_or_default();
        let detail = element.child(&name("Detail"));
        let detail = detail
            .map(|detail| {
                let elements = detail.elements().take(BLOCKS_MAX);
                elements.cloned().map(Body::from).collect()
            })
            .unwrap_or_default();
        Some(Self {
            code: code_value,
            subcode,
            reason: reason.into(),
            detail,
        })
    }

    /// The child of a body: text if types have written the detail, otherwise a tree.
    #[must_use]
    pub fn to_body(&self) -> Body {
        let texts: Option<Vec<&str>> = self.detail.iter().map(Body::text).collect();
        let texts = texts.filter(|texts| !texts.is_empty());
        match texts.and_then(|texts| self.written(&texts).ok()) {
            Some(text) => Body::written(Name::new(NAMESPACE, "Fault"), text),
            None => self.to_element().into(),
        }
    }

    /// Its text with these elements as detail.
    fn written(&self, detail: &[&str]) -> Result<String, chappe_xml::Error> {
        let mut writer = Writer::lenient();
        let start = |local| Event::StartElement(Name::new(NAMESPACE, local));
        writer.event(start("Fault"))?;
        writer.event(Event::Namespace {
            prefix: "soap".into(),
            namespace: NAMESPACE.into(),
        })?;
        let [code, reason] = self.head(self.reason.clone());
        code.write(&mut writer)?;
        reason.write(&mut writer)?;
        writer.event(start("Detail"))?;
        for text in detail {
            writer.raw(text)?;
        }
        writer.event(Event::EndElement)?;
        writer.event(Event::EndElement)?;
        writer.finish()
    }

    /// The element of a body. The reason says so if the text of the detail exceeds a limit, and is left out.
    #[must_use]
    pub fn to_element(&self) -> Element {
        let detail = self.detail.iter().cloned().map(Body::into_element);
        let detail = detail.collect::<Result<Vec<Element>, _>>();
        let (detail, reason) = match detail {
            Ok(detail) => (detail, self.reason.clone()),
            Err(error) => {
                let reason = format!("{} (without its detail: {error})", self.reason);
                (Vec::new(), reason.into())
            }
        };
        let fault = Element::new(Name::new(NAMESPACE, "Fault")).with_children(self.head(reason));
        if detail.is_empty() {
            return fault;
        }
        let element = Element::new(Name::new(NAMESPACE, "Detail"));
        fault.with_child(element.with_children(detail))
    }

    /// Code and reason.
    fn head(&self, reason: Str) -> [Element; 2] {
        let element = |local| Element::new(Name::new(NAMESPACE, local));
        let value = format!("soap:{}", self.code.local());
        let value = element("Value")
            .with_namespace("soap", NAMESPACE)
            .with_text(value);
        let mut code = element("Code").with_child(value);
        if let Some(subcode) = &self.subcode {
            let text = format!("sub:{}", subcode.local);
            let value = element("Value").with_namespace("sub", subcode.namespace.clone());
            code = code.with_child(element("Subcode").with_child(value.with_text(text)));
        }
        let lang = Name::new("http://www.w3.org/XML/1998/namespace", "lang");
        let text = element("Text").with_attribute(lang, "en").with_text(reason);
        [code, element("Reason").with_child(text)]
    }
}
