//! Expressions ready to be evaluated, and their evaluation.
//!
//! Every operation has SQLite's result for the same values. Where that is uncertain (a sum too
//! large, a text too long, a rounding at the edge) the evaluation returns [`NotCompilable`], and
//! SQLite evaluates instead. `resolve.rs` rejects operations that are never certain.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::datum::{Datum, Evaluated, NotCompilable};
use super::like::Pattern;
use crate::{Arrival, FieldType, Value};

/// An expression over one row, or over the aggregates of all rows.
#[derive(Debug, Clone)]
pub(super) enum Expression {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Column(Column),
    /// The result of the aggregate with this index.
    Aggregate(usize),
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
    /// Equality in which two nulls are equal.
    Same(Box<Expression>, Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    IsNull(Box<Expression>),
    /// Whether the value is not null and has this truth.
    IsTruth(Box<Expression>, bool),
    In(Box<Expression>, Vec<Expression>),
    Like(Box<Expression>, Pattern),
    /// Pairs of a condition and a result, and the result otherwise.
    Case(Vec<(Expression, Expression)>, Box<Expression>),
    Cast(Box<Expression>, CastTo),
    Concatenate(Box<Expression>, Box<Expression>),
    /// The first value that is not null.
    Coalesce(Vec<Expression>),
    NullIf(Box<Expression>, Box<Expression>),
    Absolute(Box<Expression>),
    Sign(Box<Expression>),
    /// Rounds to this many digits after the point.
    Round(Box<Expression>, u8),
    /// The least or the greatest.
    Extreme(Ordering, Vec<Expression>),
    /// Letters of ASCII in upper (or else lower) case.
    Letters(Box<Expression>, bool),
    Length(Box<Expression>),
    Function(fn(f64) -> f64, Box<Expression>),
    Function2(fn(f64, f64) -> f64, Box<Expression>, Box<Expression>),
}

/// A column of the source's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    SourceTime,
    ReceiveTime,
    Key,
    Stream,
    Sequence,
    Quality,
    Field(usize, FieldType),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CastTo {
    Integer,
    Real,
    Text,
}

/// The input of an evaluation.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    /// The row, for an expression over one row.
    pub(super) row: Option<&'s Arrival>,
    /// The results of the aggregates, if they are evaluated.
    pub(super) aggregates: &'s [Datum<'s>],
    /// Longest text in bytes.
    pub(super) length: usize,
}

