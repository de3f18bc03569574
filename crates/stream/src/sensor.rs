//! One statement of a virtual sensor as a machine: elements of its sources in, results out.
//!
//! It runs while every source is bound, and waits otherwise. A source bound to several streams is
//! their union. When an element completes a window's slide, the statement is evaluated over all
//! windows, and each row of the result becomes an output element:
//!
//! - *source time*: the row's column `source_time`, else the newest source time in the windows;
//! - *receive time*: the newest receive time of the inputs since the last evaluation that had any; or the
//!   end of a turn that is evaluated as a whole, if that is later;
//! - *quality*: the row's column `quality`, else the worst in the windows;
//! - *key*: the row's column `key`;
//! - *origin*: the position of the newest input, if only one stream is bound, so the newest stored
//!   output is the position to resume from after a restart; see [`StatementMachine::progress`].
//!
//! A slide of time runs on the source's clock, so the same elements give the same results. If a source
//! falls silent within a slide, its window is evaluated once more, after twice the slide on the driver's
//! clock, or at once if it loses its last stream ([`SensorCommand::EndSlides`]). A silent source produces
//! no output, unless its slide is on the node's clock: the driver sets that clock with
//! [`SensorCommand::Clock`], and every turn is evaluated.
//!
//! A source can have a window for each key. The statement is then evaluated for the key of the
//! element, over its window, and the output has that key. A compiled statement follows each window on
//! its own; SQLite's tables are filled with the window of the key that is evaluated.
//!
//! A failed evaluation is counted and reported, and the sensor continues with the next one. It
//! deliberately does not know where elements come from or go to.

mod columns;
mod evaluation;
mod interface;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output, Timers};

pub(crate) use columns::planned;
pub(crate) use evaluation::is_too_soon;
pub use interface::{
    SensorCommand, SensorCounters, SensorEvent, SensorInput, SensorLimits, SensorState,
};

use crate::sampling::Sampler;
use crate::sqlite::InterruptHandle;
use crate::window::{Part, Parts, WindowShape};
use crate::{
    Descriptor, EarlyPolicy, Extent, FieldType, LatePolicy, PlannedQuery, Position, QueryPlan,
    QuerySource, Refusal, Selection, StreamElement, StreamSchema, Timestamp, Value, WindowChange,
    WindowClock, WindowCounters,
};

/// The machine.
#[derive(Debug)]
pub(crate) struct StatementMachine {
    descriptor: Descriptor,
    limits: SensorLimits,
    sources: Vec<SourceState>,
    /// The changes of each window, kept for their memory.
    changes: Vec<WindowChange>,
    query: Option<PlannedQuery>,
    state: SensorState,
    counters: SensorCounters,
    outputs: VecDeque<SensorEvent>,
    /// The ends of turns of sources that may fall silent, by source and key.
    stalled: Timers<(usize, Arc<str>)>,
    /// The ends of turns of the node's clock, by source.
    ticks: Timers<usize>,
    /// The node's clock when it was set last.
    clock: Option<(Instant, Timestamp)>,
    /// Whether a source has a window for each key.
    is_keyed: bool,
    /// Stands for all keys.
    no_key: Arc<str>,
    /// The windows by key that are in SQLite's tables, by source.
    loaded: Vec<Loaded>,
    /// Whether the last evaluation for a key was short.
    was_short: bool,
    received: Timestamp,
    /// The position of the newest input, if one stream alone is bound.
    newest: Option<Position>,
    /// Whether one stream alone is bound.
    has_single_stream: bool,
    last_failure: Option<String>,
    /// The source time of the last results that were not too soon.
    last_results: Option<Timestamp>,
}

#[derive(Debug)]
struct SourceState {
    bound: BTreeMap<Arc<str>, BoundSchema>,
    /// The choice to which its streams belong.
    choice: usize,
    /// The union of the fields of the bound streams.
    schema: StreamSchema,
    parts: Parts,
    key: KeyColumn,
    /// `None` takes every element.
    sampler: Option<Sampler>,
}

/// A window that is in a table of SQLite.
#[derive(Debug, Clone, Default)]
struct Loaded {
    /// The number from which its arrivals are numbered.
    numbered_from: Option<u64>,
    /// The numbers of the rows.
    rows: BTreeSet<u64>,
}

/// The part of an element that chooses its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyColumn {
    /// Nothing: there is one window.
    None,
    Key,
    Field(usize),
}

