//! Converting events to text XML.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::schema::XML_NAMESPACE;
use crate::{Event, Name, Value};

/// A start tag to which attributes may still be added.
struct StartTag {
    namespace: String,
    local: String,
    prefix: Option<String>,
    declared: Vec<(String, String)>,
    attributes: Vec<(String, String)>,
}

/// Writes events as text. Names without a usable prefix get a generated one: `ns0`, `ns1`, …
#[derive(Default)]
pub struct Writer {
    text: String,
    open: Option<StartTag>,
    /// Qualified names of open elements.
    stack: Vec<String>,
    /// Depth, prefix, namespace.
    scope: Vec<(usize, String, String)>,
    generated_prefixes: usize,
}

impl Writer {
    /// Writes the next event.
    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Namespace {
                prefix,
                namespace,
                of_element,
            } => self.namespace(prefix, namespace, *of_element),
            Event::Attribute(name, value) => self.attribute(name, value),
            Event::StartDocument | Event::EndDocument | Event::SelfContained => {}
            event => self.content(event),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.write_start_tag(false);
        self.text
    }

    fn content(&mut self, event: &Event<'_>) {
        if matches!(event, Event::EndElement) && self.open.is_some() {
            self.write_start_tag(true);
            return;
        }
        // A strict schema emits an event even for an empty value.
        if let Event::Characters(
            Value::Text("") | Value::Lexical("") | Value::Base64([]) | Value::Hex([]),
        ) = event
        {
            return;
        }
        self.write_start_tag(false);
        // Writing to a string does not fail.
        let _ = match event {
            Event::StartElement(name) => {
                self.open = Some(StartTag {
                    namespace: name.namespace.to_owned(),
                    local: name.local.to_owned(),
                    prefix: name.prefix.map(str::to_owned),
                    declared: Vec::new(),
                    attributes: Vec::new(),
                });
                Ok(())
            }
            Event::EndElement => {
                let name = self.stack.pop().unwrap_or_default();
                self.close_scope();
                write!(self.text, "</{name}>")
            }
            Event::Characters(value) => {
                let lexical = format!("{value}");
                escape(&lexical, false, &mut self.text);
                Ok(())
            }
            Event::Comment(text) => write!(self.text, "<!--{text}-->"),
            Event::ProcessingInstruction { target, text: "" } => write!(self.text, "<?{target}?>"),
            Event::ProcessingInstruction { target, text } => {
                write!(self.text, "<?{target} {text}?>")
            }
            Event::EntityReference(name) => write!(self.text, "&{name};"),
            Event::DocType {
                name,
                public,
                system,
                text,
            } => {
                let identifiers = match (*public, *system) {
                    ("", "") => String::new(),
                    ("", system) => format!(" SYSTEM \"{system}\""),
                    (public, system) => format!(" PUBLIC \"{public}\" \"{system}\""),
                };
                match *text {
                    "" => writeln!(self.text, "<!DOCTYPE {name}{identifiers}>"),
                    text => writeln!(self.text, "<!DOCTYPE {name}{identifiers} [{text}]>"),
                }
            }
            _ => Ok(()),
        };
    }

    fn close_scope(&mut self) {
        let depth = self.stack.len();
        while self.scope.last().is_some_and(|(at, ..)| *at > depth) {
            self.scope.pop();
        }
    }

    fn namespace(&mut self, prefix: &str, namespace: &str, of_element: bool) {
        let depth = self.stack.len() + 1;
        self.scope
            .push((depth, prefix.to_owned(), namespace.to_owned()));
        if let Some(open) = &mut self.open {
            open.declared
                .push((prefix.to_owned(), namespace.to_owned()));
            if of_element {
                open.prefix = Some(prefix.to_owned());
            }
        }
    }

    fn bound(&self, prefix: &str) -> &str {
        if prefix == "xml" {
            return XML_NAMESPACE;
        }
        let found = self
            .scope
            .iter()
            .rev()
            .find(|(_, bound, _)| bound == prefix);
        found.map_or("", |(_, _, namespace)| namespace)
    }

    /// A qualified name; its prefix is declared if necessary.
    fn qualified(&mut self, name: &Name<'_>, element: bool) -> String {
        let prefix = match name.prefix {
            Some(prefix)
                if (element || !prefix.is_empty() || name.namespace.is_empty())
                    && self.bound(prefix) == name.namespace =>
            {
                prefix.to_owned()
            }
            _ => self.prefix_for(name.namespace, element),
        };
        match prefix.as_str() {
            "" => name.local.to_owned(),
            prefix => format!("{prefix}:{}", name.local),
        }
    }

    fn prefix_for(&mut self, namespace: &str, element: bool) -> String {
        if namespace == XML_NAMESPACE {
            return "xml".to_owned();
        }
        if namespace.is_empty() {
            if element && !self.bound("").is_empty() {
                self.namespace("", "", false);
            }
            return String::new();
        }
        let known = self.scope.iter().rev().map(|(_, prefix, _)| prefix);
        let known = known.filter(|prefix| element || !prefix.is_empty());
        if let Some(prefix) = known.clone().find(|prefix| self.bound(prefix) == namespace) {
            return prefix.clone();
        }
        let prefix = loop {
            let prefix = format!("ns{}", self.generated_prefixes);
            self.generated_prefixes += 1;
            if self.bound(&prefix).is_empty() {
                break prefix;
            }
        };
        self.namespace(&prefix, namespace, false);
        prefix
    }

    fn attribute(&mut self, name: &Name<'_>, value: &Value<'_>) {
        let qualified = self.qualified(name, false);
        let lexical = match value {
            Value::QName {
                namespace,
                local,
                prefix,
            } => self.qualified(
                &Name {
                    namespace,
                    local,
                    prefix: *prefix,
                },
                true,
            ),
            value => format!("{value}"),
        };
        if let Some(open) = &mut self.open {
            open.attributes.push((qualified, lexical));
        }
    }

    /// Writes the open start tag, as an empty-element tag if `empty`.
    fn write_start_tag(&mut self, empty: bool) {
        let Some(open) = &self.open else { return };
        let (namespace, local, prefix) = (
            open.namespace.clone(),
            open.local.clone(),
            open.prefix.clone(),
        );
        let name = self.qualified(
            &Name {
                namespace: &namespace,
                local: &local,
                prefix: prefix.as_deref(),
            },
            true,
        );
        let Some(open) = self.open.take() else { return };
        self.text.push('<');
        self.text.push_str(&name);
        for (prefix, namespace) in &open.declared {
            let colon = if prefix.is_empty() { "" } else { ":" };
            let _ = write!(self.text, " xmlns{colon}{prefix}=\"");
            escape(namespace, true, &mut self.text);
            self.text.push('"');
        }
        for (name, value) in &open.attributes {
            let _ = write!(self.text, " {name}=\"");
            escape(value, true, &mut self.text);
            self.text.push('"');
        }
        if empty {
            self.text.push_str("/>");
            self.close_scope();
        } else {
            self.text.push('>');
            self.stack.push(name);
        }
    }
}

fn escape(text: &str, attribute: bool, out: &mut String) {
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\r' => out.push_str("&#13;"),
            '"' if attribute => out.push_str("&quot;"),
            '\n' if attribute => out.push_str("&#10;"),
            '\t' if attribute => out.push_str("&#9;"),
            other => out.push(other),
        }
    }
}
