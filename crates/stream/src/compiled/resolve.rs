//! From syntax to expressions: names become columns, and each expression has the kinds of value
//! that it may return. Expressions that depend on SQLite's conversions of texts to numbers, of
//! reals to texts, or by affinity, are refused here.

use std::cmp::Ordering;

use super::aggregate::{Aggregate, AggregateKind};
use super::expression::{Arithmetic, CastTo, Column, Comparison, Expression};
use super::like::Pattern;
use super::syntax::{Item, Select, Syntax};
use crate::exact::Deviation;
use crate::sqlite::{MATHEMATICS, MATHEMATICS_OF_TWO};
use crate::{FieldType, QuerySource, RESERVED_COLUMNS, Value, column_name};

/// Most digits of `round`; reason: more digits are uncertain anyway.
const ROUND_DIGITS_MAX: i64 = 12;

/// Most parts of a statement; parts that `between` and `case` compare twice count twice; reason:
/// nested in each other they would double at each level.
const PARTS_MAX: usize = 2_000;

/// The kinds of value that an expression may have, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kinds(u8);

const NULL: Kinds = Kinds(1);
const INTEGER: Kinds = Kinds(2);
const REAL: Kinds = Kinds(4);
const TEXT: Kinds = Kinds(8);
const BYTES: Kinds = Kinds(16);
const SAMPLES: Kinds = Kinds(32);
const NUMBER: Kinds = Kinds(7);
const TRUTH: Kinds = Kinds(3);

