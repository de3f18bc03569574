//! Limits of files that were sent over the network. An administrator of a node's streams is not the owner
//! of its machine: such a file starts no program, and names no file outside its own directory.

use std::path::{Component, Path};

use chappe_stream::DescriptorError;
use toml::Value;

use crate::{CommonKeys, PeerFile};

/// The kind that runs programs.
const PROGRAM: &str = "program";

impl<C: CommonKeys> PeerFile<C> {
    /// Checks a file of this kind that was sent over the network.
    ///
    /// # Errors
    /// It would run a program, or use a file outside its directory.
    pub fn check_sent(&self, kind: &str) -> Result<(), DescriptorError> {
        let hint = || Some("write the file on the node's machine".to_owned());
        if kind == PROGRAM {
            let message = "a file that names a program cannot be sent".to_owned();
            return Err(self.fault("kind", message, hint()));
        }
        let table: toml::Table = toml::from_str(&self.text).unwrap_or_default();
        for (key, value) in &table {
            if let Some(path) = outside(key, value) {
                let message = format!("{path:?} is outside the directory of this file");
                return Err(self.fault(key, message, hint()));
            }
        }
        Ok(())
    }
}

/// A path at this key, or below it, that leaves the directory.
fn outside<'v>(key: &str, value: &'v Value) -> Option<&'v str> {
    let is_path = ["path", "file", "directory"].contains(&key)
        || key.ends_with("_path")
        || key.ends_with("_file")
        || key.ends_with("_directory");
    match value {
        Value::String(path) => Some(&**path).filter(|path| is_path && leaves(path)),
        Value::Array(values) => values.iter().find_map(|value| outside(key, value)),
        Value::Table(table) => table.iter().find_map(|(key, value)| outside(key, value)),
        _ => None,
    }
}

fn leaves(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    let stays = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    // Files of these kinds are configuration, also when they are in the same directory.
    !stays
        || [".toml", ".xml"]
            .iter()
            .any(|ending| path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use crate::{ExporterFile, WrapperFile};

    fn check(keys: &str) -> Result<(), String> {
        let wrapper = WrapperFile::parse("a.toml".as_ref(), keys).unwrap();
        let as_wrapper = wrapper.check_sent(&wrapper.keys.kind);
        let text = format!("{keys}\nstreams = [\"a\"]");
        let exporter = ExporterFile::parse("a.toml".as_ref(), &text).unwrap();
        let as_exporter = exporter.check_sent(&exporter.keys.kind);
        assert_eq!(as_wrapper.is_ok(), as_exporter.is_ok(), "{keys}");
        as_wrapper.map_err(|error| error.key)
    }

    #[test]
    fn a_sent_file_stays_in_its_directory() {
        let inside = [
            "kind = \"file\"\npath = \"data/a.csv\"",
            "kind = \"http\"\nurl = \"http://10.0.0.1/etc/passwd\"\ntoken_file = \"./token\"",
        ];
        for keys in inside {
            assert_eq!(check(keys), Ok(()), "{keys}");
        }
        let outside = [
            ("kind = \"program\"\nprogram = [\"sh\"]", "kind"),
            ("kind = \"file\"\npath = \"/etc/passwd\"", "path"),
            ("kind = \"file\"\npath = \"a/../../b\"", "path"),
            ("kind = \"file\"\npath = \"other.toml\"", "path"),
            (
                "kind = \"http\"\ntoken_file = \"/etc/token\"",
                "token_file",
            ),
            ("kind = \"http\"\ntls = { key_file = \"../key\" }", "tls"),
            ("kind = \"http\"\nparts = [{ path = \"/a\" }]", "parts"),
        ];
        for (keys, key) in outside {
            assert_eq!(check(keys), Err(key.to_owned()), "{keys}");
        }
    }
}
