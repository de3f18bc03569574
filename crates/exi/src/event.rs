//! The event model (table 4-1).

use crate::value::Value;

/// A qualified name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The namespace name, or empty.
    pub namespace: &'a str,
    /// The local part.
    pub local: &'a str,
    /// The prefix, where prefixes are preserved; empty for the default namespace. That of an element
    /// is the one of the following [`Event::Namespace`] with `of_element`, if there is one.
    pub prefix: Option<&'a str>,
}

impl<'a> Name<'a> {
    /// A name without a prefix.
    #[must_use]
    pub const fn new(namespace: &'a str, local: &'a str) -> Self {
        Self {
            namespace,
            local,
            prefix: None,
        }
    }

    /// Whether it is the attribute xsi:type or xsi:nil.
    pub(crate) fn is_xsi(&self, local: &str) -> bool {
        self.local == local && self.namespace == crate::schema::XSI_NAMESPACE
    }
}

/// One event of a document.
///
/// Order within an element: start, self-contained, namespace declarations, attributes, content, end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// The document or fragment begins.
    StartDocument,
    /// The document or fragment ends.
    EndDocument,
    /// An element begins.
    StartElement(Name<'a>),
    /// The innermost open element ends.
    EndElement,
    /// An attribute of the element just started.
    Attribute(Name<'a>, Value<'a>),
    /// A prefix (empty for the default) is bound in the element just started; an empty namespace
    /// unbinds it.
    Namespace {
        /// The prefix.
        prefix: &'a str,
        /// The namespace name.
        namespace: &'a str,
        /// It is the prefix of the element itself. Found out when encoding.
        of_element: bool,
    },
    /// Character data.
    Characters(Value<'a>),
    /// A comment.
    Comment(&'a str),
    /// A processing instruction.
    ProcessingInstruction {
        /// Its target.
        target: &'a str,
        /// The rest.
        text: &'a str,
    },
    /// A document type declaration.
    DocType {
        /// The name of the root element.
        name: &'a str,
        /// The public identifier, or empty.
        public: &'a str,
        /// The system identifier, or empty.
        system: &'a str,
        /// The internal subset, or empty.
        text: &'a str,
    },
    /// A reference to an entity that is not resolved.
    EntityReference(&'a str),
    /// The element just started is self-contained.
    SelfContained,
}
