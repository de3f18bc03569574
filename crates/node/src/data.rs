//! The data directory: locked for one node, with the key, the token and the two logs.
//!
//! ```text
//! lock        id of the process that uses the directory
//! key.pem     the node's key, 0600
//! http.pem    the self-signed certificate with its key, 0600, if configured
//! token       the hash of the token, 0600; the next start creates a new token if you remove it
//! new-token   the token itself, 0600, written when it is created; remove it once you have it
//! accounts.json, owners.json, rights.json, charged.json, changes.json
//!             accounts with the hashes of their tokens, what they own, rights to the node's entities, and what
//!             counts for accounts, 0600
//! run-state   when this run was last alive, and how far streams of level memory are acknowledged
//! links.json, subscriptions.json
//!             links and subscriptions added at run time, 0600
//! places.json, excluded-devices.json, device-profiles.json
//!             places and exclusions that an operator or a rule decided, and what the rule compares, 0600
//! log/        all streams
//! registry/   the registry's journal, which the log's size limit must not cut
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_identity::{Key, Token, TokenHash};
use chappe_log::Store;
use chappe_transport::key_file;
use chappe_transport::tls::{self, Files, Mutual};

use crate::StartError;
use crate::accounts::{
    ACCOUNTS, Accounts, CHANGES, CHARGED, OWNERS, Owners, RIGHTS, Shares, StatedRights,
};
use crate::config::{Config, HttpTls};
use crate::devices::{EXCLUSIONS, PLACES, PROFILES};
use crate::links::{LINKS, SUBSCRIPTIONS, StateFile};

/// The file with a new token in clear text, which no backup copies.
const NEW_TOKEN: &str = "new-token";

/// The files of a data directory that hold secrets or decisions: key, certificate, token, accounts with what they own,
/// rights, links and subscriptions with their secrets, places and exclusions of devices. Not every node has all of them.
pub const SECRET_FILES: [&str; 11] = [
    "key.pem",
    "http.pem",
    "token",
    ACCOUNTS,
    OWNERS,
    RIGHTS,
    LINKS,
    SUBSCRIPTIONS,
    PLACES,
    EXCLUSIONS,
    PROFILES,
];

/// The directory of the log within a data directory.
#[must_use]
pub fn log_directory(data_directory: &Path) -> PathBuf {
    data_directory.join("log")
}

/// The directory of the registry's journal within a data directory.
#[must_use]
pub fn registry_directory(data_directory: &Path) -> PathBuf {
    data_directory.join("registry")
}

