//! How elements of a stream become samples of a type: the other direction of [`Flat`].
//!
//! Each member takes the field that [`Flat`] would make of it, or one that the rules name. Key members without a field take
//! the element's key. So a topic that was read into a stream is published with the same values. Everything that does not fit is
//! named with its path before the first sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_stream::{FieldType, Samples, StreamElement, StreamSchema, Timestamp, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flat::Leaf;
use super::{Datum, EncodeError, Flat, Member, Structure, Type, column_name};
use crate::{Payload, SAMPLE_BYTES_MAX};

/// The largest number of named faults; reason: a person reads them.
const FAULTS_MAX: usize = 16;
/// Nanoseconds in a second.
const SECOND_NS: i64 = 1_000_000_000;

/// How fields become members, besides their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapRules {
    /// The path of the member that takes the time of an element: nanoseconds since 1970, or a struct of seconds and
    /// nanoseconds.
    pub time: Option<String>,
    /// The fields of members by their paths, where the names differ.
    pub members: BTreeMap<String, String>,
    /// The treatment of members without a value.
    pub missing: Missing,
}

/// The treatment of members that are not optional and have no field, or whose field has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// If a member has no field, nothing is published; an element without a value is refused.
    #[default]
    Refuse,
    /// The member is zero, empty or false, and an enumeration has the name of 0 or else of its lowest number.
    Default,
}

/// How elements of one schema become samples of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleMap {
    of: Arc<Structure>,
    schema: StreamSchema,
    members: Vec<(Leaf, Source)>,
    key_count: usize,
    missing: Missing,
    /// A sample without values.
    initial: Datum,
    unused: Vec<String>,
}

/// Where the value of a member comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Field(usize),
    /// A part of the element's key.
    Key(usize),
    Time(TimePart),
    Nothing,
}

/// What a member has of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimePart {
    Seconds,
    /// Those within the second.
    Rest,
    Nanoseconds,
}

impl SampleMap {
    /// The map from a schema to a type.
    ///
    /// # Errors
    /// What does not fit, each with the path of its member.
    pub fn new(
        of: &Arc<Structure>,
        schema: &StreamSchema,
        rules: &MapRules,
    ) -> Result<Self, String> {
        if of.bytes_min() > SAMPLE_BYTES_MAX {
            return Err(format!(
                "a sample of {} is above {SAMPLE_BYTES_MAX} bytes",
                of.name
            ));
        }
        let flat = Flat::new(of);
        let mut plan = Plan {
            of,
            schema,
            rules,
            times: times(of, rules)?,
            faults: Vec::new(),
        };
        plan.check_rules(&flat);
        let fields = flat.fields.iter().map(|leaf| plan.source(leaf, None));
        let mut sources: Vec<Source> = fields.collect();
        let keys = flat.keys.iter().enumerate();
        sources.extend(keys.map(|(index, leaf)| plan.source(leaf, Some(index))));
        sources.extend(flat.others.iter().map(|_| Source::Nothing));
        let key_count = flat.keys.len();
        let leaves = flat.fields.into_iter().chain(flat.keys).chain(flat.others);
        let members: Vec<(Leaf, Source)> = leaves.zip(sources).collect();
        plan.check_members(&members);
        if !plan.faults.is_empty() {
            plan.faults.truncate(FAULTS_MAX);
            return Err(plan.faults.join("; "));
        }
        let is_used = |(index, name): (usize, &str)| {
            let is_source = members.iter().any(|(_, it)| *it == Source::Field(index));
            is_source || plan.times.keys().any(|path| column_name(path) == name)
        };
        let unused = schema.fields.iter().enumerate();
        let unused = unused.filter(|(index, field)| !is_used((*index, &field.name)));
        Ok(Self {
            unused: unused.map(|(_, field)| field.name.clone()).collect(),
            of: of.clone(),
            schema: schema.clone(),
            initial: of.initial(),
            missing: rules.missing,
            members,
            key_count,
        })
    }

    /// The type.
    #[must_use]
    pub fn of(&self) -> &Structure {
        &self.of
    }

    /// The schema of the elements.
    #[must_use]
    pub const fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// The fields that no member takes.
    #[must_use]
    pub fn unused(&self) -> &[String] {
        &self.unused
    }

