//! A small owned element tree.

use std::borrow::Cow;

use crate::{
    Builder, Error, Event, EventSink, EventSource, Limits, Name, Namespace, Reason, Str, Value,
    text,
};

/// An element with its namespace declarations, attributes and children.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    /// The expanded name.
    pub name: Name,
    /// Declarations made on this element: prefix (empty for the default) and namespace.
    pub namespaces: Vec<(Str, Namespace)>,
    /// Attributes in document order.
    pub attributes: Vec<(Name, Str)>,
    /// Content in document order.
    pub children: Vec<Node>,
}

/// Content of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A child element.
    Element(Element),
    /// Character data.
    Text(Str),
}

/// Bytes of an element in its parent's vector. Measured: 120, plus spare capacity.
pub(crate) const ELEMENT_BYTES: usize = 192;
/// Bytes of an attribute, a declaration or a text, with its slot in a vector and the overhead of
/// the allocator.
pub(crate) const PART_BYTES: usize = 96;

fn name_bytes(name: &Name) -> usize {
    name.namespace.len() + name.local.len()
}

/// The number of bytes that an event adds to [`Element::expanded_bytes`].
fn expanded_bytes_of(event: &Event<'_>) -> usize {
    match event {
        Event::StartElement(name) => ELEMENT_BYTES + name_bytes(name),
        Event::Namespace { prefix, namespace } => PART_BYTES + prefix.len() + namespace.len(),
        Event::Attribute(name, value) => PART_BYTES + name_bytes(name) + lexical_bytes(value),
        Event::Text(value) => PART_BYTES + lexical_bytes(value),
        Event::EndElement => 0,
    }
}

fn lexical_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) => text.len(),
        // Most numbers are shorter.
        Value::Boolean(_) | Value::Integer(_) | Value::Double(_) => 24,
    }
}

impl Element {
    /// An empty element.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Parses a text document under the default [`Limits`].
    ///
    /// # Errors
    /// When the document is malformed or beyond a limit.
    pub fn parse(document: &[u8]) -> Result<Self, Error> {
        Self::parse_within(document, Limits::default())
    }

    /// Parses a text document under given limits.
    ///
    /// # Errors
    /// When the document is malformed or beyond a limit.
    pub fn parse_within(document: &[u8], limits: Limits) -> Result<Self, Error> {
        let mut pull = text::Pull::new(document, limits)?;
        // A document without a root element is an error of its reader.
        pull.next_part()?;
        let root = pull.element()?;
        while pull.next_part()?.is_some() {}
        Ok(root)
    }

    /// Builds the tree from events, to the end of the document, under the default [`Limits`].
    ///
    /// # Errors
    /// Those of the source, and a tree beyond a limit.
    pub fn read(source: &mut impl EventSource) -> Result<Self, Error> {
        Self::read_within(source, Limits::default())
    }

    /// Builds the tree from events, to the end of the document. The source has its own limits; this
    /// function limits the expanded bytes, because a source may repeat a long text that its
    /// document contains only once.
    ///
    /// # Errors
    /// Those of the source, and a tree beyond a limit.
    pub fn read_within(source: &mut impl EventSource, limits: Limits) -> Result<Self, Error> {
        let mut tree = Builder::default();
        let mut left = limits.expanded_bytes;
        while let Some(event) = source.next_event()? {
            left = left.checked_sub(expanded_bytes_of(&event)).ok_or_else(|| {
                let (limit, bound) = ("expanded_bytes", limits.expanded_bytes);
                Error::at(0, Reason::Limit { limit, bound })
            })?;
            tree.event(event)?;
        }
        tree.finish()
    }

    pub(crate) fn push_text(&mut self, text: &str) {
        match self.children.last_mut() {
            Some(Node::Text(before)) => before.to_mut().push_str(text),
            _ => self.push(Node::Text(Cow::Owned(text.to_owned()))),
        }
    }

    pub(crate) fn push(&mut self, child: Node) {
        // Most elements have one child, a text; the usual initial capacity is four.
        if self.children.is_empty() {
            self.children.reserve_exact(1);
        }
        self.children.push(child);
    }

