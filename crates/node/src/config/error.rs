//! Problems of a configuration, with file, line, key and hint.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

/// One fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, the variable or the flag at fault.
    pub location: String,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The key, in full (`http.listen`).
    pub key: Option<String>,
    /// The fault.
    pub message: String,
    /// How to repair it, when known.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_place(
            &self.location,
            self.line,
            self.key.as_deref(),
            &self.message,
        ))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Why a virtual sensor, wrapper or exporter does not run as its file says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Fault {
    /// The fault.
    pub(crate) message: String,
    /// The line in the file, if the file is at fault.
    pub(crate) line: Option<usize>,
    /// The key in the file.
    pub(crate) key: Option<String>,
    /// How to repair it.
    pub(crate) hint: Option<String>,
}

impl Fault {
    /// The fault with its place in the file.
    pub(crate) fn in_file(&self, file: &str) -> String {
        in_place(file, self.line, self.key.as_deref(), &self.message)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self {
            message: problem.message,
            line: problem.line,
            key: problem.key,
            hint: problem.hint,
        }
    }
}

/// A fault with the place where it is: `node.toml:3: http.listen: MESSAGE`.
fn in_place(location: &str, line: Option<usize>, key: Option<&str>, message: &str) -> String {
    let line = line.map_or(String::new(), |line| format!(":{line}"));
    let key = key.map_or(String::new(), |key| format!("{key}: "));
    format!("{location}{line}: {key}{message}")
}

/// An invalid configuration, with all its faults in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// There is at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The known word closest to `word`, unless more than half of the word or more than three letters differ.
///
/// ```
/// use chappe_node::config::nearest;
/// assert_eq!(nearest("listn", ["listen", "hosts"]), Some("listen"));
/// assert_eq!(nearest("colour", ["listen", "hosts"]), None);
/// ```
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.len() / 2).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The edit distance between two words: characters to insert, remove or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, character) in from.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for column in 0..to.len() {
            let replaced = diagonal + usize::from(to[column] != character);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