    /// The sample of an element.
    ///
    /// # Errors
    /// A value that the type does not have, or that is missing.
    pub fn encode(&self, element: &StreamElement) -> Result<Payload, EncodeError> {
        let keys = self.keys(element.key.as_deref());
        let mut sample = self.initial.clone();
        let mut absent = Vec::new();
        for (leaf, source) in &self.members {
            let of = &leaf.of;
            let fault = |why: String| EncodeError {
                path: leaf.path.clone(),
                why,
            };
            let value = match source {
                Source::Nothing => None,
                Source::Time(part) => Some(Datum::Integer(part.of(element.source_time))),
                Source::Key(index) => match keys.get(*index) {
                    Some(text) => Some(parsed(of, text).map_err(fault)?),
                    None => None,
                },
                Source::Field(index) => match element.values.get(*index) {
                    None | Some(Value::Null) => None,
                    Some(value) => Some(datum(of, value).map_err(fault)?),
                },
            };
            match value {
                Some(value) => leaf.put(&self.of, &mut sample, value),
                None => absent.push(leaf),
            }
        }
        if self.missing == Missing::Refuse
            && let Some(leaf) = absent.into_iter().find(|leaf| leaf.is_in(&sample))
        {
            return Err(EncodeError {
                path: leaf.path.clone(),
                why: "it has no value".to_owned(),
            });
        }
        self.of.encode(&sample)
    }

    /// The parts of a key, as [`Flat`] joins them; none if their number is another.
    fn keys(&self, key: Option<&str>) -> Vec<String> {
        let parts: Vec<String> = match (key, self.key_count) {
            (None, _) => Vec::new(),
            (Some(key), 1) => vec![key.to_owned()],
            (Some(key), _) => {
                let parts = key.split('/');
                let plain = |part: &str| part.replace("%2F", "/").replace("%25", "%");
                parts.map(plain).collect()
            }
        };
        match parts.len() == self.key_count {
            true => parts,
            false => Vec::new(),
        }
    }
}

/// A map that is being made.
struct Plan<'a> {
    of: &'a Arc<Structure>,
    schema: &'a StreamSchema,
    rules: &'a MapRules,
    times: BTreeMap<String, TimePart>,
    faults: Vec<String>,
}

impl Plan<'_> {
    /// Where a member comes from. `key` is its part of the key.
    fn source(&mut self, leaf: &Leaf, key: Option<usize>) -> Source {
        let Leaf { path, .. } = leaf;
        if let Some(part) = self.times.get(path) {
            return Source::Time(*part);
        }
        let named = self.rules.members.get(path);
        let name = named.cloned().unwrap_or_else(|| column_name(path));
        let found = self.schema.fields.iter().position(|it| it.name == name);
        let Some(index) = found else {
            if named.is_some() {
                self.faults
                    .push(format!("{path}: the stream has no field {name}"));
            }
            return match key.filter(|_| self.schema.key.is_some()) {
                Some(index) => Source::Key(index),
                None => Source::Nothing,
            };
        };
        let of = &leaf.of;
        let field_type = self.schema.fields[index].field_type;
        if datum(of, &example(field_type)).is_err() {
            let field_type = field_type.name();
            self.faults.push(format!(
                "{path}: the field {name} is {field_type}, and no {of}"
            ));
        }
        Source::Field(index)
    }

    /// Adds the rules for members that there are not.
    fn check_rules(&mut self, flat: &Flat) {
        for path in self.rules.members.keys() {
            let mut leaves = flat.fields.iter().chain(&flat.keys);
            if !leaves.any(|leaf| leaf.path == *path) {
                self.faults.push(format!(
                    "{path}: the type has no such member that a field fits"
                ));
            }
        }
    }

    /// Adds the members that would have no value.
    fn check_members(&mut self, members: &[(Leaf, Source)]) {
        if self.rules.missing == Missing::Default {
            return;
        }
        let mut sample = self.of.initial();
        let has_source = |(_, source): &&(Leaf, Source)| *source != Source::Nothing;
        for (leaf, _) in members.iter().filter(has_source) {
            leaf.put(self.of, &mut sample, leaf.of.initial());
        }
        for (leaf, _) in members.iter().filter(|it| !has_source(it)) {
            let Leaf { path, of, .. } = leaf;
            if leaf.is_in(&sample) {
                let name = column_name(path);
                self.faults.push(format!(
                    "{path}: the stream has no field {name} for this {of}"
                ));
            }
        }
    }
}

/// The members that take the time.
fn times(of: &Structure, rules: &MapRules) -> Result<BTreeMap<String, TimePart>, String> {
    let mut found = BTreeMap::new();
    let Some(path) = &rules.time else {
        return Ok(found);
    };
    let is_whole = |of: &Type| matches!(of, Type::Integer { .. });
    match member_at(of, path).map(|member| &member.of) {
        Some(Type::Integer { .. }) => {
            found.insert(path.clone(), TimePart::Nanoseconds);
        }
        Some(Type::Structure(inner))
            if inner.members.len() == 2 && inner.members.iter().all(|it| is_whole(&it.of)) =>
        {
            for (member, part) in inner
                .members
                .iter()
                .zip([TimePart::Seconds, TimePart::Rest])
            {
                found.insert(format!("{path}.{}", member.name), part);
            }
        }
        Some(other) => return Err(format!("{path}: a {other} is not a time")),
        None => return Err(format!("{path}: the type has no such member")),
    }
    Ok(found)
}

