//! The payload of Sparkplug B (Eclipse Sparkplug 3.0, 6.4), with the fields that are used here.
//!
//! Data sets, templates and nested property sets are kept as bytes and not decoded: a few bytes of a message must not
//! become many of memory. Fields that are not declared are passed over.

use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

/// Most metrics of a payload; reason: an empty one has two bytes, and costs a hundred times as much memory.
pub(super) const METRICS_MAX: usize = 20_000;
/// The number of the field of metrics.
const METRICS: u32 = 2;

/// A payload.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Payload {
    /// When it was sent, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "1")]
    pub(super) timestamp: Option<u64>,
    #[prost(message, repeated, tag = "2")]
    pub(super) metrics: Vec<Metric>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) seq: Option<u64>,
}

/// A metric.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metric {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) alias: Option<u64>,
    /// When it was measured, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "3")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) datatype: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub(super) is_historical: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub(super) is_transient: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(super) is_null: Option<bool>,
    #[prost(message, optional, tag = "9")]
    pub(super) properties: Option<PropertySet>,
    #[prost(oneof = "MetricValue", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18")]
    pub(super) value: Option<MetricValue>,
}

/// The value of a metric.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum MetricValue {
    #[prost(uint32, tag = "10")]
    Int(u32),
    #[prost(uint64, tag = "11")]
    Long(u64),
    #[prost(float, tag = "12")]
    Float(f32),
    #[prost(double, tag = "13")]
    Double(f64),
    #[prost(bool, tag = "14")]
    Boolean(bool),
    #[prost(string, tag = "15")]
    String(String),
    #[prost(bytes, tag = "16")]
    Bytes(Vec<u8>),
    #[prost(bytes, tag = "17")]
    DataSet(Vec<u8>),
    #[prost(bytes, tag = "18")]
    Template(Vec<u8>),
}

/// Properties of a metric: as many keys as values.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PropertySet {
    #[prost(string, repeated, tag = "1")]
    pub(super) keys: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) values: Vec<PropertyValue>,
}

/// The value of a property.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PropertyValue {
    #[prost(uint32, optional, tag = "1")]
    pub(super) datatype: Option<u32>,
    #[prost(bool, optional, tag = "2")]
    pub(super) is_null: Option<bool>,
    #[prost(oneof = "Property", tags = "3, 7, 8")]
    pub(super) value: Option<Property>,
}

/// The values of properties that are used here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Property {
    #[prost(uint32, tag = "3")]
    Int(u32),
    #[prost(bool, tag = "7")]
    Boolean(bool),
    #[prost(string, tag = "8")]
    String(String),
}

impl Payload {
    /// Decodes a payload.
    ///
    /// # Errors
    /// The bytes are none, or have too many metrics.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let wrong =
            |error: prost::DecodeError| format!("the payload is not one of Sparkplug B: {error}");
        let (mut rest, mut metrics) = (bytes, 0);
        while !rest.is_empty() {
            let (field, wire) = decode_key(&mut rest).map_err(wrong)?;
            metrics += usize::from(field == METRICS && wire == WireType::LengthDelimited);
            if metrics > METRICS_MAX {
                return Err(format!("the payload has more than {METRICS_MAX} metrics"));
            }
            skip_field(wire, field, &mut rest, DecodeContext::default()).map_err(wrong)?;
        }
        Self::decode(bytes).map_err(wrong)
    }

    /// Its bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl Metric {
    /// Its name. Some implementations write an empty one beside an alias.
    pub(super) fn named(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether it has a value that is not null.
    pub(super) fn has_value(&self) -> bool {
        self.value.is_some() && self.is_null != Some(true)
    }

    /// A text property.
    pub(super) fn text(&self, keys: &[&str]) -> Option<&str> {
        match self.property(|key| keys.iter().any(|it| it.eq_ignore_ascii_case(key)))? {
            Property::String(text) => Some(text),
            Property::Int(_) | Property::Boolean(_) => None,
        }
    }

    /// The property `Quality` (6.4.11).
    pub(super) fn quality(&self) -> Option<u32> {
        match self.property(|key| key == QUALITY)? {
            Property::Int(code) => Some(*code),
            Property::String(_) | Property::Boolean(_) => None,
        }
    }

    /// Whether it has the property `readOnly`, which some implementations set.
    pub(super) fn is_read_only(&self) -> bool {
        self.property(|key| key.eq_ignore_ascii_case(READ_ONLY)) == Some(&Property::Boolean(true))
    }

    fn property(&self, is_it: impl Fn(&str) -> bool) -> Option<&Property> {
        let set = self.properties.as_ref()?;
        let mut pairs = set.keys.iter().zip(&set.values);
        let (_, value) = pairs.find(|(key, _)| is_it(key))?;
        value.value.as_ref()
    }
}

