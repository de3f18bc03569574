//! Removal of streams: at an operator's request, and of abandoned empty device streams by age.
//!
//! A stream is removed only while its source is absent and no other node reads it. A present source
//! would define it again at once, and a reader would wait for elements that never arrive.
//!
//! The source is looked up in the tables of devices, virtual sensors, wrappers and links, not in the registry,
//! because a source writes before its stream is registered. The stream is hidden in the catalogue
//! before the last check: a source that already uses the stream is found by that check, and a later
//! one finds no stream and defines it again after the removal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_stream::StoreError;
use serde::{Deserialize, Serialize};

use super::{AUDIT, Catalogue, Entry, key};
use crate::devices::device_key;
use crate::links::{self, StateFile};
use crate::notices::NoticeKind;

use crate::shared::App;
use crate::wrappers::{self, wrapper_name};
use crate::written;

/// Time between two checks for abandoned streams; reason: their age is counted in days.
pub(crate) const ABANDONED_CHECK_PERIOD: Duration = Duration::from_secs(60);

/// Minimum time between two writes of the ages of abandoned streams.
const SAVE_PERIOD: Duration = Duration::from_secs(600);
/// The file of these ages in the data directory.
const ABANDONED: &str = "abandoned.json";

/// A stream cannot be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RemovalError {
    /// No stream has this name.
    #[error("there is no stream {0:?}")]
    Unknown(String),
    /// Its source is present.
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
        /// The number of elements.
        elements: u64,
    },
    /// The log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RemovalError {
    /// How to proceed.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Unknown(_) => {
                "`chappe stream list` lists all streams (GET /api/v1/streams over HTTP)"
            }
            Self::Written { .. } => {
                "remove the link, the wrapper or the virtual sensor first, or turn the device off"
            }
            Self::Read { .. } => "remove the link on the other node first",
            Self::Holds { .. } => "--force removes the elements too (`?force=true` over HTTP)",
            Self::Store(_) => "GET /ready shows whether the log accepts data",
        }
    }
}

impl Entry {
    /// The number of elements in the log or queued for it.
    fn held_elements(&self) -> u64 {
        let log = self.log.log();
        (log.assigned() + 1).saturating_sub(log.first())
    }

    /// The key of its device. Older logs hold the device's address instead, which contains a colon,
    /// unlike the name of a virtual sensor.
    fn device(&self) -> Option<String> {
        let source = self.source();
        match source.strip_prefix("urn:chappe:") {
            Some(own) => own.starts_with("device:").then_some(source),
            None => source.contains(':').then(|| device_key(&source)),
        }
    }

    /// Its source, if present: it may write the stream before registering it.
    fn writer(&self, app: &App) -> Option<String> {
        let source = self.source();
        let is_present = if let Some(device) = self.device() {
            app.devices.is_present(&device)
        } else if let Some(link) = links::link_name(&source) {
            !links::is_removed(app, link)
        } else if let Some(wrapper) = wrapper_name(&source) {
            wrappers::exists(app, wrapper)
        } else if source == written::SOURCE {
            // A client that writes it later gets an error.
            false
        } else if self.name == AUDIT {
            true
        } else if source.starts_with("urn:chappe:") {
            // The program itself: only streams registered in this run are in use.
            app.registrar.is_registered(&self.key())
        } else {
            let sensor = app.sensors.get(&source);
            sensor.is_some_and(|sensor| self.log.has_name(|name| name == sensor.stream))
        };
        is_present.then_some(source)
    }

    /// The number of elements that a removal deletes, if the stream may be removed.
    fn check(&self, app: &App, force: bool) -> Result<u64, RemovalError> {
        let stream = || self.current_name();
        if let Some(source_key) = self.writer(app) {
            return Err(RemovalError::Written {
                stream: stream(),
                source_key,
            });
        }
        let peers = app.exchange.get().map(links::Exchange::peers);
        let mut peers = peers.into_iter().flatten();
        let is_read = |name: &String| self.log.has_name(|own| own == name);
        if let Some(peer) = peers.find(|peer| peer.streams.iter().any(is_read)) {
            return Err(RemovalError::Read {
                stream: stream(),
                reader: peer.key.unwrap_or(peer.address),
            });
        }
        match self.held_elements() {
            elements if elements > 0 && !force => Err(RemovalError::Holds {
                stream: stream(),
                elements,
            }),
            elements => Ok(elements),
        }
    }
}

