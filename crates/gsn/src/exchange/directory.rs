//! Questions to the directory of a GSN server: a REP socket, port 22023 by default.
//!
//! `NAME` asks for the structure of a sensor. `NAME?ENDPOINT` and `NAME?ENDPOINT?START` register for synchronous
//! delivery to a REP socket at the endpoint, of the elements after a time in milliseconds since 1970. Both are answered
//! with the structure ([`encode_structure`](crate::kryo::encode_structure)).

use std::fmt;

/// The longest question that is read. Names have at most 128 bytes, and endpoints little more.
pub const QUESTION_BYTES_MAX: usize = 1_024;

/// A question to a directory.
///
/// ```
/// use chappe_gsn::exchange::Question;
/// let question = Question::parse(b"Station7?tcp://192.0.2.7:24000?1700000000000")?;
/// assert_eq!(question.to_string(), "station7?tcp://192.0.2.7:24000?1700000000000");
/// let Question::Deliver { start_ms, .. } = question else { panic!() };
/// assert_eq!(start_ms, Some(1_700_000_000_000));
/// # Ok::<(), chappe_gsn::exchange::QuestionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// The structure of a sensor.
    Structure {
        /// The sensor, in lower case.
        name: String,
    },
    /// Synchronous delivery of a sensor's elements.
    Deliver {
        /// The sensor, in lower case.
        name: String,
        /// The REP socket that takes the elements, `tcp://HOST:PORT`.
        endpoint: String,
        /// Only elements after this time, in milliseconds since 1970, starting with the stored ones; `None` for new
        /// elements only.
        start_ms: Option<i64>,
    },
}

/// Bytes that are no question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the question to the directory is malformed: {what}")]
pub struct QuestionError {
    /// The fault.
    pub what: &'static str,
}

impl Question {
    /// Reads a question. GSN's names are not sensitive to case.
    ///
    /// # Errors
    /// It is too long, not UTF-8, or lacks a part.
    pub fn parse(bytes: &[u8]) -> Result<Self, QuestionError> {
        let wrong = |what| QuestionError { what };
        if bytes.len() > QUESTION_BYTES_MAX {
            return Err(wrong("it is longer than 1,024 bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
        let mut parts = text.split('?');
        let name = parts.next().unwrap_or_default().to_lowercase();
        if name.is_empty() {
            return Err(wrong("it names no sensor"));
        }
        let Some(endpoint) = parts.next() else {
            return Ok(Self::Structure { name });
        };
        if !endpoint.starts_with("tcp://") {
            return Err(wrong("its endpoint does not begin with tcp://"));
        }
        let start_ms = parts.next().map(str::parse).transpose();
        let start_ms = start_ms.map_err(|_| wrong("its start is not a number of milliseconds"))?;
        if parts.next().is_some() {
            return Err(wrong("it has more than three parts"));
        }
        let endpoint = endpoint.to_owned();
        Ok(Self::Deliver {
            name,
            endpoint,
            start_ms,
        })
    }

    /// The sensor, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Structure { name } | Self::Deliver { name, .. } => name,
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Structure { name } => f.write_str(name),
            Self::Deliver {
                name,
                endpoint,
                start_ms,
            } => {
                write!(f, "{name}?{endpoint}")?;
                match start_ms {
                    Some(start_ms) => write!(f, "?{start_ms}"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_round_trip_and_malformed_ones_are_refused() {
        for text in [
            "station",
            "station?tcp://127.0.0.1:24000",
            "station?tcp://127.0.0.1:24000?0",
            "station?tcp://127.0.0.1:24000?-1",
        ] {
            let question = Question::parse(text.as_bytes()).unwrap();
            assert_eq!(
                (question.to_string().as_str(), question.name()),
                (text, "station")
            );
        }
        for text in [
            "",
            "?tcp://127.0.0.1:24000",
            "station?",
            "station?ipc://x",
            "station?tcp://127.0.0.1:24000?soon",
            "station?tcp://127.0.0.1:24000?0?0",
        ] {
            assert!(Question::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Question::parse(&[b'a'; QUESTION_BYTES_MAX + 1]).is_err());
        assert!(Question::parse(&[0xFF]).is_err());
    }
}
