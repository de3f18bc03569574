//! The event model: a document as a sequence of events.

use crate::{Error, Name, Value};

/// One event of a document.
///
/// Within an element the order is: start, namespace declarations, attributes, content, end.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// Start of an element.
    StartElement(Name),
    /// A namespace declaration on the innermost open element. The prefix is empty for the default
    /// namespace, which an empty namespace unbinds.
    Namespace {
        /// The prefix, empty for the default namespace.
        prefix: std::borrow::Cow<'a, str>,
        /// The namespace name.
        namespace: std::borrow::Cow<'a, str>,
    },
    /// An attribute of the innermost open element.
    Attribute(Name, Value<'a>),
    /// Character data. Adjacent text may be split into several events.
    Text(Value<'a>),
    /// End of the innermost open element.
    EndElement,
}

/// A consumer of events, such as a serializer or a tree builder.
pub trait EventSink {
    /// Handles the next event.
    ///
    /// # Errors
    /// The event is not allowed here (an attribute after content, for example), or a limit is
    /// exceeded.
    fn event(&mut self, event: Event<'_>) -> Result<(), Error>;
}

/// A producer of events, such as a parser or a tree walker.
pub trait EventSource {
    /// Returns the next event, or `None` after the end of the root element.
    ///
    /// # Errors
    /// The input is malformed, truncated or beyond a limit.
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error>;
}
