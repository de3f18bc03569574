//! The pages of the settings of a node, of wrappers and of exporters, from their JSON Schemas.

use std::collections::BTreeMap;

use chappe_node::config;
use serde_json::Value;

use super::markdown::{head, item, paragraph};
use super::members;

/// How deep tables are within tables; reason: a schema that refers to itself ends here.
const DEPTH_MAX: usize = 6;

/// The page of node.toml.
pub(super) fn configuration() -> String {
    let root = config::schema();
    let mut page = head(
        "Configuration of a node",
        "The keys of node.toml. `chappe config sample` prints them with their defaults, and `chappe config check` checks \
         a file. A key can also be set with `--set KEY=VALUE` or an environment variable: `http.listen` with \
         `CHAPPE_HTTP_LISTEN`. Flags override variables, and variables override the file.",
    );
    page += "## Top level\n\n";
    let schema = Schema { root: &root };
    page += &schema.keys(&root, |part| !schema.is_table(part));
    for (name, part) in members(&root["properties"]) {
        if schema.is_table(part) {
            page += &schema.section(name, part);
        }
    }
    page.trim_end().to_owned() + "\n"
}

/// The page of the files of wrappers and exporters.
pub(super) fn wrappers() -> String {
    let mut page = head(
        "Settings of wrappers and exporters",
        "The keys of the files in `wrappers_directory` and `exporters_directory`, by `kind`. \
         `chappe config schema wrapper` prints them as a JSON Schema for editors.",
    );
    for (title, schema) in [
        ("Wrapper", config::wrapper_schema()),
        ("Exporter", config::exporter_schema()),
    ] {
        let kinds: Vec<&Value> = schema["oneOf"].as_array().into_iter().flatten().collect();
        let root = Schema { root: &schema };
        let is_common = |name: &str, part: &Value| {
            let mut kinds = kinds.iter();
            name != "kind" && kinds.all(|kind| kind["properties"][name] == *part)
        };
        // Long ones that several kinds have are written once.
        let is_shared = |name: &str, part: &Value| {
            let same = kinds
                .iter()
                .filter(|kind| kind["properties"][name] == *part);
            !is_common(name, part) && !root.tables(part, DEPTH_MAX).is_empty() && same.count() > 1
        };
        let with = |kind: &Value, is_wanted: &dyn Fn(&str, &Value) -> bool| {
            let mut part = kind.clone();
            if let Some(properties) = part["properties"].as_object_mut() {
                properties.retain(|name, part| name != "kind" && is_wanted(name, part));
            }
            root.keys(&part, |_| true)
        };
        if let Some(first) = kinds.first().copied() {
            page += &format!("## Keys of every {}\n\n", title.to_lowercase());
            page += &with(first, &is_common);
        }
        let mut shared: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for kind in kinds.iter().copied() {
            for (name, part) in members(&kind["properties"]) {
                if is_shared(name, part) {
                    let kinds = shared.entry(root.key(name, part, false, 0)).or_default();
                    kinds.push(format!("`{}`", kind["title"].as_str().unwrap_or_default()));
                }
            }
        }
        page += &format!("## Keys of several {}s\n\n", title.to_lowercase());
        for (key, kinds) in shared {
            page += &paragraph(&format!("Of {}:", kinds.join(", ")));
            page += &(key + "\n");
        }
        for kind in kinds.iter().copied() {
            let name = kind["title"].as_str().unwrap_or_default();
            page += &format!("## {title} of kind `{name}`\n\n");
            let about = kind["description"].as_str().unwrap_or_default();
            page += &paragraph(&sentence(about));
            page += &with(kind, &|name, part| {
                !is_common(name, part) && !is_shared(name, part)
            });
            let names = members(&kind["properties"]).into_iter();
            let names = names.filter(|(name, part)| is_shared(name, part));
            let names: Vec<_> = names.map(|(name, _)| format!("`{name}`")).collect();
            if !names.is_empty() {
                page += &paragraph(&format!("It also has {}, as above.", names.join(", ")));
            }
        }
    }
    page.trim_end().to_owned() + "\n"
}

/// A sentence with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    let text = first.unwrap_or_default() + characters.as_str();
    text.trim_end_matches('.').to_owned() + "."
}

/// A schema with its definitions.
struct Schema<'a> {
    root: &'a Value,
}

