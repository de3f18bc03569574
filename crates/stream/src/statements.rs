//! A virtual sensor as a machine: its statements, and which of their results pass.
//!
//! Each statement runs while its own sources are bound ([`crate::sensor`] evaluates it), and the results
//! of all are the sensor's output, in the order of their inputs. A result is dropped and counted:
//!
//! - if its source time is less than the output's rate after the last result that passed, or the newest of
//!   its evaluation less than the statement's rate after that of the evaluation before; a time before that
//!   one passes, since a source's clock may have been set back;
//! - after the statement's last element;
//! - if a field is null, where the output drops nulls;
//! - unless its source time is after that of the last result with its key, where times are unique.
//!
//! Rates run on source time, so the same elements give the same results, whenever they arrive. Counts begin with
//! the machine; the last times continue from the elements that an earlier run stored
//! ([`VirtualSensor::continue_after`]), except the rates of several statements.
//!
//! The outputs of several statements carry no position of an input: [`VirtualSensor::progress`] is then the
//! only record of how far each stream is evaluated.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chappe_machine::{Input, Instant, Machine, Output};

use crate::descriptor::Statement;
use crate::sensor::{StatementMachine, is_too_soon};
use crate::sqlite::InterruptHandle;
use crate::{
    Descriptor, Position, QueryPlan, SensorCommand, SensorCounters, SensorEvent, SensorInput,
    SensorLimits, SensorState, StreamElement, Timestamp, Value, WindowCounters,
};

/// Most keys whose last time is remembered for unique times; the key with the oldest time is
/// forgotten first. 10,000: the machines of a plant, some 2 MB.
const KEYS_MAX: usize = 10_000;

/// The machine.
#[derive(Debug)]
pub struct VirtualSensor {
    descriptor: Descriptor,
    statements: Vec<StatementState>,
    state: SensorState,
    /// Counters of what the statements do not count.
    counters: SensorCounters,
    events: VecDeque<SensorEvent>,
    /// The source time of the last result that passed.
    last: Option<Timestamp>,
    /// The same for each key, where times are unique.
    last_of_key: BTreeMap<Option<String>, Timestamp>,
}

#[derive(Debug)]
struct StatementState {
    machine: StatementMachine,
    /// Results that passed.
    passed: u64,
}

impl VirtualSensor {
    /// A sensor that waits for its sources.
    #[must_use]
    pub fn new(descriptor: Descriptor, limits: SensorLimits) -> Self {
        let indexes = 0..descriptor.statements.len();
        let statements = indexes.map(|index| StatementState {
            machine: StatementMachine::new(descriptor.only(index), limits),
            passed: 0,
        });
        let mut sensor = Self {
            statements: statements.collect(),
            descriptor,
            state: SensorState::Running,
            counters: SensorCounters::default(),
            events: VecDeque::new(),
            last: None,
            last_of_key: BTreeMap::new(),
        };
        sensor.state = sensor.common_state();
        sensor
    }

    /// The number of the newest elements of the output that [`Self::continue_after`] needs.
    #[must_use]
    pub fn outputs_needed(&self) -> usize {
        let output = &self.descriptor.output;
        let rates = self.descriptor.statements.iter().map(|it| it.rate);
        let has_rate = rates.chain([output.rate]).any(|rate| rate.is_some());
        match (output.unique_times, has_rate) {
            (true, _) => KEYS_MAX,
            (false, true) => 1,
            (false, false) => 0,
        }
    }

    /// Continues rates and unique times after elements of the output that an earlier run stored, oldest first.
    pub fn continue_after(&mut self, outputs: &[StreamElement]) {
        for element in outputs {
            self.last = Some(element.source_time);
            if self.descriptor.output.unique_times {
                self.remember(element);
            }
        }
        if let ([only], Some(last)) = (&mut self.statements[..], self.last) {
            only.machine.continue_after(last);
        }
    }

