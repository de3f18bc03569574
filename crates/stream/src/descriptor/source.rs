//! The sources of a descriptor: their TOML, and its checks.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use toml::Spanned;

use super::error::{DescriptorError, DescriptorFault, Place, nearest};
use super::raw::{COUNT_MAX, RawDuration, RawExtent, WindowSchema, stream_name};
use super::statement::{self, TABLE_SUFFIX, WRAPPER};
use super::{
    Command, FALLBACK_AFTER, FALLBACK_MAX, InlineWrapper, KEYS, KEYS_MAX, MetadataQuery,
    MetadataValue, PerKey, SOURCES_MAX, Selection, Source, StreamQuery,
};
use crate::{
    AHEAD, BindingPolicy, EarlyPolicy, Extent, LatePolicy, Timing, WINDOW_ELEMENTS_MAX, WindowClock,
};

/// The name of the keys of a wrapper's file in the JSON Schema of descriptors.
pub const WRAPPER_SCHEMA: &str = "InlineWrapper";

/// A source of elements.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSource {
    /// The name in the statement.
    #[schemars(with = "String")]
    alias: Spanned<String>,
    /// The stream of this name. Either this, `query`, `command` or `wrapper`; with `wrapper`, which of its streams.
    #[schemars(with = "Option<String>")]
    stream: Option<Spanned<String>>,
    /// The criteria by which the registry finds the stream.
    #[schemars(with = "Option<RawQuery>")]
    query: Option<Spanned<RawQuery>>,
    /// The calls of this command of the sensor.
    #[schemars(with = "Option<String>")]
    command: Option<Spanned<String>>,
    /// A wrapper that the node runs with the sensor, with the keys of a wrapper's file.
    #[schemars(with = "Option<WrapperSchema>")]
    wrapper: Option<Spanned<toml::Table>>,
    /// Further choices, in order of preference, each with `stream`, `query` or `wrapper`: the first choice that delivers is
    /// used.
    #[serde(default)]
    #[schemars(with = "Vec<RawChoice>", length(max = 8))]
    fallback: Vec<Spanned<RawChoice>>,
    /// The time without an element after which the next choice is used. Default: "1m".
    fallback_after: Option<RawDuration>,
    /// Take one matching stream (the earliest registered), or all. Default: one.
    bind: Option<RawPolicy>,
    /// The content of the window: at most 100,000 elements, or a time such as "8s". Default: 1.
    #[schemars(with = "Option<WindowSchema>")]
    window: Option<Spanned<RawExtent>>,
    /// The interval of evaluation: a number of elements, or a time. Default: 1.
    slide: Option<RawExtent>,
    /// With a slide of elements: the number of the element at which the first evaluation is due. Default: 1.
    #[schemars(with = "Option<usize>")]
    first: Option<Spanned<usize>>,
    /// The clock of times: the elements' source times, or the node's clock. Default: source.
    clock: Option<RawClock>,
    /// Evaluate a slide of time as a whole, this long after its end. Default: with the clock `source`, at
    /// the first element of the slide; with `node`, "1s" after its end.
    wait: Option<RawDuration>,
    /// The treatment of late elements. Default: insert.
    late: Option<RawLate>,
    /// The share of the elements that are used, above 0 and at most 1. Default: 1.
    #[schemars(with = "Option<f64>")]
    sampling: Option<Spanned<f64>>,
    /// One SELECT over the window, which it calls `wrapper`; the statement reads its result.
    #[schemars(with = "Option<String>")]
    sql: Option<Spanned<String>>,
    /// How far a source time may be after the time of receipt. Default: "1m".
    ahead: Option<RawDuration>,
    /// The treatment of elements that are further ahead. Default: drop.
    early: Option<RawEarly>,
    /// Use only the first of several elements of a stream with equal times. Default: false.
    unique_times: Option<bool>,
    /// A window for each value of this column: `key`, or a field. Default: one window.
    per: Option<String>,
    /// Most keys with `per`; of more, the least recently used is dropped. Default: 1000.
    keys: Option<usize>,
}

