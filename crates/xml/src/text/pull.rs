//! Reading text XML part by part, with names and text borrowed from the document.

use std::borrow::Cow;
use std::sync::Arc;

use super::tokens::{Token, Tokens};
use crate::element::{ELEMENT_BYTES, PART_BYTES};
use crate::{Element, Error, Limits, Name, Namespace, Node, Reason};

/// Reads one document, or one element of a document, by pulling its parts. Comments and processing
/// instructions are skipped; attributes and declarations are those of the last start.
///
/// Trees are read by it too ([`Pull::element`]), so that a reader without a tree sees the same document
/// and the same errors. After an error nothing more is read.
///
/// ```
/// use chappe_xml::{Limits, text::{Part, Pull}};
/// let mut pull = Pull::new(b"<a xmlns='urn:x'><b>1</b></a>", Limits::default())?;
/// let Some(Part::Start { namespace, local }) = pull.next_part()? else { panic!("no element") };
/// assert_eq!((&**namespace, local), ("urn:x", "a"));
/// assert!(matches!(pull.next_part()?, Some(Part::Start { local: "b", .. })));
/// assert_eq!(pull.value()?.as_deref(), Some("1"));
/// assert_eq!(pull.next_part()?, Some(Part::End));
/// assert_eq!(pull.next_part()?, None);
/// # Ok::<(), chappe_xml::Error>(())
/// ```
#[derive(Debug)]
pub struct Pull<'i> {
    tokens: Tokens<'i>,
    limits: Limits,
    /// What is left of the limit of expanded bytes.
    left: usize,
}

/// A part of a document.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'p> {
    /// The start of an element.
    Start {
        /// The namespace of its name.
        namespace: &'p Namespace,
        /// The local part of its name.
        local: &'p str,
    },
    /// Character data. Adjacent text may be split into several parts.
    Text(Cow<'p, str>),
    /// The end of the innermost open element.
    End,
}

impl<'i> Pull<'i> {
    /// Creates a reader of `document` and checks its size and encoding.
    ///
    /// # Errors
    /// The document exceeds the limit or is not UTF-8.
    pub fn new(document: &'i [u8], limits: Limits) -> Result<Self, Error> {
        Ok(Self::of(Tokens::new(document, limits)?, limits))
    }

