//! Events to text XML.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::chars::{is_char, is_ncname, mended_ncname};
use super::scope::{XML, XMLNS, forbidden_binding};
use crate::{Error, Event, EventSink, Name, Value};

/// Writes one document into a string, without declaration and without added white space.
///
/// A prefix is taken from the declarations in scope; a namespace that has none gets `ns1`, `ns2`, …
/// Callers who want given prefixes send [`Event::Namespace`]. Some devices read only the prefixes
/// they know, so a declaration is written exactly as it was sent, unless it contradicts the
/// element's own name (a default namespace on an element in no namespace) or an earlier declaration
/// on the same element: then it is left out.
///
/// What no document can hold is refused: names that are none, bindings of reserved prefixes,
/// repeated attributes. Characters that no document can hold become U+FFFD.
///
/// ```
/// use chappe_xml::{Event, EventSink, Name, text::Writer};
/// let mut writer = Writer::default();
/// writer.event(Event::StartElement(Name::new("urn:x", "a")))?;
/// writer.event(Event::Namespace { prefix: "x".into(), namespace: "urn:x".into() })?;
/// writer.event(Event::Text(7.into()))?;
/// writer.event(Event::EndElement)?;
/// assert_eq!(writer.finish()?, "<x:a xmlns:x=\"urn:x\">7</x:a>");
/// # Ok::<(), chappe_xml::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Writer {
    out: String,
    /// Declarations in scope, with the depth at which each was made.
    scope: Vec<(usize, String, String)>,
    /// Qualified names of the open elements, for their end tags.
    open: Vec<String>,
    /// The start tag that still takes declarations and attributes.
    start: Option<Start>,
    generated: usize,
    ended: bool,
    /// Whether what would be refused is mended instead.
    mending: bool,
}

#[derive(Debug)]
struct Start {
    name: Name,
    attributes: Vec<(Name, String)>,
    /// Where the declarations of this element begin in the scope.
    declarations: usize,
}

impl Writer {
    /// A writer that puts underscores for what a name may not hold, and leaves out declarations and
    /// attributes that may not stand, instead of refusing them.
    #[must_use]
    pub fn mending() -> Self {
        Self {
            mending: true,
            ..Self::default()
        }
    }

    /// The document.
    ///
    /// # Errors
    /// When the root element is missing or still open.
    pub fn finish(self) -> Result<String, Error> {
        if !self.ended {
            return Err(Error::misuse("the document is not complete"));
        }
        Ok(self.out)
    }

    /// The prefix that a name in `namespace` takes here, declared at need.
    fn prefix(&mut self, namespace: &str, attribute: bool) -> String {
        let depth = self.open.len() + 1;
        let found = self
            .scope
            .iter()
            .enumerate()
            .rev()
            .find(|(index, (_, prefix, bound))| {
                let shadowed = self.scope[index + 1..]
                    .iter()
                    .any(|(_, other, _)| other == prefix);
                bound == namespace && !shadowed && !(attribute && prefix.is_empty())
            });
        if let Some((_, (_, prefix, _))) = found {
            return prefix.clone();
        }
        let prefix = loop {
            self.generated += 1;
            let prefix = format!("ns{}", self.generated);
            if self.scope.iter().all(|(_, other, _)| *other != prefix) {
                break prefix;
            }
        };
        self.scope
            .push((depth, prefix.clone(), namespace.to_owned()));
        prefix
    }

