//! The reason why a measurement cannot continue, and the remedy.

use std::fmt;

/// An error that ends a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The description.
    pub text: String,
    /// The remedy, if known.
    pub hint: Option<String>,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An error of the operating system during `what`.
    pub(crate) fn io(what: &str) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_owned();
        move |error| Self::new(format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<chappe_transport::zeromq::Error> for Error {
    fn from(error: chappe_transport::zeromq::Error) -> Self {
        Self {
            text: error.to_string(),
            hint: error.hint(),
        }
    }
}
