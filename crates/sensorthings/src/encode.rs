//! Percent-encoding of paths and queries.

use crate::Fault;

/// Decodes a percent-encoded text; in a query `+` is a space.
///
/// # Errors
/// [`Fault::Invalid`] for an escape that is none, or bytes that are not UTF-8.
pub fn decode_percent(text: &str, is_query: bool) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next(), rest.next()];
                let digit = |digit: Option<u8>| char::from(digit?).to_digit(16);
                match (digit(digits[0]), digit(digits[1])) {
                    // Two digits of sixteen make a byte.
                    (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
                    _ => return Err(Fault::invalid("the URL has a % without two digits")),
                }
            }
            b'+' if is_query => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| Fault::invalid("the URL is not UTF-8"))
}

/// Percent-encodes a part of a path or a query, as [`decode_percent`] reads it.
#[must_use]
pub fn encode_percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => encoded.push(char::from(byte)),
            byte if b"-._~:@!$()*,;'".contains(&byte) => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// An id as a path has it: in quotes, its own quotes doubled, percent-encoded.
#[must_use]
pub fn quoted(id: &str) -> String {
    format!("'{}'", encode_percent(&id.replace('\'', "''")))
}
