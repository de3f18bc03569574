//! One request that writes: from its body to its answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use axum::response::Response;
use chappe_log::Appended;
use chappe_stream::lines::{ElementReader, Format, LINE_BYTES_MAX, Line};
use chappe_stream::{Position, StoreError, StreamElement};
use chappe_transport::Hop;
use tokio::time::timeout;

use super::super::parts;
use super::super::problem::Problem;
use super::Numbering;
use super::busy::{busy, store_problem};
use super::outcome::Written;
use super::pace::Pace;
use crate::accounts::{Caller, Shares};
use crate::catalogue::Entry;
use crate::clock;
use crate::completeness::{Loss, LossKind};
use crate::permits::{Busy, Permit, WRITE_REQUEST_BYTES_MAX, WRITE_UNIT_BYTES};
use crate::shared::App;
use crate::written::Turn;

/// Bytes of text that are read at once; reason: lines of two bytes take up to 300 bytes each.
const PIECE_BYTES: usize = 4 << 10;
/// Bytes of text in one batch; with one record as long as possible, its elements fit the log's queue.
const BATCH_BYTES: usize = 64 << 10;
/// Elements in one batch.
const BATCH_ELEMENTS: usize = 1_024;
/// Batches on their way to the disk; reason: the next ones are read meanwhile.
const IN_FLIGHT_MAX: usize = 4;
/// Bytes of text and number of elements of an atomic request, which is one batch.
const ATOMIC_BYTES_MAX: usize = 512 << 10;
const ATOMIC_ELEMENTS_MAX: usize = 10_000;
/// Memory that a request may take for a batch and the pieces around it.
const REQUEST_BYTES: usize = 512 << 10;
/// Time that a batch waits for room in the log's queue; reason: the queue holds some commits, and a
/// client that gets 429 waits for a second.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request that writes.
pub(super) struct Writing {
    app: App,
    entry: Arc<Entry>,
    reader: ElementReader,
    is_atomic: bool,
    numbers: Option<Numbers>,
    /// The log's retractions before the first batch: after a batch that is refused later, none is
    /// stored.
    retractions: u64,
    batch: Vec<StreamElement>,
    /// Bytes of text since the last batch.
    batch_bytes: usize,
    in_flight: VecDeque<Appended>,
    outcome: Written,
    memory: Permit,
    /// Memory for the record that is not complete yet, beyond that of the request.
    line_memory: Option<Permit>,
    caller: Caller,
    /// Bytes of text that the account's share does not count yet.
    uncounted_bytes: u64,
}

struct Numbers {
    turn: Turn,
    first: u64,
    /// The number of the last element in a batch.
    last: u64,
    /// The number of the last element in the log's queue.
    appended: u64,
}

impl Writing {
    /// Begins a request; waits for the turn of its producer.
    pub(super) async fn begin(
        app: &App,
        caller: Caller,
        entry: Arc<Entry>,
        format: Format,
        is_atomic: bool,
        numbering: Option<Numbering>,
    ) -> Result<Self, Problem> {
        let bytes = match is_atomic {
            true => WRITE_REQUEST_BYTES_MAX,
            false => REQUEST_BYTES,
        };
        let memory = memory(app, &caller, bytes)?;
        let numbers = match numbering {
            None => None,
            Some(numbering) => {
                let turn = app.producers.turn(&entry, &numbering.producer);
                let turn = turn.await.map_err(|error| store_problem(&error))?;
                Some(Numbers {
                    last: turn.last(),
                    appended: turn.last(),
                    turn,
                    first: numbering.first,
                })
            }
        };
        let future_s = i64::try_from(app.config.limits.future_s).unwrap_or(i64::MAX);
        let future_ns = future_s.saturating_mul(1_000_000_000);
        let schema = Arc::new(entry.log.schema());
        let level = entry.log.log().level().as_str();
        Ok(Self {
            reader: ElementReader::new(format, schema, future_ns),
            is_atomic,
            numbers,
            retractions: app.storage.log.retractions(),
            batch: Vec::new(),
            batch_bytes: 0,
            in_flight: VecDeque::new(),
            outcome: Written::new(&entry.current_name(), level),
            memory,
            line_memory: None,
            caller,
            uncounted_bytes: 0,
            app: app.clone(),
            entry,
        })
    }

    /// Reads the body, stores its elements, and answers when each is stored or refused.
    pub(super) async fn run(mut self, body: Body) -> Response {
        let read = self.read(body).await;
        let ended = match read {
            Ok(()) if self.is_atomic && self.outcome.has_refusals() => Ok(()),
            Ok(()) => self.append().await,
            Err(problem) => Err(problem),
        };
        let settled = self.settle(0).await;
        if let (refused @ 1.., Some(first)) = self.outcome.refused() {
            let drops = &self.app.observability.drops;
            let stream = &self.entry.name;
            drops.record_times(refused, Hop::Element, "refused line", stream, first, None);
            let loss = Loss::now(stream, LossKind::Refused, "refused_line", refused);
            self.app.observability.ledger.note(loss);
        }
        match ended.and(settled) {
            Ok(()) => {
                if let Some(numbers) = self.numbers {
                    numbers.turn.finish(numbers.appended);
                }
                drop(self.memory);
                self.outcome.answer()
            }
            // How far the producer came is left to the log.
            Err(problem) => self.outcome.interrupted(problem),
        }
    }

