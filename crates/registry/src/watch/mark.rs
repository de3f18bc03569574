//! How far a subscriber has read, as text that it sends back to resume.
//!
//! Besides the position it has a hash of what else decides about what the subscriber has: the rows of a
//! query, or its rights.

use std::fmt;
use std::str::FromStr;

/// How far a subscriber has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Position up to which all changes are delivered.
    pub position: u64,
    /// A hash of the rows that the subscriber has, or of its rights.
    pub(crate) check: Option<u64>,
}

impl Mark {
    /// After the changes up to this position.
    #[must_use]
    pub fn at(position: u64) -> Self {
        let check = None;
        Self { position, check }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.check {
            None => write!(f, "{}", self.position),
            Some(check) => write!(f, "{}-{check:016x}", self.position),
        }
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (position, check) = match text.split_once('-') {
            None => (text, None),
            Some((position, check)) => (position, Some(check)),
        };
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let position = Some(position).filter(|text| is_digits(text));
        let position = position.and_then(|text| text.parse().ok());
        let is_hash =
            |text: &&str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let check = check.map(|text| Some(text).filter(is_hash));
        let check = check.map(|text| text.and_then(|text| u64::from_str_radix(text, 16).ok()));
        match (position, check) {
            (Some(position), None) => Ok(Self::at(position)),
            (Some(position), Some(Some(check))) => Ok(Self {
                position,
                check: Some(check),
            }),
            _ => Err(format!("{text:.60?} is not the id of an event")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_and_other_texts_are_refused() {
        for text in ["0", "17", "17-00000000000000ff", "18446744073709551615"] {
            assert_eq!(text.parse::<Mark>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "-",
            "+1",
            "1-",
            "1-ff",
            "x",
            "18446744073709551616",
            "1-+000000000000ff",
        ] {
            assert!(text.parse::<Mark>().is_err(), "{text}");
        }
    }
}