/// A further choice of a source.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawChoice {
    /// The stream of this name.
    #[schemars(with = "Option<String>")]
    stream: Option<Spanned<String>>,
    /// The criteria by which the registry finds the stream.
    #[schemars(with = "Option<RawQuery>")]
    query: Option<Spanned<RawQuery>>,
    /// A wrapper that the node runs with the sensor, with the keys of a wrapper's file.
    #[schemars(with = "Option<WrapperSchema>")]
    wrapper: Option<Spanned<toml::Table>>,
}

/// The keys of a wrapper's file, for the JSON Schema.
struct WrapperSchema;

impl JsonSchema for WrapperSchema {
    fn schema_name() -> Cow<'static, str> {
        WRAPPER_SCHEMA.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The keys of a wrapper's file.",
            "type": "object",
            "required": ["kind"],
            "properties": { "kind": { "type": "string" } }
        })
    }
}

/// The criteria of a stream; all that are given must hold.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawQuery {
    /// A field observes this property, a URI. Its column is called `value`.
    observed_property: Option<String>,
    /// The unit of that field, a UCUM code.
    unit: Option<String>,
    /// Its device has this type: `{namespace}local` or `local`.
    #[serde(rename = "type")]
    entity_type: Option<String>,
    /// Its device lies in this scope.
    scope: Option<String>,
    /// Prefix of its name.
    name_prefix: Option<String>,
    /// A SPARQL SELECT whose variable `?stream` names streams by their key. It reads the triples of the
    /// node, and those of the accounts in `by`.
    sparql: Option<String>,
    /// The accounts whose triples `sparql` reads besides those of the node.
    by: Option<Vec<String>>,
    /// Pieces of metadata that the stream or its device has.
    metadata: Option<Vec<RawMetadata>>,
}

/// A piece of metadata that the stream or its device must have.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawMetadata {
    /// What the piece states, an IRI.
    #[serde(rename = "type")]
    piece_type: String,
    /// Its value, a text. Without value and uri, any value matches.
    value: Option<String>,
    /// Its value, a URI.
    uri: Option<String>,
    /// The accounts whose pieces count.
    by: Vec<String>,
}

/// The number of matching streams that a source binds.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawPolicy {
    One,
    All,
}

/// The treatment of late elements.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawLate {
    Insert,
    Drop,
    DeadLetter,
}

/// The treatment of elements that are too far ahead of the clock.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawEarly {
    Drop,
    DeadLetter,
}

/// The clock of a window.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum RawClock {
    Source,
    Node,
}

/// The sources of the statement at `index`, under the key `key`.
pub(super) fn sources(
    place: Place<'_>,
    commands: &[Command],
    key: &str,
    statement: usize,
    raw: Spanned<Vec<Spanned<RawSource>>>,
) -> Result<Vec<Source>, DescriptorError> {
    let count = raw.get_ref().len();
    if count == 0 || count > SOURCES_MAX {
        let message = format!("there are {count} sources; 1 to {SOURCES_MAX} are allowed");
        let at = raw.span().start;
        return Err(place.error(DescriptorFault::Value, at, key, message, None));
    }
    let mut sources: Vec<Source> = Vec::new();
    for (index, raw) in raw.into_inner().into_iter().enumerate() {
        let at = raw.get_ref().alias.span().start;
        let key = format!("{key}[{index}]");
        let mut source = source(place, commands, &key, raw)?;
        source.statement = statement;
        if sources.iter().any(|other| other.alias == source.alias) {
            let key = format!("{key}.alias");
            let message = format!("there is another source {:?}", source.alias);
            return Err(place.error(DescriptorFault::Value, at, key, message, None));
        }
        sources.push(source);
    }
    Ok(sources)
}

