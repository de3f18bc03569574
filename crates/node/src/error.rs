//! Errors of starting a node, with hints.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use chappe_registry::JournalError;
use chappe_stream::StoreError;
use chappe_transport::signatures::SignatureFileError;

/// A node cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("cannot use data directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users can read or write the data directory.
    #[error("data directory {} has mode {mode:04o}: other users can access it", path.display())]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process uses the data directory.
    #[error("data directory {} is in use by process {process}", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Its process id.
        process: String,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] chappe_transport::key_file::Error),
    /// The TLS certificate of the HTTP server cannot be used.
    #[error("cannot set up TLS for HTTP: {0}")]
    Tls(#[from] chappe_transport::tls::FileError),
    /// The certificate or the authorities of devices cannot be used.
    #[error("cannot set up TLS with devices: {0}")]
    DeviceTls(chappe_transport::tls::FileError),
    /// The file with the token's hash cannot be used.
    #[error("cannot use token file {}: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file of accounts or of their owners cannot be used.
    #[error("cannot read the accounts: {0}")]
    Accounts(String),
    /// A log cannot be opened.
    #[error("cannot open log {}: {source}", path.display())]
    Log {
        /// Its directory.
        path: PathBuf,
        /// The cause.
        source: chappe_log::Error,
    },
    /// The streams of the log cannot be read.
    #[error("cannot read the streams of log {}: {source}", path.display())]
    Streams {
        /// Its directory.
        path: PathBuf,
        /// The cause.
        source: StoreError,
    },
    /// A newer program wrote a file of the data directory.
    #[error("cannot read {}: it has format version {found}, this program reads up to {known}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that is understood.
        known: u32,
    },
    /// The registry cannot be opened.
    #[error("cannot open registry {}: {source}", path.display())]
    Registry {
        /// Its directory.
        path: PathBuf,
        /// The cause.
        source: chappe_registry::Error,
    },
    /// The store of the registry cannot be reached or read.
    #[error("cannot open the registry: {reason}")]
    Store {
        /// The cause.
        reason: String,
    },
    /// A newer program wrote the store of the registry.
    #[error("cannot open the registry: {reason}")]
    NewerStore {
        /// The version that was found, and a hint.
        reason: String,
    },
    /// The files of what an operator decided about devices cannot be read.
    #[error("cannot read the decisions about devices: {reason}")]
    Devices {
        /// The file and the cause.
        reason: String,
    },
    /// A file of a checked value set cannot be read or is invalid.
    #[error("cannot read a value set of UDDI: {reason}")]
    Taxonomies {
        /// The file and the cause.
        reason: String,
    },
    /// An ontology cannot be read or is invalid.
    #[error("cannot read an ontology: {reason}")]
    Ontologies {
        /// The file and the cause.
        reason: String,
    },
    /// A link of the configuration is invalid.
    #[error("cannot start link {link:?}: {reason}")]
    Link {
        /// The link.
        link: String,
        /// The cause.
        reason: String,
        /// How to repair it.
        hint: Option<String>,
    },
    /// The DDS participant of the configuration is invalid.
    #[error("cannot use DDS: {reason}")]
    Dds {
        /// The cause.
        reason: String,
        /// How to repair it.
        hint: Option<String>,
    },
    /// The node cannot take part in the distributed hash table.
    #[error("cannot start kad: {reason}")]
    Kad {
        /// The cause.
        reason: String,
        /// How to repair it.
        hint: Option<String>,
    },
    /// The node cannot be a discovery proxy.
    #[error("cannot start discovery.proxy: {reason}")]
    DiscoveryProxy {
        /// The cause.
        reason: String,
        /// How to repair it.
        hint: Option<String>,
    },
    /// The node cannot listen on an address of the exchange.
    #[error("{key}: {source}")]
    Exchange {
        /// The configuration key.
        key: &'static str,
        /// The cause.
        source: chappe_transport::zeromq::Error,
    },
    /// The node cannot listen on its HTTP address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Signed messages cannot be judged, or answers not be signed.
    #[error(transparent)]
    Signatures(#[from] SignatureFileError),
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// The system provides no random numbers.
    #[error("cannot read random numbers from the system: {0}")]
    Random(io::Error),
}

