//! `LIKE`, as SQLite has it: `%` and `_`, and letters of ASCII alike in both cases.

/// Longest pattern in bytes; SQLite refuses longer ones by the sandbox's limit.
const PATTERN_BYTES_MAX: usize = 64;

/// A pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// Any number of characters.
    Any,
    /// One character.
    One,
    /// This character, in lower case.
    This(char),
}

impl Pattern {
    /// The pattern of `text`; `None` when it is too long.
    pub(super) fn new(text: &str) -> Option<Self> {
        if text.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let parts = characters(text).map(|c| match c {
            '%' => Part::Any,
            '_' => Part::One,
            other => Part::This(other),
        });
        Some(Self(parts.collect()))
    }

    /// Whether the whole of `text` matches, up to its first zero.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut rest = text;
        let mut at = 0;
        // Where a failed match continues: after the last `%`, one character later.
        let mut again: Option<(usize, &str)> = None;
        loop {
            let next = characters(rest).next();
            let fits = match (self.0.get(at), next) {
                (Some(Part::Any), _) => {
                    again = Some((at, rest));
                    at += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(Part::One), Some(_)) => true,
                (Some(Part::This(wanted)), Some(found)) => *wanted == found,
                _ => false,
            };
            if fits {
                rest = after_first(rest);
                at += 1;
                continue;
            }
            let Some((any, from)) = again else {
                return false;
            };
            if characters(from).next().is_none() {
                return false;
            }
            rest = after_first(from);
            again = Some((any, rest));
            at = any + 1;
        }
    }
}

fn after_first(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    characters.as_str()
}

/// The characters as SQLite compares them: up to the first zero, with the two noncharacters as the
/// replacement character and ASCII letters in lower case.
fn characters(text: &str) -> impl Iterator<Item = char> {
    let until_zero = text.chars().take_while(|c| *c != '\0');
    until_zero.map(|c| match c {
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        other => other.to_ascii_lowercase(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match() {
        for (pattern, text, matches) in [
            ("", "", true),
            ("a%", "Abc", true),
            ("%c", "abcbc", true),
            ("%b_c%", "xbbcc", true),
            ("_", "", false),
            ("a_c", "aÄc", true),
            ("ä", "Ä", false),
            ("%%", "", true),
            ("a", "a\0b", true),
            ("%ab", "aab", true),
            ("%a%b%c", "abbbbbbb", false),
        ] {
            let found = Pattern::new(pattern).expect("short").matches(text);
            assert_eq!(found, matches, "{text:?} like {pattern:?}");
        }
    }
}
