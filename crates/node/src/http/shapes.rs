//! Shapes of bodies that the OpenAPI document describes and no handler has as a type of its own: they are read
//! piece by piece, written without an intermediate value, or made by another crate.

#![allow(dead_code, reason = "documentation only")]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// A durability level.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Acknowledged elements outlive no end of the process.
    Memory,
    /// Acknowledged elements outlive the end of the process.
    Process,
    /// Acknowledged elements outlive a power failure.
    Power,
}

/// The type of a field.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum FieldType {
    /// true or false.
    Boolean,
    /// 64 bits with a sign.
    Integer,
    /// A finite number of 64 bits.
    Double,
    /// Text.
    Text,
    /// Bytes, base64 in JSON.
    Bytes,
    /// Samples of a waveform: `{start, period_s, values}` in JSON.
    Samples,
}

/// A protocol of links.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum LinkKind {
    /// Sessions over ZeroMQ, acknowledged once stored.
    Zeromq,
    /// PUB and SUB of ZeroMQ; missed elements are counted.
    ZeromqBestEffort,
    /// An endless HTTP response.
    HttpPull,
    /// HTTP requests to this node.
    HttpPush,
}

/// A serialization of elements between nodes.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Serialization {
    /// XML.
    Xml,
    /// postcard.
    Postcard,
    /// MessagePack.
    MessagePack,
}

/// Where a link starts.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum LinkStart {
    /// With the oldest element that the origin keeps.
    First,
    /// With the next element.
    New,
}

/// How far an element may be trusted.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum ElementQuality {
    /// Without reservation.
    Good,
    /// With reservation.
    Questionable,
    /// Not at all.
    Bad,
}

/// A kind of entity.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(crate) enum EntityKind {
    /// A node.
    Node,
    /// A device.
    Device,
    /// A service of a device.
    Service,
    /// A stream.
    Stream,
    /// A virtual sensor.
    VirtualSensor,
    /// Anything else.
    Other,
    /// A piece of metadata.
    Metadata,
    /// A Thing Description of the directory of things.
    Thing,
    /// A WSDL document or a schema.
    Document,
}

/// An element to write: a member for each field that has a value, of the type that the field has.
#[derive(ToSchema)]
pub(crate) struct NewElement {
    /// Time of the event (RFC 3339). Default: the time of arrival.
    source_time: Option<String>,
    /// The instance that the element describes, for a stream with keys.
    key: Option<String>,
    /// Default: good.
    quality: Option<ElementQuality>,
    /// The fields.
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

/// One element, or several.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum NewElements {
    /// One.
    One(NewElement),
    /// Several, in their order.
    Many(Vec<NewElement>),
}

/// What a contact point returns to confirm itself.
#[derive(ToSchema)]
pub(crate) struct Confirmation {
    /// The token of the request.
    confirm: String,
}

/// The answer to a SPARQL query (SPARQL 1.1 Query Results JSON Format).
#[derive(ToSchema)]
pub(crate) struct SparqlResults {
    /// The variables.
    head: SparqlHead,
    /// The solutions of a SELECT query.
    results: Option<SparqlSolutions>,
    /// The answer to an ASK query.
    boolean: Option<bool>,
}

/// The variables of an answer.
#[derive(ToSchema)]
pub(crate) struct SparqlHead {
    /// Their names; absent for an ASK query.
    vars: Option<Vec<String>>,
}

/// The solutions of a SELECT query.
#[derive(ToSchema)]
pub(crate) struct SparqlSolutions {
    /// For each solution the terms of the variables that are bound.
    bindings: Vec<BTreeMap<String, SparqlTerm>>,
}

/// A term of a solution.
#[derive(ToSchema)]
pub(crate) struct SparqlTerm {
    /// uri, literal or bnode.
    #[schema(rename = "type")]
    term_type: String,
    /// The IRI, the text or the label.
    value: String,
    /// The datatype of a literal, an IRI.
    datatype: Option<String>,
    /// The language of a literal.
    #[schema(rename = "xml:lang")]
    language: Option<String>,
}

