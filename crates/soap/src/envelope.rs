//! SOAP envelopes.

use chappe_xml::text::{Writer, escape};
use chappe_xml::{Builder, Element, Event, EventSink, Limits, Name, Namespace, Str};

use crate::scope::inherited;
use crate::{Addressing, Error, Fault, v1_1};

/// The namespace of SOAP 1.2.
pub const NAMESPACE: &str = "http://www.w3.org/2003/05/soap-envelope";
/// Children of a Header or Body. Default 64: device messages have up to ten, and each stores a copy
/// of the namespace declarations in scope.
pub(crate) const BLOCKS_MAX: usize = 64;

/// The XML declaration of each message.
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";
/// Bytes of a message without its body. Reason: calls have 500 to 700.
const HEAD_BYTES: usize = 800;

/// A SOAP 1.2 message with parsed addressing headers.
///
/// ```
/// use chappe_soap::{Addressing, AddressingVersion, Envelope};
/// use chappe_xml::{Element, Name};
/// let addressing = Addressing::new(AddressingVersion::V200508, "urn:x/Get");
/// let sent = Envelope::new(addressing).with_body(Element::new(Name::new("urn:x", "Get")));
/// let received = Envelope::parse(sent.to_text().as_bytes())?;
/// assert_eq!(received.addressing.action, "urn:x/Get");
/// assert!(received.body().unwrap().name.is("urn:x", "Get"));
/// # Ok::<(), chappe_soap::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envelope {
    /// The addressing properties.
    pub addressing: Addressing,
    /// The other headers, each with the namespace declarations in scope.
    pub headers: Vec<Element>,
    /// The children of the body, each with the namespace declarations in scope, so that QNames in
    /// its content can be resolved.
    pub body: Vec<Element>,
    /// Further declarations for the root, for peers that require certain prefixes.
    pub namespaces: Vec<(Str, Namespace)>,
}

impl Envelope {
    /// Creates a message without body.
    #[must_use]
    pub fn new(addressing: Addressing) -> Self {
        Self {
            addressing,
            ..Self::default()
        }
    }

    /// Adds a child of the body.
    #[must_use]
    pub fn with_body(mut self, element: Element) -> Self {
        self.body.push(element);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, element: Element) -> Self {
        self.headers.push(element);
        self
    }

    /// The first child of the body.
    #[must_use]
    pub fn body(&self) -> Option<&Element> {
        self.body.first()
    }

    /// The fault in the body, if there is one.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.body().and_then(Fault::from_element)
    }

    /// The first header with this name.
    #[must_use]
    pub fn header(&self, name: &Name) -> Option<&Element> {
        self.headers.iter().find(|header| header.name == *name)
    }

    /// The mandatory headers (mustUnderstand) for this receiver that are not in `understood`.
    pub fn not_understood<'a>(
        &'a self,
        understood: &'a [Name],
    ) -> impl Iterator<Item = &'a Element> {
        let must_understand = Name::new(NAMESPACE, "mustUnderstand");
        self.headers.iter().filter(move |header| {
            matches!(header.attribute(&must_understand), Some("true" | "1"))
                && !understood.contains(&header.name)
                && is_for_receiver(header)
        })
    }

    /// Parses XML text under the default limits.
    ///
    /// # Errors
    /// [`Error`] if the bytes are not a SOAP 1.2 message with an action.
    pub fn parse(document: &[u8]) -> Result<Self, Error> {
        Self::parse_within(document, Limits::default())
    }

    /// Parses XML text under these limits.
    ///
    /// # Errors
    /// [`Error`] if the bytes are not a SOAP 1.2 message with an action.
    pub fn parse_within(document: &[u8], limits: Limits) -> Result<Self, Error> {
        Self::from_element(Element::parse_within(document, limits)?)
    }

    /// Converts the tree of a message.
    ///
    /// # Errors
    /// [`Error`] if it is not a SOAP 1.2 message with an action.
    pub fn from_element(mut root: Element) -> Result<Self, Error> {
        if root.name.is(v1_1::NAMESPACE, "Envelope") {
            return Err(Error::VersionMismatch);
        }
        let (mut headers, body) = take_blocks(&mut root, NAMESPACE)?;
        let addressing = Addressing::parse(&mut headers)?;
        Ok(Self {
            addressing,
            headers,
            body,
            namespaces: Vec::new(),
        })
    }

    /// The tree of the message.
    #[must_use]
    pub fn to_element(&self) -> Element {
        let mut tree = Builder::default();
        let written = self.write(&mut tree, |tree| self.write_body(tree));
        match written.and_then(|()| tree.finish()) {
            Ok(element) => element,
            Err(error) => unreachable!("an envelope is one element: {error}"),
        }
    }

    /// The document as text, with the XML declaration that some devices require.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.written(|writer| self.write_body(writer))
    }

    /// The document as text, with the children of the Body that `body` writes.
    pub(crate) fn written(
        &self,
        body: impl FnOnce(&mut Writer) -> Result<(), chappe_xml::Error>,
    ) -> String {
        let mut writer = Writer::lenient().after(DECLARATION);
        // An envelope has one root and balanced ends, and the writer repairs the rest.
        match self.write(&mut writer, body).and_then(|()| writer.finish()) {
            Ok(text) => text,
            Err(error) => unreachable!("an envelope is a document: {error}"),
        }
    }

    /// The document as text with this element as the only child of the Body, if no header is more than a text: the
    /// same text as that of [`Self::written`], without a writer.
    pub(crate) fn written_plainly(&self, body: &str) -> Option<String> {
        let is_plain = self.headers.is_empty()
            && self.namespaces.is_empty()
            && self.addressing.has_texts_alone();
        if !is_plain {
            return None;
        }
        let mut out = String::with_capacity(HEAD_BYTES + body.len());
        let push = |out: &mut String, parts: &[&str]| parts.iter().for_each(|it| out.push_str(it));
        let wsa = self.addressing.version.namespace();
        push(
            &mut out,
            &[DECLARATION, "<soap:Envelope xmlns:soap=\"", NAMESPACE],
        );
        push(&mut out, &["\" xmlns:wsa=\"", wsa, "\"><soap:Header>"]);
        for (local, text) in self.addressing.texts() {
            push(&mut out, &["<wsa:", local, ">"]);
            escape(&mut out, text, false);
            push(&mut out, &["</wsa:", local, ">"]);
        }
        push(
            &mut out,
            &[
                "</soap:Header><soap:Body>",
                body,
                "</soap:Body></soap:Envelope>",
            ],
        );
        Some(out)
    }

    fn write_body(&self, sink: &mut impl EventSink) -> Result<(), chappe_xml::Error> {
        self.body.iter().try_for_each(|element| element.write(sink))
    }

    /// Writes the message with the children of the Body that `body` writes.
    pub(crate) fn write<S: EventSink>(
        &self,
        sink: &mut S,
        body: impl FnOnce(&mut S) -> Result<(), chappe_xml::Error>,
    ) -> Result<(), chappe_xml::Error> {
        let start = |local| Event::StartElement(Name::new(NAMESPACE, local));
        sink.event(start("Envelope"))?;
        let own = [
            ("soap", NAMESPACE),
            ("wsa", self.addressing.version.namespace()),
        ];
        let further = self.namespaces.iter();
        let further = further.map(|(prefix, namespace)| (&**prefix, &**namespace));
        for (prefix, namespace) in own.into_iter().chain(further) {
            sink.event(Event::Namespace {
                prefix: prefix.into(),
                namespace: namespace.into(),
            })?;
        }
        sink.event(start("Header"))?;
        self.addressing.write(sink)?;
        self.headers
            .iter()
            .try_for_each(|header| header.write(sink))?;
        sink.event(Event::EndElement)?;
        sink.event(start("Body"))?;
        body(sink)?;
        sink.event(Event::EndElement)?;
        sink.event(Event::EndElement)
    }
}

