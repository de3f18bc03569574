//! What others added while the node ran, kept in files of its data directory: links, and
//! subscriptions by contact point.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The file of links under the data directory.
pub(crate) const LINKS: &str = "links.json";
/// The file of subscriptions by contact point.
pub(crate) const SUBSCRIPTIONS: &str = "subscriptions.json";
/// The version of their form.
const VERSION: u32 = 1;
/// Bytes of a file that are read; reason: ten thousand links of the largest size are below that.
const BYTES_MAX: u64 = 64 << 20;

/// A file. It may hold tokens and secrets, and so is its owner's alone.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    path: PathBuf,
    of: PhantomData<fn() -> T>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Form<L> {
    version: u32,
    #[serde(alias = "links")]
    kept: L,
}

impl<T: Serialize + DeserializeOwned> Kept<T> {
    /// The file of this name in a data directory.
    pub(crate) fn new(directory: &Path, file: &str) -> Self {
        Self {
            path: directory.join(file),
            of: PhantomData,
        }
    }

    /// What is in it; nothing when there is no file.
    ///
    /// # Errors
    /// When it cannot be read, or is of another form, in words.
    pub(crate) fn read(&self) -> Result<Vec<T>, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(told(&error)),
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| told(&error))?;
        let form: Form<Vec<T>> = serde_json::from_str(&text).map_err(|error| told(&error))?;
        if form.version != VERSION {
            return Err(told(&format!("version {} is not known", form.version)));
        }
        Ok(form.kept)
    }

    /// Writes all of it, whole or not at all.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn write(&self, kept: &[T]) -> io::Result<()> {
        let version = VERSION;
        let text = serde_json::to_string_pretty(&Form { version, kept })?;
        let made = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&made)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&made, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use chappe_links::LinkConfig;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_foreign_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::<LinkConfig>::new(directory.path(), LINKS);
        assert!(kept.read().unwrap().is_empty());
        let link: LinkConfig = serde_json::from_value(serde_json::json!({
            "name": "a", "kind": "zeromq", "address": "tcp://127.0.0.1:1", "streams": ["*"],
            "token": "secret",
        }))
        .unwrap();
        kept.write(std::slice::from_ref(&link)).unwrap();
        assert_eq!(kept.read().unwrap(), [link]);
        let path = directory.path().join(LINKS);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o7777, 0o600);
        std::fs::write(&path, "{\"version\": 9, \"kept\": []}").unwrap();
        assert!(kept.read().unwrap_err().contains("version 9"));
        std::fs::write(&path, "{").unwrap();
        assert!(kept.read().unwrap_err().contains("links.json"));
    }
}
