//! A compiled format: the configuration checked, its paths parsed.

use std::ops::Range;

use chappe_stream::descriptor::{DescriptorError, DescriptorFault, Place, nearest};
use chappe_stream::ucum::{Conversion, Unit};
use chappe_stream::{Field, FieldType, RESERVED_COLUMNS, StreamSchema, check_name};
use toml::Spanned;

use crate::config::{Common, FieldConfig, FormatConfig, FormatDocument, NameValues, StreamConfig};
use crate::decoders::Kind;
use crate::limits::Limits;
use crate::template::Template;
use crate::time::{TimeFormat, zone};
use crate::value::{Target, TextRules};

/// Most streams of a format, and most fields of a stream, in its configuration.
const STREAMS_MAX: usize = 64;
const FIELDS_MAX: usize = 256;

/// Most paths whose values are one time.
const TIME_PATHS_MAX: usize = 4;

/// Streams that the placeholders of one name may make, unless configured.
const MADE_STREAMS_MAX: u32 = 1_000;

/// The highest that it may be configured; reason: the log knows as many streams.
const MADE_STREAMS_LIMIT: u32 = 100_000;

/// How messages become elements of streams. Immutable and shared by all [`Decoder`](crate::Decoder)s of a
/// wrapper.
#[derive(Debug)]
pub struct Format {
    pub(crate) kind: Kind,
    pub(crate) rules: Vec<Rule>,
    pub(crate) time: Option<TimeRule>,
    pub(crate) texts: TextRules,
    pub(crate) limits: Limits,
}

/// Where the time of a record is.
#[derive(Debug)]
pub(crate) struct TimeRule {
    pub(crate) slots: Vec<usize>,
    pub(crate) format: TimeFormat,
    pub(crate) zone_s: i64,
}

/// A stream, or with placeholders many.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: Named,
    pub(crate) name_text: String,
    pub(crate) key: Option<Named>,
    pub(crate) subject: Option<String>,
    pub(crate) when: Vec<(Source, Vec<String>)>,
    pub(crate) fields: Vec<FieldRule>,
    pub(crate) streams_max: u32,
    pub(crate) name_values: NameValues,
}

/// A template whose placeholders are resolved.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) parts: Vec<NamedPart>,
    /// Its text is the same for all records of a message.
    pub(crate) is_constant: bool,
}

#[derive(Debug)]
pub(crate) enum NamedPart {
    Literal(String),
    Placeholder(Source),
}

/// Where the value of a placeholder comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// A path of the format.
    Slot { slot: usize, name: String },
    /// The field of the stream with this index.
    Field { index: usize, name: String },
    /// The attributes of the message, or the format.
    Free { name: String, is_attribute: bool },
}

#[derive(Debug)]
pub(crate) struct FieldRule {
    pub(crate) name: Named,
    pub(crate) field: Field,
    pub(crate) slot: usize,
    pub(crate) target: Target,
    pub(crate) is_required: bool,
    pub(crate) units: Units,
}

/// The conversion of a field's numbers.
#[derive(Debug)]
pub(crate) enum Units {
    /// The message has the field's unit, or one of the format, which converts into this.
    Target(Option<Unit>),
    Fixed(Conversion),
    /// The message names it here.
    Slot {
        slot: usize,
        target: Unit,
    },
}

impl Format {
    /// Compiles a configuration, which `place` locates. `names` are the names that topics, paths or headers
    /// give to placeholders ([`Pattern::names`](crate::Pattern::names)); names that start with `header.`
    /// need no mention.
    ///
    /// # Errors
    /// The first fault, with its position, its key and a hint.
    pub fn new(
        place: Place<'_>,
        format: &Spanned<FormatConfig>,
        streams: &[Spanned<StreamConfig>],
        names: &[String],
        limits: Limits,
    ) -> Result<Self, DescriptorError> {
        let compiler = Compiler { place, names };
        compiler.format(format, streams, limits)
    }

