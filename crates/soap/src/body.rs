//! The children of a message's body, and of a fault's detail: trees, or texts that their types read and write.

use std::sync::Arc;

use bytes::Bytes;
use chappe_xml::text::{Part, Pull};
use chappe_xml::{Element, Limits, Name, Namespace, Str};

use crate::message::{self, Message, ReadError, Reader};

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
pub(crate) type InScope = Vec<(Arc<str>, Namespace)>;

/// The same as they are in a tree.
pub(crate) fn declarations(in_scope: &InScope) -> Vec<(Str, Namespace)> {
    let in_scope = in_scope.iter();
    let own =
        in_scope.map(|(prefix, namespace)| (Str::Owned(prefix.to_string()), namespace.clone()));
    own.collect()
}

impl Fragment {
    /// The element whose start was read from this document, or from a part of it.
    pub(crate) fn of(document: &Bytes, pull: &mut Pull<'_>) -> Result<Self, chappe_xml::Error> {
        let (name, in_scope) = (pull.name(), pull.in_scope());
        let text = document.slice_ref(pull.outline()?.as_bytes());
        Ok(Self {
            name,
            text,
            in_scope,
        })
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// A child whose start was read from [`Self::pull`].
    pub(crate) fn child(&self, pull: &mut Pull<'_>) -> Result<Self, chappe_xml::Error> {
        Self::of(&self.text, pull)
    }

    /// Whether its own declarations are all that it uses.
    pub(crate) fn is_complete(&self) -> bool {
        self.in_scope.is_empty()
    }

    pub(crate) fn text(&self) -> &str {
        // It was text when the document was read.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Its parts. The limits were checked with the document; its own declarations count twice now, in
    /// scope and in its tag.
    pub(crate) fn pull(&self) -> Pull<'_> {
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

    pub(crate) fn to_element(&self) -> Result<Element, chappe_xml::Error> {
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
        let text = message::to_text(namespace, name, message);
        Self::written(Name::inside(namespace, name), text)
    }

    /// The text of one element, whose own declarations are all that it uses.
    pub(crate) fn written(name: Name, text: String) -> Self {
        Self::Text(Fragment {
            name,
            text: text.into(),
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
            Self::Text(fragment) if fragment.is_complete() => Some(fragment.text()),
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
    pub fn into_element(self) -> Result<Element, chappe_xml::Error> {
        match self {
            Self::Tree(element) => Ok(element),
            Self::Text(fragment) => fragment.to_element(),
        }
    }
}

/// Reads the children of the open element. `read` gets each after its start, and reads it to its end.
pub(crate) fn each_child(
    pull: &mut Pull<'_>,
    mut read: impl FnMut(&mut Pull<'_>) -> Result<(), chappe_xml::Error>,
) -> Result<(), chappe_xml::Error> {
    let depth = pull.depth();
    while pull.depth() >= depth {
        if matches!(pull.next_part()?, Some(Part::Start { .. })) {
            read(pull)?;
        }
    }
    Ok(())
}
