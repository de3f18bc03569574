//! The evaluation of a running sensor's statement, on this thread or another one, and its results.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use chappe_machine::{Input, Output, drain};
use chappe_stream::{SensorCommand, SensorEvent, VirtualSensor};
use chappe_transport::{Clock, Hop};

use super::running::{Running, SensorMachineInput, fail};
use crate::catalogue::Entry;
use crate::sensors::dead_letters;
use crate::sensors::interrupt::Interrupting;
use crate::sensors::table::SensorState;

/// Time for which a sensor may occupy the serving thread before the rest of a batch moves to another
/// thread; reason: a tenth of the delay that a reader of live data notices.
const INLINE_MAX: Duration = Duration::from_millis(2);

/// Slow evaluations in a row after which all evaluations move to another thread; reason: a single one
/// may be slow because the thread waited for a processor.
const SLOW_IN_A_ROW_MAX: u32 = 4;

/// Reads the newest elements of the output, after which a new machine continues.
pub(super) async fn continued(mut machine: VirtualSensor, output: &Entry) -> VirtualSensor {
    let needed = machine.outputs_needed();
    if needed > 0 {
        let log = output.log.clone();
        let read = tokio::task::spawn_blocking(move || log.newest(needed)).await;
        // Without them, rates and unique times start again.
        if let Ok(Ok(outputs)) = read {
            machine.continue_after(&outputs);
        }
    }
    machine
}

impl Running {
    /// Runs the machine, on this thread if that is cheap, and stores its outputs.
    pub(super) async fn step(&mut self, inputs: Vec<SensorMachineInput>) {
        let mut events = Vec::new();
        let mut inputs = VecDeque::from(inputs);
        if let Some(machine) = &mut self.machine
            && machine.is_compiled()
            && self.slow_evaluations < SLOW_IN_A_ROW_MAX
        {
            let (now, started) = (Clock::process().now(), Instant::now());
            let mut before = Duration::ZERO;
            // Binding recompiles the statement, which is expensive.
            while inputs.front().is_some_and(|input| !is_command(input))
                && let Some(input) = inputs.pop_front()
            {
                evaluate(machine, now, input, &mut events);
                let elapsed = started.elapsed();
                let is_slow = elapsed - before > INLINE_MAX;
                before = elapsed;
                self.slow_evaluations = if is_slow {
                    self.slow_evaluations + 1
                } else {
                    0
                };
                if elapsed > INLINE_MAX {
                    break;
                }
            }
        }
        if !inputs.is_empty() {
            self.compute(inputs, &mut events).await;
        }
        self.report_dropped();
        self.forget_failure(&events);
        self.handle_events(events).await;
    }

    /// No longer shows a failed evaluation once a later one has succeeded. Of several statements another one may have
    /// succeeded, so their failure is shown until the sensor is bound again.
    fn forget_failure(&mut self, events: &[SensorEvent]) {
        let Some(machine) = &self.machine else {
            return;
        };
        let counters = machine.counters();
        let evaluated = counters.evaluations.saturating_sub(counters.failures);
        let is_failure =
            |event: &SensorEvent| matches!(event, SensorEvent::EvaluationFailed { .. });
        if events.iter().any(is_failure) {
            self.failed_after = Some(evaluated);
        }
        let has_succeeded = self.failed_after.is_some_and(|before| evaluated > before);
        if !has_succeeded || self.descriptor.statements.len() > 1 {
            return;
        }
        self.failed_after = None;
        self.app.sensors.update(&self.name, |sensor| {
            if sensor.state == SensorState::Running && sensor.error != sensor.refused {
                sensor.error = sensor.refused.clone();
            }
        });
    }

    /// Reports the elements that the machine did not use.
    fn report_dropped(&mut self) {
        let Some(machine) = &self.machine else {
            return;
        };
        let sources = self.descriptor.sources.iter();
        let aliases = sources.map(|source| source.alias.as_str());
        for one in self.dropped.take_new(machine, aliases) {
            let of_source = one
                .alias
                .map_or(String::new(), |alias| format!("{alias}: "));
            let detail = format!("{of_source}{} elements most recently", one.count);
            let (hop, name) = (Hop::Element, &self.name);
            let drops = &self.app.observability.drops;
            drops.record_times(one.count, hop, one.reason, name, detail, None);
            self.app.sensors.update(name, |sensor| {
                *sensor.dropped.entry(one.reason.to_owned()).or_default() += one.count;
            });
        }
    }

    /// Runs the machine on another thread.
    async fn compute(
        &mut self,
        inputs: VecDeque<SensorMachineInput>,
        events: &mut Vec<SensorEvent>,
    ) {
        let Some(mut machine) = self.machine.take() else {
            return;
        };
        if inputs.iter().any(is_command) {
            self.slow_evaluations = 0;
        }
        // If the sensor ends, nobody waits for this.
        let interrupting = Interrupting::default();
        let computation = interrupting.computation();
        let computed = tokio::task::spawn_blocking(move || {
            let mut events = Vec::new();
            for input in inputs {
                if !computation.begin(&machine) {
                    break;
                }
                evaluate(&mut machine, Clock::process().now(), input, &mut events);
            }
            computation.end();
            (machine, events)
        });
        let computed = computed.await;
        drop(interrupting);
        match computed {
            Ok((machine, computed)) => {
                self.show_plan(&machine);
                self.machine = Some(machine);
                events.extend(computed);
            }
            Err(_) => fail(&self.app, &self.name, "the computation failed".to_owned()),
        }
    }

    /// Publishes how the statement is evaluated.
    fn show_plan(&self, machine: &VirtualSensor) {
        let plan = machine.plan().map(ToString::to_string);
        self.app.sensors.update(&self.name, |sensor| {
            if sensor.plan != plan {
                sensor.plan = plan;
            }
        });
    }

    async fn handle_events(&mut self, events: Vec<SensorEvent>) {
        let (mut outputs, mut letters) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                SensorEvent::Output(element) => outputs.push(element),
                SensorEvent::DeadLetter {
                    alias,
                    reason,
                    input,
                } => {
                    let schema = self.bound_schema(&input.stream);
                    letters.push(dead_letters::letter(alias, reason, &input, schema));
                }
                SensorEvent::Running => self.set_state(SensorState::Running, None),
                SensorEvent::Waiting { .. } => self.set_state(SensorState::Waiting, None),
                SensorEvent::Failed { reason } => self.set_state(SensorState::Failed, Some(reason)),
                SensorEvent::EvaluationFailed { reason } => {
                    self.drop("evaluation failed", reason.clone());
                    let state = SensorState::Running;
                    self.set_state(state, Some(format!("the last evaluation failed: {reason}")));
                }
                SensorEvent::Stopped => {}
            }
        }
        self.store_letters(letters).await;
        if !outputs.is_empty() {
            self.offer(outputs).await;
        }
    }
}

/// Whether an input may take long, as preparing the statement does.
fn is_command(input: &SensorMachineInput) -> bool {
    match input {
        Input::Command(command) => !matches!(command, SensorCommand::Clock(_)),
        _ => false,
    }
}

fn evaluate(
    machine: &mut VirtualSensor,
    now: chappe_machine::Instant,
    input: SensorMachineInput,
    events: &mut Vec<SensorEvent>,
) {
    drain(machine, now, input, |output| match output {
        Output::Event(event) => events.push(event),
        Output::Transmit(never) => match never {},
    });
}
