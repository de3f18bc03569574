//! Namespace declarations in scope while reading (Namespaces in XML 1.0, section 6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Namespace, Reason};

pub(crate) const XML: &str = "http://www.w3.org/XML/1998/namespace";
pub(super) const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// The declarations of all open elements.
///
/// The maps are ordered so that lookups stay cheap with any number of declarations and any
/// prefixes. With the few that messages have, a map is one node, searched like a list.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The declarations of each prefix with their depths, innermost last.
    bindings: BTreeMap<Arc<str>, Vec<(usize, Namespace)>>,
    /// The prefixes with their depths, in the order of declaration.
    declared: Vec<(usize, Arc<str>)>,
    /// All namespaces of the document, so that equal ones share their text.
    interned: BTreeSet<Namespace>,
}

/// Explains why a prefix must not be bound to a namespace; none if it may be (section 3).
pub(super) fn forbidden_binding(prefix: &str, namespace: &str) -> Option<&'static str> {
    match (prefix, namespace) {
        ("xml", XML) => None,
        ("xml", _) => Some("the prefix xml is bound to another namespace"),
        ("xmlns", _) => Some("the prefix xmlns is declared"),
        (_, XML) => Some("the xml namespace is bound to another prefix"),
        (_, XMLNS) => Some("the xmlns namespace is declared"),
        (prefix, "") if !prefix.is_empty() => Some("a prefix is unbound"),
        _ => None,
    }
}

impl Scope {
    /// The number of declarations in scope.
    pub(crate) fn len(&self) -> usize {
        self.declared.len()
    }

    /// Checks and adds a declaration of the element at `depth`.
    pub(super) fn declare(
        &mut self,
        depth: usize,
        prefix: &str,
        namespace: &str,
    ) -> Result<(), Reason> {
        if let Some(why) = forbidden_binding(prefix, namespace) {
            return Err(Reason::Malformed(why.into()));
        }
        if self.bound(prefix).is_some_and(|(at, _)| at == depth) {
            return Err(Reason::Malformed(format!(
                "prefix {prefix:?} is declared twice"
            )));
        }
        self.bind(depth, prefix, namespace);
        Ok(())
    }

    /// Adds a declaration without checking it.
    pub(crate) fn bind(
        &mut self,
        depth: usize,
        prefix: &str,
        namespace: &str,
    ) -> (Arc<str>, Namespace) {
        let namespace = self.intern(namespace);
        let prefix = match self.bindings.get_key_value(prefix) {
            Some((prefix, _)) => prefix.clone(),
            None => Arc::from(prefix),
        };
        let bindings = self.bindings.entry(prefix.clone()).or_default();
        bindings.push((depth, namespace.clone()));
        self.declared.push((depth, prefix.clone()));
        (prefix, namespace)
    }

    fn intern(&mut self, namespace: &str) -> Namespace {
        if let Some(known) = self.interned.get(namespace) {
            return known.clone();
        }
        let namespace = Namespace::from(namespace.to_owned());
        self.interned.insert(namespace.clone());
        namespace
    }

    /// The depth and the namespace of the innermost declaration of a prefix.
    pub(crate) fn bound(&self, prefix: &str) -> Option<(usize, &Namespace)> {
        let innermost = self.bindings.get(prefix)?.last()?;
        Some((innermost.0, &innermost.1))
    }

    /// The prefixes that the innermost element, at `depth`, declares, in order.
    pub(crate) fn declared_at(&self, depth: usize) -> impl Iterator<Item = &str> {
        let start = self.declared.partition_point(|(at, _)| *at < depth);
        self.declared[start..].iter().map(|(_, prefix)| &**prefix)
    }

    /// Removes the declarations of the element at `depth`; returns whether it has some.
    pub(crate) fn leave(&mut self, depth: usize) -> bool {
        let before = self.declared.len();
        while self.unbind_last(depth).is_some() {}
        self.declared.len() < before
    }

    /// Removes the last remaining declaration of the element at `depth`.
    pub(super) fn unbind_last(&mut self, depth: usize) -> Option<(Arc<str>, Namespace)> {
        let (_, prefix) = self.declared.pop_if(|(at, _)| *at >= depth)?;
        self.pop_binding(prefix)
    }

    /// Removes a declaration of the innermost element, at `depth`, if it exists.
    pub(super) fn unbind(&mut self, depth: usize, prefix: &str) -> Option<(Arc<str>, Namespace)> {
        let of_element = |(at, known): &(usize, Arc<str>)| *at == depth && **known == *prefix;
        let index = self.declared.iter().rposition(of_element)?;
        let (_, prefix) = self.declared.remove(index);
        self.pop_binding(prefix)
    }

    fn pop_binding(&mut self, prefix: Arc<str>) -> Option<(Arc<str>, Namespace)> {
        let bindings = self.bindings.get_mut(&prefix)?;
        let (_, namespace) = bindings.pop()?;
        if bindings.is_empty() {
            self.bindings.remove(&prefix);
        }
        Some((prefix, namespace))
    }

    /// The declarations that are visible, in the order of declaration.
    pub(crate) fn visible(&self) -> impl Iterator<Item = (&Arc<str>, &Namespace)> {
        self.declared.iter().filter_map(|(depth, prefix)| {
            let (at, namespace) = self.bound(prefix)?;
            (at == *depth).then_some((prefix, namespace))
        })
    }

    /// All bindings in scope. A default namespace that was unbound has an empty namespace.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = (&Arc<str>, &Namespace)> {
        self.bindings
            .iter()
            .filter_map(|(prefix, stack)| Some((prefix, &stack.last()?.1)))
    }

    /// The namespace of a prefix of a name. Attributes ignore the default namespace.
    pub(super) fn resolve(&self, prefix: &str, attribute: bool) -> Result<Namespace, Reason> {
        match self.bound(prefix) {
            _ if prefix.is_empty() && attribute => Ok(Namespace::NONE),
            Some((_, namespace)) => Ok(namespace.clone()),
            None if prefix.is_empty() => Ok(Namespace::NONE),
            None if prefix == "xml" => Ok(Namespace::constant(XML)),
            None => Err(Reason::UnboundPrefix(prefix.chars().take(64).collect())),
        }
    }
}
