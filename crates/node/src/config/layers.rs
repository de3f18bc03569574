//! Merges the layers: defaults, file, environment, flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::{Violation, violations};
use super::contradictions::contradictions;
use super::error::{ConfigError, Problem, nearest};
use super::schema::{Key, keys, schema};
use super::{Config, SCHEMA_VERSION};

/// Environment variables of the program itself, which set no keys.
const PROGRAM_VARIABLES: [&str; 5] = [
    "CHAPPE_NODE",
    "CHAPPE_TOKEN",
    "CHAPPE_FINGERPRINT",
    "CHAPPE_AUTHORITIES",
    "CHAPPE_LOG",
];

/// The inputs of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// The file and its text.
    pub file: Option<(PathBuf, String)>,
    /// Environment variables; those without the prefix `CHAPPE_` are ignored.
    pub environment: Vec<(String, String)>,
    /// Command-line flags.
    pub flags: Vec<Flag>,
}

/// A flag that sets a key.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag as the user wrote it (`--listen`).
    pub name: String,
    /// The key it sets (`http.listen`).
    pub key: String,
    /// The value as text; a list in TOML, or separated by commas.
    pub value: String,
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The default.
    Default,
    /// A line of the file.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A key with its value and the value's origin.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The key, in full.
    pub key: String,
    /// Its value; tokens of links are hidden.
    pub value: Value,
    /// The origin of the value.
    pub origin: Origin,
}

impl Setting {
    /// The value in TOML.
    #[must_use]
    pub fn literal(&self) -> String {
        super::sample::literal(&self.value)
    }
}

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Each with its origin, in the order of the keys.
    pub settings: Vec<Setting>,
}

impl Loaded {
    /// Settings that are valid but most likely unintended.
    #[must_use]
    pub fn warnings(&self) -> Vec<Problem> {
        super::contradictions::warnings(&self.config, &self.settings)
    }
}

/// Loads a configuration.
///
/// # Errors
/// All faults, each with its location, key and hint.
pub fn load(layers: &Layers) -> Result<Loaded, ConfigError> {
    let mut merge = Merge::default();
    if let Some((path, text)) = &layers.file {
        merge.add_file(path, text);
    }
    for (name, text) in &layers.environment {
        merge.add_variable(name, text);
    }
    for flag in &layers.flags {
        merge.add_flag(flag);
    }
    merge.finish()
}

struct Merge {
    keys: Vec<Key>,
    schema: Value,
    set: BTreeMap<String, (Value, Origin)>,
    problems: Vec<Problem>,
    /// The lines of the file, by path.
    lines: BTreeMap<String, usize>,
    /// The file. Paths are relative to its directory, default paths included.
    file: Option<PathBuf>,
}

impl Default for Merge {
    fn default() -> Self {
        Self {
            keys: keys(),
            schema: schema(),
            set: BTreeMap::new(),
            problems: Vec::new(),
            lines: BTreeMap::new(),
            file: None,
        }
    }
}

