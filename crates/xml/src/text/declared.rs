//! Namespace declarations in scope while writing, also indexed by namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::scope::Scope;
use crate::Namespace;

/// The declarations of all open elements, also indexed by namespace.
#[derive(Debug, Default)]
pub(super) struct Declared {
    scope: Scope,
    /// The prefixes declared for each namespace, innermost last.
    prefixes: BTreeMap<Namespace, Vec<Arc<str>>>,
}

impl Declared {
    /// Adds a declaration, which must be new at `depth`.
    pub(super) fn add(&mut self, depth: usize, prefix: &str, namespace: &str) {
        let (prefix, namespace) = self.scope.bind(depth, prefix, namespace);
        self.prefixes.entry(namespace).or_default().push(prefix);
    }

    /// Removes the declarations of the element at `depth`.
    pub(super) fn leave(&mut self, depth: usize) {
        while let Some((prefix, namespace)) = self.scope.unbind_last(depth) {
            self.forget(&prefix, &namespace);
        }
    }

    /// Removes a declaration of the element at `depth`, if it exists.
    pub(super) fn remove(&mut self, depth: usize, prefix: &str) {
        if let Some((prefix, namespace)) = self.scope.unbind(depth, prefix) {
            self.forget(&prefix, &namespace);
        }
    }

    fn forget(&mut self, prefix: &str, namespace: &Namespace) {
        let Some(prefixes) = self.prefixes.get_mut(namespace) else {
            return;
        };
        if let Some(index) = prefixes.iter().rposition(|known| **known == *prefix) {
            prefixes.remove(index);
        }
        if prefixes.is_empty() {
            self.prefixes.remove(namespace);
        }
    }

    /// The namespace to which a prefix is bound.
    pub(super) fn namespace(&self, prefix: &str) -> Option<&Namespace> {
        self.scope.bound(prefix).map(|(_, namespace)| namespace)
    }

    /// Returns true if the element at `depth` declares the prefix.
    pub(super) fn is_declared_at(&self, depth: usize, prefix: &str) -> bool {
        self.scope.bound(prefix).is_some_and(|(at, _)| at == depth)
    }

    /// The innermost prefix of a namespace. Attributes cannot use the default namespace.
    pub(super) fn prefix(&self, namespace: &str, attribute: bool) -> Option<Arc<str>> {
        let prefixes = self.prefixes.get(namespace)?.iter().rev();
        let mut usable = prefixes.filter(|prefix| {
            let visible = self
                .namespace(prefix)
                .is_some_and(|bound| *bound == *namespace);
            visible && !(attribute && prefix.is_empty())
        });
        usable.next().cloned()
    }

    /// The declarations of the element at `depth`, in order.
    pub(super) fn of_depth(&self, depth: usize) -> impl Iterator<Item = (&str, &Namespace)> {
        let prefixes = self.scope.declared_at(depth);
        prefixes.filter_map(|prefix| Some((prefix, self.namespace(prefix)?)))
    }
}