impl StartError {
    /// Its code, which `chappe explain` explains.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Directory { .. } | Self::OpenDirectory { .. } => "data_unusable",
            Self::Locked { .. } => "data_in_use",
            Self::Key(_) => "key_file_refused",
            Self::Tls(_) | Self::DeviceTls(_) | Self::Signatures(_) => "certificate_not_usable",
            Self::Token { .. } | Self::Accounts(_) => "accounts_unusable",
            Self::NewerFormat { .. }
            | Self::Streams {
                source: StoreError::Log(chappe_log::Error::NewerFormat { .. }),
                ..
            }
            | Self::Registry {
                source: chappe_registry::Error::Journal(JournalError::NewerFormat { .. }),
                ..
            }
            | Self::NewerStore { .. } => "newer_format",
            Self::Log {
                source: chappe_log::Error::Full { .. },
                ..
            }
            | Self::Streams {
                source: StoreError::Log(chappe_log::Error::Full { .. }),
                ..
            } => "disk_full",
            Self::Log { .. } | Self::Streams { .. } => "data_damaged",
            Self::Registry { .. } | Self::Store { .. } => "registry_unusable",
            Self::Devices { .. }
            | Self::Taxonomies { .. }
            | Self::Ontologies { .. }
            | Self::Link { .. }
            | Self::Dds { .. }
            | Self::Kad { .. }
            | Self::DiscoveryProxy { .. } => "service_not_started",
            Self::Exchange { .. } | Self::Listen { .. } => "cannot_listen",
            Self::Config(_) => "configuration_invalid",
            Self::Random(_) => "failed",
        }
    }

    /// How to repair it, when known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Directory { path, source } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some(format!(
                    "make {} writable for this user, or use another directory: --set data_directory=DIR",
                    path.display()
                )),
                io::ErrorKind::ReadOnlyFilesystem => Some(
                    "start it with --set data_directory=DIR, a directory on a file system that is not read-only"
                        .to_owned(),
                ),
                io::ErrorKind::StorageFull => Some("free space on that disk".to_owned()),
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    Some("it is a file: set data_directory to a directory".to_owned())
                }
                _ => Some("set data_directory to a directory that this user can write".to_owned()),
            },
            Self::OpenDirectory { path, .. } => Some(format!("chmod 700 {}", path.display())),
            Self::Locked { process, .. } => Some(format!(
                "stop that node (kill {process}), or set another data_directory for this one"
            )),
            Self::Key(error) => error.hint(),
            Self::Tls(error) | Self::DeviceTls(error) => error.hint(),
            Self::Link { hint, .. }
            | Self::Dds { hint, .. }
            | Self::Kad { hint, .. }
            | Self::DiscoveryProxy { hint, .. } => hint.clone(),
            Self::Signatures(error) => error.hint(),
            Self::Devices { .. } => {
                Some("correct it, or remove it and run `chappe device exclude` again".to_owned())
            }
            Self::Taxonomies { .. } => Some(
                "correct the file or move it out of registry.taxonomies_directory".to_owned(),
            ),
            Self::Ontologies { .. } => Some(
                "correct the file or move it out of registry.ontologies_directory".to_owned(),
            ),
            Self::Exchange { source, .. } => source.hint(),
            Self::Token { path, .. } => Some(format!(
                "chmod 600 {0}; or remove {0}: the next start creates a new token",
                path.display()
            )),
            Self::Accounts(_) => Some(
                "restore the file from a backup; or move it away: the node then starts with its first \
                 administrator only"
                    .to_owned(),
            ),
            Self::Log { path, source } => match source {
                chappe_log::Error::Full { .. } => Some("free space on that disk".to_owned()),
                _ => Some(format!("chappe data check {}", parent(path))),
            },
            Self::NewerFormat { .. } => Some(
                "install the newer program again, or restore a backup from before the upgrade"
                    .to_owned(),
            ),
            // The message has the hint.
            Self::Streams {
                source: StoreError::Log(chappe_log::Error::NewerFormat { .. }),
                ..
            }
            | Self::Registry {
                source: chappe_registry::Error::Journal(JournalError::NewerFormat { .. }),
                ..
            }
            | Self::NewerStore { .. } => None,
            Self::Store { .. } => Some("check registry.postgres".to_owned()),
            Self::Streams { path, .. } | Self::Registry { path, .. } => {
                Some(format!("chappe data check {}", parent(path)))
            }
            Self::Listen { address, source } => match source.kind() {
                io::ErrorKind::AddrInUse => Some(format!(
                    "find the program that uses it: ss -ltnp 'sport = :{}'; or pick a free port: --set http.listen={}",
                    address.port(),
                    SocketAddr::new(address.ip(), 0)
                )),
                io::ErrorKind::AddrNotAvailable => {
                    Some("use an address of this host; `ip address` lists them".to_owned())
                }
                io::ErrorKind::PermissionDenied => {
                    Some("ports below 1024 need a privilege; use a higher port".to_owned())
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
    fn every_error_of_the_data_directory_has_a_hint() {
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
