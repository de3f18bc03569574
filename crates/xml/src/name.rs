//! Expanded names.

use std::borrow::Cow;
use std::fmt;

/// Text that costs nothing when it is a constant.
pub type Str = Cow<'static, str>;

/// An expanded name: namespace and local part (Namespaces in XML 1.0, section 2.1).
///
/// Prefixes are no part of a name; an empty namespace means "in no namespace".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name {
    /// The namespace name (a URI), or empty.
    pub namespace: Str,
    /// The local part.
    pub local: Str,
}

impl Name {
    /// A constant name in a namespace.
    #[must_use]
    pub const fn new(namespace: &'static str, local: &'static str) -> Self {
        Self {
            namespace: Cow::Borrowed(namespace),
            local: Cow::Borrowed(local),
        }
    }

    /// A constant name in no namespace.
    #[must_use]
    pub const fn local(local: &'static str) -> Self {
        Self::new("", local)
    }

    /// A name made at run time.
    #[must_use]
    pub fn owned(namespace: impl Into<String>, local: impl Into<String>) -> Self {
        Self {
            namespace: Cow::Owned(namespace.into()),
            local: Cow::Owned(local.into()),
        }
    }

    /// Whether both parts are these.
    #[must_use]
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.local == local && self.namespace == namespace
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
