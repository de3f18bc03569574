//! The links of a node, and changes of them that survive a restart.

use std::sync::{Arc, Mutex, PoisonError};

use chappe_links::{LinkConfig, LinkError, Links, PeerStatus};
use chappe_transport::key_file;
use tokio::task::AbortHandle;

use super::kept::StateFile;
use super::listen::Listening;
use super::opening::PendingOpens;

/// The links of a node, both configured and added at run time.
pub(crate) struct Exchange {
    pub(super) links: Links,
    pub(super) configured: Vec<String>,
    pub(super) listening: Listening,
    /// The tasks that serve others over ZeroMQ.
    pub(super) serving: Mutex<Vec<AbortHandle>>,
    pub(super) kept: StateFile<LinkConfig>,
    pub(super) opening: Arc<PendingOpens>,
    /// The links added at run time, as saved; locked while the file is being written.
    pub(super) added: Mutex<Vec<LinkConfig>>,
}

/// A link cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The configuration defines it.
    #[error("the node's configuration defines the link {0:?}")]
    Configured(String),
    /// The node has not started its links yet.
    #[error("the node is starting its links")]
    Starting,
    /// The file of its token cannot be used.
    #[error(transparent)]
    TokenFile(#[from] key_file::Error),
    /// The link is invalid or cannot be changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The change cannot be saved.
    #[error("the change cannot be saved: {0}")]
    NotSaved(#[from] std::io::Error),
}

impl ChangeError {
    /// How to repair it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Configured(_) => {
                Some("change it under [[links]] in node.toml and restart the node".to_owned())
            }
            Self::Starting => Some("retry in a moment".to_owned()),
            Self::TokenFile(error) => error.hint(),
            Self::Link(error) => error.hint(),
            Self::NotSaved(_) => Some("free space on the disk of the data directory".to_owned()),
        }
    }
}

impl Exchange {
    /// Ends all links and all tasks that serve others.
    pub(crate) fn close(&self) {
        self.links.close();
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        for task in serving.drain(..) {
            task.abort();
        }
    }

    /// The links.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// The peers that read here.
    pub(crate) fn peers(&self) -> Vec<PeerStatus> {
        self.links.peers()
    }

    /// The addresses at which others can read.
    pub(crate) fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// Whether the configuration defines a link.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|known| known == name)
    }

    /// Adds a link and saves it.
    pub(super) fn add(&self, link: LinkConfig) -> Result<(), ChangeError> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.links.add(with_token(&link)?)?;
        let mut wanted = added.clone();
        wanted.push(link.clone());
        if let Err(error) = self.kept.write(&wanted) {
            // A link that would not survive a restart is not added at all.
            let _ = self.links.remove(&link.name);
            return Err(error.into());
        }
        *added = wanted;
        Ok(())
    }

    /// Removes a link, also from the saved file.
    pub(super) fn remove(&self, name: &str) -> Result<(), ChangeError> {
        if self.is_configured(name) {
            return Err(ChangeError::Configured(name.to_owned()));
        }
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.links.show(name)?;
        let mut wanted = added.clone();
        wanted.retain(|link| link.name != name);
        self.kept.write(&wanted)?;
        *added = wanted;
        Ok(self.links.remove(name)?)
    }
}

/// The link with the token from its token file, if it names one.
pub(super) fn with_token(link: &LinkConfig) -> Result<LinkConfig, ChangeError> {
    let mut link = link.clone();
    if let Some(path) = link.token_file.take() {
        let text = key_file::read_secret(&path)?;
        link.token = Some(text.trim().to_owned());
    }
    Ok(link)
}
