//! Errors of a descriptor: the fault, its position, and the remedy.

use std::fmt;
use std::ops::Range;

use super::words::toml_words;

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorFault {
    /// The text is not TOML.
    Syntax,
    /// A key that no descriptor has.
    UnknownKey,
    /// A key that must be there.
    MissingKey,
    /// A value of the wrong type, or one that is not allowed.
    Value,
    /// The statement.
    Sql,
}

/// A fault of a descriptor. Written `file:line:column: key: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorError {
    /// The kind.
    pub fault: DescriptorFault,
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key, as a path: `source[1].window`.
    pub key: String,
    /// The fault.
    pub message: String,
    /// The remedy, if known.
    pub hint: Option<String>,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line, column) = (&self.file, self.line, self.column);
        write!(f, "{file}:{line}:{column}: ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DescriptorError {}

/// A text and its name, to locate faults. Shared by all files whose errors look like those of a
/// descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Place<'t> {
    /// The file, as errors name it.
    pub file: &'t str,
    /// Its text.
    pub text: &'t str,
}

impl Place<'_> {
    /// A fault at byte `at`.
    #[must_use]
    pub fn error(
        &self,
        fault: DescriptorFault,
        at: usize,
        key: impl Into<String>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> DescriptorError {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        DescriptorError {
            fault,
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            key: key.into(),
            message: message.into(),
            hint,
        }
    }

    /// The fault that TOML or serde found.
    #[must_use]
    pub fn toml(&self, error: &toml::de::Error) -> DescriptorError {
        let span = error.span().unwrap_or(0..0);
        let (message, hint) = match error.message().split_once(HINT) {
            Some((message, hint)) => (message, Some(hint.to_owned())),
            None => (error.message(), None),
        };
        let message = message.trim_end().replace('\n', ", ");
        let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        if message.starts_with("unknown field")
            && let Some((unknown, known)) = names.split_first()
        {
            let fault = DescriptorFault::UnknownKey;
            let hint = match nearest(unknown, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => {
                    "compare it with the keys of its kind in the reference".to_owned()
                }
                None => format!("valid keys: {}", known.join(", ")),
            };
            // Of a table whose keys come from several structs, serde knows neither the keys nor the place.
            let at = match known.is_empty() {
                true => self.line_of(unknown).unwrap_or(span.start),
                false => span.start,
            };
            let message = "unknown key".to_owned();
            return self.error(fault, at, *unknown, message, Some(hint));
        }
        if message.starts_with("missing field") {
            let key = names.first().copied().unwrap_or_default();
            let fault = DescriptorFault::MissingKey;
            return self.error(fault, span.start, key, "this key is missing", hint);
        }
        if message.starts_with("unknown variant")
            && let Some((unknown, known)) = names.split_first()
        {
            let message = format!("`{unknown}` is not one of {}", known.join(", "));
            let hint = nearest(unknown, known).map(|near| format!("did you mean `{near}`?"));
            let key = self.key_before(&span);
            return self.error(DescriptorFault::Value, span.start, key, message, hint);
        }
        let wrong = message.starts_with("wanted ")
            || (message.starts_with("invalid") && message.contains("expected "));
        let fault = if wrong || hint.is_some() {
            DescriptorFault::Value
        } else {
            DescriptorFault::Syntax
        };
        let (key, hint) = match self.table_at(&span) {
            Some(table)
                if message == "duplicate key"
                    || message.starts_with("invalid type: map, expected a sequence") =>
            {
                let hint = format!("write each table of a list as [[{table}]]");
                (table.to_owned(), Some(hint))
            }
            Some(table) => (table.to_owned(), hint),
            None => (self.key_before(&span), hint),
        };
        self.error(fault, span.start, key, toml_words(&message), hint)
    }

    /// The name of the table, if `span` begins in the line of its head.
    fn table_at(&self, span: &Range<usize>) -> Option<&str> {
        let line_start = self
            .text
            .get(..span.start)?
            .rfind('\n')
            .map_or(0, |end| end + 1);
        let head = self.text[line_start..].trim_start().strip_prefix('[')?;
        let (name, _) = head.trim_start_matches('[').split_once(']')?;
        Some(name.trim())
    }

    /// Where the first line starts that sets a key.
    fn line_of(&self, key: &str) -> Option<usize> {
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            let rest = line.trim_start().strip_prefix(key);
            if rest.is_some_and(|rest| rest.trim_start().starts_with('=')) {
                return Some(start);
            }
            start += line.len();
        }
        None
    }

    /// The key whose value starts at `span`: the text before the `=` on its line.
    fn key_before(&self, span: &Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let Some((keys, _)) = line.rsplit_once('=') else {
            return String::new();
        };
        let key = keys.rsplit(['{', ',', '=']).next().unwrap_or_default();
        key.trim().to_owned()
    }
}

/// Parts a hint from its message in an error that passes through serde.
pub const HINT: &str = "; hint: ";

/// The known word most similar to `word`.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> = word.chars().take(64).collect();
    let best = known
        .iter()
        .map(|known| (distance(&word, &known.chars().collect::<Vec<_>>()), *known))
        .min()?;
    let most = (word.len() / 3).max(1);
    (best.0 <= most).then_some(best.1)
}

/// Number of letters to insert, delete or replace to turn one word into the other.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_when_it_is_near() {
        let known = ["window", "slide", "alias"];
        assert_eq!(nearest("windw", &known), Some("window"));
        assert_eq!(nearest("sldie", &known), None);
        assert_eq!(nearest("slyde", &known), Some("slide"));
        assert_eq!(nearest("temperature", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