/// Whether a header is for the ultimate receiver, which also plays the role `next` (SOAP 1.2 part 1,
/// section 2.2). Others are not processed here.
pub(crate) fn is_for_receiver(header: &Element) -> bool {
    let role = header.attribute(&Name::new(NAMESPACE, "role"));
    let role = role.map(str::trim).filter(|role| !role.is_empty());
    role.is_none_or(|role| {
        let local = role.strip_prefix(NAMESPACE);
        matches!(local, Some("/role/next" | "/role/ultimateReceiver"))
    })
}

/// Removes the children of the Header and of the Body of an envelope in a version's namespace, each
/// with the namespace declarations in scope.
pub(crate) fn take_blocks(
    root: &mut Element,
    version: &str,
) -> Result<(Vec<Element>, Vec<Element>), Error> {
    if !root.name.is(version, "Envelope") {
        return Err(Error::NotEnvelope(root.name.clone()));
    }
    check_structure(root, version)?;
    let headers = take_children(root, version, "Header")?.unwrap_or_default();
    let body = take_children(root, version, "Body")?.ok_or(Error::NoBody)?;
    Ok((headers, body))
}

/// At most one Header, then one Body, nothing else (SOAP 1.2 part 1, section 5.1). With two Bodies,
/// validation and dispatch could use different ones.
fn check_structure(root: &Element, version: &str) -> Result<(), Error> {
    let mut expected = ["Header", "Body"].as_slice();
    for child in root.elements() {
        let local = expected
            .iter()
            .position(|local| child.name.is(version, local));
        match local {
            Some(index) => expected = &expected[index + 1..],
            None => return Err(Error::Structure(child.name.clone())),
        }
    }
    Ok(())
}

/// Removes the children of the first `local` child, each with the declarations in scope.
fn take_children(
    root: &mut Element,
    version: &str,
    local: &'static str,
) -> Result<Option<Vec<Element>>, Error> {
    let index = root.children.iter().position(|node| match node {
        chappe_xml::Node::Element(element) => element.name.is(version, local),
        chappe_xml::Node::Text(_) => false,
    });
    let container = index.map(|index| root.children.swap_remove(index));
    let Some(chappe_xml::Node::Element(container)) = container else {
        return Ok(None);
    };
    if container.elements().count() > BLOCKS_MAX {
        return Err(Error::TooManyBlocks(BLOCKS_MAX));
    }
    let in_scope = inherited(&root.namespaces, &container.namespaces);
    let children = container
        .children
        .into_iter()
        .filter_map(|node| match node {
            chappe_xml::Node::Element(mut element) => {
                element.namespaces = inherited(&in_scope, &element.namespaces);
                Some(element)
            }
            chappe_xml::Node::Text(_) => None,
        });
    Ok(Some(children.collect()))
}
