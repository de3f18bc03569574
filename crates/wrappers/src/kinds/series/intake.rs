//! Takes messages that clients send to the node, reads them piece by piece, and answers each after everything in it
//! is stored or refused.

use std::collections::VecDeque;

use chappe_stream::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::Tables;
use crate::{
    Batch, Condition, Form, Inbound, Mark, NodeParts, Receipt, ShareExceeded, Step, Undecodable,
    Wrapper, WrapperError,
};

/// Points of a piece; reason: with few columns each, their elements have about a quarter of a batch.
pub(crate) const POINTS_MAX: usize = 2_048;
/// Bytes of text of a piece; reason: the elements of text have at most twice its bytes.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Bytes of the elements of a piece; reason: a sample of a few bytes becomes an element with all labels and columns
/// of its series. 2,048 elements of twenty labels fit.
pub(crate) const ELEMENTS_BYTES: usize = 4 << 20;
/// Bytes of the elements of a message; reason: a small message may have millions of samples of a series with long labels,
/// and those after it wait. Senders send some thousand samples at once, which have a few megabytes.
const MESSAGE_ELEMENTS_BYTES: usize = 256 << 20;
/// Bytes of the name, and the names and values of the tags or labels, of a series; reason: each element has a copy of
/// them, and another one in its key. A label is seldom longer than 200 bytes.
pub(crate) const SERIES_BYTES_MAX: usize = 16 << 10;
/// Bytes of the series that are remembered; reason: it is the memory of one wrapper, and 65,536 series of ordinary
/// length fit.
pub(crate) const KNOWN_BYTES_MAX: usize = 64 << 20;
/// The first time that is taken, in nanoseconds; reason: the store does not find elements closer to the smallest
/// number.
const TIME_MIN: i64 = -9_223_372_036_000_000_000;
/// Bytes of points that are kept in one dead letter; reason: a person looks at them.
const SHOWN_BYTES: usize = 64 << 10;

/// A message as a whole is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Why.
    pub(crate) reason: String,
    /// Whether a smaller one might be taken.
    pub(crate) is_too_large: bool,
}

impl Malformed {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_too_large: false,
        }
    }

    pub(crate) fn too_large(most: usize) -> Self {
        Self {
            reason: format!("the body has more than {most} bytes without its compression"),
            is_too_large: true,
        }
    }
}

/// The time of a point, which is `time` times `unit_ns`.
///
/// # Errors
/// It is no time of an element.
pub(crate) fn source_time(time: i64, unit_ns: i64) -> Result<Timestamp, String> {
    let time_ns = time.checked_mul(unit_ns);
    let time_ns = time_ns.filter(|time| (TIME_MIN..i64::MAX).contains(time));
    let out = || format!("time {time} is outside the years 1678 to 2262");
    time_ns.map(Timestamp).ok_or_else(out)
}

/// The points of a piece that are not stored.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Their number.
    count: u64,
    /// Why the first one is not.
    reason: Option<String>,
    /// The first ones, one a line.
    points: Vec<u8>,
}

impl Refused {
    /// The number of points, and those that are shown.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> (u64, String) {
        let points = String::from_utf8_lossy(&self.points).into_owned();
        (self.count, points)
    }

    /// Refuses points of a text that is made only if there is room to show it.
    #[cfg(feature = "remote-write")]
    pub(crate) fn add_shown(
        &mut self,
        count: u64,
        reason: impl Into<String>,
        point: impl FnOnce() -> String,
    ) {
        let has_room = self.points.len() < SHOWN_BYTES;
        let point = has_room.then(point).unwrap_or_default();
        self.add(count, reason, &point);
    }

    /// Refuses points of this text.
    pub(crate) fn add(&mut self, count: u64, reason: impl Into<String>, point: &str) {
        self.count += count;
        self.reason.get_or_insert_with(|| reason.into());
        if self.points.len() < SHOWN_BYTES {
            let left = SHOWN_BYTES - self.points.len();
            let point = point.as_bytes();
            self.points.extend(&point[..point.len().min(left)]);
            self.points.push(b'\n');
        }
    }
}

/// A protocol whose messages become points.
pub(crate) trait Protocol: Send {
    /// A message that is being read.
    type Message: Send;

    /// Begins a message.
    ///
    /// # Errors
    /// Nothing of it can be read.
    fn begin(&mut self, body: Vec<u8>, form: Form) -> Result<Self::Message, Malformed>;

    /// Reads a piece of it: [`POINTS_MAX`] points or [`PIECE_BYTES`]. Returns true at its end.
    fn read(
        &mut self,
        message: &mut Self::Message,
        tables: &mut Tables,
        refused: &mut Refused,
    ) -> bool;
}

/// A wrapper of such a protocol.
pub(crate) struct Intake<P: Protocol> {
    protocol: P,
    tables: Tables,
    inbox: mpsc::Receiver<Inbound>,
    condition: Condition,
    reading: Option<Reading<P::Message>>,
    /// Those that wait for an answer, in the order of their messages.
    answers: VecDeque<Answer>,
    /// Batches so far.
    batches: u64,
}

struct Reading<M> {
    message: M,
    sender: crate::Sender,
    /// Bytes of its elements so far.
    elements_bytes: usize,
}

/// A sender that waits.
struct Answer {
    reply: oneshot::Sender<Result<Receipt, ShareExceeded>>,
    receipt: Receipt,
    /// The number of its first batch.
    first: u64,
    /// That of its last one, once it is read to its end.
    last: Option<u64>,
}

