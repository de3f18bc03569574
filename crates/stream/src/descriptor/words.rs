//! Messages of serde about TOML, in the words of TOML: people who write a file know no types of Rust.

/// A message of serde about a value of a wrong type, without names of Rust's types: `must be a list, not the string "x"`.
/// Any other message stays as it is.
#[must_use]
pub fn toml_words(message: &str) -> String {
    if let Some(wanted) = message.strip_prefix("wanted ") {
        let wanted = wanted.split(" or ").map(expected);
        return format!("must be {}", wanted.collect::<Vec<_>>().join(" or "));
    }
    let wrong = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    match wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) {
        Some((value, wanted)) => format!("must be {}, not {}", expected(wanted), found(value)),
        None => message.to_owned(),
    }
}

/// What serde found (`serde::de::Unexpected`).
fn found(value: &str) -> String {
    let literal = ["boolean `", "integer `", "floating point `"]
        .iter()
        .find_map(|kind| value.strip_prefix(kind)?.strip_suffix('`'));
    match (value, literal) {
        (_, Some(literal)) => literal.to_owned(),
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "a table".to_owned(),
        (text, _) if text.starts_with("string ") => format!("the {text}"),
        (other, _) => other.to_owned(),
    }
}

/// What serde expected: the name of a type, or words of a visitor.
fn expected(wanted: &str) -> String {
    let words = match wanted {
        "string" => "a string",
        "table" | "a map" => "a table",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        _ if wanted.starts_with("a nonzero u") => "a whole number from 1",
        _ if wanted.starts_with("struct ") => "a table",
        _ => wanted,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors are looked at")]
    struct Raw {
        text: Option<String>,
        list: Option<Vec<String>>,
        small: Option<u16>,
        large: Option<u64>,
        signed: Option<i32>,
        number: Option<f64>,
        flag: Option<bool>,
        some: Option<std::num::NonZeroU32>,
        inner: Option<Inner>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors are looked at")]
    struct Inner {
        text: String,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        One,
    }

    #[test]
    fn values_of_wrong_types_are_told_in_words_of_toml() {
        for (text, words) in [
            ("text = 5", "must be a string, not 5"),
            ("text = true", "must be a string, not true"),
            ("text = 1.5", "must be a string, not 1.5"),
            ("text = []", "must be a string, not a list"),
            ("text = {}", "must be a string, not a table"),
            (
                "list = \"a, expected b\"",
                "must be a list, not the string \"a, expected b\"",
            ),
            (
                "small = -1",
                "must be a whole number from 0 to 65535, not -1",
            ),
            (
                "small = 70000",
                "must be a whole number from 0 to 65535, not 70000",
            ),
            ("large = -1", "must be a whole number from 0, not -1"),
            (
                "signed = \"x\"",
                "must be a whole number, not the string \"x\"",
            ),
            ("number = \"x\"", "must be a number, not the string \"x\""),
            ("flag = 1", "must be true or false, not 1"),
            ("some = 0", "must be a whole number from 1, not 0"),
            ("inner = \"x\"", "must be a table, not the string \"x\""),
            ("kind = 1", "must be a string or a table"),
        ] {
            let error = toml::from_str::<Raw>(text).unwrap_err();
            assert_eq!(toml_words(error.message()), words, "{text}: {error}");
        }
        let error = toml::from_str::<Raw>("kind = \"One\"").map(|raw| raw.kind);
        assert!(matches!(error, Ok(Some(Kind::One))));
        assert_eq!(toml_words("duplicate key"), "duplicate key");
    }
}
