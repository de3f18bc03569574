//! What is published and read, as configuration says it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::{Backend, DdsError, ElementType, Qos, Stored, Topic};
use chappe_stream::{Field, FieldType, StreamSchema, check_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DdsPacer;
use chappe_links::LinkLevel;

/// DDS topics of a node.
///
/// ```
/// use chappe_dds::topics::DdsConfig;
/// let dds: DdsConfig = toml::from_str(r#"
///     domain = 7
///     interfaces = ["10.1.0.5"]
///     [[publish]]
///     stream = "ward.temperature"
///     topic = "ward/temperature"
///     acknowledge = "received"
///     [[subscribe]]
///     topic = "ward/pulse"
///     stream = "ward.pulse"
///     fields = [{ name = "rate", type = "double", unit = "/min" }]
/// "#)?;
/// dds.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DdsConfig {
    /// The library that speaks DDS: `rustdds`, or `cyclone` where the program was built with it.
    pub library: DdsLibrary,
    /// The domain: participants of different domains do not see each other.
    #[schemars(range(min = 0, max = 232))]
    pub domain: u16,
    /// IPv4 addresses of this host by which it takes part. It announces itself at these only, and
    /// uses multicast on their interfaces only; with 127.0.0.1 alone it stays on this host.
    #[schemars(length(min = 1))]
    pub interfaces: Vec<IpAddr>,
    /// Seconds in which nothing may move in the DDS library that should, before it is made anew.
    #[schemars(range(min = 2, max = 3_600), extend("x-unit" = "seconds"))]
    pub stall_s: u32,
    /// Streams that are published. Each is a table of its own, `[[dds.publish]]`.
    pub publish: Vec<Publication>,
    /// Topics that are read into streams. Each is a table of its own, `[[dds.subscribe]]`.
    pub subscribe: Vec<Subscription>,
}

/// A library that speaks DDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DdsLibrary {
    /// RustDDS.
    #[default]
    Rustdds,
    /// Cyclone DDS.
    #[cfg(feature = "cyclone")]
    Cyclone,
}

impl From<DdsLibrary> for Backend {
    fn from(library: DdsLibrary) -> Self {
        match library {
            DdsLibrary::Rustdds => Self::Rustdds,
            #[cfg(feature = "cyclone")]
            DdsLibrary::Cyclone => Self::Cyclone,
        }
    }
}

/// A stream that is published to a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The stream.
    pub stream: String,
    /// The topic.
    pub topic: String,
    /// The scoped name of the IDL type. Default: made from the stream's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// When an element counts as delivered. Default: `stored` for a stream of the level `power`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledge>,
    /// Readers that are waited for: so many must match before anything is written, and have stored an
    /// element before it counts as delivered. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_024))]
    pub readers: u32,
    /// Where publishing begins at first; later it goes on behind what was delivered.
    #[serde(default)]
    pub start: DdsStart,
    /// What becomes of a reader that acknowledges nothing.
    #[serde(default)]
    pub stalled: DdsStalled,
    /// Seconds without an acknowledgement after which a reader counts as such, and what is not stored
    /// is published again. Default 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    pub stalled_after_s: u32,
    /// When the next sample may go: `adaptive`, the default, as measured acknowledgements say;
    /// `fixed_window:16` while fewer are on the way; `fixed_period:1ms` so far apart;
    /// `napa:125000000:10` by the link's bytes a second and K; or `flood` while there is room.
    #[serde(default, with = "words")]
    #[schemars(with = "String", extend("format" = "pacer"))]
    pub pacer: DdsPacer,
    /// What is offered.
    #[serde(default)]
    pub qos: Qos,
}

/// A topic that is read into a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The stream here.
    pub stream: String,
    /// The stream's name at its source. Default: the same as here. What is of another is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The scoped name of the IDL type. Default: made from the stream's name at its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The members behind the first eight, in order.
    pub fields: Vec<TopicField>,
    /// What an element's instance is, for streams with instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How safely elements are stored. Default: as the node says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LinkLevel>,
    /// What is requested.
    #[serde(default)]
    pub qos: Qos,
}

/// A member of a topic's type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicField {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub field_type: TopicFieldType,
    /// Its unit, a UCUM code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What is observed, a URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_property: Option<String>,
}

/// The types of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words of stream schemas")]
pub enum TopicFieldType {
    Boolean,
    Integer,
    Double,
    Text,
    Bytes,
    Samples,
}

/// When an element counts as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// When the DDS libraries of all reliable readers have it in memory.
    Received,
    /// When Chappe nodes say that their logs have it.
    Stored,
}

/// Where publishing begins at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DdsStart {
    /// With the oldest element that is kept.
    First,
    /// With the next new element.
    #[default]
    New,
}

/// What becomes of a reader that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DdsStalled {
    /// It is waited for until discovery says that it is gone.
    #[default]
    Wait,
    /// The others are served on, as many samples at a time as the writer keeps.
    Pass,
}

impl Default for DdsConfig {
    fn default() -> Self {
        Self {
            library: DdsLibrary::default(),
            domain: 0,
            interfaces: vec![Ipv4Addr::LOCALHOST.into()],
            stall_s: 10,
            publish: Vec::new(),
            subscribe: Vec::new(),
        }
    }
}

