//! Documents as lists of items, and when two are the same.

use chappe_exi::{DateTime, DateTimeKind, Decimal, Event, Float, Options, Value};

/// An event with all it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Start {
        namespace: String,
        local: String,
        prefix: Option<String>,
    },
    End,
    Attribute {
        namespace: String,
        local: String,
        prefix: Option<String>,
        value: Content,
    },
    Namespace {
        prefix: String,
        namespace: String,
        of_element: bool,
    },
    Text(Content),
    Other(String),
}

/// A value: its lexical form, and how it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Content {
    pub(crate) lexical: String,
    pub(crate) typed: bool,
    pub(crate) name: Option<(String, String)>,
}

impl Content {
    fn of(value: &Value<'_>) -> Self {
        Self {
            lexical: value.to_string(),
            typed: !matches!(value, Value::Text(_)),
            name: match value {
                Value::QName {
                    namespace, local, ..
                } => Some((namespace.to_string(), local.to_string())),
                _ => None,
            },
        }
    }
}

impl Item {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        match event {
            Event::StartElement(name) => Self::Start {
                namespace: name.namespace.into(),
                local: name.local.into(),
                prefix: name.prefix.map(Into::into),
            },
            Event::EndElement => Self::End,
            Event::Attribute(name, value) => Self::Attribute {
                namespace: name.namespace.into(),
                local: name.local.into(),
                prefix: name.prefix.map(Into::into),
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
            other => Self::Other(format!("{other:?}")),
        }
    }
}

/// Whether a decoded document is its source, in all that the options preserve.
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

/// Without what is not preserved; attributes of an element sorted, as their order says nothing.
fn normal(items: &[Item], options: &Options) -> Vec<Item> {
    let mut normal: Vec<Item> = Vec::new();
    let mut attributes: Vec<Item> = Vec::new();
    for item in items {
        let item = match item.clone() {
            Item::Namespace { .. } if !options.preserve.prefixes => continue,
            // The prefix of the element that began last.
            Item::Namespace {
                prefix: own,
                namespace,
                of_element,
            } => {
                let start = normal
                    .iter_mut()
                    .rev()
                    .find(|item| matches!(item, Item::Start { .. }));
                if let (Some(Item::Start { prefix, .. }), true) = (start, of_element) {
                    *prefix = Some(own.clone());
                }
                Item::Namespace {
                    prefix: own,
                    namespace,
                    of_element: false,
                }
            }
            // Nothing in XML.
            Item::Text(content) if content.lexical.is_empty() => continue,
            Item::Attribute {
                local,
                namespace,
                value,
                prefix,
            } => {
                let prefix = prefix.filter(|_| options.preserve.prefixes);
                attributes.push(Item::Attribute {
                    namespace,
                    local,
                    prefix,
                    value,
                });
                continue;
            }
            Item::Start {
                namespace,
                local,
                prefix,
            } => {
                let prefix = prefix.filter(|_| options.preserve.prefixes);
                Item::Start {
                    namespace,
                    local,
                    prefix,
                }
            }
            item => item,
        };
        if !matches!(item, Item::Namespace { .. }) {
            sort(&mut attributes);
            normal.append(&mut attributes);
        } else {
            attributes.push(item);
            continue;
        }
        normal.push(item);
    }
    normal
}

fn sort(attributes: &mut [Item]) {
    attributes.sort_by_key(|item| match item {
        Item::Attribute {
            namespace, local, ..
        } => (1, namespace.clone(), local.clone()),
        Item::Namespace {
            prefix, namespace, ..
        } => (0, prefix.clone(), namespace.clone()),
        _ => Default::default(),
    });
}

fn same(a: &Item, b: &Item) -> bool {
    match (a, b) {
        (
            Item::Attribute {
                namespace: n,
                local: l,
                value: v,
                ..
            },
            Item::Attribute {
                namespace: m,
                local: k,
                value: w,
                ..
            },
        ) => n == m && l == k && same_content(v, w),
        (Item::Text(v), Item::Text(w)) => same_content(v, w),
        (a, b) => a == b,
    }
}

fn same_content(wanted: &Content, found: &Content) -> bool {
    let (a, b) = (wanted.lexical.as_str(), found.lexical.as_str());
    if a == b {
        return true;
    }
    if let Some((_, local)) = &found.name {
        return a.trim().rsplit(':').next() == Some(local);
    }
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (a, b) = (words(a), words(b));
    (a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same_word(a, b)))
        || a.concat().eq_ignore_ascii_case(&b.concat())
}

fn same_word(a: &str, b: &str) -> bool {
    let boolean = |text: &str| match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    };
    let float = |text: &str| Float::parse(text).map(Float::normalized);
    use DateTimeKind as Kind;
    let kinds = [
        Kind::GYear,
        Kind::GYearMonth,
        Kind::Date,
        Kind::DateTime,
        Kind::GMonth,
        Kind::GMonthDay,
        Kind::GDay,
        Kind::Time,
    ];
    let equal = |a: Option<String>, b: Option<String>| a.is_some() && a == b;
    let text = |value: Option<Decimal>| value.map(|value| value.to_string());
    a == b
        || equal(text(Decimal::parse(a)), text(Decimal::parse(b)))
        || equal(
            float(a).map(|v| v.to_string()),
            float(b).map(|v| v.to_string()),
        )
        || (boolean(a).is_some() && boolean(a) == boolean(b))
        || kinds.iter().any(|kind| {
            let value = |text| DateTime::parse(*kind, text);
            value(a).is_some() && value(a) == value(b)
        })
}
