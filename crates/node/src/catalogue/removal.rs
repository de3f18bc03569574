//! Removing streams: at an operator's request, and by age those that devices left behind empty.
//!
//! Only a stream whose source is not there and that no other node reads is removed. Its source would
//! bring it back at once, and a reader would wait for elements that never come.
//!
//! The source is looked for where it is known: in the table of devices or of virtual sensors, among the
//! links. The registry does not tell: a source writes before its stream is registered. The stream is
//! taken out of the catalogue before the last look. A source that has the stream is there by then, and
//! one that comes later finds none, and defines it again when the removal has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_stream::StoreError;
use serde::{Deserialize, Serialize};

use super::{Catalogue, Entry, key};
use crate::devices::{DeviceState, key_of};
use crate::links::{self, Kept};
use crate::notices::NoticeKind;

use crate::shared::App;

/// How often abandoned streams are looked for; reason: their age is counted in days.
pub(crate) const LOOK: Duration = Duration::from_secs(60);

/// How often the ages of abandoned streams are written, at most.
const SAVE: Duration = Duration::from_secs(600);
/// The file of these ages under the data directory.
const ABANDONED: &str = "abandoned.json";

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
            Self::Written { .. } => {
                "remove the link or the virtual sensor first; a device has to be gone"
            }
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

    /// The key of the device that is its source, which was the device's address formerly. The name of a
    /// virtual sensor has no colon.
    fn device(&self) -> Option<String> {
        let source = self.source();
        match source.strip_prefix("urn:chappe:") {
            Some(own) => own.starts_with("device:").then_some(source),
            None => source.contains(':').then(|| key_of(&source)),
        }
    }

    /// Its source, if that is there: it may have the stream, whether it has registered it or not.
    fn writer(&self, app: &App) -> Option<String> {
        let source = self.source();
        let is_there = if let Some(device) = self.device() {
            let device = app.devices.get(&device);
            device.is_some_and(|device| device.state != DeviceState::Gone)
        } else if let Some(link) = links::name_of_key(&source) {
            !links::is_removed(app, link)
        } else if source.starts_with("urn:chappe:") {
            // This program, or a topic: they have only streams that this run has defined.
            app.registrar.is_registered(&self.key())
        } else {
            let sensor = app.sensors.get(&source);
            sensor.is_some_and(|sensor| sensor.stream == self.name)
        };
        is_there.then_some(source)
    }

    /// How many elements are removed with it, if it may be removed.
    fn check(&self, app: &App, force: bool) -> Result<u64, RemovalError> {
        let stream = || self.name.clone();
        if let Some(source_key) = self.writer(app) {
            return Err(RemovalError::Written {
                stream: stream(),
                source_key,
            });
        }
        let peers = app.exchange.get().map(links::Exchange::peers);
        let mut peers = peers.into_iter().flatten();
        if let Some(peer) = peers.find(|peer| peer.streams.contains(&self.name)) {
            return Err(RemovalError::Read {
                stream: stream(),
                reader: peer.key.unwrap_or(peer.address),
            });
        }
        match self.held() {
            elements if elements > 0 && !force => Err(RemovalError::Holds {
                stream: stream(),
                elements,
            }),
            elements => Ok(elements),
        }
    }
}

/// A stream that nobody finds or defines. It is put back when this is dropped, unless it is gone.
struct TakenOut<'a> {
    catalogue: &'a Catalogue,
    entry: Arc<Entry>,
    is_gone: bool,
}

impl Drop for TakenOut<'_> {
    fn drop(&mut self) {
        let mut entries = self.catalogue.write();
        entries.removing.remove(&self.entry.name);
        if !self.is_gone {
            entries.insert(self.entry.clone());
        }
        drop(entries);
        self.catalogue.changes.send_modify(|number| *number += 1);
    }
}

impl Catalogue {
    /// Takes a stream out; not one that is being defined.
    fn take_out(&self, name: &str) -> Result<TakenOut<'_>, RemovalError> {
        let mut entries = self.write();
        let stream = || name.to_owned();
        if let Some(claim) = entries.making.get(name) {
            return Err(RemovalError::Written {
                stream: stream(),
                source_key: claim.source.clone(),
            });
        }
        let entry = entries.ready.remove(name);
        let entry = entry.ok_or_else(|| RemovalError::Unknown(stream()))?;
        entries.removing.insert(stream());
        Ok(TakenOut {
            catalogue: self,
            entry,
            is_gone: false,
        })
    }
}

#[cfg(test)]
impl Catalogue {
    /// Removes a stream although its source is there.
    pub(crate) fn remove_written(&self, name: &str) {
        let mut taken = self.take_out(name).unwrap();
        assert!(self.store.remove(name).unwrap());
        taken.is_gone = true;
    }
}

/// Removes a stream with all its elements; `force`: also when it holds some. How many it held. A
/// removal that has begun runs to its end, even if its caller is dropped.
pub(crate) async fn remove(app: &App, name: &str, force: bool) -> Result<u64, RemovalError> {
    let (app, name) = (app.clone(), name.to_owned());
    let whole = tokio::spawn(async move { remove_whole(&app, &name, force).await });
    whole.await.unwrap_or_else(|_| Err(panicked().into()))
}

