//! The key of a device, and what the device remembers beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use chappe_identity::hex_encode;
use chappe_transport::tls::{Mutual, Usage};
use chappe_transport::{SHARED, key_file, replace_file};

use crate::Error;
use crate::host::endpoint_of;

/// The longest stored version: ten digits, a space, 32 hexadecimal digits and a line end. A longer
/// file is not read.
const MEMORY_BYTES_MAX: u64 = 64;

/// The one key of a device. Its stable endpoint is derived from it; next to the file the device stores
/// the version of its description, in a file with the suffix `.metadata`.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("device.key");
/// let key = chappe_device::Key::load(&path)?;
/// assert!(key.endpoint().starts_with("urn:uuid:"));
/// assert_eq!(chappe_device::Key::load(&path)?.endpoint(), key.endpoint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Key {
    endpoint: String,
    pair: Arc<chappe_identity::Key>,
    memory: Arc<Memory>,
}

impl Key {
    /// Reads a key file (PKCS#8 PEM), or creates one with a new key.
    ///
    /// # Errors
    /// The file cannot be read or created, or others than its owner can access it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let (key, _) = key_file::read_or_create(path)?;
        Ok(Self {
            endpoint: endpoint_of(&key),
            pair: Arc::new(key),
            memory: Arc::new(Memory::next_to(path)),
        })
    }

    /// A key without a file, of a secret, for tests.
    ///
    /// ```
    /// let key = chappe_device::Key::from_seed([7; 32]);
    /// assert_eq!(chappe_device::Key::from_seed([7; 32]).endpoint(), key.endpoint());
    /// ```
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        chappe_identity::Key::from_seed(seed).into()
    }

    /// The stable endpoint of the device.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// TLS with a certificate made from this key, which names the endpoint and these usages besides those of TLS. It
    /// is the same at each start, and trusts nobody yet.
    #[must_use]
    pub fn tls(&self, usages: &[Usage]) -> Mutual {
        Mutual::of_key(&self.pair, &self.endpoint, &self.endpoint, usages)
    }

    /// The version of the description with this digest: the stored one if it is the same, else a
    /// higher one, which is stored.
    pub(crate) fn version(&self, digest: [u8; 16]) -> Result<u32, Error> {
        self.memory.version(digest, 1)
    }
}

/// A key without a file. The first version of the description is the time of the start in seconds, so that it
/// rises over restarts as the clock does.
impl From<chappe_identity::Key> for Key {
    fn from(key: chappe_identity::Key) -> Self {
        Self {
            endpoint: endpoint_of(&key),
            pair: Arc::new(key),
            memory: Arc::new(Memory::default()),
        }
    }
}

/// Seconds since 1970, which exceed any counted version.
fn seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u32::try_from(since.unwrap_or_default().as_secs()).unwrap_or(u32::MAX)
}

/// The version of the description, and its digest.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    file: Option<PathBuf>,
    /// The version that was read or stored last.
    last: Mutex<Option<(u32, String)>>,
}

impl Memory {
    /// The memory in a file next to this one, with the suffix `.metadata`.
    pub(crate) fn next_to(path: &Path) -> Self {
        let mut file = path.as_os_str().to_owned();
        file.push(".metadata");
        Self {
            file: Some(file.into()),
            last: Mutex::new(None),
        }
    }

    /// The version of the description with this digest: the stored one if it is the same, else a higher one, at
    /// least `least`, which is stored.
    pub(crate) fn version(&self, digest: [u8; 16], least: u32) -> Result<u32, Error> {
        let digest = hex_encode(&digest);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match (last.clone(), &self.file) {
            (Some(known), _) => Some(known),
            (None, Some(file)) => read(file).map_err(|source| error(file, source))?,
            (None, None) => Some((seconds(), String::new())),
        };
        let version = match known {
            Some((version, same)) if same == digest => {
                *last = Some((version, same));
                return Ok(version);
            }
            Some((version, _)) => version.saturating_add(1).max(least),
            None => least,
        };
        if let Some(file) = &self.file {
            let text = format!("{version} {digest}\n");
            replace_file(file, SHARED, text.as_bytes()).map_err(|source| error(file, source))?;
        }
        *last = Some((version, digest));
        Ok(version)
    }
}

fn error(file: &Path, source: io::Error) -> Error {
    let path = file.to_owned();
    Error::Memory { path, source }
}

/// The stored version. If the file is damaged, a version that exceeds the lost one.
fn read(file: &Path) -> io::Result<Option<(u32, String)>> {
    let text = match fs::metadata(file) {
        Ok(found) if found.len() > MEMORY_BYTES_MAX => String::new(),
        Ok(_) => String::from_utf8(fs::read(file)?).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let parts = text.trim().split_once(' ');
    let parts = parts.and_then(|(version, digest)| Some((version.parse().ok()?, digest)));
    Ok(Some(match parts {
        Some((version, digest)) => (version, digest.to_owned()),
        None => {
            let file = file.display();
            tracing::warn!("{file} is damaged: the version of the description is now the time");
            (seconds(), String::new())
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_rises_with_each_change_over_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device.key");
        let key = Key::load(&path).unwrap();
        assert_eq!(key.version([1; 16]).unwrap(), 1);
        assert_eq!(key.version([1; 16]).unwrap(), 1);
        assert_eq!(key.version([2; 16]).unwrap(), 2);
        let again = Key::load(&path).unwrap();
        assert_eq!(again.version([2; 16]).unwrap(), 2);
        assert_eq!(again.version([1; 16]).unwrap(), 3);
    }

    #[test]
    fn without_a_file_the_version_rises_from_the_time() {
        let key = Key::from(chappe_identity::Key::from_seed([1; 32]));
        let first = key.version([1; 16]).unwrap();
        assert!(first > 1_700_000_000, "{first}");
        assert_eq!(key.version([2; 16]).unwrap(), first + 1);
        assert_eq!(key.version([2; 16]).unwrap(), first + 1);
    }

    #[test]
    fn a_damaged_file_is_followed_by_a_higher_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device.key");
        let file = directory.path().join("device.key.metadata");
        for damage in [&b""[..], b"x", b"7", b"\xff\xfe", &[b'1'; 1_000]] {
            fs::write(&file, damage).unwrap();
            let version = Key::load(&path).unwrap().version([3; 16]).unwrap();
            assert!(version > 1_700_000_000, "{version}");
        }
    }
}