impl Kinds {
    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    fn may(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

/// An expression, with its known properties.
struct Known {
    expression: Expression,
    kinds: Kinds,
    /// Whether a comparison might convert the other side: it is or has a cast.
    affinity: bool,
    /// Whether it reads a column outside of an aggregate.
    columns: bool,
    /// Whether it has an aggregate.
    aggregates: bool,
}

type Resolved = Result<Known, String>;

/// The result of a statement.
#[derive(Clone)]
pub(super) struct Program {
    /// An expression for each column of the result.
    pub(super) columns: Vec<Expression>,
    /// The condition of rows that count.
    pub(super) condition: Option<Expression>,
    /// The aggregates, if it returns one row for all.
    pub(super) aggregates: Option<Vec<Aggregate>>,
}

/// The number that SQLite reads from a literal.
pub(super) type ReadNumber<'f> = &'f mut dyn FnMut(&str) -> Result<Value, String>;

/// Resolves `select` over `source`.
pub(super) fn resolve(
    select: &Select,
    source: &QuerySource,
    read_number: ReadNumber<'_>,
) -> Result<Program, String> {
    if !select.table.eq_ignore_ascii_case(&source.alias) {
        return Err(format!("it reads {}", select.table));
    }
    let table = select.alias.as_ref().unwrap_or(&select.table);
    let mut resolver = Resolver {
        table,
        columns: columns_of(source),
        read_number,
        aggregates: Vec::new(),
        inside: true,
        parts: 0,
    };
    // A condition cannot contain an aggregate; SQLite has checked that.
    let condition = match &select.condition {
        Some(condition) => Some(resolver.truth(condition)?.expression),
        None => None,
    };
    resolver.inside = false;
    let mut columns = Vec::new();
    let (mut plain, mut aggregated) = (false, false);
    for item in &select.items {
        match item {
            Item::All(table) => {
                if table
                    .as_ref()
                    .is_some_and(|t| !t.eq_ignore_ascii_case(resolver.table))
                {
                    return Err("it names another table".into());
                }
                plain = true;
                let all = resolver.columns.iter();
                columns.extend(all.map(|(_, column, _)| Expression::Column(*column)));
            }
            Item::Expression(syntax) => {
                let known = resolver.expression(syntax)?;
                plain |= known.columns;
                aggregated |= known.aggregates;
                columns.push(known.expression);
            }
        }
    }
    if plain && aggregated {
        return Err("it has a column next to an aggregate".into());
    }
    Ok(Program {
        columns,
        condition,
        aggregates: aggregated.then_some(resolver.aggregates),
    })
}

fn columns_of(source: &QuerySource) -> Vec<(String, Column, Kinds)> {
    let reserved = [
        (Column::SourceTime, INTEGER),
        (Column::ReceiveTime, INTEGER),
        (Column::Key, NULL.or(TEXT)),
        (Column::Stream, TEXT),
        (Column::Sequence, INTEGER),
        (Column::Quality, TEXT),
    ];
    let mut columns: Vec<_> = RESERVED_COLUMNS
        .iter()
        .zip(reserved)
        .map(|(name, (column, kinds))| ((*name).to_owned(), column, kinds))
        .collect();
    for (index, field) in source.schema.fields.iter().enumerate() {
        let kind = match field.field_type {
            FieldType::Boolean | FieldType::Integer => INTEGER,
            FieldType::Double => REAL,
            FieldType::Text => TEXT,
            FieldType::Bytes => BYTES,
            FieldType::Samples => SAMPLES,
        };
        let column = Column::Field(index, field.field_type);
        columns.push((column_name(&field.name), column, NULL.or(kind)));
    }
    columns
}

struct Resolver<'r> {
    table: &'r str,
    columns: Vec<(String, Column, Kinds)>,
    read_number: ReadNumber<'r>,
    aggregates: Vec<Aggregate>,
    /// Whether an aggregate is not allowed here.
    inside: bool,
    /// Parts resolved so far.
    parts: usize,
}

impl Resolver<'_> {
    fn expression(&mut self, syntax: &Syntax) -> Resolved {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(format!("it has more than {PARTS_MAX} parts"));
        }
        match syntax {
            Syntax::Null => Ok(constant(Expression::Null, NULL)),
            Syntax::Number(text) => self.number(text),
            Syntax::Text(text) => Ok(constant(Expression::Text(text.clone()), TEXT)),
            Syntax::Column(table, name, plain) => self.column(table.as_deref(), name, *plain),
            Syntax::Negative(inner) => {
                // SQLite reads a number with its sign; anything else is taken from zero.
                if let Syntax::Number(text) = &**inner {
                    return self.number(&format!("-{text}"));
                }
                let inner = self.within(inner, NUMBER, "-")?;
                let zero = constant(Expression::Integer(0), INTEGER);
                Ok(arithmetic(Arithmetic::Subtract, zero, inner))
            }
            Syntax::Plus(inner) => self.expression(inner),
            Syntax::Not(inner) => Ok(self.truth(inner)?.into(TRUTH, Expression::Not)),
            Syntax::Binary(operator, left, right) => self.binary(operator, left, right),
            Syntax::IsNull(inner) => Ok(self.expression(inner)?.into(INTEGER, Expression::IsNull)),
            Syntax::Between(inner, low, high) => {
                let low = self.compare(Comparison::GreaterOrEqual, inner, low)?;
                let high = self.compare(Comparison::LessOrEqual, inner, high)?;
                Ok(join(low, high, TRUTH, Expression::And))
            }
            Syntax::In(inner, list) => {
                // To SQLite that is the keyword `false`, which `is` takes for a test.
                if list.is_empty() {
                    return Err("it has IN without values".into());
                }
                let inner = self.comparable(inner)?;
                let list = self.all(list, |this, one| this.comparable(one))?;
                let mut known = unite(list, |list| {
                    Expression::In(Box::new(inner.expression), list)
                });
                known.columns |= inner.columns;
                known.aggregates |= inner.aggregates;
                Ok(known.with(TRUTH))
            }
            Syntax::Like(inner, pattern) => {
                let Syntax::Text(pattern) = &**pattern else {
                    return Err("it has LIKE with another pattern than a text".into());
                };
                let pattern = Pattern::new(pattern).ok_or("it has LIKE with a long pattern")?;
                let inner = self.within(inner, NULL.or(INTEGER).or(TEXT), "LIKE")?;
                Ok(inner.into(TRUTH, |inner| Expression::Like(inner, pattern)))
            }
            Syntax::Case(base, pairs, otherwise) => {
                self.case(base.as_deref(), pairs, otherwise.as_deref())
            }
            Syntax::Cast(inner, name) => self.cast(inner, name),
            Syntax::Call(name, arguments) => self.call(name, arguments.as_deref()),
        }
    }

    fn number(&mut self, text: &str) -> Resolved {
        match (self.read_number)(text)? {
            Value::Integer(number) => Ok(constant(Expression::Integer(number), INTEGER)),
            Value::Double(number) => Ok(constant(Expression::Real(number), REAL)),
            _ => Err(format!("it has the number {text}")),
        }
    }

    fn column(&mut self, table: Option<&str>, name: &str, plain: bool) -> Resolved {
        if table.is_some_and(|table| !table.eq_ignore_ascii_case(self.table)) {
            return Err("it names another table".into());
        }
        // SQLite takes them now for the columns, now for the constants.
        let is_word = is_truth_word(name);
        if is_word && plain && table.is_none() && self.has_column(name) {
            return Err(format!("{name} is also a column"));
        }
        let known = self
            .columns
            .iter()
            .find(|(n, ..)| n.eq_ignore_ascii_case(name));
        if let Some((_, column, kinds)) = known {
            return Ok(Known {
                columns: true,
                ..constant(Expression::Column(*column), *kinds)
            });
        }
        if is_word && plain && table.is_none() {
            let truth = i64::from(name.eq_ignore_ascii_case("true"));
            return Ok(constant(Expression::Integer(truth), INTEGER));
        }
        Err(format!("{name} is not a column of the source"))
    }

    /// Resolves an expression of these kinds only.
    fn within(&mut self, syntax: &Syntax, kinds: Kinds, what: &str) -> Resolved {
        let known = self.expression(syntax)?;
        match known.kinds.within(kinds) {
            true => Ok(known),
            false => Err(format!("it has {what} over a value of another type")),
        }
    }

    fn truth(&mut self, syntax: &Syntax) -> Resolved {
        self.within(syntax, NUMBER, "a condition")
    }

    /// Resolves an expression that compares without conversion.
    fn comparable(&mut self, syntax: &Syntax) -> Resolved {
        let known = self.expression(syntax)?;
        if known.affinity {
            return Err("it compares a CAST".into());
        }
        match known.kinds.may(SAMPLES) {
            true => Err("it compares samples".into()),
            false => Ok(known),
        }
    }

    fn compare(&mut self, comparison: Comparison, left: &Syntax, right: &Syntax) -> Resolved {
        let (left, right) = (self.comparable(left)?, self.comparable(right)?);
        Ok(join(left, right, TRUTH, |left, right| {
            Expression::Compare(comparison, left, right)
        }))
    }

    fn binary(&mut self, operator: &str, left: &Syntax, right: &Syntax) -> Resolved {
        let comparison = match operator {
            "=" => Some(Comparison::Equal),
            "<>" => Some(Comparison::NotEqual),
            "<" => Some(Comparison::Less),
            "<=" => Some(Comparison::LessOrEqual),
            ">" => Some(Comparison::Greater),
            ">=" => Some(Comparison::GreaterOrEqual),
            _ => None,
        };
        if let Some(comparison) = comparison {
            return self.compare(comparison, left, right);
        }
        let operation = match operator {
            "+" => Some(Arithmetic::Add),
            "-" => Some(Arithmetic::Subtract),
            "*" => Some(Arithmetic::Multiply),
            "/" => Some(Arithmetic::Divide),
            "%" => Some(Arithmetic::Remainder),
            _ => None,
        };
        if let Some(operation) = operation {
            let left = self.within(left, NUMBER, operator)?;
            let right = self.within(right, NUMBER, operator)?;
            return Ok(arithmetic(operation, left, right));
        }
        match operator {
            "and" => {
                let (left, right) = (self.truth(left)?, self.truth(right)?);
                Ok(join(left, right, TRUTH, Expression::And))
            }
            "or" => {
                let (left, right) = (self.truth(left)?, self.truth(right)?);
                Ok(join(left, right, TRUTH, Expression::Or))
            }
            "||" => {
                let kinds = NULL.or(INTEGER).or(TEXT);
                let left = self.within(left, kinds, "||")?;
                let right = self.within(right, kinds, "||")?;
                Ok(join(left, right, NULL.or(TEXT), Expression::Concatenate))
            }
            _ => self.is(left, right, operator == "is not"),
        }
    }

    fn is(&mut self, left: &Syntax, right: &Syntax, negated: bool) -> Resolved {
        let known = match right {
            Syntax::Null => self.expression(left)?.into(INTEGER, Expression::IsNull),
            Syntax::Column(None, name, true) if is_truth_word(name) && !self.has_column(name) => {
                let wanted = name.eq_ignore_ascii_case("true");
                let left = self.truth(left)?;
                left.into(INTEGER, |left| Expression::IsTruth(left, wanted))
            }
            _ => {
                let (left, right) = (self.comparable(left)?, self.comparable(right)?);
                join(left, right, INTEGER, Expression::Same)
            }
        };
        Ok(match negated {
            true => known.into(INTEGER, Expression::Not),
            false => known,
        })
    }

    fn has_column(&self, name: &str) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|(column, ..)| column.eq_ignore_ascii_case(name))
    }

    fn case(
        &mut self,
        base: Option<&Syntax>,
        pairs: &[(Syntax, Syntax)],
        otherwise: Option<&Syntax>,
    ) -> Resolved {
        let mut flat = Vec::new();
        for (condition, result) in pairs {
            flat.push(match base {
                Some(base) => self.compare(Comparison::Equal, base, condition)?,
                None => self.truth(condition)?,
            });
            flat.push(self.expression(result)?);
        }
        flat.push(match otherwise {
            Some(otherwise) => self.expression(otherwise)?,
            None => constant(Expression::Null, NULL),
        });
        Ok(choice(flat))
    }

    fn cast(&mut self, inner: &Syntax, name: &str) -> Resolved {
        let (to, kind) = match name {
            "integer" | "int" | "bigint" => (CastTo::Integer, INTEGER),
            "real" | "double" | "float" => (CastTo::Real, REAL),
            "text" => (CastTo::Text, TEXT),
            _ => return Err(format!("it has CAST to {name}")),
        };
        let kinds = match to {
            CastTo::Text => NULL.or(INTEGER).or(TEXT),
            _ => NUMBER,
        };
        let inner = self.within(inner, kinds, "CAST")?;
        let mut known = inner.into(NULL.or(kind), |inner| Expression::Cast(inner, to));
        known.affinity = true;
        Ok(known)
    }

    fn all(
        &mut self,
        list: &[Syntax],
        mut each: impl FnMut(&mut Self, &Syntax) -> Resolved,
    ) -> Result<Vec<Known>, String> {
        list.iter().map(|one| each(self, one)).collect()
    }

    fn call(&mut self, name: &str, arguments: Option<&[Syntax]>) -> Resolved {
        let unknown = || format!("it calls {name}()");
        let Some(arguments) = arguments else {
            return match name {
                "count" => self.aggregate(AggregateKind::Rows, None),
                _ => Err(unknown()),
            };
        };
        match (name, arguments) {
            ("count", []) => self.aggregate(AggregateKind::Rows, None),
            ("count", [one]) => self.aggregate(AggregateKind::Count, Some(one)),
            ("sum", [one]) => self.aggregate(AggregateKind::Sum, Some(one)),
            ("total", [one]) => self.aggregate(AggregateKind::Total, Some(one)),
            ("avg", [one]) => self.aggregate(AggregateKind::Average, Some(one)),
            ("min", [one]) => self.aggregate(AggregateKind::Extreme(Ordering::Less), Some(one)),
            ("max", [one]) => self.aggregate(AggregateKind::Extreme(Ordering::Greater), Some(one)),
            ("min" | "max", [_, _, ..]) => {
                let wanted = match name {
                    "min" => Ordering::Less,
                    _ => Ordering::Greater,
                };
                let list = self.all(arguments, |this, one| this.comparable(one))?;
                Ok(unite(list, |list| Expression::Extreme(wanted, list)))
            }
            ("coalesce", [_, _, ..]) | ("ifnull", [_, _]) => {
                let list = self.all(arguments, |this, one| this.expression(one))?;
                Ok(unite(list, Expression::Coalesce))
            }
            ("nullif", [left, right]) => {
                let (left, right) = (self.comparable(left)?, self.comparable(right)?);
                let kinds = left.kinds.or(NULL);
                Ok(join(left, right, kinds, Expression::NullIf))
            }
            ("iif" | "if", [_, _, ..]) => {
                let mut flat = Vec::new();
                for pair in arguments.chunks(2) {
                    match pair {
                        [condition, result] => {
                            flat.push(self.truth(condition)?);
                            flat.push(self.expression(result)?);
                        }
                        [otherwise] => flat.push(self.expression(otherwise)?),
                        _ => {}
                    }
                }
                if flat.len() % 2 == 0 {
                    flat.push(constant(Expression::Null, NULL));
                }
                Ok(choice(flat))
            }
            ("round", [inner]) => self.round(inner, 0),
            ("round", [inner, Syntax::Number(digits)]) => match digits.parse::<i64>() {
                Ok(digits) if digits <= ROUND_DIGITS_MAX => self.round(inner, digits),
                _ => Err("it has round() to many digits".into()),
            },
            _ => match (name, arguments) {
                (_, [inner]) => self.call_of_one(name, inner),
                (_, [first, second]) => {
                    let known = MATHEMATICS_OF_TWO.iter().find(|(known, _)| *known == name);
                    let (_, function) = known.ok_or_else(unknown)?;
                    let first = self.within(first, NUMBER, name)?;
                    let second = self.within(second, NUMBER, name)?;
                    Ok(join(first, second, NULL.or(REAL), |first, second| {
                        Expression::Function2(*function, first, second)
                    }))
                }
                _ => Err(unknown()),
            },
        }
    }

    fn call_of_one(&mut self, name: &str, inner: &Syntax) -> Resolved {
        if let Some(which) = Deviation::of(name) {
            return self.aggregate(AggregateKind::Deviation(which), Some(inner));
        }
        match name {
            "abs" => {
                let inner = self.within(inner, NUMBER, name)?;
                let kinds = inner.kinds;
                Ok(inner.into(kinds, Expression::Absolute))
            }
            "sign" => Ok((self.within(inner, NUMBER, name)?).into(TRUTH, Expression::Sign)),
            "upper" | "lower" => {
                let inner = self.within(inner, NULL.or(TEXT), name)?;
                let upper = name == "upper";
                Ok(inner.into(NULL.or(TEXT), |inner| Expression::Letters(inner, upper)))
            }
            "length" => {
                let kinds = NULL.or(INTEGER).or(TEXT).or(BYTES);
                Ok((self.within(inner, kinds, name)?).into(TRUTH, Expression::Length))
            }
            _ => {
                let known = MATHEMATICS.iter().find(|(known, _)| *known == name);
                let (_, function) = known.ok_or_else(|| format!("it calls {name}()"))?;
                let inner = self.within(inner, NUMBER, name)?;
                Ok(inner.into(NULL.or(REAL), |inner| {
                    Expression::Function(*function, inner)
                }))
            }
        }
    }

    fn round(&mut self, inner: &Syntax, digits: i64) -> Resolved {
        let digits = u8::try_from(digits).map_err(|error| error.to_string())?;
        let inner = self.within(inner, NUMBER, "round")?;
        Ok(inner.into(NULL.or(REAL), |inner| Expression::Round(inner, digits)))
    }

    fn aggregate(&mut self, kind: AggregateKind, argument: Option<&Syntax>) -> Resolved {
        if self.inside {
            return Err("it has an aggregate within another".into());
        }
        let (argument, kinds) = match argument {
            None => (None, INTEGER),
            Some(argument) => {
                self.inside = true;
                let known = match kind {
                    AggregateKind::Count | AggregateKind::Rows => self.expression(argument)?,
                    AggregateKind::Extreme(_) => self.comparable(argument)?,
                    _ => self.within(argument, NUMBER, "an aggregate")?,
                };
                self.inside = false;
                (Some(known.expression), known.kinds)
            }
        };
        let fits_cells = matches!(kind, AggregateKind::Count) || kinds.within(NUMBER);
        let kinds = match kind {
            AggregateKind::Rows | AggregateKind::Count => INTEGER,
            AggregateKind::Sum => NUMBER,
            AggregateKind::Total | AggregateKind::Average | AggregateKind::Deviation(_) => {
                NULL.or(REAL)
            }
            AggregateKind::Extreme(_) => kinds.or(NULL),
        };
        let expression = Expression::Aggregate(self.aggregates.len());
        self.aggregates.push(Aggregate {
            kind,
            argument,
            fits_cells,
        });
        Ok(Known {
            aggregates: true,
            ..constant(expression, kinds)
        })
    }
}

