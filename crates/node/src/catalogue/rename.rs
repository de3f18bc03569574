//! Renaming streams at an operator's request.
//!
//! A rename is one record of the log: the definition of the stream with another current name. Nothing is copied, and
//! nobody who reads or writes the stream notices. Former names stay the stream's own, until an operator frees one.

use std::sync::Arc;

use chappe_stream::{RenameError as NamesError, StoreError, check_name};

use super::{AUDIT, Catalogue, Entry, table_name};
use crate::notices::NoticeKind;
use crate::shared::App;

/// The prefixes of the names that are for the node's own streams.
const OWN: [&str; 3] = ["chappe.", "chappe_", "chappe-"];

/// A stream cannot be renamed, or cannot lose a former name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RenameError {
    /// No stream has this name.
    #[error("there is no stream {0:?}")]
    Unknown(String),
    /// The node's own streams keep their names.
    #[error("{0:?}: names of chappe are for the node's own streams")]
    Own(String),
    /// Another stream has this name.
    #[error("there is already a stream {0:?}")]
    Exists(String),
    /// Another stream had this name, which still refers to it.
    #[error("{name:?} is a former name of the stream {stream:?}")]
    Former {
        /// The name.
        name: String,
        /// The current name of the stream.
        stream: String,
    },
    /// The name of another stream is the same in SQL.
    #[error("{name:?} and the stream {stream:?} have the same name in SQL")]
    SameTable {
        /// The name.
        name: String,
        /// The current name of the other stream.
        stream: String,
    },
    /// The stream that has or had the name is being removed.
    #[error("the stream that has the name {0:?} is being removed")]
    Removing(String),
    /// The name is invalid, the stream has had too many, or the log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RenameError {
    /// The current name of the other stream that has or had the name.
    pub(crate) fn other(&self) -> Option<&str> {
        match self {
            Self::Exists(stream) | Self::Former { stream, .. } | Self::SameTable { stream, .. } => {
                Some(stream)
            }
            _ => None,
        }
    }

    /// How to proceed.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unknown(_) => "`chappe stream list` lists all streams (GET /api/v1/streams over HTTP)".to_owned(),
            Self::Own(_) => "choose another name".to_owned(),
            Self::Exists(_) => "choose another name, or rename that stream first".to_owned(),
            Self::Former { name, stream } => {
                format!("chappe stream forget-name {stream} {name} frees it")
            }
            Self::SameTable { .. } => {
                "choose a name that differs in more than . _ and -".to_owned()
            }
            Self::Removing(_) => "try again".to_owned(),
            Self::Store(StoreError::Rename(NamesError::TooMany)) => {
                "chappe stream forget-name frees a former name".to_owned()
            }
            Self::Store(StoreError::Rename(NamesError::IsCurrent(_))) => {
                "rename the stream first".to_owned()
            }
            Self::Store(StoreError::Rename(NamesError::IsFirst(_))) => {
                "its other former names can be freed".to_owned()
            }
            Self::Store(StoreError::Rename(_)) => {
                "GET /api/v1/streams shows the former names of each stream".to_owned()
            }
            Self::Store(StoreError::Name(_)) => {
                "a name has parts of a-z, 0-9, _ and -, joined by dots".to_owned()
            }
            Self::Store(StoreError::Log(chappe_log::Error::TooLarge { .. })) => {
                "chappe stream forget-name frees former names; or remove streams, whose definitions share the \
                 room"
                    .to_owned()
            }
            Self::Store(_) => "GET /ready shows whether the log accepts data".to_owned(),
        }
    }
}

/// Whether a name is for the node's own streams.
pub(crate) fn is_own_name(name: &str) -> bool {
    name == "chappe" || OWN.iter().any(|own| name.starts_with(own))
}

impl Catalogue {
    /// Checks that a stream may be called `name`, and makes that refer to it. Returns whether it did not before.
    fn take_name(&self, entry: &Entry, name: &str) -> Result<bool, RenameError> {
        let entries = self.write();
        let mut known = self.names.write();
        let is_its = |first: &str| first == entry.name;
        if is_its(name) || known.first(name).is_some_and(is_its) {
            return Ok(false);
        }
        if let Some(other) = known.first(name) {
            let Some(other) = entries.ready.get(other) else {
                return Err(RenameError::Removing(name.to_owned()));
            };
            let stream = other.log.current_name();
            return Err(match stream == name {
                true => RenameError::Exists(stream),
                false => RenameError::Former {
                    name: name.to_owned(),
                    stream,
                },
            });
        }
        if let Some(other) = entries.ready.get(name) {
            let stream = other.log.current_name();
            return Err(match stream == name {
                true => RenameError::Exists(stream),
                false => RenameError::Former {
                    name: name.to_owned(),
                    stream,
                },
            });
        }
        if entries.removing.contains(name) {
            return Err(RenameError::Removing(name.to_owned()));
        }
        if entries.pending.contains_key(name) {
            return Err(RenameError::Exists(name.to_owned()));
        }
        let others = entries.ready.values().filter(|other| !is_its(&other.name));
        if let Some(other) = same_table(others, name) {
            return Err(RenameError::SameTable {
                name: name.to_owned(),
                stream: other.log.current_name(),
            });
        }
        known.reserve(name, &entry.name);
        Ok(true)
    }

