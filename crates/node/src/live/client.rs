//! One client of live data.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use chappe_log::Error;
use chappe_stream::{Epoch, Position, StoreError, StreamElement, StreamFollower, StreamSchema};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

use super::{After, STREAMS_MAX, Vector, Wanted};
use crate::catalogue::Entry;
use crate::http::ElementView;
use crate::notices::{Notice, NoticeKind};
use crate::shared::{App, ended};

/// How long elements are gathered before they are sent together.
const GATHER: Duration = Duration::from_millis(50);
/// Bytes of records read at once, and gathered into one event.
const EVENT_BYTES: usize = 256 << 10;
/// A silent connection is kept alive with a comment this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A connection that takes nothing for this long is given up.
const STALLED: Duration = Duration::from_secs(60);
/// Elements behind the newest from which a client counts as slow, and is told so.
const LAG: u64 = 5_000;

/// The connection's side of a client.
pub(crate) type Sender = mpsc::Sender<Result<Bytes, std::convert::Infallible>>;

/// Sends live data until the connection closes, stalls, or the node ends.
pub(crate) async fn run(app: App, wanted: Wanted, after: Option<After>, sender: Sender) {
    let client = Client {
        notices: app.notices.watch(),
        cursors: BTreeMap::new(),
        last: String::new(),
        gathered: Vec::new(),
        gathered_bytes: 0,
        full: false,
        app,
        wanted,
        sender,
    };
    client.app.metrics.live_clients.inc();
    let gauge = client.app.metrics.live_clients.clone();
    // An error only says that the client has gone.
    let _ = client.serve(after).await;
    gauge.dec();
}

/// The client's connection is closed or stalled.
struct Gone;

struct Client {
    app: App,
    wanted: Wanted,
    sender: Sender,
    notices: broadcast::Receiver<Notice>,
    cursors: BTreeMap<String, Cursor>,
    /// The stream that was read last.
    last: String,
    gathered: Vec<Gathered>,
    gathered_bytes: usize,
    full: bool,
}

/// Elements of one stream that are to be sent, and the schema that they were read with: the stream may
/// have another one by then.
struct Gathered {
    entry: Arc<Entry>,
    schema: Arc<StreamSchema>,
    elements: Vec<StreamElement>,
}

/// A client's place in one stream.
struct Cursor {
    entry: Arc<Entry>,
    follower: StreamFollower,
    /// The schema of the newest elements, and its version.
    schema: (Arc<StreamSchema>, u32),
    position: Position,
    slow: bool,
}

/// What woke a client.
enum Woken {
    Records(String, Result<Vec<StreamElement>, StoreError>),
    Streams,
    Notice(Result<Notice, RecvError>),
    Quiet,
    Draining,
}

impl Client {
    async fn serve(mut self, after: Option<After>) -> Result<(), Gone> {
        let mut streams = self.app.catalogue.changes();
        let mut drain = self.app.drain.clone();
        streams.borrow_and_update();
        self.begin(after).await?;
        loop {
            let woken = tokio::select! {
                biased;
                () = ended(&mut drain) => Woken::Draining,
                _ = self.sender.closed() => return Err(Gone),
                _ = streams.changed() => Woken::Streams,
                notice = self.notices.recv() => Woken::Notice(notice),
                (name, result) = next_records(&mut self.cursors, &mut self.last) => Woken::Records(name, result),
                () = tokio::time::sleep(KEEP_ALIVE) => Woken::Quiet,
            };
            match woken {
                Woken::Draining => return self.send(": the node ends\n\n".into()).await,
                Woken::Quiet => self.send(": keep-alive\n\n".into()).await?,
                Woken::Streams => self.join().await?,
                Woken::Notice(notice) => self.notice(notice).await?,
                Woken::Records(name, result) => {
                    self.take(&name, result).await?;
                    self.gather().await?;
                    self.flush().await?;
                }
            }
        }
    }

