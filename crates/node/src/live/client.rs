//! One client of live data.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use chappe_log::Error;
use chappe_stream::{Epoch, Position, StoreError};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};

use super::reading::{Cursors, EVENT_BYTES, Piece};
use super::{After, STREAMS_MAX, Wanted};
use crate::catalogue::Entry;
use crate::notices::{Notice, NoticeKind};
use crate::shared::App;
use crate::tasks::shutdown;

/// Time for which elements are collected into one event.
const GATHER: Duration = Duration::from_millis(50);
/// Time between comments that keep an idle connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A connection is abandoned if the client receives nothing for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The connection's side of a client.
pub(crate) type Sender = mpsc::Sender<Result<Bytes, std::convert::Infallible>>;

/// Sends live data until the connection closes, stalls, or the node shuts down.
pub(crate) async fn run(app: App, wanted: Wanted, after: Option<After>, sender: Sender) {
    let client = Client {
        notices: app.observability.notices.watch(),
        cursors: Cursors::default(),
        event_bytes: EVENT_BYTES,
        app,
        wanted,
        sender,
    };
    client.app.observability.metrics.live_clients.inc();
    let gauge = client.app.observability.metrics.live_clients.clone();
    // Fails only when the client has disconnected.
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
    cursors: Cursors,
    /// Bytes of the last event, an estimate for the next one. Large events are prepared outside the
    /// serving thread.
    event_bytes: usize,
}

/// The reason why a client's task woke up.
enum Woken {
    Elements,
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
                () = shutdown(&mut drain) => Woken::Draining,
                _ = self.sender.closed() => return Err(Gone),
                _ = streams.changed() => Woken::Streams,
                notice = self.notices.recv() => Woken::Notice(notice),
                () = self.cursors.ready() => Woken::Elements,
                () = tokio::time::sleep(KEEP_ALIVE) => Woken::Quiet,
            };
            match woken {
                Woken::Draining => return self.send(": shutting down\n\n".into()).await,
                Woken::Quiet => self.send(": keep-alive\n\n".into()).await?,
                Woken::Streams => self.follow_new_streams().await?,
                Woken::Notice(notice) => self.notice(notice).await?,
                Woken::Elements => self.deliver().await?,
            }
        }
    }

    /// Sets the cursors: after the positions of the vector, otherwise after the newest element. A
    /// stream missing from a complete vector is new and starts with its first element.
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
                    self.send_rollback(&entry, &rollback).await?;
                    rollback.next
                }
            };
            self.follow(entry, next).await?;
        }
        // An empty event gives the client its vector before the first element.
        let text = format!(
            "retry: 1000\nevent: elements\nid: {}\ndata: {{\"elements\":[]}}\n\n",
            self.cursors.vector()
        );
        self.send(text).await
    }

    /// Follows streams that are new.
    async fn follow_new_streams(&mut self) -> Result<(), Gone> {
        for entry in self.app.catalogue.entries() {
            let known = self.cursors.follows(&entry.name);
            if !known && self.wanted.takes(&entry.name) {
                self.follow(entry, 0).await?;
            }
        }
        Ok(())
    }

    async fn follow(&mut self, entry: Arc<Entry>, next: u64) -> Result<(), Gone> {
        if self.cursors.len() >= STREAMS_MAX {
            let text = format!("not included: a client has at most {STREAMS_MAX} streams");
            return self.notify(NoticeKind::Lag, &entry.name, text).await;
        }
        self.cursors.follow(entry, next);
        Ok(())
    }

    /// Sends one event of elements, and handles an interruption. Elements are read only when the
    /// connection has room, so a client that does not read occupies no thread and no memory.
    async fn deliver(&mut self) -> Result<(), Gone> {
        if self.event_bytes <= EVENT_BYTES {
            // Elements that arrive together share one event.
            sleep(GATHER).await;
        }
        if self.sender.capacity() == 0 {
            // More elements than usual may arrive during the wait.
            self.event_bytes = self.event_bytes.max(EVENT_BYTES);
            match timeout(STALL_TIMEOUT, self.sender.reserve()).await {
                Ok(Ok(_)) => {}
                _ => return Err(Gone),
            }
        }
        let mut cursors = std::mem::take(&mut self.cursors);
        let reading = move || {
            let piece = cursors.read();
            (cursors, piece)
        };
        let readers = &self.app.permits.live_readers;
        let read = readers.run_if_large(self.event_bytes, reading).await;
        let (cursors, piece) = read.map_err(|error| {
            tracing::error!(%error, "a client of live data was disconnected");
            Gone
        })?;
        self.cursors = cursors;
        self.event_bytes = piece.bytes;
        self.send_piece(piece).await
    }

    async fn send_piece(&mut self, piece: Piece) -> Result<(), Gone> {
        for (name, behind) in piece.lagging {
            self.app.observability.metrics.live_lagged.inc();
            let text = format!("lags by {behind} elements, which are sent from the log");
            self.notify(NoticeKind::Lag, &name, text).await?;
        }
        if let Some(event) = piece.event {
            self.app
                .observability
                .metrics
                .live_elements
                .inc_by(piece.elements);
            self.send(event).await?;
        }
        match piece.interruption {
            Some((name, error)) => self.handle_interruption(&name, error).await,
            None => Ok(()),
        }
    }

    /// Continues after a gap or a rollback; stops following a stream that cannot be read.
    async fn handle_interruption(&mut self, name: &str, error: StoreError) -> Result<(), Gone> {
        match error {
            StoreError::Log(Error::Gap {
                from, next, reason, ..
            }) => {
                self.cursors.skip_to(name, next);
                let text = format!("elements {from} to {} are missing: {reason}", next - 1);
                self.notify(NoticeKind::Lag, name, text).await
            }
            StoreError::Log(Error::Rollback(rollback)) => {
                let Some(entry) = self.cursors.remove(name) else {
                    return Ok(());
                };
                self.send_rollback(&entry, &rollback).await?;
                self.follow(entry, rollback.next).await
            }
            error => {
                self.cursors.remove(name);
                let is_removed = matches!(error, StoreError::Log(Error::Removed { .. }));
                let text = format!("cannot be read: {error}");
                self.notify(NoticeKind::Lag, name, text).await?;
                // A new stream of the same name may have been defined while this one was followed.
                if is_removed {
                    self.follow_new_streams().await
                } else {
                    Ok(())
                }
            }
        }
    }

    async fn send_rollback(
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
                self.notify(NoticeKind::Lag, "", format!("{missed} notices missed"))
                    .await
            }
            Err(RecvError::Closed) => Err(Gone),
        }
    }

    /// Sends a notice to this client only.
    async fn notify(&mut self, kind: NoticeKind, subject: &str, text: String) -> Result<(), Gone> {
        let notice = Notice::now(kind, subject, text);
        self.send_notice(&notice).await
    }

    async fn send_notice(&mut self, notice: &Notice) -> Result<(), Gone> {
        let data = serde_json::to_string(notice).unwrap_or_default();
        self.send(format!("event: notice\ndata: {data}\n\n")).await
    }

    async fn send(&mut self, text: String) -> Result<(), Gone> {
        match timeout(STALL_TIMEOUT, self.sender.send(Ok(text.into()))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }
}