impl PropertySet {
    /// Adds a text.
    pub(super) fn with_text(mut self, key: &str, text: &str) -> Self {
        self.keys.push(key.to_owned());
        self.values.push(PropertyValue {
            datatype: Some(super::value::STRING),
            is_null: None,
            value: Some(Property::String(text.to_owned())),
        });
        self
    }

    /// The set that tells a quality.
    pub(super) fn of_quality(code: u32) -> Self {
        Self {
            keys: vec![QUALITY.to_owned()],
            values: vec![PropertyValue {
                datatype: Some(super::value::INT32),
                is_null: None,
                value: Some(Property::Int(code)),
            }],
        }
    }
}

/// The property of a metric that commands do not change.
const READ_ONLY: &str = "readOnly";
/// The property of the quality of a value.
const QUALITY: &str = "Quality";

/// The topic of a message: `spBv1.0/GROUP/TYPE/NODE[/DEVICE]` (4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topic<'t> {
    pub(super) group: &'t str,
    pub(super) verb: &'t str,
    pub(super) node: &'t str,
    pub(super) device: Option<&'t str>,
}

/// The first level of all topics.
pub(super) const NAMESPACE: &str = "spBv1.0";

impl<'t> Topic<'t> {
    /// Divides a topic.
    pub(super) fn parse(topic: &'t str) -> Option<Self> {
        let mut levels = topic.split('/');
        if levels.next() != Some(NAMESPACE) {
            return None;
        }
        let found = Self {
            group: levels.next()?,
            verb: levels.next()?,
            node: levels.next()?,
            device: levels.next(),
        };
        levels.next().is_none().then_some(found)
    }

    /// Its text.
    pub(super) fn text(self) -> String {
        let Self {
            group,
            verb,
            node,
            device,
        } = self;
        let device = device.map_or_else(String::new, |device| format!("/{device}"));
        format!("{NAMESPACE}/{group}/{verb}/{node}{device}")
    }
}

/// Whether a text can be a level of a topic that names a group, a node or a device (4.1).
pub(super) fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.len() <= 256 && !text.contains(['/', '+', '#', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_payload_is_written_as_the_specification_says() {
        let payload = Payload {
            timestamp: Some(1),
            metrics: vec![Metric {
                name: Some("a".to_owned()),
                datatype: Some(10),
                value: Some(MetricValue::Double(1.0)),
                ..Metric::default()
            }],
            seq: Some(3),
        };
        let bytes = [
            8, 1, // timestamp
            18, 14, 10, 1, b'a', 32, 10, 105, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F, // metric
            24, 3, // seq
        ];
        assert_eq!(payload.to_bytes(), bytes);
        assert_eq!(Payload::parse(&bytes), Ok(payload));
    }

    #[test]
    fn a_payload_of_countless_metrics_is_refused() {
        let bytes = [18, 0].repeat(METRICS_MAX + 1);
        assert!(Payload::parse(&bytes).unwrap_err().contains("more than"));
        assert!(Payload::parse(&bytes[2..]).is_ok());
    }

    #[test]
    fn topics_are_divided() {
        let topic = Topic::parse("spBv1.0/g/DDATA/n/d").unwrap();
        assert_eq!(
            (topic.group, topic.verb, topic.node, topic.device),
            ("g", "DDATA", "n", Some("d"))
        );
        assert_eq!(topic.text(), "spBv1.0/g/DDATA/n/d");
        for wrong in [
            "",
            "spBv1.0/g/NDATA",
            "spAv1.0/g/NDATA/n",
            "spBv1.0/g/DDATA/n/d/e",
        ] {
            assert_eq!(Topic::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(payload) = Payload::parse(&bytes) {
                prop_assert_eq!(Payload::parse(&payload.to_bytes()).is_ok(), true);
            }
        }
    }
}
