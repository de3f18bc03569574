//! The configuration of published and subscribed topics.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::{Backend, DdsError, ElementType, Qos, Stored, Topic};
use chappe_stream::{Field, FieldType, StreamSchema, check_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DdsPacer;
use chappe_log::Level;

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
    /// The DDS library: `rustdds`, or `cyclone` if the program was built with it.
    pub library: DdsLibrary,
    /// The domain: participants of different domains do not discover each other.
    #[schemars(range(min = 0, max = 232))]
    pub domain: u16,
    /// IPv4 addresses of this host for DDS. The node announces itself at these only, and uses multicast on their
    /// interfaces only; with 127.0.0.1 alone it stays on this host.
    #[schemars(length(min = 1))]
    pub interfaces: Vec<IpAddr>,
    /// Seconds that the DDS library may be stuck before it is restarted.
    #[schemars(range(min = 2, max = 3_600), extend("x-unit" = "seconds"))]
    pub stall_s: u32,
    /// Published streams. Each is a table of its own, `[[dds.publish]]`.
    pub publish: Vec<Publication>,
    /// Topics stored in streams. Each is a table of its own, `[[dds.subscribe]]`.
    pub subscribe: Vec<Subscription>,
}

/// A DDS library.
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
    /// The scoped name of the IDL type. Default: derived from the stream's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// When an element counts as delivered. Default: `stored` for a stream of the level `power`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledge>,
    /// Required readers: this many must match before anything is written, and must have stored an element
    /// before it counts as delivered. Default 1.
    #[serde(default = "default_readers")]
    #[schemars(range(min = 0, max = 1_024))]
    pub readers: u32,
    /// The start of publishing the first time; later it continues after the delivered elements.
    #[serde(default)]
    pub start: DdsStart,
    /// The treatment of a reader that acknowledges nothing.
    #[serde(default)]
    pub stalled: DdsStalled,
    /// Seconds without an acknowledgement after which a reader counts as stalled, and elements that are not
    /// stored are published again. Default 10.
    #[serde(default = "default_seconds")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    pub stalled_after_s: u32,
    /// The pacer: `adaptive`, the default, follows measured acknowledgements; `fixed_window:16` limits the samples
    /// in flight; `fixed_period:1ms` sets their interval; `napa:125000000:10` has the link's bytes a second and
    /// K; `flood` sends while there is room.
    #[serde(default, with = "pacer_text")]
    #[schemars(with = "String", extend("format" = "pacer"))]
    pub pacer: DdsPacer,
    /// The offered quality of service.
    #[serde(default)]
    pub qos: Qos,
}

/// A topic that is stored in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The local stream.
    pub stream: String,
    /// The stream's name at its source. Default: the local name. Elements of other streams are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The scoped name of the IDL type. Default: derived from the stream's name at its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The members after the first eight, in order.
    pub fields: Vec<TopicField>,
    /// The meaning of the instance, for streams with instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The durability of stored elements. Default: that of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// The requested quality of service.
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
    /// The observed property, a URI.
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
    /// Once the DDS libraries of all reliable readers have it in memory.
    Received,
    /// When Chappe nodes confirm that their logs have it.
    Stored,
}

/// The start of publishing the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DdsStart {
    /// At the oldest element that is kept.
    First,
    /// At the next new element.
    #[default]
    New,
}

/// The treatment of a reader that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DdsStalled {
    /// Wait for it until discovery reports that it has left.
    #[default]
    Wait,
    /// Continue with the others, one window of samples at a time.
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
    /// Whether anything is published or subscribed.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !(self.publish.is_empty() && self.subscribe.is_empty())
    }

    pub(super) fn stall_after(&self) -> Duration {
        Duration::from_secs(self.stall_s.max(2).into())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        self.participant().check()?;
        for publication in &self.publish {
            check_stream_name("stream", &publication.stream)?;
            publication.qos.check()?;
            let type_name = publication.type_name.clone();
            topic(&publication.topic, type_name.unwrap_or_else(|| "a".into())).check()?;
        }
        for subscription in &self.subscribe {
            check_stream_name("stream", &subscription.stream)?;
            subscription.qos.check()?;
            subscription.dds_topic()?.check()?;
        }
        Ok(())
    }

    /// Checks that this host has the addresses in `interfaces`.
    ///
    /// # Errors
    /// The first missing address.
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
    /// A field is invalid.
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

/// Serializes a pacer as text.
mod pacer_text {
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

/// The topic for confirmations of storage.
pub(super) fn stored_topic(of: &str) -> Topic {
    topic(&Stored::topic(of), Stored::TYPE_NAME.into())
}

fn topic(name: &str, type_name: String) -> Topic {
    Topic {
        name: name.to_owned(),
        type_name,
    }
}

fn check_stream_name(what: &'static str, name: &str) -> Result<(), DdsError> {
    check_name(name).map(drop).map_err(|_| DdsError::Name {
        what,
        name: name.chars().take(64).collect(),
    })
}

fn default_readers() -> u32 {
    1
}

fn default_seconds() -> u32 {
    10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(pacer: &str) -> Result<Publication, toml::de::Error> {
        toml::from_str(&format!("stream = \"a\"\ntopic = \"b\"\n{pacer}"))
    }

    #[test]
    fn a_publication_parses_each_pacer_with_its_parameters() {
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