impl Expression {
    /// The value of the expression.
    pub(super) fn evaluate<'s>(&'s self, scope: Scope<'s>) -> Evaluated<'s> {
        Ok(match self {
            Self::Null => Datum::Null,
            Self::Integer(number) => Datum::Integer(*number),
            Self::Real(number) => Datum::Real(*number),
            Self::Text(text) => Datum::text(text),
            Self::Column(column) => column.read(scope.row.ok_or(NotCompilable)?)?,
            Self::Aggregate(index) => scope.aggregates.get(*index).cloned().ok_or(NotCompilable)?,
            Self::Arithmetic(operation, left, right) => {
                operation.apply(&left.evaluate(scope)?, &right.evaluate(scope)?)?
            }
            Self::Compare(comparison, left, right) => {
                let (left, right) = (left.evaluate(scope)?, right.evaluate(scope)?);
                match left.is_null() || right.is_null() {
                    true => Datum::Null,
                    false => boolean(comparison.holds(left.order(&right)?)),
                }
            }
            Self::Same(left, right) => {
                let (left, right) = (left.evaluate(scope)?, right.evaluate(scope)?);
                boolean(left.order(&right)? == Ordering::Equal)
            }
            Self::And(left, right) => match left.truth(scope)? {
                Some(false) => boolean(false),
                known => match (known, right.truth(scope)?) {
                    (_, Some(false)) => boolean(false),
                    (Some(true), Some(true)) => boolean(true),
                    _ => Datum::Null,
                },
            },
            Self::Or(left, right) => match left.truth(scope)? {
                Some(true) => boolean(true),
                known => match (known, right.truth(scope)?) {
                    (_, Some(true)) => boolean(true),
                    (Some(false), Some(false)) => boolean(false),
                    _ => Datum::Null,
                },
            },
            Self::Not(inner) => inner
                .truth(scope)?
                .map_or(Datum::Null, |truth| boolean(!truth)),
            Self::IsNull(inner) => boolean(inner.evaluate(scope)?.is_null()),
            Self::IsTruth(inner, wanted) => boolean(inner.truth(scope)? == Some(*wanted)),
            Self::In(inner, list) => contains(&inner.evaluate(scope)?, list, scope)?,
            Self::Like(inner, pattern) => match inner.evaluate(scope)? {
                Datum::Null => Datum::Null,
                value => boolean(pattern.matches(&value.as_text()?)),
            },
            Self::Case(pairs, otherwise) => {
                for (condition, result) in pairs {
                    if condition.truth(scope)? == Some(true) {
                        return result.evaluate(scope);
                    }
                }
                otherwise.evaluate(scope)?
            }
            Self::Coalesce(list) => {
                for one in list {
                    let value = one.evaluate(scope)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Datum::Null
            }
            _ => self.call(scope)?,
        })
    }

    /// Conversions and functions.
    fn call<'s>(&'s self, scope: Scope<'s>) -> Evaluated<'s> {
        Ok(match self {
            Self::Cast(inner, to) => cast(inner.evaluate(scope)?, *to)?,
            Self::Concatenate(left, right) => concatenate(
                &left.evaluate(scope)?,
                &right.evaluate(scope)?,
                scope.length,
            )?,
            Self::NullIf(left, right) => {
                let (left, right) = (left.evaluate(scope)?, right.evaluate(scope)?);
                match left.order(&right)? {
                    Ordering::Equal => Datum::Null,
                    _ => left,
                }
            }
            Self::Absolute(inner) => match inner.evaluate(scope)? {
                Datum::Integer(number) => {
                    Datum::Integer(number.checked_abs().ok_or(NotCompilable)?)
                }
                // Not `abs`: a negative zero stays one.
                Datum::Real(number) if number < 0.0 => Datum::Real(-number),
                number @ (Datum::Real(_) | Datum::Null) => number,
                _ => return Err(NotCompilable),
            },
            Self::Sign(inner) => match inner.evaluate(scope)?.double()? {
                None => Datum::Null,
                Some(number) => Datum::Integer(i64::from(number > 0.0) - i64::from(number < 0.0)),
            },
            Self::Round(inner, digits) => match inner.evaluate(scope)?.double()? {
                None => Datum::Null,
                Some(number) => Datum::Real(round(number, *digits)?),
            },
            Self::Extreme(wanted, list) => extreme(*wanted, list, scope)?,
            Self::Letters(inner, upper) => match inner.evaluate(scope)? {
                Datum::Null => Datum::Null,
                Datum::Text(text) if text.len() < scope.length => {
                    Datum::Text(Cow::Owned(match upper {
                        true => text.to_ascii_uppercase(),
                        false => text.to_ascii_lowercase(),
                    }))
                }
                _ => return Err(NotCompilable),
            },
            Self::Length(inner) => match inner.evaluate(scope)? {
                Datum::Null => Datum::Null,
                Datum::Text(text) => count(text.chars().take_while(|c| *c != '\0').count()),
                Datum::Integer(number) => count(number.to_string().len()),
                Datum::Bytes(bytes) => count(bytes.len()),
                _ => return Err(NotCompilable),
            },
            Self::Function(function, inner) => {
                let number = inner.evaluate(scope)?.double()?;
                number.map_or(Datum::Null, |number| Datum::real(function(number)))
            }
            Self::Function2(function, first, second) => {
                let (first, second) = (first.evaluate(scope)?, second.evaluate(scope)?);
                match (first.double()?, second.double()?) {
                    (Some(first), Some(second)) => Datum::real(function(first, second)),
                    _ => Datum::Null,
                }
            }
            _ => return Err(NotCompilable),
        })
    }

    /// The truth of the expression: `None` for null.
    pub(super) fn truth(&self, scope: Scope<'_>) -> Result<Option<bool>, NotCompilable> {
        if let Self::Compare(comparison, left, right) = self {
            let (left, right) = (left.evaluate(scope)?, right.evaluate(scope)?);
            if left.is_null() || right.is_null() {
                return Ok(None);
            }
            return Ok(Some(comparison.holds(left.order(&right)?)));
        }
        self.evaluate(scope)?.truth()
    }

    /// Calls `visit` with the expression and all its parts.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(self);
        match self {
            Self::Null
            | Self::Integer(_)
            | Self::Real(_)
            | Self::Text(_)
            | Self::Column(_)
            | Self::Aggregate(_) => {}
            Self::Arithmetic(_, left, right)
            | Self::Compare(_, left, right)
            | Self::Same(left, right)
            | Self::And(left, right)
            | Self::Or(left, right)
            | Self::Concatenate(left, right)
            | Self::NullIf(left, right)
            | Self::Function2(_, left, right) => {
                left.visit(visit);
                right.visit(visit);
            }
            Self::Not(inner)
            | Self::IsNull(inner)
            | Self::IsTruth(inner, _)
            | Self::Like(inner, _)
            | Self::Cast(inner, _)
            | Self::Absolute(inner)
            | Self::Sign(inner)
            | Self::Round(inner, _)
            | Self::Letters(inner, _)
            | Self::Length(inner)
            | Self::Function(_, inner) => inner.visit(visit),
            Self::In(inner, list) => {
                inner.visit(visit);
                list.iter().for_each(|one| one.visit(visit));
            }
            Self::Coalesce(list) | Self::Extreme(_, list) => {
                list.iter().for_each(|one| one.visit(visit));
            }
            Self::Case(pairs, otherwise) => {
                for (condition, result) in pairs {
                    condition.visit(visit);
                    result.visit(visit);
                }
                otherwise.visit(visit);
            }
        }
    }