#[derive(Debug, PartialEq)]
struct BoundSchema {
    given: StreamSchema,
    /// With the names used in the statement; or the reason, as text, why it does not match.
    offered: Result<StreamSchema, String>,
    /// Whether its elements have the shape of the source's schema as they are.
    fits: bool,
    /// The position of the newest element received, and of the newest evaluated.
    came: Option<Position>,
    evaluated: Option<Position>,
}

impl StatementMachine {
    /// A statement that waits for its sources.
    pub(crate) fn new(descriptor: Descriptor, limits: SensorLimits) -> Self {
        let sources = descriptor.sources.iter().map(|source| {
            let shape = WindowShape {
                extent: source.window,
                slide: source.slide,
                first: source.first,
                late: source.late,
                timing: source.timing,
            };
            let keys = source.per.as_ref().map(|per| per.keys);
            SourceState {
                bound: BTreeMap::new(),
                choice: 0,
                schema: StreamSchema::default(),
                parts: Parts::new(shape, keys, limits.window),
                key: KeyColumn::None,
                sampler: Sampler::new(source.sampling, &descriptor.name, &source.alias),
            }
        });
        let sources: Vec<SourceState> = sources.collect();
        let mut sensor = Self {
            is_keyed: sources.iter().any(|source| source.parts.is_keyed()),
            loaded: vec![Loaded::default(); sources.len()],
            changes: vec![WindowChange::default(); sources.len()],
            sources,
            descriptor,
            limits,
            query: None,
            state: SensorState::Waiting(Vec::new()),
            counters: SensorCounters::default(),
            outputs: VecDeque::new(),
            stalled: Timers::default(),
            ticks: Timers::default(),
            clock: None,
            no_key: "".into(),
            was_short: true,
            received: Timestamp(i64::MIN),
            newest: None,
            has_single_stream: false,
            last_failure: None,
            last_results: None,
        };
        sensor.state = SensorState::Waiting(sensor.unbound());
        sensor
    }

    /// The state.
    pub(crate) fn state(&self) -> &SensorState {
        &self.state
    }

    /// The counters.
    pub(crate) fn counters(&self) -> SensorCounters {
        self.counters
    }

    /// Counters of the window of the source `alias`.
    pub(crate) fn window_counters(&self, alias: &str) -> Option<WindowCounters> {
        let index = self.index(alias)?;
        Some(self.sources[index].parts.counters())
    }

    /// Whether a source runs on the node's clock, so that the driver has to set it.
    pub(crate) fn follows_clock(&self) -> bool {
        let mut sources = self.descriptor.sources.iter();
        sources.any(|source| source.timing.clock == WindowClock::Node)
    }

    /// The number of elements in its windows.
    pub(crate) fn held(&self) -> usize {
        self.sources.iter().map(|source| source.parts.len()).sum()
    }

    /// The first element of `stream` that a window holds, or by which it knows its last turn: a later
    /// run needs none before it. This looks at each element.
    pub(crate) fn first_held(&self, stream: &str) -> Option<Position> {
        let bound = self
            .sources
            .iter()
            .filter(|source| source.bound.contains_key(stream));
        let firsts = bound.filter_map(|source| source.parts.first_of(stream));
        firsts.min_by_key(|position| position.sequence)
    }

