//! Namespace declarations in scope, for QNames in content.

use chappe_xml::{Element, Name, Namespace, Str};

/// Merges declarations: `inner` hides `outer`.
pub(crate) fn inherited(
    outer: &[(Str, Namespace)],
    inner: &[(Str, Namespace)],
) -> Vec<(Str, Namespace)> {
    let hidden = |prefix: &Str| inner.iter().any(|(other, _)| other == prefix);
    let outer = outer.iter().filter(|(prefix, _)| !hidden(prefix));
    outer.chain(inner).cloned().collect()
}

/// An element with its ancestors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scoped<'a> {
    pub(crate) element: &'a Element,
    parent: Option<&'a Scoped<'a>>,
}

impl<'a> Scoped<'a> {
    pub(crate) const fn root(element: &'a Element) -> Self {
        Self {
            element,
            parent: None,
        }
    }

    pub(crate) const fn child(&'a self, element: &'a Element) -> Self {
        Self {
            element,
            parent: Some(self),
        }
    }

    /// An attribute without namespace.
    pub(crate) fn attribute(&self, local: &'static str) -> Option<&'a str> {
        self.element.attribute(&Name::local(local)).map(str::trim)
    }

    /// The QName in an attribute without a namespace.
    pub(crate) fn qname(&self, local: &'static str) -> Option<Name> {
        self.resolve(self.attribute(local)?)
    }

    /// Resolves a QName; `None` if its prefix is undeclared.
    pub(crate) fn resolve(&self, text: &str) -> Option<Name> {
        let prefix = text.split_once(':').map_or("", |(prefix, _)| prefix);
        let mut scope = Some(self);
        while let Some(scoped) = scope {
            let bound = scoped
                .element
                .namespaces
                .iter()
                .any(|(known, _)| known == prefix);
            if bound || scoped.parent.is_none() {
                return scoped.element.resolve(&[], text);
            }
            scope = scoped.parent;
        }
        None
    }

    /// A copy of the element with all declarations in scope.
    pub(crate) fn detached(&self) -> Element {
        let mut declarations = self.element.namespaces.clone();
        let mut scope = self.parent;
        while let Some(scoped) = scope {
            declarations = inherited(&scoped.element.namespaces, &declarations);
            scope = scoped.parent;
        }
        Element {
            namespaces: declarations,
            ..self.element.clone()
        }
    }
}
