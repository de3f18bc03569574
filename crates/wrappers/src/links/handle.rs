//! The handle: the links of a node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_stream::StreamStore;
use tokio::task::JoinHandle;

use super::dead_letters::DeadLetters;
use super::link::Link;
use super::{DeadLetter, LinkConfig, LinkError, LinkHost, LinkState, LinkStatus, LinksConfig};

/// The links of a node, and what it serves to links of others. Clones share it.
#[derive(Clone)]
pub struct Links(Arc<Shared>);

/// What all links and all serving share.
pub(crate) struct Shared {
    /// The node.
    pub(crate) host: Arc<dyn LinkHost>,
    /// Its streams.
    pub(crate) store: StreamStore,
    /// The bounds.
    pub(crate) config: LinksConfig,
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    link: Arc<Link>,
    task: JoinHandle<()>,
}

impl Links {
    /// No links yet. `store` holds the streams and the dead letters.
    #[must_use]
    pub fn new(host: Arc<dyn LinkHost>, store: StreamStore, config: LinksConfig) -> Self {
        Self(Arc::new(Shared {
            host,
            store,
            config,
            running: Mutex::default(),
        }))
    }

    /// Adds a link, which begins at once. Call it within a runtime.
    ///
    /// # Errors
    /// What is wrong with it, or one link too many.
    pub fn add(&self, config: LinkConfig) -> Result<(), LinkError> {
        config.check()?;
        let mut running = self.running();
        if running.contains_key(&config.name) {
            return Err(LinkError::Exists(config.name));
        }
        if running.len() >= self.0.config.links {
            return Err(LinkError::TooMany(running.len()));
        }
        let name = config.name.clone();
        let letters = DeadLetters::open(&self.0.store, &config)?;
        let link = Arc::new(Link::new(self.0.clone(), config, letters));
        let task = tokio::spawn(super::link::run(link.clone()));
        running.insert(name, Running { link, task });
        Ok(())
    }

    /// Ends and forgets a link. What it stored stays, and so do its dead letters.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn remove(&self, name: &str) -> Result<(), LinkError> {
        let removed = self.running().remove(name);
        let removed = removed.ok_or_else(|| LinkError::Unknown(name.to_owned()))?;
        removed.link.end(LinkState::Ended);
        removed.task.abort();
        Ok(())
    }

    /// All links, by name.
    #[must_use]
    pub fn list(&self) -> Vec<LinkStatus> {
        let links: Vec<Arc<Link>> = self.running().values().map(|it| it.link.clone()).collect();
        links.iter().map(|link| link.status()).collect()
    }

    /// One link.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn show(&self, name: &str) -> Result<LinkStatus, LinkError> {
        Ok(self.link(name)?.status())
    }

    /// Dead letters of a link from number `from` on (0: the oldest), at most `count`. Those that were
    /// sent again are not among them.
    ///
    /// # Errors
    /// There is no such link, or what the log says.
    pub fn dead_letters(
        &self,
        name: &str,
        from: u64,
        count: usize,
    ) -> Result<Vec<DeadLetter>, LinkError> {
        self.link(name)?.letters.list(from, count)
    }

    /// Tries once more to store a dead letter in its stream; returns when it is stored.
    ///
    /// # Errors
    /// There is no such link or letter, or it still does not fit.
    pub async fn send_again(&self, name: &str, number: u64) -> Result<(), LinkError> {
        let link = self.link(name)?;
        link.send_again(number).await
    }

    /// Ends all links, and whatever is served to others.
    pub fn close(&self) {
        for (_, removed) in std::mem::take(&mut *self.running()) {
            removed.link.end(LinkState::Ended);
            removed.task.abort();
        }
    }

    pub(crate) fn link(&self, name: &str) -> Result<Arc<Link>, LinkError> {
        let running = self.running();
        let found = running.get(name).map(|it| it.link.clone());
        found.ok_or_else(|| LinkError::Unknown(name.to_owned()))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
