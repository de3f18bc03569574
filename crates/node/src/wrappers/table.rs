//! The tables of wrappers and exporters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use chappe_links::DeadLetters;
use chappe_wrappers::{Command, Inbound, WrapperError, WrapperFile};
use serde::Serialize;
use tokio::sync::{Notify, mpsc, oneshot};
use utoipa::ToSchema;

use super::SharedLetters;
use crate::config::Fault;

/// Messages of clients that wait for a wrapper; reason: with the largest body they are some megabytes.
const INBOX_MAX: usize = 64;

/// The state of a wrapper or an exporter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PeerState {
    /// It reads or writes.
    Running,
    /// It waits for its peer: `reason` says for what.
    #[default]
    Waiting,
    /// A step failed: `reason` and `hint` say why. It is tried again.
    Trouble,
    /// Its file is invalid.
    Failed,
}

impl PeerState {
    /// All states with their names.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Running, "running"),
        (Self::Waiting, "waiting"),
        (Self::Trouble, "trouble"),
        (Self::Failed, "failed"),
    ];
}

/// What wrappers and exporters have in common.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct PeerStatus {
    /// Its name: that of its file without `.toml`.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: String,
    /// The file that describes it.
    pub(crate) file: String,
    /// Its purpose.
    pub(crate) description: Option<String>,
    /// Its state.
    pub(crate) state: PeerState,
    /// Why it waits or is in trouble.
    pub(crate) reason: Option<String>,
    /// How to repair that.
    pub(crate) hint: Option<String>,
    /// The fault of its file; an earlier version may run.
    pub(crate) error: Option<Fault>,
    /// Elements stored or exported since it started.
    pub(crate) elements: u64,
    /// Dead letters that are kept.
    pub(crate) dead_letters: u64,
    /// Dead letters that were dropped since the node started: for newer ones, or by the size limit of the log.
    pub(crate) dead_letters_dropped: u64,
    /// How often it was opened again after trouble.
    pub(crate) restarts: u64,
    /// The file itself.
    pub(crate) toml: String,
}

impl PeerStatus {
    /// Why it does not run, or that it does.
    pub(crate) fn set_state(
        &mut self,
        state: PeerState,
        reason: Option<String>,
        hint: Option<String>,
    ) {
        (self.state, self.reason, self.hint) = (state, reason, hint);
    }
}

/// A wrapper.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Wrapper {
    #[serde(flatten)]
    pub(crate) peer: PeerStatus,
    /// The streams that it has written since it started.
    pub(crate) streams: Vec<String>,
    /// The virtual sensor whose file it is in; it runs with that sensor.
    pub(crate) sensor: Option<String>,
    /// The streams that a processor reads, and how far what became of each is stored.
    pub(crate) inputs: Vec<Exported>,
    /// Source time of the newest element (RFC 3339).
    pub(crate) newest_time: Option<String>,
    /// Messages that it could not decode or store since it started.
    pub(crate) undecodable: u64,
    /// Messages lost since it started, by reason. A loss of an unknown number, perhaps none, counts as one.
    pub(crate) lost: BTreeMap<String, u64>,
    /// Bytes received and not stored yet.
    pub(crate) unstored_bytes: u64,
}

/// An exporter.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Exporter {
    #[serde(flatten)]
    pub(crate) peer: PeerStatus,
    /// Its streams, and how far each was exported.
    pub(crate) streams: Vec<Exported>,
    /// Elements that its peer refused since it started.
    pub(crate) refused: u64,
}

/// A stream of an exporter, or an input of a processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Exported {
    /// Its name.
    pub(crate) stream: String,
    /// The number of the last element that was exported or processed.
    pub(crate) read: u64,
    /// Elements that were removed before they were exported or processed.
    pub(crate) missed: u64,
}

/// A row of a table.
pub(crate) trait Row: Clone + From<PeerStatus> {
    /// What it is.
    const NOUN: &'static str;
    /// Where all of them are listed.
    const PATH: &'static str;

