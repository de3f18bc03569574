//! Path rules: a TOML file that maps events with nested types to elements.
//!
//! ```toml
//! [[rule]]
//! action = "http://example.com/scale/Weighed"
//! stream = "weight"
//! each = "Readings/Reading"     # one element for each match; default: one for the event
//! time = "@at"                  # xs:dateTime; default: time of receipt
//! key = "Sensor/@id"
//! rest = "rest"                 # a text column for the XML that no path uses
//!
//! [[rule.field]]
//! name = "weight"
//! path = "Value"
//! type = "double"
//! unit = "kg"
//! observed_property = "http://qudt.org/vocab/quantitykind/Mass"
//! ```
//!
//! Paths are those of [`chappe_xml::path`]. The first match counts.

use std::borrow::Cow;
use std::ops::Range;
use std::path;

use chappe_soap::schema::{ValueFamily, parse_date_time};
use chappe_stream::descriptor::toml_words;
use chappe_stream::{Field, FieldType, Quality, StreamSchema, Timestamp, Value};
use chappe_xml::Element;
use chappe_xml::path::Path;
use serde::Deserialize;
use toml::Spanned;

use crate::mapping::flat;
use crate::mapping::mapped::{self, Mapped, Mapping, Offer, Trouble, column_name};

/// The largest number of elements from one event. Reason: an event is one message of a few megabytes.
const ELEMENTS_PER_EVENT_MAX: usize = 4_096;

/// An error in a rules file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct RulesError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem, with the key.
    pub message: String,
    /// A remedy, if one is known.
    pub hint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<FileRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    action: String,
    stream: Spanned<String>,
    each: Option<Spanned<String>>,
    time: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    rest: Option<Spanned<String>>,
    #[serde(default)]
    field: Vec<FileField>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileField {
    name: Spanned<String>,
    path: Spanned<String>,
    #[serde(rename = "type")]
    field_type: Spanned<FieldType>,
    unit: Option<String>,
    observed_property: Option<String>,
    description: Option<String>,
}

/// The rules of one file, for all devices with matching events.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    action: String,
    each: Option<Path>,
    time: Option<Path>,
    key: Option<Path>,
    rest: bool,
    paths: Vec<Path>,
    offer: Offer,
}

impl Rules {
    /// Parses a rules file.
    ///
    /// # Errors
    /// The first problem, with file, line, key and hint.
    pub fn parse(file: &str, text: &str) -> Result<Self, RulesError> {
        let error = |span: Option<Range<usize>>, message: String, hint: Option<&str>| {
            let upto = span.map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..upto]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1;
            RulesError {
                file: file.to_owned(),
                line,
                message,
                hint: hint.map(str::to_owned),
            }
        };
        let parsed: File = toml::from_str(text).map_err(|wrong| {
            error(
                wrong.span(),
                toml_words(wrong.message()),
                Some("a rule's format is in docs/reference/path-rules.md"),
            )
        })?;
        let mut rules = Vec::new();
        for rule in parsed.rule {
            rules.push(
                rule.check()
                    .map_err(|(span, message, hint)| error(Some(span), message, hint))?,
            );
        }
        Ok(Self { rules })
    }

    /// Reads every rules file (`*.toml`) of a directory, in the order of their names, and returns the errors. A
    /// missing directory has no rules.
    #[must_use]
    pub fn read(directory: &path::Path) -> (Self, Vec<RulesError>) {
        let mut paths: Vec<_> = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "toml")
            })
            .collect();
        paths.sort();
        let mut all = Self::default();
        let mut wrong = Vec::new();
        for path in paths {
            let file = path.display().to_string();
            let parsed = match std::fs::read_to_string(&path) {
                Ok(text) => Self::parse(&file, &text),
                Err(error) => Err(RulesError {
                    file,
                    line: 0,
                    message: error.to_string(),
                    hint: None,
                }),
            };
            match parsed {
                Ok(rules) => all.rules.extend(rules.rules),
                Err(error) => wrong.push(error),
            }
        }
        (all, wrong)
    }

    /// The mapping of a device with these event actions; `None` if no rule matches.
    #[must_use]
    pub fn mapping(&self, actions: &[String]) -> Option<RulesMapping> {
        let named = self
            .rules
            .iter()
            .filter(|rule| actions.contains(&rule.action));
        let rules: Vec<_> = named.cloned().collect();
        let offers: Vec<_> = rules.iter().map(|rule| rule.offer.clone()).collect();
        (!rules.is_empty()).then_some(RulesMapping { rules, offers })
    }

    /// Whether a rule names this action.
    #[must_use]
    pub fn names(&self, action: &str) -> bool {
        self.rules.iter().any(|rule| rule.action == action)
    }
}

