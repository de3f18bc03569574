//! One statement of a virtual sensor as a machine: elements of its sources in, results out.
//!
//! It runs while every source is bound, and waits otherwise. A source bound to several streams is
//! their union. When an element completes a window's slide, the statement is evaluated over all
//! windows, and each row of the result becomes an output element:
//!
//! - *source time*: the row's column `source_time`, else the newest source time in the windows;
//! - *receive time*: the newest receive time of the inputs since the last evaluation that had any;
//! - *quality*: the row's column `quality`, else the worst in the windows;
//! - *key*: the row's column `key`;
//! - *origin*: the position of the newest input, if only one stream is bound, so the newest stored
//!   output is the position to resume from after a restart; see [`VirtualSensor::progress`].
//!
//! A slide of time runs on the source's clock, so the same elements give the same results. If a source
//! falls silent within a slide, its window is evaluated once more, after twice the slide on the driver's
//! clock. A silent source produces no output.
//!
//! A failed evaluation is counted and reported, and the sensor continues with the next one. It
//! deliberately does not know where elements come from or go to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output, Timers};

use crate::sampling::Sampler;
use crate::sqlite::InterruptHandle;
use crate::{
    Descriptor, Extent, PlannedQuery, Position, Quality, Query, QueryError, QueryLimits, QueryPlan,
    QuerySource, Row, Selection, Slide, StreamElement, StreamSchema, Timestamp, Window,
    WindowChange, WindowCounters, WindowLimits,
};

/// An element of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SensorInput {
    /// The stream of the element.
    pub stream: Arc<str>,
    /// The element.
    pub element: Arc<StreamElement>,
}

/// A command to a virtual sensor.
#[derive(Debug, Clone, PartialEq)]
pub enum SensorCommand {
    /// Binds a stream to the source `alias`.
    Bind {
        /// The source.
        alias: String,
        /// The stream.
        stream: Arc<str>,
        /// The schema of its elements.
        schema: StreamSchema,
    },
    /// Unbinds a stream from the source `alias`; its elements leave the window.
    Unbind {
        /// The source.
        alias: String,
        /// The stream.
        stream: Arc<str>,
    },
    /// Elements of a bound stream that an earlier run evaluated: they fill the windows and produce
    /// no output.
    Recall {
        /// The stream.
        stream: Arc<str>,
        /// The elements, oldest first.
        elements: Vec<Arc<StreamElement>>,
    },
    /// The sensor forgets everything and accepts nothing more.
    Stop,
}

/// An output of a virtual sensor.
#[derive(Debug, Clone, PartialEq)]
pub enum SensorEvent {
    /// An element of the output, without a position.
    Output(StreamElement),
    /// Every source is bound and the statement matches: it runs.
    Running,
    /// It waits for the sources named.
    Waiting {
        /// Their aliases.
        aliases: Vec<String>,
    },
    /// It cannot run with its bindings: the statement does not match the fields.
    Failed {
        /// The reason as text.
        reason: String,
    },
    /// One evaluation failed. Said when the reason is another than the time before.
    EvaluationFailed {
        /// The reason as text.
        reason: String,
    },
    /// It was stopped.
    Stopped,
}

/// The state of a virtual sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SensorState {
    /// It waits for the sources named.
    Waiting(Vec<String>),
    /// It runs.
    Running,
    /// It cannot run, for this reason.
    Failed(String),
    /// It was stopped.
    Stopped,
}

/// Counters of a virtual sensor since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SensorCounters {
    /// Elements accepted.
    pub inputs: u64,
    /// Elements of streams that no source is bound to.
    pub strangers: u64,
    /// Elements that do not fit the schema that their stream was bound with, or are longer than
    /// [`QueryLimits::length`].
    pub misfits: u64,
    /// Elements that the sampling of a source left out.
    pub sampled_out: u64,
    /// Evaluations.
    pub evaluations: u64,
    /// Evaluations that failed.
    pub failures: u64,
    /// Elements of the output.
    pub outputs: u64,
    /// Results dropped because they came sooner than a rate allows.
    pub too_soon: u64,
    /// Results dropped after a statement's last element.
    pub beyond_count: u64,
    /// Results dropped because their time was not after that of the last with their key.
    pub repeated_times: u64,
    /// Results dropped because a field was null.
    pub nulls: u64,
}

/// Bounds of a virtual sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SensorLimits {
    /// Bounds of each source's window.
    pub window: WindowLimits,
    /// Bounds of each evaluation.
    pub query: QueryLimits,
}