    /// Sets the cursors: behind the elements that the vector names, else at the newest. A stream
    /// that a complete vector does not name has come since, and begins with its first element.
    async fn begin(&mut self, after: Option<After>) -> Result<(), Gone> {
        for entry in self.app.catalogue.entries() {
            if !self.wanted.takes(&entry.name) {
                continue;
            }
            let next = match &after {
                None => Ok(entry.log.log().last() + 1),
                Some(after) => match after.vector.0.get(&entry.name) {
                    Some(have) if have.sequence == 0 => Ok(0),
                    Some(have) => entry.log.resume(*have),
                    None if after.complete => Ok(0),
                    None => Ok(entry.log.log().last() + 1),
                },
            };
            let next = match next {
                Ok(next) => next,
                Err(rollback) => {
                    self.rollback(&entry, &rollback).await?;
                    rollback.next
                }
            };
            self.follow(entry, next).await?;
        }
        // An empty event brings the vector to a client to which nothing happens yet.
        let text = format!(
            "retry: 1000\nevent: elements\nid: {}\ndata: {{\"elements\":[]}}\n\n",
            self.vector()
        );
        self.send(text).await
    }

    /// Adds the streams that have come.
    async fn join(&mut self) -> Result<(), Gone> {
        for entry in self.app.catalogue.entries() {
            let known = self.cursors.contains_key(&entry.name);
            if !known && self.wanted.takes(&entry.name) {
                self.follow(entry, 0).await?;
            }
        }
        Ok(())
    }

    async fn follow(&mut self, entry: Arc<Entry>, next: u64) -> Result<(), Gone> {
        if self.cursors.len() >= STREAMS_MAX {
            let text = format!("left out: a client has at most {STREAMS_MAX} streams");
            return self.tell(NoticeKind::Lag, &entry.name, text).await;
        }
        let position = Position {
            epoch: Epoch(entry.log.log().epoch()),
            sequence: next.saturating_sub(1),
        };
        let follower = entry.log.follow_within(next, EVENT_BYTES);
        let cursor = Cursor {
            schema: (
                Arc::new(follower.schema().clone()),
                follower.schema_version(),
            ),
            follower,
            position,
            slow: false,
            entry: entry.clone(),
        };
        self.cursors.insert(entry.name.clone(), cursor);
        Ok(())
    }

    /// Takes records, or what stands in their place, from a cursor.
    async fn take(
        &mut self,
        name: &str,
        result: Result<Vec<StreamElement>, StoreError>,
    ) -> Result<(), Gone> {
        let Some(cursor) = self.cursors.get_mut(name) else {
            return Ok(());
        };
        match result {
            Ok(records) => {
                if let Some(last) = records.last() {
                    cursor.position = last.position;
                }
                let last = cursor.entry.log.log().last();
                let behind = last.saturating_sub(cursor.position.sequence);
                let told = cursor.slow;
                cursor.slow = behind > if told { LAG / 4 } else { LAG };
                let slow = cursor.slow && !told;
                self.gathered_bytes += records.iter().map(StreamElement::size_bytes).sum::<usize>();
                self.full |= self.gathered_bytes > EVENT_BYTES;
                let version = cursor.follower.schema_version();
                if cursor.schema.1 != version {
                    cursor.schema = (Arc::new(cursor.follower.schema().clone()), version);
                }
                self.gathered.push(Gathered {
                    entry: cursor.entry.clone(),
                    schema: cursor.schema.0.clone(),
                    elements: records,
                });
                if slow {
                    self.app.metrics.live_lagged.inc();
                    let text = format!("{behind} elements behind; they are sent from the log");
                    self.tell(NoticeKind::Lag, name, text).await?;
                }
                Ok(())
            }
            Err(StoreError::Log(Error::Gap {
                from, next, reason, ..
            })) => {
                cursor.position.sequence = next.saturating_sub(1);
                self.flush().await?;
                let text = format!("elements {from} to {} are missing: {reason}", next - 1);
                self.tell(NoticeKind::Lag, name, text).await
            }
            Err(StoreError::Log(Error::Rollback(rollback))) => {
                let entry = cursor.entry.clone();
                self.flush().await?;
                self.rollback(&entry, &rollback).await?;
                self.cursors.remove(name);
                self.follow(entry, rollback.next).await
            }
            Err(error) => {
                self.cursors.remove(name);
                self.tell(NoticeKind::Lag, name, format!("cannot be read: {error}"))
                    .await
            }
        }
    }

