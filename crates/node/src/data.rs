//! The data directory: locked for one node, with the key, the token and the two logs.
//!
//! ```text
//! lock        the process that has it
//! key.pem     the node's key, 0600
//! http.pem    the certificate of its own making with its key, 0600, where one is asked for
//! token       the hash of the token, 0600; the next start makes a new token if you remove it
//! new-token   the token itself, 0600, written when it is made; remove it once you have it
//! links.json, subscriptions.json
//!             what was added while the node ran, 0600
//! log/        all streams
//! registry/   the registry's journal, which the log's size limit must not cut
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use chappe_identity::{Key, Token, TokenHash};
use chappe_transport::{key_file, tls};

use crate::StartError;
use crate::config::Config;
use crate::links::{LINKS, SUBSCRIPTIONS};

/// The file with a new token in clear text, which no backup copies.
const NEW_TOKEN: &str = "new-token";

/// The files of a data directory that hold secrets: key, certificate, token, and links and
/// subscriptions with theirs. Not every node has all of them.
pub const SECRET_FILES: [&str; 5] = ["key.pem", "http.pem", "token", LINKS, SUBSCRIPTIONS];

/// Where the log of a node lies under its data directory.
#[must_use]
pub fn log_directory(data_directory: &Path) -> PathBuf {
    data_directory.join("log")
}

/// Where the journal of a node's registry lies under its data directory.
#[must_use]
pub fn registry_directory(data_directory: &Path) -> PathBuf {
    data_directory.join("registry")
}

/// Holds the data directory for this process, as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the directory, making it if need be.
    pub(crate) fn take(directory: &Path) -> Result<Self, StartError> {
        let refused = |source| StartError::Directory {
            path: directory.to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(refused)?;
        // One that was there before may be open to other users, and so would be all in it.
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
                // Without the number the message is still right.
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

/// Checks that each file with secrets that is there belongs to its owner alone.
pub(crate) fn check_secrets(directory: &Path) -> Result<(), StartError> {
    for file in SECRET_FILES.into_iter().chain([NEW_TOKEN]) {
        key_file::open_private(&directory.join(file))?;
    }
    Ok(())
}

/// The hash of the node's token, and the token itself if this start makes it.
pub(crate) fn token(directory: &Path) -> Result<(TokenHash, Option<Token>), StartError> {
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
            // The clear text first: a crash in between leaves no hash of a token that is lost.
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

/// The file with a new token of the node in `directory`.
pub(crate) fn new_token_path(directory: &Path) -> PathBuf {
    directory.join(NEW_TOKEN)
}

/// Writes one line to a new file that only its owner can read.
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

/// TLS as the configuration wants it.
pub(crate) fn tls(
    config: &Config,
    name: &str,
    key: &Key,
) -> Result<Option<tls::Server>, StartError> {
    let wanted = &config.http.tls;
    if !wanted.enabled() {
        return Ok(None);
    }
    if !wanted.self_signed {
        let server = tls::Server::from_files(&wanted.certificate, &wanted.key)?;
        return Ok(Some(server));
    }
    let mut names = config.http.hosts.clone();
    names.extend([host(), config.http.listen.ip().to_string()]);
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    let path = config.data_directory.join("http.pem");
    let uri = format!("urn:chappe:node:{}", key.public());
    let (server, _) = tls::Server::self_signed(&path, name, &uri, &names)?;
    Ok(Some(server))
}

/// What others recognize a node by: nothing of it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognized {
    /// Its public key, hexadecimal.
    pub key: String,
    /// Its public CURVE key (Z85), which readers over ZeroMQ have to know.
    pub curve_key: String,
    /// The fingerprint of its certificate (SHA-256, hexadecimal), if it speaks TLS.
    pub fingerprint: Option<String>,
}

/// What others recognize the node of this configuration by, whether it runs or not; `None` when it
/// has no key yet.
///
/// # Errors
/// When its files cannot be read.
pub fn recognized(config: &Config) -> Result<Option<Recognized>, StartError> {
    let Some(key) = key_file::read(&config.data_directory.join("key.pem"))? else {
        return Ok(None);
    };
    let made = !config.http.tls.self_signed || config.data_directory.join("http.pem").exists();
    let tls = match made {
        true => tls(config, "", &key)?,
        false => None,
    };
    Ok(Some(Recognized {
        key: key.public().to_string(),
        curve_key: key.curve().public().to_z85(),
        fingerprint: tls.map(|tls| tls.fingerprint().to_string()),
    }))
}

/// The name of this host; empty where the system does not say.
pub(crate) fn host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_at_a_time_and_the_second_is_told_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("data");
        let lock = Lock::take(&directory).unwrap();
        let error = Lock::take(&directory).unwrap_err();
        let process = std::process::id().to_string();
        assert!(error.to_string().contains(&process), "{error}");
        drop(lock);
        Lock::take(&directory).unwrap();
    }

    #[test]
    fn a_new_token_is_only_in_its_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let (hash, made) = token(directory.path()).unwrap();
        let made = made.unwrap();
        assert!(hash.accepts(&made));
        let (again, none) = token(directory.path()).unwrap();
        assert!(again.accepts(&made) && none.is_none());
        let path = directory.path().join("token");
        assert!(!fs::read_to_string(&path).unwrap().contains(&made.reveal()));
        let clear = new_token_path(directory.path());
        assert_eq!(fs::read_to_string(&clear).unwrap().trim(), made.reveal());
        let mode = fs::metadata(&clear).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::remove_file(&path).unwrap();
        let (_, next) = token(directory.path()).unwrap();
        let next = next.expect("a removed hash brings a new token").reveal();
        assert_ne!(next, made.reveal());
        assert_eq!(fs::read_to_string(&clear).unwrap().trim(), next);
    }

    #[test]
    fn what_other_users_can_read_or_write_is_refused() {
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
            let error = Lock::take(directory.path()).unwrap_err();
            assert!(matches!(error, StartError::OpenDirectory { .. }), "{error}");
            assert!(error.hint().unwrap().contains("chmod 700"), "{error}");
        }
        mode(directory.path(), 0o700);
        Lock::take(directory.path()).unwrap();
    }
}