fn source(
    place: Place<'_>,
    commands: &[Command],
    source_key: &str,
    raw: Spanned<RawSource>,
) -> Result<Source, DescriptorError> {
    let start = raw.span().start;
    let raw = raw.into_inner();
    let key = |name: &str| format!("{source_key}.{name}");
    let alias = raw.alias.get_ref();
    let usable = crate::schema::is_column_name(alias)
        && !alias.ends_with("_samples")
        && !alias.ends_with(TABLE_SUFFIX)
        && alias != WRAPPER
        && !alias.starts_with("sqlite_");
    if !usable {
        let hint = "use a-z, 0-9 and _, not starting with a digit, not ending in _samples or \
                    _wrapper";
        let message = format!("{alias:?} is not a usable alias");
        let at = raw.alias.span().start;
        let hint = Some(hint.to_owned());
        return Err(place.error(DescriptorFault::Value, at, key("alias"), message, hint));
    }
    let choice = RawChoice {
        stream: raw.stream,
        query: raw.query,
        wrapper: raw.wrapper,
    };
    let selection = match raw.command {
        None => selection(place, start, source_key, choice)?,
        Some(name) if choice.is_empty() => {
            check_command(place, commands, &key("command"), &name)?;
            Selection::Command(name.into_inner())
        }
        Some(name) => {
            let message = "`command` cannot be combined with `stream`, `query` or `wrapper`";
            let (fault, at) = (DescriptorFault::Value, name.span().start);
            return Err(place.error(fault, at, key("command"), message, None));
        }
    };
    if raw.fallback.is_empty() && raw.fallback_after.is_some() {
        let message = "`fallback_after` needs `fallback`";
        return Err(place.error(
            DescriptorFault::Value,
            start,
            key("fallback_after"),
            message,
            None,
        ));
    }
    let fallback = fallback(place, &key("fallback"), raw.fallback)?;
    let sampling = raw.sampling.as_ref().map_or(1.0, |share| *share.get_ref());
    if let Some(share) = raw
        .sampling
        .filter(|_| !(sampling > 0.0 && sampling <= 1.0))
    {
        let (at, message) = (share.span().start, format!("{sampling} is out of range"));
        let hint = Some("a share is above 0 and at most 1".to_owned());
        return Err(place.error(DescriptorFault::Value, at, key("sampling"), message, hint));
    }
    if let Some(sql) = &raw.sql {
        statement::check_own(place, &key("sql"), sql)?;
    }
    let slide = raw.slide.map_or(Extent::Count(1), |extent| extent.0);
    let window = raw.window.as_ref().map(|window| window.get_ref().0);
    if let (Some(Extent::Count(count)), Some(window)) = (window, &raw.window)
        && count > WINDOW_ELEMENTS_MAX
    {
        let message = format!("a window holds at most {WINDOW_ELEMENTS_MAX} elements, not {count}");
        let hint = Some("use a smaller window, or aggregate in two sensors".to_owned());
        let at = window.span().start;
        return Err(place.error(DescriptorFault::Value, at, key("window"), message, hint));
    }
    let is_of_time = matches!(slide, Extent::Time(_));
    if let Some(first) = &raw.first
        && (is_of_time || !(1..=COUNT_MAX).contains(first.get_ref()))
    {
        let message = match is_of_time {
            true => "`first` needs a slide of elements".to_owned(),
            false => format!("{} is out of range: 1 to {COUNT_MAX}", first.get_ref()),
        };
        let at = first.span().start;
        return Err(place.error(DescriptorFault::Value, at, key("first"), message, None));
    }
    let needs_time = match (raw.clock, &raw.wait) {
        (_, Some(_)) => Some("wait"),
        (Some(RawClock::Node), None) => Some("clock"),
        _ => None,
    };
    if let Some(name) = needs_time.filter(|_| !is_of_time) {
        let message = format!("`{name}` needs a slide of time");
        let hint = Some("write, for example, slide = \"10s\"".to_owned());
        return Err(place.error(DescriptorFault::Value, start, key(name), message, hint));
    }
    let keys = raw.keys.unwrap_or(KEYS);
    if !(1..=KEYS_MAX).contains(&keys) || (raw.keys.is_some() && raw.per.is_none()) {
        let message = match raw.per {
            Some(_) => format!("{keys} is out of range: 1 to {KEYS_MAX} keys are allowed"),
            None => "`keys` needs `per`".to_owned(),
        };
        let fault = DescriptorFault::Value;
        return Err(place.error(fault, start, key("keys"), message, None));
    }
    Ok(Source {
        alias: raw.alias.into_inner(),
        statement: 0,
        sql: raw.sql.map(Spanned::into_inner),
        sampling,
        selection,
        fallback,
        fallback_after: raw.fallback_after.map_or(FALLBACK_AFTER, |time| time.0),
        policy: match raw.bind {
            Some(RawPolicy::All) => BindingPolicy::All,
            Some(RawPolicy::One) | None => BindingPolicy::One,
        },
        window: window.unwrap_or(Extent::Count(1)),
        slide,
        first: raw.first.map_or(1, Spanned::into_inner),
        late: match raw.late {
            Some(RawLate::Drop) => LatePolicy::Drop,
            Some(RawLate::DeadLetter) => LatePolicy::DeadLetter,
            Some(RawLate::Insert) | None => LatePolicy::Insert,
        },
        timing: timing(&raw.clock, raw.wait, raw.ahead, raw.early, raw.unique_times),
        per: raw.per.map(|column| PerKey { column, keys }),
    })
}