type RuleProblem = (Range<usize>, String, Option<&'static str>);

impl FileRule {
    fn check(self) -> Result<Rule, RuleProblem> {
        let path = |path: &Option<Spanned<String>>| path.as_ref().map(parse_path).transpose();
        if column_name(self.stream.get_ref()) != *self.stream.get_ref() {
            let message = format!("stream = {:?} is not a stream name", self.stream.get_ref());
            return Err((self.stream.span(), message, Some("use a-z, 0-9 and _")));
        }
        let (each, time, key) = (path(&self.each)?, path(&self.time)?, path(&self.key)?);
        let mut fields = Vec::new();
        let mut paths = Vec::new();
        for field in self.field {
            paths.push(parse_path(&field.path)?);
            let span = field.name.span();
            if *field.field_type.get_ref() == FieldType::Samples {
                let hint = "samples are mapped from flat events and SDC waveforms";
                let message = "a path cannot produce type = \"samples\"".to_owned();
                return Err((field.field_type.span(), message, Some(hint)));
            }
            fields.push((
                span,
                Field {
                    name: field.name.into_inner(),
                    field_type: field.field_type.into_inner(),
                    unit: field.unit,
                    observed_property: field.observed_property,
                    description: field.description,
                },
            ));
        }
        let rest = self.rest.is_some();
        if let Some(name) = self.rest {
            fields.push((
                name.span(),
                Field {
                    name: name.into_inner(),
                    field_type: FieldType::Text,
                    unit: None,
                    observed_property: None,
                    description: Some("the XML that no path uses".into()),
                },
            ));
        }
        if fields.is_empty() {
            let message = format!("rule for {} has no field", self.action);
            return Err((self.stream.span(), message, Some("add a [[rule.field]]")));
        }
        for (index, (span, _)) in fields.iter().enumerate() {
            let upto = fields[..=index]
                .iter()
                .map(|(_, field)| field.clone())
                .collect();
            let schema = StreamSchema {
                fields: upto,
                key: None,
            };
            if let Err(wrong) = schema.check_names() {
                return Err((span.clone(), wrong.to_string(), None));
            }
        }
        let schema = StreamSchema {
            fields: fields.into_iter().map(|(_, field)| field).collect(),
            key: key.as_ref().map(|_| "key".to_owned()),
        };
        let offer = Offer {
            name: self.stream.into_inner(),
            schema,
            description: None,
        };
        Ok(Rule {
            action: self.action,
            each,
            time,
            key,
            rest,
            paths,
            offer,
        })
    }
}

/// The mapping of one device by rules.
#[derive(Debug)]
pub struct RulesMapping {
    rules: Vec<Rule>,
    offers: Vec<Offer>,
}

impl Mapping for RulesMapping {
    fn offers(&self) -> &[Offer] {
        &self.offers
    }

    fn actions(&self) -> Vec<String> {
        let mut actions: Vec<_> = self.rules.iter().map(|rule| rule.action.clone()).collect();
        actions.sort();
        actions.dedup();
        actions
    }

    fn map(&mut self, action: &str, body: &Element, received: Timestamp) -> Mapped {
        let mut mapped = Mapped::default();
        for (index, rule) in self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.action == action)
        {
            rule.map(index, body, received, &mut mapped);
        }
        mapped
    }
}

impl Rule {
    fn map(&self, index: usize, body: &Element, received: Timestamp, mapped: &mut Mapped) {
        let roots = match &self.each {
            Some(path) => path.elements(body),
            None => vec![body],
        };
        if roots.len() > ELEMENTS_PER_EVENT_MAX {
            let detail = format!("{} holds more than {ELEMENTS_PER_EVENT_MAX}", self.action);
            mapped
                .troubles
                .push(Trouble::new("rules_elements_limit", detail));
        }
        for root in roots.into_iter().take(ELEMENTS_PER_EVENT_MAX) {
            let mut quality = Quality::Good;
            let mut trouble = |reason, detail: String| {
                let detail = format!("{detail} ({})", self.action);
                mapped.troubles.push(Trouble::new(reason, detail));
            };
            let mut source_time = received;
            if let Some(text) = self.time.as_ref().and_then(|path| path.first_text(root)) {
                match parse_date_time(text.trim()) {
                    Ok(nanoseconds) => source_time = Timestamp(nanoseconds),
                    Err(error) => trouble("rules_time", error.to_string()),
                }
            }
            let mut values = Vec::new();
            let mut taken = Vec::new();
            for (path, field) in self.paths.iter().zip(&self.offer.schema.fields) {
                let Some(text) = path.first_text(root) else {
                    values.push(Value::Null);
                    continue;
                };
                taken.push(path.top(root));
                let value = flat::typed(family(field.field_type), false, text.trim());
                values.push(value.unwrap_or_else(|why| {
                    trouble("rules_value", format!("{}: {why}", field.name));
                    quality = Quality::Bad;
                    Value::Null
                }));
            }
            if self.rest {
                values.push(flat::remaining_xml(root, &taken).map_or(Value::Null, Value::Text));
            }
            let mut element = mapped::element(source_time, received, quality, values);
            element.key = self
                .key
                .as_ref()
                .and_then(|path| path.first_text(root))
                .map(Cow::into_owned);
            mapped.elements.push((index, element));
        }
    }
}

