//! Expressions of `$filter` (18-088, clause 9.3.3.5).

use crate::Value;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A literal.
    Literal(Value),
    /// A property of the entity, or of one that a path of links leads to.
    Path(Vec<String>),
    /// `not`.
    Not(Box<Expression>),
    /// `-`.
    Negate(Box<Expression>),
    /// `and`.
    And(Box<Expression>, Box<Expression>),
    /// `or`.
    Or(Box<Expression>, Box<Expression>),
    /// A comparison.
    Compare(Comparison, Box<Expression>, Box<Expression>),
    /// An operation on numbers, times and durations.
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    /// A function.
    Call(Function, Vec<Expression>),
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `eq`.
    Equal,
    /// `ne`.
    NotEqual,
    /// `gt`.
    Greater,
    /// `ge`.
    GreaterOrEqual,
    /// `lt`.
    Less,
    /// `le`.
    LessOrEqual,
}

impl Comparison {
    /// The comparison of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            _ => return None,
        })
    }

    /// The same comparison with its sides exchanged.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        match self {
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            same => same,
        }
    }
}

/// Operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `add`.
    Add,
    /// `sub`.
    Subtract,
    /// `mul`.
    Multiply,
    /// `div`.
    Divide,
    /// `mod`.
    Modulo,
}

/// Functions, by their names in the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `substringof(part, text)`.
    SubstringOf,
    /// `contains(text, part)`, as OData 4 has it.
    Contains,
    /// `endswith(text, end)`.
    EndsWith,
    /// `startswith(text, start)`.
    StartsWith,
    /// `length(text)`, in characters.
    Length,
    /// `indexof(text, part)`: characters before the part, or -1.
    IndexOf,
    /// `substring(text, from)` or `substring(text, from, characters)`.
    Substring,
    /// `tolower(text)`.
    ToLower,
    /// `toupper(text)`.
    ToUpper,
    /// `trim(text)`.
    Trim,
    /// `concat(text, text)`.
    Concat,
    /// `year(time)`.
    Year,
    /// `month(time)`.
    Month,
    /// `day(time)`.
    Day,
    /// `hour(time)`.
    Hour,
    /// `minute(time)`.
    Minute,
    /// `second(time)`.
    Second,
    /// `fractionalseconds(time)`.
    FractionalSeconds,
    /// `date(time)`.
    Date,
    /// `time(time)`.
    Time,
    /// `totaloffsetminutes(time)`: 0, because times are kept in UTC.
    TotalOffsetMinutes,
    /// `now()`.
    Now,
    /// `mindatetime()`.
    MinDateTime,
    /// `maxdatetime()`.
    MaxDateTime,
    /// `round(number)`.
    Round,
    /// `floor(number)`.
    Floor,
    /// `ceiling(number)`.
    Ceiling,
}

impl Function {
    /// Every function with its name and the least and greatest number of its arguments.
    pub(crate) const ALL: [(&'static str, Self, usize, usize); 27] = [
        ("substringof", Self::SubstringOf, 2, 2),
        ("contains", Self::Contains, 2, 2),
        ("endswith", Self::EndsWith, 2, 2),
        ("startswith", Self::StartsWith, 2, 2),
        ("length", Self::Length, 1, 1),
        ("indexof", Self::IndexOf, 2, 2),
        ("substring", Self::Substring, 2, 3),
        ("tolower", Self::ToLower, 1, 1),
        ("toupper", Self::ToUpper, 1, 1),
        ("trim", Self::Trim, 1, 1),
        ("concat", Self::Concat, 2, 2),
        ("year", Self::Year, 1, 1),
        ("month", Self::Month, 1, 1),
        ("day", Self::Day, 1, 1),
        ("hour", Self::Hour, 1, 1),
        ("minute", Self::Minute, 1, 1),
        ("second", Self::Second, 1, 1),
        ("fractionalseconds", Self::FractionalSeconds, 1, 1),
        ("date", Self::Date, 1, 1),
        ("time", Self::Time, 1, 1),
        ("totaloffsetminutes", Self::TotalOffsetMinutes, 1, 1),
        ("now", Self::Now, 0, 0),
        ("mindatetime", Self::MinDateTime, 0, 0),
        ("maxdatetime", Self::MaxDateTime, 0, 0),
        ("round", Self::Round, 1, 1),
        ("floor", Self::Floor, 1, 1),
        ("ceiling", Self::Ceiling, 1, 1),
    ];
}

impl Expression {
    /// Calls `visit` with each path in it.
    pub fn each_path(&self, visit: &mut impl FnMut(&[String])) {
        match self {
            Self::Literal(_) => {}
            Self::Path(path) => visit(path),
            Self::Not(inner) | Self::Negate(inner) => inner.each_path(visit),
            Self::And(one, other)
            | Self::Or(one, other)
            | Self::Compare(_, one, other)
            | Self::Arithmetic(_, one, other) => {
                one.each_path(visit);
                other.each_path(visit);
            }
            Self::Call(_, arguments) => {
                for argument in arguments {
                    argument.each_path(visit);
                }
            }
        }
    }

    /// The parts that must all hold.
    #[must_use]
    pub fn conjuncts(&self) -> Vec<&Self> {
        let (mut parts, mut rest) = (Vec::new(), vec![self]);
        while let Some(part) = rest.pop() {
            match part {
                Self::And(one, other) => rest.extend([&**other, &**one]),
                part => parts.push(part),
            }
        }
        parts
    }
}
