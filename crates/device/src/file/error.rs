//! The error of a description, with its position.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use chappe_stream::descriptor::toml_words;

/// The first error in a device's description.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The key.
    pub key: String,
    /// The problem.
    pub problem: String,
    /// A remedy, if one is known.
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
                io::ErrorKind::NotFound => "name an existing description, a TOML file".to_owned(),
                io::ErrorKind::PermissionDenied => {
                    format!("make it readable for this user: ls -l {}", path.display())
                }
                _ => "a description is a TOML file in UTF-8".to_owned(),
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

    /// An error of the TOML reader; the key is the first word of its line.
    pub(super) fn toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        let mut found = Self::at(path, text, offset, "", &toml_words(error.message()));
        let line = text.lines().nth(found.line - 1).unwrap_or_default();
        let key = line.split('=').next().unwrap_or_default();
        found.key = key.trim().trim_matches(['[', ']']).to_owned();
        found.hint = Some(match missing(error.message()) {
            // The reader's position is the start of the table without the field.
            Some(field) => {
                found.key.clear();
                format!("add a line: {field} = ...")
            }
            None if error.message().contains("map, expected a sequence") => {
                format!("write the table as [[{}]]", found.key)
            }
            None => "check that line for a misspelt key, a quote or a bracket".to_owned(),
        });
        found
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The key that the TOML reader reports as missing.
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
