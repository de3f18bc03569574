//! Aggregates over a stored stream in one pass over its records, without SQLite.
//!
//! `count`, `min`, `max`, `sum`, `total` and `avg` of columns, for all elements or for each bucket of
//! source time, with a condition on time, number, key and quality. Values are read from the stored
//! bytes; memory holds one span of the log and the sums of each bucket. The results are SQLite's, to the
//! bit: the sums are those of the compiled path, and a property test compares them
//! (`tests/it/aggregates.rs`). A statement that is anything else is left to SQLite, and so is a sum
//! that overflows, and a field that had another unit.

use std::collections::HashMap;

use super::bounds::{Bounds, Constant, column, width_ns};
use super::time::bucket;
use crate::compiled::syntax::{Grouped, Item, Syntax, parse_grouped};
use crate::exact::Sum;
use crate::store::records::{DOUBLE, Layout, RecordView, Records, Stored, malformed, read, skip};
use crate::{FieldType, Quality, RESERVED_COLUMNS, StoreError, StreamSchema, Value, column_name};

/// Most buckets; reason: some 100 bytes each for an aggregate. More are left to SQLite.
const BUCKETS_MAX: usize = 200_000;

/// A statement that this path evaluates.
pub(super) struct AggregatePlan {
    outputs: Vec<Output>,
    operands: Vec<Operand>,
    condition: Option<Syntax>,
    group: Option<Syntax>,
    descending: bool,
    limit: Option<Syntax>,
}

/// A column of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Bucket,
    Rows,
    Of(Kind, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    Min,
    Max,
    Sum,
    Total,
    Average,
}

/// A column that is aggregated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Operand {
    column: Column,
    /// Whether sums are wanted.
    sums: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Field(usize, FieldType),
    SourceTime,
    ReceiveTime,
    Number,
}

/// The bucket of a time.
#[derive(Debug, Clone, Copy)]
enum Bucket {
    /// Width and origin.
    Start(i64, i64),
    /// Divided by, and multiplied by.
    Quotient(i64, i64),
}

/// The rows of an answer, and the elements that they are from.
pub(super) struct Aggregated {
    pub(super) rows: Vec<Vec<Value>>,
    pub(super) elements: u64,
    /// The first and the last number.
    pub(super) numbers: Option<(u64, u64)>,
}

/// Why there is no answer.
pub(super) enum Failure {
    /// SQLite has to evaluate the statement.
    NotHere,
    Stopped,
    Store(StoreError),
}

impl AggregatePlan {
    /// The plan of `statement`, which SQLite has prepared over a stream of `schema`.
    pub(super) fn new(statement: &str, schema: &StreamSchema) -> Option<Self> {
        let Grouped {
            select,
            group,
            order,
            limit,
        } = parse_grouped(statement).ok()?;
        let columns: Vec<String> = RESERVED_COLUMNS
            .iter()
            .map(|name| (*name).to_owned())
            .chain(schema.fields.iter().map(|field| column_name(&field.name)))
            .collect();
        // A name that is also a column's may mean either.
        let names: Vec<Option<String>> = select
            .names
            .iter()
            .map(|name| name.as_ref().map(|name| name.to_ascii_lowercase()))
            .collect();
        if names.iter().flatten().any(|name| columns.contains(name)) {
            return None;
        }
        let items: Vec<&Syntax> = select
            .items
            .iter()
            .map(|item| match item {
                Item::Expression(syntax) => Some(syntax),
                Item::All(_) => None,
            })
            .collect::<Option<_>>()?;
        let resolve = |term: &Syntax| match term {
            Syntax::Number(text) => {
                let at = text.parse::<usize>().ok()?.checked_sub(1)?;
                items.get(at).map(|item| (*item).clone())
            }
            Syntax::Column(None, name, _) => {
                let name = name.to_ascii_lowercase();
                let at = names
                    .iter()
                    .position(|known| known.as_ref() == Some(&name))?;
                Some(items[at].clone())
            }
            other => Some(other.clone()),
        };
        let group = match &group[..] {
            [] => None,
            [term] => Some(resolve(term)?),
            _ => return None,
        };
        let descending = match (&order[..], &group) {
            ([], _) => false,
            ([(term, descending)], Some(group)) if resolve(term)? == *group => *descending,
            _ => return None,
        };
        let mut plan = Self {
            outputs: Vec::new(),
            operands: Vec::new(),
            condition: select.condition,
            descending,
            limit,
            group: None,
        };
        for item in items {
            let output = match group.as_ref() == Some(item) {
                true => Output::Bucket,
                false => plan.output(item, schema)?,
            };
            plan.outputs.push(output);
        }
        plan.group = group;
        let is_aggregate = |output: &Output| *output != Output::Bucket;
        (plan.group.is_some() || plan.outputs.iter().all(is_aggregate)).then_some(plan)
    }

