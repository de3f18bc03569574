//! The error of a recording, with the file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a recording cannot be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecordingError {
    /// The file or folder.
    pub path: PathBuf,
    /// The problem.
    pub problem: String,
    /// A remedy, if one is known.
    pub hint: Option<String>,
}

impl RecordingError {
    pub(super) fn new(path: &Path, problem: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            problem: problem.into(),
            hint: None,
        }
    }

    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        Self::new(path, error.to_string())
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for RecordingError {}