    /// Remembers the time of the last element with its key.
    fn remember(&mut self, element: &StreamElement) {
        let time = element.source_time;
        let last = self.last_of_key.entry(element.key.clone()).or_insert(time);
        *last = time.max(*last);
        if self.last_of_key.len() > KEYS_MAX {
            let oldest = self.last_of_key.iter().min_by_key(|(_, time)| **time);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.last_of_key.remove(&key);
            }
        }
    }

    /// Its descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The state: `Failed` if a statement failed, else `Waiting` if one waits, although the others run.
    #[must_use]
    pub fn state(&self) -> &SensorState {
        &self.state
    }

    /// The counters, summed over the statements.
    #[must_use]
    pub fn counters(&self) -> SensorCounters {
        let mut sum = self.counters;
        for statement in &self.statements {
            let counters = statement.machine.counters();
            sum.inputs += counters.inputs;
            sum.misfits += counters.misfits;
            sum.sampled_out += counters.sampled_out;
            sum.evaluations += counters.evaluations;
            sum.failures += counters.failures;
            sum.too_soon += counters.too_soon;
        }
        sum
    }

    /// Counters of the window of the source `alias`.
    #[must_use]
    pub fn window_counters(&self, alias: &str) -> Option<WindowCounters> {
        let mut machines = self.machines();
        machines.find_map(|machine| machine.window_counters(alias))
    }

    /// Whether a window is on the node's clock, which [`SensorCommand::Clock`] sets.
    #[must_use]
    pub fn follows_clock(&self) -> bool {
        self.machines().any(StatementMachine::follows_clock)
    }

    /// The number of elements that its windows hold.
    #[must_use]
    pub fn held(&self) -> usize {
        self.machines().map(StatementMachine::held).sum()
    }

    /// The position of the first element of `stream` that a window holds, or by which it knows its last
    /// turn: a later run needs none before it.
    #[must_use]
    pub fn first_held(&self, stream: &str) -> Option<Position> {
        let firsts = self
            .machines()
            .filter_map(|machine| machine.first_held(stream));
        firsts.min_by_key(|position| position.sequence)
    }

    /// How far each bound stream is evaluated by every statement that has evaluated any of it. Later
    /// elements must be passed again after a restart; earlier ones are passed by
    /// [`SensorCommand::Recall`], as far back as its windows reach.
    pub fn progress(&self) -> impl Iterator<Item = (&Arc<str>, Position)> {
        let mut least: BTreeMap<&Arc<str>, Position> = BTreeMap::new();
        for machine in self.machines() {
            let mut newest: BTreeMap<&Arc<str>, Position> = BTreeMap::new();
            for (stream, position) in machine.progress() {
                let at = newest.entry(stream).or_insert(position);
                *at = later(*at, position);
            }
            for (stream, position) in newest {
                let at = least.entry(stream).or_insert(position);
                if later(*at, position) == *at {
                    *at = position;
                }
            }
        }
        least.into_iter()
    }

    /// Whether one statement with one bound stream is all there is, so each output's origin is the
    /// position up to which that stream is evaluated.
    #[must_use]
    pub fn has_single_stream(&self) -> bool {
        matches!(&self.statements[..], [only] if only.machine.has_single_stream())
    }

    /// The plan of its statement, of several the first that is not compiled; `None` while none runs.
    #[must_use]
    pub fn plan(&self) -> Option<&QueryPlan> {
        let plans = || self.machines().filter_map(StatementMachine::plan);
        let mut by_sqlite = plans().filter(|plan| **plan != QueryPlan::Compiled);
        by_sqlite.next().or_else(|| plans().next())
    }

    /// Whether an evaluation is cheap: compiled, and over a window small enough for about 0.2 ms, so a
    /// driver may run it on its own thread. This changes as the window fills. Preparing a statement,
    /// which each binding does, is never cheap.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        let mut running = self.machines().filter(|machine| machine.plan().is_some());
        running.next().is_some_and(StatementMachine::is_compiled)
            && running.all(StatementMachine::is_compiled)
    }

    /// The number of evaluations of its compiled statements that SQLite made since the last binding.
    #[must_use]
    pub fn sqlite_evaluations(&self) -> u64 {
        let machines = self.machines();
        machines.map(StatementMachine::sqlite_evaluations).sum()
    }

    /// Handles by which another thread stops a running evaluation. Each [`SensorEvent::Running`] and each
    /// binding prepares a new statement, so get new handles after it. A compiled statement has none.
    pub fn interrupt_handles(&self) -> impl Iterator<Item = InterruptHandle> {
        self.machines()
            .filter_map(StatementMachine::interrupt_handle)
    }

    fn machines(&self) -> impl Iterator<Item = &StatementMachine> {
        self.statements.iter().map(|statement| &statement.machine)
    }

    fn common_state(&self) -> SensorState {
        let has_several = self.statements.len() > 1;
        let mut waiting = Vec::new();
        let statements = self.descriptor.statements.iter();
        for (described, statement) in statements.zip(&self.statements) {
            match statement.machine.state() {
                SensorState::Running => {}
                SensorState::Waiting(aliases) => waiting.extend_from_slice(aliases),
                SensorState::Failed(reason) if has_several => {
                    return SensorState::Failed(of_statement(described, reason));
                }
                other => return other.clone(),
            }
        }
        match waiting.is_empty() {
            true => SensorState::Running,
            false => SensorState::Waiting(waiting),
        }
    }

    /// Takes the events of the statement at `index`.
    fn take_events(&mut self, index: usize) {
        while let Some(Output::Event(event)) = self.statements[index].machine.poll_output() {
            match event {
                SensorEvent::Output(element) => self.pass(index, element),
                SensorEvent::DeadLetter { .. } => self.events.push_back(event),
                SensorEvent::EvaluationFailed { reason } => {
                    let reason = match self.statements.len() {
                        1 => reason,
                        _ => of_statement(&self.descriptor.statements[index], &reason),
                    };
                    self.events
                        .push_back(SensorEvent::EvaluationFailed { reason });
                }
                SensorEvent::Running
                | SensorEvent::Waiting { .. }
                | SensorEvent::Failed { .. }
                | SensorEvent::Stopped => self.update_state(),
            }
        }
    }

    /// Reports the common state, if it has changed.
    fn update_state(&mut self) {
        let state = self.common_state();
        if self.state == state {
            return;
        }
        self.events.push_back(match &state {
            SensorState::Waiting(aliases) => SensorEvent::Waiting {
                aliases: aliases.clone(),
            },
            SensorState::Running => SensorEvent::Running,
            SensorState::Failed(reason) => SensorEvent::Failed {
                reason: reason.clone(),
            },
            SensorState::Stopped => SensorEvent::Stopped,
        });
        self.state = state;
    }

    /// Passes a result of the statement at `index` on, or drops it.
    fn pass(&mut self, index: usize, mut element: StreamElement) {
        let count = self.descriptor.statements[index].count;
        let passed = self.statements[index].passed;
        if count.is_some_and(|count| passed >= count.get()) {
            self.counters.beyond_count += 1;
            return;
        }
        if !self.is_wanted(&element) {
            return;
        }
        self.statements[index].passed += 1;
        self.counters.outputs += 1;
        if self.statements.len() > 1 {
            element.origin = None;
        }
        self.events.push_back(SensorEvent::Output(element));
    }

    /// Whether the output takes an element; otherwise it is counted.
    fn is_wanted(&mut self, element: &StreamElement) -> bool {
        let output = &self.descriptor.output;
        let (time, counters) = (element.source_time, &mut self.counters);
        if output.drops_nulls && element.values.contains(&Value::Null) {
            counters.nulls += 1;
            return false;
        }
        if is_too_soon(output.rate, self.last, time) {
            counters.too_soon += 1;
            return false;
        }
        if output.unique_times {
            let last = self.last_of_key.get(&element.key);
            if last.is_some_and(|last| time <= *last) {
                counters.repeated_times += 1;
                return false;
            }
            self.remember(element);
        }
        self.last = Some(time);
        true
    }
}