    /// How far each bound stream is evaluated. Later elements must be passed again after a restart;
    /// earlier ones are passed by [`SensorCommand::Recall`], as far back as its windows reach.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (&Arc<str>, Position)> {
        let bound = self.sources.iter().flat_map(|source| &source.bound);
        bound.filter_map(|(stream, bound)| Some((stream, bound.evaluated?)))
    }

    /// Whether exactly one stream is bound, so each output's origin is the position up to which that
    /// stream is evaluated.
    pub(crate) fn has_single_stream(&self) -> bool {
        self.has_single_stream
    }

    /// Continues its rate after results of an earlier run.
    pub(crate) fn continue_after(&mut self, last: Timestamp) {
        self.last_results = Some(last);
    }

    /// The plan of its statement; `None` while it does not run.
    pub(crate) fn plan(&self) -> Option<&QueryPlan> {
        self.query.as_ref().map(PlannedQuery::plan)
    }

    /// Whether an evaluation is cheap: compiled, and over a window small enough for about 0.2 ms, so a
    /// driver may run it on its own thread. This changes as the window fills. Preparing the statement,
    /// which each binding does, is never cheap.
    pub(crate) fn is_compiled(&self) -> bool {
        self.was_short && self.query.as_ref().is_some_and(PlannedQuery::is_short)
    }

    /// The number of evaluations of its compiled statement that SQLite made since the last binding.
    pub(crate) fn sqlite_evaluations(&self) -> u64 {
        let queries = self.query.iter();
        let keyed = self
            .sources
            .iter()
            .flat_map(|source| source.parts.queries());
        queries
            .chain(keyed)
            .map(PlannedQuery::sqlite_evaluations)
            .sum()
    }

    /// A handle by which another thread stops a running evaluation. Each [`SensorEvent::Running`] and each
    /// binding prepares a new statement, so get a new handle after it. `None` for a compiled statement.
    pub(crate) fn interrupt_handle(&self) -> Option<InterruptHandle> {
        self.query.as_ref()?.interrupt_handle()
    }

    /// Whether a source is bound to `stream`.
    pub(crate) fn reads(&self, stream: &str) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| source.bound.contains_key(stream))
    }

    fn index(&self, alias: &str) -> Option<usize> {
        let mut sources = self.descriptor.sources.iter();
        sources.position(|source| source.alias == alias)
    }

    fn unbound(&self) -> Vec<String> {
        let sources = self.descriptor.sources.iter().zip(&self.sources);
        let unbound = sources.filter(|(_, state)| state.bound.is_empty());
        unbound.map(|(source, _)| source.alias.clone()).collect()
    }

    fn say(&mut self, event: SensorEvent) {
        self.outputs.push_back(event);
    }

    fn set_state(&mut self, state: SensorState) {
        if self.state == state {
            return;
        }
        self.state = state;
        self.say(match &self.state {
            SensorState::Waiting(aliases) => SensorEvent::Waiting {
                aliases: aliases.clone(),
            },
            SensorState::Running => SensorEvent::Running,
            SensorState::Failed(reason) => SensorEvent::Failed {
                reason: reason.clone(),
            },
            SensorState::Stopped => SensorEvent::Stopped,
        });
    }

    fn bind(&mut self, alias: &str, stream: Arc<str>, schema: StreamSchema) {
        let Some(index) = self.index(alias) else {
            return;
        };
        let choice = self.sources[index].choice;
        let offered = match self.descriptor.sources[index].choice(choice) {
            Selection::Query(query) => query.offered(&schema),
            _ => Ok(schema.clone()),
        };
        let given = schema;
        let source = &mut self.sources[index];
        if source
            .bound
            .get(&stream)
            .is_some_and(|known| known.given != given)
        {
            // Elements of the old shape do not fit the new one.
            source.parts.remove_stream(&stream);
        }
        source.bound.insert(
            stream,
            BoundSchema {
                given,
                offered,
                fits: false,
                came: None,
                evaluated: None,
            },
        );
        self.rebuild();
    }

    /// Evaluates what would be evaluated after a while of silence.
    fn end_slides(&mut self, alias: &str) {
        let Some(index) = self.index(alias) else {
            return;
        };
        let mut due = Due::default();
        for key in self.sources[index].parts.keys() {
            let stalled = (index, key);
            if self.stalled.cancel(&stalled) {
                self.end_silent(stalled, &mut due);
            }
        }
        self.evaluate_due(&due);
    }

    fn unbind(&mut self, alias: &str, stream: &str) {
        let Some(index) = self.index(alias) else {
            return;
        };
        let source = &mut self.sources[index];
        if source.bound.remove(stream).is_none() {
            return;
        }
        source.parts.remove_stream(stream);
        if source.bound.is_empty() {
            source
                .parts
                .all_mut()
                .for_each(|part| part.reset_turns(true));
            for key in source.parts.keys() {
                self.stalled.cancel(&(index, key));
            }
        }
        self.rebuild();
    }

    /// Prepares the statement again for the bound sources.
    fn rebuild(&mut self) {
        self.query = None;
        self.was_short = true;
        let bound = self.sources.iter().flat_map(|source| source.bound.keys());
        let streams: BTreeSet<&Arc<str>> = bound.collect();
        // The number of an element of one choice says nothing about the streams of another.
        let mut described = self.descriptor.sources.iter();
        let has_choices = described.any(|source| !source.fallback.is_empty());
        self.has_single_stream = streams.len() == 1 && !has_choices;
        let unbound = self.unbound();
        if !unbound.is_empty() {
            self.compare_shapes();
            self.set_state(SensorState::Waiting(unbound));
            return;
        }
        let prepared = self.prepare();
        self.compare_shapes();
        match prepared {
            Ok(query) => {
                self.query = Some(query);
                for part in self
                    .sources
                    .iter_mut()
                    .flat_map(|source| source.parts.all_mut())
                {
                    part.window.report_all();
                    part.query = None;
                }
                self.loaded.fill(Loaded::default());
                self.set_state(SensorState::Running);
            }
            Err(reason) => self.set_state(SensorState::Failed(reason)),
        }
    }

    /// Remembers which streams' elements are in the shape of their source.
    fn compare_shapes(&mut self) {
        for source in &mut self.sources {
            for bound in source.bound.values_mut() {
                let offered = bound.offered.as_ref();
                bound.fits = offered.is_ok_and(|offered| offered.fields == source.schema.fields);
            }
        }
    }

    fn prepare(&mut self) -> Result<PlannedQuery, String> {
        let mut sources = Vec::new();
        let (sql, tables) = self.descriptor.evaluated();
        let described = self.descriptor.sources.iter().zip(tables);
        for ((described, table), state) in described.zip(&mut self.sources) {
            let alias = &described.alias;
            let mut offered = Vec::new();
            for (stream, bound) in &state.bound {
                let schema = bound.offered.as_ref();
                offered.push(schema.map_err(|why| format!("{alias} = {stream}: {why}"))?);
            }
            let schema = StreamSchema::union(offered).map_err(|error| {
                format!("the streams of {alias} have incompatible fields: {error}")
            })?;
            let by_meaning = match described.choice(state.choice) {
                Selection::Query(query) => query.observed_property.is_some(),
                _ => false,
            };
            if schema != state.schema {
                state.parts.reshape(&state.schema, &schema);
                state.schema = schema.clone();
            }
            if let Some(per) = &described.per {
                state.key =
                    key_column(&per.column, &schema).map_err(|why| format!("{alias}: {why}"))?;
            }
            sources.push(QuerySource {
                alias: table,
                schema,
                value: by_meaning.then(|| "value".to_owned()),
            });
        }
        let output = &self.descriptor.output;
        planned(output, &sources, &sql, self.limits.query).map_err(|error| error.to_string())
    }

    fn receive(&mut self, now: Instant, input: SensorInput) {
        // Longer ones do not fit in a table.
        let bytes_max = usize::try_from(self.limits.query.length).unwrap_or(0);
        let mut taken = false;
        let mut due = Due::default();
        for index in 0..self.sources.len() {
            let source = &mut self.sources[index];
            let Some(bound) = source.bound.get_mut(&input.stream) else {
                continue;
            };
            taken = true;
            bound.came = Some(input.element.position);
            if let Some(sampler) = &source.sampler
                && !sampler.takes(&input.stream, input.element.position)
            {
                self.counters.sampled_out += 1;
                continue;
            }
            let fits = bound.given.check(&input.element).is_ok()
                && input.element.size_bytes() <= bytes_max;
            let Some(offered) = bound.offered.as_ref().ok().filter(|_| fits) else {
                self.counters.misfits += 1;
                continue;
            };
            if source.parts.shape().timing.is_early(&input.element) {
                source.parts.count_early();
                self.refuse(index, Refusal::Early, &input);
                continue;
            }
            let element = match bound.fits {
                true => input.element.clone(),
                false => shaped(&input.element, offered, &source.schema),
            };
            let key = source
                .key
                .of(&element)
                .unwrap_or_else(|| self.no_key.clone());
            match source.parts.push(&key, input.stream.clone(), element) {
                Err(refusal) => {
                    self.refuse(index, refusal, &input);
                    continue;
                }
                Ok(false) => {}
                Ok(true) => due.add(self.is_keyed, source, &key),
            }
            if source.parts.shape().has_turns() {
                due.turns.push((index, key.clone()));
            }
            self.watch(now, index, key);
        }
        self.counters.inputs += u64::from(taken);
        self.counters.strangers += u64::from(!taken);
        if taken {
            self.received = self.received.max(input.element.receive_time);
            self.newest = Some(input.element.position);
        }
        self.evaluate_due(&due);
        for (index, key) in due.turns {
            self.close_turns(now, index, &key);
        }
    }

    /// Reports a refused element, if its source wants that.
    fn refuse(&mut self, index: usize, reason: Refusal, input: &SensorInput) {
        let source = &self.descriptor.sources[index];
        let is_reported = match reason {
            Refusal::Late => source.late == LatePolicy::DeadLetter,
            Refusal::Early => source.timing.early == EarlyPolicy::DeadLetter,
            Refusal::EqualTime | Refusal::Limit => false,
        };
        if is_reported {
            let (alias, input) = (source.alias.clone(), input.clone());
            self.say(SensorEvent::DeadLetter {
                alias,
                reason,
                input,
            });
        }
    }

    /// Fills the windows with elements that an earlier run evaluated.
    fn recall(&mut self, elements: &[SensorInput]) {
        for source in &mut self.sources {
            let (bound, schema, key) = (&mut source.bound, &source.schema, source.key);
            let no_key = &self.no_key;
            let sampler = source.sampler;
            source.parts.uncounted(|parts| {
                let timing = parts.shape().timing;
                for input in elements {
                    let Some(bound) = bound.get_mut(&input.stream) else {
                        continue;
                    };
                    let newest = Some(input.element.position);
                    (bound.came, bound.evaluated) = (newest, newest);
                    let Ok(offered) = &bound.offered else {
                        continue;
                    };
                    let position = input.element.position;
                    let is_used = sampler.is_none_or(|it| it.takes(&input.stream, position))
                        && bound.given.check(&input.element).is_ok();
                    if !is_used || timing.is_early(&input.element) {
                        continue;
                    }
                    let element = match bound.fits {
                        true => input.element.clone(),
                        false => shaped(&input.element, offered, schema),
                    };
                    let key = key.of(&element).unwrap_or_else(|| no_key.clone());
                    let now = element.receive_time;
                    let _ = parts.push(&key, input.stream.clone(), element);
                    while parts.close_turn(&key, now) {}
                }
                for part in parts.all_mut() {
                    if let Some(newest) = part.window.newest() {
                        part.slide.mark_evaluated(newest);
                    }
                    if timing.clock == WindowClock::Node {
                        part.reset_turns(false);
                    }
                }
            });
        }
    }

    /// Schedules the end of the turn for a source that falls silent within it.
    fn watch(&mut self, now: Instant, index: usize, key: Arc<str>) {
        let parts = &self.sources[index].parts;
        let shape = parts.shape();
        let Extent::Time(length) = shape.slide else {
            return;
        };
        if shape.timing.clock == WindowClock::Node {
            return;
        }
        let wait = shape.timing.wait.unwrap_or(length);
        if parts.get(&key).is_some_and(Part::is_pending) {
            let end = now + length.saturating_add(wait);
            self.stalled.set((index, key), end);
        } else {
            self.stalled.cancel(&(index, key));
        }
    }

    fn timeout(&mut self, now: Instant) {
        let mut due = Due::default();
        while let Some(stalled) = self.stalled.pop(now) {
            self.end_silent(stalled, &mut due);
        }
        self.evaluate_due(&due);
        while let Some(index) = self.ticks.pop(now) {
            self.tick(now, index);
        }
    }

    /// Ends the slides in which elements of a key wait: turns are evaluated, and other slides become due.
    fn end_silent(&mut self, (index, key): (usize, Arc<str>), due: &mut Due) {
        while self.sources[index].parts.end_silent_turn(&key) {
            let source = &self.sources[index];
            match source.parts.shape().has_turns() {
                true => self.evaluate_turn(index, &key),
                false => due.add(self.is_keyed, source, &key),
            }
        }
    }

    /// The node's clock.
    fn time(&self, now: Instant) -> Option<Timestamp> {
        let (at, time) = self.clock?;
        let since = i64::try_from((now - at).as_nanos()).unwrap_or(i64::MAX);
        Some(Timestamp(time.0.saturating_add(since)))
    }

    fn set_clock(&mut self, now: Instant, time: Timestamp) {
        self.clock = Some((now, time));
        for index in 0..self.sources.len() {
            let parts = &mut self.sources[index].parts;
            if parts.shape().timing.clock == WindowClock::Node {
                parts.all_mut().for_each(|part| part.follow_clock(time));
                self.tick(now, index);
            }
        }
    }

    /// Closes turns of the node's clock, and schedules the end of the next.
    fn tick(&mut self, now: Instant, index: usize) {
        let keys = self.sources[index].parts.keys();
        for key in keys {
            self.close_turns(now, index, &key);
        }
        let shape = self.sources[index].parts.shape();
        if let (Extent::Time(length), Some(time)) = (shape.slide, self.time(now)) {
            let wait = shape.timing.wait.unwrap_or_default();
            let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            let since = time
                .0
                .saturating_sub(ns(wait))
                .rem_euclid(ns(length).max(1));
            let rest = length.saturating_sub(Duration::from_nanos(since.unsigned_abs()));
            self.ticks.set(index, now + rest);
        }
    }

    /// Evaluates each turn of a key that has ended.
    fn close_turns(&mut self, now: Instant, index: usize, key: &Arc<str>) {
        // Without a clock, the newest receipt stands for it.
        let time = self.time(now).unwrap_or(self.received);
        while self.sources[index].parts.close_turn(key, time) {
            self.evaluate_turn(index, key);
        }
    }

    fn stop(&mut self) {
        self.query = None;
        for source in &mut self.sources {
            source.bound.clear();
            source.parts.clear();
        }
        self.stalled = Timers::default();
        self.ticks = Timers::default();
        self.set_state(SensorState::Stopped);
    }
}

