//! Patterns of topics and file names, whose placeholders give values: `plant/{line}/{machine}/climate`.
//!
//! A pattern has levels, separated by `/`. In a level `{name}` stands for one character or more and gives them
//! the name. In topics a whole level may be `+`, and the last one `#` or `{name...}` for all levels that
//! remain; topics that begin with `$` need a pattern that does (MQTT 5.0, 4.7). In paths of files `*` stands
//! for any characters of a level, `?` for one, and a level `**` for any number of levels.

use crate::template::is_placeholder;

/// Longest pattern, and longest topic or path that is matched, in bytes. A topic of MQTT has at most 65,535;
/// reason for less: names, keys and labels are made of it.
pub const PATTERN_BYTES_MAX: usize = 1_024;

/// Most levels of a pattern, and of a topic or path.
pub const LEVELS_MAX: usize = 64;

/// A text that is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a pattern: {reason}")]
pub struct PatternError {
    /// The text.
    pub pattern: String,
    /// The reason.
    pub reason: String,
}

/// The values that a topic, a file name or headers give to placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    values: Vec<(String, String)>,
}

impl Attributes {
    /// No values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. A later value of the same name replaces an earlier one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.values.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name, value)),
        }
    }

    /// The value of a name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.values.iter();
        let found = values.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What a pattern is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Topic,
    File,
}

/// A compiled pattern.
///
/// ```
/// use chappe_format::Pattern;
/// let pattern = Pattern::topic("plant/{line}/+/climate")?;
/// let values = pattern.matches("plant/3/press/climate").unwrap();
/// assert_eq!(values.value("line"), Some("3"));
/// assert_eq!(pattern.subscription(), "plant/+/+/climate");
/// # Ok::<(), chappe_format::PatternError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pattern {
    kind: Kind,
    levels: Vec<Level>,
    names: Vec<String>,
}

#[derive(Debug, Clone)]
enum Level {
    Parts(Vec<Part>),
    /// All levels that remain, under this name.
    Rest(Option<String>),
    /// Any number of levels.
    AnyLevels,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Literal(String),
    /// One character or more.
    Placeholder(String),
    /// Any characters.
    Any,
    One,
}

impl Pattern {
    /// A pattern of topics.
    ///
    /// # Errors
    /// The text is not one.
    pub fn topic(text: &str) -> Result<Self, PatternError> {
        Self::parse(text, Kind::Topic)
    }

    /// A pattern of paths, relative to a folder.
    ///
    /// # Errors
    /// The text is not one.
    pub fn file(text: &str) -> Result<Self, PatternError> {
        Self::parse(text, Kind::File)
    }

    /// The names of its placeholders.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The topic filter of MQTT that includes all its topics.
    #[must_use]
    pub fn subscription(&self) -> String {
        let levels = self.levels.iter().map(|level| match level {
            Level::Rest(_) | Level::AnyLevels => "#".to_owned(),
            Level::Parts(parts) => match &parts[..] {
                [Part::Literal(text)] => text.clone(),
                [] => String::new(),
                _ => "+".to_owned(),
            },
        });
        levels.collect::<Vec<_>>().join("/")
    }

    /// The values of the placeholders in a topic or path; `None` if it does not match.
    #[must_use]
    pub fn matches(&self, text: &str) -> Option<Attributes> {
        if text.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let levels: Vec<&str> = text.split('/').collect();
        if levels.len() > LEVELS_MAX {
            return None;
        }
        let is_plain = matches!(
            self.levels.first(),
            Some(Level::Parts(parts)) if matches!(parts.first(), Some(Part::Literal(_)))
        );
        if self.kind == Kind::Topic && text.starts_with('$') && !is_plain {
            return None;
        }
        let mut attributes = Attributes::new();
        match_levels(&self.levels, &levels, &mut attributes).then_some(attributes)
    }

