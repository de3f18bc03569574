//! The content of a call: integers, one string of as many characters, or raw bytes for the floors.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The numbers of integers, as the study varied the structure of its messages.
pub(super) const COUNTS: [usize; 11] = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// Characters for one integer. Reason: all integers have ten digits, so both loads have the same content in bytes.
pub(super) const DIGITS: usize = 10;

/// The content of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// Integers, each an element.
    Integers(usize),
    /// One element with a string.
    Characters(usize),
    /// Bytes of a question and of its answer.
    Bytes(usize, usize),
}

impl Load {
    /// Every load with structure, and every one without.
    pub(super) fn all() -> Vec<Self> {
        let integers = COUNTS.iter().map(|count| Self::Integers(*count));
        let characters = COUNTS.iter().map(|count| Self::Characters(count * DIGITS));
        integers.chain(characters).collect()
    }

    /// Its name without the size.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Integers(_) => "integers",
            Self::Characters(_) => "characters",
            Self::Bytes(..) => "bytes",
        }
    }

    /// The number of integers, characters or bytes of the question.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Integers(count) | Self::Characters(count) | Self::Bytes(count, _) => count,
        }
    }

    /// The integers of a load; each has [`DIGITS`] digits. The clients in other languages have the same formula.
    ///
    /// They are spread over the range of the type: consecutive ones would be compressed better than measurements.
    pub(super) fn integers(count: usize) -> Vec<i32> {
        let integer = |index: usize| 1_000_000_000 + index * 7_919_017 % 1_147_483_647;
        let integers = (0..count).map(integer);
        integers.filter_map(|it| i32::try_from(it).ok()).collect()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(question, answer) => write!(f, "bytes-{question}-{answer}"),
            load => write!(f, "{}-{}", load.kind(), load.count()),
        }
    }
}

impl FromStr for Load {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::Failed(format!("{text} is no load"));
        let (kind, sizes) = text.split_once('-').ok_or_else(unknown)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| unknown());
        match (kind, sizes.split_once('-')) {
            ("integers", None) => Ok(Self::Integers(number(sizes)?)),
            ("characters", None) => Ok(Self::Characters(number(sizes)?)),
            ("bytes", Some((question, answer))) => {
                Ok(Self::Bytes(number(question)?, number(answer)?))
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_as_it_is_written() {
        for load in Load::all().into_iter().chain([Load::Bytes(700, 600)]) {
            assert_eq!(load.to_string().parse::<Load>().ok(), Some(load));
        }
        for text in ["", "integers", "integers-x", "bytes-1", "integers-1-2"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
    }

    #[test]
    fn both_loads_have_the_same_content() {
        for count in COUNTS {
            let text: String = Load::integers(count)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(text.len(), count * DIGITS);
        }
    }
}