    /// Takes over the names of a stream from its definition in the log, if the stream still exists.
    fn learn_names(&self, entry: &Arc<Entry>) {
        let entries = self.write();
        let mut known = self.names.write();
        match entries.ready.get(&entry.name) {
            Some(ready) => known.learn(&ready.log),
            None => known.forget(&entry.name),
        }
    }
}

/// The first of these streams one of whose names is the same as `name` in SQL.
pub(crate) fn same_table<'a>(
    mut entries: impl Iterator<Item = &'a Arc<Entry>>,
    name: &str,
) -> Option<&'a Arc<Entry>> {
    let table = table_name(name);
    entries.find(|entry| entry.log.has_name(|known| table_name(known) == table))
}

/// Gives a stream another name; the former one still refers to it. A rename that has begun runs to its end, even
/// if its caller is dropped.
///
/// # Errors
/// See [`RenameError`]; then nothing has changed.
pub(crate) async fn rename(app: &App, name: &str, new: &str) -> Result<Arc<Entry>, RenameError> {
    let (app, name, new) = (app.clone(), name.to_owned(), new.to_owned());
    let renaming = tokio::spawn(async move {
        // Clients define no stream of this name meanwhile.
        let _turn = app.defining.lock().await;
        run_rename(&app, &name, &new).await
    });
    renaming.await.unwrap_or_else(|_| Err(panicked()))
}

async fn run_rename(app: &App, name: &str, new: &str) -> Result<Arc<Entry>, RenameError> {
    check_name(new).map_err(StoreError::from)?;
    let entry = find(app, name)?;
    if let Some(own) = [&entry.log.current_name(), new]
        .into_iter()
        .find(|it| is_own_name(it))
    {
        return Err(RenameError::Own(own.to_owned()));
    }
    let former = entry.log.current_name();
    if former == new {
        return Ok(entry);
    }
    app.catalogue.take_name(&entry, new)?;
    let (log, wanted) = (entry.log.clone(), new.to_owned());
    change(app, &entry, move || log.rename(&wanted)).await?;
    let text = format!("renamed from {former}, which still refers to it");
    app.observability
        .notices
        .notify(NoticeKind::Health, new, text);
    Ok(entry)
}

/// Frees a former name of a stream, which then no longer refers to it. Like a rename, it runs to its end.
///
/// # Errors
/// See [`RenameError`]; then nothing has changed.
pub(crate) async fn forget_name(
    app: &App,
    name: &str,
    former: &str,
) -> Result<Arc<Entry>, RenameError> {
    let (app, name, former) = (app.clone(), name.to_owned(), former.to_owned());
    let forgetting = tokio::spawn(async move {
        let _turn = app.defining.lock().await;
        let entry = find(&app, &name)?;
        let (log, freed) = (entry.log.clone(), former.clone());
        change(&app, &entry, move || log.forget_name(&freed)).await?;
        let text = format!("no longer has the former name {former}");
        let (notices, current) = (&app.observability.notices, entry.log.current_name());
        notices.notify(NoticeKind::Health, &current, text);
        Ok(entry)
    });
    forgetting.await.unwrap_or_else(|_| Err(panicked()))
}

/// Changes the names of a stream in the log, on a thread that may wait for the disk, then here.
async fn change(
    app: &App,
    entry: &Arc<Entry>,
    change: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
) -> Result<(), RenameError> {
    // What is written from here on may be written under the new name.
    let next = entry.log.log().last() + 1;
    let changed = tokio::task::spawn_blocking(change).await;
    // After a failure this releases the name that was taken.
    app.catalogue.learn_names(entry);
    app.catalogue.names.record_rename(&entry.name, next);
    app.catalogue.changes.send_modify(|number| *number += 1);
    changed.unwrap_or_else(|_| Err(chappe_log::Error::Closed.into()))?;
    app.registrar.rename(&entry.key()).await;
    Ok(())
}

fn find(app: &App, name: &str) -> Result<Arc<Entry>, RenameError> {
    let entry = app.catalogue.get(name).filter(|entry| entry.name != AUDIT);
    entry.ok_or_else(|| RenameError::Unknown(name.to_owned()))
}

fn panicked() -> RenameError {
    let reason = "the rename panicked".to_owned();
    StoreError::from(chappe_log::Error::Failed { reason }).into()
}