/// Locks the data directory for this process until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks the directory, and creates it if it does not exist.
    pub(crate) fn acquire(directory: &Path) -> Result<Self, StartError> {
        let refused = |source| StartError::Directory {
            path: directory.to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(refused)?;
        // An existing directory may be open to other users, which would expose its contents.
        let mode = fs::metadata(directory)
            .map_err(refused)?
            .permissions()
            .mode()
            & 0o7777;
        if mode & 0o077 != 0 {
            return Err(StartError::OpenDirectory {
                path: directory.to_owned(),
                mode,
            });
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(directory.join("lock"));
        let mut file = file.map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The message is still correct without the process id.
                let _ = file.read_to_string(&mut pid);
                return Err(StartError::Locked {
                    path: directory.to_owned(),
                    process: pid.trim().to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(refused(source)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(refused)?;
        Ok(Self { _file: file })
    }
}

/// Checks that no other user can access the existing files with secrets.
pub(crate) fn check_secrets(directory: &Path) -> Result<(), StartError> {
    for file in SECRET_FILES.into_iter().chain([NEW_TOKEN]) {
        key_file::open_private(&directory.join(file))?;
    }
    Ok(())
}

/// The hash of the node's token, and the token itself if this call creates it.
pub(crate) fn read_or_create_token(
    directory: &Path,
) -> Result<(TokenHash, Option<Token>), StartError> {
    let path = directory.join("token");
    let refused = |source| StartError::Token {
        path: path.clone(),
        source,
    };
    match fs::read_to_string(&path) {
        Ok(text) => {
            let hash = text.trim().parse();
            let hash = hash.map_err(|error| refused(io::Error::other(format!("{error}"))))?;
            Ok((hash, None))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = Token::from_seed(chappe_transport::seed().map_err(refused)?);
            // Write the clear text first: a crash in between leaves no hash of a lost token.
            let clear = new_token_path(directory);
            let written = match fs::remove_file(&clear) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => write_private(&clear, &token.reveal()),
            };
            written.map_err(|source| StartError::Token {
                path: clear,
                source,
            })?;
            write_private(&path, &token.hash().to_string()).map_err(refused)?;
            Ok((token.hash(), Some(token)))
        }
        Err(error) => Err(refused(error)),
    }
}

/// The accounts of the node, and the owners of what they made.
pub(crate) fn accounts(
    directory: &Path,
    operator: TokenHash,
) -> Result<(Accounts, Arc<Owners>), StartError> {
    let accounts = Accounts::open(operator, StateFile::new(directory, ACCOUNTS));
    let accounts = accounts.map_err(StartError::Accounts)?;
    let rights = StatedRights::open(StateFile::new(directory, RIGHTS));
    let rights = rights.map_err(StartError::Accounts)?;
    let owners = Owners::open(StateFile::new(directory, OWNERS), rights);
    let owners = owners.map_err(StartError::Accounts)?;
    Ok((accounts, Arc::new(owners)))
}

/// The shares of the accounts.
///
/// # Errors
/// One of their files cannot be read.
pub(crate) fn shares(
    config: &Config,
    log_bytes: Option<u64>,
    log: &Store,
) -> Result<Shares, StartError> {
    let file = StateFile::new(&config.data_directory, CHARGED);
    let changes = StateFile::new(&config.data_directory, CHANGES);
    let shares = Shares::open(config, log_bytes, log.clone(), file, changes);
    shares.map_err(StartError::Accounts)
}

/// The file with a new token of the node in `directory`.
pub(crate) fn new_token_path(directory: &Path) -> PathBuf {
    directory.join(NEW_TOKEN)
}

/// Writes one line to a new file that only its owner may read.
fn write_private(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}

/// Loads or creates the TLS certificate of the configuration.
pub(crate) fn tls(
    config: &Config,
    name: &str,
    key: &Key,
) -> Result<Option<tls::Server>, StartError> {
    let settings = &config.http.tls;
    if !settings.enabled() {
        return Ok(None);
    }
    if !settings.self_signed {
        let server = tls::Server::from_files(&settings.certificate, &settings.key)?;
        return Ok(Some(with_clients(settings, server)?));
    }
    let mut names = config.http.hosts.clone();
    names.extend([host_name(), config.http.listen.ip().to_string()]);
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    let path = config.data_directory.join("http.pem");
    let uri = format!("urn:chappe:node:{}", key.public());
    let (server, _) = tls::Server::self_signed(&path, name, &uri, &names)?;
    Ok(Some(with_clients(settings, server)?))
}

/// TLS with devices, by the configuration. Without trust in anybody it shows which certificate a device has.
///
/// # Errors
/// A file cannot be used.
pub(crate) fn device_tls(config: &Config, name: &str, key: &Key) -> Result<Mutual, StartError> {
    let settings = &config.devices.tls;
    if !settings.trusts() {
        return Ok(Mutual::anonymous());
    }
    let files = settings.files(&config.data_directory);
    let files = files.map_err(|(key, problem)| StartError::Config(format!("{key}: {problem}")))?;
    let files = Files {
        is_proxy: config.discovery.proxy.tls,
        ..files
    };
    let uri = format!("urn:chappe:node:{}", key.public());
    files.load(name, &uri).map_err(StartError::DeviceTls)
}

/// Lets clients show certificates, if their authorities are configured.
fn with_clients(settings: &HttpTls, server: tls::Server) -> Result<tls::Server, StartError> {
    match settings.client_authorities.as_os_str().is_empty() {
        true => Ok(server),
        false => {
            let lists = &settings.client_revocation_lists;
            let lists = (!lists.as_os_str().is_empty()).then_some(lists.as_path());
            Ok(server.with_client_authorities(&settings.client_authorities, lists)?)
        }
    }
}

/// The public keys and fingerprint by which others recognize a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicIdentity {
    /// Its public key, hexadecimal.
    pub key: String,
    /// Its public CURVE key (Z85), which readers over ZeroMQ need.
    pub curve_key: String,
    /// The fingerprint of its certificate (SHA-256, hexadecimal), if TLS is on.
    pub fingerprint: Option<String>,
    /// The fingerprint of the certificate that it shows to devices, if it trusts any.
    pub device_fingerprint: Option<String>,
}

/// The public identity of the node with this configuration, whether it runs or not; `None` while it
/// has no key yet.
///
/// # Errors
/// The files cannot be read.
pub fn public_identity(config: &Config) -> Result<Option<PublicIdentity>, StartError> {
    let Some(key) = key_file::read(&config.data_directory.join("key.pem"))? else {
        return Ok(None);
    };
    let has_certificate =
        !config.http.tls.self_signed || config.data_directory.join("http.pem").exists();
    let tls = match has_certificate {
        true => tls(config, "", &key)?,
        false => None,
    };
    Ok(Some(PublicIdentity {
        key: key.public().to_string(),
        curve_key: key.curve().public().to_z85(),
        fingerprint: tls.map(|tls| tls.fingerprint().to_string()),
        device_fingerprint: device_tls(config, &crate::identity::name(config), &key)?
            .fingerprint()
            .map(|it| it.to_string()),
    }))
}

/// The name of this host; empty where the system does not provide it.
pub(crate) fn host_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_fails_and_names_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("data");
        let lock = Lock::acquire(&directory).unwrap();
        let error = Lock::acquire(&directory).unwrap_err();
        let process = std::process::id().to_string();
        assert!(error.to_string().contains(&process), "{error}");
        drop(lock);
        Lock::acquire(&directory).unwrap();
    }

    #[test]
    fn a_new_token_is_only_in_its_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let (hash, made) = read_or_create_token(directory.path()).unwrap();
        let made = made.unwrap();
        assert!(hash.accepts(&made));
        let (again, none) = read_or_create_token(directory.path()).unwrap();
        assert!(again.accepts(&made) && none.is_none());
        let path = directory.path().join("token");
        assert!(!fs::read_to_string(&path).unwrap().contains(&made.reveal()));
        let clear = new_token_path(directory.path());
        assert_eq!(fs::read_to_string(&clear).unwrap().trim(), made.reveal());
        let mode = fs::metadata(&clear).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::remove_file(&path).unwrap();
        let (_, next) = read_or_create_token(directory.path()).unwrap();
        let next = next
            .expect("a new token after its hash was removed")
            .reveal();
        assert_ne!(next, made.reveal());
        assert_eq!(fs::read_to_string(&clear).unwrap().trim(), next);
    }

    #[test]
    fn files_and_directories_open_to_other_users_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for file in SECRET_FILES.into_iter().chain([NEW_TOKEN]) {
            let path = directory.path().join(file);
            fs::write(&path, "").unwrap();
            mode(&path, 0o640);
            let error = check_secrets(directory.path()).unwrap_err();
            assert!(error.to_string().contains(file), "{error}");
            assert!(error.hint().unwrap().contains("chmod 600"), "{error}");
            mode(&path, 0o600);
            check_secrets(directory.path()).unwrap();
        }
        for open in [0o755, 0o770, 0o701] {
            mode(directory.path(), open);
            let error = Lock::acquire(directory.path()).unwrap_err();
            assert!(matches!(error, StartError::OpenDirectory { .. }), "{error}");
            assert!(error.hint().unwrap().contains("chmod 700"), "{error}");
        }
        mode(directory.path(), 0o700);
        Lock::acquire(directory.path()).unwrap();
    }
}