impl Known {
    /// The same with other kinds, and without affinity.
    fn with(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self.affinity = false;
        self
    }

    fn into(mut self, kinds: Kinds, make: impl FnOnce(Box<Expression>) -> Expression) -> Self {
        self.expression = make(Box::new(self.expression));
        self.with(kinds)
    }
}

fn is_truth_word(name: &str) -> bool {
    name.eq_ignore_ascii_case("true") || name.eq_ignore_ascii_case("false")
}

fn constant(expression: Expression, kinds: Kinds) -> Known {
    Known {
        expression,
        kinds,
        affinity: false,
        columns: false,
        aggregates: false,
    }
}

fn join(
    left: Known,
    right: Known,
    kinds: Kinds,
    make: impl FnOnce(Box<Expression>, Box<Expression>) -> Expression,
) -> Known {
    Known {
        expression: make(Box::new(left.expression), Box::new(right.expression)),
        kinds,
        affinity: false,
        columns: left.columns || right.columns,
        aggregates: left.aggregates || right.aggregates,
    }
}

/// Joins several expressions; the result has all their kinds, and an affinity if any has one.
fn unite(list: Vec<Known>, make: impl FnOnce(Vec<Expression>) -> Expression) -> Known {
    let mut known = constant(Expression::Null, Kinds(0));
    for one in &list {
        known.kinds = known.kinds.or(one.kinds);
        known.affinity |= one.affinity;
        known.columns |= one.columns;
        known.aggregates |= one.aggregates;
    }
    known.expression = make(list.into_iter().map(|one| one.expression).collect());
    known
}

/// Alternating conditions and results, then the result otherwise.
fn choice(flat: Vec<Known>) -> Known {
    let last = flat.len() - 1;
    let mut kinds = Kinds(0);
    for (index, one) in flat.iter().enumerate() {
        if index == last || index % 2 == 1 {
            kinds = kinds.or(one.kinds);
        }
    }
    let mut known = unite(flat, |flat| {
        let mut flat = flat.into_iter();
        let mut pairs = Vec::new();
        let mut otherwise = Expression::Null;
        while let Some(first) = flat.next() {
            match flat.next() {
                Some(result) => pairs.push((first, result)),
                None => otherwise = first,
            }
        }
        Expression::Case(pairs, Box::new(otherwise))
    });
    known.kinds = kinds;
    known
}

/// The result of SQLite's operator: an integer only for integers, null for values that are not
/// numbers.
fn arithmetic(operation: Arithmetic, left: Known, right: Known) -> Known {
    let integer = left.kinds.may(INTEGER) && right.kinds.may(INTEGER);
    let kinds = if integer { NUMBER } else { NULL.or(REAL) };
    join(left, right, kinds, |left, right| {
        Expression::Arithmetic(operation, left, right)
    })
}
