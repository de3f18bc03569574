//! IEEE 11073 SDC: metrics and waveforms become streams with no configuration.
//!
//! Source: IEEE 11073-10207 (participant and message model), 11073-20701 (actions), 11073-10101
//! (codes of observed properties and units). Each metric of the containment tree is a stream named
//! by its handle; a real-time sample array is one element a stretch.
//!
//! Deliberately not here: contexts, alerts, operations and localized texts.

mod description;
mod report;
mod units;

use chappe_stream::Timestamp;
use chappe_xml::{Element, Name};

use crate::mapping::{Mapped, Mapping, Offer, Trouble};

pub use description::{Kind, Metric};

pub(crate) const MESSAGE: &str =
    "http://standards.ieee.org/downloads/11073/11073-10207-2017/message";
pub(crate) const PARTICIPANT: &str =
    "http://standards.ieee.org/downloads/11073/11073-10207-2017/participant";
/// The namespace of the services and the base of the actions.
pub const SERVICES: &str = "http://standards.ieee.org/downloads/11073/11073-20701-2018";

/// The action that asks for the whole medical device information base.
pub const GET_MDIB: &str =
    "http://standards.ieee.org/downloads/11073/11073-20701-2018/GetService/GetMdib";

const EPISODIC_METRIC_REPORT: &str = "http://standards.ieee.org/downloads/11073/11073-20701-2018/StateEventService/EpisodicMetricReport";
const WAVEFORM_STREAM: &str =
    "http://standards.ieee.org/downloads/11073/11073-20701-2018/WaveformService/WaveformStream";

/// The action of an event that says that the containment tree has changed.
pub(crate) const DESCRIPTION_CHANGED: &str = "http://standards.ieee.org/downloads/11073/11073-20701-2018/DescriptionEventService/DescriptionModificationReport";

/// The events that are subscribed to, with the port type that sends each.
pub(crate) const EVENTS: &[(&str, &str)] = &[
    ("StateEventService", EPISODIC_METRIC_REPORT),
    ("WaveformService", WAVEFORM_STREAM),
    ("DescriptionEventService", DESCRIPTION_CHANGED),
];

/// The body of a GetMdib request.
#[must_use]
pub fn get_mdib() -> Element {
    Element::new(Name::new(MESSAGE, "GetMdib"))
}

/// The mapping of one SDC device.
#[derive(Debug)]
pub struct SdcMapping {
    metrics: Vec<Metric>,
    offers: Vec<Offer>,
    /// Metrics beyond the limit or without what a stream needs.
    pub left_out: Vec<Trouble>,
}

impl SdcMapping {
    /// Reads the answer to GetMdib; gives the mapping and the values that the answer holds.
    ///
    /// # Errors
    /// When the element holds no containment tree with metrics.
    pub fn new(answer: &Element, received: Timestamp) -> Result<(Self, Mapped), Trouble> {
        let (metrics, left_out) = description::metrics(answer)?;
        let offers = metrics.iter().map(Metric::offer).collect();
        let mapping = Self {
            metrics,
            offers,
            left_out,
        };
        let first = mapping.states(answer, received);
        Ok((mapping, first))
    }

    /// Maps every metric state below `element`, wherever the report puts it.
    fn states(&self, element: &Element, received: Timestamp) -> Mapped {
        let mut mapped = Mapped::default();
        report::for_each_state(element, &mut |handle, state| {
            // States of other things (systems, channels, alerts) have no metric of their handle.
            let Some(index) = self
                .metrics
                .iter()
                .position(|metric| metric.handle == handle)
            else {
                return;
            };
            match report::state(&self.metrics[index], state, received) {
                Ok(Some(element)) => mapped.elements.push((index, element)),
                Ok(None) => {}
                Err(trouble) => mapped.troubles.push(trouble),
            }
        });
        mapped
    }
}

impl Mapping for SdcMapping {
    fn offers(&self) -> &[Offer] {
        &self.offers
    }

    fn actions(&self) -> Vec<String> {
        let waveform = self
            .metrics
            .iter()
            .any(|m| matches!(m.kind, Kind::Waveform { .. }));
        let other = self
            .metrics
            .iter()
            .any(|m| !matches!(m.kind, Kind::Waveform { .. }));
        let actions = [(other, EPISODIC_METRIC_REPORT), (waveform, WAVEFORM_STREAM)];
        let wanted = actions.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, action)| action.to_owned()).collect()
    }

    fn map(&mut self, action: &str, body: &Element, received: Timestamp) -> Mapped {
        let known = [
            "EpisodicMetricReport",
            "PeriodicMetricReport",
            "WaveformStream",
        ];
        if body.name.namespace == MESSAGE && known.contains(&&*body.name.local) {
            return self.states(body, received);
        }
        let trouble = Trouble::new("sdc_unknown_report", format!("{} with {action}", body.name));
        Mapped {
            elements: Vec::new(),
            troubles: vec![trouble],
        }
    }
}

#[cfg(test)]
mod tests;