    /// Whether SQLite may fail to evaluate the expression.
    pub(super) fn may_fail(&self) -> bool {
        matches!(
            self,
            Self::Absolute(_) | Self::Concatenate(..) | Self::Letters(..)
        )
    }
}

impl Column {
    fn read(self, arrival: &Arrival) -> Evaluated<'_> {
        let element = &*arrival.element;
        Ok(match self {
            Self::SourceTime => Datum::Integer(element.source_time.0),
            Self::ReceiveTime => Datum::Integer(element.receive_time.0),
            Self::Key => element.key.as_deref().map_or(Datum::Null, Datum::text),
            Self::Stream => Datum::text(&arrival.stream),
            Self::Sequence => Datum::Integer(element.position.sequence.cast_signed()),
            Self::Quality => Datum::text(element.quality.name()),
            Self::Field(index, declared) => {
                let value = element.values.get(index).ok_or(NotCompilable)?;
                // The types of the schema have determined the kind of the expression.
                let fits = match (value, declared) {
                    (Value::Double(_), FieldType::Double) | (Value::Null, _) => true,
                    (value, declared) => value.field_type() == Some(declared),
                };
                if !fits {
                    return Err(NotCompilable);
                }
                Datum::of(value)
            }
        })
    }
}

impl Arithmetic {
    fn apply<'v>(self, left: &Datum<'_>, right: &Datum<'_>) -> Evaluated<'v> {
        if let (Datum::Integer(left), Datum::Integer(right)) = (left, right) {
            let exact = match self {
                Self::Add => left.checked_add(*right),
                Self::Subtract => left.checked_sub(*right),
                Self::Multiply => left.checked_mul(*right),
                Self::Divide | Self::Remainder if *right == 0 => return Ok(Datum::Null),
                Self::Divide => left.checked_div(*right),
                Self::Remainder => Some(left.wrapping_rem(*right)),
            };
            if let Some(exact) = exact {
                return Ok(Datum::Integer(exact));
            }
        }
        let (Some(one), Some(two)) = (left.double()?, right.double()?) else {
            return Ok(Datum::Null);
        };
        Ok(Datum::real(match self {
            Self::Add => one + two,
            Self::Subtract => one - two,
            Self::Multiply => one * two,
            Self::Divide if two == 0.0 => return Ok(Datum::Null),
            Self::Divide => one / two,
            Self::Remainder => match (whole(left), whole(right)) {
                (_, 0) => return Ok(Datum::Null),
                (left, right) => left.wrapping_rem(right) as f64,
            },
        }))
    }
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

fn boolean<'v>(truth: bool) -> Datum<'v> {
    Datum::Integer(i64::from(truth))
}

fn count<'v>(number: usize) -> Datum<'v> {
    Datum::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The integer part, within the bounds of an integer; 0 for a value that is not a number.
fn whole(number: &Datum<'_>) -> i64 {
    match number {
        Datum::Integer(number) => *number,
        Datum::Real(number) => *number as i64,
        _ => 0,
    }
}

fn contains<'s>(value: &Datum<'_>, list: &'s [Expression], scope: Scope<'s>) -> Evaluated<'s> {
    let mut unknown = value.is_null() && !list.is_empty();
    for one in list {
        let one = one.evaluate(scope)?;
        if one.is_null() {
            unknown = true;
        } else if !value.is_null() && value.order(&one)?.is_eq() {
            return Ok(boolean(true));
        }
    }
    Ok(match unknown {
        true => Datum::Null,
        false => boolean(false),
    })
}

