//! Functions over values in time.
//!
//! Times are nanoseconds since 1970, as `source_time` is. Rows without a value or a time are passed over.
//!
//! | function | result |
//! |---|---|
//! | `time_bucket(width, time[, origin])` | the start of the bucket of `time` |
//! | `first(value[, time])`, `last(value[, time])` | the value at the least or greatest time; without times, by order of arrival |
//! | `delta(value[, time])` | the last value less the first one |
//! | `rate(value, time)` | increase of a counter per second; a value below the one before is a restart from 0 |
//! | `interpolate(value, time, at)` | the value at time `at` on the line between its neighbours |
//! | `lttb(value, time, points)` | at most `points` of the points as JSON, `[[time,value],…]`: largest triangle three buckets |
//!
//! A width is a number of nanoseconds or a text: `'15 m'`, `'1h'`, `'250 ms'`. What is aggregated takes
//! bounded memory: `lttb` keeps at most [`POINTS_MAX`] points and, when there are more, the least and
//! the greatest of each four (MinMaxLTTB, Van Der Donckt et al. 2023).

use std::cmp::Ordering;
use std::fmt::Write;

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result};

/// Most points that `lttb` holds; 16 MiB.
const POINTS_MAX: usize = 1 << 20;
/// Most points that `lttb` returns.
const POINTS_SELECTED_MAX: i64 = 10_000;

/// Units of widths, with the names that they have.
const UNITS: [(i64, &[&str]); 8] = [
    (1, &["ns"]),
    (1_000, &["us", "µs"]),
    (1_000_000, &["ms", "millisecond", "milliseconds"]),
    (1_000_000_000, &["s", "sec", "second", "seconds"]),
    (60_000_000_000, &["m", "min", "minute", "minutes"]),
    (3_600_000_000_000, &["h", "hour", "hours"]),
    (86_400_000_000_000, &["d", "day", "days"]),
    (604_800_000_000_000, &["w", "week", "weeks"]),
];

/// The nanoseconds of a text such as `15 m`; at least one.
pub(super) fn duration_ns(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    let (scale, _) = UNITS.iter().find(|(_, names)| names.contains(&unit))?;
    let number: i64 = number.parse().ok()?;
    number.checked_mul(*scale).filter(|width| *width > 0)
}

/// The start of the bucket of `time`, among buckets of `width` of which one starts at `origin`; `None`
/// when it is before all times.
pub(super) fn bucket(width: i64, time: i64, origin: i64) -> Option<i64> {
    let (width, origin) = (i128::from(width), i128::from(origin));
    let distance = i128::from(time) - origin;
    i64::try_from(origin + distance.div_euclid(width) * width).ok()
}

pub(super) fn register(connection: &Connection, flags: FunctionFlags) -> Result<()> {
    for arguments in [2, 3] {
        connection.create_scalar_function("time_bucket", arguments, flags, time_bucket)?;
    }
    for arguments in [1, 2] {
        let first = Edge { is_last: false };
        connection.create_aggregate_function("first", arguments, flags, first)?;
        let last = Edge { is_last: true };
        connection.create_aggregate_function("last", arguments, flags, last)?;
        connection.create_aggregate_function("delta", arguments, flags, Delta)?;
    }
    connection.create_aggregate_function("rate", 2, flags, Rate)?;
    connection.create_aggregate_function("interpolate", 3, flags, Interpolate)?;
    connection.create_aggregate_function("lttb", 3, flags, Lttb)
}

fn wrong(message: impl Into<String>) -> Error {
    Error::UserFunctionError(message.into().into())
}

fn time_bucket(context: &Context<'_>) -> Result<Option<i64>> {
    let width = match context.get_raw(0) {
        ValueRef::Null => return Ok(None),
        ValueRef::Integer(width) if width > 0 => width,
        ValueRef::Text(text) => std::str::from_utf8(text)
            .ok()
            .and_then(duration_ns)
            .ok_or_else(|| wrong("time_bucket() takes a width such as '15 m' or '1 h'"))?,
        _ => return Err(wrong("time_bucket() takes a width above 0 in nanoseconds")),
    };
    let origin = match context.len() {
        3 => integer(context, 2)?,
        _ => Some(0),
    };
    let (Some(time), Some(origin)) = (integer(context, 1)?, origin) else {
        return Ok(None);
    };
    let bucket = bucket(width, time, origin);
    Ok(Some(bucket.ok_or_else(|| {
        wrong("time_bucket() has a bucket before the least time")
    })?))
}

