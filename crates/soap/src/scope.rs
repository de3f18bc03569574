//! Namespace declarations in scope, for QNames in content.

use chappe_xml::{Element, Name, Namespace, Str};

/// Declarations in scope: `inner` hides `outer`.
pub(crate) fn inherited(
    outer: &[(Str, Namespace)],
    inner: &[(Str, Namespace)],
) -> Vec<(Str, Namespace)> {
    let hidden = |prefix: &Str| inner.iter().any(|(other, _)| other == prefix);
    let outer = outer.iter().filter(|(prefix, _)| !hidden(prefix));
    outer.chain(inner).cloned().collect()
}

/// An element with the elements around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scoped<'a> {
    pub(crate) element: &'a Element,
    around: Option<&'a Scoped<'a>>,
}

impl<'a> Scoped<'a> {
    pub(crate) const fn root(element: &'a Element) -> Self {
        Self {
            element,
            around: None,
        }
    }

    pub(crate) const fn child(&'a self, element: &'a Element) -> Self {
        Self {
            element,
            around: Some(self),
        }
    }

    /// An attribute without namespace.
    pub(crate) fn attribute(&self, local: &'static str) -> Option<&'a str> {
        self.element.attribute(&Name::local(local)).map(str::trim)
    }

    /// The QName in an attribute without namespace.
    pub(crate) fn qname(&self, local: &'static str) -> Option<Name> {
        self.resolve(self.attribute(local)?)
    }

    /// The QName `text` in this scope; `None` when its prefix is not bound.
    pub(crate) fn resolve(&self, text: &str) -> Option<Name> {
        let prefix = text.split_once(':').map_or("", |(prefix, _)| prefix);
        let mut scope = Some(self);
        while let Some(at) = scope {
            let bound = at
                .element
                .namespaces
                .iter()
                .any(|(known, _)| known == prefix);
            if bound || at.around.is_none() {
                return at.element.resolve(&[], text);
            }
            scope = at.around;
        }
        None
    }

    /// A copy of the element that carries all declarations in scope.
    pub(crate) fn detached(&self) -> Element {
        let mut declarations = self.element.namespaces.clone();
        let mut scope = self.around;
        while let Some(at) = scope {
            declarations = inherited(&at.element.namespaces, &declarations);
            scope = at.around;
        }
        Element {
            namespaces: declarations,
            ..self.element.clone()
        }
    }
}