    fn output(&mut self, item: &Syntax, schema: &StreamSchema) -> Option<Output> {
        let Syntax::Call(name, arguments) = item else {
            return None;
        };
        let kind = match name.as_str() {
            "count" => Kind::Count,
            "min" => Kind::Min,
            "max" => Kind::Max,
            "sum" => Kind::Sum,
            "total" => Kind::Total,
            "avg" => Kind::Average,
            _ => return None,
        };
        let argument = match arguments.as_deref() {
            None | Some([]) if kind == Kind::Count => return Some(Output::Rows),
            Some([argument]) => column(argument)?,
            _ => return None,
        };
        let column = match argument.as_str() {
            "source_time" => Column::SourceTime,
            "receive_time" => Column::ReceiveTime,
            "sequence" => Column::Number,
            name => {
                let mut fields = schema.fields.iter();
                let field = fields.position(|field| column_name(&field.name) == name)?;
                Column::Field(field, schema.fields[field].field_type)
            }
        };
        let is_number = !matches!(
            column,
            Column::Field(_, FieldType::Text | FieldType::Bytes | FieldType::Samples)
        );
        if kind != Kind::Count && !is_number {
            return None;
        }
        let known = self
            .operands
            .iter()
            .position(|known| known.column == column);
        let at = known.unwrap_or_else(|| {
            self.operands.push(Operand {
                column,
                sums: false,
            });
            self.operands.len() - 1
        });
        self.operands[at].sums |= matches!(kind, Kind::Sum | Kind::Total | Kind::Average);
        Some(Output::Of(kind, at))
    }

    /// Evaluates it over `records`, of those within `bounds`.
    pub(super) fn run(
        &self,
        records: &Records,
        mut bounds: Bounds,
        constant: &mut Constant<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Aggregated, Failure> {
        if let Some(condition) = &self.condition
            && !bounds.narrow(condition, constant)
        {
            return Err(Failure::NotHere);
        }
        let bucket = match &self.group {
            None => None,
            Some(group) => Some(Bucket::new(group, constant).ok_or(Failure::NotHere)?),
        };
        let limit = match &self.limit {
            None => usize::MAX,
            Some(limit) => match super::bounds::evaluate(limit, constant) {
                // A negative limit is none.
                Some(Value::Integer(limit)) => usize::try_from(limit).unwrap_or(usize::MAX),
                _ => return Err(Failure::NotHere),
            },
        };
        let is_converted = |operand: &Operand| match operand.column {
            Column::Field(field, _) => records.is_converted(field),
            _ => false,
        };
        if self.operands.iter().any(is_converted) {
            return Err(Failure::NotHere);
        }
        let mut pass = Pass::new(self, records, bucket);
        let times = (bounds.times != (i64::MIN, i64::MAX)).then_some(bounds.times);
        let numbers = records.numbers(times).filter(|_| !bounds.is_empty);
        let numbers = numbers.and_then(|(first, last)| {
            let low = u64::try_from(bounds.numbers.0).unwrap_or(0);
            let high = u64::try_from(bounds.numbers.1).ok()?;
            let numbers = (first.max(low), last.min(high));
            (numbers.0 <= numbers.1).then_some(numbers)
        });
        if let Some(numbers) = numbers {
            let is_filtered = bounds.key.is_some() || bounds.quality.is_some();
            let is_other = |view: &RecordView<'_>| {
                let other_key = |key: &String| view.key() != Some(key.as_bytes());
                let other_quality = |quality: Quality| view.quality != quality;
                bounds.key.as_ref().is_some_and(other_key)
                    || bounds.quality.is_some_and(other_quality)
            };
            let is_stored = |operand: &Operand| {
                matches!(operand.column, Column::Field(..) | Column::ReceiveTime)
            };
            let needs_view = is_filtered || self.operands.iter().any(is_stored);
            let complete = match needs_view {
                true => records.each(numbers, times, is_stopped, |number, time, payload| {
                    let view = records.view(time, payload)?;
                    pass.see(number);
                    match is_filtered && is_other(&view) {
                        true => Ok(()),
                        false => pass.add(number, &view),
                    }
                }),
                false => records.each(numbers, times, is_stopped, |number, time, _| {
                    pass.see(number);
                    pass.add_head(number, time);
                    Ok(())
                }),
            };
            match complete {
                Ok(true) => {}
                Ok(false) => return Err(Failure::Stopped),
                Err(error) => return Err(Failure::Store(error)),
            }
        }
        if pass.is_beyond || pass.has_integer_overflow(&self.outputs) {
            return Err(Failure::NotHere);
        }
        let (elements, numbers) = (pass.elements, pass.numbers());
        let mut rows = pass.rows(&self.outputs);
        if self.descending {
            rows.reverse();
        }
        rows.truncate(limit);
        Ok(Aggregated {
            rows,
            elements,
            numbers,
        })
    }
}