/// A time in nanoseconds; `None` for null.
fn integer(context: &Context<'_>, index: usize) -> Result<Option<i64>> {
    match context.get_raw(index) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number)),
        _ => Err(wrong("a time is a whole number of nanoseconds")),
    }
}

/// A value as a number; `None` for null.
fn number(context: &Context<'_>, index: usize) -> Result<Option<f64>> {
    match context.get_raw(index) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number as f64)),
        ValueRef::Real(number) => Ok(Some(number)),
        _ => Err(wrong("a value is a number here")),
    }
}

/// Value and time of a row; the time of a function without one is the row's place.
fn row<'c>(context: &'c Context<'_>, rows: i64) -> Result<Option<(ValueRef<'c>, i64)>> {
    let time = match context.len() {
        1 => Some(rows),
        _ => integer(context, 1)?,
    };
    let value = context.get_raw(0);
    Ok(time
        .filter(|_| value != ValueRef::Null)
        .map(|time| (value, time)))
}

/// The value at the least or at the greatest time.
struct Edge {
    is_last: bool,
}

#[derive(Default)]
struct Edges {
    rows: i64,
    /// Rows with a value.
    values: u64,
    first: Option<(i64, Value)>,
    last: Option<(i64, Value)>,
}

impl Edges {
    /// Takes a row: of equal times, the first for the first one and the last for the last one.
    fn step(&mut self, context: &Context<'_>, first: bool, last: bool) -> Result<()> {
        self.rows += 1;
        let Some((value, time)) = row(context, self.rows)? else {
            return Ok(());
        };
        self.values += 1;
        if first && self.first.as_ref().is_none_or(|first| time < first.0) {
            self.first = Some((time, value.into_owned()?));
        }
        if last && self.last.as_ref().is_none_or(|last| time >= last.0) {
            self.last = Some((time, value.into_owned()?));
        }
        Ok(())
    }
}

trait Owned {
    fn into_owned(self) -> Result<Value>;
}

impl Owned for ValueRef<'_> {
    fn into_owned(self) -> Result<Value> {
        Value::try_from(self).map_err(|error| wrong(error.to_string()))
    }
}

impl Aggregate<Edges, Option<Value>> for Edge {
    fn init(&self, _: &mut Context<'_>) -> Result<Edges> {
        Ok(Edges::default())
    }

    fn step(&self, context: &mut Context<'_>, edges: &mut Edges) -> Result<()> {
        edges.step(context, !self.is_last, self.is_last)
    }

    fn finalize(&self, _: &mut Context<'_>, edges: Option<Edges>) -> Result<Option<Value>> {
        let edges = edges.unwrap_or_default();
        Ok(edges.first.or(edges.last).map(|(_, value)| value))
    }
}

/// The last value less the first one; null when there are fewer than two.
struct Delta;

impl Aggregate<Edges, Option<Value>> for Delta {
    fn init(&self, _: &mut Context<'_>) -> Result<Edges> {
        Ok(Edges::default())
    }

    fn step(&self, context: &mut Context<'_>, edges: &mut Edges) -> Result<()> {
        edges.step(context, true, true)
    }

    fn finalize(&self, _: &mut Context<'_>, edges: Option<Edges>) -> Result<Option<Value>> {
        let edges = edges.unwrap_or_default();
        let (Some((_, first)), Some((_, last))) = (edges.first, edges.last) else {
            return Ok(None);
        };
        if edges.values < 2 {
            return Ok(None);
        }
        Ok(Some(match (&first, &last) {
            (Value::Integer(first), Value::Integer(last)) if last.checked_sub(*first).is_some() => {
                Value::Integer(last - first)
            }
            _ => Value::Real(real(&last)? - real(&first)?),
        }))
    }
}

fn real(value: &Value) -> Result<f64> {
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Real(number) => Ok(*number),
        _ => Err(wrong("delta() takes numbers")),
    }
}

/// Increase of a counter per second, in order of arrival; rows whose time is not after that of the row
/// before are passed over.
struct Rate;

#[derive(Default)]
struct Counter {
    first_time: Option<i64>,
    last: Option<(i64, Reading)>,
    /// The increases of integers, which are exact, and of other numbers.
    whole: i128,
    real: f64,
}

/// A value of a counter.
#[derive(Debug, Clone, Copy)]
enum Reading {
    Whole(i64),
    Real(f64),
}