async fn remove_whole(app: &App, name: &str, force: bool) -> Result<u64, RemovalError> {
    let entry = app.catalogue.get(name);
    let unknown = || RemovalError::Unknown(name.to_owned());
    // Most removals that are refused are refused here, where the stream stays in use.
    entry.ok_or_else(unknown)?.check(app, force)?;
    let mut taken = app.catalogue.take_out(name)?;
    let elements = taken.entry.check(app, force)?;
    let (store, stream) = (app.catalogue.store(), name.to_owned());
    let removed = tokio::task::spawn_blocking(move || store.remove(&stream));
    removed.await.unwrap_or_else(|_| Err(panicked()))?;
    // Before its name is free: whoever defines it again registers it again.
    app.registrar.remove(vec![key(name)]).await;
    taken.is_gone = true;
    drop(taken);
    let text = format!("the stream is removed, with {elements} elements");
    app.observability
        .notices
        .tell(NoticeKind::Health, name, text);
    Ok(elements)
}

fn panicked() -> StoreError {
    let reason = "the removal ended by a panic".to_owned();
    chappe_log::Error::Failed { reason }.into()
}

/// For how long a stream was abandoned.
#[derive(Debug, Serialize, Deserialize)]
struct Age {
    stream: String,
    seconds: u64,
}

/// For how long streams of devices have held nothing while their device was not there and the node
/// ran. It is kept over a restart, so that a node that is started often removes them too.
#[derive(Debug)]
pub(crate) struct Abandoned {
    ages: BTreeMap<String, Duration>,
    directory: PathBuf,
    looked: Instant,
    saved: Instant,
    /// Whether the file names none.
    saved_none: bool,
}

impl Abandoned {
    /// Goes on from what an earlier run kept in a data directory.
    pub(crate) fn open(directory: &Path) -> Self {
        let ages = Kept::new(directory, ABANDONED).read();
        let ages = ages.unwrap_or_else(|error: String| {
            tracing::warn!(
                error,
                "how long streams were abandoned is counted from now on"
            );
            Vec::new()
        });
        let age = |it: Age| (it.stream, Duration::from_secs(it.seconds));
        let ages: BTreeMap<_, _> = ages.into_iter().map(age).collect();
        Self {
            saved_none: ages.is_empty(),
            ages,
            directory: directory.to_owned(),
            looked: Instant::now(),
            saved: Instant::now(),
        }
    }

    /// Looks at all streams; those that were abandoned for `age` are removed.
    pub(crate) async fn look(&mut self, app: &App, age: Duration) {
        let elapsed = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        let entries = app.catalogue.entries();
        let abandoned = entries.iter().filter(|entry| {
            entry.held() == 0 && entry.device().is_some() && entry.writer(app).is_none()
        });
        self.count(abandoned.map(|entry| entry.name.clone()), elapsed);
        let due = self.ages.iter().filter(|(_, reached)| **reached >= age);
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Err(error) = remove(app, &name, false).await {
                tracing::debug!(stream = name, %error, "an abandoned stream is not removed");
            }
        }
        let nothing_new = self.saved_none && self.ages.is_empty();
        if self.saved.elapsed() >= SAVE.min(age / 10) && !nothing_new {
            (self.saved, self.saved_none) = (Instant::now(), self.ages.is_empty());
            let saved = tokio::task::spawn_blocking(self.save()).await;
            if let Ok(Err(error)) = saved {
                tracing::warn!(%error, "how long streams were abandoned cannot be kept");
            }
        }
    }

    /// These are abandoned, for `elapsed` longer if they were before.
    fn count(&mut self, abandoned: impl Iterator<Item = String>, elapsed: Duration) {
        let known = std::mem::take(&mut self.ages);
        let age = |name: &str| known.get(name).map_or(Duration::ZERO, |age| *age + elapsed);
        self.ages = abandoned
            .map(|name| {
                let age = age(&name);
                (name, age)
            })
            .collect();
    }

    /// Writes the ages, on a thread that may wait for the disk.
    fn save(&self) -> impl FnOnce() -> std::io::Result<()> + Send + use<> {
        let age = |(stream, age): (&String, &Duration)| Age {
            stream: stream.clone(),
            seconds: age.as_secs(),
        };
        let ages: Vec<Age> = self.ages.iter().map(age).collect();
        let kept = Kept::new(&self.directory, ABANDONED);
        move || kept.write(&ages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_an_abandoned_stream_goes_on_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(86_400);
        for days in 0..5 {
            let mut abandoned = Abandoned::open(directory.path());
            let both = ["here.once", "gone"].map(str::to_owned).into_iter();
            abandoned.count(both, day);
            assert_eq!(abandoned.ages["gone"], day * 2 * days);
            assert_eq!(abandoned.ages["here.once"], Duration::ZERO);
            // The device of the other one comes and goes.
            abandoned.count(["gone".to_owned()].into_iter(), day);
            abandoned.save()().unwrap();
        }
        std::fs::write(directory.path().join(ABANDONED), "{").unwrap();
        assert!(Abandoned::open(directory.path()).ages.is_empty());
    }
}
