//! The JSON Schema of node.toml (draft 2020-12), and the flat list of its keys.

use serde_json::Value;

use chappe_stream::descriptor::WRAPPER_SCHEMA;

use super::Config;

/// A key of node.toml that holds a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The key in full, with dots (`http.listen`).
    pub path: String,
    /// Its description.
    pub meaning: String,
    /// Its default.
    pub default: Value,
    /// Its part of the schema: type, range, allowed values.
    pub schema: Value,
}

impl Key {
    /// The environment variable that sets it (`CHAPPE_HTTP_LISTEN`).
    #[must_use]
    pub fn variable(&self) -> String {
        format!("CHAPPE_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Its unit, when it has one.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.schema.get("x-unit")?.as_str()
    }

    /// Its range or its allowed values, for display.
    #[must_use]
    pub fn range(&self) -> Option<String> {
        if let Some(values) = enum_values(&self.schema) {
            let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            return Some(quoted.join(", "));
        }
        let bound = |name| self.schema.get(name).and_then(Value::as_u64);
        match (bound("minimum"), bound("maximum")) {
            (Some(low), Some(high)) if low == high => Some(low.to_string()),
            (Some(low), Some(high)) => Some(format!("{low} to {high}")),
            (Some(low), None) => Some(format!("from {low}")),
            _ => None,
        }
    }
}

/// The schema of node.toml, for editors and for `chappe config schema`.
#[must_use]
pub fn schema() -> Value {
    schemars::schema_for!(Config).to_value()
}

/// The schema of a sensor file.
#[must_use]
pub fn sensor_schema() -> Value {
    let mut schema = chappe_stream::descriptor::descriptor_json_schema().to_value();
    let mut wrapper = chappe_wrappers::wrapper_schema();
    let of_wrappers = wrapper["$defs"].take();
    if let (Some(wrapper), Some(definitions)) =
        (wrapper.as_object_mut(), schema["$defs"].as_object_mut())
    {
        for key in ["$schema", "$defs"] {
            wrapper.remove(key);
        }
        if let Value::Object(of_wrappers) = of_wrappers {
            for (name, definition) in of_wrappers {
                definitions.entry(name).or_insert(definition);
            }
        }
        let wrapper = Value::Object(std::mem::take(wrapper));
        definitions.insert(WRAPPER_SCHEMA.to_owned(), wrapper);
    }
    schema
}

/// The schema of a wrapper file.
#[must_use]
pub fn wrapper_schema() -> Value {
    chappe_wrappers::wrapper_schema()
}

/// The schema of an exporter file.
#[must_use]
pub fn exporter_schema() -> Value {
    chappe_wrappers::exporter_schema()
}

/// All keys, in the order of the structs.
#[must_use]
pub fn keys() -> Vec<Key> {
    let root = schema();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut found = Vec::new();
    collect(&root, &root, &defaults, "", &mut found);
    let order = order();
    found.sort_by_key(|key| order.iter().position(|path| *path == key.path));
    found
}

/// The keys in the order of the structs, which TOML keeps and JSON objects lose.
fn order() -> Vec<String> {
    let text = toml::to_string(&Config::default()).unwrap_or_default();
    let mut prefix = String::new();
    let mut order = Vec::new();
    for line in text.lines() {
        if let Some(table) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            prefix = format!("{table}.");
        } else if let Some((name, _)) = line.split_once(" = ") {
            order.push(format!("{prefix}{name}"));
        }
    }
    order
}

fn collect(root: &Value, part: &Value, defaults: &Value, prefix: &str, found: &mut Vec<Key>) {
    let Some(properties) = part.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, schema) in properties {
        let resolved = resolve(root, schema);
        if resolved.get("properties").is_some() {
            let defaults = defaults.get(name).unwrap_or(&Value::Null);
            collect(root, resolved, defaults, &format!("{prefix}{name}."), found);
            continue;
        }
        let text = schema.get("description").and_then(Value::as_str);
        found.push(Key {
            path: format!("{prefix}{name}"),
            meaning: text.unwrap_or_default().replace('\n', " "),
            default: defaults.get(name).cloned().unwrap_or(Value::Null),
            schema: resolved.clone(),
        });
    }
}

/// Resolves a `$ref` into the definitions of `root`.
pub(super) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str);
    match target.and_then(|target| target.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).unwrap_or(schema),
        None => schema,
    }
}

/// The values of an enumeration, written as `enum` or as `oneOf` of constants.
pub(super) fn enum_values(schema: &Value) -> Option<Vec<&str>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(Value::as_str).collect();
    }
    let choices = schema.get("oneOf")?.as_array()?;
    let constant = |choice: &'_ Value| choice.get("const").is_some();
    if !choices.iter().all(constant) {
        return None;
    }
    choices
        .iter()
        .map(|choice| choice.get("const")?.as_str())
        .collect()
}
