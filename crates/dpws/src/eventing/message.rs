//! WS-Eventing messages.
//!
//! Each converts from and to the child of the body. The version of WS-Addressing is that of the
//! headers.

use std::time::Duration;

use chappe_soap::schema::{format_date_time, format_duration, parse_date_time, parse_duration};
use chappe_soap::{AddressingVersion, EndpointReference};
use chappe_xml::{Element, Name, Str};

use super::{EventingFault, TreeOffer, TreeSink};
use crate::Dialect;
use crate::dialect::EVENTING;

/// The only delivery mode of the profile.
pub const DELIVERY_MODE_PUSH: &str =
    "http://schemas.xmlsoap.org/ws/2004/08/eventing/DeliveryModes/Push";

/// Action URIs.
pub mod action {
    /// Subscribe.
    pub const SUBSCRIBE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Subscribe";
    /// The answer to Subscribe.
    pub const SUBSCRIBE_RESPONSE: &str =
        "http://schemas.xmlsoap.org/ws/2004/08/eventing/SubscribeResponse";
    /// Renew.
    pub const RENEW: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Renew";
    /// The answer to Renew.
    pub const RENEW_RESPONSE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/RenewResponse";
    /// GetStatus.
    pub const GET_STATUS: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/GetStatus";
    /// The answer to GetStatus.
    pub const GET_STATUS_RESPONSE: &str =
        "http://schemas.xmlsoap.org/ws/2004/08/eventing/GetStatusResponse";
    /// Unsubscribe.
    pub const UNSUBSCRIBE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Unsubscribe";
    /// The answer to Unsubscribe.
    pub const UNSUBSCRIBE_RESPONSE: &str =
        "http://schemas.xmlsoap.org/ws/2004/08/eventing/UnsubscribeResponse";
    /// SubscriptionEnd.
    pub const SUBSCRIPTION_END: &str =
        "http://schemas.xmlsoap.org/ws/2004/08/eventing/SubscriptionEnd";
}

pub(super) fn name(local: &'static str) -> Name {
    Name::new(EVENTING, local)
}

fn element(local: &'static str) -> Element {
    Element::new(name(local))
}

/// The URI of the filter by actions in this dialect of the profile.
#[must_use]
pub fn filter_dialect(dialect: Dialect) -> Str {
    format!("{}/Action", dialect.dpws()).into()
}

/// The end of a subscription without renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiration {
    /// After this duration.
    After(Duration),
    /// At this time in nanoseconds since 1970.
    At(i64),
}

impl Expiration {
    /// Parses the text of an `Expires` element.
    ///
    /// # Errors
    /// [`EventingFault::InvalidExpirationTime`] if it is neither an `xs:dateTime` nor a positive
    /// `xs:duration`.
    pub fn parse(text: &str) -> Result<Self, EventingFault> {
        let invalid = || EventingFault::InvalidExpirationTime;
        if text.trim().starts_with(['P', '-']) {
            let nanoseconds = parse_duration(text).map_err(|_| invalid())?;
            let nanoseconds = u64::try_from(nanoseconds).map_err(|_| invalid())?;
            return match nanoseconds {
                0 => Err(invalid()),
                nonzero => Ok(Self::After(Duration::from_nanos(nonzero))),
            };
        }
        parse_date_time(text).map(Self::At).map_err(|_| invalid())
    }

    /// The text of an `Expires` element.
    #[must_use]
    pub fn format(self) -> String {
        match self {
            Self::After(duration) => {
                format_duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
            }
            Self::At(nanoseconds) => format_date_time(nanoseconds),
        }
    }

    fn read(parent: &Element) -> Result<Option<Self>, EventingFault> {
        let child = parent.child(&name("Expires"));
        child.map(|child| Self::parse(&child.text())).transpose()
    }

    fn write(self) -> Element {
        element("Expires").with_text(self.format())
    }
}

/// Selects notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// The dialect (a URI); absent means XPath, which is not supported.
    pub dialect: Option<Str>,
    /// The words of the text: with the filter by actions, the actions.
    pub actions: Vec<Str>,
}

impl Filter {
    /// A filter by actions, in this dialect of the profile.
    #[must_use]
    pub fn actions(dialect: Dialect, actions: Vec<Str>) -> Self {
        Self {
            dialect: Some(filter_dialect(dialect)),
            actions,
        }
    }

    /// Whether this is the filter by actions, in either dialect of the profile.
    #[must_use]
    pub fn is_by_actions(&self) -> bool {
        let is_action_filter = |dialect| self.dialect.as_ref() == Some(&filter_dialect(dialect));
        Dialect::ALL.into_iter().any(is_action_filter)
    }

    /// Whether the filter lists this action. URIs are compared character by character.
    #[must_use]
    pub fn matches(&self, action: &str) -> bool {
        self.actions.iter().any(|listed| listed == action)
    }
}

