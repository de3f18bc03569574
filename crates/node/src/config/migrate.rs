//! Brings a configuration to the current form, with its comments and its order.
//!
//! These former forms are known: `[[dds.publish]]` and `[[dds.subscribe]]`
//! become files of exporters and wrappers, and `dds.library` goes. The file is not checked otherwise.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use chappe_stream::{NameError, check_name};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Key, Table, Value, value};

use super::{ConfigError, Problem, SCHEMA_VERSION, newer};

/// A configuration in the current form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    /// The text of the file.
    pub text: String,
    /// Files to be made, relative to the directory of the configuration, with their texts.
    pub files: Vec<(PathBuf, String)>,
    /// Each change; none if the file has the current form.
    pub changes: Vec<String>,
}

/// Brings the configuration `text` of the file `path` to the current form.
///
/// # Errors
/// It is not TOML, a newer program wrote it, or a table that is to become a file does not say of which stream, or names none that
/// can be.
pub fn migrate(path: &Path, text: &str) -> Result<Migration, ConfigError> {
    let fault = |key: Option<&str>, message: String, hint: &str| ConfigError {
        problems: vec![Problem {
            location: path.display().to_string(),
            line: None,
            key: key.map(str::to_owned),
            message,
            hint: Some(hint.to_owned()),
        }],
    };
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let message = error.message().replace('\n', " ");
        fault(None, message, "`chappe config check` names the line")
    })?;
    let version = document.get("schema_version").and_then(Item::as_integer);
    if let Some(found) = version.filter(|found| *found > i64::from(SCHEMA_VERSION)) {
        let (message, hint) = newer(found);
        return Err(fault(Some("schema_version"), message, hint));
    }
    let directory = |key: &str, default: &str| {
        let set = document.get(key).and_then(Item::as_str);
        PathBuf::from(set.unwrap_or(default))
    };
    let exporters = directory("exporters_directory", "exporters");
    let wrappers = directory("wrappers_directory", "wrappers");
    let mut migration = Migration::default();
    let mut names = Names::default();
    let without_stream = |key: &str| {
        let message = "a table names no stream".to_owned();
        fault(Some(key), message, "add: stream = \"NAME\"")
    };
    let misnamed = |key: &str, error: &NameError| {
        fault(
            Some(key),
            error.to_string(),
            "correct the name of the stream",
        )
    };
    if let Some(dds) = document.get_mut("dds").and_then(Item::as_table_like_mut) {
        if dds.remove("library").is_some() {
            let change = "removed dds.library: there is one DDS library";
            migration.changes.push(change.to_owned());
        }
        for table in tables(dds.remove("publish")) {
            let (stream, text) = exporter(table).ok_or_else(|| without_stream("dds.publish"))?;
            check_name(&stream).map_err(|error| misnamed("dds.publish", &error))?;
            let path = names.path(&exporters, &stream);
            migration.add("[[dds.publish]]", path, &stream, text);
        }
        for table in tables(dds.remove("subscribe")) {
            let (stream, text) = wrapper(table).ok_or_else(|| without_stream("dds.subscribe"))?;
            check_name(&stream).map_err(|error| misnamed("dds.subscribe", &error))?;
            let path = names.path(&wrappers, &stream);
            migration.add("[[dds.subscribe]]", path, &stream, text);
        }
    }
    migration.text = document.to_string();
    Ok(migration)
}

impl Migration {
    /// Adds the file of a stream.
    fn add(&mut self, former: &str, path: PathBuf, stream: &str, text: String) {
        let change = format!("{former} of {stream} becomes {}", path.display());
        self.changes.push(change);
        self.files.push((path, text));
    }
}

/// The names of the files that a migration makes.
#[derive(Default)]
struct Names {
    taken: HashSet<PathBuf>,
    /// By the file of a stream's first table, the number of its next.
    numbers: HashMap<PathBuf, u32>,
}

impl Names {
    /// A path that no other table has.
    fn path(&mut self, directory: &Path, stream: &str) -> PathBuf {
        let stem = stream.replace('.', "-");
        let first = directory.join(format!("{stem}.toml"));
        let number = self.numbers.entry(first.clone()).or_insert(1);
        let mut path = first;
        while !self.taken.insert(path.clone()) {
            *number += 1;
            path = directory.join(format!("{stem}-{number}.toml"));
        }
        path
    }
}

fn tables(item: Option<Item>) -> ArrayOfTables {
    item.and_then(|item| item.into_array_of_tables().ok())
        .unwrap_or_default()
}

/// The stream of a publication, and the file of its exporter.
fn exporter(mut table: Table) -> Option<(String, String)> {
    let stream = table.get("stream")?.as_str()?.to_owned();
    let mut streams = Value::from(Array::from_iter([stream.as_str()]));
    take_key(&mut table, "stream", "streams", |former| {
        *streams.decor_mut() = former.decor().clone();
        streams
    });
    // The default of a publication was the next element; that of an exporter is the oldest.
    if !table.contains_key("start") {
        table.insert("start", value("new"));
    }
    Some((stream, document(table)))
}

/// The stream of a subscription, and the file of its wrapper.
fn wrapper(mut table: Table) -> Option<(String, String)> {
    let stream = table.get("stream")?.as_str()?.to_owned();
    let mut described = Table::new();
    described.insert("name", value(&stream));
    table.remove("stream");
    if let Some(key) = table.remove("key").as_ref().and_then(Item::as_str) {
        described.insert("key", value(format!("{{{key}}}")));
        described.insert("subject", value(key));
    }
    if let Some((key, fields)) = table.remove_entry("fields") {
        described.insert_formatted(&key, fields);
    }
    let mut streams = ArrayOfTables::new();
    streams.push(described);
    table.insert("stream", Item::ArrayOfTables(streams));
    Some((stream, document(table)))
}