/// A stream hidden in the catalogue: it can be neither found nor defined. Dropping this makes it
/// visible again, unless it was removed.
struct HiddenStream<'a> {
    catalogue: &'a Catalogue,
    entry: Arc<Entry>,
    is_removed: bool,
}

impl Drop for HiddenStream<'_> {
    fn drop(&mut self) {
        let mut entries = self.catalogue.write();
        entries.removing.remove(&self.entry.name);
        match self.is_removed {
            true => self.catalogue.names.write().forget(&self.entry.name),
            false => {
                self.catalogue.names.write().learn(&self.entry.log);
                entries.insert(self.entry.clone());
            }
        }
        drop(entries);
        self.catalogue.changes.send_modify(|number| *number += 1);
    }
}

impl Catalogue {
    /// Hides a stream; fails while it is being defined.
    fn hide(&self, name: &str) -> Result<HiddenStream<'_>, RemovalError> {
        let mut entries = self.write();
        let stream = || name.to_owned();
        if let Some(claim) = entries.pending.get(name) {
            return Err(RemovalError::Written {
                stream: stream(),
                source_key: claim.source.clone(),
            });
        }
        let entry = entries.remove(name);
        let entry = entry.ok_or_else(|| RemovalError::Unknown(stream()))?;
        entries.removing.insert(stream());
        Ok(HiddenStream {
            catalogue: self,
            entry,
            is_removed: false,
        })
    }
}

#[cfg(test)]
impl Catalogue {
    /// Removes a stream even while its source is present.
    pub(crate) fn remove_written(&self, name: &str) {
        let mut hidden = self.hide(name).unwrap();
        assert!(self.store.remove(name).unwrap());
        hidden.is_removed = true;
    }
}

/// Removes a stream with all its elements and returns their number; without `force` the stream must be
/// empty. A removal that has begun runs to its end, even if its caller is dropped.
pub(crate) async fn remove(app: &App, name: &str, force: bool) -> Result<u64, RemovalError> {
    let (app, name) = (app.clone(), name.to_owned());
    let removal = tokio::spawn(async move { run_removal(&app, &name, force).await });
    removal.await.unwrap_or_else(|_| Err(panicked().into()))
}

async fn run_removal(app: &App, name: &str, force: bool) -> Result<u64, RemovalError> {
    let entry = app.catalogue.get(name);
    let unknown = || RemovalError::Unknown(name.to_owned());
    // Refuses most requests early, while the stream stays usable.
    let entry = entry.ok_or_else(unknown)?;
    entry.check(app, force)?;
    let (name, shown) = (entry.name.as_str(), entry.current_name());
    let mut hidden = app.catalogue.hide(name)?;
    let elements = hidden.entry.check(app, force)?;
    let (store, stream) = (app.catalogue.store(), name.to_owned());
    let removed = tokio::task::spawn_blocking(move || store.remove(&stream));
    removed.await.unwrap_or_else(|_| Err(panicked()))?;
    // Unregister before the name is free, so that a new definition's registration stays.
    app.registrar.remove(vec![key(name)]).await;
    app.producers.forget(name);
    let (sharing, stream) = (app.clone(), name.to_owned());
    let discharged = tokio::task::spawn_blocking(move || {
        sharing.shares.remove(&stream);
        // A later stream of this name is another one.
        sharing.owners.forget(&key(&stream))
    });
    let forgotten = discharged.await.unwrap_or(Ok(()));
    if let Err(error) = forgotten {
        let text = format!("the rights to the removed stream cannot be forgotten: {error}");
        let notices = &app.observability.notices;
        notices.notify(NoticeKind::Health, &shown, text);
    }
    hidden.is_removed = true;
    drop(hidden);
    let text = format!("stream removed, with {elements} elements");
    app.observability
        .notices
        .notify(NoticeKind::Health, &shown, text);
    Ok(elements)
}

fn panicked() -> StoreError {
    let reason = "the removal panicked".to_owned();
    chappe_log::Error::Failed { reason }.into()
}

