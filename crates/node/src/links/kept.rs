//! Links that were added while the node ran, kept in its data directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use chappe_wrappers::links::LinkConfig;
use serde::{Deserialize, Serialize};

/// The file's name under the data directory.
const FILE: &str = "links.json";
/// The version of its form.
const VERSION: u32 = 1;
/// Bytes of it that are read; reason: ten thousand links of the largest size are below that.
const BYTES_MAX: u64 = 64 << 20;

/// The file. It may hold tokens, and so is its owner's alone.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Form {
    version: u32,
    links: Vec<LinkConfig>,
}

impl Kept {
    /// The file of this data directory.
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
        }
    }

    /// The links in it; none when there is no file.
    ///
    /// # Errors
    /// When it cannot be read, or is of another form, in words.
    pub(super) fn read(&self) -> Result<Vec<LinkConfig>, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(told(&error)),
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| told(&error))?;
        let form: Form = serde_json::from_str(&text).map_err(|error| told(&error))?;
        if form.version != VERSION {
            return Err(told(&format!("version {} is not known", form.version)));
        }
        Ok(form.links)
    }

    /// Writes the links, whole or not at all.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn write(&self, links: &[LinkConfig]) -> io::Result<()> {
        let form = Form {
            version: VERSION,
            links: links.to_vec(),
        };
        let text = serde_json::to_string_pretty(&form)?;
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
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_foreign_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path());
        assert!(kept.read().unwrap().is_empty());
        let link: LinkConfig = serde_json::from_value(serde_json::json!({
            "name": "a", "kind": "zeromq", "address": "tcp://127.0.0.1:1", "streams": ["*"],
            "token": "secret",
        }))
        .unwrap();
        kept.write(std::slice::from_ref(&link)).unwrap();
        assert_eq!(kept.read().unwrap(), [link]);
        let path = directory.path().join(FILE);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o7777, 0o600);
        std::fs::write(&path, "{\"version\": 9, \"links\": []}").unwrap();
        assert!(kept.read().unwrap_err().contains("version 9"));
        std::fs::write(&path, "{").unwrap();
        assert!(kept.read().unwrap_err().contains("links.json"));
    }
}
