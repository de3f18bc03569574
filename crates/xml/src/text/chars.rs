//! Characters, names, references and attributes of text XML, by their productions.

use std::borrow::Cow;

use crate::Reason;

/// `Char` (XML 1.0, production 2).
pub(super) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// The offset of the first character that is not allowed.
pub(super) fn forbidden_char(text: &str) -> Option<usize> {
    // Without a branch for each byte, since nearly all documents have no such byte. U+FFFE and U+FFFF
    // start with 0xef.
    let is_suspect =
        |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || byte == 0xef;
    let suspects = text.bytes().fold(false, |any, byte| any | is_suspect(byte));
    suspects.then(|| text.find(|c| !is_char(c))).flatten()
}

/// `S` (XML 1.0, production 3).
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// The text after its leading white space.
fn after_space(text: &str) -> &str {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let length = text.as_bytes().iter().take_while(|byte| is_space(byte));
    &text[length.count()..]
}

/// Bytes that are compared at once. Reason: two registers of the usual processors.
const BLOCK: usize = 32;

/// The number of bytes before the first that `is_end`, or of all. Without branches in `is_end` (`|` in place of
/// patterns), it compares many bytes at once.
pub(super) fn length_until(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    let end_in = |bytes: &[u8]| bytes.iter().position(|byte| is_end(*byte));
    // Most values are short.
    if let Some(end) = end_in(&bytes[..bytes.len().min(BLOCK)]) {
        return end;
    }
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let has_end = |block: &[u8; BLOCK]| {
        let ends = block.iter().map(|byte| u8::from(is_end(*byte)));
        ends.fold(0, |any, is_end| any | is_end) != 0
    };
    let start = blocks.iter().take_while(|block| !has_end(block)).count() * BLOCK;
    let rest = &bytes[start..];
    start + end_in(rest).unwrap_or(rest.len())
}

/// `NameStartChar` without the colon (XML 1.0, production 4).
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

/// `NameChar` without the colon (XML 1.0, production 4a).
fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}'
            | '\u{203f}'..='\u{2040}')
}

/// The ASCII characters of an `NCName` by their codes. Reason: a look at a table for each byte of a name costs a third of
/// comparisons.
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        byte += 1;
    }
    table
};

/// `NCName` (Namespaces in XML 1.0, production 4).
pub(super) fn is_ncname(name: &str) -> bool {
    if let [first, rest @ ..] = name.as_bytes()
        && (first.is_ascii_alphabetic() || *first == b'_')
        && rest.iter().all(|byte| NAME_BYTES[usize::from(*byte)])
    {
        return true;
    }
    let mut chars = name.chars();
    chars.next().is_some_and(is_name_start) && chars.all(is_name_char)
}

/// The nearest `NCName`, with an underscore for each invalid character.
pub(super) fn repaired_ncname(name: &str) -> String {
    let mut repaired: String = name
        .chars()
        .map(|c| if is_name_char(c) { c } else { '_' })
        .collect();
    if !repaired.starts_with(is_name_start) {
        repaired.insert(0, '_');
    }
    repaired
}

/// Splits a `QName` into its prefix, or an empty string, and its local part.
pub(super) fn split_qname(qname: &str) -> Option<(&str, &str)> {
    // Names are short: a loop costs less than the search for long texts.
    match qname.bytes().position(|byte| byte == b':') {
        None => is_ncname(qname).then_some(("", qname)),
        Some(colon) => {
            let (prefix, local) = (&qname[..colon], &qname[colon + 1..]);
            (is_ncname(prefix) && is_ncname(local)).then_some((prefix, local))
        }
    }
}

/// The character of a reference, given without `&` and `;`.
pub(super) fn referenced(reference: &str) -> Result<char, Reason> {
    let shortened = || reference.chars().take(64).collect::<String>();
    let Some(number) = reference.strip_prefix('#') else {
        return match reference {
            "lt" => Ok('<'),
            "gt" => Ok('>'),
            "amp" => Ok('&'),
            "apos" => Ok('\''),
            "quot" => Ok('"'),
            name if is_ncname(name) => Err(Reason::Entity(shortened())),
            _ => Err(Reason::Malformed(format!(
                "&{}; is not a reference",
                shortened()
            ))),
        };
    };
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    // The standard parser also accepts a sign, which the production does not.
    let plain = digits.chars().all(|c| c.is_digit(radix));
    plain
        .then(|| u32::from_str_radix(digits, radix).ok())
        .flatten()
        .and_then(char::from_u32)
        .filter(|c| is_char(*c))
        .ok_or_else(|| Reason::Malformed(format!("&{}; is not a character", shortened())))
}