/// The evaluations that an input makes due.
#[derive(Default)]
struct Due {
    /// For every key.
    all: bool,
    keys: Vec<Arc<str>>,
    /// Sources and keys whose turns may have ended.
    turns: Vec<(usize, Arc<str>)>,
}

impl Due {
    /// An evaluation for `key` of `source` is due; if that has one window for all keys, for each of them.
    fn add(&mut self, is_keyed: bool, source: &SourceState, key: &Arc<str>) {
        if !is_keyed || !source.parts.is_keyed() {
            self.all = true;
        } else if !self.keys.contains(key) {
            self.keys.push(key.clone());
        }
    }
}

impl KeyColumn {
    /// The key of an element in the shape of its source. An element without one has an empty key.
    fn of(self, element: &StreamElement) -> Option<Arc<str>> {
        let text = match self {
            Self::None => return None,
            Self::Key => return Some(element.key.as_deref()?.into()),
            Self::Field(index) => match element.values.get(index)? {
                Value::Text(text) => return Some(text.as_str().into()),
                Value::Integer(number) => number.to_string(),
                Value::Boolean(value) => value.to_string(),
                _ => return None,
            },
        };
        Some(text.into())
    }
}

/// The column that chooses a window.
/// The part of an element that `per` names.
pub(crate) fn key_column(name: &str, schema: &StreamSchema) -> Result<KeyColumn, String> {
    if name == "key" {
        return Ok(KeyColumn::Key);
    }
    let mut fields = schema.fields.iter();
    let found = fields.position(|field| field.name == name);
    let index = found.ok_or_else(|| format!("it has no field {name:?}, which `per` names"))?;
    match schema.fields[index].field_type {
        FieldType::Text | FieldType::Integer | FieldType::Boolean => Ok(KeyColumn::Field(index)),
        other => Err(format!(
            "`per` cannot be the field {name:?}, which is {other:?}"
        )),
    }
}