    fn parse(text: &str, kind: Kind) -> Result<Self, PatternError> {
        let error = |reason: String| PatternError {
            pattern: text.chars().take(128).collect(),
            reason,
        };
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(error(format!("it has 1 to {PATTERN_BYTES_MAX} bytes")));
        }
        let count = text.split('/').count();
        if count > LEVELS_MAX {
            return Err(error(format!("it has more than {LEVELS_MAX} levels")));
        }
        let mut levels = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for (index, level) in text.split('/').enumerate() {
            let level = parse_level(level, kind, index + 1 == count).map_err(error)?;
            let found = match &level {
                Level::Parts(parts) => parts.iter().filter_map(Part::name).collect(),
                Level::Rest(Some(name)) => vec![name],
                Level::Rest(None) | Level::AnyLevels => Vec::new(),
            };
            for name in found {
                if names.contains(name) {
                    return Err(error(format!("{{{name}}} occurs twice")));
                }
                names.push(name.clone());
            }
            levels.push(level);
        }
        let any_levels = levels.iter().filter(|it| matches!(it, Level::AnyLevels));
        if any_levels.count() > 1 {
            return Err(error("`**` occurs twice".to_owned()));
        }
        Ok(Self {
            kind,
            levels,
            names,
        })
    }
}

impl Part {
    fn name(&self) -> Option<&String> {
        match self {
            Self::Placeholder(name) => Some(name),
            _ => None,
        }
    }
}

fn parse_level(text: &str, kind: Kind, is_last: bool) -> Result<Level, String> {
    match (kind, text) {
        (Kind::Topic, "+") => return Ok(Level::Parts(vec![Part::Any])),
        (Kind::Topic, "#") if is_last => return Ok(Level::Rest(None)),
        (Kind::File, "**") => return Ok(Level::AnyLevels),
        _ => {}
    }
    if kind == Kind::Topic && text.contains(['+', '#']) {
        return Err("`+` is a whole level, and `#` the last one".to_owned());
    }
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let part = match (c, kind) {
            ('{', _) => {
                let (name, after) = rest[1..].split_once('}').ok_or("a brace is not closed")?;
                rest = after;
                if let Some(name) = name.strip_suffix("...") {
                    if !is_last || text.len() != name.len() + 5 || !is_placeholder(name) {
                        return Err("{name...} is a whole level, and the last one".to_owned());
                    }
                    return Ok(Level::Rest(Some(name.to_owned())));
                }
                if !is_placeholder(name) {
                    return Err(format!("{{{name}}} is not a name of a placeholder"));
                }
                Part::Placeholder(name.to_owned())
            }
            ('}', _) => return Err("a brace is not opened".to_owned()),
            ('*', Kind::File) => {
                rest = &rest[1..];
                Part::Any
            }
            ('?', Kind::File) => {
                rest = &rest[1..];
                Part::One
            }
            _ => {
                rest = &rest[c.len_utf8()..];
                literal.push(c);
                continue;
            }
        };
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        let is_wild = |part: &Part| matches!(part, Part::Placeholder(_) | Part::Any);
        if is_wild(&part) && parts.last().is_some_and(is_wild) {
            return Err("two placeholders need a text between them".to_owned());
        }
        parts.push(part);
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(Level::Parts(parts))
}

fn match_levels(levels: &[Level], texts: &[&str], attributes: &mut Attributes) -> bool {
    let Some((level, levels)) = levels.split_first() else {
        return texts.is_empty();
    };
    match level {
        Level::Rest(name) => {
            if let Some(name) = name {
                attributes.set(name.clone(), texts.join("/"));
            }
            // `a/#` includes `a` (MQTT 5.0, 4.7.1.2); a named rest is not empty.
            name.is_none() || !texts.is_empty()
        }
        // There is one at most, so its length is known.
        Level::AnyLevels => match texts.len().checked_sub(levels.len()) {
            Some(skipped) => match_levels(levels, &texts[skipped..], attributes),
            None => false,
        },
        Level::Parts(parts) => match texts.split_first() {
            Some((text, texts)) => {
                match_level(parts, text, attributes) && match_levels(levels, texts, attributes)
            }
            None => false,
        },
    }
}

