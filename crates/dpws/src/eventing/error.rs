//! The faults of WS-Eventing, section 6, and of DPWS 1.1, section 5.2.

use chappe_soap::{AddressingVersion, Fault};
use chappe_xml::{Element, Name, Str};

use super::message::{DELIVERY_MODE_PUSH, filter_dialect};
use crate::Dialect;
use crate::dialect::EVENTING;

/// A refusal by an event source or subscription manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EventingFault {
    /// Another delivery mode than push.
    #[error("the requested delivery mode is not supported, only push is")]
    DeliveryModeRequestedUnavailable,
    /// Another filter dialect than that of actions.
    #[error("the requested filter dialect is not supported")]
    FilteringRequestedUnavailable,
    /// No notification can match the filter.
    #[error("no notifications can match the supplied filter")]
    FilterActionNotSupported,
    /// Expiration in the past, of no length, or unreadable.
    #[error("the requested expiration time is invalid")]
    InvalidExpirationTime,
    /// Expiration by date where only durations are understood.
    #[error("only expiration durations are supported")]
    UnsupportedExpirationType,
    /// The source cannot serve this subscriber now.
    #[error("the event source cannot process the subscription: {0}")]
    EventSourceUnableToProcess(Str),
    /// The subscription is unknown or cannot be renewed.
    #[error("the subscription could not be renewed: {0}")]
    UnableToRenew(Str),
    /// The message lacks something or names an unknown subscription.
    #[error("the message is invalid: {0}")]
    InvalidMessage(Str),
}

impl EventingFault {
    fn local(&self) -> &'static str {
        match self {
            Self::DeliveryModeRequestedUnavailable => "DeliveryModeRequestedUnavailable",
            Self::FilteringRequestedUnavailable => "FilteringRequestedUnavailable",
            Self::FilterActionNotSupported => "FilterActionNotSupported",
            Self::InvalidExpirationTime => "InvalidExpirationTime",
            Self::UnsupportedExpirationType => "UnsupportedExpirationType",
            Self::EventSourceUnableToProcess(_) => "EventSourceUnableToProcess",
            Self::UnableToRenew(_) => "UnableToRenew",
            Self::InvalidMessage(_) => "InvalidMessage",
        }
    }

    /// As a fault in the dialect that goes with `version`.
    #[must_use]
    pub fn to_fault(&self, version: AddressingVersion) -> Fault {
        let dialect = crate::exchange::dialect_of(version);
        let name = match self {
            Self::FilterActionNotSupported => dialect.dpws_name(self.local()),
            _ => Name::new(EVENTING, self.local()),
        };
        let detail = |local, text: Str| Element::new(Name::new(EVENTING, local)).with_text(text);
        let mut fault = match self {
            Self::EventSourceUnableToProcess(_) | Self::UnableToRenew(_) => {
                Fault::receiver(name, self.to_string())
            }
            _ => Fault::sender(name, self.to_string()),
        };
        match self {
            Self::DeliveryModeRequestedUnavailable => {
                fault.detail = vec![detail("SupportedDeliveryMode", DELIVERY_MODE_PUSH.into())];
            }
            Self::FilteringRequestedUnavailable => {
                fault.detail = vec![detail("SupportedDialect", filter_dialect(dialect))];
            }
            _ => {}
        }
        fault
    }

    /// Reads a fault; `None` when it is none of these.
    #[must_use]
    pub fn from_fault(fault: &Fault) -> Option<Self> {
        let subcode = fault.subcode.as_ref()?;
        let reason = || fault.reason.clone();
        if Dialect::of_namespace(&subcode.namespace).is_some() {
            let own = subcode.local == "FilterActionNotSupported";
            return own.then_some(Self::FilterActionNotSupported);
        }
        if subcode.namespace != EVENTING {
            return None;
        }
        Some(match &*subcode.local {
            "DeliveryModeRequestedUnavailable" => Self::DeliveryModeRequestedUnavailable,
            // The first name is that of the specification's text, the second that of its table.
            "FilteringRequestedUnavailable" | "FilteringNotSupported" => {
                Self::FilteringRequestedUnavailable
            }
            "InvalidExpirationTime" => Self::InvalidExpirationTime,
            "UnsupportedExpirationType" => Self::UnsupportedExpirationType,
            "EventSourceUnableToProcess" => Self::EventSourceUnableToProcess(reason()),
            "UnableToRenew" => Self::UnableToRenew(reason()),
            "InvalidMessage" => Self::InvalidMessage(reason()),
            _ => return None,
        })
    }
}
