//! Stored streams as views, whose rows are read from the log while SQLite asks for them.
//!
//! A view is a series of numbers, those of the elements, with functions that give the columns of a
//! number. The log is read in pieces of some thousand records; a view holds the newest few of them, and
//! values are taken from the stored bytes when a column is asked for. So memory does not depend on the
//! length of the stream, and `order by sequence desc limit 10` reads the newest piece only. SQLite has
//! no index on a view: a join of two views reads the inner one for each row of the outer one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Error;
use rusqlite::functions::Context;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::bounds::Bounds;
use super::sandbox::{ELEMENTS_ALIAS, Sandbox, quoted};
use super::tables::{Part, SAMPLES_SUFFIX, declared_type, reserved_type};
use crate::store::records::{Piece, RecordView, Records, Stored, StoredSamples, Times};
use crate::{
    FieldType, QueryError, RESERVED_COLUMNS, StoreError, StreamLog, StreamSchema, column_name,
};

/// Pieces that are held of a stream: a few loops of a statement at different places.
const PIECES: usize = 4;
/// Most rows of an order that are looked for to narrow the times.
const NEWEST_MAX: usize = 10_000;
/// Most elements that are looked at for them.
const NEWEST_SEEN_MAX: u64 = 100_000;

/// What the views of a stream read from.
#[derive(Clone)]
pub(super) struct Cursor(Arc<Mutex<State>>);

struct State {
    records: Option<Records>,
    times: Option<Times>,
    /// The first and the last number.
    numbers: Option<(u64, u64)>,
    /// The newest last.
    pieces: Vec<Piece>,
    /// The number that was asked for last.
    last: u64,
    seen: Seen,
    failed: Option<StoreError>,
}

/// Elements that were read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) elements: u64,
    /// The first and the last number.
    pub(super) numbers: Option<(u64, u64)>,
}

/// A column of a view.
#[derive(Clone, Copy)]
enum Column {
    SourceTime,
    ReceiveTime,
    Key,
    Quality,
    Field(usize),
}

impl Cursor {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            records: None,
            times: None,
            numbers: None,
            pieces: Vec::new(),
            last: 0,
            seen: Seen::default(),
            failed: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read `log` within `bounds`.
    pub(super) fn start(&self, log: &StreamLog, bounds: &Bounds) {
        let mut state = self.lock();
        let records = Records::new(log);
        state.times = (bounds.times != (i64::MIN, i64::MAX)).then_some(bounds.times);
        let numbers = records.numbers(state.times).filter(|_| !bounds.is_empty);
        state.numbers = numbers.and_then(|(first, last)| {
            let low = u64::try_from(bounds.numbers.0).unwrap_or(0);
            let high = u64::try_from(bounds.numbers.1).ok()?;
            Some((first.max(low), last.min(high)))
        });
        state.records = Some(records);
        state.pieces.clear();
        state.last = 0;
        state.seen = Seen::default();
    }