    /// The approximate size in memory if each name held its own namespace, which bounds the cost of
    /// copying or printing the tree.
    #[must_use]
    pub fn expanded_bytes(&self) -> usize {
        let declarations = self.namespaces.iter();
        let declarations =
            declarations.map(|(prefix, namespace)| PART_BYTES + prefix.len() + namespace.len());
        let attributes = self.attributes.iter();
        let attributes =
            attributes.map(|(name, value)| PART_BYTES + name_bytes(name) + value.len());
        let children = self.children.iter().map(|child| match child {
            Node::Element(element) => element.expanded_bytes(),
            Node::Text(text) => PART_BYTES + text.len(),
        });
        let parts = declarations.chain(attributes).chain(children);
        ELEMENT_BYTES + name_bytes(&self.name) + parts.sum::<usize>()
    }

    /// Sends the tree as events.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write(&self, sink: &mut impl EventSink) -> Result<(), Error> {
        sink.event(Event::StartElement(self.name.clone()))?;
        for (prefix, namespace) in &self.namespaces {
            sink.event(Event::Namespace {
                prefix: Cow::Borrowed(prefix),
                namespace: Cow::Borrowed(namespace),
            })?;
        }
        for (name, value) in &self.attributes {
            sink.event(Event::Attribute(
                name.clone(),
                Value::Text(Cow::Borrowed(value)),
            ))?;
        }
        for child in &self.children {
            match child {
                Node::Element(element) => element.write(sink)?,
                Node::Text(text) => sink.event(Event::Text(Value::Text(Cow::Borrowed(text))))?,
            }
        }
        sink.event(Event::EndElement)
    }

    /// Writes the tree as text, without an XML declaration.
    ///
    /// Invalid content is repaired as [`text::Writer::lenient`] describes; [`Element::write`] fails
    /// in that case.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut writer = text::Writer::lenient();
        // A tree has one root and balanced ends, and the writer repairs the rest.
        match self.write(&mut writer).and_then(|()| writer.finish()) {
            Ok(text) => text,
            Err(error) => unreachable!("a tree is a document: {error}"),
        }
    }

    /// Adds a namespace declaration, to choose a prefix.
    #[must_use]
    pub fn with_namespace(
        mut self,
        prefix: impl Into<Str>,
        namespace: impl Into<Namespace>,
    ) -> Self {
        self.namespaces.push((prefix.into(), namespace.into()));
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: Name, value: impl Into<Str>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Appends character data.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<Str>) -> Self {
        self.push(Node::Text(text.into()));
        self
    }

    /// Appends a child element.
    #[must_use]
    pub fn with_child(mut self, child: Self) -> Self {
        self.push(Node::Element(child));
        self
    }

    /// Appends child elements.
    #[must_use]
    pub fn with_children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children
            .extend(children.into_iter().map(Node::Element));
        self
    }

    /// The child elements in order.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first child element with this name.
    #[must_use]
    pub fn child(&self, name: &Name) -> Option<&Self> {
        self.elements().find(|element| element.name == *name)
    }

    /// All child elements with this name.
    pub fn children_named<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Self> {
        self.elements().filter(move |element| element.name == *name)
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &Name) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| &**value)
    }

    /// The character data of this element alone, untrimmed.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        let mut texts = self.children.iter().filter_map(|child| match child {
            Node::Text(text) => Some(&**text),
            Node::Element(_) => None,
        });
        match (texts.next(), texts.next()) {
            (None, _) => Cow::Borrowed(""),
            (Some(text), None) => Cow::Borrowed(text),
            (Some(first), Some(second)) => {
                let mut all = String::from(first) + second;
                texts.for_each(|text| all.push_str(text));
                Cow::Owned(all)
            }
        }
    }

    /// Resolves a QName in the content of this element, given its ancestors from the root on.
    ///
    /// An unprefixed QName is in the default namespace (XML Schema part 2, section 3.2.18, for
    /// values). `None` if the prefix is not bound.
    #[must_use]
    pub fn resolve(&self, ancestors: &[&Self], qname: &str) -> Option<Name> {
        let (prefix, local) = qname.split_once(':').unwrap_or(("", qname));
        if local.is_empty() || local.contains(':') {
            return None;
        }
        let scopes = std::iter::once(self).chain(ancestors.iter().rev().copied());
        let bound = scopes
            .flat_map(|element| element.namespaces.iter())
            .find(|(declared, _)| declared == prefix)
            .map(|(_, namespace)| namespace);
        match bound {
            Some(namespace) => Some(Name::inside(namespace, local)),
            None if prefix.is_empty() => Some(Name::owned("", local)),
            None if prefix == "xml" => {
                Some(Name::owned("http://www.w3.org/XML/1998/namespace", local))
            }
            None => None,
        }
    }
}
