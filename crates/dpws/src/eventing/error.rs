//! The faults of WS-Eventing, section 6, and of DPWS 1.1, section 5.

use chappe_soap::{AddressingVersion, Fault};
use chappe_xml::{Element, Name, Str};

use super::message::{DELIVERY_MODE_PUSH, filter_dialect};
use crate::Dialect;
use crate::dialect::EVENTING;

/// An error of an event source or subscription manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EventingFault {
    /// A delivery mode other than push.
    #[error("the requested delivery mode is not supported; use push")]
    DeliveryModeRequestedUnavailable,
    /// A filter dialect other than that of actions.
    #[error("the requested filter dialect is not supported; use a list of actions")]
    FilteringRequestedUnavailable,
    /// The filter matches none of the source's events.
    #[error("the filter matches no notification of this event source")]
    FilterActionNotSupported,
    /// An expiration time in the past, of zero length or not readable.
    #[error("the requested expiration time is invalid or in the past")]
    InvalidExpirationTime,
    /// An expiration by date at a source that supports durations only.
    #[error("expiration by date is not supported; use a duration")]
    UnsupportedExpirationType,
    /// The source cannot serve this subscriber now.
    #[error("the event source cannot accept the subscription: {0}")]
    EventSourceUnableToProcess(Str),
    /// The subscription is unknown or cannot be renewed.
    #[error("the subscription cannot be renewed: {0}")]
    UnableToRenew(Str),
    /// `NotifyTo` or `EndTo` has an address that the source cannot or may not contact.
    #[error("the address cannot be used: {0}")]
    DestinationUnreachable(Str),
    /// `NotifyTo` or `EndTo` has a reference parameter that would replace a header of the source.
    #[error("the endpoint reference cannot be used: {0}")]
    InvalidAddressingHeader(Str),
    /// The message is incomplete or names an unknown subscription.
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
            Self::DestinationUnreachable(_) => "DestinationUnreachable",
            Self::InvalidAddressingHeader(_) => "InvalidAddressingHeader",
            Self::InvalidMessage(_) => "InvalidMessage",
        }
    }

    /// The fault in the dialect of `version`.
    #[must_use]
    pub fn to_fault(&self, version: AddressingVersion) -> Fault {
        let dialect = crate::exchange::dialect_of(version);
        let name = match self {
            Self::FilterActionNotSupported => dialect.dpws_name(self.local()),
            Self::DestinationUnreachable(_) => version.name(self.local()),
            Self::InvalidAddressingHeader(_) => version.fault_name(self.local()),
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
                fault.detail =
                    vec![detail("SupportedDeliveryMode", DELIVERY_MODE_PUSH.into()).into()];
            }
            Self::FilteringRequestedUnavailable => {
                fault.detail = vec![detail("SupportedDialect", filter_dialect(dialect)).into()];
            }
            _ => {}
        }
        fault
    }

    /// Parses a fault; `None` for other faults.
    #[must_use]
    pub fn from_fault(fault: &Fault) -> Option<Self> {
        let subcode = fault.subcode.as_ref()?;
        let reason = || fault.reason.clone();
        if Dialect::of_namespace(&subcode.namespace).is_some() {
            let own = subcode.local == "FilterActionNotSupported";
            return own.then_some(Self::FilterActionNotSupported);
        }
        let is_addressing =
            |dialect: Dialect| subcode.namespace == dialect.addressing().namespace();
        if Dialect::ALL.into_iter().any(is_addressing) {
            return match &*subcode.local {
                "DestinationUnreachable" => Some(Self::DestinationUnreachable(reason())),
                "InvalidAddressingHeader" | "InvalidMessageInformationHeader" => {
                    Some(Self::InvalidAddressingHeader(reason()))
                }
                _ => None,
            };
        }
        if subcode.namespace != EVENTING {
            return None;
        }
        Some(match &*subcode.local {
            "DeliveryModeRequestedUnavailable" => Self::DeliveryModeRequestedUnavailable,
            // The specification has the first name in its text and the second in its table.
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
