//! Reads DER (X.690) value by value, and the extensions of certificates (RFC 5280, 4.2).

/// Tags (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// The tag of the extensions of a certificate (RFC 5280, 4.1).
const EXTENSIONS: u8 = 0xa3;
/// The tag of a URI among the names (RFC 5280, 4.2.1.6: `uniformResourceIdentifier`).
const URI: u8 = 0x86;
/// The object identifier of `subjectAltName`, 2.5.29.17 (RFC 5280, 4.2.1.6).
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The tag of the first value, its contents, and the bytes after it; `None` if it is truncated. Only tags of
/// one byte and lengths of up to four bytes are read.
#[must_use]
pub fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// The tags and contents of the values in a sequence, up to the first malformed one.
pub fn values(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, contents, rest) = value(bytes)?;
        bytes = rest;
        Some((tag, contents))
    })
}

/// The contents of the sequence that is the value of an extension of a certificate; `object` is the extension's
/// object identifier, without tag and length.
#[must_use]
pub fn extension<'a>(certificate: &'a [u8], object: &[u8]) -> Option<&'a [u8]> {
    let (_, certificate, _) = value(certificate).filter(|it| it.0 == SEQUENCE)?;
    let (_, body, _) = value(certificate).filter(|it| it.0 == SEQUENCE)?;
    let (_, extensions) = values(body).find(|(tag, _)| *tag == EXTENSIONS)?;
    let (_, extensions, _) = value(extensions).filter(|it| it.0 == SEQUENCE)?;
    let wanted = |(tag, extension): (u8, &'a [u8])| {
        let mut parts = values(extension);
        let is_wanted = tag == SEQUENCE && parts.next() == Some((OBJECT, object));
        is_wanted.then(|| parts.find(|(tag, _)| *tag == OCTET_STRING))?
    };
    let (_, found) = values(extensions).find_map(wanted)?;
    let (_, contents, _) = value(found).filter(|it| it.0 == SEQUENCE)?;
    Some(contents)
}

/// The URIs among the names of a certificate.
pub fn uris(certificate: &[u8]) -> impl Iterator<Item = &str> {
    let names = extension(certificate, ALTERNATIVE_NAME).unwrap_or_default();
    let uris = values(names).filter(|(tag, _)| *tag == URI);
    uris.filter_map(|(_, uri)| std::str::from_utf8(uri).ok())
}
