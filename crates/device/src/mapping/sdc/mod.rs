//! IEEE 11073 SDC: maps metrics and waveforms to streams without configuration.
//!
//! Source: IEEE 11073-10207 (participant and message model), 11073-20701 (actions), 11073-10101
//! (codes of observed properties and units). Each metric of the containment tree is a stream named
//! by its handle; a real-time sample array is one element for each report.
//!
//! Out of scope: contexts, alerts, operations and localized texts.

mod description;
mod meta_data;
mod metrics;
mod report;
mod tree;
mod units;
mod versions;

use chappe_xml::{Element, Name};

pub use description::{Kind, Metric};
pub use meta_data::MetaData;
pub use metrics::{Outcome, Reported, SdcMapping};

pub(crate) const MESSAGE: &str =
    "http://standards.ieee.org/downloads/11073/11073-10207-2017/message";
pub(crate) const PARTICIPANT: &str =
    "http://standards.ieee.org/downloads/11073/11073-10207-2017/participant";
/// The namespace of the services and the base of the actions.
pub const SERVICES: &str = "http://standards.ieee.org/downloads/11073/11073-20701-2018";

/// The action that requests the whole medical device information base.
pub const GET_MDIB: &str =
    "http://standards.ieee.org/downloads/11073/11073-20701-2018/GetService/GetMdib";

const EPISODIC_METRIC_REPORT: &str = "http://standards.ieee.org/downloads/11073/11073-20701-2018/StateEventService/EpisodicMetricReport";
const WAVEFORM_STREAM: &str =
    "http://standards.ieee.org/downloads/11073/11073-20701-2018/WaveformService/WaveformStream";

/// The action of an event that reports changes of the containment tree.
const DESCRIPTION_CHANGED: &str = "http://standards.ieee.org/downloads/11073/11073-20701-2018/DescriptionEventService/DescriptionModificationReport";

/// The subscribed events, with the port type that sends each.
pub const EVENTS: &[(&str, &str)] = &[
    ("StateEventService", EPISODIC_METRIC_REPORT),
    ("WaveformService", WAVEFORM_STREAM),
    ("DescriptionEventService", DESCRIPTION_CHANGED),
];

/// Events without metrics. With them every change of the medical device information base is reported, so a
/// skipped version shows that reports were missed.
pub const OTHER_EVENTS: &[(&str, &str)] = &[
    (
        "StateEventService",
        "http://standards.ieee.org/downloads/11073/11073-20701-2018/StateEventService/EpisodicAlertReport",
    ),
    (
        "StateEventService",
        "http://standards.ieee.org/downloads/11073/11073-20701-2018/StateEventService/EpisodicComponentReport",
    ),
    (
        "StateEventService",
        "http://standards.ieee.org/downloads/11073/11073-20701-2018/StateEventService/EpisodicOperationalStateReport",
    ),
    (
        "ContextService",
        "http://standards.ieee.org/downloads/11073/11073-20701-2018/ContextService/EpisodicContextReport",
    ),
];

/// The body of a GetMdib request.
#[must_use]
pub fn get_mdib() -> Element {
    Element::new(Name::new(MESSAGE, "GetMdib"))
}

#[cfg(test)]
mod tests;
