//! The links of a node, and the changes that outlive a restart.

use std::sync::{Arc, Mutex, PoisonError};

use chappe_links::{LinkConfig, LinkError, Links, PeerStatus};
use chappe_transport::key_file;
use tokio::task::AbortHandle;

use super::kept::Kept;
use super::listen::Listening;
use super::opening::Opening;

/// The links of a node, and which of them the configuration names.
pub(crate) struct Exchange {
    pub(super) links: Links,
    pub(super) configured: Vec<String>,
    pub(super) listening: Listening,
    /// What serves others over ZeroMQ.
    pub(super) serving: Mutex<Vec<AbortHandle>>,
    pub(super) kept: Kept<LinkConfig>,
    pub(super) opening: Arc<Opening>,
    /// Those added while the node runs, as they are kept; locked while the file is written.
    pub(super) added: Mutex<Vec<LinkConfig>>,
}

/// Why a link is not added or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The configuration names it.
    #[error("the link {0:?} stands in the node's configuration")]
    Configured(String),
    /// The node has not started its links yet.
    #[error("the node is starting its links")]
    Starting,
    /// The file of its token cannot be used.
    #[error(transparent)]
    TokenFile(#[from] key_file::Error),
    /// The links refuse.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// What was changed cannot be kept.
    #[error("the change cannot be kept over a restart: {0}")]
    NotKept(#[from] std::io::Error),
}

impl ChangeError {
    /// What can be done.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Configured(_) => {
                Some("change it under [[links]] in node.toml and start the node anew".to_owned())
            }
            Self::Starting => Some("try again in a moment".to_owned()),
            Self::TokenFile(error) => error.hint(),
            Self::Link(error) => error.hint(),
            Self::NotKept(_) => Some("make room on the disk of the data directory".to_owned()),
        }
    }
}

impl Exchange {
    /// Ends all links and what is served to others.
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

    /// Who reads here.
    pub(crate) fn peers(&self) -> Vec<PeerStatus> {
        self.links.peers()
    }

    /// Where others can read here.
    pub(crate) fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// Whether the configuration names a link.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|known| known == name)
    }

    /// Adds a link and keeps it.
    pub(super) fn add(&self, link: LinkConfig) -> Result<(), ChangeError> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.links.add(with_token(&link)?)?;
        let mut wanted = added.clone();
        wanted.push(link.clone());
        if let Err(error) = self.kept.write(&wanted) {
            // What would be gone after a restart is not there now either.
            let _ = self.links.remove(&link.name);
            return Err(error.into());
        }
        *added = wanted;
        Ok(())
    }

    /// Removes a link and keeps it no more.
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

/// The link with the token that its file holds, if it names one.
pub(super) fn with_token(link: &LinkConfig) -> Result<LinkConfig, ChangeError> {
    let mut link = link.clone();
    if let Some(path) = link.token_file.take() {
        let text = key_file::read_secret(&path)?;
        link.token = Some(text.trim().to_owned());
    }
    Ok(link)
}
