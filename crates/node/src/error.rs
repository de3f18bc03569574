//! Why a node does not start, and what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("data directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Other users can read or write the data directory.
    #[error("data directory {} has mode {mode:04o}: other users can get at it", path.display())]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another node has the data directory.
    #[error("data directory {} is in use by process {process}", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The number of the process.
        process: String,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] chappe_transport::key_file::Error),
    /// The certificate of HTTP cannot be used.
    #[error("TLS of HTTP: {0}")]
    Tls(#[from] chappe_transport::tls::FileError),
    /// The file that recognizes the token cannot be used.
    #[error("token file {}: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// A log does not open.
    #[error("log {}: {source}", path.display())]
    Log {
        /// Its directory.
        path: PathBuf,
        /// Why not.
        source: chappe_log::Error,
    },
    /// The streams of the log are not understood.
    #[error("log {}: {reason}", path.display())]
    Streams {
        /// Its directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The registry does not open.
    #[error("registry {}: {source}", path.display())]
    Registry {
        /// Its directory.
        path: PathBuf,
        /// Why not.
        source: chappe_registry::Error,
    },
    /// A link of the configuration cannot be one.
    #[error("link {link:?}: {reason}")]
    Link {
        /// The link.
        link: String,
        /// Why not.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// What the configuration says of DDS topics cannot be.
    #[error("dds: {reason}")]
    Dds {
        /// Why not.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The distributed hash table cannot be taken part in.
    #[error("kad: {reason}")]
    Kad {
        /// Why not.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// An address of the exchange cannot be listened on.
    #[error("{key}: {source}")]
    Exchange {
        /// The key of the configuration.
        key: &'static str,
        /// Why not.
        source: chappe_transport::zeromq::Error,
    },
    /// The address cannot be listened on.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// The system gives no randomness.
    #[error("no randomness: {0}")]
    Random(io::Error),
}

impl StartError {
    /// What to do, when it is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Directory { path, source } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Some(format!(
                        "make {} writable for this user, or name another with data_directory",
                        path.display()
                    ))
                }
                io::ErrorKind::StorageFull => Some("make room on that disk".to_owned()),
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    Some("a file has that name: name a directory with data_directory".to_owned())
                }
                _ => Some("name one that can be made and written with data_directory".to_owned()),
            },
            Self::OpenDirectory { path, .. } => Some(format!("chmod 700 {}", path.display())),
            Self::Locked { process, .. } => Some(format!(
                "end that node (kill {process}), or give this one another data_directory"
            )),
            Self::Key(error) => error.hint(),
            Self::Tls(error) => error.hint(),
            Self::Link { hint, .. } | Self::Dds { hint, .. } | Self::Kad { hint, .. } => {
                hint.clone()
            }
            Self::Exchange { source, .. } => source.hint(),
            Self::Token { path, .. } => Some(format!(
                "chmod 600 {0}; or remove {0}: the next start makes a new token",
                path.display()
            )),
            Self::Log { path, source } => match source {
                chappe_log::Error::Full { .. } => Some("make room on that disk".to_owned()),
                chappe_log::Error::NewerFormat { .. } => None,
                _ => Some(format!("chappe data check {}", parent(path))),
            },
            Self::Streams { path, .. } | Self::Registry { path, .. } => {
                Some(format!("chappe data check {}", parent(path)))
            }
            Self::Listen { address, source } => match source.kind() {
                io::ErrorKind::AddrInUse => Some(format!(
                    "see who has it: ss -ltnp 'sport = :{}'; or take a free one: --set http.listen={}:0",
                    address.port(),
                    address.ip()
                )),
                io::ErrorKind::AddrNotAvailable => {
                    Some("that address is not this host's: see ip address".to_owned())
                }
                io::ErrorKind::PermissionDenied => {
                    Some("ports below 1024 need a privilege; take a higher one".to_owned())
                }
                _ => None,
            },
            Self::Config(_) | Self::Random(_) => None,
        }
    }
}

fn parent(path: &std::path::Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_wrong_with_the_data_directory_has_a_hint() {
        // EACCES, EROFS, ENOSPC, EEXIST, ENOTDIR, ENOENT, EIO.
        for code in [13, 30, 28, 17, 20, 2, 5] {
            let error = StartError::Directory {
                path: PathBuf::from("data"),
                source: io::Error::from_raw_os_error(code),
            };
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