impl<P: Protocol> Intake<P> {
    pub(crate) fn new(
        protocol: P,
        tables: Tables,
        inbox: mpsc::Receiver<Inbound>,
        condition: Condition,
    ) -> Self {
        condition.waits("no message has arrived");
        Self {
            protocol,
            tables,
            inbox,
            condition,
            reading: None,
            answers: VecDeque::new(),
            batches: 0,
        }
    }

    /// Begins a message. `None` if it is one; otherwise the batch that says why not.
    fn begin(&mut self, inbound: Inbound) -> Option<Batch> {
        self.condition.runs();
        let Inbound {
            body,
            form,
            sender,
            reply,
        } = inbound;
        self.answers.push_back(Answer {
            reply,
            receipt: Receipt::default(),
            first: self.batches + 1,
            last: None,
        });
        let shown = body[..body.len().min(SHOWN_BYTES)].to_vec();
        match self.protocol.begin(body, form) {
            Ok(message) => {
                self.reading = Some(Reading {
                    message,
                    sender,
                    elements_bytes: 0,
                });
                None
            }
            Err(malformed) => {
                let mut batch = self.batch(sender);
                batch.undecodable.push(Undecodable {
                    stream: None,
                    reason: malformed.reason.clone(),
                    message: shown,
                    is_cut: true,
                });
                if let Some(answer) = self.answers.back_mut() {
                    answer.last = Some(self.batches);
                    answer.receipt.undecodable = 1;
                    answer.receipt.reason = Some(malformed.reason);
                    answer.receipt.is_too_large = malformed.is_too_large;
                }
                Some(batch)
            }
        }
    }

    /// The next batch, without anything in it.
    fn batch(&mut self, sender: crate::Sender) -> Batch {
        self.batches += 1;
        Batch {
            // The number within this run: a new run has nobody left to answer.
            mark: Mark::new(self.batches.to_le_bytes().to_vec()).unwrap_or_default(),
            has_volatile_mark: true,
            drops_repeats: true,
            sender: Some(sender),
            ..Batch::default()
        }
    }

    /// Reads a piece of the message.
    fn read(&mut self, mut reading: Reading<P::Message>) -> Batch {
        let mut refused = Refused::default();
        let (protocol, tables) = (&mut self.protocol, &mut self.tables);
        let mut is_whole = protocol.read(&mut reading.message, tables, &mut refused);
        reading.elements_bytes += tables.held_bytes();
        let is_too_large = !is_whole && reading.elements_bytes > MESSAGE_ELEMENTS_BYTES;
        if is_too_large {
            is_whole = true;
            let most = MESSAGE_ELEMENTS_BYTES;
            let reason =
                format!("the rest is not stored: its elements have more than {most} bytes");
            refused.add(1, reason, "");
        }
        let mut batch = self.batch(reading.sender.clone());
        self.tables.take(&mut batch);
        if let Some(answer) = self.answers.back_mut() {
            let receipt = &mut answer.receipt;
            receipt.elements += batch.elements() as u64;
            receipt.undecodable += refused.count;
            receipt.is_too_large |= is_too_large;
            if receipt.reason.is_none() {
                receipt.reason.clone_from(&refused.reason);
            }
            answer.last = is_whole.then_some(self.batches);
        }
        if let Some(reason) = refused.reason {
            let reason = match refused.count {
                1 => reason,
                count => format!("{reason}; and {} more", count - 1),
            };
            batch.undecodable.push(Undecodable {
                stream: None,
                reason,
                message: refused.points,
                is_cut: true,
            });
        }
        if !is_whole {
            self.reading = Some(reading);
        }
        batch
    }

    /// The answer to the message of a batch.
    fn answer(&mut self, mark: &Mark) -> Option<&mut Answer> {
        let number = number(mark);
        let mut answers = self.answers.iter_mut().rev();
        answers.find(|answer| answer.first <= number)
    }
}

impl<P: Protocol> Wrapper for Intake<P> {
    fn attach(&mut self, node: &NodeParts) -> Result<(), WrapperError> {
        self.tables.attach(node);
        Ok(())
    }

    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                if let Some(reading) = self.reading.take() {
                    return Ok(self.read(reading));
                }
                let none = || WrapperError::peer("only a running node receives messages");
                let inbound = self.inbox.recv().await.ok_or_else(none)?;
                if let Some(batch) = self.begin(inbound) {
                    return Ok(batch);
                }
            }
        })
    }

    fn refused(&mut self, mark: &Mark, elements: u64) {
        if let Some(Answer { receipt, .. }) = self.answer(mark) {
            receipt.elements = receipt.elements.saturating_sub(elements);
            receipt.refused += elements;
        }
    }

    fn refused_because(&mut self, mark: &Mark, elements: u64, reason: &str) {
        if let Some(Answer { receipt, .. }) = self.answer(mark) {
            receipt.reason.get_or_insert_with(|| reason.to_owned());
        }
        self.refused(mark, elements);
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        let stored = number(mark);
        let is_done = |answer: &Answer| answer.last.is_some_and(|last| last <= stored);
        while self.answers.front().is_some_and(is_done) {
            if let Some(answer) = self.answers.pop_front() {
                // The sender may have gone.
                let _ = answer.reply.send(Ok(answer.receipt));
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The number of a batch.
fn number(mark: &Mark) -> u64 {
    mark.bytes().try_into().map_or(0, u64::from_le_bytes)
}
