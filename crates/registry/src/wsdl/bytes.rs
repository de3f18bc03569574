//! The bytes of a document: how an entity holds them, and the text that they encode.
//!
//! An entity holds them compressed, in literals of bounded length, so that journal, access rules and
//! snapshots need nothing of their own. A WSDL takes about a sixth of its size.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Characters of one literal, below the limit of a term.
const CHUNK_CHARACTERS: usize = 12_000;
/// Level of compression; measured on WSDLs of devices: higher ones gain less than 1 %.
const LEVEL: u8 = 6;
/// Bytes in which an XML declaration ends.
const DECLARATION_BYTES_MAX: usize = 256;

/// The literals that hold `bytes`.
pub(crate) fn pack(bytes: &[u8]) -> Vec<String> {
    let text = STANDARD.encode(miniz_oxide::deflate::compress_to_vec(bytes, LEVEL));
    let mut rest = text.as_str();
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        // Base64 is ASCII.
        let (chunk, after) = rest.split_at(CHUNK_CHARACTERS.min(rest.len()));
        chunks.push(format!("{}:{chunk}", chunks.len()));
        rest = after;
    }
    chunks
}

/// The `size` bytes that these literals hold.
pub(crate) fn unpack<'a>(chunks: impl Iterator<Item = &'a str>, size: usize) -> Option<Vec<u8>> {
    let numbered = chunks.map(|chunk| {
        let (number, text) = chunk.split_once(':')?;
        Some((number.parse::<usize>().ok()?, text))
    });
    let mut numbered = numbered.collect::<Option<Vec<_>>>()?;
    numbered.sort_unstable();
    let text: String = numbered.into_iter().map(|(_, text)| text).collect();
    let compressed = STANDARD.decode(text).ok()?;
    let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(&compressed, size).ok()?;
    (bytes.len() == size).then_some(bytes)
}

/// The document in UTF-8, the only encoding that the XML reader takes. UTF-16, ISO 8859-1 and US-ASCII are
/// converted; any other encoding is left to the reader, which refuses it.
pub(crate) fn to_utf8(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let units = pairs.iter().map(|pair| unit(*pair));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        match text {
            Ok(text) if rest.is_empty() => Ok(Cow::Owned(without_declaration(text).into_bytes())),
            _ => Err("the document is not valid UTF-16".to_owned()),
        }
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [b'<', 0, b'?', 0, ..] => utf16(bytes, u16::from_le_bytes),
        [0, b'<', 0, b'?', ..] => utf16(bytes, u16::from_be_bytes),
        _ => match declared(bytes).as_deref() {
            Some("iso-8859-1" | "latin1") => {
                let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                Ok(Cow::Owned(without_declaration(text).into_bytes()))
            }
            Some("us-ascii" | "ascii") => match std::str::from_utf8(bytes) {
                Ok(text) if text.is_ascii() => Ok(Cow::Owned(
                    without_declaration(text.to_owned()).into_bytes(),
                )),
                _ => Err("the document is not US-ASCII, which it declares".to_owned()),
            },
            _ => Ok(Cow::Borrowed(bytes)),
        },
    }
}

/// The encoding that the XML declaration names, in lower case.
fn declared(bytes: &[u8]) -> Option<String> {
    let start = bytes.get(..DECLARATION_BYTES_MAX.min(bytes.len()))?;
    let start: String = start.iter().map(|byte| char::from(*byte)).collect();
    let (declaration, _) = start.strip_prefix("<?xml")?.split_once("?>")?;
    let (_, rest) = declaration.split_once("encoding")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let name = rest.get(1..)?.split(quote).next()?;
    Some(name.to_ascii_lowercase())
}

/// The text without its declaration, which names another encoding. That of another version of XML stays,
/// and is refused.
fn without_declaration(text: String) -> String {
    match text
        .strip_prefix("<?xml")
        .and_then(|rest| rest.split_once("?>"))
    {
        Some((declaration, rest)) if declaration.contains("1.0") => rest.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40_000)) {
            let chunks = pack(&bytes);
            prop_assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_CHARACTERS + 8));
            let again = unpack(chunks.iter().rev().map(String::as_str), bytes.len());
            prop_assert_eq!(again, Some(bytes));
        }

        #[test]
        fn any_literals_are_read_or_refused(chunks in proptest::collection::vec(".{0,40}", 0..4)) {
            let _ = unpack(chunks.iter().map(String::as_str), 100);
        }

        #[test]
        fn any_bytes_are_converted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = to_utf8(&bytes);
        }
    }

    #[test]
    fn encodings_are_read() {
        let text = "<?xml version=\"1.0\" encoding=\"utf-16\"?><a>\u{e9}\u{1f600}</a>";
        let units: Vec<u16> = text.encode_utf16().collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        let mut little = vec![0xFF, 0xFE];
        little.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        for bytes in [&big, &little] {
            assert_eq!(
                &*to_utf8(bytes).unwrap(),
                "<a>\u{e9}\u{1f600}</a>".as_bytes()
            );
        }
        let latin = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xE9</a>";
        assert_eq!(&*to_utf8(latin).unwrap(), "<a>\u{e9}</a>".as_bytes());
        let plain = b"<?xml version='1.0' encoding='US-ASCII'?><a/>";
        assert_eq!(&*to_utf8(plain).unwrap(), b"<a/>");
        assert!(to_utf8(b"<?xml version='1.0' encoding='US-ASCII'?>\xE9").is_err());
        assert!(to_utf8(&[0xFF, 0xFE, 0]).is_err());
        let version = b"<?xml version='1.1' encoding='latin1'?><a/>";
        assert_eq!(&*to_utf8(version).unwrap(), version);
    }
}
