//! Names of streams.
//!
//! A name is global: it means the same on every node. It consists of one to sixteen parts, joined
//! by dots, each of lower-case letters, digits, `_` and `-`, starting with a letter or a digit:
//! `ward.bed1.ecg`. At most 128 bytes.

/// Maximum length of a name in bytes; reason: it is part of paths, labels and every live message.
pub const NAME_BYTES_MAX: usize = 128;

/// Maximum number of parts of a name; reason: people read names.
pub const NAME_PARTS_MAX: usize = 16;

/// A text that is not a name of a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a stream name: {why}")]
pub struct NameError {
    /// The first characters of the text.
    pub name: String,
    /// The fault.
    pub why: &'static str,
}

/// Checks that `name` is the name of a stream.
///
/// ```
/// assert!(chappe_stream::check_name("ward.bed1.ecg").is_ok());
/// assert!(chappe_stream::check_name("Ward..ecg").is_err());
/// ```
///
/// # Errors
/// The first rule that it breaks.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let error = |why| {
        let name = name.chars().take(NAME_BYTES_MAX).collect();
        Err(NameError { name, why })
    };
    if name.is_empty() {
        return error("it is empty");
    }
    if name.len() > NAME_BYTES_MAX {
        return error("it is longer than 128 bytes");
    }
    if name.split('.').count() > NAME_PARTS_MAX {
        return error("it has more than 16 parts");
    }
    for part in name.split('.') {
        let Some(first) = part.bytes().next() else {
            return error("a part between dots is empty");
        };
        if !first.is_ascii_lowercase() && !first.is_ascii_digit() {
            return error("a part does not start with a-z or 0-9");
        }
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if !part.bytes().all(fits) {
            return error("only a-z, 0-9, `_`, `-` and dots are allowed");
        }
    }
    Ok(())
}

/// The name most similar to `text`: a device's own name, converted to a part of a stream name.
///
/// Upper case becomes lower case, any run of other characters one `-`; an empty result is
/// `unnamed`. Two texts may give the same part: the caller distinguishes them.
///
/// ```
/// assert_eq!(chappe_stream::name_part("Bed 1 / ECG (II)"), "bed-1-ecg-ii");
/// ```
#[must_use]
pub fn name_part(text: &str) -> String {
    let mut part = String::new();
    for c in text.chars().take(NAME_BYTES_MAX) {
        if part.len() >= 48 {
            break;
        }
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => part.push(c),
            '_' if !part.is_empty() => part.push('_'),
            _ if !part.is_empty() && !part.ends_with('-') => part.push('-'),
            _ => {}
        }
    }
    let part = part.trim_end_matches('-');
    if part.is_empty() {
        return "unnamed".into();
    }
    part.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rules_are_told_apart() {
        for good in ["a", "0", "plant.line-2.motor_3.speed"] {
            assert_eq!(check_name(good), Ok(()));
        }
        let bad = [
            ("", "empty"),
            ("a..b", "part between dots is empty"),
            ("_a", "does not start"),
            ("A", "does not start"),
            ("a b", "only"),
            ("a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q", "16 parts"),
        ];
        for (name, why) in bad {
            let found = check_name(name).unwrap_err();
            assert!(found.why.contains(why), "{name}: {found}");
        }
        assert!(check_name(&"a".repeat(129)).is_err());
    }

    proptest! {
        #[test]
        fn a_name_part_is_always_a_name(text in ".*") {
            prop_assert_eq!(check_name(&name_part(&text)), Ok(()));
        }
    }
}