/// Normalises line ends (XML 1.0, section 2.11).
pub(super) fn with_line_ends(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        text
    }
}

/// Normalises an attribute value of type CDATA (XML 1.0, section 3.3.3).
fn attribute_value(raw: &str) -> Result<Cow<'_, str>, Reason> {
    let is_special = |byte: u8| {
        (byte == b'<') | (byte == b'&') | (byte == b'\r') | (byte == b'\t') | (byte == b'\n')
    };
    // Without a branch for each byte, as above.
    if !raw.bytes().fold(false, |any, byte| any | is_special(byte)) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut value = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '<' => return Err(Reason::Malformed("an attribute value contains <".into())),
            '&' => {
                let Some((reference, after)) = rest.split_once(';') else {
                    return Err(Reason::Malformed("a reference is not closed".into()));
                };
                value.push(referenced(reference)?);
                rest = after;
            }
            '\r' => {
                rest = rest.strip_prefix('\n').unwrap_or(rest);
                value.push(' ');
            }
            '\t' | '\n' => value.push(' '),
            other => value.push(other),
        }
    }
    Ok(Cow::Owned(value))
}

/// The attributes of a start tag, parsed from the text after its name.
pub(super) struct Attributes<'a> {
    rest: &'a str,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    /// Returns the next attribute: its qualified name and normalised value.
    pub(super) fn next(&mut self) -> Result<Option<(&'a str, Cow<'a, str>)>, Reason> {
        let trimmed = after_space(self.rest);
        if trimmed.is_empty() {
            return Ok(None);
        }
        let malformed = |what: &str| Reason::Malformed(what.to_owned());
        if trimmed.len() == self.rest.len() {
            return Err(malformed("white space before an attribute is missing"));
        }
        let equals = trimmed.bytes().position(|byte| byte == b'=');
        let equals = equals.ok_or_else(|| malformed("an attribute has no value"))?;
        let (name, after) = (&trimmed[..equals], after_space(&trimmed[equals + 1..]));
        let quote = after.bytes().next();
        let quote = quote
            .filter(|byte| matches!(byte, b'"' | b'\''))
            .ok_or_else(|| malformed("an attribute value is not quoted"))?;
        let after = &after[1..];
        let length = length_until(after.as_bytes(), |byte| byte == quote);
        let value = &after[..length];
        let rest = after.get(length + 1..);
        let rest = rest.ok_or_else(|| malformed("an attribute value is not closed"))?;
        self.rest = rest;
        Ok(Some((
            name.trim_end_matches(is_space),
            attribute_value(value)?,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_and_forbidden_references_are_refused() {
        assert_eq!(referenced("#65"), Ok('A'));
        assert_eq!(referenced("#x1F600"), Ok('\u{1f600}'));
        for bad in [
            "#+65", "#", "#x", "#0", "#xD800", "#x110000", "#X41", "#xFFFE", "# 65",
        ] {
            assert!(
                matches!(referenced(bad), Err(Reason::Malformed(_))),
                "{bad}"
            );
        }
        assert_eq!(referenced("nbsp"), Err(Reason::Entity("nbsp".into())));
    }

    #[test]
    fn names_follow_the_productions() {
        for good in ["a", "_a-1.b", "\u{e9}t\u{e9}", "a\u{b7}"] {
            assert!(is_ncname(good), "{good}");
        }
        for bad in [
            "", "1a", "-a", "a b", "a:b", "\u{d7}", "a\u{37e}", "\u{b7}a",
        ] {
            assert!(!is_ncname(bad), "{bad}");
            assert!(is_ncname(&repaired_ncname(bad)), "{bad}");
        }
    }
}
