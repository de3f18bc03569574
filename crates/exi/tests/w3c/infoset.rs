//! Documents as lists of items, and their comparison.
//!
//! A string must be unchanged; a typed value must be the same value of its type, in any lexical
//! form. Prefixes, comments, processing instructions, the document type and entity references are
//! compared if the options preserve them. The order of attributes is ignored (6, note).

use chappe_exi::{DateTime, DateTimeKind, Decimal, Event, Float, Options, Value};

/// An event with owned content.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Start {
        name: Name,
    },
    End,
    Attribute {
        name: Name,
        value: Content,
    },
    Namespace {
        prefix: String,
        namespace: String,
        of_element: bool,
    },
    Text(Content),
    DocType {
        name: String,
        public: String,
        system: String,
        text: String,
    },
    SelfContained,
    Other(String),
}

/// A qualified name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) local: String,
    pub(crate) namespace: String,
    pub(crate) prefix: Option<String>,
}

impl Name {
    fn of(name: &chappe_exi::Name<'_>) -> Self {
        Self {
            local: name.local.into(),
            namespace: name.namespace.into(),
            prefix: name.prefix.map(Into::into),
        }
    }
}

/// A value: its lexical form and its type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Content {
    pub(crate) lexical: String,
    kind: Kind,
    /// The expanded name that a value of `xsi:type` stands for.
    name: Option<(String, String)>,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// A string.
    Text,
    /// A list, or a value of an enumeration or beyond 64 bits.
    Lexical,
    Boolean,
    Integer,
    Decimal,
    Float,
    DateTime(DateTimeKind),
    Base64,
    Hex,
    QName,
}

impl Content {
    fn of(value: &Value<'_>) -> Self {
        Self {
            lexical: value.to_string(),
            kind: match value {
                Value::Text(_) => Kind::Text,
                Value::Lexical(_) => Kind::Lexical,
                Value::Boolean(_) => Kind::Boolean,
                Value::Integer(_) | Value::Unsigned(_) => Kind::Integer,
                Value::Decimal(_) => Kind::Decimal,
                Value::Float(_) => Kind::Float,
                Value::DateTime(value) => Kind::DateTime(value.kind),
                Value::Base64(_) => Kind::Base64,
                Value::Hex(_) => Kind::Hex,
                Value::QName { .. } => Kind::QName,
            },
            name: match value {
                Value::QName {
                    namespace, local, ..
                } => Some((namespace.to_string(), local.to_string())),
                _ => None,
            },
        }
    }
}

impl Content {
    /// Removes these characters from both ends.
    pub(crate) fn trimmed(mut self, space: &[char]) -> Self {
        self.lexical = self.lexical.trim_matches(space).to_owned();
        self
    }
}

impl Item {
    /// Removes the types, as in text XML.
    pub(crate) fn untyped(&self) -> Self {
        let plain = |content: &Content| Content {
            kind: Kind::Text,
            ..content.clone()
        };
        match self {
            Self::Text(content) => Self::Text(plain(content)),
            Self::Attribute { name, value } => Self::Attribute {
                name: name.clone(),
                value: plain(value),
            },
            item => item.clone(),
        }
    }

    pub(crate) fn of(event: &Event<'_>) -> Self {
        match event {
            Event::StartElement(name) => Self::Start {
                name: Name::of(name),
            },
            Event::EndElement => Self::End,
            Event::Attribute(name, value) => Self::Attribute {
                name: Name::of(name),
                value: Content::of(value),
            },
            Event::Namespace {
                prefix,
                namespace,
                of_element,
            } => Self::Namespace {
                prefix: (*prefix).into(),
                namespace: (*namespace).into(),
                of_element: *of_element,
            },
            Event::Characters(value) => Self::Text(Content::of(value)),
            Event::DocType {
                name,
                public,
                system,
                text,
            } => Self::DocType {
                name: (*name).into(),
                public: (*public).into(),
                system: (*system).into(),
                text: subset(text),
            },
            Event::SelfContained => Self::SelfContained,
            other => Self::Other(format!("{other:?}")),
        }
    }
}

/// Normalizes an internal subset to its declarations. White space between declarations is
/// insignificant, and the infoset does not contain internal entities, which are expanded in the
/// document.
pub(crate) fn subset(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!ENTITY ") {
        kept.push_str(before);
        let (declaration, after) = after.split_once('>').unwrap_or((after, ""));
        if declaration.contains(" SYSTEM ") || declaration.contains(" PUBLIC ") {
            kept.push_str(&format!("<!ENTITY {declaration}>"));
        }
        rest = after;
    }
    kept.push_str(rest);
    let words = kept.split_whitespace();
    words.flat_map(|word| [word, " "]).collect()
}

/// Compares a decoded document with its source in everything that the options preserve.
pub(crate) fn compare(wanted: &[Item], found: &[Item], options: &Options) -> Result<(), String> {
    let wanted = normal(wanted, options);
    let found = normal(found, options);
    for (at, (a, b)) in wanted.iter().zip(&found).enumerate() {
        if !same(a, b) {
            return Err(format!("item {at}: {b:?} for {a:?}"));
        }
    }
    if wanted.len() != found.len() {
        return Err(format!("{} items for {}", found.len(), wanted.len()));
    }
    Ok(())
}

