//! Envelopes whose body is read and written by the type of its message, without a tree.
//!
//! [`LazyEnvelope::parse_within`] reads a document once: headers become values, and the body is checked
//! as by [`Envelope::parse_within`], with the same errors, but stays text. Who knows its type reads that
//! text ([`Body::read`]); anybody else makes trees of it ([`LazyEnvelope::into_envelope`]).

use bytes::Bytes;
use chappe_xml::text::{Part, Pull};
use chappe_xml::{Element, Limits, Name};

use crate::body::{Body, Fragment, InScope, declarations, each_child};
use crate::envelope::{BLOCKS_MAX, NAMESPACE};
use crate::scope::inherited;
use crate::{Addressing, Envelope, Error, Fault, v1_1};

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
        self.body.first().and_then(Fault::from_body)
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
                Body::Text(fragment) if fragment.is_complete() => writer.raw(fragment.text()),
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
                        Ok(Body::Text(Fragment::of(document, pull)?))
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
    each_child(pull, |pull| {
        block.count += 1;
        match block.count > BLOCKS_MAX {
            true => pull.skip()?,
            false => block.read.push(read(pull)?),
        }
        Ok(())
    })?;
    Ok(block)
}
