//! Events to text XML.

use std::fmt::Write as _;

use crate::{Error, Event, EventSink, Name, Value};

/// Writes one document into a string, without declaration and without added white space.
///
/// A prefix is taken from the declarations in scope; a namespace that has none gets `ns1`, `ns2`, …
/// Callers who want given prefixes send [`Event::Namespace`]. Some devices read only the prefixes
/// they know, so a declaration is written exactly as it was sent.
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
}

#[derive(Debug)]
struct Start {
    name: Name,
    attributes: Vec<(Name, String)>,
    /// Where the declarations of this element begin in the scope.
    declarations: usize,
}

impl Writer {
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

    fn qualified(&mut self, name: &Name, attribute: bool) -> String {
        if name.namespace.is_empty() {
            if !attribute
                && self
                    .default_namespace()
                    .is_some_and(|bound| !bound.is_empty())
            {
                let depth = self.open.len() + 1;
                self.scope.push((depth, String::new(), String::new()));
            }
            return name.local.clone().into_owned();
        }
        if name.namespace == "http://www.w3.org/XML/1998/namespace" {
            return format!("xml:{}", name.local);
        }
        match self.prefix(&name.namespace, attribute) {
            prefix if prefix.is_empty() => name.local.clone().into_owned(),
            prefix => format!("{prefix}:{}", name.local),
        }
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
    fn close_start(&mut self) {
        let Some(start) = self.start.take() else {
            return;
        };
        let name = self.qualified(&start.name, false);
        let attributes: Vec<_> = start
            .attributes
            .iter()
            .map(|(name, value)| (self.qualified(name, true), value))
            .collect();
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
    }
}

impl EventSink for Writer {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::StartElement(name) => {
                self.close_start();
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
            Event::Namespace { prefix, namespace } => {
                if self.start.is_none() {
                    return Err(Error::misuse("a namespace declaration after content"));
                }
                let depth = self.open.len() + 1;
                self.scope
                    .push((depth, prefix.into_owned(), namespace.into_owned()));
            }
            Event::Attribute(name, value) => match &mut self.start {
                Some(start) => start
                    .attributes
                    .push((name, value.into_lexical().into_owned())),
                None => return Err(Error::misuse("an attribute after content")),
            },
            Event::Text(value) => {
                self.close_start();
                if self.open.is_empty() {
                    return Err(Error::misuse("text outside the root element"));
                }
                match value {
                    Value::Text(text) => escape(&mut self.out, &text, false),
                    other => {
                        let _ = write!(self.out, "{other}");
                    }
                }
            }
            Event::EndElement => {
                let empty = self.start.is_some();
                self.close_start();
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

/// Escapes what must be, and drops characters that no XML document can hold.
fn escape(out: &mut String, text: &str, attribute: bool) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' if attribute => out.push_str("&quot;"),
            '\t' | '\n' if attribute => {
                let _ = write!(out, "&#{};", c as u32);
            }
            '\r' => out.push_str("&#13;"),
            '\u{0}'..='\u{8}'
            | '\u{b}'
            | '\u{c}'
            | '\u{e}'..='\u{1f}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
}