    async fn read(&mut self, mut body: Body) -> Result<(), Problem> {
        let most = self.app.config.limits.write_bytes as usize;
        let mut pace = Pace::new(&self.app);
        let mut total = 0;
        let mut lines = Vec::new();
        loop {
            let next =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
            let frame = match pace.wait(next).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    let detail = format!("the body cannot be read: {error}");
                    return Err(Problem::bad_request(detail));
                }
                Err(late) => return Err(late),
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            total += bytes.len();
            pace.arrived(bytes.len());
            if total > most {
                let detail = format!("the body is longer than {most} bytes");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
                    .hint("send it in parts, or raise limits.write_bytes"));
            }
            for piece in bytes.chunks(PIECE_BYTES) {
                let read = self.reader.push(piece, clock::now(), &mut lines);
                self.take(&mut lines, piece.len()).await?;
                if let Err(broken) = read {
                    self.outcome.refuse(broken.line, broken.reason);
                    return Ok(());
                }
            }
        }
        match self.reader.finish(clock::now(), &mut lines) {
            Ok(()) => self.outcome.complete(),
            Err(broken) => self.outcome.refuse(broken.line, broken.reason),
        }
        self.take(&mut lines, 0).await
    }

    /// Takes the lines of the next piece of so many bytes.
    async fn take(&mut self, lines: &mut Vec<Line>, bytes: usize) -> Result<(), Problem> {
        self.hold_line()?;
        for line in lines.drain(..) {
            match line.element {
                Err(error) => self.outcome.refuse(line.line, error.to_string()),
                Ok(element) => self.number(element, line.index),
            }
        }
        self.batch_bytes += bytes;
        self.uncounted_bytes += bytes as u64;
        if self.is_atomic {
            if self.batch.len() > ATOMIC_ELEMENTS_MAX || self.batch_bytes > ATOMIC_BYTES_MAX {
                let detail = format!(
                    "an atomic body has at most {ATOMIC_ELEMENTS_MAX} elements and \
                     {ATOMIC_BYTES_MAX} bytes"
                );
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
                    .hint("send it in parts, or without atomic"));
            }
        } else if self.batch.len() >= BATCH_ELEMENTS || self.batch_bytes >= BATCH_BYTES {
            self.append().await?;
        }
        // Other requests have their turn between two pieces.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Takes the memory that the record in the making needs.
    fn hold_line(&mut self) -> Result<(), Problem> {
        if self.reader.held_bytes() <= WRITE_UNIT_BYTES {
            self.line_memory = None;
        } else if self.line_memory.is_none() {
            self.line_memory = Some(memory(&self.app, &self.caller, LINE_BYTES_MAX)?);
        }
        Ok(())
    }

    /// Puts an element into the batch, unless its producer's number is stored already.
    fn number(&mut self, mut element: StreamElement, index: u64) {
        if let Some(numbers) = &mut self.numbers {
            let sequence = numbers.first.saturating_add(index);
            if sequence <= numbers.last {
                return self.outcome.count_duplicate();
            }
            numbers.last = sequence;
            element.origin = Some(Position {
                epoch: numbers.turn.producer(),
                sequence,
            });
        }
        self.batch.push(element);
    }

    /// Queues the batch.
    async fn append(&mut self) -> Result<(), Problem> {
        self.batch_bytes = 0;
        if self.batch.is_empty() {
            return Ok(());
        }
        let elements = std::mem::take(&mut self.batch);
        self.count();
        for chunk in elements.chunks(match self.is_atomic {
            true => usize::MAX,
            false => BATCH_ELEMENTS,
        }) {
            let append = self.entry.append_after(self.retractions, chunk);
            match timeout(QUEUE_TIMEOUT, append).await {
                Ok(Ok(appended)) => self.in_flight.push_back(appended),
                Ok(Err(error)) => return Err(store_problem(&error)),
                Err(_) if self.app.storage.log.health() == chappe_log::Health::Full => {
                    let detail = "the node's disk is full";
                    return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail));
                }
                Err(_) => return Err(busy("the log's queue is full")),
            }
            self.settle(IN_FLIGHT_MAX).await?;
        }
        if let Some(numbers) = &mut self.numbers {
            numbers.appended = numbers.last;
        }
        Ok(())
    }

    /// Counts the bytes for the account's share.
    fn count(&mut self) {
        let bytes = std::mem::take(&mut self.uncounted_bytes);
        let payer = Shares::payer(&self.caller);
        if self.app.shares.count(&self.entry, &payer, bytes) {
            let app = self.app.clone();
            // The request does not wait: after a crash the stream counts for the account before.
            tokio::task::spawn_blocking(move || app.shares.save());
        }
    }

    /// Waits until at most so many batches are on their way.
    async fn settle(&mut self, most: usize) -> Result<(), Problem> {
        let mut outcome = Ok(());
        while self.in_flight.len() > most {
            let Some(mut appended) = self.in_flight.pop_front() else {
                break;
            };
            match (&mut appended).await {
                Ok(()) => self.outcome.store(&appended),
                Err(error) => {
                    outcome = outcome.and(Err(store_problem(&StoreError::Log(error))));
                }
            }
        }
        outcome
    }
}

/// Memory of requests that write.
///
/// # Errors
/// The account has its share of it, or all is in use.
pub(in crate::http) fn memory(app: &App, caller: &Caller, bytes: usize) -> Result<Permit, Problem> {
    let tenant = app.shares.tenant(&app.accounts, caller);
    let taken = app.permits.write_memory(bytes, tenant.as_ref());
    taken.map_err(|refusal| match refusal {
        Busy::Node => busy("requests that write hold as much memory as they may"),
        Busy::Account { .. } => {
            let share = "its share of the memory of requests that write";
            parts::share_problem(app, caller, share)
        }
    })
}
