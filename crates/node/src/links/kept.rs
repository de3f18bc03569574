//! Files in the data directory for state added at run time: links, and subscriptions by contact point.

use std::fs::File;
use std::io::{self, Read as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use chappe_transport::{PRIVATE, replace_file};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The file of links in the data directory.
pub(crate) const LINKS: &str = "links.json";
/// The file of subscriptions by contact point.
pub(crate) const SUBSCRIPTIONS: &str = "subscriptions.json";
/// The version of the format.
const VERSION: u32 = 1;
/// Largest file in bytes; reason: ten thousand links of the largest size fit.
const BYTES_MAX: u64 = 64 << 20;

/// A state file. It may hold tokens and secrets, so only its owner may access it.
#[derive(Debug)]
pub(crate) struct StateFile<T> {
    path: PathBuf,
    items: PhantomData<fn() -> T>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content<L> {
    version: u32,
    #[serde(rename = "kept", alias = "links")]
    items: L,
}

/// The format version of a state file that a newer program wrote, and the newest known one. `None` also for a file that is
/// missing or damaged: its reader reports that.
pub(crate) fn newer_version(path: &Path) -> Option<(u32, u32)> {
    /// The part of the content that each version has.
    #[derive(Deserialize)]
    struct Mark {
        version: u32,
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    let mark: Mark = serde_json::from_str(&text).ok()?;
    (mark.version > VERSION).then_some((mark.version, VERSION))
}

impl<T: Serialize + DeserializeOwned> StateFile<T> {
    /// The file of this name in a data directory.
    pub(crate) fn new(directory: &Path, file: &str) -> Self {
        Self {
            path: directory.join(file),
            items: PhantomData,
        }
    }

    /// Reads the items; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub(crate) fn read(&self) -> Result<Vec<T>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| failed(&error))?;
        let content: Content<Vec<T>> =
            serde_json::from_str(&text).map_err(|error| failed(&error))?;
        if content.version != VERSION {
            return Err(failed(&format!(
                "it has format version {}, this program reads version {VERSION} (hint: use the program that \
                 wrote it, or a newer one)",
                content.version
            )));
        }
        Ok(content.items)
    }

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn write(&self, items: &[T]) -> io::Result<()> {
        let version = VERSION;
        let text = serde_json::to_string_pretty(&Content { version, items })?;
        replace_file(&self.path, PRIVATE, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use chappe_links::LinkConfig;

    use super::*;

    #[test]
    fn written_items_are_read_back_and_foreign_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::<LinkConfig>::new(directory.path(), LINKS);
        assert!(file.read().unwrap().is_empty());
        let link: LinkConfig = serde_json::from_value(serde_json::json!({
            "name": "a", "kind": "zeromq", "address": "tcp://127.0.0.1:1", "streams": ["*"],
            "token": "secret",
        }))
        .unwrap();
        file.write(std::slice::from_ref(&link)).unwrap();
        assert_eq!(file.read().unwrap(), [link]);
        let path = directory.path().join(LINKS);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o7777, 0o600);
        std::fs::write(&path, "{\"version\": 9, \"kept\": []}").unwrap();
        let refused = file.read().unwrap_err();
        assert!(
            refused.contains("version 9") && refused.contains("version 1 "),
            "{refused}"
        );
        std::fs::write(&path, "{").unwrap();
        assert!(file.read().unwrap_err().contains("links.json"));
    }
}