/// Requests notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// The destination of SubscriptionEnd.
    pub end_to: Option<EndpointReference>,
    /// The delivery mode; absent means push.
    pub mode: Option<Str>,
    /// The destination of notifications.
    pub notify_to: Option<EndpointReference>,
    /// The requested lease.
    pub expires: Option<Expiration>,
    /// The requested notifications; absent means all.
    pub filter: Option<Filter>,
    /// The sink's address for notification trees, if it supports them. `Err` is the defect of an
    /// invalid one.
    pub tree: Result<Option<TreeSink>, &'static str>,
}

impl Subscribe {
    /// Parses the element.
    ///
    /// # Errors
    /// The fault to send as the answer.
    pub fn from_element(version: AddressingVersion, root: &Element) -> Result<Self, EventingFault> {
        expect(root, "Subscribe")?;
        let Some(delivery) = root.child(&name("Delivery")) else {
            return Err(EventingFault::InvalidMessage(
                "Subscribe has no Delivery".into(),
            ));
        };
        let attribute = |element: &Element, local| {
            let value = element.attribute(&Name::local(local));
            value.map(|value| Str::Owned(value.trim().to_owned()))
        };
        let filter = root.child(&name("Filter")).map(|filter| Filter {
            dialect: attribute(filter, "Dialect"),
            actions: filter
                .text()
                .split_whitespace()
                .map(|action| Str::Owned(action.to_owned()))
                .collect(),
        });
        Ok(Self {
            end_to: endpoint(version, root, "EndTo")?,
            mode: attribute(delivery, "Mode"),
            notify_to: endpoint(version, delivery, "NotifyTo")?,
            expires: Expiration::read(root)?,
            filter,
            tree: TreeSink::read(root),
        })
    }

    /// Converts to an element.
    #[must_use]
    pub fn to_element(&self, version: AddressingVersion) -> Element {
        let reference = |local, to: &Option<EndpointReference>| {
            to.as_ref().map(|to| to.to_element(version, name(local)))
        };
        let mut delivery = element("Delivery");
        if let Some(mode) = &self.mode {
            delivery = delivery.with_attribute(Name::local("Mode"), mode.clone());
        }
        let filter = self.filter.as_ref().map(|filter| {
            let mut element = element("Filter");
            if let Some(dialect) = &filter.dialect {
                element = element.with_attribute(Name::local("Dialect"), dialect.clone());
            }
            element.with_text(filter.actions.join(" "))
        });
        root("Subscribe")
            .with_children(reference("EndTo", &self.end_to))
            .with_child(delivery.with_children(reference("NotifyTo", &self.notify_to)))
            .with_children(self.expires.map(Expiration::write))
            .with_children(filter)
            .with_children(self.tree.iter().flatten().map(TreeSink::write))
    }
}

fn root(local: &'static str) -> Element {
    element(local).with_namespace("wse", EVENTING)
}

fn expect(element: &Element, local: &'static str) -> Result<(), EventingFault> {
    if element.name.is(EVENTING, local) {
        return Ok(());
    }
    let text = format!("body has {} instead of {local}", element.name);
    Err(EventingFault::InvalidMessage(text.into()))
}

fn endpoint(
    version: AddressingVersion,
    parent: &Element,
    local: &'static str,
) -> Result<Option<EndpointReference>, EventingFault> {
    let Some(child) = parent.child(&name(local)) else {
        return Ok(None);
    };
    match EndpointReference::from_element(version, child) {
        Ok(endpoint) if !endpoint.address.is_empty() => Ok(Some(endpoint)),
        Err(error @ chappe_soap::Error::LongReference { .. }) => {
            Err(EventingFault::InvalidMessage(error.to_string().into()))
        }
        _ => Err(EventingFault::InvalidMessage(
            format!("{local} has no Address").into(),
        )),
    }
}

/// Grants a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribeResponse {
    /// The destination of Renew, GetStatus and Unsubscribe.
    pub manager: EndpointReference,
    /// The granted lease.
    pub expires: Expiration,
    /// The source's notification tree, if it accepts the sink there.
    pub tree: Option<TreeOffer>,
}

impl SubscribeResponse {
    /// Parses the element.
    ///
    /// # Errors
    /// [`EventingFault::InvalidMessage`] if it is incomplete or another element.
    pub fn from_element(version: AddressingVersion, root: &Element) -> Result<Self, EventingFault> {
        expect(root, "SubscribeResponse")?;
        let missing = |text: &'static str| EventingFault::InvalidMessage(text.into());
        Ok(Self {
            manager: endpoint(version, root, "SubscriptionManager")?
                .ok_or_else(|| missing("SubscribeResponse has no SubscriptionManager"))?,
            expires: Expiration::read(root)?
                .ok_or_else(|| missing("SubscribeResponse has no Expires"))?,
            tree: TreeOffer::read(root),
        })
    }

