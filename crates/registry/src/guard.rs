//! Checks a query's text before it is parsed.
//!
//! The parser and the evaluator recurse as deeply as the query is nested or chained. This check
//! bounds both by counting nesting and chaining constructs, and reports whether the stack of the
//! calling thread certainly suffices.
//!
//! `<` starts an IRI reference or compares. SPARQL 1.1 (section 19.8, IRIREF, and the longest match
//! of section 19.2) decides that by the characters up to `>`; the parser decides by position. To
//! make both agree, characters of an IRI that could be operators are passed to the parser as the
//! grammar's `\uXXXX`, which it understands only within IRIs and strings.

use std::borrow::Cow;
use std::fmt::Write;

use crate::limits::SparqlError;

/// Maximum number of brackets open at once, of all kinds.
pub(crate) const MAX_NESTING: usize = 24;
/// A query within this nesting and these operators needs less than the 2 MiB stack of an ordinary
/// thread, in a debug build too (measured: 40 KiB for each step of a chain).
const SMALL_NESTING: usize = 6;
const SMALL_OPERATORS: usize = 16;
/// Maximum number of operators, groups and keywords; each makes the algebra one step deeper.
pub(crate) const MAX_OPERATORS: usize = 192;

/// Hyphens in an IRI like `urn:uuid:...`; in one with more, the characters are escaped.
const MAX_IRI_HYPHENS: usize = 8;

/// Nested negations. Default 6: the parser reads the operand of each twice, so each doubles its
/// time, and the time limit does not apply to the parser.
const MAX_NEGATIONS: usize = 6;

/// Keywords that add a step to the algebra.
const KEYWORDS: [&str; 11] = [
    "UNION", "OPTIONAL", "MINUS", "FILTER", "BIND", "VALUES", "GRAPH", "AS", "EXISTS", "LATERAL",
    "SELECT",
];

/// Text within the limits of nesting and chaining.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked<'a> {
    /// The query, with its IRIs written so that the parser recognizes them.
    pub(crate) text: Cow<'a, str>,
    /// Whether a small stack suffices.
    pub(crate) small: bool,
}

/// Rejects text that nests or chains too much.
pub(crate) fn check(query: &str) -> Result<Checked<'_>, SparqlError> {
    let mut rest = query.as_bytes();
    let mut escapes = Escapes::default();
    let (mut depth, mut deepest, mut operators) = (0_usize, 0_usize, 0_usize);
    let mut negations = Negations::default();
    while let Some((first, tail)) = rest.split_first() {
        let mut skip = 1;
        match first {
            b'#' => skip += tail.iter().take_while(|byte| **byte != b'\n').count(),
            b'"' | b'\'' => skip = string_length(rest),
            b'<' => match iri_length(rest) {
                Some(length) => {
                    let start = query.len() - rest.len();
                    escapes.iri(query, start + 1, start + length - 1);
                    skip = length;
                }
                None => operators += 1,
            },
            b'(' | b'[' | b'{' => {
                depth += 1;
                operators += usize::from(*first == b'{');
                negations.open();
            }
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                negations.close();
            }
            b'!' if tail.first() != Some(&b'=') => {
                operators += 1;
                negations.begin();
            }
            b'+' | b'-' | b'*' | b'/' | b'|' | b'&' | b'^' | b'=' | b'>' | b'!' => operators += 1,
            b'?' | b'$' => {
                let name = word_length(tail);
                // The question mark of a path is not followed by a name.
                operators += usize::from(name == 0);
                skip += name;
            }
            byte if byte.is_ascii_alphabetic() || *byte == b'_' || *byte == b':' => {
                skip = word_length(rest).max(1);
                let word = rest.get(..skip).unwrap_or_default();
                let keyword = |keyword: &&str| word.eq_ignore_ascii_case(keyword.as_bytes());
                operators += usize::from(KEYWORDS.iter().any(keyword));
            }
            _ => {}
        }
        deepest = deepest.max(depth);
        if depth > MAX_NESTING {
            return Err(over("nested brackets", MAX_NESTING));
        }
        if operators > MAX_OPERATORS {
            return Err(over("operators and groups", MAX_OPERATORS));
        }
        if negations.nested() > MAX_NEGATIONS {
            return Err(over("nested negations", MAX_NEGATIONS));
        }
        rest = rest.get(skip..).unwrap_or_default();
    }
    Ok(Checked {
        text: escapes.finish(query),
        small: deepest <= SMALL_NESTING && operators <= SMALL_OPERATORS,
    })
}

