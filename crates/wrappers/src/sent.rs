//! Limits of files that were sent over the network. An administrator of a node's streams is not the owner
//! of its machine: such a file starts no program, and names no files but
//! data in its own directory.

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
    /// It would run a program, or use a file that is not data in its directory.
    pub fn check_sent(&self, kind: &str) -> Result<(), DescriptorError> {
        let hint = || Some("write the file on the node's machine".to_owned());
        if kind == PROGRAM {
            let message = "a file that names a program cannot be sent".to_owned();
            return Err(self.fault("kind", message, hint()));
        }
        let table = self.table();
        // Paths in these are those of messages.
        let own = table
            .iter()
            .filter(|(key, _)| !OF_MESSAGES.contains(&key.as_str()));
        for (key, value) in own {
            if let Some(path) = refused(key, value) {
                let message = format!("a file that is sent cannot name {path:?}");
                return Err(self.fault(key, message, hint()));
            }
        }
        Ok(())
    }
}

/// Tables whose paths are those of messages.
const OF_MESSAGES: [&str; 3] = ["format", "stream", "command"];
/// Endings of files that hold data: no program, key or configuration is among them.
const DATA: [&str; 9] = [
    "csv", "json", "jsonl", "ndjson", "txt", "log", "db", "sqlite", "idl",
];

/// A file at this key, or below it, that a sent file may not name: a secret or certificate, a path that leaves
/// the directory, or one whose ending is not that of data.
fn refused<'v>(key: &str, value: &'v Value) -> Option<&'v str> {
    let is_secret = key.ends_with("_file")
        || ["authorities", "certificate", "certificates", "key", "file"].contains(&key);
    let is_path = ["path", "directory", "idl"].contains(&key) || key.ends_with("_path");
    // The directory of a GSN server is an address.
    let is_address = |value: &str| key == "directory" && value.starts_with("tcp://");
    match value {
        Value::String(path) => {
            let is_outside = is_path && !is_data(path) && !is_address(path);
            let is_refused = (is_secret && !path.is_empty()) || is_outside;
            is_refused.then_some(path)
        }
        Value::Array(values) => values.iter().find_map(|value| refused(key, value)),
        Value::Table(table) => table.iter().find_map(|(key, value)| refused(key, value)),
        _ => None,
    }
}

fn is_data(path: &str) -> bool {
    let path = Path::new(path);
    let mut parts = path.components();
    let stays = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let extension = path.extension().and_then(|extension| extension.to_str());
    stays && extension.is_some_and(|extension| DATA.contains(&extension))
}

#[cfg(test)]
mod tests {
    use crate::{ExporterFile, WrapperFile};

    fn check(keys: &str) -> Result<(), String> {
        let wrapper = WrapperFile::parse("a.toml".as_ref(), keys).unwrap();
        let as_wrapper = wrapper.check_sent(&wrapper.keys.kind);
        let text = format!("streams = [\"a\"]\n{keys}");
        let exporter = ExporterFile::parse("a.toml".as_ref(), &text).unwrap();
        let as_exporter = exporter.check_sent(&exporter.keys.kind);
        assert_eq!(as_wrapper.is_ok(), as_exporter.is_ok(), "{keys}");
        as_wrapper.map_err(|error| error.key)
    }

    #[test]
    fn a_sent_file_stays_in_its_directory() {
        let inside = [
            "kind = \"gsn-zeromq-push\"\ndirectory = \"tcp://10.0.0.1:22001\"",
            "kind = \"file\"\npath = \"data/a.csv\"",
            "kind = \"http\"\nurl = \"http://10.0.0.1/etc/passwd\"",
            "kind = \"http\"\nformat = { xml = { each = \"/a\" } }\n[[stream]]\nname = \"a\"\n\
                fields = [{ name = \"b\", type = \"text\", path = \"//@site\" }]",
        ];
        for keys in inside {
            assert_eq!(check(keys), Ok(()), "{keys}");
        }
        let outside = [
            ("kind = \"program\"\nprogram = [\"sh\"]", "kind"),
            ("kind = \"file\"\npath = \"/etc/passwd\"", "path"),
            ("kind = \"file\"\npath = \"a/../../b\"", "path"),
            ("kind = \"file\"\npath = \"tcp://a/b\"", "path"),
            ("kind = \"dds\"\ndirectory = \"/etc\"", "directory"),
            ("kind = \"file\"\npath = \"other.toml\"", "path"),
            ("kind = \"file\"\npath = \"script.sh\"", "path"),
            ("kind = \"file\"\npath = \"server.token\"", "path"),
            ("kind = \"http\"\ntoken_file = \"token\"", "token_file"),
            (
                "kind = \"http\"\nserver = { authorities = \"ca.pem\" }",
                "server",
            ),
            ("kind = \"http\"\ntoken_file = \"/etc/token\"", "token_file"),
            ("kind = \"http\"\ntls = { key_file = \"../key\" }", "tls"),
            ("kind = \"http\"\nparts = [{ path = \"/a\" }]", "parts"),
        ];
        for (keys, key) in outside {
            assert_eq!(check(keys), Err(key.to_owned()), "{keys}");
        }
    }
}
