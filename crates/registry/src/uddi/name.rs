//! Patterns of names in inquiries.
//!
//! Source: UDDI 2.04 API specification, arguments `name` of the find calls, and appendix E,
//! qualifiers `exactNameMatch` and `caseSensitiveMatch`.

use super::error::{Error, ErrorCode};
use super::limits::MAX_NAME_CHARACTERS;
use super::qualifier::FindQualifiers;
use super::value::{Language, Text};
use crate::partition::fold;

/// Maximum number of names in one inquiry.
pub const MAX_NAMES: usize = 5;

/// Maximum number of wildcards in one name; adjacent ones count as one. Reason: each is a search in every
/// name of the registry, and names that people look for have few.
const MAX_WILDCARDS: usize = 16;

/// A name in an inquiry with the qualifiers that apply to it.
#[derive(Clone, Debug)]
pub(crate) struct NamePattern {
    /// Only names in a language that begins like this, such as a dialect.
    language: Option<Language>,
    /// The text between the wildcards, folded unless case is significant.
    parts: Vec<String>,
    is_case_sensitive: bool,
}

impl NamePattern {
    /// Reads the names of an inquiry.
    pub(crate) fn all(names: &[Text], qualifiers: &FindQualifiers) -> Result<Vec<Self>, Error> {
        if names.len() > MAX_NAMES {
            let detail = format!("{} names; the limit is {MAX_NAMES}", names.len());
            return Err(Error::new(ErrorCode::TooManyOptions, detail));
        }
        names
            .iter()
            .map(|name| Self::new(name, qualifiers))
            .collect()
    }

    fn new(name: &Text, qualifiers: &FindQualifiers) -> Result<Self, Error> {
        let characters = name.text.chars().count();
        if characters > MAX_NAME_CHARACTERS {
            let detail =
                format!("a name has {characters} characters; the limit is {MAX_NAME_CHARACTERS}");
            return Err(Error::new(ErrorCode::NameTooLong, detail));
        }
        let is_case_sensitive = qualifiers.case_sensitive_match;
        let text = if is_case_sensitive {
            name.text.clone()
        } else {
            fold(&name.text)
        };
        let mut parts: Vec<String> = if qualifiers.exact_name_match {
            vec![text]
        } else {
            text.split('%').map(str::to_owned).collect()
        };
        // Adjacent wildcards match what one matches.
        let last = parts.len().saturating_sub(1);
        let mut at = 0..;
        parts.retain(|part| {
            let at = at.next().unwrap_or_default();
            at == 0 || at == last || !part.is_empty()
        });
        if parts.len() > MAX_WILDCARDS + 1 {
            let wildcards = parts.len() - 1;
            let detail = format!("a name has {wildcards} wildcards; the limit is {MAX_WILDCARDS}");
            return Err(Error::new(ErrorCode::TooManyOptions, detail));
        }
        // A match from the left is a wildcard at the end.
        if !qualifiers.exact_name_match && parts.last().is_some_and(|last| !last.is_empty()) {
            parts.push(String::new());
        }
        Ok(Self {
            language: name.language.clone(),
            parts,
            is_case_sensitive,
        })
    }

    /// Whether the pattern matches a name.
    pub(crate) fn matches(&self, text: &str, language: Option<&str>) -> bool {
        if let Some(asked) = self.language.as_ref().map(Language::as_str)
            && !language
                .and_then(|language| language.get(..asked.len()))
                .is_some_and(|start| start.eq_ignore_ascii_case(asked))
        {
            return false;
        }
        if self.is_case_sensitive {
            self.matches_text(text)
        } else {
            self.matches_text(&fold(text))
        }
    }

    /// Whether the pattern may match a name with this folded text, and certainly does if only
    /// the text decides.
    pub(crate) fn admits(&self, folded: &str) -> bool {
        self.is_case_sensitive || self.matches_text(folded)
    }

    /// Whether the folded text of a name decides.
    pub(crate) fn is_decided_by_text(&self) -> bool {
        self.language.is_none() && !self.is_case_sensitive
    }