impl Bucket {
    /// The bucket that a term of GROUP BY is, if it is one.
    fn new(group: &Syntax, constant: &mut Constant<'_>) -> Option<Self> {
        let is_time = |syntax: &Syntax| column(syntax).as_deref() == Some("source_time");
        let number = |syntax: &Syntax, constant: &mut Constant<'_>| match super::bounds::evaluate(
            syntax, constant,
        ) {
            Some(Value::Integer(number)) => Some(number),
            _ => None,
        };
        match group {
            Syntax::Call(name, Some(arguments)) if name == "time_bucket" => {
                let (width, time, origin) = match &arguments[..] {
                    [width, time] => (width, time, 0),
                    [width, time, origin] => (width, time, number(origin, constant)?),
                    _ => return None,
                };
                let width = width_ns(width, constant)?;
                is_time(time).then_some(Self::Start(width, origin))
            }
            Syntax::Binary("*", left, factor) => match Self::new(left, constant)? {
                Self::Quotient(divisor, 1) => {
                    let factor = number(factor, constant)?;
                    (factor == divisor).then_some(Self::Quotient(divisor, factor))
                }
                _ => None,
            },
            Syntax::Binary("/", left, divisor) if is_time(left) => {
                let divisor = number(divisor, constant)?;
                (divisor > 0).then_some(Self::Quotient(divisor, 1))
            }
            _ => None,
        }
    }

    fn of(self, time: i64) -> Option<i64> {
        match self {
            Self::Start(width, 0) if time >= 0 => Some(time - time % width),
            Self::Start(width, origin) => bucket(width, time, origin),
            // Not above the time, hence within 64 bits.
            Self::Quotient(divisor, factor) => Some(time / divisor * factor),
        }
    }
}

/// Sums of a column within a bucket.
#[derive(Debug, Clone)]
enum Stats {
    /// Values of whatever type.
    Counted { count: u64 },
    Integers {
        count: u64,
        least: i64,
        greatest: i64,
        sum: i128,
    },
    Reals {
        count: u64,
        least: f64,
        greatest: f64,
        sum: Sum,
    },
}

/// What is done with a value of a record.
#[derive(Debug, Clone, Copy)]
enum Step {
    Skip,
    /// The place of the operand.
    Read(usize),
}

/// What is known in the course of a pass.
struct Pass<'p> {
    operands: &'p [Operand],
    /// For each version of the schema, what is done with each value up to the last one needed.
    versions: Vec<Vec<Step>>,
    /// Operands that are not fields.
    reserved: Vec<usize>,
    bucket: Option<Bucket>,
    /// The rows of each group, and the sums of each operand in it, one group after another.
    rows: Vec<u64>,
    stats: Vec<Stats>,
    /// The place of each bucket's group.
    places: HashMap<i64, usize>,
    /// Times that have the bucket of the record before, and its place.
    last: Option<(i64, i64, usize)>,
    elements: u64,
    first_number: u64,
    last_number: u64,
    /// Whether SQLite has to evaluate the statement.
    is_beyond: bool,
}

impl<'p> Pass<'p> {
    fn new(plan: &'p AggregatePlan, records: &Records, bucket: Option<Bucket>) -> Self {
        let step = |places: &[Option<usize>], place: usize| {
            let operand = plan
                .operands
                .iter()
                .position(|operand| match operand.column {
                    Column::Field(field, _) => places.get(field).copied().flatten() == Some(place),
                    _ => false,
                });
            operand.map_or(Step::Skip, Step::Read)
        };
        let version = |layout: &Layout| {
            let steps = (0..layout.width).map(|place| step(&layout.places, place));
            let mut steps: Vec<_> = steps.collect();
            while matches!(steps.last(), Some(Step::Skip)) {
                steps.pop();
            }
            steps
        };
        let operands = plan.operands.iter().enumerate();
        let reserved = operands.filter(|(_, it)| !matches!(it.column, Column::Field(..)));
        let mut pass = Self {
            operands: &plan.operands,
            versions: records.layouts().iter().map(version).collect(),
            reserved: reserved.map(|(at, _)| at).collect(),
            bucket,
            rows: Vec::new(),
            stats: Vec::new(),
            places: HashMap::new(),
            last: None,
            elements: 0,
            first_number: 0,
            last_number: 0,
            is_beyond: false,
        };
        if bucket.is_none() {
            pass.push_group();
        }
        pass
    }

