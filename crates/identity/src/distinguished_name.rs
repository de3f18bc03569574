//! Distinguished names of client certificates: X.501 in DER, and the text of RFC 4514.
//!
//! Two names are the same if their normal texts are. Values are compared byte by byte, which is stricter
//! than directories are: a certificate is never taken for that of another account.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use crate::{Error, der, hex_decode, hex_encode};

/// Bytes of a name's text; reason: a name with all usual attributes has less than 500.
pub const DISTINGUISHED_NAME_BYTES_MAX: usize = 2_048;

/// Tags (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const VERSION: u8 = 0xa0;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// Attributes with a name of their own in RFC 4514, section 3, by the contents of their object identifiers.
const ATTRIBUTES: [(&str, &[u8]); 9] = [
    ("CN", &[0x55, 4, 3]),
    ("L", &[0x55, 4, 7]),
    ("ST", &[0x55, 4, 8]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("C", &[0x55, 4, 6]),
    ("STREET", &[0x55, 4, 9]),
    (
        "DC",
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
    ),
    (
        "UID",
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
    ),
];

/// A distinguished name, in the normal text of RFC 4514: `CN=ada,O=Ward 3`.
///
/// ```
/// use chappe_identity::DistinguishedName;
/// let name: DistinguishedName = "cn = ada, O=Ward 3".parse()?;
/// assert_eq!(name.to_string(), "CN=ada,O=Ward 3");
/// # Ok::<(), chappe_identity::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DistinguishedName(String);

impl DistinguishedName {
    /// The subject of a certificate in DER; `None` if it is malformed, empty or too long. The certificate must
    /// have been verified: nothing else of it is checked.
    #[must_use]
    pub fn of_certificate(certificate: &[u8]) -> Option<Self> {
        // Serial number, algorithm, issuer, validity.
        Self::after_fields(certificate, 4)
    }

    /// The issuer of a certificate in DER; `None` if it is malformed, empty or too long. In a certificate that
    /// was verified, the authority with this name signed it.
    #[must_use]
    pub fn issuer_of_certificate(certificate: &[u8]) -> Option<Self> {
        // Serial number, algorithm.
        Self::after_fields(certificate, 2)
    }

    /// The name after this number of fields that follow the version (RFC 5280, section 4.1).
    fn after_fields(certificate: &[u8], fields: usize) -> Option<Self> {
        let (_, certificate, _) = der::value(certificate).filter(|it| it.0 == SEQUENCE)?;
        let (_, mut rest, _) = der::value(certificate).filter(|it| it.0 == SEQUENCE)?;
        if rest.first() == Some(&VERSION) {
            (_, _, rest) = der::value(rest)?;
        }
        for _ in 0..fields {
            (_, _, rest) = der::value(rest)?;
        }
        let (_, name, _) = der::value(rest).filter(|it| it.0 == SEQUENCE)?;
        Self::of_der(name)
    }

    /// The contents of a `Name` in DER.
    fn of_der(mut sets: &[u8]) -> Option<Self> {
        let mut parts = Vec::new();
        while !sets.is_empty() {
            let (_, mut set, rest) = der::value(sets).filter(|it| it.0 == SET)?;
            sets = rest;
            let mut values = Vec::new();
            while !set.is_empty() {
                let (_, pair, rest) = der::value(set).filter(|it| it.0 == SEQUENCE)?;
                set = rest;
                let (_, object, value) = der::value(pair).filter(|it| it.0 == OBJECT)?;
                values.push(format!("{}={}", attribute(object)?, text_of(value)?));
            }
            values.sort();
            parts.push(values.join("+"));
        }
        // RFC 4514, section 2.1: the last part comes first.
        parts.reverse();
        Self::within_limits(parts.join(","))
    }

    fn within_limits(text: String) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= DISTINGUISHED_NAME_BYTES_MAX;
        fits.then_some(Self(text))
    }
}

impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DistinguishedName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > DISTINGUISHED_NAME_BYTES_MAX {
            return Err(Error::DistinguishedName);
        }
        let mut parts = Vec::new();
        for part in split(text, b',') {
            let values: Option<Vec<String>> = split(part, b'+').map(normal_pair).collect();
            let mut values = values.ok_or(Error::DistinguishedName)?;
            values.sort();
            parts.push(values.join("+"));
        }
        Self::within_limits(parts.join(",")).ok_or(Error::DistinguishedName)
    }
}

/// The name of an attribute, or its dotted object identifier.
fn attribute(object: &[u8]) -> Option<String> {
    let known = ATTRIBUTES.iter().find(|(_, known)| *known == object);
    if let Some((name, _)) = known {
        return Some((*name).to_owned());
    }
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    let mut is_complete = false;
    for byte in object {
        number = number.checked_mul(128)? + u64::from(byte & 0x7f);
        is_complete = byte & 0x80 == 0;
        if is_complete {
            numbers.push(std::mem::take(&mut number));
        }
    }
    let (first, rest) = numbers.split_first().filter(|_| is_complete)?;
    let top = (first / 40).min(2);
    let mut text = format!("{top}.{}", first - top * 40);
    for number in rest {
        let _ = write!(text, ".{number}");
    }
    Some(text)
}