    /// Converts to an element.
    #[must_use]
    pub fn to_element(&self, version: AddressingVersion) -> Element {
        root("SubscribeResponse")
            .with_child(
                self.manager
                    .to_element(version, name("SubscriptionManager")),
            )
            .with_child(self.expires.write())
            .with_children(self.tree.as_ref().map(TreeOffer::write))
    }
}

/// The messages about a subscription whose only content is an expiration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Requests a longer lease.
    Renew,
    /// Grants a longer lease.
    RenewResponse,
    /// Requests the remaining lease.
    GetStatus,
    /// Reports the remaining lease.
    GetStatusResponse,
    /// Ends the subscription.
    Unsubscribe,
}

impl Lease {
    const fn local(self) -> &'static str {
        match self {
            Self::Renew => "Renew",
            Self::RenewResponse => "RenewResponse",
            Self::GetStatus => "GetStatus",
            Self::GetStatusResponse => "GetStatusResponse",
            Self::Unsubscribe => "Unsubscribe",
        }
    }

    /// Parses the expiration in the message's element.
    ///
    /// # Errors
    /// The fault if it is another element, or the expiration is invalid.
    pub fn from_element(self, root: &Element) -> Result<Option<Expiration>, EventingFault> {
        expect(root, self.local())?;
        Expiration::read(root)
    }

    /// Converts to an element.
    #[must_use]
    pub fn to_element(self, expires: Option<Expiration>) -> Element {
        root(self.local()).with_children(expires.map(Expiration::write))
    }
}

/// The reason why a source ended a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndStatus {
    /// Notifications could not be delivered.
    DeliveryFailure,
    /// The source stops.
    SourceShuttingDown,
    /// Another reason of the source.
    SourceCancelling,
    /// A status defined elsewhere.
    Other(Str),
}

impl EndStatus {
    const KNOWN: [(Self, &'static str); 3] = [
        (Self::DeliveryFailure, "DeliveryFailure"),
        (Self::SourceShuttingDown, "SourceShuttingDown"),
        (Self::SourceCancelling, "SourceCancelling"),
    ];

    /// Parses the URI; accepts the older form without namespace.
    #[must_use]
    pub fn from_uri(uri: &str) -> Self {
        let local = uri
            .strip_prefix(EVENTING)
            .and_then(|rest| rest.strip_prefix('/'));
        let local = local.unwrap_or(uri);
        let found = Self::KNOWN.iter().find(|(_, known)| *known == local);
        found.map_or_else(
            || Self::Other(uri.to_owned().into()),
            |(status, _)| status.clone(),
        )
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> Str {
        if let Self::Other(uri) = self {
            return uri.clone();
        }
        let found = Self::KNOWN.iter().find(|(status, _)| status == self);
        format!(
            "{EVENTING}/{}",
            found.map_or("SourceCancelling", |(_, local)| local)
        )
        .into()
    }
}

/// Announces the end of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionEnd {
    /// The manager of the subscription that ended.
    pub manager: Option<EndpointReference>,
    /// The reason.
    pub status: EndStatus,
    /// An explanation for people.
    pub reason: Option<Str>,
}

impl SubscriptionEnd {
    /// Parses the element.
    ///
    /// # Errors
    /// [`EventingFault::InvalidMessage`] if it has no status or is another element.
    pub fn from_element(version: AddressingVersion, root: &Element) -> Result<Self, EventingFault> {
        expect(root, "SubscriptionEnd")?;
        let text = |local| {
            let child = root.child(&name(local));
            let text = child.map(|child| child.text().trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        let status = text("Status");
        let missing = || EventingFault::InvalidMessage("SubscriptionEnd has no Status".into());
        Ok(Self {
            manager: endpoint(version, root, "SubscriptionManager")
                .ok()
                .flatten(),
            status: EndStatus::from_uri(&status.ok_or_else(missing)?),
            reason: text("Reason").map(Str::Owned),
        })
    }

    /// Converts to an element.
    #[must_use]
    pub fn to_element(&self, version: AddressingVersion) -> Element {
        let manager = self.manager.as_ref();
        let manager = manager.map(|to| to.to_element(version, name("SubscriptionManager")));
        let language = Name::new("http://www.w3.org/XML/1998/namespace", "lang");
        let reason = self.reason.as_ref().map(|reason| {
            let element = element("Reason").with_attribute(language, "en");
            element.with_text(reason.clone())
        });
        root("SubscriptionEnd")
            .with_children(manager)
            .with_child(element("Status").with_text(self.status.uri()))
            .with_children(reason)
    }
}