/// Renames a key and replaces its value; comments stay.
fn take_key(table: &mut Table, from: &str, to: &str, new: impl FnOnce(Value) -> Value) {
    let Some((key, Item::Value(former))) = table.remove_entry(from) else {
        return;
    };
    let renamed = Key::new(to).with_leaf_decor(key.leaf_decor().clone());
    table.insert_formatted(&renamed, Item::Value(new(former)));
}

/// The text of a file of kind `dds` with the keys of a table, after the comments before it.
fn document(mut table: Table) -> String {
    let prefix = table.decor().prefix().and_then(|text| text.as_str());
    let comment = prefix.unwrap_or_default().trim_start().to_owned();
    table.insert("kind", value("dds"));
    let rank = |key: &Key| match key.get() {
        "kind" => 0,
        "streams" => 1,
        _ => 2,
    };
    table.sort_values_by(|one, _, other, _| rank(one).cmp(&rank(other)));
    table.decor_mut().clear();
    table.set_position(None);
    format!("{comment}{}", DocumentMut::from(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrated(text: &str) -> Migration {
        migrate(Path::new("node.toml"), text).unwrap()
    }

    #[test]
    fn a_current_file_is_unchanged_to_the_byte() {
        for text in [
            "",
            "# Ward 3\nname = \"x\" # short\n\n[http]\nlisten  =  '127.0.0.1:0'\n",
            &crate::config::sample(),
        ] {
            let migration = migrated(text);
            assert_eq!(migration.text, text);
            assert!(migration.changes.is_empty() && migration.files.is_empty());
        }
    }

    #[test]
    fn topics_become_files_and_comments_stay() {
        let text = "# Ward 3\n[dds]\ndomain = 7 # of the ward\nlibrary = \"rustdds\"\n\n\
                    # For the monitor.\n[[dds.publish]]\nstream = \"ward.temperature\" # of the air\n\
                    topic = \"ward/temperature\"\nacknowledge = \"received\"\n\
                    [dds.publish.qos]\nkeep_last = 4\n\n\
                    [[dds.subscribe]]\ntopic = \"ward/pulse\"\nstream = \"ward.pulse\"\nkey = \"bed\"\n\
                    level = \"power\"\nfields = [{ name = \"rate\", type = \"double\" }]\n\n\
                    # Last.\n[log]\nkeep_elements = 5\n";
        let migration = migrated(text);
        assert_eq!(
            migration.text,
            "# Ward 3\n[dds]\ndomain = 7 # of the ward\n\n# Last.\n[log]\nkeep_elements = 5\n"
        );
        let [(exporter, exported), (wrapper, wrapped)] = &*migration.files else {
            panic!("{:?}", migration.files);
        };
        assert_eq!(exporter, Path::new("exporters/ward-temperature.toml"));
        assert_eq!(
            exported,
            "# For the monitor.\nkind = \"dds\"\nstreams = [\"ward.temperature\"] # of the air\n\
             topic = \"ward/temperature\"\nacknowledge = \"received\"\nstart = \"new\"\n\
             [qos]\nkeep_last = 4\n"
        );
        assert_eq!(wrapper, Path::new("wrappers/ward-pulse.toml"));
        for line in [
            "kind = \"dds\"\n",
            "topic = \"ward/pulse\"\n",
            "level = \"power\"\n",
            "[[stream]]\nname = \"ward.pulse\"\nkey = \"{bed}\"\nsubject = \"bed\"\n",
        ] {
            assert!(wrapped.contains(line), "{line:?} in {wrapped}");
        }
        assert_eq!(migration.changes.len(), 3, "{:?}", migration.changes);
        let again = migrated(&migration.text);
        assert!(again.changes.is_empty(), "{:?}", again.changes);
    }

    #[test]
    fn two_topics_of_one_stream_have_files_of_their_own() {
        let text = "wrappers_directory = \"w\"\nexporters_directory = \"e\"\n[dds]\n\
                    publish = [{ stream = \"a\", topic = \"t\" }, { stream = \"a\", topic = \"u\" }]\n";
        let paths: Vec<_> = migrated(text)
            .files
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(paths, [Path::new("e/a.toml"), Path::new("e/a-2.toml")]);
    }

    #[test]
    fn a_stream_names_no_file_elsewhere() {
        for name in ["/tmp/evil", "../evil", "a/b", ""] {
            let text = format!("[[dds.publish]]\nstream = \"{name}\"\ntopic = \"t\"");
            let error = migrate(Path::new("node.toml"), &text).unwrap_err();
            assert!(error.to_string().contains("dds.publish"), "{error}");
        }
    }

    #[test]
    fn many_topics_of_one_stream_are_numbered_at_once() {
        let tables = "[[dds.publish]]\nstream = \"a\"\ntopic = \"t\"\n".repeat(3_000);
        let files = migrated(&tables).files;
        assert_eq!(files.last().unwrap().0, Path::new("exporters/a-3000.toml"));
    }

    #[test]
    fn a_newer_file_is_refused_with_both_versions() {
        let error = migrate(Path::new("node.toml"), "schema_version = 9").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("version 9") && text.contains("up to 1"),
            "{text}"
        );
        let error = migrate(Path::new("node.toml"), "[[dds.publish]]\ntopic = \"t\"").unwrap_err();
        assert!(error.to_string().contains("dds.publish"), "{error}");
        assert!(migrate(Path::new("node.toml"), "= 1").is_err());
    }
}