impl Machine for VirtualSensor {
    type Receive = SensorInput;
    type Command = SensorCommand;
    type Transmit = std::convert::Infallible;
    type Event = SensorEvent;

    fn handle_input(&mut self, now: Instant, input: Input<SensorInput, SensorCommand>) {
        if self.state == SensorState::Stopped {
            return;
        }
        let last = self.statements.len().saturating_sub(1);
        let mut is_read = false;
        let is_element = matches!(input, Input::Receive(_));
        for index in 0..last {
            if let Input::Receive(received) = &input
                && !self.statements[index].machine.reads(&received.stream)
            {
                continue;
            }
            is_read = true;
            let machine = &mut self.statements[index].machine;
            machine.handle_input(now, input.clone());
            self.take_events(index);
        }
        if let Some(statement) = self.statements.get_mut(last) {
            let machine = &mut statement.machine;
            match &input {
                Input::Receive(received) if !machine.reads(&received.stream) => {}
                _ => {
                    is_read = true;
                    machine.handle_input(now, input);
                    self.take_events(last);
                }
            }
        }
        self.counters.strangers += u64::from(is_element && !is_read);
    }

    fn poll_output(&mut self) -> Option<Output<Self::Transmit, SensorEvent>> {
        self.events.pop_front().map(Output::Event)
    }

    fn deadline(&self) -> Option<Instant> {
        self.machines().filter_map(Machine::deadline).min()
    }
}

fn of_statement(statement: &Statement, reason: &str) -> String {
    let name = statement.name.as_deref().unwrap_or_default();
    format!("statement {name}: {reason}")
}

/// The later of two positions of a stream: a greater number is later in any epoch.
fn later(one: Position, other: Position) -> Position {
    match one.sequence >= other.sequence {
        true => one,
        false => other,
    }
}
