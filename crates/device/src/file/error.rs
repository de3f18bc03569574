//! What is wrong with a description, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The first thing that is wrong with a device's description.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// The key.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do, when that is known.
    pub hint: Option<String>,
}

impl FileError {
    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self {
            file: path.to_owned(),
            line: 0,
            key: String::new(),
            problem: error.to_string(),
            hint: Some(match error.kind() {
                io::ErrorKind::NotFound => {
                    "name a description that exists, a file of TOML".to_owned()
                }
                io::ErrorKind::PermissionDenied => {
                    format!("let this user read it: ls -l {}", path.display())
                }
                _ => "a description is a file of TOML in UTF-8".to_owned(),
            }),
        }
    }

    pub(super) fn at(path: &Path, text: &str, offset: usize, key: &str, problem: &str) -> Self {
        let before = text.as_bytes().iter().take(offset);
        Self {
            file: path.to_owned(),
            line: before.filter(|byte| **byte == b'\n').count() + 1,
            key: key.to_owned(),
            problem: problem.to_owned(),
            hint: None,
        }
    }

    /// An error of the TOML reader; the key is what stands at the beginning of its line.
    pub(super) fn toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        let mut found = Self::at(path, text, offset, "", error.message());
        let line = text.lines().nth(found.line - 1).unwrap_or_default();
        let key = line.split('=').next().unwrap_or_default();
        found.key = key.trim().trim_matches(['[', ']']).to_owned();
        found.hint = Some(match missing(error.message()) {
            // The reader stands at the beginning of the table that lacks it.
            Some(field) => {
                found.key.clear();
                format!("add a line: {field} = ...")
            }
            None => "look for a misspelt key, a quote or a bracket on that line".to_owned(),
        });
        found
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The key that the TOML reader misses.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for FileError {}
