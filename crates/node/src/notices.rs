//! Notices of events for operators: a short history, and a live feed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use utoipa::ToSchema;

use crate::clock;

/// Notices in the history; reason: a screen or two.
const HISTORY_MAX: usize = 200;
/// Bytes of a notice's text; reason: notices repeat what devices say about themselves.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// Notices that a watcher may lag before it misses some and is notified of that.
const FEED_MAX: usize = 256;

/// An event for operators.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Notice {
    /// Time of the event (RFC 3339).
    pub(crate) at: String,
    /// Its kind.
    pub(crate) kind: NoticeKind,
    /// Its subject: the key of a device, the name of a stream or of a sensor.
    pub(crate) subject: String,
    /// The event as text.
    pub(crate) text: String,
}

/// Kinds of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoticeKind {
    /// A device appeared, changed or left.
    Device,
    /// A virtual sensor was bound or unbound.
    Binding,
    /// A link was connected, disconnected or refused, lost elements, or its origin rolled back.
    Link,
    /// Something was dropped for the first time.
    Drop,
    /// The node's own state changed.
    Health,
    /// A client of live data reads too slowly, or the elements it needs are no longer kept.
    Lag,
}

impl Notice {
    /// A notice of an event that happens now.
    pub(crate) fn now(kind: NoticeKind, subject: &str, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.len() > TEXT_BYTES_MAX {
            text = text.chars().take(TEXT_BYTES_MAX / 4).collect();
        }
        Self {
            at: clock::now().to_string(),
            kind,
            subject: subject.to_owned(),
            text,
        }
    }
}

/// The newest notices.
#[derive(Debug, Default)]
struct History {
    /// The number of the first one, counted from the start of the node.
    first: u64,
    notices: VecDeque<Notice>,
}

/// The history and the feed.
#[derive(Debug)]
pub(crate) struct Notices {
    history: Mutex<History>,
    feed: broadcast::Sender<Notice>,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            history: Mutex::default(),
            feed: broadcast::Sender::new(FEED_MAX),
        }
    }
}

impl Notices {
    /// Adds a notice to the history and sends it to all watchers.
    pub(crate) fn notify(&self, kind: NoticeKind, subject: &str, text: impl Into<String>) {
        let notice = Notice::now(kind, subject, text);
        tracing::info!(kind = ?notice.kind, subject, "{}", notice.text);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.notices.len() == HISTORY_MAX {
            history.notices.pop_front();
            history.first += 1;
        }
        history.notices.push_back(notice.clone());
        drop(history);
        // Fails only if there are no subscribers.
        let _ = self.feed.send(notice);
    }

    /// The notices of the history, oldest first.
    pub(crate) fn history(&self) -> Vec<Notice> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.notices.iter().cloned().collect()
    }

    /// The same, each with its number, counted from the start of the node.
    pub(crate) fn numbered(&self) -> Vec<(u64, Notice)> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let notices = history.notices.iter().cloned();
        (history.first..).zip(notices).collect()
    }

    /// Follows the notices from now on.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Notice> {
        self.feed.subscribe()
    }
}
