//! What happened, for people: a short history, and a feed for those who watch.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

use crate::clock;

/// Notices kept for those who ask later; reason: a screen or two.
const HISTORY_MAX: usize = 200;
/// Bytes of a notice's text; reason: notices repeat what devices say of themselves.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// Notices a watcher may be behind before it misses some, which it is told.
const FEED_MAX: usize = 256;

/// Something that happened.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Notice {
    /// When (RFC 3339).
    pub(crate) at: String,
    /// Of which kind.
    pub(crate) kind: NoticeKind,
    /// What it is about: the key of a device, the name of a stream or of a sensor.
    pub(crate) subject: String,
    /// What happened, in words.
    pub(crate) text: String,
}

/// Kinds of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoticeKind {
    /// A device came, changed or went.
    Device,
    /// A virtual sensor was bound or unbound.
    Binding,
    /// A link was connected, cut or refused; elements were lost on one; its origin went back.
    Link,
    /// Something was dropped for the first time.
    Drop,
    /// The node's own state changed.
    Health,
    /// A client of live data reads too slowly, or elements are no longer kept.
    Lag,
}

impl Notice {
    /// Something that happens now.
    pub(crate) fn now(kind: NoticeKind, subject: &str, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.len() > TEXT_BYTES_MAX {
            text = text.chars().take(TEXT_BYTES_MAX / 4).collect();
        }
        Self {
            at: clock::rfc3339(clock::now()),
            kind,
            subject: subject.to_owned(),
            text,
        }
    }
}

/// The history and the feed.
#[derive(Debug)]
pub(crate) struct Notices {
    history: Mutex<VecDeque<Notice>>,
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
    /// Tells everyone who watches.
    pub(crate) fn tell(&self, kind: NoticeKind, subject: &str, text: impl Into<String>) {
        let notice = Notice::now(kind, subject, text);
        tracing::info!(kind = ?notice.kind, subject, "{}", notice.text);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(notice.clone());
        drop(history);
        // An error only says that nobody watches.
        let _ = self.feed.send(notice);
    }

    /// The notices kept, oldest first.
    pub(crate) fn history(&self) -> Vec<Notice> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().cloned().collect()
    }

    /// Follows what happens from now on.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Notice> {
        self.feed.subscribe()
    }
}
