//! DDS topics: participants, writers and readers of Cyclone DDS, and streams as IDL types.
//!
//! [`open`] joins a domain; a [`Participant`] creates [`Writer`]s and [`Reader`]s of samples in CDR. A writer knows
//! the exact number of its unacknowledged samples, which a pacer needs. [`Octets`] is a type for measurements.
//! [`topics`] publishes streams to topics and stores topics in streams.
//!
//! ```no_run
//! use std::time::Duration;
//! use chappe_dds::{Octets, ParticipantConfig, Qos, Topic, open};
//!
//! let mut participant = open(&ParticipantConfig::default())?;
//! let topic = Topic { name: "chappe/octets".into(), type_name: Octets::TYPE_NAME.into() };
//! let mut writer = participant.writer(&topic, &Qos::reliable_writer(16))?;
//! while writer.matched() == 0 {
//!     participant.wait(Duration::from_millis(100))?;
//!     while participant.event().is_some() {}
//! }
//! writer.write(&Octets::default().payload())?;
//! assert_eq!(writer.unacknowledged(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Types of others are in [`types`]: announced by their writers, or from IDL.
//!
//! Out of scope: time-based filters, content filters, ownership.

#![deny(unsafe_code)]

mod backend;
mod cdr;
#[cfg(cyclone)]
mod confine;
#[cfg(cyclone)]
mod cyclone;
mod element;
mod error;
#[cfg(cyclone)]
mod fields;
#[cfg(cyclone)]
mod journal;
#[cfg(feature = "security")]
pub mod keys;
#[cfg(cyclone)]
mod lost;
#[cfg(cyclone)]
mod mtu;
#[cfg(cyclone)]
mod name;
mod octets;
mod open;
#[cfg(feature = "planted")]
pub mod planted;
mod qos;
mod security;
mod stored;
mod supervise;
pub mod topics;
pub mod types;
#[cfg(cyclone)]
mod unsafe_cyclone;
#[cfg(all(cyclone, target_os = "linux"))]
mod unsafe_descriptor;

/// Whether the library is in this program: without CMake it is built without.
pub const IS_BUILT: bool = cfg!(cyclone);

pub use backend::{
    Acknowledged, AnnouncedType, DOMAIN_MAX, Encoding, Endian, Event, Guid, Mismatch, MismatchKind,
    Participant, ParticipantConfig, Payload, Reader, RemoteEnd, SAMPLE_BYTES_MAX, Sample,
    TOPIC_BYTES_MAX, Topic, UNACKNOWLEDGED_BYTES_MAX, Writer, write_within,
};
pub use bytes::Bytes;
pub use cdr::{Decoder, Encoder};
pub use element::{DecodedSample, ElementType, FIELDS_MAX};
pub use error::{CdrError, DdsError, WriteError};
pub use octets::Octets;
pub use open::open;
pub use qos::{
    Announced, AnnouncedDurability, Durability, Qos, READER_FACTOR, Reliability, SAMPLES_MAX,
    Sending, WINDOW_DEFAULT,
};
pub use security::SecurityConfig;
pub use stored::Stored;
pub use supervise::{
    ABANDONED_MAX, ENDS_MAX, EndStatus, Ended, Inlet, InletConfig, InletStatus, Notice, Outgoing,
    Outlet, OutletConfig, OutletStatus, Progress, Stalled, State, Supervisor, SupervisorConfig,
    SupervisorStatus,
};