/// The DDS participant and the topics.
#[derive(ToSchema)]
pub(crate) struct DdsStatus {
    /// The participant; null without topics.
    participant: Option<DdsParticipant>,
    /// Published streams.
    publications: Vec<DdsPublication>,
    /// Subscribed topics.
    subscriptions: Vec<DdsSubscription>,
}

/// The DDS participant.
#[derive(ToSchema)]
pub(crate) struct DdsParticipant {
    /// The library.
    backend: String,
    /// The domain.
    domain: u16,
    /// Its current GUID, which changes with each restart.
    guid: Option<String>,
    /// starting, running or given_up.
    state: String,
    /// Known remote participants.
    peers: u64,
    /// Restarts.
    restarts: u64,
    /// Panics of the library.
    panics: u64,
    /// Stalls of the library.
    stalls: u64,
    /// Threads that never returned from the library.
    abandoned: u64,
    /// Threads that the library of this process has ended by calling `abort`.
    aborts: u64,
    /// Warnings and errors of the library: refused participants, malformed messages.
    warnings: u64,
    /// The newest of them, oldest first.
    newest_warnings: Vec<String>,
    /// The last error.
    last_error: Option<String>,
    /// A remedy for it, if one is known.
    hint: Option<String>,
    /// Writers.
    writers: Vec<DdsWriter>,
    /// Readers.
    readers: Vec<DdsReader>,
}

/// A writer of a topic.
#[derive(ToSchema)]
pub(crate) struct DdsWriter {
    #[serde(flatten)]
    end: DdsEnd,
    /// Samples written.
    sent: u64,
    /// The exact number of samples not acknowledged by all reliable readers.
    unacknowledged: u64,
    /// Samples acknowledged.
    acknowledged: u64,
    /// Samples given up for a stalled reader.
    given_up: u64,
    /// Replacements of the writer because of that.
    renewed: u64,
    /// Whether a reader is stalled now.
    stalled: bool,
    /// Stalls of readers.
    stalls: u64,
    /// Seconds in which a sample waited for room.
    blocked_s: f64,
    /// The state of its pacer.
    pacer: Option<BTreeMap<String, Value>>,
}

/// A reader of a topic.
#[derive(ToSchema)]
pub(crate) struct DdsReader {
    #[serde(flatten)]
    end: DdsEnd,
    /// Samples received.
    received: u64,
    /// Lost samples: gaps after the first number of each writer, and all numbers before it if the reader was full.
    lost: u64,
}

/// What writers and readers have in common.
#[derive(ToSchema)]
pub(crate) struct DdsEnd {
    /// The topic.
    topic: String,
    /// Its type.
    type_name: String,
    /// The quality of service, as in the configuration.
    qos: BTreeMap<String, Value>,
    /// Matching remote ends: readers of a writer, writers of a reader.
    matched: u64,
    /// Deadlines of the topic that passed without a sample although an end matched.
    deadlines_missed: u64,
    /// Incompatible remote ends.
    mismatches: u64,
    /// The newest of them, with the values of both sides.
    mismatched: Vec<String>,
}

/// A stream published on a topic.
#[derive(ToSchema)]
pub(crate) struct DdsPublication {
    /// The stream.
    stream: String,
    /// The topic.
    topic: String,
    /// `received` or `stored`.
    acknowledge: String,
    /// The newest delivered element, `EPOCH:N`.
    delivered: Option<String>,
    /// Elements that are not delivered yet.
    lag_elements: u64,
    /// Number of times that unstored elements were published again.
    again: u64,
    /// Elements too large to be published.
    refused: u64,
    /// The last error.
    last_error: Option<String>,
    /// A remedy for it.
    hint: Option<String>,
}

/// A topic subscribed to.
#[derive(ToSchema)]
pub(crate) struct DdsSubscription {
    /// The topic.
    topic: String,
    /// The local stream.
    stream: String,
    /// The newest stored element, by its position at the source.
    stored: Option<String>,
    /// Elements stored.
    received: u64,
    /// Duplicates, which were dropped.
    repeated: u64,
    /// Elements that arrived before their predecessor and were dropped; they are published again.
    early: u64,
    /// Samples of another type.
    malformed: u64,
    /// Elements of other streams.
    foreign: u64,
    /// Rollbacks of the source.
    rollbacks: u64,
    /// The last error.
    last_error: Option<String>,
}
