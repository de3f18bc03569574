//! The event model (table 4-1).

use crate::value::Value;

/// A qualified name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The namespace name, or empty.
    pub namespace: &'a str,
    /// The local part.
    pub local: &'a str,
    /// The prefix if prefixes are preserved; empty for the default namespace. An element takes its
    /// prefix from a following [`Event::Namespace`] with `of_element`, if there is one.
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

    /// Returns true if this name is `local` in the xsi namespace.
    pub(crate) fn is_xsi(&self, local: &str) -> bool {
        self.local == local && self.namespace == crate::schema::XSI_NAMESPACE
    }
}

/// One event of a document.
///
/// Within an element the order is: start, self-contained mark, namespace declarations, attributes,
/// content, end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// Start of the document or fragment.
    StartDocument,
    /// End of the document or fragment.
    EndDocument,
    /// Start of an element.
    StartElement(Name<'a>),
    /// End of the innermost open element.
    EndElement,
    /// An attribute of the innermost open element.
    Attribute(Name<'a>, Value<'a>),
    /// A namespace declaration on the innermost open element. The prefix is empty for the default
    /// namespace; an empty namespace unbinds the prefix.
    Namespace {
        /// The prefix.
        prefix: &'a str,
        /// The namespace name.
        namespace: &'a str,
        /// This is the prefix of the element itself. The encoder computes it.
        of_element: bool,
    },
    /// Character data.
    Characters(Value<'a>),
    /// A comment.
    Comment(&'a str),
    /// A processing instruction.
    ProcessingInstruction {
        /// The target.
        target: &'a str,
        /// The data after the target.
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
    /// A reference to an entity that was not expanded.
    EntityReference(&'a str),
    /// Marks the innermost open element as self-contained.
    SelfContained,
}
