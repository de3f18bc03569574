//! The check of a query's text before it is parsed.
//!
//! The parser and the evaluator work by recursion, as deep as the query is nested or chained. This
//! check bounds both, by counting what nests and what chains, and says whether the stack of the
//! calling thread is surely enough.

use crate::sparql::SparqlError;

/// Brackets open at once, of all kinds.
pub(crate) const MAX_NESTING: usize = 24;
/// A query of at most this nesting and these operators needs less than the 2 MiB stack of an ordinary
/// thread, debug build included (measured: 40 KiB for each step of a chain).
const SMALL_NESTING: usize = 6;
const SMALL_OPERATORS: usize = 16;
/// Operators, groups and keywords that make the algebra one step deeper each.
pub(crate) const MAX_OPERATORS: usize = 192;

/// Hyphens of an IRI like `urn:uuid:...`, which are counted with the operators beyond this.
const MAX_IRI_HYPHENS: usize = 8;

/// Keywords that add a step to the algebra.
const KEYWORDS: [&str; 11] = [
    "UNION", "OPTIONAL", "MINUS", "FILTER", "BIND", "VALUES", "GRAPH", "AS", "EXISTS", "LATERAL",
    "SELECT",
];

/// Refuses text that nests or chains too much; true when it is small.
pub(crate) fn check(query: &str) -> Result<bool, SparqlError> {
    let mut rest = query.as_bytes();
    let (mut depth, mut deepest, mut operators) = (0_usize, 0_usize, 0_usize);
    while let Some((first, tail)) = rest.split_first() {
        let mut skip = 1;
        match first {
            b'#' => skip += tail.iter().take_while(|byte| **byte != b'\n').count(),
            b'"' | b'\'' => skip = string_length(rest),
            b'<' => match iri_length(rest)? {
                Some(length) => skip = length,
                None => operators += 1,
            },
            b'(' | b'[' => depth += 1,
            b'{' => {
                depth += 1;
                operators += 1;
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'+' | b'-' | b'*' | b'/' | b'|' | b'&' | b'^' | b'=' | b'>' | b'!' => operators += 1,
            b'?' | b'$' => {
                let name = word_length(tail);
                // A path's question mark is followed by no name.
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
        rest = rest.get(skip..).unwrap_or_default();
    }
    Ok(deepest <= SMALL_NESTING && operators <= SMALL_OPERATORS)
}

fn over(limit: &'static str, value: usize) -> SparqlError {
    SparqlError::Limit {
        limit,
        value: value as u64,
    }
}

/// Length of a name that may go on with a prefixed local part. A minus sign ends it, so that none
/// that could be an operator is missed.
fn word_length(bytes: &[u8]) -> usize {
    let part = |byte: &&u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':') || !byte.is_ascii()
    };
    bytes.iter().take_while(part).count()
}

/// Length of the IRI that `bytes` begins with; `None` when the sign is an operator.
///
/// `<` is both, and the parser decides by its place: `?a<?b+?c>?d` is an expression. Text that could
/// be either must not hide operators or quotes from the count, so it is refused.
fn iri_length(bytes: &[u8]) -> Result<Option<usize>, SparqlError> {
    let stop = |byte: &u8| matches!(byte, b'>' | b'<' | b'"' | b'{' | b'}' | b'|' | b'^' | b'`');
    let inner = bytes.get(1..).unwrap_or_default();
    let end = inner
        .iter()
        .position(|byte| stop(byte) || *byte <= b' ')
        .unwrap_or(inner.len());
    if inner.get(end) != Some(&b'>') {
        return Ok(None);
    }
    let iri = inner.get(..end).unwrap_or_default();
    let scheme = iri
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .count();
    let with_authority = scheme > 0 && iri.get(scheme..).is_some_and(|r| r.starts_with(b"://"));
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'_' | b'-' | b'~' | b'%')
    };
    // An expression has no operand that begins with two slashes, and no operator in the second kind
    // but the minus sign, of which a name of this length has few.
    let minus = iri.iter().filter(|byte| **byte == b'-').count();
    if with_authority || (iri.iter().all(plain) && minus <= MAX_IRI_HYPHENS) {
        return Ok(Some(end + 2));
    }
    Err(SparqlError::NotOffered(
        "an IRI without :// that has other signs than letters, digits and :._-~%",
    ))
}

/// Length of the string that `bytes` begins with; to the end when it is not closed.
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
        assert_eq!(check(&text), Ok(true));
    }

    #[test]
    fn what_may_be_an_expression_hides_nothing() {
        assert!(check("SELECT * { ?s ?p <urn:uuid:0f2c-11-22-33-44> }").is_ok());
        for text in [
            "?a<?b+?b+?b>1",
            "?a<e:b+e:b>1",
            "?a<e:b#>\"",
            "?a<'x://'+?b>1",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
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