impl Merge {
    fn add_file(&mut self, path: &Path, text: &str) {
        let location = path.display().to_string();
        self.file = Some(path.to_owned());
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map(|span| line_of(text, span.start));
                let message = error.message().replace('\n', " ");
                return self.problems.push(Problem {
                    location,
                    line,
                    key: None,
                    message,
                    hint: Some("`chappe config sample` prints a valid file".to_owned()),
                });
            }
        };
        let mut reader = Reader {
            text,
            lines: BTreeMap::new(),
        };
        let value = reader.table(table.get_ref(), &mut Vec::new());
        let version = value.get("schema_version").and_then(Value::as_i64);
        if let Some(found) = version.filter(|found| *found > i64::from(SCHEMA_VERSION)) {
            // Its keys may mean something else, so they are not looked at.
            let (message, hint) = super::newer(found);
            return self.problems.push(Problem {
                location,
                line: reader.lines.get("schema_version").copied(),
                key: Some("schema_version".to_owned()),
                message,
                hint: Some(hint.to_owned()),
            });
        }
        for violation in violations(&self.schema, &value) {
            let line = deepest_line(&reader.lines, &violation.path);
            self.problems.push(problem(&location, line, violation));
        }
        for key in &self.keys {
            let pointer = format!("/{}", key.path.replace('.', "/"));
            if let Some(found) = value.pointer(&pointer) {
                let line = reader.lines.get(&key.path).copied().unwrap_or(1);
                let origin = Origin::File(path.to_owned(), line);
                let found = relative_to(path, key, found.clone());
                self.set.insert(key.path.clone(), (found, origin));
            }
        }
        self.lines = reader.lines;
    }

    fn add_variable(&mut self, name: &str, text: &str) {
        if !name.starts_with("CHAPPE_") || PROGRAM_VARIABLES.contains(&name) {
            return;
        }
        let names: Vec<String> = self.keys.iter().map(Key::variable).collect();
        match names.iter().position(|known| known == name) {
            Some(index) => self.set_from_text(index, text, Origin::Environment(name.to_owned())),
            // Related programs have variables with this prefix, so only a likely misspelling of one
            // of this program's variables is refused.
            None => {
                if let Some(near) = nearest(name, names.iter().map(String::as_str))
                    .filter(|near| near.len().abs_diff(name.len()) <= 2)
                {
                    self.problems.push(Problem {
                        location: name.to_owned(),
                        line: None,
                        key: None,
                        message: "unknown variable".to_owned(),
                        hint: Some(format!("did you mean {near}?")),
                    });
                }
            }
        }
    }

    fn add_flag(&mut self, flag: &Flag) {
        let origin = Origin::Flag(flag.name.clone());
        match self.keys.iter().position(|key| key.path == flag.key) {
            Some(index) => self.set_from_text(index, &flag.value, origin),
            None => {
                let near = nearest(&flag.key, self.keys.iter().map(|key| key.path.as_str()));
                self.problems.push(Problem {
                    location: flag.name.clone(),
                    line: None,
                    key: Some(flag.key.clone()),
                    message: "unknown key".to_owned(),
                    hint: near.map(|near| format!("did you mean `{near}`?")),
                });
            }
        }
    }

    /// Sets a key from text: a variable's or a flag's value.
    fn set_from_text(&mut self, index: usize, text: &str, origin: Origin) {
        let key = &self.keys[index];
        let value = match key.schema.get("type").and_then(Value::as_str) {
            Some("integer") => text.parse::<u64>().map(Value::from).ok(),
            Some("boolean") => text.parse::<bool>().map(Value::from).ok(),
            Some("array") if text.trim_start().starts_with('[') => list(text),
            Some("array") => Some(Value::from_iter(
                text.split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty()),
            )),
            // A number or an enum value.
            None => text.parse::<u64>().map(Value::from).ok(),
            _ => None,
        };
        let value = value.unwrap_or_else(|| Value::from(text));
        // The key's own schema has no references: choices are inlined.
        for mut violation in violations(&key.schema, &value) {
            violation.path = key.path.split('.').map(str::to_owned).collect();
            self.problems
                .push(problem(&origin.to_string(), None, violation));
        }
        self.set.insert(key.path.clone(), (value, origin));
    }

    fn finish(mut self) -> Result<Loaded, ConfigError> {
        let mut root = Map::new();
        let mut settings = Vec::new();
        for key in &self.keys {
            let set = self.set.remove(&key.path);
            let (value, origin) = set.unwrap_or_else(|| {
                let default = key.default.clone();
                let default = match &self.file {
                    Some(file) => relative_to(file, key, default),
                    None => default,
                };
                (default, Origin::Default)
            });
            insert(&mut root, &key.path, value.clone());
            settings.push(Setting {
                key: key.path.clone(),
                value: without_tokens(value),
                origin,
            });
        }
        if self.problems.is_empty() {
            match serde_json::from_value::<Config>(Value::Object(root)) {
                Ok(config) => {
                    self.problems
                        .extend(contradictions(&config, &settings, &self.lines));
                    if self.problems.is_empty() {
                        return Ok(Loaded { config, settings });
                    }
                }
                Err(error) => self.problems.push(Problem {
                    location: "configuration".to_owned(),
                    line: None,
                    key: None,
                    message: error.to_string(),
                    hint: None,
                }),
            }
        }
        // In the order of the file, then those of other places.
        self.problems
            .sort_by_key(|problem| (problem.line.is_none(), problem.line));
        Err(ConfigError {
            problems: self.problems,
        })
    }
}