impl Machine for StatementMachine {
    type Receive = SensorInput;
    type Command = SensorCommand;
    type Transmit = std::convert::Infallible;
    type Event = SensorEvent;

    fn handle_input(&mut self, now: Instant, input: Input<SensorInput, SensorCommand>) {
        if self.state == SensorState::Stopped {
            return;
        }
        match input {
            Input::Receive(input) => self.receive(now, input),
            Input::Command(SensorCommand::Bind {
                alias,
                stream,
                schema,
            }) => self.bind(&alias, stream, schema),
            Input::Command(SensorCommand::EndSlides { alias }) => self.end_slides(&alias),
            Input::Command(SensorCommand::Unbind { alias, stream }) => self.unbind(&alias, &stream),
            Input::Command(SensorCommand::Choose { alias, choice }) => {
                if let Some(index) = self.index(&alias) {
                    self.sources[index].choice = choice;
                }
            }
            Input::Command(SensorCommand::Recall { elements }) => self.recall(&elements),
            Input::Command(SensorCommand::Clock(time)) => self.set_clock(now, time),
            Input::Command(SensorCommand::Stop) => self.stop(),
            Input::Timeout => self.timeout(now),
        }
    }

    fn poll_output(&mut self) -> Option<Output<Self::Transmit, SensorEvent>> {
        self.outputs.pop_front().map(Output::Event)
    }

    fn deadline(&self) -> Option<Instant> {
        let turns = [self.stalled.next(), self.ticks.next()];
        turns.into_iter().flatten().min()
    }
}

/// The element in the shape of the source's schema.
fn shaped(
    element: &Arc<StreamElement>,
    from: &StreamSchema,
    to: &StreamSchema,
) -> Arc<StreamElement> {
    let mut shaped = StreamElement::clone(element);
    shaped.values = to.project(from, shaped.values);
    Arc::new(shaped)
}
