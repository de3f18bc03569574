//! Limits of the profile (DPWS 1.1, appendix B).

/// Octets of an envelope that every service must accept.
pub const MAX_ENVELOPE_SIZE: usize = 32_767;
/// Octets of an envelope in a datagram.
pub const MAX_UDP_ENVELOPE_SIZE: usize = 4_096;
/// A text field has fewer Unicode characters.
pub const MAX_FIELD_SIZE: usize = 256;
/// A URI has fewer octets.
pub const MAX_URI_SIZE: usize = 2_048;
