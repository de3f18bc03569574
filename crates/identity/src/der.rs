//! Reads DER (X.690) value by value, the extensions of certificates (RFC 5280, 4.2), and the dates of revocation lists.

/// Tags (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
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

/// When a revocation list was issued (RFC 5280, 5.1.2.4: `thisUpdate`), as text that sorts by time; empty if the list is
/// malformed. Of several lists of an issuer the latest one counts, and verifiers take the first one that they find.
#[must_use]
pub fn issued_at(list: &[u8]) -> String {
    let find = || {
        let (_, list, _) = value(list).filter(|it| it.0 == SEQUENCE)?;
        let (_, body, _) = value(list).filter(|it| it.0 == SEQUENCE)?;
        // Before it are the version, the algorithm and the issuer.
        values(body).find(|(tag, _)| [UTC_TIME, GENERALIZED_TIME].contains(tag))
    };
    let (tag, time) = find().unwrap_or_default();
    let time = String::from_utf8_lossy(time);
    match tag {
        // Years of two digits are those from 1950 to 2049.
        UTC_TIME if *time < *"50" => format!("20{time}"),
        UTC_TIME => format!("19{time}"),
        _ => time.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_sort_by_the_time_of_their_issue() {
        let list = |tag, time: &str| {
            let wrap = |tag, contents: &[u8]| {
                let length = u8::try_from(contents.len()).unwrap();
                [&[tag, length][..], contents].concat()
            };
            let fields = [
                wrap(2, &[1]),
                wrap(SEQUENCE, &[]),
                wrap(SEQUENCE, &[]),
                wrap(tag, time.as_bytes()),
                wrap(UTC_TIME, b"990101000000Z"),
            ];
            wrap(SEQUENCE, &wrap(SEQUENCE, &fields.concat()))
        };
        let in_order = [
            list(UTC_TIME, "500101000000Z"),
            list(UTC_TIME, "991231235959Z"),
            list(UTC_TIME, "000101000000Z"),
            list(UTC_TIME, "491231235959Z"),
            list(GENERALIZED_TIME, "20500101000000Z"),
        ];
        assert!(in_order.is_sorted_by(|one, other| issued_at(one) < issued_at(other)));
        for at in 0..in_order[0].len() {
            assert_eq!(issued_at(&in_order[0][..at]), "");
        }
    }
}