/// The text of a value in DER: the escaped string, or `#` and its bytes in hexadecimal.
fn text_of(value: &[u8]) -> Option<String> {
    let (tag, contents, rest) = der::value(value)?;
    if !rest.is_empty() || contents.is_empty() {
        return None;
    }
    let is_text = match tag {
        UTF8_STRING => true,
        PRINTABLE_STRING | IA5_STRING => contents.is_ascii(),
        _ => false,
    };
    match std::str::from_utf8(contents) {
        Ok(text) if is_text => Some(escaped(text)),
        _ => Some(format!("#{}", hex_encode(value))),
    }
}

/// A value with its special characters escaped (RFC 4514, section 2.4).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (index, character) in value.chars().enumerate() {
        let is_edge = index == 0 || index == last;
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => text.extend(['\\', character]),
            ' ' if is_edge => text.push_str("\\ "),
            '#' if index == 0 => text.push_str("\\#"),
            _ if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\{byte:02x}");
                }
            }
            _ => text.push(character),
        }
    }
    text
}

/// The parts between separators that are not escaped.
pub(crate) fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let part = rest?;
        let mut is_escaped = false;
        let end = part.bytes().position(|byte| {
            let ends = byte == separator && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        rest = end.map(|end| &part[end + 1..]);
        Some(&part[..end.unwrap_or(part.len())])
    })
}

/// `attribute=value` in its normal form.
fn normal_pair(pair: &str) -> Option<String> {
    let (name, value) = pair.split_once('=')?;
    let name = name.trim_matches(' ').to_ascii_uppercase();
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'.');
    let known = ATTRIBUTES.iter().any(|(known, _)| *known == name);
    let is_number = name
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_name || !(known || is_number) {
        return None;
    }
    let value = value.trim_start_matches(' ');
    if let Some(hexadecimal) = value.strip_prefix('#') {
        let bytes = hex_decode(hexadecimal.trim_end()).filter(|bytes| !bytes.is_empty())?;
        return Some(format!("{name}=#{}", hex_encode(&bytes)));
    }
    Some(format!("{name}={}", escaped(&unescaped(value)?)))
}

/// A value without its escapes and the spaces after it.
fn unescaped(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    // Bytes up to here stay; spaces after it are no part of the value.
    let mut fixed = 0;
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let two = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match two.and_then(hex_decode) {
            Some(byte) => {
                bytes.extend(byte);
                rest = rest.get(2..)?;
            }
            None => {
                let (&special, after) = rest.split_first()?;
                if !b"\"+,;<>\\= #".contains(&special) {
                    return None;
                }
                bytes.push(special);
                rest = after;
            }
        }
        fixed = bytes.len();
    }
    while bytes.len() > fixed && bytes.last() == Some(&b' ') {
        bytes.pop();
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrap(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = u8::try_from(contents.len()).unwrap();
        assert!(length < 0x80);
        [&[tag, length], contents].concat()
    }

    fn part(object: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let pair = [wrap(OBJECT, object), wrap(tag, value)].concat();
        wrap(SET, &wrap(SEQUENCE, &pair))
    }

    #[test]
    fn the_text_of_a_certificates_name_is_that_of_rfc_4514() {
        let name = [
            part(&[0x55, 4, 6], PRINTABLE_STRING, b"FR"),
            part(&[0x55, 4, 10], UTF8_STRING, b"Ward, 3"),
            part(&[0x55, 4, 5], PRINTABLE_STRING, b"7"),
            part(&[0x55, 4, 3], UTF8_STRING, b" ada"),
        ];
        let name = DistinguishedName::of_der(&name.concat()).unwrap();
        assert_eq!(name.to_string(), "CN=\\ ada,2.5.4.5=7,O=Ward\\, 3,C=FR");
        let again: DistinguishedName = name.to_string().parse().unwrap();
        assert_eq!(again, name);
        let name = part(&[0x55, 4, 3], 0x1e, b"\0a");
        let name = DistinguishedName::of_der(&name).unwrap();
        assert_eq!(name.to_string(), "CN=#1e020061");
        assert!(DistinguishedName::of_der(&[]).is_none());
    }

    #[test]
    fn texts_have_one_normal_form() {
        for (text, normal) in [
            ("cn=ada", "CN=ada"),
            (" CN = ada , o = x ", "CN=ada,O=x"),
            ("CN=a\\2Cb", "CN=a\\,b"),
            ("CN=a+OU=b", "CN=a+OU=b"),
            ("OU=b+CN=a", "CN=a+OU=b"),
            ("CN=\\#a\\ ", "CN=\\#a\\ "),
        ] {
            let name: DistinguishedName = text.parse().unwrap();
            assert_eq!(name.to_string(), normal, "{text}");
            assert_eq!(normal.parse::<DistinguishedName>().unwrap(), name);
        }
        for text in [
            "", "ada", "CN=", "=a", "XX=a", "CN=a,", "CN=a\\", "CN=a\\x", "CN=#zz", "CN=\\ff",
        ] {
            assert!(text.parse::<DistinguishedName>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn normal_texts_stay_as_they_are(text in "(CN|o|2\\.5)=[ -~é\\n]{0,12}(,OU=[a-z#+\\\\ ]{1,6})?") {
            if let Ok(name) = text.parse::<DistinguishedName>() {
                let again: DistinguishedName = name.to_string().parse().unwrap();
                prop_assert_eq!(again, name);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = DistinguishedName::of_certificate(&bytes);
            let _ = DistinguishedName::of_der(&bytes);
        }
    }
}