/// How long a stream has been abandoned.
#[derive(Debug, Serialize, Deserialize)]
struct Age {
    stream: String,
    seconds: u64,
}

/// The ages of abandoned streams: how long each was empty and its device absent while the node ran.
/// They survive a restart, so that a node that is often restarted removes abandoned streams too.
#[derive(Debug)]
pub(crate) struct Abandoned {
    ages: BTreeMap<String, Duration>,
    directory: PathBuf,
    last_check: Instant,
    last_save: Instant,
    /// Whether the saved file lists no streams.
    is_file_empty: bool,
}

impl Abandoned {
    /// Reads the ages that an earlier run saved in a data directory.
    pub(crate) fn open(directory: &Path) -> Self {
        let ages = StateFile::new(directory, ABANDONED).read();
        let ages = ages.unwrap_or_else(|error: String| {
            tracing::warn!(
                error,
                "cannot read the ages of abandoned streams; they start from zero"
            );
            Vec::new()
        });
        let age = |it: Age| (it.stream, Duration::from_secs(it.seconds));
        let ages: BTreeMap<_, _> = ages.into_iter().map(age).collect();
        Self {
            is_file_empty: ages.is_empty(),
            ages,
            directory: directory.to_owned(),
            last_check: Instant::now(),
            last_save: Instant::now(),
        }
    }

    /// Checks all streams and removes those abandoned for `age`.
    pub(crate) async fn check(&mut self, app: &App, age: Duration) {
        let elapsed = std::mem::replace(&mut self.last_check, Instant::now()).elapsed();
        let entries = app.catalogue.entries();
        let abandoned = entries.iter().filter(|entry| {
            entry.held_elements() == 0 && entry.device().is_some() && entry.writer(app).is_none()
        });
        self.update_ages(abandoned.map(|entry| entry.name.clone()), elapsed);
        let due = self.ages.iter().filter(|(_, reached)| **reached >= age);
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Err(error) = remove(app, &name, false).await {
                tracing::debug!(stream = name, %error, "cannot remove an abandoned stream");
            }
        }
        let is_unchanged = self.is_file_empty && self.ages.is_empty();
        if self.last_save.elapsed() >= SAVE_PERIOD.min(age / 10) && !is_unchanged {
            (self.last_save, self.is_file_empty) = (Instant::now(), self.ages.is_empty());
            let saved = tokio::task::spawn_blocking(self.save()).await;
            if let Ok(Err(error)) = saved {
                tracing::warn!(%error, "cannot save the ages of abandoned streams");
            }
        }
    }

    /// Replaces the ages: a stream that was abandoned before is `elapsed` older, others start at zero.
    fn update_ages(&mut self, abandoned: impl Iterator<Item = String>, elapsed: Duration) {
        let known = std::mem::take(&mut self.ages);
        let age = |name: &str| known.get(name).map_or(Duration::ZERO, |age| *age + elapsed);
        self.ages = abandoned
            .map(|name| {
                let age = age(&name);
                (name, age)
            })
            .collect();
    }

    /// Returns a closure that writes the ages, for a thread that may block on the disk.
    fn save(&self) -> impl FnOnce() -> std::io::Result<()> + Send + use<> {
        let age = |(stream, age): (&String, &Duration)| Age {
            stream: stream.clone(),
            seconds: age.as_secs(),
        };
        let ages: Vec<Age> = self.ages.iter().map(age).collect();
        let file = StateFile::new(&self.directory, ABANDONED);
        move || file.write(&ages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_an_abandoned_stream_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(86_400);
        for days in 0..5 {
            let mut abandoned = Abandoned::open(directory.path());
            let both = ["here.once", "gone"].map(str::to_owned).into_iter();
            abandoned.update_ages(both, day);
            assert_eq!(abandoned.ages["gone"], day * 2 * days);
            assert_eq!(abandoned.ages["here.once"], Duration::ZERO);
            // The device of the other stream leaves and returns.
            abandoned.update_ages(["gone".to_owned()].into_iter(), day);
            abandoned.save()().unwrap();
        }
        std::fs::write(directory.path().join(ABANDONED), "{").unwrap();
        assert!(Abandoned::open(directory.path()).ages.is_empty());
    }
}