    fn matches_text(&self, text: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return text == first;
        };
        let Some(mut text) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        for part in middle {
            let Some(at) = text.find(part.as_str()) else {
                return false;
            };
            text = text.get(at + part.len()..).unwrap_or_default();
        }
        text.ends_with(last.as_str())
    }

    /// What the folded text of every match starts with.
    pub(crate) fn folded_prefix(&self) -> String {
        fold(self.parts.first().map_or("", String::as_str))
    }

    /// Whether a match equals [`NamePattern::folded_prefix`] when folded.
    pub(crate) fn is_exact(&self) -> bool {
        self.parts.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uddi::FindCall;

    fn pattern(name: &str, qualifiers: &[&str]) -> NamePattern {
        let words = qualifiers.iter().copied();
        let qualifiers = FindQualifiers::parse(FindCall::Business, words).unwrap();
        NamePattern::new(&Text::plain(name), &qualifiers).unwrap()
    }

    #[test]
    fn a_name_matches_from_the_left_without_case() {
        let plain = pattern("Heart", &[]);
        assert!(plain.matches("heart monitor", None));
        assert!(plain.matches("HEART", Some("en")));
        assert!(!plain.matches("my heart", None));
        assert_eq!(plain.folded_prefix(), "heart");
    }

    #[test]
    fn a_wildcard_stands_for_any_characters_anywhere() {
        assert!(pattern("%monitor", &[]).matches("Heart Monitor", None));
        assert!(pattern("%monitor", &[]).matches("monitors", None));
        assert!(pattern("h%t%r", &[]).matches("Heart Monitor X", None));
        assert!(!pattern("h%z", &[]).matches("Heart", None));
        assert!(pattern("%", &[]).matches("", None));
        assert!(!pattern("aa%aa", &[]).matches("aaa", None));
    }

    #[test]
    fn wildcards_are_limited_and_adjacent_ones_count_as_one() {
        let qualifiers = ["caseSensitiveMatch"].into_iter();
        let qualifiers = FindQualifiers::parse(FindCall::Business, qualifiers).unwrap();
        let read = |name: &str| NamePattern::new(&Text::plain(name), &qualifiers);
        let many = read(&"%".repeat(119)).unwrap();
        assert_eq!(many.parts.len(), 2);
        assert!(many.matches("Heart", None) && many.matches("", None));
        let within = read(&format!("a%%{}", "a%".repeat(MAX_WILDCARDS - 1))).unwrap();
        assert!(within.matches(&"a".repeat(MAX_WILDCARDS), None));
        assert!(!within.matches(&"a".repeat(MAX_WILDCARDS - 1), None));
        let error = read(&"a%".repeat(MAX_WILDCARDS + 1)).unwrap_err();
        assert_eq!(error.code, ErrorCode::TooManyOptions);
    }

    #[test]
    fn an_exact_match_takes_the_wildcard_literally() {
        let exact = pattern("100%", &["exactNameMatch"]);
        assert!(exact.matches("100%", None));
        assert!(!exact.matches("100 of 100", None));
        let exact = pattern("Heart", &["exactNameMatch"]);
        assert!(exact.matches("HEART", None));
        assert!(!exact.matches("Hearts", None));
    }

    #[test]
    fn case_counts_on_request() {
        let cased = pattern("Heart", &["caseSensitiveMatch"]);
        assert!(cased.matches("Heart monitor", None));
        assert!(!cased.matches("heart monitor", None));
        assert!(cased.admits("heart monitor"));
    }

    #[test]
    fn a_language_matches_from_the_left() {
        let mut german = pattern("w", &[]);
        german.language = Language::parse("de");
        assert!(german.matches("Waage", Some("de-at")));
        assert!(german.matches("Waage", Some("DE")));
        assert!(german.matches("Waage", Some("den")), "the text says so");
        assert!(!german.matches("Waage", Some("en-de")));
        assert!(!german.matches("Waage", None));
    }
}