fn member_at<'a>(of: &'a Structure, path: &str) -> Option<&'a Member> {
    let (name, rest) = path
        .split_once('.')
        .map_or((path, None), |(name, rest)| (name, Some(rest)));
    let member = of.members.iter().find(|member| member.name == name)?;
    match (rest, &member.of) {
        (None, _) => Some(member),
        (Some(rest), Type::Structure(inner)) => member_at(inner, rest),
        _ => None,
    }
}

impl TimePart {
    const fn of(self, time: Timestamp) -> i64 {
        match self {
            Self::Seconds => time.0.div_euclid(SECOND_NS),
            Self::Rest => time.0.rem_euclid(SECOND_NS),
            Self::Nanoseconds => time.0,
        }
    }
}

impl Leaf {
    /// Sets the member of a sample. Optional structs around it are made.
    fn put(&self, of: &Structure, sample: &mut Datum, value: Datum) {
        let (mut of, mut found) = (of, sample);
        for index in &self.indexes {
            let Datum::Structure(values) = found else {
                return;
            };
            let member = &of.members[*index].of;
            found = values[*index].get_or_insert_with(|| member.initial());
            if let Type::Structure(inner) = member {
                of = inner;
            }
        }
        *found = value;
    }

    /// Whether a sample has the member.
    fn is_in(&self, sample: &Datum) -> bool {
        self.find(sample).is_some()
    }
}

/// The value of a member.
#[expect(
    clippy::cast_precision_loss,
    reason = "whole numbers above 2^53 are rounded, as documented"
)]
fn datum(of: &Type, value: &Value) -> Result<Datum, String> {
    Ok(match (of, value) {
        (Type::Boolean, Value::Boolean(value)) => Datum::Boolean(*value),
        (Type::Integer { .. } | Type::Mask { .. }, Value::Integer(value)) => Datum::Integer(*value),
        (Type::Float { .. }, Value::Double(value)) => Datum::Double(*value),
        (Type::Float { .. }, Value::Integer(value)) => Datum::Double(*value as f64),
        (Type::Enumeration(_), Value::Integer(value)) => Datum::Text(value.to_string()),
        (Type::Char | Type::Text | Type::Enumeration(_), Value::Text(text)) => {
            Datum::Text(text.clone())
        }
        (Type::Sequence(element) | Type::Array(element, _), value) => match (&**element, value) {
            (Type::Char, Value::Text(text)) => Datum::Text(text.clone()),
            (
                Type::Mask { bytes: 1 }
                | Type::Integer {
                    bytes: 1,
                    is_signed: false,
                },
                Value::Bytes(bytes),
            ) => Datum::Bytes(bytes.clone()),
            (
                Type::Boolean | Type::Integer { .. } | Type::Mask { .. } | Type::Float { .. },
                Value::Samples(samples),
            ) => Datum::Numbers(samples.values.clone()),
            _ => return Err(format!("it is not of type {of}")),
        },
        _ => return Err(format!("it is not of type {of}")),
    })
}

/// A value of each type of field.
fn example(of: FieldType) -> Value {
    match of {
        FieldType::Boolean => Value::Boolean(false),
        FieldType::Integer => Value::Integer(0),
        FieldType::Double => Value::Double(0.0),
        FieldType::Text => Value::Text(String::new()),
        FieldType::Bytes => Value::Bytes(Vec::new()),
        FieldType::Samples => Value::Samples(Samples::default()),
    }
}

/// The value of a key member.
fn parsed(of: &Type, text: &str) -> Result<Datum, String> {
    let wrong = || format!("{text:?} is not of type {of}");
    Ok(match of {
        Type::Boolean => Datum::Boolean(text.parse().map_err(|_| wrong())?),
        Type::Integer {
            is_signed: false, ..
        }
        | Type::Mask { .. } => Datum::Unsigned(text.parse().map_err(|_| wrong())?),
        Type::Integer { .. } => Datum::Integer(text.parse().map_err(|_| wrong())?),
        Type::Float { .. } => Datum::Double(text.parse().map_err(|_| wrong())?),
        _ => Datum::Text(text.to_owned()),
    })
}