/// The number of negations around the current position, as far as brackets show.
#[derive(Default)]
struct Negations {
    /// For each open bracket: whether it is an operand of a negation.
    brackets: Vec<bool>,
    /// There is a negation whose operand may still follow.
    is_begun: bool,
}

impl Negations {
    fn begin(&mut self) {
        self.is_begun = true;
    }

    fn open(&mut self) {
        self.brackets.push(std::mem::take(&mut self.is_begun));
    }

    fn close(&mut self) {
        self.brackets.pop();
        self.is_begun = false;
    }

    fn nested(&self) -> usize {
        let negated = self.brackets.iter().filter(|is_negated| **is_negated);
        negated.count()
    }
}

fn over(limit: &'static str, value: usize) -> SparqlError {
    SparqlError::Limit {
        limit,
        value: value as u64,
    }
}

/// Length of a name that may continue with a prefixed local part. A minus sign ends it, so that no
/// possible operator is missed.
fn word_length(bytes: &[u8]) -> usize {
    let part = |byte: &&u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':') || !byte.is_ascii()
    };
    bytes.iter().take_while(part).count()
}

/// Length of the IRI reference at the start of `bytes`, including both brackets; `None` if `<` is
/// an operator.
fn iri_length(bytes: &[u8]) -> Option<usize> {
    let stop = |byte: &u8| matches!(byte, b'>' | b'<' | b'"' | b'{' | b'}' | b'|' | b'^' | b'`');
    let inner = bytes.get(1..)?;
    let end = inner.iter().position(|byte| stop(byte) || *byte <= b' ')?;
    (inner.get(end) == Some(&b'>')).then_some(end + 2)
}

/// Whether no expression looks like this IRI.
///
/// No operand starts with two slashes. Of the plain characters only the minus is an operator, and a
/// name of this length contains few.
fn is_unmistakable(iri: &str) -> bool {
    let scheme = iri
        .find(|sign: char| !sign.is_ascii_alphanumeric())
        .unwrap_or(0);
    let with_authority = scheme > 0 && iri.get(scheme..).is_some_and(|r| r.starts_with("://"));
    let hyphens = iri.matches('-').count();
    with_authority
        || (hyphens <= MAX_IRI_HYPHENS && iri.chars().all(|sign| sign == '-' || is_plain(sign)))
}

/// Whether a character is neither operator, bracket, quote nor comment.
fn is_plain(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, ':' | '.' | '_' | '~' | '%') || !sign.is_ascii()
}

/// A query with the characters of some IRIs escaped.
#[derive(Default)]
struct Escapes {
    /// The text written so far, and the number of bytes of the query that it covers.
    text: String,
    done: usize,
}

impl Escapes {
    /// Escapes the IRI between two positions if necessary.
    fn iri(&mut self, query: &str, from: usize, to: usize) {
        let iri = query.get(from..to).unwrap_or_default();
        if is_unmistakable(iri) {
            return;
        }
        self.text
            .push_str(query.get(self.done..from).unwrap_or_default());
        for sign in iri.chars() {
            // A backslash starts an existing escape.
            if is_plain(sign) || sign == '\\' {
                self.text.push(sign);
            } else {
                // Writing to a string does not fail.
                let _ = write!(self.text, "\\u{:04X}", u32::from(sign));
            }
        }
        self.done = to;
    }

    fn finish(mut self, query: &str) -> Cow<'_, str> {
        if self.done == 0 {
            return Cow::Borrowed(query);
        }
        self.text
            .push_str(query.get(self.done..).unwrap_or_default());
        Cow::Owned(self.text)
    }
}