    fn peer(&self) -> &PeerStatus;
    fn peer_mut(&mut self) -> &mut PeerStatus;
}

impl Row for Wrapper {
    const NOUN: &'static str = "wrapper";
    const PATH: &'static str = "/api/v1/wrappers";

    fn peer(&self) -> &PeerStatus {
        &self.peer
    }

    fn peer_mut(&mut self) -> &mut PeerStatus {
        &mut self.peer
    }
}

impl From<PeerStatus> for Wrapper {
    fn from(peer: PeerStatus) -> Self {
        Self {
            peer,
            ..Self::default()
        }
    }
}

impl Row for Exporter {
    const NOUN: &'static str = "exporter";
    const PATH: &'static str = "/api/v1/exporters";

    fn peer(&self) -> &PeerStatus {
        &self.peer
    }

    fn peer_mut(&mut self) -> &mut PeerStatus {
        &mut self.peer
    }
}

impl From<PeerStatus> for Exporter {
    fn from(peer: PeerStatus) -> Self {
        Self {
            peer,
            ..Self::default()
        }
    }
}

/// A request to a running wrapper.
pub(crate) struct Call {
    /// The announced device whose operation is called; `None`: a `[[command]]` of the file.
    pub(crate) device: Option<String>,
    pub(crate) command: Command,
    pub(crate) reply: oneshot::Sender<Result<serde_json::Value, WrapperError>>,
}

/// The parts of a running wrapper that requests use.
#[derive(Clone)]
pub(crate) struct WrapperHandle {
    pub(crate) file: Arc<WrapperFile>,
    pub(crate) letters: Arc<DeadLetters>,
    pub(crate) calls: mpsc::Sender<Call>,
    pub(crate) inbox: Arc<Inbox>,
    /// The databases that it names, if it is of kind `influxdb`.
    pub(crate) databases: Arc<[String]>,
    /// The same letters, as they are shared with other runs of this name.
    pub(crate) shared: Arc<SharedLetters>,
}

/// Where messages of clients enter a wrapper that takes some, while it is open.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Option<mpsc::Sender<Inbound>>>);

impl Inbox {
    /// Opens it again.
    pub(super) fn open(&self) -> mpsc::Receiver<Inbound> {
        let (send, receive) = mpsc::channel(INBOX_MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(send);
        receive
    }

    /// The wrapper has ended and is opened again: senders have to come again.
    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Passes a message on.
    pub(crate) fn send(&self, message: Inbound) -> Result<(), InboxError> {
        let sender = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let sender = sender.ok_or(InboxError::Busy)?;
        sender.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => InboxError::Busy,
            mpsc::error::TrySendError::Closed(_) => InboxError::Closed,
        })
    }
}

/// A message was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InboxError {
    /// The wrapper takes none, or has ended.
    Closed,
    /// It has as many as it may, or is being opened.
    Busy,
}

/// The parts of a running exporter that requests use.
#[derive(Clone)]
pub(crate) struct ExporterHandle {
    pub(crate) letters: Arc<DeadLetters>,
    /// Keeps them shared with the next run of this name.
    pub(super) _shared: Arc<SharedLetters>,
}

/// The parts of a running wrapper or exporter.
pub(crate) trait Handle: Clone {
    /// Its dead letters.
    fn letters(&self) -> &Arc<DeadLetters>;
}

impl Handle for WrapperHandle {
    fn letters(&self) -> &Arc<DeadLetters> {
        &self.letters
    }
}

impl Handle for ExporterHandle {
    fn letters(&self) -> &Arc<DeadLetters> {
        &self.letters
    }
}

/// All wrappers, or all exporters, by name: their rows, and the handles of those that run.
pub(crate) struct Table<R, H> {
    rows: Mutex<BTreeMap<String, R>>,
    handles: Mutex<BTreeMap<String, H>>,
    letters: Mutex<BTreeMap<String, Weak<SharedLetters>>>,
    /// Requests an immediate scan of the directory.
    pub(crate) rescan: Notify,
}

