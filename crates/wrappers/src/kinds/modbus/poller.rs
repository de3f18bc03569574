//! Polls at the periods of a file, and writes between two polls.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_stream::{Quality, StreamElement, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::bus::{Bus, Failure};
use super::commands::Write;
use super::map::{Map, Poll};
use super::plan::{Merge, Span, divided};
use crate::clock::now;
use crate::{Batch, Condition, Lost, Notes, Undecodable};

/// Exceptions that a smaller request may not have: an address, or a number of registers, that the device does not know.
const DIVISIBLE: [u8; 2] = [2, 3];
/// Most faults that a wrapper's reason names; reason: people read it.
const SHOWN_FAULTS: usize = 3;

/// A write that was asked for.
pub(super) struct Order {
    pub(super) write: Write,
    pub(super) reply: oneshot::Sender<Result<(), Failure>>,
}

/// The task that has the connection.
pub(super) struct Poller {
    bus: Bus,
    merge: Merge,
    polls: Vec<Poll>,
    /// When each poll is due.
    due: Vec<Instant>,
    /// What is wrong with each poll.
    faults: Vec<Option<String>>,
    condition: Condition,
    notes: Notes,
}

/// What one poll gave.
#[derive(Debug, Default)]
struct Answers {
    read: Vec<(Span, Vec<u16>)>,
    refused: Vec<(Span, Failure)>,
}

impl Answers {
    /// The entries of a span.
    fn of(&self, span: Span) -> Option<&[u16]> {
        let (read, words) = self.read.iter().find(|(read, _)| read.covers(span))?;
        let start = usize::from(span.address - read.address);
        words.get(start..start + usize::from(span.count))
    }
}

impl Poller {
    pub(super) fn new(map: Map, condition: Condition, notes: Notes) -> Self {
        let bus = Bus::new(map.line, map.timeout);
        Self {
            bus,
            merge: map.merge,
            due: vec![Instant::now(); map.polls.len()],
            faults: vec![None; map.polls.len()],
            polls: map.polls,
            condition,
            notes,
        }
    }

    /// Polls until the wrapper is gone. Nothing is polled while a batch waits.
    pub(super) async fn run(
        mut self,
        batches: mpsc::Sender<Batch>,
        mut orders: mpsc::Receiver<Order>,
    ) {
        let mut waiting: Option<Batch> = None;
        loop {
            let next = (0..self.due.len()).min_by_key(|index| self.due[*index]);
            let Some(next) = next else {
                return;
            };
            let due = self.due[next];
            let note = self.notes.due();
            tokio::select! {
                permit = batches.reserve(), if waiting.is_some() => match (permit, waiting.take()) {
                    (Ok(permit), Some(batch)) => permit.send(batch),
                    _ => return,
                },
                order = orders.recv() => match order {
                    Some(order) => self.write(order).await,
                    None => return,
                },
                () = sleep_until(note.unwrap_or(due)), if note.is_some() => self.notes.pass(),
                () = sleep_until(due), if waiting.is_none() => waiting = Some(self.poll(next).await),
            }
        }
    }

    async fn write(&mut self, order: Order) {
        let Order { write, reply } = order;
        let Write {
            unit_id,
            span,
            words,
            bit,
        } = write;
        let outcome = self.bus.write(unit_id, span, &words, bit).await;
        // A caller that is gone needs no answer.
        let _ = reply.send(outcome);
    }

    /// One poll, with the periods that passed unused before it.
    async fn poll(&mut self, index: usize) -> Batch {
        let mut batch = Batch::default();
        let passed = self.advance(index);
        self.lose(index, "overrun", passed, &mut batch);
        let begun = now();
        match self.read(index).await {
            Err((span, failure)) => {
                self.lose(index, failure.reason(), 1, &mut batch);
                let fault = match &failure {
                    Failure::Unreachable(text) => text.clone(),
                    _ => self.named(index, span, &failure),
                };
                self.fault(index, Some(fault));
            }
            Ok(answers) => {
                let refused = answers.refused.first();
                let fault = refused.map(|(span, failure)| self.named(index, *span, failure));
                match answers.read.is_empty() {
                    true => self.lose(index, "exception", 1, &mut batch),
                    false => self.element(index, begun, &answers, &mut batch),
                }
                self.fault(index, fault);
            }
        }
        batch
    }

    /// Moves the time of the next poll behind the present one; returns how many periods passed without a poll.
    fn advance(&mut self, index: usize) -> u64 {
        let (due, period) = (self.due[index], self.polls[index].period);
        let (passed, next) = next_due(due, period, Instant::now());
        self.due[index] = next;
        passed
    }

    fn lose(&self, index: usize, reason: &'static str, messages: u64, batch: &mut Batch) {
        if messages > 0 {
            let stream = Some(self.polls[index].stream.to_string());
            batch.lost.push(Lost {
                stream,
                reason,
                messages,
            });
        }
    }