    fn push_group(&mut self) -> usize {
        self.rows.push(0);
        self.stats.extend(self.operands.iter().map(Stats::new));
        self.rows.len() - 1
    }

    #[inline]
    fn see(&mut self, number: u64) {
        if self.elements == 0 {
            self.first_number = number;
        }
        self.elements += 1;
        self.last_number = number;
    }

    fn numbers(&self) -> Option<(u64, u64)> {
        (self.elements > 0).then_some((self.first_number, self.last_number))
    }

    /// The place of the group of a time; `None` when there are too many.
    #[inline]
    fn place(&mut self, time: i64) -> Option<usize> {
        if self.bucket.is_none() {
            return Some(0);
        }
        // A division costs more than the rest of a record.
        match self.last {
            Some((low, high, place)) if low <= time && time <= high => Some(place),
            _ => self.other_place(time),
        }
    }

    fn other_place(&mut self, time: i64) -> Option<usize> {
        let kind = self.bucket?;
        let bucket = kind.of(time)?;
        let place = match self.places.get(&bucket) {
            Some(place) => *place,
            None if self.rows.len() >= BUCKETS_MAX => return None,
            None => {
                let place = self.push_group();
                self.places.insert(bucket, place);
                place
            }
        };
        self.last = Some(match kind {
            Bucket::Start(width, _) => (bucket, bucket.saturating_add(width - 1), place),
            Bucket::Quotient(..) => (time, time, place),
        });
        Some(place)
    }

    /// Adds a record of which only number and time are needed.
    #[inline]
    fn add_head(&mut self, number: u64, time: i64) {
        let Some(place) = self.place(time) else {
            self.is_beyond = true;
            return;
        };
        self.rows[place] += 1;
        let begin = place * self.operands.len();
        for operand in &self.reserved {
            let value = match self.operands[*operand].column {
                Column::Number => number.cast_signed(),
                _ => time,
            };
            let sums = self.operands[*operand].sums;
            self.stats[begin + operand].add_integer(value, sums);
        }
    }

    #[inline]
    fn add(&mut self, number: u64, view: &RecordView<'_>) -> Result<(), StoreError> {
        let Some(place) = self.place(view.source_time) else {
            self.is_beyond = true;
            return Ok(());
        };
        self.rows[place] += 1;
        let begin = place * self.operands.len();
        let stats = &mut self.stats[begin..begin + self.operands.len()];
        let mut rest = view.values;
        for step in &self.versions[view.version] {
            let after = match *step {
                Step::Skip => skip(rest),
                Step::Read(operand) => stats[operand].read(rest, &self.operands[operand]),
            };
            rest = after.ok_or_else(|| malformed("a value"))?;
        }
        for operand in &self.reserved {
            let value = match self.operands[*operand].column {
                Column::Number => number.cast_signed(),
                Column::ReceiveTime => view.receive_time(),
                _ => view.source_time,
            };
            let sums = self.operands[*operand].sums;
            stats[*operand].add_integer(value, sums);
        }
        Ok(())
    }

    /// Whether a sum of integers that is asked for has more than 64 bits.
    fn has_integer_overflow(&self, outputs: &[Output]) -> bool {
        let of_sum = |output: &Output| match *output {
            Output::Of(Kind::Sum, operand) => Some(operand),
            _ => None,
        };
        let is_beyond = |stats: &Stats| match stats {
            Stats::Integers { sum, .. } => i64::try_from(*sum).is_err(),
            _ => false,
        };
        let mut operands = outputs.iter().filter_map(of_sum);
        operands.any(|operand| {
            let stats = self.stats.iter().skip(operand);
            stats.step_by(self.operands.len()).any(is_beyond)
        })
    }

