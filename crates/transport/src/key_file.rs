//! Key files (PKCS#8 PEM, readable by their owner only), other files with secrets, and files of limited length.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use chappe_identity::Key;

/// The largest key file.
const KEY_FILE_BYTES_MAX: u64 = 16 << 10;

/// The reason why a key file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read or written.
    #[error("secret file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Users other than the owner can read or write it.
    #[error("secret file {} has mode {mode:04o}: others can use it too", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("secret file {} belongs to user {owner}, this program runs as user {user}", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The file's user id.
        owner: u32,
        /// The user id of this program.
        user: u32,
    },
    /// It contains no valid key.
    #[error("key file {}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: chappe_identity::Error,
    },
}

impl Error {
    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(format!("check its owner: ls -l {}", path.display()))
            }
            Self::Mode { path, .. } => Some(format!(
                "chmod 600 {}; if others may have read it, replace its secret: a node makes a new key \
                 or token when the file is removed",
                path.display()
            )),
            Self::Owner { path, user, .. } => Some(format!("chown {user} {}", path.display())),
            Self::Key { .. } => {
                Some("create a key file: openssl genpkey -algorithm ed25519".to_owned())
            }
            Self::Io { path, source } if source.kind() == io::ErrorKind::NotFound => Some(format!(
                "copy the secret to {}, and make the file private: chmod 600",
                path.display()
            )),
            Self::Io { .. } => None,
        }
    }
}

/// Reads a key file; `None` if there is none.
///
/// # Errors
/// Others than the owner can access the file, or it has no valid key.
pub fn read(path: &Path) -> Result<Option<Key>, Error> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    let key = Key::from_pem(&text).map_err(|source| Error::Key {
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(key))
}

/// Reads a secret from an existing file that only its owner can access.
///
/// # Errors
/// The file is missing, or others can access it.
pub fn read_secret(path: &Path) -> Result<String, Error> {
    read_text(path)?.ok_or_else(|| Error::Io {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::NotFound, "there is no such file"),
    })
}

/// Reads a file that only its owner can access; `None` if there is none.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    let Some(file) = open_private(path)? else {
        return Ok(None);
    };
    let text = whole(file, KEY_FILE_BYTES_MAX).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    text.map(Some).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

/// Reads a file of limited length.
pub(crate) fn read_within(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    whole(File::open(path)?, bytes_max)
}

/// Reads a file. A longer one is refused rather than cut: of revocation lists, the rest may name a certificate.
fn whole(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = file.take(bytes_max.saturating_add(1));
    if file.read_to_end(&mut bytes)? as u64 > bytes_max {
        let text = format!("it is longer than the limit of {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Opens a file that only its owner can access; `None` if there is none.
///
/// # Errors
/// It cannot be opened, or others can access it.
pub fn open_private(path: &Path) -> Result<Option<File>, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    // Checked on the open file, so that the same file is read afterwards.
    let metadata = file.metadata().map_err(io)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(Error::Mode { path, mode });
    }
    let user = nix::unistd::geteuid();
    if metadata.uid() != user.as_raw() && !user.is_root() {
        return Err(Error::Owner {
            path: path.to_owned(),
            owner: metadata.uid(),
            user: user.as_raw(),
        });
    }
    Ok(Some(file))
}

/// Writes a new key file with mode 0600, durably. Does not replace an existing file.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write_new(path: &Path, key: &Key) -> Result<(), Error> {
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(key.to_pem().as_bytes())?;
        file.sync_all()?;
        match path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            Some(parent) => File::open(parent)?.sync_all(),
            None => File::open(".")?.sync_all(),
        }
    };
    write().map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

/// Reads the key file, or creates one with a new key. Returns whether it was created.
///
/// # Errors
/// The errors of [`read`] and [`write_new`].
pub fn read_or_create(path: &Path) -> Result<(Key, bool), Error> {
    if let Some(key) = read(path)? {
        return Ok((key, false));
    }
    let seed = crate::seed().map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let key = Key::from_seed(seed);
    write_new(path, &key)?;
    Ok((key, true))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_created_once_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        assert!(read(&path).unwrap().is_none());
        let (made, new) = read_or_create(&path).unwrap();
        assert!(new);
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        let (found, new) = read_or_create(&path).unwrap();
        assert!(!new && found.public() == made.public());
        assert!(matches!(write_new(&path, &found), Err(Error::Io { .. })));
    }

    #[test]
    fn wider_modes_are_refused_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        read_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o622] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, Error::Mode { .. }), "{error}");
            assert!(error.hint().unwrap().starts_with("chmod 600"));
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let filled = "a".repeat(KEY_FILE_BYTES_MAX as usize);
        std::fs::write(&path, &filled).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_text(&path).unwrap().unwrap(), filled);
        std::fs::write(&path, filled + "a").unwrap();
        let Err(Error::Io { source, .. }) = read_text(&path) else {
            panic!("a longer file was read");
        };
        assert_eq!(source.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn invalid_keys_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        std::fs::write(&path, "nonsense").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read(&path), Err(Error::Key { .. })));
    }
}
