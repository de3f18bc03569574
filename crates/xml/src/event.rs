//! The event model: what a document is, in order.

use crate::{Error, Name, Value};

/// One event of a document.
///
/// Order within an element: start, namespace declarations, attributes, content, end.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// An element begins.
    StartElement(Name),
    /// A prefix (empty for the default) is bound in the element just started; an empty namespace
    /// unbinds the default.
    Namespace {
        /// The prefix, empty for the default namespace.
        prefix: std::borrow::Cow<'a, str>,
        /// The namespace name.
        namespace: std::borrow::Cow<'a, str>,
    },
    /// An attribute of the element just started.
    Attribute(Name, Value<'a>),
    /// Character data; neighbours may come in several events.
    Text(Value<'a>),
    /// The innermost open element ends.
    EndElement,
}

/// Takes events: a serializer, a tree builder.
pub trait EventSink {
    /// Takes the next event.
    ///
    /// # Errors
    /// When the event does not fit here (an attribute after content) or a limit is reached.
    fn event(&mut self, event: Event<'_>) -> Result<(), Error>;
}

/// Yields events: a parser, a tree walker.
pub trait EventSource {
    /// The next event, or `None` after the root element has ended.
    ///
    /// # Errors
    /// When the input is malformed, truncated or beyond a limit.
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error>;
}
