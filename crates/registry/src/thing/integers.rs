//! Integers that a directory cannot keep: a number of a document is read as an integer of 64 bits or as a double, and
//! a double would change a longer integer silently.

/// The first integer of a JSON text that has more than 64 bits. The text is valid.
#[must_use]
pub fn long_integer(text: &[u8]) -> Option<&str> {
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'"' => after_string(after),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let length = rest.iter().position(|byte| !is_part(byte));
                let (number, after) = rest.split_at(length.unwrap_or(rest.len()));
                let number = std::str::from_utf8(number).unwrap_or_default();
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
                after
            }
            _ => after,
        };
    }
    None
}

/// What follows a string whose first quotation mark was read.
fn after_string(mut text: &[u8]) -> &[u8] {
    loop {
        text = match text {
            [b'\\', _, after @ ..] => after,
            [b'"', after @ ..] => return after,
            [_, after @ ..] => after,
            [] => return text,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        #[test]
        fn integers_beyond_64_bits_are_found(number in any::<i128>(), shift in 0_u32..127, text in ".*") {
            let number = number >> shift;
            let fits = i64::try_from(number).is_ok() || u64::try_from(number).is_ok();
            let strings = [json!(text), json!(number.to_string())];
            let document = format!("{{{}: [1e400, 0.{}, {number}, {}]}}", strings[0],
                number.unsigned_abs(), strings[1]);
            let found = long_integer(document.as_bytes());
            let expected = (!fits).then(|| number.to_string());
            prop_assert_eq!(found, expected.as_deref());
        }

        #[test]
        fn no_bytes_cause_a_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = long_integer(&text);
        }
    }

    #[test]
    fn what_is_not_found_is_kept() {
        let text = "[18446744073709551615, -9223372036854775808, \"18446744073709551616\"]";
        assert_eq!(long_integer(text.as_bytes()), None);
        let kept: Value = serde_json::from_str(text).unwrap();
        assert_eq!(kept.to_string(), text.replace(", ", ","));
        assert_eq!(
            long_integer(b"{\"\\\"\":18446744073709551616}"),
            Some("18446744073709551616")
        );
    }
}