impl DdsConfig {
    /// Whether anything is published or read.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !(self.publish.is_empty() && self.subscribe.is_empty())
    }

    pub(super) fn stall_after(&self) -> Duration {
        Duration::from_secs(self.stall_s.max(2).into())
    }

    /// Checks it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), DdsError> {
        self.participant().check()?;
        for publication in &self.publish {
            named("stream", &publication.stream)?;
            publication.qos.check()?;
            let type_name = publication.type_name.clone();
            topic(&publication.topic, type_name.unwrap_or_else(|| "a".into())).check()?;
        }
        for subscription in &self.subscribe {
            named("stream", &subscription.stream)?;
            subscription.qos.check()?;
            subscription.dds_topic()?.check()?;
        }
        Ok(())
    }

    /// Checks that this host has the addresses in `interfaces`.
    ///
    /// # Errors
    /// The first that it lacks.
    pub fn check_host(&self) -> Result<(), DdsError> {
        self.participant().check_host()
    }
}

impl Publication {
    pub(super) fn dds_topic(&self, of: &ElementType) -> Topic {
        let type_name = self.type_name.clone();
        topic(&self.topic, type_name.unwrap_or_else(|| of.type_name()))
    }

    pub(super) fn stalled_after(&self) -> Duration {
        Duration::from_secs(self.stalled_after_s.max(1).into())
    }
}

impl Subscription {
    /// The stream's name at its source.
    #[must_use]
    pub fn source(&self) -> &str {
        self.source.as_deref().unwrap_or(&self.stream)
    }

    /// The type of the topic.
    ///
    /// # Errors
    /// A field that cannot be one.
    pub fn element_type(&self) -> Result<ElementType, DdsError> {
        let fields = self.fields.iter().map(|field| Field {
            name: field.name.clone(),
            field_type: field.field_type.into(),
            unit: field.unit.clone(),
            observed_property: field.observed_property.clone(),
            description: None,
        });
        let schema = StreamSchema {
            fields: fields.collect(),
            key: self.key.clone(),
        };
        ElementType::new(self.source(), schema).map_err(|error| DdsError::Qos {
            key: "fields",
            why: error.to_string(),
        })
    }

    pub(super) fn dds_topic(&self) -> Result<Topic, DdsError> {
        let of = self.element_type()?;
        let type_name = self.type_name.clone();
        Ok(topic(
            &self.topic,
            type_name.unwrap_or_else(|| of.type_name()),
        ))
    }
}

/// A pacer by its words.
mod words {
    use super::{DdsPacer, Deserialize};
    use serde::{Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(pacer: &DdsPacer, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(pacer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DdsPacer, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl From<TopicFieldType> for FieldType {
    fn from(field: TopicFieldType) -> Self {
        match field {
            TopicFieldType::Boolean => Self::Boolean,
            TopicFieldType::Integer => Self::Integer,
            TopicFieldType::Double => Self::Double,
            TopicFieldType::Text => Self::Text,
            TopicFieldType::Bytes => Self::Bytes,
            TopicFieldType::Samples => Self::Samples,
        }
    }
}

/// The topic on which storing is said.
pub(super) fn stored_topic(of: &str) -> Topic {
    topic(&Stored::topic(of), Stored::TYPE_NAME.into())
}

fn topic(name: &str, type_name: String) -> Topic {
    Topic {
        name: name.to_owned(),
        type_name,
    }
}

fn named(what: &'static str, name: &str) -> Result<(), DdsError> {
    check_name(name).map(drop).map_err(|_| DdsError::Name {
        what,
        name: name.chars().take(64).collect(),
    })
}

fn one() -> u32 {
    1
}

fn ten() -> u32 {
    10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(pacer: &str) -> Result<Publication, toml::de::Error> {
        toml::from_str(&format!("stream = \"a\"\ntopic = \"b\"\n{pacer}"))
    }

    #[test]
    fn a_publication_takes_each_pacer_with_what_it_has_to_be_told() {
        let period = Duration::from_micros(1_500);
        for (words, high, apart) in [
            ("flood", 0, Duration::ZERO),
            ("fixed_window:7", 7, Duration::ZERO),
            ("fixed_period:1.5ms", 0, period),
            ("napa:25000000:10", 0, Duration::ZERO),
            ("adaptive", 0, Duration::ZERO),
        ] {
            let publication = publication(&format!("pacer = \"{words}\"")).unwrap();
            let status = publication.pacer.build().status();
            assert_eq!(Some(status.name), words.split(':').next());
            if words.starts_with("fixed") {
                assert_eq!((status.high_threshold, status.period), (high, apart));
            }
            let written = toml::to_string(&publication).unwrap();
            let read: Publication = toml::from_str(&written).unwrap();
            assert_eq!(read, publication, "{written}");
        }
        let default = publication("").unwrap();
        assert_eq!(default.pacer, DdsPacer::default());
        for words in ["fast", "fixed_window", "fixed_period:2", "adaptive:1"] {
            let error = publication(&format!("pacer = \"{words}\"")).unwrap_err();
            assert!(error.to_string().contains(DdsPacer::WORDS), "{error}");
        }
    }
}