impl<'a> Schema<'a> {
    /// What a schema stands for: the target of a reference, or the part beside null.
    fn resolved(&self, part: &'a Value) -> &'a Value {
        let target = part["$ref"]
            .as_str()
            .and_then(|target| target.strip_prefix('#'));
        if let Some(found) = target.and_then(|pointer| self.root.pointer(pointer)) {
            return self.resolved(found);
        }
        let choices = choices(part);
        match choices[..] {
            [only] => self.resolved(only),
            _ => part,
        }
    }

    /// Whether it is a table, or a list of tables.
    fn is_table(&self, part: &'a Value) -> bool {
        self.table(part).is_some()
    }

    /// The table that it is, or of which it is a list.
    fn table(&self, part: &'a Value) -> Option<&'a Value> {
        let part = self.resolved(part);
        let part = match &part["items"] {
            Value::Null => part,
            items => self.resolved(items),
        };
        part["properties"].is_object().then_some(part)
    }

    /// A section of node.toml, and those below it.
    fn section(&self, name: &str, part: &'a Value) -> String {
        let Some(table) = self.table(part) else {
            return String::new();
        };
        let heading = match self.resolved(part)["items"].is_null() {
            true => format!("[{name}]"),
            false => format!("[[{name}]]"),
        };
        let text = part["description"]
            .as_str()
            .or(table["description"].as_str());
        let mut page = format!("## `{heading}`\n\n{}", paragraph(text.unwrap_or_default()));
        page += &self.keys(table, |part| !self.is_table(part));
        for (below, part) in members(&table["properties"]) {
            page += &self.section(&format!("{name}.{below}"), part);
        }
        page
    }

    /// The keys of a table that `is_wanted` admits, as a list.
    fn keys(&self, table: &'a Value, is_wanted: impl Fn(&'a Value) -> bool) -> String {
        let mut list = String::new();
        let required: Vec<&str> = strings(&table["required"]).collect();
        for (name, part) in members(&table["properties"]) {
            if is_wanted(part) {
                list += &self.key(name, part, required.contains(&name), 0);
            }
        }
        match list.is_empty() {
            true => list,
            false => list + "\n",
        }
    }

    /// A key, with those of the tables in it.
    fn key(&self, name: &str, part: &'a Value, is_required: bool, depth: usize) -> String {
        let resolved = self.resolved(part);
        let mut facts = vec![self.kind(part)];
        if is_required {
            facts.push("required".to_owned());
        }
        if let Some(unit) = part["x-unit"].as_str() {
            facts.push(unit.to_owned());
        }
        facts.extend(range(part));
        let text = part["description"]
            .as_str()
            .or(resolved["description"].as_str());
        let text = text.unwrap_or_default();
        let default = &part["default"];
        // A table shows the defaults of its keys, and some descriptions name theirs.
        let is_shown = !default.is_null() && !default.is_object() && !text.contains("Default:");
        let default = match is_shown {
            true => format!(" Default: `{default}`."),
            false => String::new(),
        };
        let mut list = item(
            depth,
            &format!("`{name}` ({}): {text}{default}", facts.join(", ")),
        );
        if depth >= DEPTH_MAX {
            return list;
        }
        for choice in choices(resolved) {
            if let (Some(value), Some(text)) =
                (choice["const"].as_str(), choice["description"].as_str())
            {
                list += &item(depth + 1, &format!("`\"{value}\"`: {text}"));
            }
        }
        for table in self.tables(part, DEPTH_MAX) {
            let required: Vec<&str> = strings(&table["required"]).collect();
            for (below, part) in members(&table["properties"]) {
                list += &self.key(below, part, required.contains(&below), depth + 1);
            }
        }
        list
    }

    /// The tables that a value may be, directly or in a list.
    fn tables(&self, part: &'a Value, depth: usize) -> Vec<&'a Value> {
        if let Some(table) = self.table(part) {
            return vec![table];
        }
        if depth == 0 {
            return Vec::new();
        }
        let resolved = self.resolved(part);
        let parts = choices(resolved).into_iter().chain(resolved.get("items"));
        let parts = parts.chain(resolved["allOf"].as_array().into_iter().flatten());
        parts
            .flat_map(|part| self.tables(part, depth - 1))
            .collect()
    }

    /// The type in words.
    fn kind(&self, part: &'a Value) -> String {
        let part = self.resolved(part);
        if part["const"].is_string() || part["enum"].is_array() {
            let values = strings(&part["enum"]).chain(part["const"].as_str());
            return values
                .map(|value| format!("`\"{value}\"`"))
                .collect::<Vec<_>>()
                .join(" or ");
        }
        if part["properties"].is_object() || part["allOf"].is_array() {
            return "table".to_owned();
        }
        let choices = choices(part);
        if !choices.is_empty() {
            let mut kinds: Vec<String> = choices.iter().map(|part| self.kind(part)).collect();
            kinds.dedup();
            return kinds.join(" or ");
        }
        let kind = match &part["type"] {
            Value::Array(kinds) => kinds
                .iter()
                .filter_map(Value::as_str)
                .find(|it| *it != "null"),
            kind => kind.as_str(),
        };
        match (kind, &part["items"]) {
            (Some("array"), Value::Null) => "list".to_owned(),
            (Some("array"), items) => format!("list of {}", self.kind(items)),
            (Some("object"), _) => "table".to_owned(),
            (Some(kind), _) => kind.to_owned(),
            (None, _) => "value".to_owned(),
        }
    }
}

/// The alternatives of a schema, without null.
fn choices(part: &Value) -> Vec<&Value> {
    let alternatives = ["oneOf", "anyOf"].into_iter();
    let alternatives = alternatives
        .filter_map(|name| part[name].as_array())
        .flatten();
    alternatives.filter(|part| part["type"] != "null").collect()
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// The range of a number.
fn range(part: &Value) -> Option<String> {
    let bound = |name: &str| Some(&part[name]).filter(|bound| bound.is_number());
    match (bound("minimum"), bound("maximum")) {
        (Some(low), Some(high)) => Some(format!("{low} to {high}")),
        (Some(low), None) if low.as_f64() != Some(0.0) => Some(format!("from {low}")),
        (None, Some(high)) => Some(format!("up to {high}")),
        _ => None,
    }
}