    /// Creates a reader of one element of a document that was read before, with the declarations
    /// around it.
    pub fn inside<'s>(
        element: &'i str,
        around: impl Iterator<Item = (&'s Arc<str>, &'s Namespace)>,
        limits: Limits,
    ) -> Self {
        Self::of(Tokens::of_element(element, around, limits), limits)
    }

    fn of(tokens: Tokens<'i>, limits: Limits) -> Self {
        Self {
            tokens,
            limits,
            left: limits.expanded_bytes,
        }
    }

    /// The number of open elements.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.tokens.depth()
    }

    /// Charges a part of the tree that the document could become.
    fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        let (limit, bound) = ("expanded_bytes", self.limits.expanded_bytes);
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| Error::at(0, Reason::Limit { limit, bound }))?;
        Ok(())
    }

    /// Reads the rest of the innermost open element if it is a text that is not parsed.
    fn text_and_end(&mut self) -> Result<Option<&'i str>, Error> {
        let text = self.tokens.take_text_and_end()?;
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.charge(PART_BYTES + text.len())?;
        }
        Ok(text)
    }

    fn token(&mut self) -> Result<Option<Token<'i>>, Error> {
        loop {
            let token = self.tokens.next()?;
            let bytes = match &token {
                Some(Token::Instruction(_)) => continue,
                Some(Token::Start) => {
                    let tag = self.tokens.tag();
                    let declarations = tag.declarations.iter();
                    let declarations =
                        declarations.map(|(prefix, name)| PART_BYTES + prefix.len() + name.len());
                    let attributes = tag.attributes.iter().map(|it| {
                        PART_BYTES + it.namespace.len() + it.local.len() + it.value.len()
                    });
                    let parts = declarations.chain(attributes).sum::<usize>();
                    ELEMENT_BYTES + tag.namespace.len() + tag.local.len() + parts
                }
                Some(Token::Text(text)) => PART_BYTES + text.len(),
                Some(Token::End) | None => 0,
            };
            self.charge(bytes)?;
            return Ok(token);
        }
    }

    /// The next part; `None` at the end of the document.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub fn next_part(&mut self) -> Result<Option<Part<'_>>, Error> {
        Ok(match self.token()? {
            Some(Token::Text(text)) => Some(Part::Text(text)),
            Some(Token::End) => Some(Part::End),
            Some(Token::Start | Token::Instruction(_)) => {
                let tag = self.tokens.tag();
                Some(Part::Start {
                    namespace: &tag.namespace,
                    local: tag.local,
                })
            }
            None => None,
        })
    }

    /// The name of the last start.
    #[must_use]
    pub fn name(&self) -> Name {
        self.tokens.tag().name()
    }

    /// The attributes of the last start: namespace, local name and value.
    pub fn attributes(&self) -> impl Iterator<Item = (&Namespace, &str, &str)> {
        let attributes = self.tokens.tag().attributes.iter();
        attributes.map(|it| (&it.namespace, it.local, &*it.value))
    }

    /// Reads the rest of the open element as one text, and its end; `None` if it has a child, whose
    /// start was read then.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub fn value(&mut self) -> Result<Option<Cow<'i, str>>, Error> {
        if let Some(text) = self.text_and_end()? {
            return Ok(Some(Cow::Borrowed(text)));
        }
        let mut value: Option<Cow<'i, str>> = None;
        loop {
            match self.token()? {
                Some(Token::Text(text)) => match &mut value {
                    // References and comments split a text.
                    Some(value) => value.to_mut().push_str(&text),
                    None => value = Some(text),
                },
                Some(Token::End) => return Ok(Some(value.unwrap_or_default())),
                Some(Token::Start) => return Ok(None),
                Some(Token::Instruction(_)) => {}
                None => return Err(Error::at(self.tokens.offset(), Reason::Truncated)),
            }
        }
    }

    /// Reads the rest of the open element, and its end.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub fn skip(&mut self) -> Result<(), Error> {
        let outside = self.depth().saturating_sub(1);
        while self.depth() > outside {
            if self.text_and_end()?.is_none() && self.token()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Right after a start: reads the rest of the element, and returns its text as written.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub fn outline(&mut self) -> Result<&'i str, Error> {
        let start = self.tokens.start();
        self.skip()?;
        let text = self.tokens.slice(start, self.tokens.offset());
        text.ok_or_else(|| Error::misuse("an element is read twice"))
    }

    /// The declarations in scope, outer ones first, without hidden ones.
    #[must_use]
    pub fn in_scope(&self) -> Vec<(Arc<str>, Namespace)> {
        let visible = self.tokens.scope().visible();
        let visible = visible.map(|(prefix, namespace)| (prefix.clone(), namespace.clone()));
        visible.collect()
    }

    /// Right after a start: reads the element as a tree.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub fn element(&mut self) -> Result<Element, Error> {
        let mut open = Vec::new();
        let mut element = self.started();
        // Most headers.
        if let Some(text) = self.text_and_end()? {
            if !text.is_empty() {
                element.push_text(text);
            }
            return Ok(element);
        }
        loop {
            match self.token()? {
                Some(Token::Start) => {
                    let child = self.started();
                    open.push(std::mem::replace(&mut element, child));
                }
                Some(Token::Text(text)) => element.push_text(&text),
                Some(Token::End) => match open.pop() {
                    Some(parent) => {
                        let child = std::mem::replace(&mut element, parent);
                        element.push(Node::Element(child));
                    }
                    None => return Ok(element),
                },
                Some(Token::Instruction(_)) => {}
                None => return Err(Error::at(self.tokens.offset(), Reason::Truncated)),
            }
        }
    }

    /// The element of the last start, without content.
    fn started(&self) -> Element {
        let tag = self.tokens.tag();
        let namespaces = tag.declarations.iter().map(|(prefix, _)| {
            let bound = self.tokens.scope().bound(prefix);
            let namespace = bound.map(|(_, namespace)| namespace.clone());
            (
                Cow::Owned((*prefix).to_owned()),
                namespace.unwrap_or_default(),
            )
        });
        let attributes = tag.attributes.iter();
        let attributes = attributes.map(|it| (it.name(), Cow::Owned(it.value.to_string())));
        Element {
            name: tag.name(),
            namespaces: namespaces.collect(),
            attributes: attributes.collect(),
            children: Vec::new(),
        }
    }
}
