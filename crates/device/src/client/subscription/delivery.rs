//! The deliveries of a subscription.

use std::time::{Duration, SystemTime};

use chappe_dpws::eventing::EndReason;
use chappe_xml::Element;

/// An event of a subscription.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delivery {
    /// The device granted it, for the first time or after an end: earlier events may have been missed.
    Subscribed {
        /// The granted lease; it is renewed in time.
        granted: Duration,
    },
    /// It was renewed, or confirmed after trouble.
    Renewed {
        /// The granted lease; it is renewed in time.
        granted: Duration,
    },
    /// An event.
    Notification(Notification),
    /// It ended; unless it was unsubscribed, it is retried.
    Ended(EndReason),
    /// It cannot be established or kept for now; it is retried.
    Trouble {
        /// The problem.
        detail: String,
        /// A remedy, if one is known.
        hint: Option<&'static str>,
    },
}

/// An event of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// The action of the event.
    pub action: String,
    /// Its content.
    pub body: Element,
    /// The time of arrival.
    pub received_at: SystemTime,
}
