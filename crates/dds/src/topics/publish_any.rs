//! Publishes a stream to a topic of a type of others, from an IDL file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use chappe_stream::{Position, StreamSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{default_readers, default_seconds, pacer_text};
use super::form::{ForeignType, Form};
use super::{Acknowledge, DdsPacer, DdsStalled, Publication, Publisher, StreamNow, Topics};
use crate::types::{MapRules, Missing, Structure, dds_topic, dds_type};
use crate::{DdsError, Qos};

/// A topic of a type of others to which a stream is published: the keys of an exporter of kind `dds_any`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnyPublication {
    /// The topic. A name that starts with `/` is a topic of ROS 2: `/imu` is `rt/imu` in DDS.
    pub topic: String,
    /// The IDL file with the type, relative to this file.
    pub idl: PathBuf,
    /// The scoped name of the struct in `idl`, such as `sensor_msgs::msg::Imu`. Default: its last struct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The path of the member that takes the time of an element, such as `header.stamp`: nanoseconds since 1970, or a struct
    /// of seconds and nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The fields of members by their paths, where the names differ: `"header.frame_id" = "frame"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, String>,
    /// The treatment of members that are not optional and have no field, or whose field has no value.
    #[serde(default)]
    pub missing: Missing,
    /// Required readers: this many must match before anything is written. Default: 1.
    #[serde(default = "default_readers")]
    #[schemars(range(min = 0, max = 1_024))]
    pub readers: u32,
    /// The treatment of a reader that acknowledges nothing.
    #[serde(default)]
    pub stalled: DdsStalled,
    /// Seconds without an acknowledgement after which a reader counts as stalled. Default: 10.
    #[serde(default = "default_seconds")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    pub stalled_after_s: u32,
    /// The pacer, as for `dds`.
    #[serde(default, with = "pacer_text")]
    #[schemars(with = "String", extend("format" = "pacer"))]
    pub pacer: DdsPacer,
    /// The offered quality of service.
    #[serde(default)]
    pub qos: Qos,
}

impl AnyPublication {
    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        self.publication(None).check()
    }

    /// Checks that elements of this schema become samples of this type.
    ///
    /// # Errors
    /// What does not fit, by the paths of members.
    pub fn check_schema(&self, of: &Arc<Structure>, schema: &StreamSchema) -> Result<(), DdsError> {
        Form::new("", schema, Some(&self.foreign(of))).map(drop)
    }

    fn foreign(&self, of: &Arc<Structure>) -> ForeignType {
        ForeignType {
            of: of.clone(),
            rules: MapRules {
                time: self.time.clone(),
                members: self.members.clone(),
                missing: self.missing,
            },
        }
    }

    /// The publication with a type of this name.
    fn publication(&self, of: Option<&Structure>) -> Publication {
        Publication {
            topic: dds_topic(&self.topic),
            type_name: of.map(|of| dds_type(&of.name, &self.topic)),
            // Readers are no Chappe nodes that could confirm more.
            acknowledge: Some(Acknowledge::Received),
            readers: self.readers,
            stalled: self.stalled,
            stalled_after_s: self.stalled_after_s,
            pacer: self.pacer.clone(),
            qos: self.qos.clone(),
        }
    }
}

impl Topics {
    /// Publishes a stream under this name as samples of this type. Elements up to `delivered` were delivered before.
    ///
    /// # Errors
    /// The participant cannot start.
    pub fn any_publisher(
        self: &Arc<Self>,
        config: &AnyPublication,
        of: &Arc<Structure>,
        stream: &str,
        delivered: Option<Position>,
        look_up: impl Fn() -> Option<StreamNow> + Send + 'static,
    ) -> Result<Publisher, DdsError> {
        let foreign = config.foreign(of);
        let publication = config.publication(Some(of));
        self.publisher_of(
            publication,
            Some(foreign),
            stream,
            delivered,
            Box::new(look_up),
        )
    }
}
