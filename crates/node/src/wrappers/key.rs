//! The key of a wrapper in the registry, which is also the source of its streams.

/// What every such key begins with.
const PREFIX: &str = "urn:chappe:wrapper:";

/// The key of a wrapper.
pub(crate) fn wrapper_key(wrapper: &str) -> String {
    format!("{PREFIX}{wrapper}")
}

/// The name of the wrapper with this key.
pub(crate) fn wrapper_name(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)
}
