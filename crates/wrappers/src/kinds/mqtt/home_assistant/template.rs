//! `value_template`s of the common forms: a path into the message, and filters that only change a number.
//!
//! Home Assistant evaluates any Jinja template. Here only those are evaluated that pick a value: `{{ value }}`,
//! `{{ value_json.a['b'][0] | float | round(1) }}`. Any other is refused, so that no value is stored that the template
//! would have changed.

use serde_json::Value;

/// Longest template in bytes; reason: the forms that are evaluated are shorter.
const TEMPLATE_BYTES_MAX: usize = 1_024;
/// Most characters of a state. Home Assistant takes no longer one.
pub(super) const STATE_CHARACTERS_MAX: usize = 255;
/// Most bytes of a state; reason: a character of UTF-8 has at most four.
const STATE_BYTES_MAX: usize = 4 * STATE_CHARACTERS_MAX;
/// Most places after the decimal point; reason: a double has no more.
const PLACES_MAX: usize = 17;

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ValueTemplate {
    /// The path into a JSON message; `None`: the message is the value.
    path: Option<Vec<Step>>,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    Index(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    Number,
    Whole,
    Round(usize),
    /// `is_defined`, or `default` of nothing: a missing value stays missing.
    Missing,
}

/// A message as templates see it; its JSON is parsed when the first template needs it.
#[derive(Debug)]
pub(super) struct Payload<'p> {
    bytes: &'p [u8],
    json: Option<Option<Value>>,
}

impl<'p> Payload<'p> {
    pub(super) fn new(bytes: &'p [u8]) -> Self {
        Self { bytes, json: None }
    }

    fn text(&self) -> Result<&'p str, &'static str> {
        std::str::from_utf8(self.bytes).map_err(|_| "the message is not text")
    }

    fn json(&mut self) -> Option<&Value> {
        let bytes = self.bytes;
        let parsed = self
            .json
            .get_or_insert_with(|| serde_json::from_slice(bytes).ok());
        parsed.as_ref()
    }
}

impl ValueTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// Why it is not evaluated.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "the template {:?} is none that is evaluated",
                beginning(text)
            )
        };
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(refused());
        }
        let inner = text
            .trim()
            .strip_prefix("{{")
            .and_then(|it| it.strip_suffix("}}"));
        let inner = inner.ok_or_else(refused)?;
        let inner = inner.strip_prefix('-').unwrap_or(inner);
        let mut scan = Scan(inner.strip_suffix('-').unwrap_or(inner));
        let path = match scan.name().as_deref() {
            Some("value") => None,
            Some("value_json") => Some(scan.path().ok_or_else(refused)?),
            _ => return Err(refused()),
        };
        let mut filters = Vec::new();
        while scan.takes('|') {
            let name = scan.name().ok_or_else(refused)?;
            let argument = scan.argument().ok_or_else(refused)?;
            filters.push(filter(&name, argument.as_deref()).ok_or_else(refused)?);
        }
        match scan.0.trim().is_empty() {
            true => Ok(Self { path, filters }),
            false => Err(refused()),
        }
    }

    /// The value of a message; `None`: the message has none.
    ///
    /// # Errors
    /// The message is none that the template can be applied to.
    pub(super) fn value(&self, payload: &mut Payload<'_>) -> Result<Option<Value>, String> {
        let found = match &self.path {
            None if payload.bytes.len() > STATE_BYTES_MAX => return Err(too_long()),
            None => Some(Value::String(payload.text()?.to_owned())),
            Some(path) => {
                let json = payload.json().ok_or("the message is not JSON")?;
                let mut found = Some(json);
                for step in path {
                    found = found.and_then(|value| match step {
                        Step::Name(name) => value.get(name),
                        Step::Index(index) => value.get(index),
                    });
                }
                // Many entities can read one message, so that a long value is refused before it is copied.
                let mut left = STATE_BYTES_MAX;
                if found.is_some_and(|value| !fits(value, &mut left)) {
                    return Err(too_long());
                }
                found.cloned()
            }
        };
        let Some(mut value) = found else {
            return Ok(None);
        };
        for filter in &self.filters {
            let number = || number(&value).ok_or_else(|| format!("{value} is not a number"));
            value = match filter {
                Filter::Missing => continue,
                _ if value.is_null() => return Ok(Some(Value::Null)),
                Filter::Number if value.is_number() => continue,
                Filter::Number => number()?.into(),
                Filter::Whole => number()?.trunc().into(),
                Filter::Round(places) => {
                    let rounded = format!("{:.places$}", number()?);
                    rounded.parse::<f64>().unwrap_or_default().into()
                }
            };
        }
        Ok(Some(value))
    }
}

/// The reason why a value is no state.
pub(super) fn too_long() -> String {
    format!("its state has more than {STATE_CHARACTERS_MAX} characters")
}

/// Whether a value can be a state of at most `left` bytes: each item of it has at least one.
fn fits(value: &Value, left: &mut usize) -> bool {
    let takes = |left: &mut usize, bytes: usize| {
        let rest = left.checked_sub(bytes);
        *left = rest.unwrap_or_default();
        rest.is_some()
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => takes(left, 1),
        Value::String(text) => takes(left, text.len()),
        Value::Array(items) => takes(left, 1) && items.iter().all(|item| fits(item, left)),
        Value::Object(table) => {
            let mut items = table.iter();
            takes(left, 1) && items.all(|(key, item)| takes(left, key.len()) && fits(item, left))
        }
    }
}

