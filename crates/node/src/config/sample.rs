//! The sample configuration: every key, commented out at its default.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema::{Key, keys, resolve, schema};

/// A link, as an example.
const LINK: &str = "# [[links]]\n# name = \"ward-3\"\n# kind = \"zeromq\"\n\
                    # address = \"tcp://192.0.2.7:8471\"\n# streams = [\"ward.*\"]\n\
                    # server_key = \"the key that `chappe key show` prints on that node's host\"\n";

/// A node.toml that changes nothing: every key commented out at its default, with its meaning,
/// unit and range.
#[must_use]
pub fn sample() -> String {
    let mut text = String::from(
        "# Configuration of a Chappe node. Every key is listed at its default; to change one, remove\n\
         # the `#` before it. `chappe config check` reports the faults of a file; `chappe config show`\n\
         # prints the origin of each value. An environment variable can set each key as well:\n\
         # CHAPPE_HTTP_LISTEN sets http.listen.\n",
    );
    let mut section = "";
    let keys = keys();
    for key in &keys {
        let (table, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        if table != section {
            let _ = write!(text, "\n[{table}]\n");
            section = table;
        }
        text.push('\n');
        comment(&mut text, key);
        let _ = writeln!(text, "#{name} = {}", literal(&key.default));
    }
    text.push_str("\n# Each link is a separate table:\n#\n");
    text.push_str(LINK);
    text.push_str("#\n# The keys of a link:\n");
    describe_links(&mut text);
    text
}

/// Lists the keys of a link with their meanings.
fn describe_links(text: &mut String) {
    let root = schema();
    let item = root.pointer("/properties/links/items");
    if let Some(item) = item {
        describe_table(text, &root, item, "");
    }
}

fn describe_table(text: &mut String, root: &Value, table: &Value, prefix: &str) {
    let keys = resolve(root, table).get("properties");
    for (name, key) in keys.and_then(Value::as_object).into_iter().flatten() {
        let meaning = key.get("description").and_then(Value::as_str);
        let meaning = meaning.unwrap_or_default().replace('\n', " ");
        wrap(text, &format!("{prefix}{name}: {meaning}"));
        describe_table(text, root, key, &format!("{prefix}{name}."));
    }
}

fn comment(text: &mut String, key: &Key) {
    let mut words = key.meaning.clone();
    let mut notes = Vec::new();
    notes.extend(key.unit().map(|unit| format!("Unit: {unit}.")));
    notes.extend(key.range().map(|range| format!("Range: {range}.")));
    for note in notes {
        words.push(' ');
        words.push_str(&note);
    }
    wrap(text, &words);
}

/// Writes words as comment lines.
fn wrap(text: &mut String, words: &str) {
    let mut width = 0;
    for word in words.split_whitespace() {
        if width == 0 || width + word.len() + 1 > 98 {
            text.push_str(if width == 0 { "#" } else { "\n#" });
            width = 1;
        }
        text.push(' ');
        text.push_str(word);
        width += word.len() + 1;
    }
    text.push('\n');
}

/// A value in TOML.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        other => other.to_string(),
    }
}