    /// A row for each group, in the order of their buckets.
    fn rows(self, outputs: &[Output]) -> Vec<Vec<Value>> {
        let row = |bucket: Option<i64>, place: usize| {
            let value = |output: &Output| match *output {
                Output::Bucket => bucket.map_or(Value::Null, Value::Integer),
                Output::Rows => integer(self.rows[place]),
                Output::Of(kind, operand) => {
                    self.stats[place * self.operands.len() + operand].value(kind)
                }
            };
            outputs.iter().map(value).collect()
        };
        if self.bucket.is_none() {
            return vec![row(None, 0)];
        }
        let mut places: Vec<_> = self
            .places
            .iter()
            .map(|(bucket, place)| (*bucket, *place))
            .collect();
        places.sort_unstable();
        let rows = places.into_iter();
        rows.map(|(bucket, place)| row(Some(bucket), place))
            .collect()
    }
}

fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Stats {
    fn new(operand: &Operand) -> Self {
        let count = 0;
        match operand.column {
            Column::Field(_, FieldType::Double) => Self::Reals {
                count,
                least: f64::INFINITY,
                greatest: f64::NEG_INFINITY,
                sum: Sum::default(),
            },
            Column::Field(_, FieldType::Text | FieldType::Bytes | FieldType::Samples) => {
                Self::Counted { count }
            }
            _ => Self::Integers {
                count,
                least: i64::MAX,
                greatest: i64::MIN,
                sum: 0,
            },
        }
    }

    /// Adds the value at the beginning of `bytes`; returns the bytes after it.
    #[inline]
    fn read<'b>(&mut self, bytes: &'b [u8], operand: &Operand) -> Option<&'b [u8]> {
        if let Self::Reals {
            count,
            least,
            greatest,
            sum,
        } = self
            && bytes.first() == Some(&DOUBLE)
        {
            let (number, rest) = bytes[1..].split_first_chunk::<8>()?;
            let value = f64::from_le_bytes(*number);
            if !value.is_nan() {
                *count += 1;
                // The first of equal ones stays.
                if value < *least {
                    *least = value;
                }
                if value > *greatest {
                    *greatest = value;
                }
                if operand.sums {
                    sum.add_real(value);
                }
            }
            return Some(rest);
        }
        let (value, rest) = read(bytes)?;
        let Column::Field(_, field_type) = operand.column else {
            return None;
        };
        match (value, field_type) {
            (Stored::Null, _) => {}
            (Stored::Integer(value), FieldType::Integer) => self.add_integer(value, operand.sums),
            (Stored::Boolean(value), FieldType::Boolean) => {
                self.add_integer(i64::from(value), operand.sums)
            }
            (Stored::Text(_), FieldType::Text)
            | (Stored::Bytes(_), FieldType::Bytes)
            | (Stored::Samples(_), FieldType::Samples) => match self {
                Self::Counted { count } => *count += 1,
                _ => return None,
            },
            _ => return None,
        }
        Some(rest)
    }

    /// Adds an integer, to the sum only if that is wanted.
    #[inline]
    fn add_integer(&mut self, value: i64, sums: bool) {
        if let Self::Integers {
            count,
            least,
            greatest,
            sum,
        } = self
        {
            *count += 1;
            *least = (*least).min(value);
            *greatest = (*greatest).max(value);
            if sums {
                *sum += i128::from(value);
            }
        }
    }

    fn value(&self, kind: Kind) -> Value {
        let real = |number: f64| match number.is_nan() {
            true => Value::Null,
            false => Value::Double(number),
        };
        let count = match self {
            Self::Counted { count } | Self::Integers { count, .. } | Self::Reals { count, .. } => {
                *count
            }
        };
        match (kind, self) {
            (Kind::Count, _) => integer(count),
            (Kind::Total, Self::Integers { sum, .. }) => real(*sum as f64),
            (Kind::Total, Self::Reals { sum, .. }) => real(sum.total()),
            _ if count == 0 => Value::Null,
            (Kind::Sum, Self::Integers { sum, .. }) => {
                i64::try_from(*sum).map_or(Value::Null, Value::Integer)
            }
            (Kind::Sum, Self::Reals { sum, .. }) => real(sum.total()),
            (Kind::Average, Self::Integers { sum, .. }) => real(*sum as f64 / count as f64),
            (Kind::Average, Self::Reals { sum, .. }) => real(sum.total() / count as f64),
            (Kind::Min, Self::Integers { least, .. }) => Value::Integer(*least),
            (Kind::Min, Self::Reals { least, .. }) => Value::Double(*least),
            (Kind::Max, Self::Integers { greatest, .. }) => Value::Integer(*greatest),
            (Kind::Max, Self::Reals { greatest, .. }) => Value::Double(*greatest),
            // Only counts are planned of other types.
            (_, Self::Counted { .. }) => Value::Null,
        }
    }
}
