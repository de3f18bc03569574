//! Secrets in paths and headers of links over HTTP.

use crate::LinkHost;

/// A secret of 128 random bits.
pub(super) fn new(host: &dyn LinkHost) -> String {
    format!("{:016x}{:016x}", host.random(), host.random())
}

/// Compares in a time that does not depend on where the values differ.
pub(super) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let different = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && different == 0
}
