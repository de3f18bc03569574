//! The event sources of WS-Eventing: those that run, and their subscriptions as they are stored.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_dpws::exchange::Reply;
use chappe_identity::{Reach, Role};
use chappe_soap::Envelope;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::stored::About;
use crate::accounts::Caller;
use crate::config::Read;
use crate::links::StateFile;
use crate::shared::App;

/// The file of subscriptions in the data directory.
const FILE: &str = "registry-event-subscriptions.json";

/// Requests to an event source, each with where its answer goes.
pub(super) type Inputs = mpsc::Sender<(Request, oneshot::Sender<Reply>)>;

/// A request to an event source or a subscription manager.
pub(crate) struct Request {
    pub(crate) peer: SocketAddr,
    /// Scheme, host and port.
    pub(crate) base: String,
    pub(crate) path: String,
    pub(crate) envelope: Envelope,
}

/// Whose rights decide what is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Subscriber {
    Anonymous,
    Operator,
    /// The account with the time of its creation.
    Account(String),
}

impl Subscriber {
    pub(super) fn of(caller: &Caller) -> Self {
        match caller.session() {
            Some(session) => Self::Account(session),
            None if caller.is_anonymous() => Self::Anonymous,
            None => Self::Operator,
        }
    }

    /// The caller as it is now, if it may still read the registry.
    pub(super) fn caller(&self, app: &App) -> Option<Caller> {
        let caller = match self {
            Self::Anonymous => Caller::default(),
            Self::Operator => Caller::operator(),
            Self::Account(session) => app.accounts.of_session(session).ok()?,
        };
        let caller = match app.config.access.read {
            Read::Open => caller.with_open_reading(),
            Read::Token => caller,
        };
        (caller.reach(Role::Read) == Reach::All).then_some(caller)
    }
}

/// What an event source is about, and for whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Audience {
    pub(super) subscriber: Subscriber,
    pub(super) about: About,
}

/// A running event source.
pub(super) struct Source {
    pub(super) audience: Audience,
    pub(super) inputs: Inputs,
}

/// An event source with its subscriptions, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSource {
    /// Its number, which the addresses of its subscription managers have.
    pub(super) number: u64,
    pub(super) audience: Audience,
    /// Up to where all subscribers have its events.
    pub(super) mark: Option<String>,
    pub(super) subscriptions: Vec<StoredSubscription>,
}

/// A subscription by WS-Eventing, as it is stored: its Subscribe, which is read again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSubscription {
    /// Its identifier, as in the path of its manager.
    pub(super) id: String,
    pub(super) peer: SocketAddr,
    pub(super) base: String,
    pub(super) message: String,
    /// Milliseconds of the lease that are left. It counts only while the node runs, so that no step of a clock
    /// ends it.
    pub(super) left_ms: u64,
}

/// The event sources by number.
#[derive(Default)]
pub(super) struct State {
    /// The number of the newest one.
    pub(super) last: u64,
    pub(super) running: HashMap<u64, Source>,
    stored: BTreeMap<u64, StoredSource>,
}

/// The event sources of the node.
pub(crate) struct Events {
    /// Locked while it is written, and before the state.
    file: Mutex<StateFile<StoredSource>>,
    state: Mutex<State>,
    tasks: Mutex<JoinSet<()>>,
}

impl Events {
    /// None yet; their subscriptions are stored in this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            file: Mutex::new(StateFile::new(directory, FILE)),
            state: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what an earlier run stored.
    pub(super) fn read(&self) -> Result<Vec<StoredSource>, String> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file.read()?;
        let mut state = self.lock();
        state.last = read.iter().map(|source| source.number).max().unwrap_or(0);
        state.stored = read
            .iter()
            .map(|source| (source.number, source.clone()))
            .collect();
        Ok(read)
    }

    /// Stores a source, or removes it if it has no subscriptions. It waits for the disk.
    pub(super) fn store(&self, source: StoredSource) -> std::io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<StoredSource> = {
            let mut state = self.lock();
            match source.subscriptions.is_empty() {
                true => state.stored.remove(&source.number),
                false => state.stored.insert(source.number, source),
            };
            state.stored.values().cloned().collect()
        };
        file.write(&all)
    }

    /// Runs a source.
    pub(super) fn spawn(&self, source: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(source);
    }

    /// Waits until all sources have ended, for a limited time.
    pub(super) async fn ended(&self, limit: Duration) {
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await;
    }
}