/// A number, or a text that is one.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn filter(name: &str, argument: Option<&str>) -> Option<Filter> {
    let is_nothing = |text: &str| matches!(text, "" | "''" | "\"\"" | "none" | "None");
    match (name, argument) {
        ("float", None | Some("")) => Some(Filter::Number),
        ("int", None | Some("")) => Some(Filter::Whole),
        // A default for what is no number would be a value that nobody measured.
        ("round", None | Some("")) => Some(Filter::Round(0)),
        ("round", Some(places)) => {
            let places = places.parse().ok().filter(|places| *places <= PLACES_MAX)?;
            Some(Filter::Round(places))
        }
        ("is_defined", None) => Some(Filter::Missing),
        ("default", Some(text)) if is_nothing(text) => Some(Filter::Missing),
        _ => None,
    }
}

/// The first characters of a text, for messages.
pub(super) fn beginning(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.chars().count() > SHOWN {
        true => text.chars().take(SHOWN).chain("…".chars()).collect(),
        false => text.to_owned(),
    }
}

/// The rest of a template.
struct Scan<'t>(&'t str);

impl Scan<'_> {
    fn takes(&mut self, sign: char) -> bool {
        let rest = self.0.trim_start().strip_prefix(sign);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn name(&mut self) -> Option<String> {
        let text = self.0.trim_start();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        let name = &text[..end];
        let is_name = name.starts_with(|c: char| !c.is_numeric());
        is_name.then(|| {
            self.0 = &text[end..];
            name.to_owned()
        })
    }

    /// The steps after `value_json`.
    fn path(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.takes('.') {
                steps.push(Step::Name(self.name()?));
            } else if self.takes('[') {
                let text = self.0.trim_start();
                let quote = text.chars().next()?;
                if quote == '\'' || quote == '"' {
                    let (name, rest) = text[1..].split_once(quote)?;
                    if name.contains('\\') {
                        return None;
                    }
                    steps.push(Step::Name(name.to_owned()));
                    self.0 = rest;
                } else {
                    let (index, rest) = text.split_once(']')?;
                    steps.push(Step::Index(index.trim().parse().ok()?));
                    // The bracket closes below.
                    self.0 = &text[text.len() - rest.len() - 1..];
                }
                if !self.takes(']') {
                    return None;
                }
            } else {
                return Some(steps);
            }
        }
    }

    /// What is between the parentheses of a filter; `Some(None)` without parentheses.
    fn argument(&mut self) -> Option<Option<String>> {
        if !self.takes('(') {
            return Some(None);
        }
        let (argument, rest) = self.0.split_once(')')?;
        let argument = argument.trim().to_owned();
        self.0 = rest;
        Some(Some(argument))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn value(template: &str, message: &str) -> Result<Option<Value>, String> {
        let template = ValueTemplate::parse(template)?;
        template.value(&mut Payload::new(message.as_bytes()))
    }

    #[test]
    fn the_common_forms_pick_a_value() {
        let message = r#"{"a": {"b c": [1, "2.55"]}, "n": 21.456, "on": true, "x": null}"#;
        for (template, expected) in [
            ("{{ value_json.n }}", Some(json!(21.456))),
            ("{{value_json['n']|round(1)}}", Some(json!(21.5))),
            (
                "{{ value_json.a['b c'][1] | float | round(1) }}",
                Some(json!(2.5)),
            ),
            ("{{ value_json[\"a\"]['b c'][0] }}", Some(json!(1))),
            ("{{ value_json.n | int }}", Some(json!(21.0))),
            ("{{ value_json.n | is_defined }}", Some(json!(21.456))),
            ("{{- value_json.on -}}", Some(json!(true))),
            ("{{ value_json.x | float }}", Some(json!(null))),
            ("{{ value_json.missing }}", None),
            ("{{ value_json.n.deeper | default('') }}", None),
        ] {
            assert_eq!(value(template, message), Ok(expected), "{template}");
        }
        assert_eq!(value("{{ value }}", "21"), Ok(Some(json!("21"))));
        assert_eq!(value("{{ value | float }}", " 21 "), Ok(Some(json!(21.0))));
    }

    #[test]
    fn other_forms_and_messages_are_refused() {
        for template in [
            "{{ value_json.a * 2 }}",
            "{% if value_json.a %}1{% endif %}",
            "{{ states('x') }}",
            "{{ value_json.a | float(0) }}",
            "{{ value_json.a | default(5) }}",
            "{{ value_json.a | round(99) }}",
            "{{ value_json.a }} {{ value_json.b }}",
            "{{ value_json.['a'] }}",
            "{{ value_json[a] }}",
            "21",
        ] {
            let refused = ValueTemplate::parse(template);
            assert!(refused.is_err(), "{template}: {refused:?}");
        }
        assert!(value("{{ value_json.n }}", "no json").is_err());
        assert!(value("{{ value | float }}", "warm").is_err());
        assert!(value("{{ value | float }}", "nan").is_err());
    }

    proptest! {
        #[test]
        fn no_template_panics(template in "(\\{\\{)?[ a-z_.'\"\\[\\]()|0-9é-]{0,60}(\\}\\})?", message in ".{0,60}") {
            let _ = value(&template, &message);
        }
    }
}
