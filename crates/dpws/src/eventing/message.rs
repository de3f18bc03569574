//! The messages of WS-Eventing as values.
//!
//! Each is read from and written to the child of the body; the version of WS-Addressing is that of
//! the message's headers.

use std::time::Duration;

use chappe_soap::schema::{format_date_time, format_duration, parse_date_time, parse_duration};
use chappe_soap::{AddressingVersion, EndpointReference};
use chappe_xml::{Element, Name, Str};

use super::{EventingFault, TreeOffer, TreeSink};
use crate::Dialect;
use crate::dialect::EVENTING;

/// The delivery mode that the profile uses.
pub const DELIVERY_MODE_PUSH: &str =
    "http://schemas.xmlsoap.org/ws/2004/08/eventing/DeliveryModes/Push";

/// The actions of the messages.
pub mod action {
    /// Subscribe.
    pub const SUBSCRIBE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Subscribe";
    /// Its answer.
    pub const SUBSCRIBE_RESPONSE: &str =
        "http://schemas.xmlsoap.org/ws/2004/08/eventing/SubscribeResponse";
    /// Renew.
    pub const RENEW: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Renew";
    /// Its answer.
    pub const RENEW_RESPONSE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/RenewResponse";
    /// GetStatus.
    pub const GET_STATUS: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/GetStatus";
    /// Its answer.
    pub const GET_STATUS_RESPONSE: &str =
        "http://schemas.xmlsoap.org/ws/2004/08/eventing/GetStatusResponse";
    /// Unsubscribe.
    pub const UNSUBSCRIBE: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing/Unsubscribe";
    /// Its answer.
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

/// The filter dialect of actions in this dialect of the profile.
#[must_use]
pub fn filter_dialect(dialect: Dialect) -> Str {
    format!("{}/Action", dialect.dpws()).into()
}

/// When a subscription ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiration {
    /// After this long.
    After(Duration),
    /// At this time, nanoseconds since 1970.
    At(i64),
}

