//! Writing events as text XML.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::chars::{is_char, is_ncname, repaired_ncname};
use super::declared::Declared;
use super::scope::{XML, XMLNS, forbidden_binding};
use crate::{Error, Event, EventSink, Name, Value};

/// Writes one document to a string, without an XML declaration and without extra white space.
///
/// Prefixes are taken from the declarations in scope; a namespace without one gets `ns1`, `ns2`, …
/// To choose prefixes, send [`Event::Namespace`]. Some devices accept only the prefixes that they
/// know, so a declaration is written exactly as it was sent. It is omitted only if it contradicts
/// the element's own name (a default namespace on an element in no namespace) or an earlier
/// declaration on the same element.
///
/// Invalid content is an error: malformed names, bindings of reserved prefixes, repeated
/// attributes. Characters that XML does not allow become U+FFFD.
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
    declared: Declared,
    /// Where `out` has the qualified names of the open elements, for their end tags.
    open: Vec<Range<usize>>,
    /// The name of the open start tag, to which declarations and attributes may still be added.
    start: Option<Name>,
    /// The attributes of the open start tag, each with the place of its value in `values`.
    attributes: Vec<(Name, Range<usize>)>,
    values: String,
    generated: usize,
    ended: bool,
    /// True if invalid content is repaired or omitted, and not an error.
    repairs: bool,
}

/// A qualified name.
#[derive(Debug, PartialEq)]
struct Qualified<'n> {
    prefix: Prefix,
    local: Cow<'n, str>,
}

#[derive(Debug, PartialEq)]
enum Prefix {
    None,
    Xml,
    Declared(Arc<str>),
}

impl Qualified<'_> {
    fn write(&self, out: &mut String) {
        let prefix = match &self.prefix {
            Prefix::None => "",
            Prefix::Xml => "xml",
            Prefix::Declared(prefix) => prefix,
        };
        if !prefix.is_empty() {
            out.push_str(prefix);
            out.push(':');
        }
        out.push_str(&self.local);
    }
}

impl Writer {
    /// Creates a writer that replaces invalid characters of names with underscores, and omits
    /// invalid declarations and attributes, in place of failing.
    #[must_use]
    pub fn lenient() -> Self {
        Self {
            repairs: true,
            ..Self::default()
        }
    }

    /// Starts the document with this text, such as an XML declaration.
    #[must_use]
    pub fn after(mut self, text: &str) -> Self {
        self.out.push_str(text);
        self
    }

    /// Writes a child of the open element as it is: a well-formed element that declares all namespaces
    /// that it uses.
    ///
    /// # Errors
    /// No element is open.
    pub fn raw(&mut self, element: &str) -> Result<(), Error> {
        self.close_start()?;
        if self.open.is_empty() {
            return Err(Error::misuse("text outside the root element"));
        }
        self.out.push_str(element);
        Ok(())
    }

    /// Returns the document.
    ///
    /// # Errors
    /// The root element is missing or still open.
    pub fn finish(self) -> Result<String, Error> {
        if !self.ended {
            return Err(Error::misuse("the document is incomplete"));
        }
        Ok(self.out)
    }

    /// The bytes written so far, without those of the last start tag while it may still get attributes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// The depth of the element of the open start tag.
    fn depth(&self) -> usize {
        self.open.len() + 1
    }

    /// The prefix for a name in `namespace`, declared if necessary.
    fn prefix(&mut self, namespace: &str, attribute: bool) -> Arc<str> {
        if let Some(prefix) = self.declared.prefix(namespace, attribute) {
            return prefix;
        }
        let prefix = loop {
            self.generated += 1;
            let prefix = format!("ns{}", self.generated);
            if self.declared.namespace(&prefix).is_none() {
                break prefix;
            }
        };
        self.declared.add(self.depth(), &prefix, namespace);
        prefix.into()
    }

