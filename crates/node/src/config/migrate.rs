//! Brings a configuration to the current form, with its comments, its order, its line ends and its byte order mark.
//!
//! These former forms are known: `[[dds.publish]]` and `[[dds.subscribe]]`
//! become files of exporters and wrappers, and `dds.library` goes. The file is not checked otherwise.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use chappe_stream::{NameError, check_name};
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, Item, Key, RawString, Table, TableLike, Value, value,
};

use super::{ConfigError, Problem, SCHEMA_VERSION, newer};

/// The byte order mark, which some editors put before a text.
const MARK: &str = "\u{feff}";

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
/// It is not TOML, a newer program wrote it, or a table that is to become a file is none, does not say of which stream, or names
/// none that can be.
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
    let version = document.get("schema_version");
    if version.is_some_and(|it| it.as_integer().is_none_or(|found| found < 0)) {
        let message = "the version is not a number".to_owned();
        let hint = "remove the key: the file then has the current form";
        return Err(fault(Some("schema_version"), message, hint));
    }
    let version = version.and_then(Item::as_integer);
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
        for name in ["publish", "subscribe"] {
            let item = dds.get(name).and_then(Item::as_array);
            if item.is_some_and(Array::is_empty) {
                dds.remove(name);
                migration
                    .changes
                    .push(format!("removed dds.{name}: it is empty"));
            }
        }
        let not_tables = |key: &str| {
            let message = "it is not an array of tables".to_owned();
            fault(Some(key), message, "remove it, or write [[dds.publish]]")
        };
        let published = tables(dds, "publish").ok_or_else(|| not_tables("dds.publish"))?;
        let subscribed = tables(dds, "subscribe").ok_or_else(|| not_tables("dds.subscribe"))?;
        for table in published {
            let (stream, text) = exporter(table).ok_or_else(|| without_stream("dds.publish"))?;
            check_name(&stream).map_err(|error| misnamed("dds.publish", &error))?;
            let path = names.path(&exporters, &stream);
            migration.add("[[dds.publish]]", path, &stream, text);
        }
        for table in subscribed {
            let (stream, text) = wrapper(table).ok_or_else(|| without_stream("dds.subscribe"))?;
            check_name(&stream).map_err(|error| misnamed("dds.subscribe", &error))?;
            let path = names.path(&wrappers, &stream);
            migration.add("[[dds.subscribe]]", path, &stream, text);
        }
    }
    // Without changes the text stays as it is, to the byte.
    let lines = Lines::of(text);
    migration.text = match migration.changes.is_empty() {
        true => text.to_owned(),
        false => format!("{}{}", lines.mark, lines.ended(&document.to_string())),
    };
    for (_, text) in &mut migration.files {
        *text = lines.ended(text);
    }
    Ok(migration)
}

/// How the lines of a file end, and what precedes the first.
struct Lines {
    mark: &'static str,
    end: &'static str,
}

impl Lines {
    fn of(text: &str) -> Self {
        let (all, long) = (text.matches('\n').count(), text.matches("\r\n").count());
        Self {
            mark: if text.starts_with(MARK) { MARK } else { "" },
            end: if 2 * long > all { "\r\n" } else { "\n" },
        }
    }

    /// The text with these ends; the parser keeps some and not others.
    fn ended(&self, text: &str) -> String {
        text.replace("\r\n", "\n").replace('\n', self.end)
    }
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

/// Takes the tables of a key, each after the comments that concern it; `None` if it has another value.
///
/// A comment within an array concerns the table before it on its line, or else the one that follows.
fn tables(dds: &mut dyn TableLike, name: &str) -> Option<Vec<Table>> {
    let Some((key, item)) = dds.get_key_value(name) else {
        return Some(Vec::new());
    };
    let mut notes = Notes::default();
    if let Some(array) = item.as_array() {
        notes.add(0, text(key.leaf_decor().prefix()));
        for (index, value) in array.iter().enumerate() {
            let (same_line, others) = divided(text(value.decor().prefix()));
            notes.add(index.saturating_sub(1), same_line);
            notes.add(index, others);
            notes.within(index, value);
            notes.add(index, text(value.decor().suffix()));
        }
        let last = array.len().saturating_sub(1);
        notes.add(last, array.trailing().as_str().unwrap_or_default());
        notes.add(last, text(array.decor().suffix()));
    }
    let tables = dds.remove(name)?.into_array_of_tables().ok()?;
    let mut tables: Vec<Table> = tables.into_iter().collect();
    for (index, comments) in notes.0 {
        if let Some(table) = tables.get_mut(index) {
            table.decor_mut().set_prefix(comments);
        }
    }
    Some(tables)
}

/// Comments by the index of the table that they concern, a line each.
#[derive(Default)]
struct Notes(BTreeMap<usize, String>);

impl Notes {
    /// Adds the comments of a text that has nothing else but white space.
    fn add(&mut self, index: usize, text: &str) {
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| line.starts_with('#')) {
            let all = self.0.entry(index).or_default();
            all.push_str(line);
            all.push('\n');
        }
    }

    /// Adds those between the keys of an inline table, which a table on lines of its own does not keep.
    fn within(&mut self, index: usize, value: &Value) {
        let Some(table) = value.as_inline_table() else {
            return;
        };
        for (name, value) in table {
            let key = table.key(name).map(Key::leaf_decor);
            for decor in key.into_iter().chain([value.decor()]) {
                self.add(index, text(decor.prefix()));
                self.add(index, text(decor.suffix()));
            }
        }
        self.add(index, table.trailing().as_str().unwrap_or_default());
    }
}

