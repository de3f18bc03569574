//! Typed values, so that numbers need not be formatted as strings.

use std::borrow::Cow;
use std::fmt;

/// Character data with its type, named as in XML Schema part 2.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// `xs:string`, and everything read from text XML.
    Text(Cow<'a, str>),
    /// `xs:boolean`.
    Boolean(bool),
    /// `xs:long` and types within its range.
    Integer(i64),
    /// `xs:double`.
    Double(f64),
}

impl<'a> Value<'a> {
    /// The lexical form, borrowed if it is text.
    #[must_use]
    pub fn lexical(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }

    /// The lexical form, consuming the value.
    #[must_use]
    pub fn into_lexical(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            other => Cow::Owned(other.to_string()),
        }
    }

    /// As `xs:boolean`.
    ///
    /// # Errors
    /// The lexical form is not `true`, `false`, `1` or `0`.
    pub fn boolean(&self) -> Result<bool, ValueError> {
        match self {
            Self::Boolean(value) => Ok(*value),
            other => match trim(&other.lexical()) {
                "true" | "1" => Ok(true),
                "false" | "0" => Ok(false),
                text => Err(ValueError::new("xs:boolean", text)),
            },
        }
    }

    /// As `xs:long`.
    ///
    /// # Errors
    /// The lexical form is not a 64-bit integer.
    pub fn integer(&self) -> Result<i64, ValueError> {
        match self {
            Self::Integer(value) => Ok(*value),
            other => {
                let lexical = other.lexical();
                let text = trim(&lexical);
                text.parse().map_err(|_| ValueError::new("xs:long", text))
            }
        }
    }

    /// As `xs:double`, with `INF`, `-INF` and `NaN`.
    ///
    /// # Errors
    /// The lexical form is not an `xs:double`.
    pub fn double(&self) -> Result<f64, ValueError> {
        match self {
            Self::Double(value) => Ok(*value),
            other => parse_double(trim(&other.lexical())),
        }
    }
}

/// The text without white space at its ends: the four characters of XML Schema. Others, such as a no-break space, are
/// part of a value.
#[must_use]
pub fn trim(text: &str) -> &str {
    text.trim_matches(|c| matches!(c, ' ' | '\t' | '\r' | '\n'))
}

fn parse_double(text: &str) -> Result<f64, ValueError> {
    match text {
        "INF" | "+INF" => Ok(f64::INFINITY),
        "-INF" => Ok(f64::NEG_INFINITY),
        "NaN" => Ok(f64::NAN),
        // Rust's parser also accepts "inf" and "nan", which are not in the lexical space.
        _ if text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) =>
        {
            text.parse().map_err(|_| ValueError::new("xs:double", text))
        }
        _ => Err(ValueError::new("xs:double", text)),
    }
}

/// The lexical form.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Double(value) if value.is_nan() => f.write_str("NaN"),
            Self::Double(value) if value.is_infinite() => {
                f.write_str(if *value > 0.0 { "INF" } else { "-INF" })
            }
            Self::Double(value) => write!(f, "{value}"),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

/// An error for text outside the lexical space of the requested type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an {wanted}")]
pub struct ValueError {
    /// The XML Schema type.
    pub wanted: &'static str,
    /// The offending text, shortened.
    pub text: String,
}

impl ValueError {
    fn new(wanted: &'static str, text: &str) -> Self {
        Self {
            wanted,
            text: text.chars().take(64).collect(),
        }
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}
