//! Removing streams: at an operator's request, and by age those that devices left behind empty.
//!
//! Only a stream that nothing writes and no other node reads is removed. Its source would bring it
//! back at once, and a reader would wait for elements that never come.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_stream::StoreError;

use super::{Catalogue, Entry, key};
use crate::notices::NoticeKind;
use crate::register;
use crate::shared::App;

/// How often abandoned streams are looked for; reason: their age is counted in days.
pub(crate) const LOOK: Duration = Duration::from_secs(60);

/// Why a stream is not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RemovalError {
    /// There is none of this name.
    #[error("there is no stream {0:?}")]
    Unknown(String),
    /// Its source is there.
    #[error("the stream {stream:?} is written by {source_key}")]
    Written {
        /// The stream.
        stream: String,
        /// Its source.
        source_key: String,
    },
    /// Another node reads it.
    #[error("the stream {stream:?} is read by {reader}")]
    Read {
        /// The stream.
        stream: String,
        /// Key or address of the node.
        reader: String,
    },
    /// It holds elements.
    #[error("the stream {stream:?} holds {elements} elements")]
    Holds {
        /// The stream.
        stream: String,
        /// How many numbers are kept.
        elements: u64,
    },
    /// The log refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RemovalError {
    /// What to do.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "GET /api/v1/streams lists them",
            Self::Written { .. } => "remove the link, the virtual sensor or the device first",
            Self::Read { .. } => "remove the link at the other node first",
            Self::Holds { .. } => "--force removes them too, over HTTP `?force=true`",
            Self::Store(_) => "GET /ready says whether the log takes data",
        }
    }
}

impl Entry {
    /// Numbers that are kept, or on their way to the disk.
    fn held(&self) -> u64 {
        let log = self.log.log();
        (log.assigned() + 1).saturating_sub(log.first())
    }

    /// Whether its source is a device: by its key, or by the address that was its key formerly. The
    /// name of a virtual sensor has no colon.
    fn is_of_device(&self) -> bool {
        let source = self.source();
        match source.strip_prefix("urn:chappe:") {
            Some(own) => own.starts_with("device:"),
            None => source.contains(':'),
        }
    }
}

impl Catalogue {
    /// Takes a stream out, so that nobody finds it meanwhile; not one that is being defined.
    fn take_out(&self, name: &str) -> Result<Arc<Entry>, RemovalError> {
        let mut entries = self.write();
        let stream = || name.to_owned();
        if let Some(claim) = entries.making.get(name) {
            return Err(RemovalError::Written {
                stream: stream(),
                source_key: claim.source.clone(),
            });
        }
        let entry = entries.ready.remove(name);
        entry.ok_or_else(|| RemovalError::Unknown(stream()))
    }
}

/// Removes a stream with all its elements; `force`: also when it holds some. How many it held.
pub(crate) async fn remove(app: &App, name: &str, force: bool) -> Result<u64, RemovalError> {
    let unknown = || RemovalError::Unknown(name.to_owned());
    let stream = || name.to_owned();
    let entry = app.catalogue.get(name).ok_or_else(unknown)?;
    if app.registrations.of(&entry.key()) != u64::MAX {
        return Err(RemovalError::Written {
            stream: stream(),
            source_key: entry.source(),
        });
    }
    let peers = app.exchange.get().map(crate::links::Exchange::peers);
    let mut peers = peers.into_iter().flatten();
    if let Some(peer) = peers.find(|peer| peer.streams.iter().any(|it| it == name)) {
        return Err(RemovalError::Read {
            stream: stream(),
            reader: peer.key.unwrap_or(peer.address),
        });
    }
    let elements = entry.held();
    if elements > 0 && !force {
        return Err(RemovalError::Holds {
            stream: stream(),
            elements,
        });
    }
    let entry = app.catalogue.take_out(name)?;
    let store = app.catalogue.store();
    let removed = tokio::task::spawn_blocking({
        let name = stream();
        move || store.remove(&name)
    });
    let removed = removed.await.unwrap_or_else(|_| {
        let reason = "the removal ended by a panic".to_owned();
        Err(chappe_log::Error::Failed { reason }.into())
    });
    match removed {
        Ok(_) => {
            register::remove(app, vec![key(name)]).await;
            let text = format!("the stream is removed, with {elements} elements");
            app.notices.tell(NoticeKind::Health, name, text);
            Ok(elements)
        }
        Err(error) => {
            app.catalogue.write().insert(entry);
            Err(error.into())
        }
    }
}

/// Since when streams of devices hold nothing while their device is not there, as far as this run
/// has seen.
#[derive(Debug, Default)]
pub(crate) struct Abandoned(HashMap<String, Instant>);

impl Abandoned {
    /// Looks at all streams; those that were abandoned for `age` are removed.
    pub(crate) async fn look(&mut self, app: &App, age: Duration) {
        let entries = app.catalogue.entries();
        let abandoned = entries.iter().filter(|entry| {
            let absent = app.registrations.of(&entry.key()) == u64::MAX;
            absent && entry.held() == 0 && entry.is_of_device()
        });
        let now = Instant::now();
        let known = std::mem::take(&mut self.0);
        let since = |name: &str| known.get(name).copied().unwrap_or(now);
        self.0 = abandoned
            .map(|entry| (entry.name.clone(), since(&entry.name)))
            .collect();
        let due = self
            .0
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= age);
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Err(error) = remove(app, &name, false).await {
                tracing::debug!(stream = name, %error, "an abandoned stream is not removed");
            }
        }
    }
}