    /// Narrows the times to those that the first `count` elements in the order of their times can
    /// have, of the elements within `bounds`; the greatest times come first when `descending`.
    pub(super) fn narrow(&self, bounds: &Bounds, count: usize, descending: bool) {
        let mut state = self.lock();
        let Some((first, last)) = state.numbers.filter(|_| count <= NEWEST_MAX) else {
            return;
        };
        let (mut found, mut edge) = (0, None);
        for step in 0..(last + 1).saturating_sub(first).min(NEWEST_SEEN_MAX) {
            let number = match descending {
                true => last - step,
                false => first + step,
            };
            let is_wanted = |view: &RecordView<'_>| {
                bounds
                    .key
                    .as_ref()
                    .is_none_or(|key| view.key() == Some(key.as_bytes()))
                    && bounds.quality.is_none_or(|quality| view.quality == quality)
            };
            let time = state.with(number, |_, view| {
                Ok(is_wanted(view).then_some(view.source_time))
            });
            let Ok(time) = time else { return };
            let Some(time) = time.flatten() else { continue };
            found += 1;
            edge = Some(match (edge, descending) {
                (None, _) => time,
                (Some(edge), true) => time.min(edge),
                (Some(edge), false) => time.max(edge),
            });
            if found == count {
                break;
            }
        }
        let Some(edge) = edge.filter(|_| found == count) else {
            return;
        };
        let (low, high) = bounds.times;
        let times = match descending {
            true => (low.max(edge), high),
            false => (low, high.min(edge)),
        };
        let numbers = state
            .records
            .as_ref()
            .and_then(|records| records.numbers(Some(times)));
        let Some(numbers) = numbers else { return };
        state.numbers = Some((numbers.0.max(first), numbers.1.min(last)));
        state.times = Some(times);
        state.pieces.clear();
    }

    /// What was read, or why it failed.
    pub(super) fn end(&self) -> Result<Seen, StoreError> {
        let mut state = self.lock();
        state.pieces.clear();
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.seen),
        }
    }

    /// Makes the view of a stream of `schema` that is called `name`, with functions of `index`.
    pub(super) fn create_view(
        &self,
        sandbox: &mut Sandbox,
        index: usize,
        name: &str,
        stream: &str,
        schema: &StreamSchema,
        part: Part,
    ) -> Result<(), QueryError> {
        let stream = format!("'{}'", stream.replace('\'', "''"));
        let elements = format!(
            "generate_series {ELEMENTS_ALIAS} where {ELEMENTS_ALIAS}.start = chappe_end_{index}(0) \
             and {ELEMENTS_ALIAS}.stop = chappe_end_{index}(1) \
             and chappe_is_{index}({ELEMENTS_ALIAS}.value)"
        );
        let number = format!("{ELEMENTS_ALIAS}.value");
        let column = |column: usize| format!("chappe_column_{index}({number},{column})");
        // A cast to its own type changes no value, and makes SQLite convert what it is compared with.
        let typed = |value: String, declared: &str| match declared {
            "" => value,
            declared => format!("cast({value} as {declared})"),
        };
        match part {
            Part::Rows => {
                let names = RESERVED_COLUMNS.iter().map(|name| (*name).to_owned());
                let fields = schema.fields.iter().map(|field| column_name(&field.name));
                let names: Vec<String> = names.chain(fields).map(|name| quoted(&name)).collect();
                let reserved = RESERVED_COLUMNS.iter().enumerate();
                let reserved = reserved.map(|(at, name)| match *name {
                    "sequence" => number.clone(),
                    "stream" => typed(stream.clone(), reserved_type(name)),
                    _ => typed(column(at), reserved_type(name)),
                });
                let fields = schema.fields.iter().enumerate().map(|(at, field)| {
                    let value = column(RESERVED_COLUMNS.len() + at);
                    typed(value, declared_type(field.field_type))
                });
                let values: Vec<String> = reserved.chain(fields).collect();
                let select = format!("select {} from {elements}", values.join(","));
                sandbox.create_view(name, &names.join(","), &select)
            }
            Part::Samples => {
                let name = format!("{name}{SAMPLES_SUFFIX}");
                let sample = |what: usize| {
                    format!("chappe_sample_{index}({number},chappe_samples.value,{what})")
                };
                let key = RESERVED_COLUMNS.iter().position(|name| *name == "key");
                let select = format!(
                    "select {number},{},{},{},{},{} from generate_series {ELEMENTS_ALIAS} \
                     cross join generate_series chappe_samples where {} \
                     and chappe_samples.start = 0 \
                     and chappe_samples.stop = chappe_count_{index}({number}) - 1",
                    typed(sample(0), "integer"),
                    sample(1),
                    typed(sample(2), "text"),
                    typed(stream, "text"),
                    typed(column(key.unwrap_or_default()), "text"),
                    elements
                        .split_once(" where ")
                        .map_or("", |(_, condition)| condition),
                );
                sandbox.create_view(&name, super::tables::SAMPLES_COLUMNS, &select)
            }
        }
    }

    /// Registers the functions of `index`.
    pub(super) fn create_functions(
        &self,
        sandbox: &mut Sandbox,
        index: usize,
        schema: &StreamSchema,
    ) -> Result<(), QueryError> {
        let cursor = self.clone();
        sandbox.create_function(&format!("chappe_end_{index}"), 1, move |context| {
            let (first, last) = cursor.lock().numbers.unwrap_or((1, 0));
            let number = match context.get::<i64>(0)? {
                0 => first,
                _ => last,
            };
            Ok(number.cast_signed())
        })?;
        let cursor = self.clone();
        sandbox.create_function(&format!("chappe_is_{index}"), 1, move |context| {
            cursor
                .with(context, |_, _| Ok(()))
                .map(|found| found.is_some())
        })?;
        let cursor = self.clone();
        sandbox.create_function(&format!("chappe_column_{index}"), 2, move |context| {
            let column = Column::of(usize::try_from(context.get::<i64>(1)?).unwrap_or(0));
            let value = cursor.with(context, |records, view| column.value(records, view))?;
            Ok(ToSqlOutput::Owned(value.unwrap_or(Value::Null)))
        })?;
        let is_samples = |field: &crate::Field| field.field_type == FieldType::Samples;
        let fields = schema.fields.iter().enumerate();
        let fields = fields.filter(|(_, field)| is_samples(field));
        let fields: Vec<(usize, String)> =
            fields.map(|(at, field)| (at, field.name.clone())).collect();
        if fields.is_empty() {
            return Ok(());
        }
        let (cursor, sampled) = (self.clone(), fields.clone());
        sandbox.create_function(&format!("chappe_count_{index}"), 1, move |context| {
            let count = cursor.with(context, |records, view| {
                let mut count = 0;
                for (field, _) in &sampled {
                    count += samples(records, view, *field)?.map_or(0, |it| it.len());
                }
                Ok(count)
            })?;
            Ok(i64::try_from(count.unwrap_or(0)).unwrap_or(i64::MAX))
        })?;
        let cursor = self.clone();
        sandbox.create_function(&format!("chappe_sample_{index}"), 3, move |context| {
            let (at, what) = (context.get::<i64>(1)?, context.get::<i64>(2)?);
            let value = cursor.with(context, |records, view| {
                let mut at = usize::try_from(at).unwrap_or(usize::MAX);
                for (field, name) in &fields {
                    let Some(samples) = samples(records, view, *field)? else {
                        continue;
                    };
                    if at >= samples.len() {
                        at -= samples.len();
                        continue;
                    }
                    return Ok(match what {
                        0 => Value::Integer(samples.time(at)),
                        1 => samples.value(at).map_or(Value::Null, Value::Real),
                        _ => Value::Text(name.clone()),
                    });
                }
                Ok(Value::Null)
            })?;
            Ok(ToSqlOutput::Owned(value.unwrap_or(Value::Null)))
        })
    }

    /// What `take` makes of the record whose number is the first argument; `None` when there is no
    /// such record.
    fn with<T>(
        &self,
        context: &Context<'_>,
        take: impl FnOnce(&Records, &RecordView<'_>) -> Result<T, StoreError>,
    ) -> rusqlite::Result<Option<T>> {
        let ValueRef::Integer(number) = context.get_raw(0) else {
            return Ok(None);
        };
        let mut state = self.lock();
        state.with(number.cast_unsigned(), take).map_err(|error| {
            let message = error.to_string();
            state.failed = Some(error);
            Error::UserFunctionError(message.into())
        })
    }
}