/// Removes items that are not preserved and sorts the attributes of each element, because their
/// order is insignificant.
fn normal(items: &[Item], options: &Options) -> Vec<Item> {
    let prefixes = options.preserve.prefixes;
    let mut normal: Vec<Item> = Vec::new();
    let mut attributes: Vec<Item> = Vec::new();
    let mut scope: Vec<(usize, String, String)> = Vec::new();
    let mut depth = 0;
    for item in items {
        match item.clone() {
            Item::Namespace {
                prefix,
                namespace,
                of_element,
            } => {
                scope.push((depth, prefix.clone(), namespace.clone()));
                // The prefix of the last started element.
                let start = normal.iter_mut().rev();
                let start = start
                    .filter(|_| of_element)
                    .find(|item| matches!(item, Item::Start { .. }));
                if let (Some(Item::Start { name }), true) = (start, prefixes) {
                    name.prefix = Some(prefix.clone());
                }
                if prefixes {
                    attributes.push(Item::Namespace {
                        prefix,
                        namespace,
                        of_element: false,
                    });
                }
            }
            Item::Attribute {
                mut name,
                mut value,
            } => {
                name.prefix = name.prefix.filter(|_| prefixes);
                if name.local == "type" && name.namespace.ends_with("/XMLSchema-instance") {
                    let named = value.name.take();
                    value.name = Some(named.unwrap_or_else(|| resolved(&value.lexical, &scope)));
                }
                attributes.push(Item::Attribute { name, value });
            }
            // Text XML has neither empty character data nor self-contained marks.
            Item::Text(content) if content.lexical.is_empty() => {}
            Item::SelfContained => {}
            item => {
                attributes.sort_by_key(place);
                normal.append(&mut attributes);
                normal.push(match item {
                    Item::Start { mut name } => {
                        name.prefix = name.prefix.filter(|_| prefixes);
                        depth += 1;
                        Item::Start { name }
                    }
                    Item::End => {
                        scope.retain(|(bound, ..)| *bound < depth);
                        depth -= 1;
                        Item::End
                    }
                    item => item,
                });
            }
        }
    }
    normal
}

fn place(item: &Item) -> (u8, String, String) {
    match item {
        Item::Attribute { name, .. } => (1, name.namespace.clone(), name.local.clone()),
        Item::Namespace {
            prefix, namespace, ..
        } => (0, prefix.clone(), namespace.clone()),
        _ => Default::default(),
    }
}

/// The expanded name of a QName; without a binding for its prefix the whole is the local name
/// (8.5.4.4.1).
fn resolved(lexical: &str, scope: &[(usize, String, String)]) -> (String, String) {
    let text = lexical.trim();
    let (prefix, local) = text.split_once(':').unwrap_or(("", text));
    let bound = scope.iter().rev().find(|(_, bound, _)| bound == prefix);
    match bound {
        Some((_, _, namespace)) => (namespace.clone(), local.to_owned()),
        None => (String::new(), text.to_owned()),
    }
}

fn same(a: &Item, b: &Item) -> bool {
    match (a, b) {
        (Item::Attribute { name, value }, Item::Attribute { name: n, value: v }) => {
            name == n && same_content(value, v)
        }
        (Item::Text(v), Item::Text(w)) => same_content(v, w),
        (a, b) => a == b,
    }
}

/// Compares a value with that of the source, by the type that the stream gave it.
fn same_content(wanted: &Content, found: &Content) -> bool {
    let (a, b) = (wanted.lexical.as_str(), found.lexical.as_str());
    let equal = |value: fn(&str) -> Option<String>| value(a).is_some() && value(a) == value(b);
    match found.kind {
        Kind::Text => a == b,
        Kind::QName => wanted.name == found.name,
        Kind::Boolean => equal(boolean),
        Kind::Integer => equal(decimal),
        Kind::Decimal => equal(decimal),
        Kind::Float => equal(float),
        Kind::DateTime(kind) => {
            let value = |text| DateTime::parse(kind, text);
            value(a).is_some() && value(a) == value(b)
        }
        Kind::Base64 => without_space(a) == without_space(b),
        Kind::Hex => a.trim().eq_ignore_ascii_case(b),
        Kind::Lexical => {
            let (a, b) = (a.split_whitespace(), b.split_whitespace());
            a.clone().count() == b.clone().count() && a.zip(b).all(|(a, b)| same_word(a, b))
        }
    }
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

fn boolean(text: &str) -> Option<String> {
    match text.trim() {
        "1" | "true" => Some("true".into()),
        "0" | "false" => Some("false".into()),
        _ => None,
    }
}

fn float(text: &str) -> Option<String> {
    Float::parse(text).map(|value| value.normalized().to_string())
}

/// The digits of a decimal number of any size.
fn decimal(text: &str) -> Option<String> {
    if let Some(value) = Decimal::parse(text) {
        let zero = value.integral == 0 && value.fraction == 0;
        let negative = value.negative && !zero;
        return Some(Decimal { negative, ..value }.to_string());
    }
    let text = text.trim();
    let digits = text.trim_start_matches(['-', '+']);
    let (integral, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (integral, fraction) = (
        integral.trim_start_matches('0'),
        fraction.trim_end_matches('0'),
    );
    (plain(integral) && plain(fraction) && !digits.is_empty())
        .then(|| format!("{}{integral}.{fraction}", text.starts_with('-')))
}

/// Compares values whose type the stream does not state; they are equal if one type makes them
/// equal.
fn same_word(a: &str, b: &str) -> bool {
    use DateTimeKind as Type;
    let kinds = [
        Type::GYear,
        Type::GYearMonth,
        Type::Date,
        Type::DateTime,
        Type::GMonth,
        Type::GMonthDay,
        Type::GDay,
        Type::Time,
    ];
    let equal = |value: fn(&str) -> Option<String>| value(a).is_some() && value(a) == value(b);
    a == b
        || [boolean, float, decimal].into_iter().any(equal)
        || kinds.iter().any(|kind| {
            let value = |text| DateTime::parse(*kind, text);
            value(a).is_some() && value(a) == value(b)
        })
}
