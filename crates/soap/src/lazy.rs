//! Envelopes whose body is read and written by the type of its message, without a tree.
//!
//! [`LazyEnvelope::parse_within`] reads a document once: headers become values, and the body is checked
//! as by [`Envelope::parse_within`], with the same errors, but stays text. Who knows its type reads that
//! text ([`Body::read`]); anybody else makes trees of it ([`LazyEnvelope::into_envelope`]).

use std::sync::Arc;

use bytes::Bytes;
use chappe_xml::text::{Part, Pull};
use chappe_xml::{Element, Limits, Name, Namespace, Str};

use crate::envelope::{BLOCKS_MAX, NAMESPACE};
use crate::message::{self, Message, ReadError, Reader};
use crate::scope::inherited;
use crate::{Addressing, Envelope, Error, Fault, v1_1};

/// A child of a message's body: a tree, or text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A tree, with the namespace declarations in scope.
    Tree(Element),
    /// The text of an element.
    Text(Fragment),
}

/// The text of one element of a document that was read before, or of a message that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    name: Name,
    /// UTF-8.
    text: Bytes,
    /// The declarations in scope, its own among them; empty if its own are all that it uses.
    in_scope: InScope,
}

/// Declarations in scope: prefixes, and namespaces that share their texts with the document's reader.
type InScope = Vec<(Arc<str>, Namespace)>;

/// The same as they are in a tree.
fn declarations(in_scope: &InScope) -> Vec<(Str, Namespace)> {
    let in_scope = in_scope.iter();
    let own =
        in_scope.map(|(prefix, namespace)| (Str::Owned(prefix.to_string()), namespace.clone()));
    own.collect()
}

impl Fragment {
    fn text(&self) -> &str {
        // It was text when the document was read.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Its parts. The limits were checked with the document; its own declarations count twice now, in
    /// scope and in its tag.
    fn pull(&self) -> Pull<'_> {
        let default = Limits::default();
        let limits = Limits {
            bytes: self.text.len(),
            namespaces: default.namespaces.saturating_mul(2),
            ..default
        };
        let in_scope = self.in_scope.iter();
        let in_scope = in_scope.map(|(prefix, namespace)| (prefix, namespace));
        Pull::inside(self.text(), in_scope, limits)
    }

    fn to_element(&self) -> Result<Element, chappe_xml::Error> {
        let mut pull = self.pull();
        pull.next_part()?;
        let mut element = pull.element()?;
        if !self.in_scope.is_empty() {
            element.namespaces = declarations(&self.in_scope);
        }
        Ok(element)
    }
}

impl From<Element> for Body {
    fn from(element: Element) -> Self {
        Self::Tree(element)
    }
}

impl Body {
    /// Writes a message: an element of this name, which must be valid in XML.
    #[must_use]
    pub fn of<T: Message>(namespace: &Namespace, name: &str, message: &T) -> Self {
        Self::Text(Fragment {
            name: Name::inside(namespace, name),
            text: message::to_text(namespace, name, message).into(),
            in_scope: Vec::new(),
        })
    }

    /// The name of the element.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Tree(element) => &element.name,
            Self::Text(fragment) => &fragment.name,
        }
    }

    /// The text of a message that was written by its type.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(fragment) if fragment.in_scope.is_empty() => Some(fragment.text()),
            Self::Tree(_) | Self::Text(_) => None,
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`ReadError`] if it is not one of this type and name.
    pub fn read<T: Message>(&self, namespace: &Namespace, name: &str) -> Result<T, ReadError> {
        self.reading(namespace, |mut reader| reader.root(name))
    }

    /// Reads a message, and ignores elements that its type does not have.
    ///
    /// # Errors
    /// [`ReadError`] if it is not one of this type and name.
    pub fn read_known<T: Message>(
        &self,
        namespace: &Namespace,
        name: &str,
    ) -> Result<T, ReadError> {
        self.reading(namespace, |reader| reader.ignoring_unknown().root(name))
    }

    fn reading<T>(
        &self,
        namespace: &Namespace,
        read: impl FnOnce(Reader<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let limits = Limits::default();
        match self {
            Self::Tree(element) => {
                let mut events = element.events();
                read(Reader::new(&mut events, namespace, limits))
            }
            Self::Text(fragment) => read(Reader::of_text(fragment.pull(), namespace, limits)),
        }
    }

    /// The tree.
    ///
    /// # Errors
    /// A limit is exceeded.
    pub fn into_element(self) -> Result<Element, Error> {
        match self {
            Self::Tree(element) => Ok(element),
            Self::Text(fragment) => Ok(fragment.to_element()?),
        }
    }
}

