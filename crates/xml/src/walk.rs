//! Trees as a source of events, and events as a tree.

use std::borrow::Cow;

use crate::{Element, Error, Event, EventSink, EventSource, Node, Reason, Value};

/// The events of a tree, in the order in which [`Element::write`] sends them.
///
/// ```
/// use chappe_xml::{Builder, Element, EventSink, EventSource};
/// let tree = Element::parse(b"<a xmlns='urn:x' b='1'>two</a>")?;
/// let (mut events, mut copy) = (tree.events(), Builder::default());
/// while let Some(event) = events.next_event()? {
///     copy.event(event)?;
/// }
/// assert_eq!(copy.finish()?, tree);
/// # Ok::<(), chappe_xml::Error>(())
/// ```
#[derive(Debug)]
pub struct Events<'e> {
    /// The root until its start was returned.
    root: Option<&'e Element>,
    /// The open elements, each with the number of its parts that were returned: declarations, then
    /// attributes, then children.
    open: Vec<(&'e Element, usize)>,
}

impl Element {
    /// The events of this tree.
    #[must_use]
    pub fn events(&self) -> Events<'_> {
        Events {
            root: Some(self),
            open: Vec::new(),
        }
    }
}

impl<'e> Events<'e> {
    fn start(&mut self, element: &'e Element) -> Event<'e> {
        self.open.push((element, 0));
        Event::StartElement(element.name.clone())
    }
}

impl EventSource for Events<'_> {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if let Some(root) = self.root.take() {
            return Ok(Some(self.start(root)));
        }
        let Some((element, returned)) = self.open.last_mut() else {
            return Ok(None);
        };
        let (element, part) = (*element, *returned);
        *returned += 1;
        if let Some((prefix, namespace)) = element.namespaces.get(part) {
            return Ok(Some(Event::Namespace {
                prefix: Cow::Borrowed(prefix),
                namespace: Cow::Borrowed(namespace),
            }));
        }
        let part = part - element.namespaces.len();
        if let Some((name, value)) = element.attributes.get(part) {
            let value = Value::Text(Cow::Borrowed(value));
            return Ok(Some(Event::Attribute(name.clone(), value)));
        }
        match element.children.get(part - element.attributes.len()) {
            Some(Node::Element(child)) => Ok(Some(self.start(child))),
            Some(Node::Text(text)) => Ok(Some(Event::Text(Value::Text(Cow::Borrowed(text))))),
            None => {
                self.open.pop();
                Ok(Some(Event::EndElement))
            }
        }
    }
}

/// Builds a tree from the events of one document.
///
/// It trusts its caller with the size of the tree; [`Element::read_within`] limits it.
#[derive(Debug, Default)]
pub struct Builder {
    open: Vec<Element>,
    root: Option<Element>,
}

impl Builder {
    /// Returns the tree.
    ///
    /// # Errors
    /// The root element is missing or still open.
    pub fn finish(self) -> Result<Element, Error> {
        let truncated = Error::at(0, Reason::Truncated);
        self.root.filter(|_| self.open.is_empty()).ok_or(truncated)
    }
}

impl EventSink for Builder {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::StartElement(name) = event {
            if self.root.is_some() {
                return Err(Error::misuse("a second root element"));
            }
            self.open.push(Element::new(name));
            return Ok(());
        }
        let Some(element) = self.open.last_mut() else {
            return Err(Error::misuse("content outside the root element"));
        };
        match event {
            Event::StartElement(_) => {}
            Event::Namespace { prefix, namespace } => {
                let namespace = namespace.into_owned().into();
                let declaration = (Cow::Owned(prefix.into_owned()), namespace);
                element.namespaces.push(declaration);
            }
            Event::Attribute(name, value) => {
                let value = Cow::Owned(value.into_lexical().into_owned());
                element.attributes.push((name, value));
            }
            Event::Text(value) => element.push_text(&value.lexical()),
            Event::EndElement => {
                let ended = self.open.pop().unwrap_or_default();
                match self.open.last_mut() {
                    Some(parent) => parent.push(Node::Element(ended)),
                    None => self.root = Some(ended),
                }
            }
        }
        Ok(())
    }
}