impl<R, H> Default for Table<R, H> {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            handles: Mutex::default(),
            letters: Mutex::default(),
            rescan: Notify::new(),
        }
    }
}

impl<R: Row, H: Handle> Table<R, H> {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<String, R>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<String, H>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or replaces a row.
    pub(crate) fn insert(&self, row: R) {
        let name = row.peer().name.clone();
        self.rows().insert(name, row);
    }

    /// Changes a row, if there is one.
    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut R)) {
        if let Some(row) = self.rows().get_mut(name) {
            change(row);
        }
    }

    /// Removes a row and its handle.
    pub(crate) fn remove(&self, name: &str) {
        self.rows().remove(name);
        self.handles().remove(name);
    }

    /// One row.
    pub(crate) fn get(&self, name: &str) -> Option<R> {
        self.rows().get(name).cloned()
    }

    /// Whether there is a row of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.rows().contains_key(name)
    }

    /// All rows, by name.
    pub(crate) fn all(&self) -> Vec<R> {
        self.rows().values().cloned().collect()
    }

    /// The dead letters of one, shared with those who use them already.
    pub(super) fn letters(&self, name: &str) -> Arc<SharedLetters> {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = letters.get(name).and_then(Weak::upgrade) {
            return used;
        }
        letters.retain(|_, letters| letters.strong_count() > 0);
        let new = Arc::<SharedLetters>::default();
        letters.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// Adds the handle of one that runs.
    pub(crate) fn set_handle(&self, name: &str, handle: H) {
        self.handles().insert(name.to_owned(), handle);
    }

    /// The handle of one that runs.
    pub(crate) fn handle(&self, name: &str) -> Option<H> {
        self.handles().get(name).cloned()
    }

    /// The number of rows in each state.
    pub(crate) fn counts(&self) -> [(&'static str, i64); 4] {
        let rows = self.rows();
        PeerState::ALL.map(|(state, word)| {
            let count = rows.values().filter(|row| row.peer().state == state);
            (word, i64::try_from(count.count()).unwrap_or(i64::MAX))
        })
    }
}

impl Wrappers {
    /// The wrappers of a kind that run, by name.
    pub(crate) fn handles_of(&self, kind: &str) -> Vec<WrapperHandle> {
        let handles = self.handles();
        let of_kind = handles.values().filter(|one| one.file.keys.kind == kind);
        of_kind.cloned().collect()
    }

    /// Whether a file of the directory is not read yet, or its wrapper not opened.
    pub(crate) fn is_starting(&self, directory: &Path) -> bool {
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names = files.filter_map(|file| {
            let path = file.path();
            let is_file = path
                .extension()
                .is_some_and(|extension| extension == "toml");
            let name = path.file_stem()?.to_str()?.to_owned();
            is_file.then_some(name)
        });
        let handles = self.handles();
        names.any(|name| {
            let is_invalid = || self.get(&name).is_some_and(|row| row.peer.error.is_some());
            !handles.contains_key(&name) && !is_invalid()
        })
    }
}

/// All wrappers.
pub(crate) type Wrappers = Table<Wrapper, WrapperHandle>;
/// All exporters.
pub(crate) type Exporters = Table<Exporter, ExporterHandle>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_comes_again_while_a_wrapper_is_opened() {
        let send = |inbox: &Inbox| {
            inbox.send(Inbound {
                body: Vec::new(),
                form: Default::default(),
                sender: Default::default(),
                reply: oneshot::channel().0,
            })
        };
        let inbox = Inbox::default();
        assert_eq!(send(&inbox), Err(InboxError::Busy), "it was never opened");
        let messages = inbox.open();
        assert_eq!(send(&inbox), Ok(()));
        drop(messages);
        assert_eq!(
            send(&inbox),
            Err(InboxError::Closed),
            "its kind accepts no messages"
        );
        inbox.close();
        assert_eq!(send(&inbox), Err(InboxError::Busy));
    }
}
