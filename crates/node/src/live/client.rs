//! One client of live data.

use std::collections::HashMap;
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
use super::{After, Label, STREAMS_MAX, Wanted};
use crate::accounts::{Caller, View};
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

/// Sends live data until the connection closes or stalls, the caller's account ends, or the node shuts down.
pub(crate) async fn run(
    app: App,
    caller: Caller,
    wanted: Wanted,
    after: Option<After>,
    sender: Sender,
) {
    let client = Client {
        notices: app.observability.notices.watch(),
        cursors: Cursors::default(),
        event_bytes: EVENT_BYTES,
        app,
        caller,
        wanted,
        sender,
        seen: 0,
        renames_seen: 0,
        left: HashMap::new(),
        left_out: false,
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
    caller: Caller,
    wanted: Wanted,
    sender: Sender,
    notices: broadcast::Receiver<Notice>,
    cursors: Cursors,
    /// The catalogue's newest change that was looked at.
    seen: u64,
    /// The number of renames that were looked at.
    renames_seen: u64,
    /// How far it read streams that it may not read by their present names.
    left: HashMap<String, Position>,
    /// It was notified that it has too many streams.
    left_out: bool,
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
    /// The account was revoked or has expired.
    Ended,
}

impl Client {
    async fn serve(mut self, after: Option<After>) -> Result<(), Gone> {
        let mut streams = self.app.catalogue.changes();
        let mut drain = self.app.drain.clone();
        let (app, caller) = (self.app.clone(), self.caller.clone());
        let mut ended = std::pin::pin!(app.accounts.ended(&caller));
        streams.borrow_and_update();
        self.begin(after).await?;
        loop {
            let woken = tokio::select! {
                biased;
                () = shutdown(&mut drain) => Woken::Draining,
                _ = self.sender.closed() => return Err(Gone),
                () = &mut ended => Woken::Ended,
                _ = streams.changed() => Woken::Streams,
                notice = self.notices.recv() => Woken::Notice(notice),
                () = self.cursors.ready() => Woken::Elements,
                () = tokio::time::sleep(KEEP_ALIVE) => Woken::Quiet,
            };
            match woken {
                Woken::Draining => return self.send(": shutting down\n\n".into()).await,
                Woken::Ended => return self.send(": the account has ended\n\n".into()).await,
                Woken::Quiet => self.send(": keep-alive\n\n".into()).await?,
                Woken::Streams => self.follow_new_streams().await?,
                Woken::Notice(notice) => self.notice(notice).await?,
                Woken::Elements => self.deliver().await?,
            }
        }
    }

    /// Sets the cursors: after the positions of the vector or the place in the log, else after the newest
    /// element. A stream missing from a complete vector is new and starts with its first element.
    async fn begin(&mut self, after: Option<After>) -> Result<(), Gone> {
        let place = after.as_ref().and_then(|after| after.place);
        let continuation = match place.map(|place| self.app.storage.log.continue_after(place)) {
            Some(Err(error)) => return self.fail(&error.into()),
            Some(Ok(continuation)) => Some(continuation),
            None => None,
        };
        if continuation.is_some_and(|it| !it.is_exact) {
            let text = "the log went back, or no longer has the elements after the last event: \
                        elements may be missing, and some come twice";
            self.notify(NoticeKind::Lag, "", text.to_owned()).await?;
        }
        self.renames_seen = self.app.catalogue.names().renames();
        let (seen, entries) = self.app.catalogue.defined_after(0);
        self.seen = seen;
        for entry in entries {
            let Some(label) = self.takes(&entry) else {
                continue;
            };
            let next = match &after {
                None => Ok(entry.log.log().last() + 1),
                Some(after) => match (after.vector.of(&entry), continuation) {
                    (Some(have), _) if have.sequence == 0 => Ok(0),
                    (Some(have), _) => entry.log.resume(have),
                    (None, Some(continuation)) => Ok(entry.log.log().continue_from(continuation)),
                    (None, None) if after.complete => Ok(0),
                    (None, None) => Ok(entry.log.log().last() + 1),
                },
            };
            let next = match next {
                Ok(next) => next,
                Err(rollback) => {
                    self.send_rollback(&entry, &label, &rollback).await?;
                    rollback.next
                }
            };
            self.follow(entry, label, next).await?;
        }
        // An empty event gives the client its position before the first element.
        let id = match self.cursors.id(&self.app.storage.log) {
            Ok(id) => id,
            Err(error) => return self.fail(&error),
        };
        let text = format!("retry: 1000\nevent: elements\nid: {id}\ndata: {{\"elements\":[]}}\n\n");
        self.send(text).await
    }

    /// Disconnects the client: it continues with its last id.
    fn fail(&self, error: &StoreError) -> Result<(), Gone> {
        tracing::error!(%error, "a client of live data was disconnected");
        Err(Gone)
    }

    /// Follows streams that are new, or are among the client's by their new name.
    async fn follow_new_streams(&mut self) -> Result<(), Gone> {
        self.follow_renamed_streams().await?;
        let (seen, entries) = self.app.catalogue.defined_after(self.seen);
        self.seen = seen;
        for entry in entries {
            if !self.cursors.follows(&entry.name)
                && let Some(label) = self.takes(&entry)
            {
                self.follow(entry, label, 0).await?;
            }
        }
        Ok(())
    }

    /// After renames: stops following streams that the client may no longer read by their new names, and follows
    /// those that it now may, from their rename on; one that it followed before, from where it stopped.
    async fn follow_renamed_streams(&mut self) -> Result<(), Gone> {
        let names = self.app.catalogue.names().clone();
        let renames = names.renames();
        let seen = std::mem::replace(&mut self.renames_seen, renames);
        if seen == renames {
            return Ok(());
        }
        let mut cursors = std::mem::take(&mut self.cursors);
        let left = cursors.leave(|entry| self.takes(entry).is_none());
        self.cursors = cursors;
        let room = STREAMS_MAX.saturating_sub(self.left.len());
        self.left.extend(left.into_iter().take(room));
        for entry in self.app.catalogue.entries() {
            let is_known = self.left.contains_key(&entry.name);
            let is_renamed = is_known || !entry.log.former_names().is_empty();
            if !is_renamed || self.cursors.follows(&entry.name) {
                continue;
            }
            let Some(label) = self.takes(&entry) else {
                continue;
            };
            let next = match self.left.remove(&entry.name) {
                Some(reached) if reached.sequence == 0 => 0,
                Some(reached) => match entry.log.resume(reached) {
                    Ok(next) => next,
                    Err(rollback) => {
                        self.send_rollback(&entry, &label, &rollback).await?;
                        rollback.next
                    }
                },
                None => match names.renamed_from(&entry.name, seen) {
                    Some(next) => next,
                    None => {
                        let text = "its elements since it was renamed may be missing".to_owned();
                        let shown = label.of(&entry);
                        self.notify(NoticeKind::Lag, &shown, text).await?;
                        entry.log.log().last() + 1
                    }
                },
            };
            self.follow(entry, label, next).await?;
        }
        Ok(())
    }

    /// How the client calls a stream, if it requests the stream and may read it.
    fn takes(&self, entry: &Entry) -> Option<Label> {
        let view = View::of_reader(&self.app, &self.caller);
        let label = self.wanted.label(entry)?;
        view.has(entry).then_some(label)
    }

    async fn follow(&mut self, entry: Arc<Entry>, label: Label, next: u64) -> Result<(), Gone> {
        if self.cursors.len() >= STREAMS_MAX {
            if std::mem::replace(&mut self.left_out, true) {
                return Ok(());
            }
            let text = format!(
                "not included, like the streams after it: a client has at most {STREAMS_MAX} streams"
            );
            return self.notify(NoticeKind::Lag, &label.of(&entry), text).await;
        }
        self.cursors.follow(entry, label, next);
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
        // The id of an event stands after all elements written before it, so no renamed stream may be left out.
        self.follow_renamed_streams().await?;
        let mut cursors = std::mem::take(&mut self.cursors);
        let store = self.app.storage.log.clone();
        let reading = move || {
            let piece = cursors.read(&store);
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
            let label = self.cursors.label(&name);
            self.notify(NoticeKind::Lag, &label, text).await?;
        }
        if let Some(error) = piece.failure {
            return self.fail(&error);
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
                let label = self.cursors.label(name);
                self.notify(NoticeKind::Lag, &label, text).await
            }
            StoreError::Log(Error::Rollback(rollback)) => {
                let Some((entry, label)) = self.cursors.remove(name) else {
                    return Ok(());
                };
                self.send_rollback(&entry, &label, &rollback).await?;
                self.follow(entry, label, rollback.next).await
            }
            error => {
                let label = self.cursors.label(name);
                self.cursors.remove(name);
                let is_removed = matches!(error, StoreError::Log(Error::Removed { .. }));
                let text = format!("cannot be read: {error}");
                self.notify(NoticeKind::Lag, &label, text).await?;
                // A new stream of the same name may have been defined while this one was followed.
                let defined = is_removed.then(|| self.app.catalogue.get(name)).flatten();
                let defined = defined.filter(|entry| !entry.log.log().is_removed());
                match defined.and_then(|entry| Some((self.takes(&entry)?, entry))) {
                    Some((label, entry)) => self.follow(entry, label, 0).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn send_rollback(
        &mut self,
        entry: &Entry,
        label: &Label,
        rollback: &chappe_log::Rollback,
    ) -> Result<(), Gone> {
        let position = |epoch, sequence| Position {
            epoch: Epoch(epoch),
            sequence,
        };
        let data = json!({
            "stream": label.of(entry),
            "have": position(rollback.have.epoch, rollback.have.sequence).to_string(),
            "want": position(entry.log.log().epoch(), rollback.next).to_string(),
        });
        self.send(format!("event: rollback\ndata: {data}\n\n"))
            .await
    }

    async fn notice(&mut self, notice: Result<Notice, RecvError>) -> Result<(), Gone> {
        match notice {
            Ok(notice) => {
                let view = View::of_reader(&self.app, &self.caller);
                match view.is_whole() || view.has_stream(&notice.subject) {
                    true => self.send_notice(&notice).await,
                    false => Ok(()),
                }
            }
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
