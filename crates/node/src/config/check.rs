//! Checks a value against a JSON Schema: the subset of draft 2020-12 that Chappe's schemas use.
//!
//! The loader and editors use the same schema, so they cannot disagree. Other keywords are ignored.

use std::net::SocketAddr;

use chappe_identity::{CurvePublic, Prefix};
use serde_json::Value;

use super::error::nearest;
use super::schema::{enum_values, resolve};

/// Former keys, each with what replaces it.
const REPLACED: [(&str, &str); 3] = [
    (
        "dds.publish",
        "`chappe config migrate FILE` makes a file in the directory `exporters` of it, with kind = \"dds\": docs/reference/dds.md",
    ),
    (
        "dds.subscribe",
        "`chappe config migrate FILE` makes a file in the directory `wrappers` of it, with kind = \"dds\": docs/reference/dds.md",
    ),
    (
        "dds.library",
        "there is one DDS library; `chappe config migrate FILE` removes the key",
    ),
];

/// A part of a value that violates the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Keys and indexes from the root to that part.
    pub(crate) path: Vec<String>,
    /// The fault.
    pub(crate) message: String,
    /// How to repair it.
    pub(crate) hint: Option<String>,
}

/// All violations of `schema` in `value`.
pub(crate) fn violations(schema: &Value, value: &Value) -> Vec<Violation> {
    let mut walk = Walk {
        root: schema,
        path: Vec::new(),
        found: Vec::new(),
    };
    walk.check(schema, value);
    walk.found
}

struct Walk<'a> {
    root: &'a Value,
    path: Vec<String>,
    found: Vec<Violation>,
}

impl<'a> Walk<'a> {
    fn refuse(&mut self, message: impl Into<String>, hint: Option<String>) {
        self.found.push(Violation {
            path: self.path.clone(),
            message: message.into(),
            hint,
        });
    }

    fn check(&mut self, schema: &'a Value, value: &Value) {
        let schema = resolve(self.root, schema);
        if let Some(allowed) = enum_values(schema) {
            return self.check_enum(&allowed, value);
        }
        if let Some(choices) = ["anyOf", "oneOf"]
            .iter()
            .find_map(|name| schema.get(name)?.as_array())
        {
            return self.check_choices(choices, value);
        }
        if !self.check_type(schema, value) {
            return;
        }
        match value {
            Value::Object(_) => self.check_object(schema, value),
            Value::Array(items) => {
                let Some(inner) = schema.get("items") else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    self.path.push(index.to_string());
                    self.check(inner, item);
                    self.path.pop();
                }
            }
            Value::Number(_) => self.check_range(schema, value),
            Value::String(text) => self.check_text(schema, text),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn check_enum(&mut self, allowed: &[&str], value: &Value) {
        match value.as_str() {
            Some(text) if allowed.contains(&text) => {}
            Some(text) => {
                let hint = nearest(text, allowed.iter().copied());
                self.refuse(
                    format!("{text:?} is not one of {}", allowed.join(", ")),
                    hint.map(|hint| format!("did you mean {hint:?}?")),
                );
            }
            None => self.refuse(
                format!("must be one of {}", allowed.join(", ")),
                sample_hint(),
            ),
        }
    }

    fn check_choices(&mut self, choices: &'a [Value], value: &Value) {
        let mut best: Option<Vec<Violation>> = None;
        for choice in choices {
            let mut attempt = Walk {
                root: self.root,
                path: self.path.clone(),
                found: Vec::new(),
            };
            attempt.check(choice, value);
            if attempt.found.is_empty() {
                return;
            }
            // The user most likely meant the choice whose violation is nested deepest.
            let depth = |found: &[Violation]| found.iter().map(|v| v.path.len()).max();
            if best
                .as_ref()
                .is_none_or(|best| depth(best) < depth(&attempt.found))
            {
                best = Some(attempt.found);
            }
        }
        self.found.extend(best.unwrap_or_default());
    }

    fn check_type(&mut self, schema: &Value, value: &Value) -> bool {
        let wanted: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        let fits = |name: &&str| match *name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            _ => true,
        };
        if wanted.iter().any(fits) {
            return true;
        }
        let named: Vec<&str> = wanted.iter().map(|name| type_name(name)).collect();
        let message = format!("must be {}, not {}", named.join(" or "), describe(value));
        let is_one_table = value.is_object() && wanted.contains(&"array");
        let hint = is_one_table.then(|| format!("write it as [[{}]]", self.path.join(".")));
        self.refuse(message, hint.or_else(sample_hint));
        false
    }

