//! The restricted character set of a pattern facet (appendix E).

use alloc::vec::Vec;

/// Sets of this size or larger are not restricted character sets (7.1.10.1).
const CHARACTERS_LIMIT: usize = 256;
/// Maximum nesting of groups.
const DEPTH_MAX: usize = 64;

/// Ranges of code points; [`united`] sorts them and merges adjacent ones.
type Ranges = Vec<(u32, u32)>;

/// The characters of all patterns of one derivation step; none if there is no restricted set.
pub(super) fn character_set(patterns: &[&str]) -> Option<Vec<char>> {
    let mut all = Ranges::new();
    for pattern in patterns {
        let mut parser = Parser {
            rest: pattern,
            depth: 0,
        };
        all.extend(parser.expression()?);
        if !parser.rest.is_empty() {
            return None;
        }
    }
    let all = united(all);
    let count: u64 = all.iter().map(|(from, to)| u64::from(to - from) + 1).sum();
    let plain = all.last().is_none_or(|(_, to)| *to <= 0xffff);
    if count >= CHARACTERS_LIMIT as u64 || !plain {
        return None;
    }
    let characters = all.iter().flat_map(|(from, to)| *from..=*to);
    characters.map(char::from_u32).collect()
}

fn united(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut united = Ranges::new();
    for (from, to) in ranges {
        match united.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
            _ => united.push((from, to)),
        }
    }
    united
}

fn complement(ranges: Ranges) -> Ranges {
    let mut rest = Ranges::new();
    let mut next = 0;
    for (from, to) in united(ranges) {
        if from > next {
            rest.push((next, from - 1));
        }
        next = to + 1;
    }
    rest.push((next, u32::from(char::MAX)));
    rest
}

/// The difference of two sets.
fn without(ranges: Ranges, other: Ranges) -> Ranges {
    let other = complement(other);
    let mut left = Ranges::new();
    for (from, to) in united(ranges) {
        for (begin, end) in &other {
            let (from, to) = (from.max(*begin), to.min(*end));
            if from <= to {
                left.push((from, to));
            }
        }
    }
    left
}

struct Parser<'p> {
    rest: &'p str,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn consume(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    /// Parses branches up to the end or a closing parenthesis.
    fn expression(&mut self) -> Option<Ranges> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut all = Ranges::new();
        loop {
            match self.peek() {
                None | Some(')') => break,
                Some('|') => {
                    self.next();
                }
                Some(_) => {
                    all.extend(self.atom()?);
                    self.quantifier()?;
                }
            }
        }
        self.depth -= 1;
        Some(united(all))
    }

    fn quantifier(&mut self) -> Option<()> {
        match self.peek() {
            Some('?' | '*' | '+') => {
                self.next();
            }
            Some('{') => {
                let (_, after) = self.rest.split_once('}')?;
                self.rest = after;
            }
            _ => {}
        }
        Some(())
    }

    fn atom(&mut self) -> Option<Ranges> {
        match self.next()? {
            '(' => {
                let inner = self.expression()?;
                self.consume(')').then_some(inner)
            }
            '[' => self.class(),
            '\\' => self.escape(),
            // Any character but a line end, a multi-character escape.
            '.' => None,
            '?' | '*' | '+' | '{' | '}' | ']' => None,
            plain => Some([(u32::from(plain), u32::from(plain))].into()),
        }
    }

    fn escape(&mut self) -> Option<Ranges> {
        let one = |character: char| Some([(u32::from(character), u32::from(character))].into());
        match self.next()? {
            'n' => one('\n'),
            'r' => one('\r'),
            't' => one('\t'),
            's' => Some([(9, 10), (13, 13), (32, 32)].into()),
            character @ ('\\' | '|' | '.' | '?' | '*' | '+' | '(' | ')' | '{' | '}' | '-' | '['
            | ']' | '^') => one(character),
            // Categories, and escapes that depend on a version of Unicode.
            _ => None,
        }
    }

    /// Parses a character class after the opening bracket.
    fn class(&mut self) -> Option<Ranges> {
        let negative = self.consume('^');
        let mut ranges = Ranges::new();
        let mut first = true;
        loop {
            if self.consume(']') {
                break;
            }
            if !first && self.rest.starts_with("-[") {
                self.next();
                self.next();
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return None;
                }
                let other = self.class()?;
                self.depth -= 1;
                let own = if negative { complement(ranges) } else { ranges };
                return self.consume(']').then(|| without(own, other));
            }
            first = false;
            let from = match self.next()? {
                '\\' => {
                    let escaped = self.escape()?;
                    match escaped.as_slice() {
                        [(from, to)] if from == to => *from,
                        _ => {
                            ranges.extend(escaped);
                            continue;
                        }
                    }
                }
                plain => u32::from(plain),
            };
            let is_range = self.rest.starts_with('-')
                && !self.rest.starts_with("-]")
                && !self.rest.starts_with("-[");
            if !is_range {
                ranges.push((from, from));
                continue;
            }
            self.next();
            let to = match self.next()? {
                '\\' => match self.escape()?.as_slice() {
                    [(to, end)] if to == end => *to,
                    _ => return None,
                },
                plain => u32::from(plain),
            };
            if to < from {
                return None;
            }
            ranges.push((from, to));
        }
        Some(if negative {
            complement(ranges)
        } else {
            united(ranges)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn set(pattern: &str) -> Option<String> {
        character_set(&[pattern]).map(|set| set.into_iter().collect())
    }

    #[test]
    fn patterns_give_their_character_sets() {
        assert_eq!(set("[a-c]{2,5}|x(y|z)+").as_deref(), Some("abcxyz"));
        assert_eq!(set("urn:[0-9\\-]+").as_deref(), Some("-0123456789:nru"));
        assert_eq!(set("[a-e-[bd]]").as_deref(), Some("ace"));
        assert_eq!(set("[\\s-]?").as_deref(), Some("\t\n\r -"));
        assert_eq!(set("\\d+"), None);
        assert_eq!(set("a.b"), None);
        assert_eq!(set("[^a]"), None);
        assert_eq!(
            set("[\u{0}-\u{fe}]").map(|set| set.chars().count()),
            Some(255)
        );
        assert_eq!(set("[\u{0}-\u{ff}]"), None);
        assert_eq!(set("((("), None);
    }
}
