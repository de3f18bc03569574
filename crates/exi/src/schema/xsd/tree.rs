//! Schema documents as trees, with the lines of their elements and the prefixes in scope.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::XsdError;
use crate::schema::XSD_NAMESPACE;
use crate::text::{Error, TextLimits, read_at};
use crate::{Event, Options};

/// Prefixes in scope.
type Scope = Rc<BTreeMap<String, String>>;

/// An element of a schema document.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) namespace: String,
    pub(super) local: String,
    pub(super) line: usize,
    attributes: Vec<(String, String)>,
    scope: Scope,
    pub(super) children: Vec<Rc<Tree>>,
}

impl Tree {
    /// Reads a document.
    pub(super) fn read(file: &str, document: &[u8]) -> Result<Rc<Tree>, XsdError> {
        let mut stack: Vec<Tree> = Vec::new();
        let mut root = None;
        let mut scope: Scope = Rc::default();
        let take = &mut |line: usize, event: Event<'_>| {
            match event {
                Event::StartElement(name) => {
                    if let Some(open) = stack.last() {
                        scope = open.scope.clone();
                    }
                    stack.push(Tree {
                        namespace: name.namespace.to_owned(),
                        local: name.local.to_owned(),
                        line,
                        attributes: Vec::new(),
                        scope: scope.clone(),
                        children: Vec::new(),
                    });
                }
                Event::Namespace {
                    prefix, namespace, ..
                } => {
                    if let Some(open) = stack.last_mut() {
                        let mut bound = (*open.scope).clone();
                        bound.insert(prefix.to_owned(), namespace.to_owned());
                        open.scope = Rc::new(bound);
                    }
                }
                Event::Attribute(name, value) if name.namespace.is_empty() => {
                    if let Some(open) = stack.last_mut() {
                        let value = alloc::format!("{value}");
                        open.attributes.push((name.local.to_owned(), value));
                    }
                }
                Event::EndElement => {
                    let Some(done) = stack.pop() else {
                        return Ok(());
                    };
                    let done = Rc::new(done);
                    match stack.last_mut() {
                        Some(open) => open.children.push(done),
                        None => root = Some(done),
                    }
                }
                _ => {}
            }
            Ok(())
        };
        let read = read_at(document, &Options::default(), TextLimits::default(), take);
        let wrong = |line, reason| XsdError {
            file: file.to_owned(),
            line,
            reason,
        };
        match (read, root) {
            (Ok(()), Some(root)) if root.is("schema") => Ok(root),
            (Err(Error::Xml { line, reason }), _) => Err(wrong(line, reason)),
            (Err(other), _) => Err(wrong(0, alloc::format!("{other}"))),
            _ => Err(wrong(1, "the root element is not xsd:schema".to_owned())),
        }
    }

    /// Returns true for the XML Schema element with this local name.
    pub(super) fn is(&self, local: &str) -> bool {
        self.local == local && self.namespace == XSD_NAMESPACE
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim_matches([' ', '\t', '\n', '\r']))
    }

    /// An attribute with its white space unchanged.
    pub(super) fn exact(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        matches!(self.attribute(name), Some("true" | "1"))
    }

    /// The namespace to which a prefix is bound.
    pub(super) fn bound(&self, prefix: &str) -> Option<&str> {
        self.scope.get(prefix).map(String::as_str)
    }

    /// Child elements of XML Schema, without annotations.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Rc<Tree>> {
        let schema = |child: &&Rc<Tree>| child.namespace == XSD_NAMESPACE;
        let parts = self.children.iter().filter(schema);
        parts.filter(|child| child.local != "annotation")
    }

    /// The first part with one of these names.
    pub(super) fn part(&self, names: &[&str]) -> Option<&Rc<Tree>> {
        self.parts()
            .find(|child| names.contains(&child.local.as_str()))
    }
}