    /// Checks the local part.
    fn local<'n>(&self, name: &'n Name) -> Result<Cow<'n, str>, Error> {
        match is_ncname(&name.local) {
            true => Ok(Cow::Borrowed(&name.local)),
            false if self.repairs => Ok(Cow::Owned(repaired_ncname(&name.local))),
            false => Err(Error::misuse("a name is not a valid XML name")),
        }
    }

    /// Checks the namespace.
    fn namespace<'n>(&self, name: &'n Name) -> Result<Cow<'n, str>, Error> {
        match &*name.namespace {
            XMLNS if self.repairs => Ok(Cow::Borrowed("")),
            XMLNS => Err(Error::misuse("a name is in the xmlns namespace")),
            // Replace characters here as in declarations, so that both match.
            namespace => Ok(writable(namespace)),
        }
    }

    fn qualified<'n>(&mut self, name: &'n Name, attribute: bool) -> Result<Qualified<'n>, Error> {
        let local = self.local(name)?;
        let namespace = self.namespace(name)?;
        let prefix = if namespace.is_empty() {
            let default = self.declared.namespace("");
            if !attribute && default.is_some_and(|bound| !bound.is_empty()) {
                let depth = self.depth();
                self.declared.remove(depth, "");
                self.declared.add(depth, "", "");
            }
            Prefix::None
        } else if namespace == XML {
            Prefix::Xml
        } else {
            Prefix::Declared(self.prefix(&namespace, attribute))
        };
        Ok(Qualified { prefix, local })
    }

    /// Adds a declaration to the open start tag.
    fn declare(&mut self, prefix: &str, namespace: &str) -> Result<(), Error> {
        if self.start.is_none() {
            return Err(Error::misuse("a namespace declaration after content"));
        }
        let well_named = prefix.is_empty() || is_ncname(prefix);
        if !well_named || forbidden_binding(prefix, namespace).is_some() {
            return match self.repairs {
                true => Ok(()),
                false => Err(Error::misuse(
                    "a namespace declaration has an invalid or reserved prefix",
                )),
            };
        }
        let depth = self.depth();
        if !self.declared.is_declared_at(depth, prefix) {
            self.declared.add(depth, prefix, &writable(namespace));
        }
        Ok(())
    }

    fn attribute(&mut self, name: Name, value: Value<'_>) -> Result<(), Error> {
        if self.start.is_none() {
            return Err(Error::misuse("an attribute after content"));
        }
        if self.attributes.iter().any(|(other, _)| *other == name) {
            return match self.repairs {
                true => Ok(()),
                false => Err(Error::misuse("an attribute is repeated")),
            };
        }
        if name.namespace.is_empty() && name.local == "xmlns" {
            return match self.repairs {
                true => Ok(()),
                false => Err(Error::misuse(
                    "a namespace declaration was sent as an attribute",
                )),
            };
        }
        let start = self.values.len();
        self.values.push_str(&value.lexical());
        self.attributes.push((name, start..self.values.len()));
        Ok(())
    }

    /// Writes the open start tag.
    fn close_start(&mut self) -> Result<(), Error> {
        let Some(name) = self.start.take() else {
            return Ok(());
        };
        let name = self.qualified(&name, false)?;
        let attributes = std::mem::take(&mut self.attributes);
        let mut named: Vec<(Qualified<'_>, Range<usize>)> = Vec::with_capacity(attributes.len());
        for (attribute, value) in &attributes {
            let qualified = self.qualified(attribute, true)?;
            // Repaired names may have become equal.
            if named.iter().all(|(other, _)| *other != qualified) {
                named.push((qualified, value.clone()));
            }
        }
        self.out.push('<');
        let start = self.out.len();
        name.write(&mut self.out);
        let name = start..self.out.len();
        for (prefix, namespace) in self.declared.of_depth(self.open.len() + 1) {
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
        for (name, value) in named {
            self.out.push(' ');
            name.write(&mut self.out);
            self.out.push_str("=\"");
            let value = self.values.get(value).unwrap_or_default();
            escape(&mut self.out, value, true);
            self.out.push('"');
        }
        self.out.push('>');
        self.open.push(name);
        // The next start tag uses the same memory.
        self.attributes = attributes;
        self.attributes.clear();
        self.values.clear();
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
                self.start = Some(name);
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
                    return Err(Error::misuse("an end tag has no start tag"));
                };
                if empty {
                    self.out.pop();
                    self.out.push_str("/>");
                } else {
                    self.out.push_str("</");
                    self.out.extend_from_within(name);
                    self.out.push('>');
                }
                self.declared.leave(self.depth());
                self.ended = self.open.is_empty();
            }
        }
        Ok(())
    }
}

/// Replaces characters that XML does not allow with U+FFFD.
fn writable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_char) {
        return Cow::Borrowed(text);
    }
    let replaced = text
        .chars()
        .map(|c| if is_char(c) { c } else { '\u{fffd}' });
    Cow::Owned(replaced.collect())
}

/// Appends a text, or the value of an attribute in double quotes: markup is escaped, and characters that
/// XML does not allow are replaced with U+FFFD.
pub fn escape(out: &mut String, text: &str, is_attribute: bool) {
    // U+FFFE and U+FFFF start with 0xef.
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'<' | b'>' | b'&' | b'"' | 0xef);
    let plain = text.bytes().fold(true, |all, byte| all & is_plain(byte));
    if plain {
        out.push_str(text);
        return;
    }
    let mut written = 0;
    for (at, c) in text.char_indices() {
        let instead = match c {
            '<' => "&lt;",
            '>' => "&gt;",
            '&' => "&amp;",
            '"' if is_attribute => "&quot;",
            '\t' if is_attribute => "&#9;",
            '\n' if is_attribute => "&#10;",
            '\r' => "&#13;",
            other if is_char(other) => continue,
            _ => "\u{fffd}",
        };
        out.push_str(text.get(written..at).unwrap_or_default());
        out.push_str(instead);
        written = at + c.len_utf8();
    }
    out.push_str(text.get(written..).unwrap_or_default());
}
