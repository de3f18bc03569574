//! Expanded names.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Text that needs no allocation if it is a constant.
pub type Str = Cow<'static, str>;

/// A namespace name, shared by all its names. A document states a namespace once and uses it in
/// every element, so a copy for each name would multiply the size of the document.
#[derive(Clone)]
pub struct Namespace(Shared);

#[derive(Clone)]
enum Shared {
    Constant(&'static str),
    Counted(Arc<str>),
}

impl Namespace {
    /// No namespace.
    pub const NONE: Self = Self::constant("");

    /// A namespace known at compile time.
    #[must_use]
    pub const fn constant(namespace: &'static str) -> Self {
        Self(Shared::Constant(namespace))
    }

    /// A copy of a text.
    pub(crate) fn shared(namespace: &str) -> Self {
        Self(Shared::Counted(namespace.into()))
    }

    fn is_same_text(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Shared::Counted(one), Shared::Counted(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Compares two interned namespaces by address, without comparing their texts. Constants are
    /// compared as text.
    pub(crate) fn is_interned_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Shared::Counted(one), Shared::Counted(other)) => Arc::ptr_eq(one, other),
            _ => **self == **other,
        }
    }
}

impl Deref for Namespace {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Shared::Constant(text) => text,
            Shared::Counted(text) => text,
        }
    }
}

impl Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        self
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<&'static str> for Namespace {
    fn from(namespace: &'static str) -> Self {
        Self::constant(namespace)
    }
}

impl From<String> for Namespace {
    fn from(namespace: String) -> Self {
        Self(Shared::Counted(namespace.into()))
    }
}

impl From<Str> for Namespace {
    fn from(namespace: Str) -> Self {
        match namespace {
            Cow::Borrowed(text) => Self::constant(text),
            Cow::Owned(text) => text.into(),
        }
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.is_same_text(other) || **self == **other
    }
}

impl Eq for Namespace {}

impl PartialEq<str> for Namespace {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Namespace {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<Namespace> for &str {
    fn eq(&self, other: &Namespace) -> bool {
        **self == **other
    }
}

impl PartialOrd for Namespace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Namespace {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.is_same_text(other) {
            true => Ordering::Equal,
            false => (**self).cmp(&**other),
        }
    }
}

impl Hash for Namespace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// An expanded name: namespace and local part (Namespaces in XML 1.0, section 2.1).
///
/// A name does not include its prefix. An empty namespace means "in no namespace".
#[derive(Clone, Eq, PartialOrd, Ord, Default)]
pub struct Name {
    /// The namespace name (a URI), or empty.
    pub namespace: Namespace,
    /// The local part.
    pub local: Str,
}

impl Name {
    /// A constant name in a namespace.
    #[must_use]
    pub const fn new(namespace: &'static str, local: &'static str) -> Self {
        Self {
            namespace: Namespace::constant(namespace),
            local: Cow::Borrowed(local),
        }
    }

    /// A constant name in no namespace.
    #[must_use]
    pub const fn local(local: &'static str) -> Self {
        Self::new("", local)
    }

    /// A name created at run time.
    #[must_use]
    pub fn owned(namespace: impl Into<String>, local: impl Into<String>) -> Self {
        Self::inside(&Namespace::from(namespace.into()), local)
    }

    /// A name created at run time that shares its namespace.
    #[must_use]
    pub fn inside(namespace: &Namespace, local: impl Into<String>) -> Self {
        Self {
            namespace: namespace.clone(),
            local: Cow::Owned(local.into()),
        }
    }

    /// Returns true if both parts are equal to these.
    #[must_use]
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.local == local && self.namespace == *namespace
    }
}

// Compare the local parts first: they differ more often and are shorter.
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.local == other.local && self.namespace == other.namespace
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.local.hash(state);
    }
}

/// `{namespace}local`, or only `local` when in no namespace.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.local)
        } else {
            write!(f, "{{{}}}{}", self.namespace, self.local)
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