impl RawChoice {
    fn is_empty(&self) -> bool {
        self.stream.is_none() && self.query.is_none() && self.wrapper.is_none()
    }
}

/// The selection of a choice under the key `choice`, which starts at byte `at`.
fn selection(
    place: Place<'_>,
    at: usize,
    choice: &str,
    raw: RawChoice,
) -> Result<Selection, DescriptorError> {
    let key = |name: &str| format!("{choice}.{name}");
    let fault = DescriptorFault::Value;
    if let Some(stream) = &raw.stream {
        stream_name(place, &key("stream"), stream)?;
    }
    match (raw.stream, raw.query, raw.wrapper) {
        (Some(stream), None, None) => Ok(Selection::Stream(stream.into_inner())),
        (None, Some(query), None) => {
            let query = stream_query(place, &key("query"), query)?;
            Ok(Selection::Query(query))
        }
        (stream, None, Some(wrapper)) => {
            let at = wrapper.span().start;
            let wrapper = InlineWrapper {
                keys: wrapper.into_inner(),
                stream: stream.map(Spanned::into_inner),
            };
            if wrapper.stream().is_none() {
                let message = "it is not said which stream of the wrapper the source reads";
                let hint = "add `stream` to the source, or write one [[source.wrapper.stream]] \
                            whose name has no placeholder";
                let hint = Some(hint.to_owned());
                return Err(place.error(fault, at, key("wrapper"), message, hint));
            }
            Ok(Selection::Wrapper(wrapper))
        }
        (None, None, None) => {
            let message = "none of `stream`, `query`, `command` and `wrapper` is given";
            let hint = "name one stream, or describe it: \
                        query = { observed_property = \"...\" }";
            Err(place.error(fault, at, key("stream"), message, Some(hint.to_owned())))
        }
        _ => {
            let message = "`query` cannot be combined with `stream` or `wrapper`";
            Err(place.error(fault, at, key("query"), message, None))
        }
    }
}

/// The further choices of a source.
fn fallback(
    place: Place<'_>,
    key: &str,
    raw: Vec<Spanned<RawChoice>>,
) -> Result<Vec<Selection>, DescriptorError> {
    let fault = DescriptorFault::Value;
    let mut choices = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let (at, raw) = (raw.span().start, raw.into_inner());
        let key = format!("{key}[{index}]");
        if index >= FALLBACK_MAX {
            let message = format!("there are more than {FALLBACK_MAX} further choices");
            return Err(place.error(fault, at, key, message, None));
        }
        choices.push(selection(place, at, &key, raw)?);
    }
    Ok(choices)
}

/// Checks that a source reads a command that exists.
fn check_command(
    place: Place<'_>,
    commands: &[Command],
    key: &str,
    name: &Spanned<String>,
) -> Result<(), DescriptorError> {
    let known: Vec<&str> = commands.iter().map(|command| &*command.name).collect();
    if known.contains(&name.get_ref().as_str()) {
        return Ok(());
    }
    let hint = match nearest(name.get_ref(), &known) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "a [[command]] of this name defines one".to_owned(),
    };
    let message = format!("the sensor has no command {:?}", name.get_ref());
    let (fault, at) = (DescriptorFault::Value, name.span().start);
    Err(place.error(fault, at, key, message, Some(hint)))
}

/// The default of `wait` on the node's clock: longer than an element takes from its receipt to a sensor.
const WAIT_OF_NODE: Duration = Duration::from_secs(1);