    /// Reads the registers of a poll. A request that the device refuses is divided, until the registers that it does not have
    /// are apart; they are asked for again each time.
    async fn read(&mut self, index: usize) -> Result<Answers, (Span, Failure)> {
        let poll = &self.polls[index];
        let unit_id = poll.unit_id;
        let mut waiting: VecDeque<Span> = poll.reads.iter().copied().collect();
        let spans: Vec<Span> = poll.registers.iter().map(|it| it.span).collect();
        let (mut answers, mut reads) = (Answers::default(), Vec::new());
        while let Some(span) = waiting.pop_front() {
            match self.bus.read(unit_id, span).await {
                Ok(words) => answers.read.push((span, words)),
                Err(Failure::Exception(code)) => {
                    let parts = divided(span, &spans, self.merge);
                    if let Some(parts) = parts.filter(|_| DIVISIBLE.contains(&code)) {
                        waiting.extend(parts);
                        continue;
                    }
                    answers.refused.push((span, Failure::Exception(code)));
                }
                Err(failure) => return Err((span, failure)),
            }
            reads.push(span);
        }
        reads.sort_unstable();
        self.polls[index].reads = reads;
        Ok(answers)
    }

    fn element(
        &self,
        index: usize,
        begun: chappe_stream::Timestamp,
        answers: &Answers,
        batch: &mut Batch,
    ) {
        let poll = &self.polls[index];
        let mut values = Vec::new();
        for register in &poll.registers {
            let words = answers.of(register.span).unwrap_or_default();
            if words.is_empty() {
                values.push(Value::Null);
                continue;
            }
            values.push(register.layout.decode(words).unwrap_or_else(|reason| {
                let (name, span) = (&register.name, register.span);
                batch.undecodable.push(Undecodable {
                    stream: Some(poll.stream.to_string()),
                    reason: format!("{name:?} in {span}: {reason}; the other fields are stored"),
                    message: words.iter().flat_map(|word| word.to_be_bytes()).collect(),
                    // Registers alone are no message of a format.
                    is_cut: true,
                });
                Value::Null
            }));
        }
        let element = StreamElement {
            position: Default::default(),
            source_time: begun,
            receive_time: now(),
            key: poll.key.clone(),
            values,
            quality: Quality::Good,
            origin: None,
        };
        batch.push(&poll.stream, &poll.definition, element);
    }

    /// A failure with the fields that it concerns.
    fn named(&self, index: usize, span: Span, failure: &Failure) -> String {
        let poll = &self.polls[index];
        let fields = poll.registers.iter().filter(|it| span.covers(it.span));
        let names: Vec<&str> = fields.map(|it| &*it.name).take(SHOWN_FAULTS).collect();
        let (unit_id, names) = (poll.unit_id, names.join(", "));
        format!(
            "{}: unit {unit_id}, {span} ({names}): {failure}",
            poll.stream
        )
    }

    /// Shows what is wrong with a poll, and passes on what has changed.
    fn fault(&mut self, index: usize, fault: Option<String>) {
        if self.faults[index] != fault {
            let note = fault.clone();
            let stream = &self.polls[index].stream;
            self.notes
                .add(note.unwrap_or_else(|| format!("{stream}: all registers answer again")));
            self.faults[index] = fault;
        }
        let mut shown: Vec<&String> = self.faults.iter().flatten().collect();
        shown.dedup();
        let hidden = shown.len().saturating_sub(SHOWN_FAULTS);
        let named: Vec<&str> = shown
            .iter()
            .take(SHOWN_FAULTS)
            .map(|it| it.as_str())
            .collect();
        let text = named.join("; ");
        match (shown.is_empty(), hidden) {
            (true, _) => self.condition.runs(),
            (false, 0) => self.condition.waits(text),
            (false, _) => self.condition.waits(format!("{text}; and {hidden} more")),
        }
    }
}

/// How many periods passed unused since a poll was due, and when the next one is.
fn next_due(due: Instant, period: Duration, now: Instant) -> (u64, Instant) {
    let late = now.saturating_duration_since(due).as_nanos();
    let passed = late / period.as_nanos().max(1);
    // A period has at most a day, so that the sum stays far below the limits of an instant.
    let periods = u32::try_from(passed + 1).unwrap_or(u32::MAX);
    (
        u64::try_from(passed).unwrap_or(u64::MAX),
        due + period * periods,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn periods_that_passed_are_counted_and_the_rhythm_stays() {
        let (due, period) = (Instant::now(), Duration::from_millis(100));
        for (late_ms, passed, next_ms) in
            [(0, 0, 100), (99, 0, 100), (100, 1, 200), (950, 9, 1_000)]
        {
            let now = due + Duration::from_millis(late_ms);
            let expected = (passed, due + Duration::from_millis(next_ms));
            assert_eq!(next_due(due, period, now), expected);
        }
    }
}