    /// Compiles a document that holds a format and its streams alone ([`FormatDocument`]), with the default
    /// limits; `file` names it in errors.
    ///
    /// ```
    /// use chappe_format::{Decoder, Format, Message, Output};
    /// use chappe_stream::{Timestamp, Value};
    /// let format = Format::parse("climate.toml", r#"
    /// names = ["line", "machine"]
    /// format = { json = { each = "$.readings[*]", time = "$.ts" } }
    /// [[stream]]
    /// name = "climate.{line}"
    /// key = "{machine}"
    /// fields = [{ name = "celsius", path = "$.t", type = "double", unit = "Cel" }]
    /// "#)?;
    /// let pattern = chappe_format::Pattern::topic("plant/{line}/{machine}/climate")?;
    /// let attributes = pattern.matches("plant/3/press/climate").unwrap();
    /// let body = br#"{"ts": "2026-11-21T10:00:00Z", "readings": [{"t": 21.5}, {"t": 22}]}"#;
    /// let message = Message::new(body, Timestamp(1_795_255_201_000_000_000)).with(&attributes);
    /// let (mut decoder, mut output) = (Decoder::new(format.into()), Output::default());
    /// decoder.decode(&message, &mut output)?;
    /// assert_eq!(output.elements.len(), 2);
    /// let (stream, element) = &output.elements[0];
    /// assert_eq!(decoder.stream(*stream).name, "climate.3");
    /// assert_eq!(element.key.as_deref(), Some("press"));
    /// assert_eq!(element.values, [Value::Double(21.5)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first fault, with its position, its key and a hint.
    pub fn parse(file: &str, text: &str) -> Result<Self, DescriptorError> {
        let place = Place { file, text };
        let document: FormatDocument = toml::from_str(text).map_err(|error| place.toml(&error))?;
        let (format, streams) = (&document.format, &document.stream);
        Self::new(place, format, streams, &document.names, Limits::default())
    }
}

struct Compiler<'c> {
    place: Place<'c>,
    names: &'c [String],
}

type Compiled<T> = Result<T, DescriptorError>;