/// An envelope whose body is read by its type, or made by one.
///
/// ```
/// use chappe_soap::{Addressing, AddressingVersion, Body, Envelope, LazyEnvelope};
/// use chappe_soap::message::Message;
/// use chappe_xml::Limits;
/// #[derive(Message, Debug, PartialEq)]
/// struct Period { seconds: f64 }
/// let namespace = "urn:x".into();
/// let head = Envelope::new(Addressing::new(AddressingVersion::V200508, "urn:x/Set"));
/// let body = vec![Body::of(&namespace, "Set", &Period { seconds: 0.5 })];
/// let text = LazyEnvelope { head, body }.to_text();
/// let received = LazyEnvelope::parse_within(text.into(), Limits::default())?;
/// assert_eq!(received.head.addressing.action, "urn:x/Set");
/// let period: Period = received.body[0].read(&namespace, "Set").unwrap();
/// assert_eq!(period.seconds, 0.5);
/// # Ok::<(), chappe_soap::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LazyEnvelope {
    /// The envelope with an empty body.
    pub head: Envelope,
    /// The children of the body.
    pub body: Vec<Body>,
}

impl From<Envelope> for LazyEnvelope {
    fn from(mut head: Envelope) -> Self {
        let body = std::mem::take(&mut head.body);
        Self {
            head,
            body: body.into_iter().map(Body::Tree).collect(),
        }
    }
}

impl LazyEnvelope {
    /// Parses XML text under these limits.
    ///
    /// # Errors
    /// Those of [`Envelope::parse_within`], the same for each document.
    pub fn parse_within(document: Bytes, limits: Limits) -> Result<Self, Error> {
        let mut pull = Pull::new(&document, limits)?;
        pull.next_part()?;
        let root = pull.name();
        let mut blocks = Blocks::default();
        match root.is(NAMESPACE, "Envelope") {
            true => blocks.read(&mut pull, &document)?,
            false => pull.skip()?,
        }
        while pull.next_part()?.is_some() {}
        // Only now: a document that is not well-formed has no other error.
        if root.is(v1_1::NAMESPACE, "Envelope") {
            return Err(Error::VersionMismatch);
        }
        if !root.is(NAMESPACE, "Envelope") {
            return Err(Error::NotEnvelope(root));
        }
        if let Some(unexpected) = blocks.unexpected {
            return Err(Error::Structure(unexpected));
        }
        let mut headers = blocks.headers.unwrap_or_default();
        let body = blocks.body.ok_or(Error::NoBody);
        for count in [headers.count, body.as_ref().map_or(0, |body| body.count)] {
            if count > BLOCKS_MAX {
                return Err(Error::TooManyBlocks(BLOCKS_MAX));
            }
        }
        let body = body?.read;
        let addressing = Addressing::parse(&mut headers.read)?;
        if !headers.read.is_empty() {
            let in_scope = declarations(&blocks.in_scope);
            for header in &mut headers.read {
                header.namespaces = inherited(&in_scope, &header.namespaces);
            }
        }
        let head = Envelope {
            addressing,
            headers: headers.read,
            body: Vec::new(),
            namespaces: Vec::new(),
        };
        Ok(Self { head, body })
    }