fn extreme<'s>(wanted: Ordering, list: &'s [Expression], scope: Scope<'s>) -> Evaluated<'s> {
    let mut best: Option<Datum<'s>> = None;
    for one in list {
        let one = one.evaluate(scope)?;
        if one.is_null() {
            return Ok(Datum::Null);
        }
        best = Some(match best {
            None => one,
            Some(best) => {
                // Of equals the last is the least, and the first the greatest.
                let order = one.order(&best)?;
                let better = order == wanted || (order.is_eq() && wanted.is_lt());
                if better { one } else { best }
            }
        });
    }
    best.ok_or(NotCompilable)
}

fn cast(value: Datum<'_>, to: CastTo) -> Evaluated<'_> {
    Ok(match (to, value) {
        (_, Datum::Null) => Datum::Null,
        (CastTo::Integer, number @ (Datum::Integer(_) | Datum::Real(_))) => {
            Datum::Integer(whole(&number))
        }
        (CastTo::Real, number @ (Datum::Integer(_) | Datum::Real(_))) => {
            number.double()?.map_or(Datum::Null, Datum::Real)
        }
        (CastTo::Text, text @ Datum::Text(_)) => text,
        (CastTo::Text, Datum::Integer(number)) => Datum::Text(Cow::Owned(number.to_string())),
        _ => return Err(NotCompilable),
    })
}

fn concatenate<'v>(left: &Datum<'_>, right: &Datum<'_>, most: usize) -> Evaluated<'v> {
    if left.is_null() || right.is_null() {
        return Ok(Datum::Null);
    }
    let (left, right) = (left.as_text()?, right.as_text()?);
    if left.len() + right.len() > most {
        return Err(NotCompilable);
    }
    Ok(Datum::Text(Cow::Owned([&*left, &*right].concat())))
}

/// Rounds half away from zero, in decimal digits.
///
/// To round to digits after the point, SQLite formats the number with 18 digits, rounds these, and
/// parses them: the nearest double of the rounded decimal number. A quotient of two exact doubles
/// is that too. The product with its error determines the side of a tie; where 18 digits might not
/// suffice, SQLite decides.
fn round(number: f64, digits: u8) -> Result<f64, NotCompilable> {
    // Beyond 2^52 there are no digits after the point.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    // More than the eighteenth digit is off by.
    const UNCERTAIN: f64 = 2e-17;
    if !(-WHOLE..=WHOLE).contains(&number) {
        return Ok(number);
    }
    if digits == 0 {
        let half = if number < 0.0 { -0.5 } else { 0.5 };
        return Ok((number + half) as i64 as f64);
    }
    if number == 0.0 {
        return Ok(0.0);
    }
    let unit = 10_f64.powi(i32::from(digits));
    let scaled = number.abs() * unit;
    if scaled >= WHOLE {
        return Err(NotCompilable);
    }
    let (down, part) = (scaled.floor(), scaled.fract());
    let up = if part == 0.5 {
        let error = number.abs().mul_add(unit, -scaled);
        if error != 0.0 && error.abs() < scaled * UNCERTAIN {
            return Err(NotCompilable);
        }
        error >= 0.0
    } else {
        part > 0.5
    };
    let rounded = if up { down + 1.0 } else { down };
    Ok((rounded / unit).copysign(number))
}