impl Reading {
    fn of(context: &Context<'_>) -> Result<Option<Self>> {
        Ok(match context.get_raw(0) {
            ValueRef::Integer(number) => Some(Self::Whole(number)),
            _ => number(context, 0)?.map(Self::Real),
        })
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Real(number) => number,
        }
    }
}

impl Counter {
    /// Adds the increase from `before`; a counter that has gone back began again at 0.
    fn add(&mut self, before: Reading, value: Reading) {
        match (before, value) {
            (Reading::Whole(before), Reading::Whole(value)) => {
                let from = if value < before { 0 } else { before };
                self.whole = self
                    .whole
                    .saturating_add(i128::from(value) - i128::from(from));
            }
            _ => {
                let (before, value) = (before.real(), value.real());
                self.real += if value < before {
                    value
                } else {
                    value - before
                };
            }
        }
    }
}

impl Aggregate<Counter, Option<f64>> for Rate {
    fn init(&self, _: &mut Context<'_>) -> Result<Counter> {
        Ok(Counter::default())
    }

    fn step(&self, context: &mut Context<'_>, counter: &mut Counter) -> Result<()> {
        let (Some(value), Some(time)) = (Reading::of(context)?, integer(context, 1)?) else {
            return Ok(());
        };
        match counter.last {
            None => counter.first_time = Some(time),
            Some((before, _)) if time <= before => return Ok(()),
            Some((_, before)) => counter.add(before, value),
        }
        counter.last = Some((time, value));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, counter: Option<Counter>) -> Result<Option<f64>> {
        let counter = counter.unwrap_or_default();
        let (Some(first), Some((last, _))) = (counter.first_time, counter.last) else {
            return Ok(None);
        };
        let seconds = (i128::from(last) - i128::from(first)) as f64 / 1e9;
        let increase = counter.whole as f64 + counter.real;
        Ok((last > first).then(|| increase / seconds))
    }
}

/// The value at a time, on the line between the nearest point before and the nearest after it; null
/// when there is none on one side.
struct Interpolate;

#[derive(Default)]
struct Neighbours {
    at: Option<i64>,
    before: Option<(i64, f64)>,
    after: Option<(i64, f64)>,
}

impl Aggregate<Neighbours, Option<f64>> for Interpolate {
    fn init(&self, _: &mut Context<'_>) -> Result<Neighbours> {
        Ok(Neighbours::default())
    }

    fn step(&self, context: &mut Context<'_>, neighbours: &mut Neighbours) -> Result<()> {
        let at = match neighbours.at {
            Some(at) => at,
            None => match integer(context, 2)? {
                Some(at) => *neighbours.at.insert(at),
                None => return Ok(()),
            },
        };
        let (Some(value), Some(time)) = (number(context, 0)?, integer(context, 1)?) else {
            return Ok(());
        };
        let (before, after) = (&mut neighbours.before, &mut neighbours.after);
        if time <= at && before.is_none_or(|before| time >= before.0) {
            *before = Some((time, value));
        }
        if time >= at && after.is_none_or(|after| time < after.0) {
            *after = Some((time, value));
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, found: Option<Neighbours>) -> Result<Option<f64>> {
        let found = found.unwrap_or_default();
        let (Some(at), Some(before), Some(after)) = (found.at, found.before, found.after) else {
            return Ok(None);
        };
        if before.0 == at {
            return Ok(Some(before.1));
        }
        let distance = |from: i64, to: i64| i128::from(to) - i128::from(from);
        let part = distance(before.0, at) as f64 / distance(before.0, after.0) as f64;
        Ok(Some(before.1 + (after.1 - before.1) * part))
    }
}

/// Largest triangle three buckets: the points that keep the shape of a line (Steinarsson 2013).
struct Lttb;

type Point = (i64, f64);

#[derive(Default)]
struct Points {
    wanted: i64,
    points: Vec<Point>,
}

impl Aggregate<Points, Option<String>> for Lttb {
    fn init(&self, _: &mut Context<'_>) -> Result<Points> {
        Ok(Points::default())
    }