    /// The fault in the body, if there is one.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let first = self.body.first()?;
        if !first.name().is(NAMESPACE, "Fault") {
            return None;
        }
        Fault::from_element(&first.clone().into_element().ok()?)
    }

    /// The envelope with trees.
    ///
    /// # Errors
    /// A limit is exceeded.
    pub fn into_envelope(self) -> Result<Envelope, Error> {
        let trees = self.body.into_iter().map(Body::into_element);
        Ok(Envelope {
            body: trees.collect::<Result<_, _>>()?,
            ..self.head
        })
    }

    /// The document as text, with the XML declaration that some devices require.
    #[must_use]
    pub fn to_text(&self) -> String {
        if let [body] = self.body.as_slice()
            && let Some(body) = body.text()
            && let Some(text) = self.head.written_plainly(body)
        {
            return text;
        }
        self.head.written(|writer| {
            self.body.iter().try_for_each(|body| match body {
                Body::Text(fragment) if fragment.in_scope.is_empty() => writer.raw(fragment.text()),
                Body::Text(fragment) => fragment.to_element()?.write(writer),
                Body::Tree(element) => element.write(writer),
            })
        })
    }
}

/// The children of an envelope.
#[derive(Default)]
struct Blocks {
    headers: Option<Block<Element>>,
    /// The declarations in scope in the Header.
    in_scope: InScope,
    body: Option<Block<Body>>,
    /// The first child that is not allowed there.
    unexpected: Option<Name>,
}

/// The children of a Header or Body: those within the limit, and the number of all.
struct Block<T> {
    read: Vec<T>,
    count: usize,
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        let (read, count) = (Vec::new(), 0);
        Self { read, count }
    }
}

impl Blocks {
    /// Reads the rest of an envelope: at most one Header, then one Body, nothing else (SOAP 1.2 part 1,
    /// section 5.1).
    fn read(&mut self, pull: &mut Pull<'_>, document: &Bytes) -> Result<(), chappe_xml::Error> {
        while pull.depth() > 0 {
            let kind = match pull.next_part()? {
                Some(Part::Start { namespace, local }) => {
                    (*namespace == *NAMESPACE).then_some(local)
                }
                _ => continue,
            };
            let has_body = self.body.is_some();
            match kind {
                Some("Header") if self.headers.is_none() && !has_body => {
                    self.in_scope = pull.in_scope();
                    let mut outer = None;
                    self.headers = Some(children(pull, |pull| {
                        let mut header = pull.element()?;
                        if !is_text_alone(&header) {
                            let outer = outer.get_or_insert_with(|| declarations(&self.in_scope));
                            header.namespaces = inherited(outer, &header.namespaces);
                        }
                        Ok(header)
                    })?);
                }
                Some("Body") if !has_body => {
                    self.body = Some(children(pull, |pull| {
                        let (name, in_scope) = (pull.name(), pull.in_scope());
                        let text = document.slice_ref(pull.outline()?.as_bytes());
                        Ok(Body::Text(Fragment {
                            name,
                            text,
                            in_scope,
                        }))
                    })?);
                }
                _ => {
                    let name = pull.name();
                    self.unexpected.get_or_insert(name);
                    pull.skip()?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a header has no names in its content and attributes, so that it needs no declarations if it is one of
/// WS-Addressing. Reason: nearly all of these are such, and copies of declarations cost more than the rest of a header.
fn is_text_alone(header: &Element) -> bool {
    header.attributes.is_empty() && header.elements().next().is_none()
}

/// Reads the children of the open element.
fn children<T>(
    pull: &mut Pull<'_>,
    mut read: impl FnMut(&mut Pull<'_>) -> Result<T, chappe_xml::Error>,
) -> Result<Block<T>, chappe_xml::Error> {
    let mut block = Block::default();
    let depth = pull.depth();
    while pull.depth() >= depth {
        if !matches!(pull.next_part()?, Some(Part::Start { .. })) {
            continue;
        }
        block.count += 1;
        match block.count > BLOCKS_MAX {
            true => pull.skip()?,
            false => block.read.push(read(pull)?),
        }
    }
    Ok(block)
}