/// Matches one level. Only the last wild part is extended on a mismatch, which finds every match: what is
/// before it has already the least length. The time is at most the product of both lengths.
fn match_level(parts: &[Part], text: &str, attributes: &mut Attributes) -> bool {
    // For each wild part that matched: its index and the range of its text.
    let mut wild: Vec<(usize, usize, usize)> = Vec::new();
    let (mut part, mut at) = (0, 0);
    loop {
        let rest = &text[at..];
        let next = rest.chars().next().map_or(0, char::len_utf8);
        let advance = match parts.get(part) {
            None if rest.is_empty() => break,
            None => None,
            Some(Part::Literal(literal)) => rest.starts_with(literal).then_some(literal.len()),
            Some(Part::One) => (next > 0).then_some(next),
            Some(Part::Any) => {
                wild.push((part, at, at));
                Some(0)
            }
            Some(Part::Placeholder(_)) if next > 0 => {
                wild.push((part, at, at + next));
                Some(next)
            }
            Some(Part::Placeholder(_)) => None,
        };
        if let Some(advance) = advance {
            at += advance;
            part += 1;
            continue;
        }
        let Some((last, _, end)) = wild.last_mut() else {
            return false;
        };
        let Some(more) = text[*end..].chars().next() else {
            return false;
        };
        *end += more.len_utf8();
        (part, at) = (*last + 1, *end);
    }
    for (part, start, end) in wild {
        if let Some(Part::Placeholder(name)) = parts.get(part) {
            attributes.set(name.clone(), &text[start..end]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(pattern: &Pattern, text: &str) -> Option<Vec<(String, String)>> {
        pattern.matches(text).map(|attributes| attributes.values)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Some(pairs.iter().map(owned).collect())
    }

    #[test]
    fn topics_match_by_level() {
        let table = [
            (
                "plant/{line}/climate",
                "plant/3/climate",
                pairs(&[("line", "3")]),
            ),
            ("plant/{line}/climate", "plant/3/4/climate", None),
            ("plant/{line}/climate", "plant//climate", None),
            ("a/+/b", "a/x/b", pairs(&[])),
            ("a/#", "a", pairs(&[])),
            ("a/#", "a/b/c", pairs(&[])),
            ("a/{rest...}", "a/b/c", pairs(&[("rest", "b/c")])),
            ("a/{rest...}", "a", None),
            ("s-{id}", "s-17", pairs(&[("id", "17")])),
            ("{a}-{b}", "x-y-z", pairs(&[("a", "x"), ("b", "y-z")])),
            ("{a}-end", "x-end-end", pairs(&[("a", "x-end")])),
            ("{a}", "$SYS", None),
            ("$SYS/{a}", "$SYS/up", pairs(&[("a", "up")])),
            ("#", "$SYS/up", None),
            ("é{a}", "éü", pairs(&[("a", "ü")])),
        ];
        for (pattern, text, wanted) in table {
            let pattern = Pattern::topic(pattern).unwrap();
            assert_eq!(values(&pattern, text), wanted, "{pattern:?} {text}");
        }
        let filter = Pattern::topic("plant/{line}/s-{id}/{rest...}").unwrap();
        assert_eq!(filter.subscription(), "plant/+/+/#");
    }

    #[test]
    fn paths_match_with_wild_cards() {
        let table = [
            (
                "{site}_{date}.csv",
                "north_2026.csv",
                pairs(&[("site", "north"), ("date", "2026")]),
            ),
            ("*.csv", ".csv", pairs(&[])),
            ("*.csv", "a/b.csv", None),
            ("**/*.csv", "a/b/c.csv", pairs(&[])),
            ("**/{f}.csv", "c.csv", pairs(&[("f", "c")])),
            ("log?.txt", "log1.txt", pairs(&[])),
            ("log?.txt", "log.txt", None),
        ];
        for (pattern, text, wanted) in table {
            let pattern = Pattern::file(pattern).unwrap();
            assert_eq!(values(&pattern, text), wanted, "{pattern:?} {text}");
        }
    }

    #[test]
    fn wrong_patterns_name_the_reason() {
        for (pattern, word) in [
            ("", "bytes"),
            ("a/{b", "closed"),
            ("a/b}", "opened"),
            ("{a}{b}", "between"),
            ("{a}/{a}", "twice"),
            ("a+/b", "whole level"),
            ("#/a", "last"),
            ("{a...}/b", "last"),
            ("{}", "name"),
        ] {
            let error = Pattern::topic(pattern).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    proptest! {
        #[test]
        fn values_put_back_give_the_topic(
            line in "[a-z0-9 .é]{1,8}", machine in "[a-z0-9_]{1,8}",
        ) {
            let pattern = Pattern::topic("p/{line}/m-{machine}-x").unwrap();
            let topic = format!("p/{line}/m-{machine}-x");
            let found = pattern.matches(&topic).unwrap();
            prop_assert_eq!(found.value("line"), Some(&*line));
            prop_assert_eq!(found.value("machine"), Some(&*machine));
        }

        #[test]
        fn no_text_panics(pattern in "[a{}*?/.+#é]{0,12}", text in "[a/é.]{0,12}") {
            for pattern in [Pattern::topic(&pattern), Pattern::file(&pattern)].into_iter().flatten() {
                let _ = pattern.matches(&text);
                let _ = pattern.subscription();
            }
        }
    }
}
