//! Reads a topic of any type into a stream: its type is the one that its writers announce.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use chappe_stream::{StreamElement, StreamSchema, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SubscriptionStatus, Topics, lock, show};
use crate::types::{Flat, Structure, dds_topic, time_of};
use crate::{DdsError, Ended, Inlet, InletConfig, Qos, Sample, Supervisor, Topic};

/// Elements that are returned together.
const BATCH: usize = 256;

/// A topic of any type that is stored in a stream: the keys of a wrapper of kind `dds_any`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnySubscription {
    /// The topic. A name that starts with `/` is a topic of ROS 2: `/imu` is `rt/imu` in DDS.
    pub topic: String,
    /// The stream. Default: the name of the wrapper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// An IDL file with the type, relative to this file. Default: the type that the writers
    /// announce. Writers that announce another type are refused, with the names of the members that
    /// differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idl: Option<PathBuf>,
    /// The scoped name of the struct in `idl`, such as `sensor_msgs::msg::Imu`. Default: its last struct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The path of the member with the time of a sample, such as `header.stamp`: nanoseconds since 1970, or a struct of
    /// seconds and nanoseconds. Default: the time at which it was written, according to its writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The requested quality of service.
    #[serde(default)]
    pub qos: Qos,
}

impl AnySubscription {
    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        self.dds_topic().check_for_reader()?;
        self.qos.check()
    }

    fn dds_topic(&self) -> Topic {
        Topic::of_any_type(&dds_topic(&self.topic))
    }
}

/// A topic of any type that is read.
pub struct AnySubscriber {
    topics: Arc<Topics>,
    /// Kept alive by those that use it.
    _supervisor: Arc<Supervisor>,
    config: AnySubscription,
    status: Arc<Mutex<SubscriptionStatus>>,
    inlet: Inlet,
    /// The type from the IDL file.
    expected: Option<Arc<Structure>>,
    /// The stream of the last type.
    current: Option<Current>,
    /// A sample of another type than those before it, for the next batch.
    next: Option<Sample>,
    under_way: u64,
    now: fn() -> Timestamp,
}

/// A type and its stream.
struct Current {
    of: Arc<Structure>,
    flat: Flat,
    /// The members that differ from the expected type.
    differences: Vec<String>,
}

/// Samples that were received together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnyBatch {
    /// The schema of the elements. It changes with the announced type, from batch to batch: a stream has one at a time.
    pub schema: Option<StreamSchema>,
    /// The elements.
    pub elements: Vec<StreamElement>,
    /// Samples that are no elements.
    pub refused: Vec<RefusedSample>,
    /// The members that no field holds, whenever a type is new.
    pub left_out: Vec<String>,
}

/// A sample that is no element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSample {
    /// The reason.
    pub reason: String,
    /// Its bytes.
    pub bytes: crate::Bytes,
}

impl Topics {
    /// Reads a topic of any type for the stream of this name. `expected` is the type from the IDL file. `now` is the wall
    /// clock.
    ///
    /// # Errors
    /// A value is invalid, or there are too many topics.
    pub fn any_subscriber(
        self: &Arc<Self>,
        config: AnySubscription,
        expected: Option<Arc<Structure>>,
        stream: &str,
        now: fn() -> Timestamp,
    ) -> Result<AnySubscriber, DdsError> {
        config.check()?;
        let supervisor = self.supervisor()?;
        let inlet = supervisor.reader(InletConfig {
            topic: config.dds_topic(),
            qos: config.qos.clone(),
        })?;
        let status = SubscriptionStatus {
            topic: config.topic.clone(),
            stream: stream.to_owned(),
            ..SubscriptionStatus::default()
        };
        Ok(AnySubscriber {
            topics: self.clone(),
            _supervisor: supervisor,
            config,
            status: show(&self.subscriptions, status),
            inlet,
            expected,
            current: None,
            next: None,
            under_way: 0,
            now,
        })
    }
}

impl AnySubscriber {
    /// The next samples. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The participant has ended.
    pub async fn next(&mut self) -> Result<AnyBatch, Ended> {
        let mut next = match self.next.take() {
            Some(sample) => Some(sample),
            None => Some(self.inlet.receive().await.ok_or(Ended)?),
        };
        let mut batch = AnyBatch::default();
        while let Some(sample) = next {
            if !batch.elements.is_empty() && !self.is_current(&sample) {
                self.next = Some(sample);
                break;
            }
            if let Err(reason) = self.add(&sample, &mut batch) {
                let detail = format!("from {}: {reason}", sample.writer);
                lock(&self.status).malformed += 1;
                (self.topics.reports.dropped)("malformed", &self.config.topic, detail);
                batch.refused.push(RefusedSample {
                    reason,
                    bytes: sample.payload.bytes,
                });
            }
            next = match batch.elements.len() + batch.refused.len() < BATCH {
                true => self.inlet.try_receive(),
                false => None,
            };
        }
        self.under_way += batch.elements.len() as u64;
        Ok(batch)
    }

    /// The samples that were returned last are stored.
    pub fn stored(&mut self) {
        lock(&self.status).received += std::mem::take(&mut self.under_way);
    }

    /// Whether a sample has the type of the one before it, or none.
    fn is_current(&self, sample: &Sample) -> bool {
        let current = self.current.as_ref();
        let is_same = |of| current.is_some_and(|it| Arc::ptr_eq(&it.of, of) || it.of == *of);
        sample
            .of
            .as_ref()
            .or(self.expected.as_ref())
            .is_none_or(is_same)
    }

    fn add(&mut self, sample: &Sample, batch: &mut AnyBatch) -> Result<(), String> {
        let is_known = self.is_current(sample);
        let of = sample.of.as_ref().or(self.expected.as_ref()).ok_or(
            "its writer announces no type that can be read; `chappe dds` shows the reason, and `idl` names a file with \
             the type",
        )?;
        let current = match &mut self.current {
            Some(current) if is_known => current,
            other => {
                let flat = Flat::new(of);
                batch.left_out.extend_from_slice(flat.left_out());
                let expected = self.expected.as_ref();
                other.insert(Current {
                    of: of.clone(),
                    flat,
                    differences: expected.map_or_else(Vec::new, |it| of.differences(it)),
                })
            }
        };
        if !current.differences.is_empty() {
            let differences = current.differences.join("; ");
            return Err(format!(
                "its type is not that of the IDL file: {differences}"
            ));
        }
        let datum = of.decode(&sample.payload);
        let datum = datum.map_err(|error| error.to_string())?;
        let now = (self.now)();
        let written = Timestamp(sample.source_time_ns);
        let time = match &self.config.time {
            Some(path) => time_of(of, path, &datum)
                .ok_or_else(|| format!("{path}: not a time, or not in the sample"))?,
            None if written.0 > 0 => written,
            None => now,
        };
        let mut element = current.flat.element(&datum, time)?;
        element.receive_time = now;
        if batch.elements.is_empty() {
            batch.schema = Some(current.flat.schema().clone());
        }
        batch.elements.push(element);
        Ok(())
    }
}