    fn check_object(&mut self, schema: &'a Value, value: &Value) {
        let none = serde_json::Map::new();
        let members = value.as_object().unwrap_or(&none);
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.unwrap_or(&none);
        let other = schema.get("additionalProperties");
        for (name, member) in members {
            self.path.push(name.clone());
            if let Some(inner) = schema
                .get("properties")
                .and_then(|properties| properties.get(name))
            {
                self.check(inner, member);
            } else if other == Some(&Value::Bool(false)) {
                let path = self.path.join(".");
                let replaced = REPLACED.iter().find(|(former, _)| *former == path);
                if let Some((_, hint)) = replaced {
                    self.refuse("the key was replaced", Some((*hint).to_owned()));
                    self.path.pop();
                    continue;
                }
                let hint = nearest(name, properties.keys().map(String::as_str));
                let hint = match hint {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                        format!("valid keys: {}", known.join(", "))
                    }
                };
                self.refuse("unknown key", Some(hint));
            } else if let Some(inner) = other.filter(|other| other.is_object()) {
                self.check(inner, member);
            }
            self.path.pop();
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                self.refuse(format!("`{name}` is missing"), sample_hint());
            }
        }
    }

    fn check_range(&mut self, schema: &Value, value: &Value) {
        let number = value.as_f64().unwrap_or(f64::NAN);
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let (least, most) = (bound("minimum"), bound("maximum"));
        let hint = match (least, most) {
            (Some(least), Some(most)) => Some(format!("use a value from {least} to {most}")),
            _ => sample_hint(),
        };
        if let Some(low) = least.filter(|low| number < *low) {
            let message = format!("{value} is below the minimum, {low}");
            self.refuse(message, hint.clone());
        }
        if let Some(high) = most.filter(|high| number > *high) {
            self.refuse(format!("{value} is above the maximum, {high}"), hint);
        }
    }

    fn check_text(&mut self, schema: &Value, text: &str) {
        let length = text.chars().count() as u64;
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        if bound("minLength").is_some_and(|least| length < least) {
            self.refuse("is empty or too short", sample_hint());
        }
        if let Some(most) = bound("maxLength").filter(|most| length > *most) {
            let hint = Some(format!("shorten it to {most} characters"));
            self.refuse(format!("has more than {most} characters"), hint);
        }
        let format = schema.get("format").and_then(Value::as_str);
        match format {
            Some("socket-address") if text.parse::<SocketAddr>().is_err() => self.refuse(
                format!("{text:?} is not an address with a port"),
                Some("write it as 127.0.0.1:8470 or [::1]:8470".to_owned()),
            ),
            Some("socket-address-or-empty")
                if !text.is_empty() && text.parse::<SocketAddr>().is_err() =>
            {
                self.refuse(
                    format!("{text:?} is not an address with a port"),
                    Some("write it as 127.0.0.1:8471 or [::1]:8471, or leave it empty".to_owned()),
                )
            }
            Some("curve-key") if text != "*" && text.parse::<CurvePublic>().is_err() => self
                .refuse(
                    format!("{text:?} is not a public key"),
                    Some(
                        "use the key that `chappe key show` prints on that node's host, or \"*\" \
                         for every key"
                            .to_owned(),
                    ),
                ),
            Some("ip-prefix") if text.parse::<Prefix>().is_err() => self.refuse(
                format!("{text:?} is not a network prefix"),
                Some("write it as 10.1.0.0/16 or fd00::/8".to_owned()),
            ),
            _ => {}
        }
    }
}

/// The default hint.
fn sample_hint() -> Option<String> {
    Some("`chappe config sample` prints every key with its meaning and its default".to_owned())
}

fn type_name(name: &str) -> &str {
    match name {
        "object" => "a table",
        "array" => "a list",
        "string" => "a string",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        other => other,
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "a table".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => {
            format!("the string {:?}", text.chars().take(40).collect::<String>())
        }
        other => other.to_string(),
    }
}
