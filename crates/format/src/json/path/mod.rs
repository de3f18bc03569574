//! JSONPath (RFC 9535): queries that select values of a JSON document.
//!
//! All of the standard: child and descendant segments; name, wildcard, index, slice and filter selectors;
//! the functions `length`, `count`, `match`, `search` and `value`; types of functions are checked when
//! the query is parsed. It is our own for one reason: documents come from strangers, and the time of a
//! query such as `$..*..*` grows with a power of the document. Every step spends [`Work`], which ends.
//!
//! Not here: normalized paths, which no mapping needs.

mod evaluate;
mod parse;

use std::fmt;

use regex::Regex;
use serde_json::Value as Json;

/// Longest query in bytes; reason: people write it.
const PATH_BYTES_MAX: usize = 1_024;

/// Deepest nesting of brackets and filters; reason: the parser is recursive.
const NESTING_MAX: usize = 32;

/// Longest pattern of `match` and `search`, and its size when compiled; reason: documents may hold them.
const PATTERN_BYTES_MAX: usize = 1_024;
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 18;

/// A text that is not a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (byte {offset})")]
pub struct PathError {
    /// Byte offset in the query.
    pub offset: usize,
    /// The reason.
    pub reason: String,
}

/// The query needs more steps than one message may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfWork;

/// The steps that are left. A step visits one node.
#[derive(Debug)]
pub struct Work {
    left: u64,
}

impl Work {
    /// So many steps.
    #[must_use]
    pub const fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    fn spend(&mut self, steps: u64) -> Result<(), OutOfWork> {
        self.left = self.left.checked_sub(steps).ok_or(OutOfWork)?;
        Ok(())
    }
}

/// A parsed query.
#[derive(Debug, Clone)]
pub struct JsonPath {
    segments: Vec<Segment>,
}

impl JsonPath {
    /// Parses a query, which begins with `$`.
    ///
    /// # Errors
    /// The text is no query.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        parse::path(text)
    }

    /// Whether it selects at most one node, whatever the document.
    pub(crate) fn is_singular(&self) -> bool {
        is_singular(&self.segments)
    }

    /// Whether it selects from the items of an array what it would select from each of them alone, in an
    /// array of one: the first segment is a wildcard or filters, and no filter looks at the root.
    #[must_use]
    pub fn is_per_item(&self) -> bool {
        let Some(first) = self.segments.first() else {
            return false;
        };
        let is_each = matches!(
            first.selectors[..],
            [Selector::Wildcard | Selector::Filter(_)]
        );
        is_each && !first.is_descendant && !self.segments.iter().any(Segment::sees_root)
    }

    /// All nodes that it selects, in the order of the standard. They are at most as many as the steps.
    ///
    /// # Errors
    /// The steps are used up.
    pub fn select<'d>(&self, root: &'d Json, work: &mut Work) -> Result<Vec<&'d Json>, OutOfWork> {
        evaluate::select(&self.segments, root, root, work)
    }

    /// The first node that it selects.
    pub(crate) fn first<'d>(
        &self,
        root: &'d Json,
        work: &mut Work,
    ) -> Result<Option<&'d Json>, OutOfWork> {
        if self.is_singular() {
            return evaluate::singular(&self.segments, root, work);
        }
        Ok(self.select(root, work)?.first().copied())
    }
}

fn is_singular(segments: &[Segment]) -> bool {
    segments.iter().all(|segment| {
        !segment.is_descendant
            && matches!(
                segment.selectors[..],
                [Selector::Name(_) | Selector::Index(_)]
            )
    })
}

#[derive(Debug, Clone)]
struct Segment {
    is_descendant: bool,
    selectors: Vec<Selector>,
}

impl Segment {
    /// Whether a filter in it has a query that begins with `$`.
    fn sees_root(&self) -> bool {
        self.selectors.iter().any(|selector| match selector {
            Selector::Filter(filter) => filter.sees_root(),
            _ => false,
        })
    }
}

#[derive(Debug, Clone)]
enum Selector {
    Name(String),
    Wildcard,
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Filter(Logical),
}

#[derive(Debug, Clone)]
enum Logical {
    Or(Vec<Logical>),
    And(Vec<Logical>),
    Not(Box<Logical>),
    Exists(Query),
    Compare(Operand, Comparison, Operand),
    Function(Function),
}

impl Logical {
    fn sees_root(&self) -> bool {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().any(Self::sees_root),
            Self::Not(inner) => inner.sees_root(),
            Self::Exists(query) => query.sees_root(),
            Self::Compare(left, _, right) => left.sees_root() || right.sees_root(),
            Self::Function(function) => function.sees_root(),
        }
    }
}

/// A query within a filter.
#[derive(Debug, Clone)]
struct Query {
    /// It begins with `$`, not with `@`.
    is_absolute: bool,
    segments: Vec<Segment>,
}

impl Query {
    fn sees_root(&self) -> bool {
        self.is_absolute || self.segments.iter().any(Segment::sees_root)
    }
}

/// A side of a comparison, or an argument of a function.
#[derive(Debug, Clone)]
enum Operand {
    Literal(Json),
    Query(Query),
    Function(Box<Function>),
}

impl Operand {
    fn sees_root(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Query(query) => query.sees_root(),
            Self::Function(function) => function.sees_root(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone)]
enum Function {
    Length(Operand),
    Count(Query),
    Value(Query),
    Matches {
        text: Operand,
        pattern: Pattern,
        is_whole: bool,
    },
}

impl Function {
    fn sees_root(&self) -> bool {
        match self {
            Self::Length(operand) => operand.sees_root(),
            Self::Count(query) | Self::Value(query) => query.sees_root(),
            Self::Matches { text, pattern, .. } => {
                let dynamic = match pattern {
                    Pattern::Literal(_) => false,
                    Pattern::Dynamic(operand) => operand.sees_root(),
                };
                dynamic || text.sees_root()
            }
        }
    }
}

/// A regular expression (RFC 9485).
#[derive(Clone)]
enum Pattern {
    /// Of the query; `None`: it is none, and matches nothing.
    Literal(Option<Regex>),
    /// Of the document.
    Dynamic(Operand),
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(regex) => write!(f, "{regex:?}"),
            Self::Dynamic(operand) => write!(f, "{operand:?}"),
        }
    }
}

/// Compiles an I-Regexp, in which `.` matches all but line feed and carriage return.
fn compile(pattern: &str, is_whole: bool) -> Option<Regex> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return None;
    }
    let mut text = String::with_capacity(pattern.len() + 16);
    text.push_str(if is_whole { r"\A(?:" } else { "(?:" });
    let (mut is_escaped, mut in_class) = (false, false);
    for c in pattern.chars() {
        match c {
            '.' if !is_escaped && !in_class => {
                text.push_str(r"[^\n\r]");
                continue;
            }
            '[' if !is_escaped => in_class = true,
            ']' if !is_escaped => in_class = false,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        text.push(c);
    }
    text.push_str(if is_whole { r")\z" } else { ")" });
    regex::RegexBuilder::new(&text)
        .size_limit(PATTERN_COMPILED_BYTES_MAX)
        .dfa_size_limit(PATTERN_COMPILED_BYTES_MAX)
        .nest_limit(64)
        .build()
        .ok()
}

#[cfg(test)]
mod tests;