impl Expiration {
    /// Reads the text of an `Expires` element.
    ///
    /// # Errors
    /// When it is neither an `xs:dateTime` nor an `xs:duration` of some length.
    pub fn parse(text: &str) -> Result<Self, EventingFault> {
        let invalid = || EventingFault::InvalidExpirationTime;
        if text.trim().starts_with(['P', '-']) {
            let nanoseconds = parse_duration(text).map_err(|_| invalid())?;
            let nanoseconds = u64::try_from(nanoseconds).map_err(|_| invalid())?;
            return match nanoseconds {
                0 => Err(invalid()),
                some => Ok(Self::After(Duration::from_nanos(some))),
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

/// Which notifications are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// The dialect (a URI); absent means XPath, which nobody here understands.
    pub dialect: Option<Str>,
    /// The words of the text: of the dialect of actions the actions.
    pub actions: Vec<Str>,
}

impl Filter {
    /// By actions, in this dialect of the profile.
    #[must_use]
    pub fn actions(dialect: Dialect, actions: Vec<Str>) -> Self {
        Self {
            dialect: Some(filter_dialect(dialect)),
            actions,
        }
    }

    /// Whether the dialect is that of actions, of either dialect of the profile.
    #[must_use]
    pub fn is_by_actions(&self) -> bool {
        let own = |dialect| self.dialect.as_ref() == Some(&filter_dialect(dialect));
        Dialect::ALL.into_iter().any(own)
    }

    /// Whether an action is wanted: the URIs are equal, character by character.
    #[must_use]
    pub fn matches(&self, action: &str) -> bool {
        self.actions.iter().any(|wanted| wanted == action)
    }
}

/// Asks for notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// Where the end of the subscription is told.
    pub end_to: Option<EndpointReference>,
    /// The delivery mode; absent means push.
    pub mode: Option<Str>,
    /// Where notifications go.
    pub notify_to: Option<EndpointReference>,
    /// The wanted lease.
    pub expires: Option<Expiration>,
    /// Which notifications; absent means all.
    pub filter: Option<Filter>,
    /// The sink understands notification trees; `Err` says what is wrong with what it says of itself.
    pub tree: Result<Option<TreeSink>, &'static str>,
}

impl Subscribe {
    /// Reads the element.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn from_element(version: AddressingVersion, root: &Element) -> Result<Self, EventingFault> {
        expect(root, "Subscribe")?;
        let Some(delivery) = root.child(&name("Delivery")) else {
            return Err(EventingFault::InvalidMessage("it has no Delivery".into()));
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
                .map(|word| Str::Owned(word.to_owned()))
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

    /// As an element.
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
    let what = format!("the body holds {}, not {local}", element.name);
    Err(EventingFault::InvalidMessage(what.into()))
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
    /// Where Renew, GetStatus and Unsubscribe go.
    pub manager: EndpointReference,
    /// The granted lease.
    pub expires: Expiration,
    /// The source spreads events on a tree and has understood that the sink can be on it.
    pub tree: Option<TreeOffer>,
}

impl SubscribeResponse {
    /// Reads the element.
    ///
    /// # Errors
    /// When it is another, or incomplete.
    pub fn from_element(version: AddressingVersion, root: &Element) -> Result<Self, EventingFault> {
        expect(root, "SubscribeResponse")?;
        let missing = |what: &'static str| EventingFault::InvalidMessage(what.into());
        Ok(Self {
            manager: endpoint(version, root, "SubscriptionManager")?
                .ok_or_else(|| missing("it has no SubscriptionManager"))?,
            expires: Expiration::read(root)?.ok_or_else(|| missing("it has no Expires"))?,
            tree: TreeOffer::read(root),
        })
    }

    /// As an element.
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

/// The messages about a subscription that hold at most an expiration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Asks for a longer lease.
    Renew,
    /// Grants it.
    RenewResponse,
    /// Asks for the rest of the lease.
    GetStatus,
    /// Tells it.
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

    /// Reads the expiration in such an element.
    ///
    /// # Errors
    /// When it is another element, or the expiration is unreadable.
    pub fn from_element(self, root: &Element) -> Result<Option<Expiration>, EventingFault> {
        expect(root, self.local())?;
        Expiration::read(root)
    }

    /// As an element.
    #[must_use]
    pub fn to_element(self, expires: Option<Expiration>) -> Element {
        root(self.local()).with_children(expires.map(Expiration::write))
    }
}

/// Why a source ended a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndStatus {
    /// Notifications could not be delivered.
    DeliveryFailure,
    /// The source stops.
    SourceShuttingDown,
    /// Any other reason of the source's.
    SourceCancelling,
    /// A status of another specification.
    Other(Str),
}

impl EndStatus {
    const KNOWN: [(Self, &'static str); 3] = [
        (Self::DeliveryFailure, "DeliveryFailure"),
        (Self::SourceShuttingDown, "SourceShuttingDown"),
        (Self::SourceCancelling, "SourceCancelling"),
    ];

    /// The URI; the older form without namespace is read as well.
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

/// Tells the end of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionEnd {
    /// The manager of the subscription that ended.
    pub manager: Option<EndpointReference>,
    /// Why.
    pub status: EndStatus,
    /// For a person to read.
    pub reason: Option<Str>,
}

impl SubscriptionEnd {
    /// Reads the element.
    ///
    /// # Errors
    /// When it is another, or has no status.
    pub fn from_element(version: AddressingVersion, root: &Element) -> Result<Self, EventingFault> {
        expect(root, "SubscriptionEnd")?;
        let text = |local| {
            let child = root.child(&name(local));
            let text = child.map(|child| child.text().trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        let status = text("Status");
        let missing = || EventingFault::InvalidMessage("it has no Status".into());
        Ok(Self {
            manager: endpoint(version, root, "SubscriptionManager")
                .ok()
                .flatten(),
            status: EndStatus::from_uri(&status.ok_or_else(missing)?),
            reason: text("Reason").map(Str::Owned),
        })
    }

    /// As an element.
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