    /// Waits a little for more, so that one event carries what comes together.
    async fn gather(&mut self) -> Result<(), Gone> {
        let until = Instant::now() + GATHER;
        while !self.full {
            let (name, result) = tokio::select! {
                next = next_records(&mut self.cursors, &mut self.last) => next,
                () = sleep_until(until) => return Ok(()),
            };
            self.take(&name, result).await?;
        }
        Ok(())
    }

    /// Sends what was gathered.
    async fn flush(&mut self) -> Result<(), Gone> {
        let gathered = std::mem::take(&mut self.gathered);
        (self.gathered_bytes, self.full) = (0, false);
        if gathered.is_empty() {
            return Ok(());
        }
        let mut data = String::from("event: elements\nid: ");
        let _ = write!(data, "{}\ndata: {{\"elements\":[", self.vector());
        let mut count = 0;
        for gathered in &gathered {
            for element in &gathered.elements {
                let view = ElementView {
                    stream: Some(&gathered.entry.name),
                    element,
                    schema: &gathered.schema,
                };
                if let Ok(json) = serde_json::to_string(&view) {
                    data.push_str(if count == 0 { "" } else { "," });
                    data.push_str(&json);
                    count += 1;
                }
            }
        }
        data.push_str("]}\n\n");
        self.app.metrics.live_elements.inc_by(count);
        self.send(data).await
    }

    async fn rollback(
        &mut self,
        entry: &Entry,
        rollback: &chappe_log::Rollback,
    ) -> Result<(), Gone> {
        let position = |epoch, sequence| Position {
            epoch: Epoch(epoch),
            sequence,
        };
        let data = json!({
            "stream": entry.name,
            "have": position(rollback.have.epoch, rollback.have.sequence).to_string(),
            "want": position(entry.log.log().epoch(), rollback.next).to_string(),
        });
        self.send(format!("event: rollback\ndata: {data}\n\n"))
            .await
    }

    async fn notice(&mut self, notice: Result<Notice, RecvError>) -> Result<(), Gone> {
        match notice {
            Ok(notice) => self.send_notice(&notice).await,
            Err(RecvError::Lagged(missed)) => {
                self.tell(NoticeKind::Lag, "", format!("{missed} notices missed"))
                    .await
            }
            Err(RecvError::Closed) => Err(Gone),
        }
    }

    /// Tells this client alone.
    async fn tell(&mut self, kind: NoticeKind, subject: &str, text: String) -> Result<(), Gone> {
        let notice = Notice::now(kind, subject, text);
        self.send_notice(&notice).await
    }

    async fn send_notice(&mut self, notice: &Notice) -> Result<(), Gone> {
        let data = serde_json::to_string(notice).unwrap_or_default();
        self.send(format!("event: notice\ndata: {data}\n\n")).await
    }

    async fn send(&mut self, text: String) -> Result<(), Gone> {
        match timeout(STALLED, self.sender.send(Ok(text.into()))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }

    /// Where the client stands, gathered records included.
    fn vector(&self) -> Vector {
        let positions = self.cursors.iter();
        Vector(
            positions
                .map(|(name, cursor)| (name.clone(), cursor.position))
                .collect(),
        )
    }
}

/// The records that come next in any stream; the search begins behind the stream that was `last`,
/// so that none starves.
async fn next_records(
    cursors: &mut BTreeMap<String, Cursor>,
    last: &mut String,
) -> (String, Result<Vec<StreamElement>, StoreError>) {
    poll_fn(|context: &mut Context<'_>| {
        for round in [true, false] {
            for (name, cursor) in cursors.iter_mut() {
                if (*name > *last) == round
                    && let Poll::Ready(result) = cursor.follower.poll_next(context)
                {
                    name.clone_into(last);
                    return Poll::Ready((name.clone(), result));
                }
            }
        }
        Poll::Pending
    })
    .await
}
