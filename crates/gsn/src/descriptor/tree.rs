//! The elements of a file with their places, and which of their attributes were used.

use std::cell::RefCell;

use chappe_stream::DescriptorError;
use chappe_stream::descriptor::DESCRIPTOR_BYTES_MAX;
use chappe_stream::descriptor::DescriptorFault as Fault;
use chappe_xml::text::Reader;
use chappe_xml::{Event, EventSource as _, Limits};

use super::model::Place;

/// A descriptor has at most six levels, and about ten events for each of its lines.
const LIMITS: Limits = Limits {
    bytes: DESCRIPTOR_BYTES_MAX,
    depth: 16,
    events: 50_000,
    attributes: 64,
    name_bytes: 256,
    namespaces: 16,
    expanded_bytes: 16 << 20,
};

/// A file: its name for errors, and its text without a byte order mark.
#[derive(Clone, Copy)]
pub(super) struct File<'t> {
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

/// An element.
pub(super) struct Tag {
    pub(super) name: String,
    pub(super) place: Place,
    attributes: Vec<(String, String)>,
    children: Vec<Tag>,
    text: String,
    used: RefCell<Vec<String>>,
}

impl<'t> File<'t> {
    pub(super) fn new(name: &'t str, text: &'t str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { name, text }
    }

    /// The line and the column, in characters, of a byte.
    fn place(self, at: usize) -> Place {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Place {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }

    pub(super) fn error(
        self,
        fault: Fault,
        place: Place,
        key: impl Into<String>,
        message: impl Into<String>,
        hint: Option<&str>,
    ) -> DescriptorError {
        DescriptorError {
            fault,
            file: self.name.to_owned(),
            line: place.line,
            column: place.column,
            key: key.into(),
            message: message.into(),
            hint: hint.map(str::to_owned),
        }
    }

    /// Reads the root element.
    pub(super) fn tree(self) -> Result<Tag, DescriptorError> {
        let wrong = |error: chappe_xml::Error| {
            let at = usize::try_from(error.offset).unwrap_or(usize::MAX);
            let reason = error.reason.to_string();
            self.error(Fault::Syntax, self.place(at), "", reason, None)
        };
        let mut reader = Reader::new(self.text.as_bytes(), LIMITS).map_err(wrong)?;
        let mut open: Vec<Tag> = Vec::new();
        // The place of a tag is counted from that of the one before.
        let mut last = (0, Place { line: 1, column: 1 });
        loop {
            let event = reader.next_event().map_err(wrong)?;
            match event {
                Some(Event::StartElement(name)) => {
                    let name = name.local.into_owned();
                    let end = usize::try_from(reader.position()).unwrap_or(usize::MAX);
                    // A tag has no other `<`.
                    let at = self.text.get(..end).and_then(|text| text.rfind('<'));
                    let at = at.unwrap_or_default().max(last.0);
                    last = (at, advanced(last.1, &self.text[last.0..at]));
                    open.push(Tag {
                        name,
                        place: last.1,
                        attributes: Vec::new(),
                        children: Vec::new(),
                        text: String::new(),
                        used: RefCell::default(),
                    });
                }
                Some(Event::Attribute(name, value)) => {
                    let value = value.into_lexical().into_owned();
                    if let Some(tag) = open.last_mut() {
                        tag.attributes.push((name.local.into_owned(), value));
                    }
                }
                Some(Event::Text(value)) => {
                    if let Some(tag) = open.last_mut() {
                        tag.text.push_str(&value.lexical());
                    }
                }
                Some(Event::Namespace { .. }) => {}
                Some(Event::EndElement) => {
                    let Some(ended) = open.pop() else { continue };
                    match open.last_mut() {
                        Some(parent) => parent.children.push(ended),
                        None => {
                            // What follows the root is checked as well.
                            while reader.next_event().map_err(wrong)?.is_some() {}
                            return Ok(ended);
                        }
                    }
                }
                None => {
                    let place = Place { line: 1, column: 1 };
                    return Err(self.error(Fault::Syntax, place, "", "the file is empty", None));
                }
            }
        }
    }
}

fn advanced(mut place: Place, text: &str) -> Place {
    for c in text.chars() {
        match c {
            '\n' => (place.line, place.column) = (place.line + 1, 1),
            _ => place.column += 1,
        }
    }
    place
}

impl Tag {
    /// The value of an attribute, trimmed.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.used.borrow_mut().push(name.to_owned());
        let found = self.attributes.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.trim())
    }

    /// The character data, trimmed.
    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }

    /// The first child with one of these names.
    pub(super) fn child(&self, names: &[&str]) -> Option<&Tag> {
        self.children_named(names).into_iter().next()
    }

    /// The children with one of these names.
    pub(super) fn children_named(&self, names: &[&str]) -> Vec<&Tag> {
        let mut used = self.used.borrow_mut();
        used.extend(names.iter().map(|name| format!("<{name}>")));
        let children = self.children.iter();
        children
            .filter(|child| names.contains(&child.name.as_str()))
            .collect()
    }

    /// Attributes and children that were not asked for, with their places.
    pub(super) fn unused(&self) -> Vec<(Place, String)> {
        let used = self.used.borrow();
        let is_unused = |name: &String| !used.contains(name);
        let attributes = self.attributes.iter();
        let attributes = attributes
            .filter(|(name, _)| is_unused(name))
            .map(|(name, _)| (self.place, format!("@{name}")));
        let children = self.children.iter();
        let children = children
            .filter(|child| is_unused(&format!("<{}>", child.name)))
            .map(|child| (child.place, format!("/{}", child.name)));
        attributes.chain(children).collect()
    }
}