/// The rest of the line, and the lines that follow.
fn divided(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

fn text(raw: Option<&RawString>) -> &str {
    raw.and_then(RawString::as_str).unwrap_or_default()
}

/// The stream of a publication, and the file of its exporter.
fn exporter(mut table: Table) -> Option<(String, String)> {
    let stream = table.get("stream")?.as_str()?.to_owned();
    let (key, former) = renamed(&mut table, "stream", "streams")?;
    let mut streams = Value::from(Array::from_iter([stream.as_str()]));
    *streams.decor_mut() = former.decor().clone();
    table.insert_formatted(&key, Item::Value(streams));
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
    let (key, former) = renamed(&mut table, "stream", "name")?;
    described.insert_formatted(&key, Item::Value(former));
    if let Some((key, mut former)) = renamed(&mut table, "key", "key") {
        let subject = former.as_str().map(str::to_owned);
        if let Some(subject) = &subject {
            let mut template = Value::from(format!("{{{subject}}}"));
            *template.decor_mut() = former.decor().clone();
            former = template;
        }
        described.insert_formatted(&key, Item::Value(former));
        if let Some(subject) = subject {
            described.insert("subject", value(subject));
        }
    }
    if let Some((key, fields)) = table.remove_entry("fields") {
        described.insert_formatted(&key, fields);
    }
    let mut streams = ArrayOfTables::new();
    streams.push(described);
    table.insert("stream", Item::ArrayOfTables(streams));
    Some((stream, document(table)))
}

/// Takes a value out of a table, with the key that it gets and its comments.
fn renamed(table: &mut Table, from: &str, to: &str) -> Option<(Key, Value)> {
    table.get(from)?.as_value()?;
    let (key, item) = table.remove_entry(from)?;
    let renamed = Key::new(to).with_leaf_decor(key.leaf_decor().clone());
    Some((renamed, item.into_value().ok()?))
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
    fn a_version_that_is_no_number_is_refused() {
        for version in ["\"1\"", "-1", "1.0", "[1]"] {
            let text = format!("schema_version = {version}\n");
            let error = migrate(Path::new("node.toml"), &text).unwrap_err();
            let key = error.problems[0].key.as_deref();
            assert_eq!(key, Some("schema_version"), "{version}");
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
    fn comments_within_arrays_stay_with_their_tables() {
        let text = "[dds]\n# Of the ward.\npublish = [ # Both.\n  { stream = \"a\", topic = \"t\" }, # The first.\n  \
                    # For the monitor.\n  { stream = \"b\", topic = \"u#\" } # The second.\n  # No more.\n] # Done.\n\
                    [[dds.subscribe]]\n# Its name.\nstream = \"c\" # of the room\ntopic = \"v\"\n\
                    key = \"bed\" # a number\nfields = [ # Measured.\n  { name = \"x\", type = \"double\" }, # In kPa.\n]\n";
        let files: Vec<String> = migrated(text).files.into_iter().map(|(_, it)| it).collect();
        let rest = |stream: &str, topic: &str| {
            format!(
                "kind = \"dds\"\nstreams = [\"{stream}\"]\ntopic = \"{topic}\"\nstart = \"new\"\n"
            )
        };
        assert_eq!(
            files[0],
            format!("# Of the ward.\n# Both.\n# The first.\n{}", rest("a", "t"))
        );
        assert_eq!(
            files[1],
            format!(
                "# For the monitor.\n# The second.\n# No more.\n# Done.\n{}",
                rest("b", "u#")
            )
        );
        for piece in [
            "# Its name.\nname = \"c\" # of the room\n",
            "key = \"{bed}\" # a number\n",
            "[ # Measured.\n",
            "}, # In kPa.\n]",
        ] {
            assert!(files[2].contains(piece), "{piece:?} in {}", files[2]);
        }
    }

    #[test]
    fn line_ends_and_the_byte_order_mark_stay() {
        let plain = "# Ward 3\n[dds]\ndomain = 7\nlibrary = \"rustdds\"\n\n[[dds.publish]]\nstream = \"a\"\n\
                     topic = \"t\"\n\n[log]\nkeep_elements = 5\n";
        let given = format!("{MARK}{}", plain.replace('\n', "\r\n"));
        let (plain, migration) = (migrated(plain), migrated(&given));
        let long = |text: &str| text.replace('\n', "\r\n");
        assert_eq!(migration.text, format!("{MARK}{}", long(&plain.text)));
        assert_eq!(migration.files[0].1, long(&plain.files[0].1));
        let current = format!("{MARK}name = \"x\"\r\n# end\n");
        assert_eq!(migrated(&current).text, current);
    }

    #[test]
    fn nothing_of_another_form_is_dropped() {
        for (wrong, key) in [
            ("publish = 3", "dds.publish"),
            ("subscribe = [{ stream = \"a\" }, 3]", "dds.subscribe"),
        ] {
            let error = migrate(Path::new("node.toml"), &format!("[dds]\n{wrong}")).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        let migration = migrated("[dds]\npublish = []\n");
        assert_eq!(migration.text, "[dds]\n");
        assert_eq!(migration.changes.len(), 1);
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