impl State {
    fn with<T>(
        &mut self,
        number: u64,
        take: impl FnOnce(&Records, &RecordView<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        if !self.pieces.last().is_some_and(|piece| piece.covers(number)) {
            self.load(number)?;
        }
        self.last = number;
        let (Some(records), Some(piece)) = (&self.records, self.pieces.last()) else {
            return Ok(None);
        };
        let Some((time, payload)) = piece.record(number) else {
            return Ok(None);
        };
        let view = records.view(time, payload)?;
        take(records, &view).map(Some)
    }

    /// Makes the piece of `number` the newest.
    fn load(&mut self, number: u64) -> Result<(), StoreError> {
        if let Some(at) = self.pieces.iter().position(|piece| piece.covers(number)) {
            self.pieces[at..].rotate_left(1);
            return Ok(());
        }
        let Some(records) = &self.records else {
            return Ok(());
        };
        let backwards = number < self.last;
        let begun = self.seen.elements > 0;
        let last = self.numbers.map_or(number, |numbers| numbers.1);
        let piece = records.piece(number, last, backwards, self.times, begun)?;
        let known = self.seen.numbers;
        let is_new =
            |number: &u64| known.is_none_or(|(first, last)| *number < first || *number > last);
        self.seen.elements += piece.numbers().filter(is_new).count() as u64;
        if let (Some(first), Some(last)) = (piece.numbers().next(), piece.numbers().last()) {
            let (low, high) = known.unwrap_or((first, last));
            self.seen.numbers = Some((low.min(first), high.max(last)));
        }
        if self.pieces.len() == PIECES {
            self.pieces.remove(0);
        }
        self.pieces.push(piece);
        Ok(())
    }
}

impl Column {
    fn of(column: usize) -> Self {
        match RESERVED_COLUMNS.get(column) {
            Some(&"source_time") => Self::SourceTime,
            Some(&"receive_time") => Self::ReceiveTime,
            Some(&"key") => Self::Key,
            Some(_) => Self::Quality,
            None => Self::Field(column - RESERVED_COLUMNS.len()),
        }
    }

    fn value(self, records: &Records, view: &RecordView<'_>) -> Result<Value, StoreError> {
        Ok(match self {
            Self::SourceTime => Value::Integer(view.source_time),
            Self::ReceiveTime => Value::Integer(view.receive_time()),
            Self::Key => view.key().map_or(Value::Null, |key| {
                Value::Text(String::from_utf8_lossy(key).into_owned())
            }),
            Self::Quality => Value::Text(view.quality.name().to_owned()),
            Self::Field(field) => match records.value(view, field)? {
                Stored::Null => Value::Null,
                Stored::Boolean(value) => Value::Integer(i64::from(value)),
                Stored::Integer(value) => Value::Integer(value),
                Stored::Double(value) => Value::Real(value),
                Stored::Text(text) => Value::Text(text.to_owned()),
                Stored::Bytes(bytes) => Value::Blob(bytes.to_vec()),
                Stored::Samples(samples) => Value::Blob(samples.blob()),
            },
        })
    }
}

fn samples<'r>(
    records: &Records,
    view: &RecordView<'r>,
    field: usize,
) -> Result<Option<StoredSamples<'r>>, StoreError> {
    Ok(match records.value(view, field)? {
        Stored::Samples(samples) => Some(samples),
        _ => None,
    })
}
