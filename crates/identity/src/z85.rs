//! Z85: bytes as text, four bytes in five characters (32/Z85).

const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// The text of these bytes, whose number is a multiple of four.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 4 * 5);
    for chunk in bytes.chunks_exact(4) {
        let number = chunk
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        for power in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            text.push(char::from(DIGITS[(number / power % 85) as usize]));
        }
    }
    text
}

/// The bytes of a text, if it is Z85.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let chunks = text.as_bytes().chunks_exact(5);
    if !chunks.remainder().is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 5 * 4);
    for chunk in chunks {
        let mut number = 0u32;
        for character in chunk {
            let digit = DIGITS.iter().position(|digit| digit == character)?;
            number = number
                .checked_mul(85)?
                .checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test case of 32/Z85.
    #[test]
    fn hello_world_of_the_standard() {
        let bytes = [0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B];
        assert_eq!(encode(&bytes), "HelloWorld");
        assert_eq!(decode("HelloWorld"), Some(bytes.to_vec()));
    }

    #[test]
    fn what_is_not_z85_is_refused() {
        for text in ["Hell", "Hell ", "#####", "Hell~", "\u{e9}\u{e9}a"] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode(""), Some(Vec::new()));
        assert_eq!(decode(&encode(&[0xFF; 8])), Some(vec![0xFF; 8]));
    }
}