/// Hides tokens, because settings are printed and logged.
fn without_tokens(mut value: Value) -> Value {
    for item in value.as_array_mut().into_iter().flatten() {
        if let Some(token) = item.get_mut("token") {
            *token = Value::from("(hidden)");
        }
    }
    value
}

/// Parses a list in TOML.
fn list(text: &str) -> Option<Value> {
    let mut table: Map<String, Value> = toml::from_str(&format!("list = {text}")).ok()?;
    // A line break in the text could add further keys.
    (table.len() == 1).then(|| table.remove("list"))?
}

fn problem(location: &str, line: Option<usize>, violation: Violation) -> Problem {
    Problem {
        location: location.to_owned(),
        line,
        key: Some(violation.path.join(".")).filter(|key| !key.is_empty()),
        message: violation.message,
        hint: violation.hint,
    }
}

/// Resolves a path of the file against the file's directory.
fn relative_to(file: &Path, key: &Key, value: Value) -> Value {
    let is_path = matches!(
        key.path.as_str(),
        "data_directory"
            | "sensors_directory"
            | "wrappers_directory"
            | "exporters_directory"
            | "rules_directory"
            | "registry.taxonomies_directory"
            | "registry.postgres.password_file"
            | "registry.postgres.authorities"
            | "registry.ontologies_directory"
            | "mail.authorities"
            | "mail.password_file"
            | "http.docs"
            | "http.tls.certificate"
            | "http.tls.key"
            | "http.tls.client_authorities"
            | "http.tls.client_revocation_lists"
            | "devices.tls.authorities"
            | "devices.tls.certificate"
            | "devices.tls.revocation_lists"
            | "devices.tls.key"
            | "dds.security.identity_ca"
            | "dds.security.certificate"
            | "dds.security.private_key"
            | "dds.security.revocation_list"
            | "dds.security.permissions_ca"
            | "dds.security.governance"
            | "dds.security.permissions"
            | "signatures.authorities"
            | "signatures.revocation_lists"
            | "signatures.certificate"
            | "signatures.key"
    );
    match (value.as_str(), file.parent()) {
        (Some(text), Some(parent)) if is_path && !text.is_empty() => {
            Value::from(parent.join(text).to_string_lossy().into_owned())
        }
        _ => value,
    }
}

fn insert(root: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            root.insert(path.to_owned(), value);
        }
        Some((table, rest)) => {
            let inner = root
                .entry(table)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// Turns a TOML document into JSON and records the line of each key.
struct Reader<'a> {
    text: &'a str,
    lines: BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &mut Vec<String>) -> Value {
        let mut object = Map::new();
        for (key, value) in table.iter() {
            path.push(key.get_ref().to_string());
            let line = line_of(self.text, key.span().start);
            self.lines.insert(path.join("."), line);
            let value = self.value(value, path);
            object.insert(key.get_ref().to_string(), value);
            path.pop();
        }
        Value::Object(object)
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &mut Vec<String>) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Integer(number) => {
                let digits = number.as_str();
                match i64::from_str_radix(digits, number.radix()) {
                    Ok(number) => Value::from(number),
                    Err(_) => Value::from(digits),
                }
            }
            DeValue::Float(number) => Value::from(number.as_str().parse::<f64>().ok()),
            DeValue::Boolean(flag) => Value::from(*flag),
            DeValue::Datetime(time) => Value::from(time.to_string()),
            DeValue::Array(items) => {
                let mut list = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    path.push(index.to_string());
                    let line = line_of(self.text, item.span().start);
                    self.lines.insert(path.join("."), line);
                    list.push(self.value(item, path));
                    path.pop();
                }
                Value::Array(list)
            }
            DeValue::Table(table) => self.table(table, path),
        }
    }
}

/// The line of the deepest part of `path` that occurs in the file.
pub(super) fn deepest_line(lines: &BTreeMap<String, usize>, path: &[String]) -> Option<usize> {
    (1..=path.len())
        .rev()
        .find_map(|length| lines.get(&path[..length].join(".")).copied())
}

fn line_of(text: &str, offset: usize) -> usize {
    let offset = offset.min(text.len());
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}