    fn step(&self, context: &mut Context<'_>, points: &mut Points) -> Result<()> {
        if points.wanted == 0 {
            let wanted = integer(context, 2)?.unwrap_or_default();
            if !(3..=POINTS_SELECTED_MAX).contains(&wanted) {
                let message = format!("lttb() selects 3 to {POINTS_SELECTED_MAX} points");
                return Err(wrong(message));
            }
            points.wanted = wanted;
        }
        let (Some(value), Some(time)) = (number(context, 0)?, integer(context, 1)?) else {
            return Ok(());
        };
        // JSON has no infinity.
        if value.is_finite() {
            points.points.push((time, value));
        }
        if points.points.len() >= POINTS_MAX {
            points.points.sort_by_key(|point| point.0);
            points.points = halved(&points.points);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, points: Option<Points>) -> Result<Option<String>> {
        let Some(mut points) = points else {
            return Ok(None);
        };
        points.points.sort_by_key(|point| point.0);
        let wanted = usize::try_from(points.wanted).unwrap_or(3);
        let mut text = String::from("[");
        for (time, value) in lttb(&points.points, wanted) {
            let comma = if text.len() > 1 { "," } else { "" };
            let _ = write!(text, "{comma}[{time},{value:?}]");
        }
        text.push(']');
        Ok(Some(text))
    }
}

/// The least and the greatest of each four points, in their order.
fn halved(points: &[Point]) -> Vec<Point> {
    let mut kept = Vec::with_capacity(points.len() / 2 + 2);
    for four in points.chunks(4) {
        let order = |one: &&Point, other: &&Point| one.1.partial_cmp(&other.1);
        let order = |one: &&Point, other: &&Point| order(one, other).unwrap_or(Ordering::Equal);
        let (Some(least), Some(greatest)) = (four.iter().min_by(order), four.iter().max_by(order))
        else {
            continue;
        };
        match least.0 <= greatest.0 {
            true => kept.extend([*least, *greatest]),
            false => kept.extend([*greatest, *least]),
        }
    }
    kept
}

/// At most `wanted` of `points`, which are in order; `wanted` is at least 3.
fn lttb(points: &[Point], wanted: usize) -> Vec<Point> {
    if points.len() <= wanted {
        return points.to_vec();
    }
    let buckets = wanted - 2;
    let inner = points.len() - 2;
    let edge = |bucket: usize| 1 + bucket * inner / buckets;
    let mut selected = vec![points[0]];
    for bucket in 0..buckets {
        let next = match bucket + 1 < buckets {
            true => &points[edge(bucket + 1)..edge(bucket + 2)],
            false => &points[points.len() - 1..],
        };
        let origin = selected[selected.len() - 1];
        let x = |point: &Point| distance(origin.0, point.0);
        let count = next.len() as f64;
        let mean_x = next.iter().map(x).sum::<f64>() / count;
        let mean_y = next.iter().map(|point| point.1 / count).sum::<f64>();
        let area =
            |point: &Point| (x(point) * (mean_y - origin.1) - mean_x * (point.1 - origin.1)).abs();
        let mut best = (f64::NEG_INFINITY, origin);
        for point in &points[edge(bucket)..edge(bucket + 1)] {
            let area = area(point);
            if area > best.0 {
                best = (area, *point);
            }
        }
        selected.push(best.1);
    }
    selected.push(points[points.len() - 1]);
    selected
}

fn distance(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(duration_ns("15 m"), Some(900_000_000_000));
        assert_eq!(duration_ns(" 1hour "), Some(3_600_000_000_000));
        assert_eq!(duration_ns("250ms"), Some(250_000_000));
        for wrong in [
            "",
            "h",
            "0 s",
            "-1 s",
            "1.5 h",
            "5 parsecs",
            "99999999999 w",
        ] {
            assert_eq!(duration_ns(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn buckets_start_at_or_before_their_times() {
        assert_eq!(bucket(10, 25, 0), Some(20));
        assert_eq!(bucket(10, -1, 0), Some(-10));
        assert_eq!(bucket(10, 25, 3), Some(23));
        assert_eq!(bucket(10, i64::MIN, 0), None);
        assert_eq!(bucket(10, i64::MAX, i64::MIN), Some(i64::MAX - 5));
    }

    #[test]
    fn selected_points_are_points_and_keep_peaks() {
        let mut points: Vec<Point> = (0..10_000).map(|n| (n, 0.0)).collect();
        points[7_321].1 = 9.0;
        let selected = lttb(&points, 100);
        assert_eq!(selected.len(), 100);
        assert!(selected.is_sorted_by_key(|point| point.0));
        assert!(selected.contains(&(7_321, 9.0)));
        assert_eq!((selected[0], selected[99]), (points[0], points[9_999]));
        assert_eq!(lttb(&points[..50], 100), points[..50]);
        let halves = halved(&points);
        assert_eq!(halves.len(), 5_000);
        assert!(halves.contains(&(7_321, 9.0)));
    }
}