fn timing(
    clock: &Option<RawClock>,
    wait: Option<RawDuration>,
    ahead: Option<RawDuration>,
    early: Option<RawEarly>,
    unique_times: Option<bool>,
) -> Timing {
    let wait = wait.map(|wait| wait.0);
    let (clock, wait) = match clock {
        Some(RawClock::Node) => (WindowClock::Node, Some(wait.unwrap_or(WAIT_OF_NODE))),
        Some(RawClock::Source) | None => (WindowClock::Source, wait),
    };
    Timing {
        clock,
        wait,
        ahead: ahead.map_or(AHEAD, |ahead| ahead.0),
        early: match early {
            Some(RawEarly::DeadLetter) => EarlyPolicy::DeadLetter,
            Some(RawEarly::Drop) | None => EarlyPolicy::Drop,
        },
        unique_times: unique_times.unwrap_or(false),
    }
}

/// Maximum number of pieces of metadata that a query asks for, and of authors of each.
const METADATA_MAX: usize = 16;
const AUTHORS_MAX: usize = 16;

/// The pieces of metadata that a query asks for.
fn metadata(
    place: Place<'_>,
    at: usize,
    key: &str,
    raw: Vec<RawMetadata>,
) -> Result<Vec<MetadataQuery>, DescriptorError> {
    let error = |key: String, message: &str, hint: Option<&str>| {
        let hint = hint.map(str::to_owned);
        Err(place.error(DescriptorFault::Value, at, key, message, hint))
    };
    if raw.len() > METADATA_MAX {
        let message = format!("there are more than {METADATA_MAX} pieces of metadata");
        return error(format!("{key}.metadata"), &message, None);
    }
    let mut pieces = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let key = |name: &str| format!("{key}.metadata[{index}].{name}");
        let is_iri = |text: &str| text.contains(':') && !text.contains(char::is_whitespace);
        if !is_iri(&raw.piece_type) {
            return error(key("type"), "is not an IRI", None);
        }
        if raw.uri.as_deref().is_some_and(|uri| !is_iri(uri)) {
            return error(key("uri"), "is not a URI", None);
        }
        if raw.by.is_empty() {
            let hint = Some("name the accounts whose metadata counts: by = [\"ada\"]");
            return error(key("by"), "names no account", hint);
        }
        if raw.by.len() > AUTHORS_MAX {
            let message = format!("names more than {AUTHORS_MAX} accounts");
            return error(key("by"), &message, None);
        }
        let value = match (raw.value, raw.uri) {
            (None, None) => None,
            (Some(text), None) => Some(MetadataValue::Text(text)),
            (None, Some(uri)) => Some(MetadataValue::Uri(uri)),
            (Some(_), Some(_)) => {
                return error(key("uri"), "`value` and `uri` exclude each other", None);
            }
        };
        pieces.push(MetadataQuery {
            piece_type: raw.piece_type,
            value,
            by: raw.by,
        });
    }
    Ok(pieces)
}

fn stream_query(
    place: Place<'_>,
    key: &str,
    raw: Spanned<RawQuery>,
) -> Result<StreamQuery, DescriptorError> {
    let at = raw.span().start;
    let raw = raw.into_inner();
    let query = StreamQuery {
        observed_property: raw.observed_property,
        unit: raw.unit,
        entity_type: raw.entity_type,
        scope: raw.scope,
        name_prefix: raw.name_prefix,
        sparql: raw.sparql,
        by: raw.by.unwrap_or_default(),
        metadata: metadata(place, at, key, raw.metadata.unwrap_or_default())?,
    };
    let fault = DescriptorFault::Value;
    if query == StreamQuery::default() {
        let hint = Some("to match every stream, write name_prefix = \"\"".to_owned());
        return Err(place.error(fault, at, key, "the query has no criteria", hint));
    }
    if query.sparql.is_none() && !query.by.is_empty() {
        let message =
            "`by` names the authors of the metadata that `sparql` reads, and there is no `sparql`";
        let hint = Some("name the authors of metadata in `metadata`".to_owned());
        return Err(place.error(fault, at, key, message, hint));
    }
    if query.by.len() > AUTHORS_MAX {
        let message = format!("`by` names more than {AUTHORS_MAX} accounts");
        return Err(place.error(fault, at, key, message, None));
    }
    if query.unit.is_some() && query.observed_property.is_none() {
        let message =
            "`unit` applies to the field that observes `observed_property`, which is not given";
        let hint = Some("set observed_property as well".to_owned());
        return Err(place.error(fault, at, key, message, hint));
    }
    Ok(query)
}
