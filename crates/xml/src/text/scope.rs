//! Namespace declarations in scope while reading (Namespaces in XML 1.0, section 6).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Namespace, Reason};

pub(crate) const XML: &str = "http://www.w3.org/XML/1998/namespace";
pub(super) const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// Namespaces that are searched one by one. Reason: messages of devices have up to ten.
const LISTED_MAX: usize = 16;

/// The declarations of all open elements.
///
/// Lookups stay cheap with any number of declarations and any prefixes, and the few that messages have
/// need no memory of their own but their texts.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// In the order of declaration, outer ones first.
    declared: Vec<Declaration>,
    /// The positions in `declared` of the innermost declaration of each prefix, in the order of prefixes.
    innermost: Vec<usize>,
    interned: Interned,
}

#[derive(Debug)]
struct Declaration {
    depth: usize,
    prefix: Arc<str>,
    namespace: Namespace,
    /// The position of the declaration that this one hides.
    hidden: Option<usize>,
}

/// All namespaces of the document, so that equal ones share their text.
#[derive(Debug, Default)]
struct Interned {
    /// The first ones.
    listed: Vec<Namespace>,
    /// The others.
    ordered: BTreeSet<Namespace>,
}

impl Interned {
    fn known(&self, namespace: &str) -> Option<&Namespace> {
        let listed = self.listed.iter().find(|known| ***known == *namespace);
        listed.or_else(|| self.ordered.get(namespace))
    }

    fn add(&mut self, namespace: &Namespace) {
        match self.listed.len() < LISTED_MAX {
            true => self.listed.push(namespace.clone()),
            false => {
                self.ordered.insert(namespace.clone());
            }
        }
    }
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
        let namespace = match self.interned.known(namespace) {
            Some(known) => known.clone(),
            None => {
                let namespace = Namespace::shared(namespace);
                self.interned.add(&namespace);
                namespace
            }
        };
        let prefix = match self.place(prefix) {
            Ok(place) => self.declared[self.innermost[place]].prefix.clone(),
            Err(_) => Arc::from(prefix),
        };
        self.push(depth, prefix.clone(), namespace.clone());
        (prefix, namespace)
    }

    /// Adds a declaration of another document without checking it; nothing is copied.
    pub(super) fn bind_shared(&mut self, prefix: &Arc<str>, namespace: &Namespace) {
        let known = self.interned.known(namespace).cloned();
        let namespace = known.unwrap_or_else(|| {
            self.interned.add(namespace);
            namespace.clone()
        });
        self.push(0, prefix.clone(), namespace);
    }

    /// The place of a prefix in `innermost`, or where it would be.
    fn place(&self, prefix: &str) -> Result<usize, usize> {
        let declared = &self.declared;
        let order = |at: &usize| (*declared[*at].prefix).cmp(prefix);
        self.innermost.binary_search_by(order)
    }

    fn push(&mut self, depth: usize, prefix: Arc<str>, namespace: Namespace) {
        let at = self.declared.len();
        let hidden = match self.place(&prefix) {
            Ok(place) => Some(std::mem::replace(&mut self.innermost[place], at)),
            Err(place) => {
                self.innermost.insert(place, at);
                None
            }
        };
        self.declared.push(Declaration {
            depth,
            prefix,
            namespace,
            hidden,
        });
    }

    /// Removes the last declaration.
    fn pop(&mut self) -> Option<Declaration> {
        let place = self.place(&self.declared.last()?.prefix).ok()?;
        let last = self.declared.pop()?;
        match last.hidden {
            Some(hidden) => self.innermost[place] = hidden,
            None => {
                self.innermost.remove(place);
            }
        }
        Some(last)
    }

    /// The depth and the namespace of the innermost declaration of a prefix.
    pub(crate) fn bound(&self, prefix: &str) -> Option<(usize, &Namespace)> {
        let at = self.innermost[self.place(prefix).ok()?];
        let innermost = &self.declared[at];
        Some((innermost.depth, &innermost.namespace))
    }

    /// The prefixes that the innermost element, at `depth`, declares, in order.
    pub(crate) fn declared_at(&self, depth: usize) -> impl Iterator<Item = &str> {
        let start = self.declared.partition_point(|it| it.depth < depth);
        self.declared[start..].iter().map(|it| &*it.prefix)
    }

    /// Removes the declarations of the element at `depth`; returns whether it has some.
    pub(crate) fn leave(&mut self, depth: usize) -> bool {
        let before = self.declared.len();
        while self.unbind_last(depth).is_some() {}
        self.declared.len() < before
    }

    /// Removes the last remaining declaration of the element at `depth`.
    pub(super) fn unbind_last(&mut self, depth: usize) -> Option<(Arc<str>, Namespace)> {
        let is_own = self.declared.last().is_some_and(|it| it.depth >= depth);
        let last = is_own.then(|| self.pop())??;
        Some((last.prefix, last.namespace))
    }

    /// Removes a declaration of the innermost element, at `depth`, if it exists.
    pub(super) fn unbind(&mut self, depth: usize, prefix: &str) -> Option<(Arc<str>, Namespace)> {
        let is_it = |it: &Declaration| it.depth == depth && *it.prefix == *prefix;
        let at = self.declared.iter().rposition(is_it)?;
        let later = self.declared.len() - at - 1;
        let later: Vec<Declaration> = (0..later).filter_map(|_| self.pop()).collect();
        let removed = self.pop()?;
        for it in later.into_iter().rev() {
            self.push(it.depth, it.prefix, it.namespace);
        }
        Some((removed.prefix, removed.namespace))
    }

    /// The declarations that are visible, in the order of declaration.
    pub(crate) fn visible(&self) -> impl Iterator<Item = (&Arc<str>, &Namespace)> {
        let declared = self.declared.iter().enumerate();
        let visible = declared.filter(|(at, it)| {
            let place = self.place(&it.prefix);
            place.is_ok_and(|place| self.innermost[place] == *at)
        });
        visible.map(|(_, it)| (&it.prefix, &it.namespace))
    }

    /// All bindings in scope. A default namespace that was unbound has an empty namespace.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = (&Arc<str>, &Namespace)> {
        let innermost = self.innermost.iter().map(|at| &self.declared[*at]);
        innermost.map(|it| (&it.prefix, &it.namespace))
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