/// Capacity for this many changes of a window is kept between evaluations.
const CHANGES_KEPT: usize = 64;

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
    stalled: Timers<usize>,
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
    /// The union of the fields of the bound streams.
    schema: StreamSchema,
    window: Window,
    slide: Slide,
    /// `None` takes every element.
    sampler: Option<Sampler>,
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
        let sources = descriptor.sources.iter().map(|source| SourceState {
            bound: BTreeMap::new(),
            schema: StreamSchema::default(),
            window: Window::new(source.window, source.late, limits.window),
            slide: Slide::new(source.slide),
            sampler: Sampler::new(source.sampling, &descriptor.name, &source.alias),
        });
        let mut sensor = Self {
            sources: sources.collect(),
            changes: vec![WindowChange::default(); descriptor.sources.len()],
            descriptor,
            limits,
            query: None,
            state: SensorState::Waiting(Vec::new()),
            counters: SensorCounters::default(),
            outputs: VecDeque::new(),
            stalled: Timers::default(),
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
        Some(self.sources[index].window.counters())
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

    /// The plan of its statement; `None` while it does not run.
    pub(crate) fn plan(&self) -> Option<&QueryPlan> {
        self.query.as_ref().map(PlannedQuery::plan)
    }

    /// Whether an evaluation is cheap: compiled, and over a window small enough for about 0.2 ms, so a
    /// driver may run it on its own thread. This changes as the window fills. Preparing the statement,
    /// which each binding does, is never cheap.
    pub(crate) fn is_compiled(&self) -> bool {
        self.query.as_ref().is_some_and(PlannedQuery::is_short)
    }

    /// The number of evaluations of its compiled statement that SQLite made since the last binding.
    pub(crate) fn sqlite_evaluations(&self) -> u64 {
        self.query
            .as_ref()
            .map_or(0, PlannedQuery::sqlite_evaluations)
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
        let offered = match &self.descriptor.sources[index].selection {
            Selection::Query(query) => query.offered(&schema),
            Selection::Stream(_) => Ok(schema.clone()),
        };
        let given = schema;
        let source = &mut self.sources[index];
        if source
            .bound
            .get(&stream)
            .is_some_and(|known| known.given != given)
        {
            // Elements of the old shape do not fit the new one.
            source.window.remove_stream(&stream);
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

    fn unbind(&mut self, alias: &str, stream: &str) {
        let Some(index) = self.index(alias) else {
            return;
        };
        let source = &mut self.sources[index];
        if source.bound.remove(stream).is_none() {
            return;
        }
        source.window.remove_stream(stream);
        if source.bound.is_empty() {
            source.slide = Slide::new(source.slide.extent());
            self.stalled.cancel(&index);
        }
        self.rebuild();
    }

    /// Prepares the statement again for the bound sources.
    fn rebuild(&mut self) {
        self.query = None;
        let bound = self.sources.iter().flat_map(|source| source.bound.keys());
        let streams: BTreeSet<&Arc<str>> = bound.collect();
        self.has_single_stream = streams.len() == 1;
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
                for source in &mut self.sources {
                    source.window.report_all();
                }
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
            let by_meaning = match &described.selection {
                Selection::Query(query) => query.observed_property.is_some(),
                Selection::Stream(_) => false,
            };
            if schema != state.schema {
                state.window.reshape(&state.schema, &schema);
                state.schema = schema.clone();
            }
            sources.push(QuerySource {
                alias: table,
                schema,
                value: by_meaning.then(|| "value".to_owned()),
            });
        }
        let output = &self.descriptor.output;
        PlannedQuery::new(&sources, &sql, &output.schema, self.limits.query)
            .map_err(|error| error.to_string())
    }

    fn receive(&mut self, now: Instant, input: SensorInput) {
        // Longer ones do not fit in a table.
        let bytes_max = usize::try_from(self.limits.query.length).unwrap_or(0);
        let mut taken = false;
        let mut due = false;
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
            let element = match bound.fits {
                true => input.element.clone(),
                false => shaped(&input.element, offered, &source.schema),
            };
            if !source.window.push(input.stream.clone(), element) {
                continue;
            }
            let newest = source.window.newest().unwrap_or_default();
            due |= source.slide.is_due(newest);
            self.watch(now, index);
        }
        self.counters.inputs += u64::from(taken);
        self.counters.strangers += u64::from(!taken);
        if taken {
            self.received = self.received.max(input.element.receive_time);
            self.newest = Some(input.element.position);
        }
        if due {
            self.evaluate();
        }
    }

    /// Fills the windows with elements that an earlier run evaluated.
    fn recall(&mut self, stream: &Arc<str>, elements: &[Arc<StreamElement>]) {
        for source in &mut self.sources {
            let Some(bound) = source.bound.get_mut(stream) else {
                continue;
            };
            let newest = elements.last().map(|element| element.position);
            (bound.came, bound.evaluated) = (newest, newest);
            let Ok(offered) = &bound.offered else {
                continue;
            };
            let sampler = source.sampler;
            let is_sampled = |position| sampler.is_none_or(|it| it.takes(stream, position));
            for element in elements {
                if is_sampled(element.position) && bound.given.check(element).is_ok() {
                    let element = match bound.fits {
                        true => element.clone(),
                        false => shaped(element, offered, &source.schema),
                    };
                    source.window.push(stream.clone(), element);
                }
            }
            if let Some(newest) = source.window.newest() {
                source.slide.mark_evaluated(newest);
            }
        }
    }

    /// Schedules one more evaluation for a source that falls silent within a slide of time.
    fn watch(&mut self, now: Instant, index: usize) {
        let slide = &self.sources[index].slide;
        let Extent::Time(length) = slide.extent() else {
            return;
        };
        if slide.is_pending() {
            self.stalled.set(index, now + length.saturating_mul(2));
        } else {
            self.stalled.cancel(&index);
        }
    }

    fn timeout(&mut self, now: Instant) {
        let mut due = false;
        while let Some(index) = self.stalled.pop(now) {
            let source = &mut self.sources[index];
            if source.slide.is_pending() {
                due = true;
                source
                    .slide
                    .mark_evaluated(source.window.newest().unwrap_or_default());
            }
        }
        if due {
            self.evaluate();
        }
    }

    fn evaluate(&mut self) {
        let Some(query) = &mut self.query else {
            return;
        };
        for (source, change) in self.sources.iter_mut().zip(&mut self.changes) {
            source.window.take_change_into(change);
        }
        self.counters.evaluations += 1;
        for source in &mut self.sources {
            for bound in source.bound.values_mut() {
                bound.evaluated = bound.came;
            }
        }
        match query.evaluate(&self.changes) {
            Ok(rows) => {
                self.last_failure = None;
                let results = rows.into_iter().map(|row| self.element(row));
                self.say_results(results.collect());
            }
            Err(error) => self.failed(&error),
        }
        for change in &mut self.changes {
            change.removed.clear();
            change.added.clear();
            change.added.shrink_to(CHANGES_KEPT);
            change.removed.shrink_to(CHANGES_KEPT);
        }
    }

    /// Passes the results of one evaluation on, unless they come too soon.
    fn say_results(&mut self, results: Vec<StreamElement>) {
        let times = results.iter().map(|result| result.source_time);
        let Some(newest) = times.max() else {
            return;
        };
        let rate = self.descriptor.statements.first().and_then(|it| it.rate);
        if is_too_soon(rate, self.last_results, newest) {
            self.counters.too_soon += results.len() as u64;
            return;
        }
        self.last_results = Some(newest);
        self.counters.outputs += results.len() as u64;
        let events = results.into_iter().map(SensorEvent::Output);
        self.outputs.extend(events);
    }

    fn failed(&mut self, error: &QueryError) {
        self.counters.failures += 1;
        let reason = error.to_string();
        if self.last_failure.as_ref() != Some(&reason) {
            self.last_failure = Some(reason.clone());
            self.say(SensorEvent::EvaluationFailed { reason });
        }
        if matches!(error, QueryError::Engine(_) | QueryError::Element { .. }) {
            // The tables may be out of step with the windows.
            self.rebuild();
        }
    }

    fn element(&self, row: Row) -> StreamElement {
        let windows = || self.sources.iter().map(|source| &source.window);
        let newest = windows().filter_map(Window::newest).max();
        let worst = windows()
            .map(Window::quality)
            .fold(Quality::Good, Quality::worse);
        StreamElement {
            position: Position::default(),
            source_time: row.source_time.or(newest).unwrap_or_default(),
            receive_time: self.received,
            key: row.key,
            values: row.values,
            quality: row.quality.unwrap_or(worst),
            origin: self.newest.filter(|_| self.has_single_stream),
        }
    }

    fn stop(&mut self) {
        self.query = None;
        for source in &mut self.sources {
            source.bound.clear();
            source.window.clear();
        }
        self.stalled = Timers::default();
        self.set_state(SensorState::Stopped);
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
            Input::Command(SensorCommand::Unbind { alias, stream }) => self.unbind(&alias, &stream),
            Input::Command(SensorCommand::Recall { stream, elements }) => {
                self.recall(&stream, &elements);
            }
            Input::Command(SensorCommand::Stop) => self.stop(),
            Input::Timeout => self.timeout(now),
        }
    }

    fn poll_output(&mut self) -> Option<Output<Self::Transmit, SensorEvent>> {
        self.outputs.pop_front().map(Output::Event)
    }

    fn deadline(&self) -> Option<Instant> {
        self.stalled.next()
    }
}

/// Whether results at `time` come sooner after `last` than `rate` allows.
pub(crate) fn is_too_soon(
    rate: Option<Duration>,
    last: Option<Timestamp>,
    time: Timestamp,
) -> bool {
    let (Some(rate), Some(last)) = (rate, last) else {
        return false;
    };
    let rate = i64::try_from(rate.as_nanos()).unwrap_or(i64::MAX);
    (0..rate).contains(&time.0.saturating_sub(last.0))
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