/// Length of the string at the start of `bytes`; up to the end if it is not closed.
fn string_length(bytes: &[u8]) -> usize {
    let quote = bytes.first().copied().unwrap_or(b'"');
    let triple = bytes.starts_with(&[quote; 3]);
    let width = if triple { 3 } else { 1 };
    let mut at = width;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.first() == Some(&b'\\') {
            at += 2;
        } else if rest
            .iter()
            .take(width)
            .filter(|byte| **byte == quote)
            .count()
            == width
        {
            return at + width;
        } else if !triple && matches!(rest.first(), Some(b'\n' | b'\r')) {
            return at;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_strings_iris_and_comments_does_not_count() {
        let text = format!(
            "SELECT * {{ ?s <http://e/{}> '''{}''' , \"{}\\\"((((\" # {}\n }}",
            "+".repeat(300),
            "'((".repeat(300),
            "{".repeat(300),
            "(".repeat(300)
        );
        let checked = check(&text).unwrap();
        assert!(checked.small);
        assert_eq!(checked.text, text);
    }

    #[test]
    fn what_may_be_an_expression_is_written_as_an_iri() {
        let as_iri = |text: &str| check(text).unwrap().text.into_owned();
        let plain = "SELECT * { ?s ?p <urn:uuid:0f2c-11-22-33-44> , <urn:x:é> }";
        assert_eq!(as_iri(plain), plain);
        for (text, written) in [
            ("?s <urn:x#y> 'a'", r"?s <urn:x\u0023y> 'a'"),
            (
                "<urn:a?b=c>,<urn:d@f!>",
                r"<urn:a\u003Fb\u003Dc>,<urn:d\u0040f\u0021>",
            ),
            (r"<urn:a\u0023b'>", r"<urn:a\u0023b\u0027>"),
            ("?a<?b+?c>1", r"?a<\u003Fb\u002B\u003Fc>1"),
            ("?a<'x'+?b>1", r"?a<\u0027x\u0027\u002B\u003Fb>1"),
            ("?a<((1))>1", r"?a<\u0028\u00281\u0029\u0029>1"),
        ] {
            assert_eq!(as_iri(text), written);
        }
        // With white space or a quote before the bracket it is not an IRI, so it counts.
        let chain = "?a<?b + ?c>1 ".repeat(100);
        assert!(check(&chain).is_err());
    }

    #[test]
    fn negations_inside_each_other_are_bounded() {
        let nested = |open: &str, close: &str, count: usize| {
            let text = format!(
                "ASK {{ FILTER({}1{}) }}",
                open.repeat(count),
                close.repeat(count)
            );
            match check(&text) {
                Err(SparqlError::Limit { limit, .. }) => limit,
                _ => "",
            }
        };
        for (open, close) in [
            ("!(", ")"),
            ("! # \n IF(1, 1,", ")"),
            ("!EXISTS { FILTER(", ")}"),
        ] {
            assert_eq!(nested(open, close, MAX_NEGATIONS), "", "{open}");
            assert_eq!(
                nested(open, close, MAX_NEGATIONS + 1),
                "nested negations",
                "{open}"
            );
        }
        let beside = "FILTER(!(?a) && !BOUND(?b) && ?a != (1)) ".repeat(20);
        assert!(check(&format!("ASK {{ {beside} }}")).is_ok());
        assert_eq!(nested("(?a != ", ")", 20), "");
    }

    #[test]
    fn nesting_and_chains_are_bounded() {
        let nested = format!("SELECT * {{ FILTER{}1{} }}", "(".repeat(30), ")".repeat(30));
        let limit = |text: &str| match check(text) {
            Err(SparqlError::Limit { limit, .. }) => limit,
            _ => "",
        };
        assert_eq!(limit(&nested), "nested brackets");
        for link in [
            "+1",
            " -1",
            "-1",
            "||?a",
            "/<b>",
            " UNION {}",
            "?",
            " < 1",
            "*",
            "^<c>",
        ] {
            let chain = format!("SELECT * {{ ?a {} }}", link.repeat(300));
            assert_eq!(limit(&chain), "operators and groups", "{link}");
        }
    }
}