    /// The local part, checked.
    fn local<'n>(&self, name: &'n Name) -> Result<Cow<'n, str>, Error> {
        match is_ncname(&name.local) {
            true => Ok(Cow::Borrowed(&name.local)),
            false if self.mending => Ok(Cow::Owned(mended_ncname(&name.local))),
            false => Err(Error::misuse("a name that is no XML name")),
        }
    }

    /// The namespace, checked.
    fn namespace<'n>(&self, name: &'n Name) -> Result<Cow<'n, str>, Error> {
        match &*name.namespace {
            XMLNS if self.mending => Ok(Cow::Borrowed("")),
            XMLNS => Err(Error::misuse("a name in the namespace of xmlns")),
            // What cannot be written must not differ from the declaration that was sent.
            namespace => Ok(writable(namespace)),
        }
    }

    fn qualified(&mut self, name: &Name, attribute: bool) -> Result<String, Error> {
        let local = self.local(name)?;
        let namespace = self.namespace(name)?;
        if namespace.is_empty() {
            if !attribute
                && self
                    .default_namespace()
                    .is_some_and(|bound| !bound.is_empty())
            {
                let depth = self.open.len() + 1;
                self.scope
                    .retain(|(at, prefix, _)| *at != depth || !prefix.is_empty());
                self.scope.push((depth, String::new(), String::new()));
            }
            return Ok(local.into_owned());
        }
        if namespace == XML {
            return Ok(format!("xml:{local}"));
        }
        Ok(match self.prefix(&namespace, attribute) {
            prefix if prefix.is_empty() => local.into_owned(),
            prefix => format!("{prefix}:{local}"),
        })
    }

    /// Takes a declaration of the waiting start tag.
    fn declare(&mut self, prefix: &str, namespace: &str) -> Result<(), Error> {
        let Some(start) = &self.start else {
            return Err(Error::misuse("a namespace declaration after content"));
        };
        let well_named = prefix.is_empty() || is_ncname(prefix);
        if !well_named || forbidden_binding(prefix, namespace).is_some() {
            return match self.mending {
                true => Ok(()),
                false => Err(Error::misuse("a namespace declaration that may not stand")),
            };
        }
        let own = &self.scope[start.declarations..];
        if own.iter().all(|(_, other, _)| other != prefix) {
            let depth = self.open.len() + 1;
            let namespace = writable(namespace).into_owned();
            self.scope.push((depth, prefix.to_owned(), namespace));
        }
        Ok(())
    }

    fn attribute(&mut self, name: Name, value: Value<'_>) -> Result<(), Error> {
        let Some(start) = &mut self.start else {
            return Err(Error::misuse("an attribute after content"));
        };
        if start.attributes.iter().any(|(other, _)| *other == name) {
            return match self.mending {
                true => Ok(()),
                false => Err(Error::misuse("an attribute repeats")),
            };
        }
        if name.namespace.is_empty() && name.local == "xmlns" {
            return match self.mending {
                true => Ok(()),
                false => Err(Error::misuse("a namespace declaration sent as attribute")),
            };
        }
        let value = value.into_lexical().into_owned();
        start.attributes.push((name, value));
        Ok(())
    }

    fn default_namespace(&self) -> Option<&str> {
        let found = self
            .scope
            .iter()
            .rev()
            .find(|(_, prefix, _)| prefix.is_empty());
        found.map(|(_, _, namespace)| namespace.as_str())
    }

    /// Writes the waiting start tag.
    fn close_start(&mut self) -> Result<(), Error> {
        let Some(start) = self.start.take() else {
            return Ok(());
        };
        let name = self.qualified(&start.name, false)?;
        let mut attributes: Vec<(String, &String)> = Vec::new();
        for (attribute, value) in &start.attributes {
            let qualified = self.qualified(attribute, true)?;
            // Mended names may have become equal.
            if attributes.iter().all(|(other, _)| *other != qualified) {
                attributes.push((qualified, value));
            }
        }
        self.out.push('<');
        self.out.push_str(&name);
        for (_, prefix, namespace) in &self.scope[start.declarations..] {
            self.out.push_str(if prefix.is_empty() {
                " xmlns"
            } else {
                " xmlns:"
            });
            self.out.push_str(prefix);
            self.out.push_str("=\"");
            escape(&mut self.out, namespace, true);
            self.out.push('"');
        }
        for (name, value) in attributes {
            let _ = write!(self.out, " {name}=\"");
            escape(&mut self.out, value, true);
            self.out.push('"');
        }
        self.out.push('>');
        self.open.push(name);
        Ok(())
    }
}

impl EventSink for Writer {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::StartElement(name) => {
                self.close_start()?;
                if self.ended {
                    return Err(Error::misuse("a second root element"));
                }
                let declarations = self.scope.len();
                self.start = Some(Start {
                    name,
                    attributes: Vec::new(),
                    declarations,
                });
            }
            Event::Namespace { prefix, namespace } => self.declare(&prefix, &namespace)?,
            Event::Attribute(name, value) => self.attribute(name, value)?,
            Event::Text(value) => {
                self.close_start()?;
                if self.open.is_empty() {
                    return Err(Error::misuse("text outside the root element"));
                }
                match value {
                    Value::Text(text) => escape(&mut self.out, &text, false),
                    other => {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "{other}");
                    }
                }
            }
            Event::EndElement => {
                let empty = self.start.is_some();
                self.close_start()?;
                let Some(name) = self.open.pop() else {
                    return Err(Error::misuse("an end without a start"));
                };
                if empty {
                    self.out.pop();
                    self.out.push_str("/>");
                } else {
                    let _ = write!(self.out, "</{name}>");
                }
                let depth = self.open.len();
                self.scope.retain(|(at, _, _)| *at <= depth);
                self.ended = self.open.is_empty();
            }
        }
        Ok(())
    }
}

/// The text with U+FFFD for characters that no document can hold.
fn writable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_char) {
        return Cow::Borrowed(text);
    }
    let replaced = text
        .chars()
        .map(|c| if is_char(c) { c } else { '\u{fffd}' });
    Cow::Owned(replaced.collect())
}

/// Escapes what must be, and replaces characters that no document can hold.
fn escape(out: &mut String, text: &str, attribute: bool) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' if attribute => out.push_str("&quot;"),
            '\t' if attribute => out.push_str("&#9;"),
            '\n' if attribute => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            other if is_char(other) => out.push(other),
            _ => out.push('\u{fffd}'),
        }
    }
}
