//! The texts in a recording: its description, its lists, its names of files.

use std::path::{Path, PathBuf};

use chappe_xml::Name;
use serde::{Deserialize, Serialize};

use super::{BYTES_MAX, RecordingError};

/// Characters of a name of a file that come from the device.
const NAME_CHARACTERS_MAX: usize = 48;

/// `device.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceText {
    /// The stable endpoint.
    pub(super) endpoint: String,
    /// 2005 or 2009.
    pub(super) dialect: String,
    /// The version of its metadata when it was recorded.
    pub(super) metadata_version: u32,
    /// Its types, as {namespace}local.
    pub(super) types: Vec<String>,
    /// Its scopes.
    pub(super) scopes: Vec<String>,
    /// Whether the events begin again after the last.
    pub(super) repeat: bool,
    /// Its services.
    #[serde(default)]
    pub(super) service: Vec<ServiceText>,
}

/// A service in `device.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceText {
    /// Its identifier in the device.
    pub(super) id: String,
    /// Its folder.
    pub(super) folder: String,
}

/// A name that is safe as part of the name of a file: letters, digits, `-` and `_`.
pub(super) fn safe(name: &str) -> String {
    let letters = name
        .chars()
        .map(|c| match c.is_ascii_alphanumeric() || c == '_' {
            true => c,
            false => '-',
        });
    let text: String = letters.take(NAME_CHARACTERS_MAX).collect();
    match text.trim_matches('-') {
        "" => "unnamed".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// A text in a line of a list: without the characters that separate.
pub(super) fn cell(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// A name written as {namespace}local.
pub(super) fn name(text: &str) -> Option<Name> {
    match text.strip_prefix('{') {
        None => Some(Name::owned("", text)),
        Some(rest) => {
            let (namespace, local) = rest.split_once('}')?;
            Some(Name::owned(namespace, local))
        }
    }
}

/// Reads the files of a recording, within their bytes.
pub(super) struct Reader {
    left: u64,
}

impl Reader {
    pub(super) const fn new() -> Self {
        Self { left: BYTES_MAX }
    }

    pub(super) fn read(&mut self, path: &Path) -> Result<String, RecordingError> {
        let failed = |error| RecordingError::io(path, &error);
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        let Some(left) = self.left.checked_sub(bytes) else {
            let problem = format!("the recording has more than {BYTES_MAX} bytes");
            return Err(RecordingError::new(path, problem).hint("record a shorter time"));
        };
        self.left = left;
        std::fs::read_to_string(path).map_err(failed)
    }

    /// The lines of a list with this number of cells; none if there is no list. Files are in the folder itself.
    pub(super) fn list<const CELLS: usize>(
        &mut self,
        folder: &Path,
        list: &str,
    ) -> Result<Vec<[String; CELLS]>, RecordingError> {
        let path = folder.join(list);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = self.read(&path)?;
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
            let row = <[String; CELLS]>::try_from(cells).map_err(|cells| {
                let line = index + 1;
                let problem = format!("line {line} has {} cells, not {CELLS}", cells.len());
                RecordingError::new(&path, problem).hint("cells are separated by tabs")
            })?;
            rows.push(row);
        }
        Ok(rows)
    }
}

/// A file named in a list: in this folder, and nowhere else.
pub(super) fn inside(folder: &Path, file: &str) -> Result<PathBuf, RecordingError> {
    let is_plain = !file.is_empty() && !file.contains(['/', '\\']) && !file.starts_with('.');
    match is_plain {
        true => Ok(folder.join(file)),
        false => Err(RecordingError::new(
            folder,
            format!("{file:?} is not the name of a file in it"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_stay_in_their_folder() {
        assert_eq!(safe("../../etc/passwd"), "etc-passwd");
        assert_eq!(safe("…"), "unnamed");
        assert!(inside(Path::new("a"), "../b").is_err());
        assert!(inside(Path::new("a"), ".b").is_err());
        assert!(inside(Path::new("a"), "b.xml").is_ok());
    }
}