fn family(field_type: FieldType) -> ValueFamily {
    match field_type {
        FieldType::Boolean => ValueFamily::Boolean,
        FieldType::Integer => ValueFamily::Integer,
        FieldType::Double => ValueFamily::Number,
        FieldType::Bytes => ValueFamily::Bytes,
        FieldType::Text | FieldType::Samples => ValueFamily::Text,
    }
}

/// The path of a key of the file.
fn parse_path(text: &Spanned<String>) -> Result<Path, RuleProblem> {
    Path::parse(text.get_ref()).map_err(|error| {
        let hint = "write a path like Readings/Reading/@value";
        (text.span(), error.to_string(), Some(hint))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
[[rule]]
action = "urn:scale/Weighed"
stream = "weight"
each = "Readings/Reading"
time = "@at"
key = "Sensor/@id"
rest = "rest"

[[rule.field]]
name = "weight"
path = "Value"
type = "double"
unit = "kg"

[[rule.field]]
name = "stable"
path = "{urn:scale}Value/@stable"
type = "boolean"
"#;

    fn map(body: &str) -> Mapped {
        let rules = Rules::parse("rules.toml", RULES).expect("the rules are right");
        let mut mapping = rules
            .mapping(&["urn:scale/Weighed".into()])
            .expect("an action is named");
        let body = Element::parse(body.as_bytes()).expect("the event is XML");
        mapping.map("urn:scale/Weighed", &body, Timestamp(5))
    }

    #[test]
    fn repetitions_attributes_keys_and_the_remaining_xml_are_mapped() {
        let mapped = map(
            "<Weighed xmlns='urn:scale'><Readings>
               <Reading at='1970-01-01T00:00:02Z'><Sensor id='left'/><Value stable='true'>71.5</Value></Reading>
               <Reading><Sensor id='right'/><Value>x</Value><Odd>1</Odd></Reading>
             </Readings></Weighed>",
        );
        assert_eq!(mapped.elements.len(), 2);
        let first = &mapped.elements[0].1;
        assert_eq!(
            (first.source_time, first.key.as_deref()),
            (Timestamp(2_000_000_000), Some("left"))
        );
        assert_eq!(
            first.values[..2],
            [Value::Double(71.5), Value::Boolean(true)]
        );
        let second = &mapped.elements[1].1;
        assert_eq!(
            (second.source_time, second.quality),
            (Timestamp(5), Quality::Bad)
        );
        let Value::Text(rest) = &second.values[2] else {
            panic!("{:?}", second.values)
        };
        assert!(rest.contains("Odd") && !rest.contains(">x<"), "{rest}");
        assert_eq!(mapped.troubles.len(), 1);
    }

    #[test]
    fn an_error_names_line_key_and_hint() {
        let cases = [
            ("[[rule]]\naction='a'\nstream='Big'\n", 3, "stream"),
            ("[[rule]]\naction='a'\nstream='s'\n", 3, "no field"),
            (
                "[[rule]]\naction='a'\nstream='s'\ncolour='red'\n",
                4,
                "colour",
            ),
            (
                "[[rule]]\naction='a'\nstream='s'\n[[rule.field]]\nname='a'\npath='a//b'\ntype='text'\n",
                6,
                "path",
            ),
            (
                "[[rule]]\naction='a'\nstream='s'\n[[rule.field]]\nname='a'\npath='a'\ntype='samples'\n",
                7,
                "samples",
            ),
            (
                "[[rule]]\naction='a'\nstream='s'\n[[rule.field]]\nname='A'\npath='a'\ntype='text'\n",
                5,
                "field name",
            ),
        ];
        for (text, line, word) in cases {
            let error = Rules::parse("r.toml", text).expect_err(text);
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_directory_returns_valid_rules_and_names_invalid_files() {
        let folder = std::env::temp_dir().join(format!("chappe-rules-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        std::fs::write(folder.join("a.toml"), RULES).expect("written");
        std::fs::write(folder.join("b.toml"), "[[rule]]\n").expect("written");
        std::fs::write(folder.join("c.txt"), "no rules").expect("written");
        let (rules, wrong) = Rules::read(&folder);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert!(rules.names("urn:scale/Weighed"));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].file.ends_with("b.toml"));
        assert!(Rules::read(&folder).1.is_empty(), "no directory, no rules");
    }

    #[test]
    fn other_actions_have_no_mapping() {
        let rules = Rules::parse("rules.toml", RULES).expect("the rules are right");
        assert!(rules.mapping(&["urn:other".into()]).is_none());
    }
}