impl Compiler<'_> {
    fn error(
        &self,
        span: Range<usize>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> DescriptorError {
        self.hinted(span, key, message, None)
    }

    fn hinted(
        &self,
        span: Range<usize>,
        key: impl Into<String>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> DescriptorError {
        let fault = DescriptorFault::Value;
        self.place.error(fault, span.start, key, message, hint)
    }

    fn format(
        &self,
        config: &Spanned<FormatConfig>,
        streams: &[Spanned<StreamConfig>],
        limits: Limits,
    ) -> Compiled<Format> {
        let table = &config.get_ref().0;
        if table.count() != 1 {
            let message = format!("it names {} formats", table.count());
            let hint = Some("write one, such as format = { csv = {} }".to_owned());
            return Err(self.hinted(config.span(), "format", message, hint));
        }
        let mut kind = Kind::compile(table).map_err(|fault| {
            let span = fault.span.unwrap_or_else(|| config.span());
            self.hinted(span, fault.key, fault.message, fault.hint)
        })?;
        let common = table.common();
        let time = self.time(&mut kind, &common)?;
        if streams.is_empty() || streams.len() > STREAMS_MAX {
            let message = format!(
                "there are {} streams, not 1 to {STREAMS_MAX}",
                streams.len()
            );
            return Err(self.error(config.span(), "stream", message));
        }
        let mut rules = Vec::new();
        for (index, stream) in streams.iter().enumerate() {
            rules.push(self.rule(&mut kind, index, stream)?);
        }
        Ok(Format {
            texts: TextRules {
                null: common.null.to_vec(),
                non_finite: common.non_finite,
                is_decimal_comma: kind.is_decimal_comma(),
            },
            kind,
            rules,
            time,
            limits,
        })
    }

    fn time(&self, kind: &mut Kind, common: &Common<'_>) -> Compiled<Option<TimeRule>> {
        let mut format = TimeFormat::Rfc3339;
        if let Some(text) = common.time_format {
            format = TimeFormat::parse(text.get_ref())
                .map_err(|reason| self.error(text.span(), "time_format", reason))?;
        }
        let mut zone_s = 0;
        if let Some(text) = common.time_zone {
            zone_s = zone(text.get_ref()).ok_or_else(|| {
                let message = format!("{:?} is not an offset", text.get_ref());
                let hint = Some("write \"UTC\" or an offset such as \"+02:00\"".to_owned());
                self.hinted(text.span(), "time_zone", message, hint)
            })?;
        }
        let Some(paths) = common.time else {
            return match common.time_format.or(common.time_zone) {
                Some(text) => {
                    let message = "time_format and time_zone need `time`";
                    Err(self.error(text.span(), "time", message))
                }
                None => Ok(None),
            };
        };
        let count = paths.get_ref().0.len();
        if count == 0 || count > TIME_PATHS_MAX {
            let message = format!("there are {count} paths, not 1 to {TIME_PATHS_MAX}");
            return Err(self.error(paths.span(), "time", message));
        }
        let slots = paths.get_ref().0.iter().map(|path| {
            kind.time_slot(path)
                .map_err(|reason| self.error(paths.span(), "time", reason))
        });
        Ok(Some(TimeRule {
            slots: slots.collect::<Result<_, _>>()?,
            format,
            zone_s,
        }))
    }

    fn rule(
        &self,
        kind: &mut Kind,
        index: usize,
        config: &Spanned<StreamConfig>,
    ) -> Compiled<Rule> {
        let stream = config.get_ref();
        let key = |name: &str| format!("stream[{index}].{name}");
        let mut scope = Scope {
            variables: Vec::new(),
            fields: Vec::new(),
        };
        for (name, path) in &stream.variables {
            let slot = kind.slot(path.get_ref()).map_err(|reason| {
                self.error(path.span(), key(&format!("variables.{name}")), reason)
            })?;
            scope.variables.push((name.clone(), slot));
        }
        let fields = stream.fields.get_ref();
        if fields.is_empty() || fields.len() > FIELDS_MAX {
            let message = format!("there are {} fields, not 1 to {FIELDS_MAX}", fields.len());
            return Err(self.error(stream.fields.span(), key("fields"), message));
        }
        let names = fields.iter().map(|field| field.get_ref().name.get_ref());
        scope.fields = names.cloned().collect();
        let name = self.name_template(&key("name"), &stream.name)?;
        let allowed: Vec<String> = name.placeholders().map(str::to_owned).collect();
        let mut rules = Vec::new();
        for (at, field) in fields.iter().enumerate() {
            let field_key = format!("stream[{index}].fields[{at}]");
            rules.push(self.field(kind, &field_key, field, &scope, &allowed)?);
        }
        self.check_names(&key("fields"), stream, &rules)?;
        let mut when = Vec::new();
        for (name, values) in &stream.when {
            let source = self.source(kind, &scope, name, values.span(), &key("when"))?;
            when.push((source, values.get_ref().0.clone()));
        }
        let streams_max = stream.streams_max.as_ref();
        if let Some(max) = streams_max
            && !(1..=MADE_STREAMS_LIMIT).contains(max.get_ref())
        {
            let message = format!("it is from 1 to {MADE_STREAMS_LIMIT}");
            return Err(self.error(max.span(), key("streams_max"), message));
        }
        let key_template = match &stream.key {
            Some(text) => Some((text, self.template(&key("key"), text)?)),
            None => None,
        };
        let subject = key_template.as_ref().map(|(_, template)| {
            let only = match &template.parts[..] {
                [_] => template.placeholders().next(),
                _ => None,
            };
            let subject = stream.subject.clone();
            subject.unwrap_or_else(|| only.unwrap_or("key").to_owned())
        });
        if subject.is_none() && stream.subject.is_some() {
            let message = "`subject` says what a key identifies, and there is no `key`";
            return Err(self.error(config.span(), key("subject"), message));
        }
        let key_named = match key_template {
            Some((text, template)) => {
                Some(self.named(kind, &scope, &template, text.span(), &key("key"))?)
            }
            None => None,
        };
        Ok(Rule {
            name: self.named(kind, &scope, &name, stream.name.span(), &key("name"))?,
            name_text: stream.name.get_ref().clone(),
            key: key_named,
            subject,
            when,
            fields: rules,
            streams_max: streams_max.map_or(MADE_STREAMS_MAX, |max| *max.get_ref()),
            name_values: stream.name_values,
        })
    }

    fn template(&self, key: &str, text: &Spanned<String>) -> Compiled<Template> {
        Template::parse(text.get_ref()).map_err(|reason| {
            let message = format!("{:?} is not a template: {reason}", text.get_ref());
            self.error(text.span(), key, message)
        })
    }

    fn name_template(&self, key: &str, text: &Spanned<String>) -> Compiled<Template> {
        let template = self.template(key, text)?;
        check_name(&template.sample("0"))
            .map_err(|error| self.error(text.span(), key, error.to_string()))?;
        Ok(template)
    }

    fn field(
        &self,
        kind: &mut Kind,
        key: &str,
        config: &Spanned<FieldConfig>,
        scope: &Scope,
        allowed: &[String],
    ) -> Compiled<FieldRule> {
        let field = config.get_ref();
        let part = |name: &str| format!("{key}.{name}");
        let template = self.template(&part("name"), &field.name)?;
        if let Some(name) = template
            .placeholders()
            .find(|name| !allowed.iter().any(|it| it == name))
        {
            let message = format!("{{{name}}} must also be in the name of the stream");
            let hint = "the streams of one name have the same fields".to_owned();
            return Err(self.hinted(field.name.span(), part("name"), message, Some(hint)));
        }
        if RESERVED_COLUMNS.contains(&field.name.get_ref().as_str()) {
            let message = format!(
                "every element has {:?} besides its fields",
                field.name.get_ref()
            );
            let hint = Some("rename the field".to_owned());
            return Err(self.hinted(field.name.span(), part("name"), message, hint));
        }
        let default_path = kind.default_path(field.name.get_ref());
        let (path, span) = match &field.path {
            Some(path) => (path.get_ref(), path.span()),
            None => (&default_path, field.name.span()),
        };
        let field_type = *field.field_type.get_ref();
        let slot = match field_type {
            FieldType::Samples => kind.samples_slot(path),
            _ => kind.slot(path),
        };
        let slot = slot.map_err(|reason| self.error(span, part("path"), reason))?;
        Ok(FieldRule {
            name: self.named(kind, scope, &template, field.name.span(), &part("name"))?,
            field: Field {
                name: field.name.get_ref().clone(),
                field_type,
                unit: field.unit.as_ref().map(|unit| unit.get_ref().clone()),
                observed_property: field.observed_property.clone(),
                description: field.description.clone(),
            },
            slot,
            target: Target {
                field_type,
                encoding: field.encoding,
                period_ns: self.period(config, &part("period_s"))?,
            },
            is_required: field.required,
            units: self.units(kind, field, key)?,
        })
    }

    fn period(&self, config: &Spanned<FieldConfig>, key: &str) -> Compiled<u64> {
        let field = config.get_ref();
        match (*field.field_type.get_ref(), &field.period_s) {
            (FieldType::Samples, Some(period)) => {
                let nanoseconds = (period.get_ref() * 1e9).round();
                if !(1.0..=1e18).contains(&nanoseconds) {
                    let message = "a period is from 1e-9 to 1e9 seconds";
                    return Err(self.error(period.span(), key, message));
                }
                Ok(nanoseconds as u64)
            }
            (FieldType::Samples, None) => {
                let message = "samples need the seconds from one to the next";
                let hint = Some("such as period_s = 0.004".to_owned());
                Err(self.hinted(field.field_type.span(), key, message, hint))
            }
            (_, Some(period)) => {
                let message = "only fields of type samples have a period";
                Err(self.error(period.span(), key, message))
            }
            (_, None) => Ok(0),
        }
    }

    fn units(&self, kind: &mut Kind, field: &FieldConfig, key: &str) -> Compiled<Units> {
        let part = |name: &str| format!("{key}.{name}");
        let parse = |name: &str, code: &Spanned<String>| {
            Unit::parse(code.get_ref())
                .map_err(|error| self.error(code.span(), part(name), error.to_string()))
        };
        let target = match &field.unit {
            Some(unit) => Some(parse("unit", unit)?),
            None => None,
        };
        let source = field
            .source_unit
            .as_ref()
            .or(field.source_unit_path.as_ref());
        let Some(source) = source else {
            return Ok(Units::Target(target));
        };
        let converts = matches!(
            field.field_type.get_ref(),
            FieldType::Double | FieldType::Samples
        );
        if !converts {
            let message = "only doubles and samples convert between units";
            return Err(self.error(field.field_type.span(), part("type"), message));
        }
        let Some(target) = target else {
            let message = "a unit of the message needs a `unit` to convert into";
            return Err(self.error(source.span(), part("unit"), message));
        };
        match (&field.source_unit, &field.source_unit_path) {
            (Some(code), None) => {
                let conversion = parse("source_unit", code)?.conversion_to(&target);
                let conversion = conversion.ok_or_else(|| {
                    let wanted = field.unit.as_ref().map_or("", |unit| unit.get_ref());
                    let message = format!("{:?} does not convert into {wanted:?}", code.get_ref());
                    self.error(code.span(), part("source_unit"), message)
                })?;
                Ok(Units::Fixed(conversion))
            }
            (None, Some(path)) => {
                let slot = kind
                    .slot(path.get_ref())
                    .map_err(|reason| self.error(path.span(), part("source_unit_path"), reason))?;
                Ok(Units::Slot { slot, target })
            }
            _ => {
                let message = "there are both `source_unit` and `source_unit_path`";
                Err(self.error(source.span(), part("source_unit"), message))
            }
        }
    }

    /// Checks the field names, with a value in place of each placeholder.
    fn check_names(&self, key: &str, stream: &StreamConfig, rules: &[FieldRule]) -> Compiled<()> {
        let configs = stream.fields.get_ref();
        let mut schema = StreamSchema::default();
        for (index, (config, rule)) in configs.iter().zip(rules).enumerate() {
            let name = &config.get_ref().name;
            let template = self.template(key, name)?;
            let mut field = rule.field.clone();
            field.name = template.sample("x");
            schema.fields.push(field);
            schema.check_names().map_err(|error| {
                self.error(
                    name.span(),
                    format!("{key}[{index}].name"),
                    error.to_string(),
                )
            })?;
        }
        Ok(())
    }

    fn named(
        &self,
        kind: &Kind,
        scope: &Scope,
        template: &Template,
        span: Range<usize>,
        key: &str,
    ) -> Compiled<Named> {
        use crate::template::TemplatePart;
        let mut parts = Vec::new();
        for part in &template.parts {
            parts.push(match part {
                TemplatePart::Literal(text) => NamedPart::Literal(text.clone()),
                TemplatePart::Placeholder(name) => {
                    NamedPart::Placeholder(self.source(kind, scope, name, span.clone(), key)?)
                }
            });
        }
        let is_constant = parts.iter().all(|part| match part {
            NamedPart::Literal(_) => true,
            NamedPart::Placeholder(source) => {
                matches!(
                    source,
                    Source::Free {
                        is_attribute: true,
                        ..
                    }
                )
            }
        });
        Ok(Named { parts, is_constant })
    }

    /// Where the value of a placeholder comes from.
    fn source(
        &self,
        kind: &Kind,
        scope: &Scope,
        name: &str,
        span: Range<usize>,
        key: &str,
    ) -> Compiled<Source> {
        let own = name.to_owned();
        if let Some((_, slot)) = scope.variables.iter().find(|(other, _)| other == name) {
            return Ok(Source::Slot {
                slot: *slot,
                name: own,
            });
        }
        if let Some(index) = scope.fields.iter().position(|other| other == name) {
            return Ok(Source::Field { index, name: own });
        }
        let is_attribute = self.names.iter().any(|other| other == name);
        let known = kind.names();
        let is_known = is_attribute
            || name.starts_with("header.")
            || known
                .as_ref()
                .is_none_or(|known| known.iter().any(|other| other == name));
        if is_known {
            let is_attribute = is_attribute || name.starts_with("header.");
            return Ok(Source::Free {
                name: own,
                is_attribute,
            });
        }
        let known = known.unwrap_or_default();
        let words = self.names.iter().chain(&known).chain(&scope.fields);
        let variables = scope.variables.iter().map(|(name, _)| name);
        let words: Vec<&str> = words.chain(variables).map(String::as_str).collect();
        let hint = match nearest(name, &words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", words.join(", ")),
        };
        let message = format!("nothing gives a value for {{{name}}}");
        Err(self.hinted(span, key, message, Some(hint)))
    }
}

/// The names that a stream's own configuration gives.
struct Scope {
    variables: Vec<(String, usize)>,
    fields: Vec<String>,
}
