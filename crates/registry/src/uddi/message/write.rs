//! Answers and reports as XML.

use chappe_soap::v1_1;
use chappe_xml::{Element, Name};

use super::answer::Answer;
use super::request::{GENERIC, NAMESPACE, XML_NAMESPACE};
use crate::uddi::Owned;
use crate::uddi::assertion::{AssertionStatus, RelatedBusiness};
use crate::uddi::error::Error;
use crate::uddi::find::{BusinessInfo, ServiceInfo, TModelInfo};
use crate::uddi::value::{
    Address, BindingTemplate, BusinessEntity, BusinessService, Contact, DiscoveryUrl, Endpoint,
    KeyedReference, OverviewDoc, PublisherAssertion, Reachable, TModel, TModelInstanceInfo, Text,
};

/// An element with attributes and children; those that are absent are left out.
struct Part(Element);

impl Part {
    fn new(local: &'static str) -> Self {
        Self(Element::new(Name::new(NAMESPACE, local)))
    }

    fn with(self, local: &'static str, value: impl ToString) -> Self {
        Self(self.0.with_attribute(Name::local(local), value.to_string()))
    }

    fn maybe(self, local: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(local, value),
            None => self,
        }
    }

    fn text(self, text: impl Into<String>) -> Self {
        Self(self.0.with_text(text.into()))
    }

    fn child(self, child: Self) -> Self {
        Self(self.0.with_child(child.0))
    }

    fn all<T>(self, values: &[T], write: impl Fn(&T) -> Self) -> Self {
        let children = values.iter().map(|value| write(value).0);
        Self(self.0.with_children(children))
    }

    /// The values in the child `container`, which is left out without values.
    fn inside<T>(self, container: &'static str, values: &[T], write: impl Fn(&T) -> Self) -> Self {
        if values.is_empty() {
            return self;
        }
        self.child(Self::new(container).all(values, write))
    }

    fn optional(self, local: &'static str, text: Option<&String>) -> Self {
        match text {
            Some(text) => self.child(Self::new(local).text(text.as_str())),
            None => self,
        }
    }
}

fn text(local: &'static str) -> impl Fn(&Text) -> Part {
    move |value| {
        let mut part = Part::new(local);
        if let Some(language) = &value.language {
            let name = Name::new(XML_NAMESPACE, "lang");
            part.0 = part.0.with_attribute(name, language.as_str().to_owned());
        }
        part.text(value.text.as_str())
    }
}

fn key(local: &'static str, key: impl ToString) -> Part {
    Part::new(local).text(key.to_string())
}

fn reference(value: &KeyedReference) -> Part {
    Part::new("keyedReference")
        .maybe("tModelKey", value.tmodel_key)
        .maybe("keyName", value.key_name.as_ref())
        .with("keyValue", &value.key_value)
}

fn discovery_url(value: &DiscoveryUrl) -> Part {
    let part = Part::new("discoveryURL").with("useType", &value.use_type);
    part.text(value.url.as_str())
}

fn reachable(local: &'static str) -> impl Fn(&Reachable) -> Part {
    move |value| {
        let part = Part::new(local).maybe("useType", value.use_type.as_ref());
        part.text(value.value.as_str())
    }
}

fn address(value: &Address) -> Part {
    Part::new("address")
        .maybe("useType", value.use_type.as_ref())
        .maybe("sortCode", value.sort_code.as_ref())
        .maybe("tModelKey", value.tmodel_key)
        .all(&value.lines, |line| {
            Part::new("addressLine")
                .maybe("keyName", line.key_name.as_ref())
                .maybe("keyValue", line.key_value.as_ref())
                .text(line.text.as_str())
        })
}

fn contact(value: &Contact) -> Part {
    Part::new("contact")
        .maybe("useType", value.use_type.as_ref())
        .all(&value.descriptions, text("description"))
        .child(Part::new("personName").text(value.person_name.as_str()))
        .all(&value.phones, reachable("phone"))
        .all(&value.emails, reachable("email"))
        .all(&value.addresses, address)
}

fn overview(value: &OverviewDoc) -> Part {
    Part::new("overviewDoc")
        .all(&value.descriptions, text("description"))
        .optional("overviewURL", value.url.as_ref())
}

fn instance(value: &TModelInstanceInfo) -> Part {
    Part::new("tModelInstanceInfo")
        .with("tModelKey", value.tmodel_key)
        .all(&value.descriptions, text("description"))
        .all(value.details.as_slice(), |details| {
            Part::new("instanceDetails")
                .all(&details.descriptions, text("description"))
                .all(details.overview_doc.as_slice(), overview)
                .optional("instanceParms", details.parameters.as_ref())
        })
}

fn binding(value: &BindingTemplate) -> Part {
    let endpoint = match &value.endpoint {
        Endpoint::AccessPoint { url_type, address } => Part::new("accessPoint")
            .with("URLType", url_type.as_str())
            .text(address.as_str()),
        Endpoint::HostingRedirector(key) => Part::new("hostingRedirector").with("bindingKey", key),
    };
    Part::new("bindingTemplate")
        .maybe("serviceKey", value.service_key)
        .with("bindingKey", key_or_empty(value.key))
        .all(&value.descriptions, text("description"))
        .child(endpoint)
        .child(Part::new("tModelInstanceDetails").all(&value.tmodels, instance))
}

fn key_or_empty(key: Option<impl ToString>) -> String {
    key.map(|key| key.to_string()).unwrap_or_default()
}

fn service(value: &BusinessService) -> Part {
    Part::new("businessService")
        .with("serviceKey", key_or_empty(value.key))
        .maybe("businessKey", value.business_key)
        .all(&value.names, text("name"))
        .all(&value.descriptions, text("description"))
        .inside("bindingTemplates", &value.bindings, binding)
        .inside("categoryBag", &value.category_bag, reference)
}

fn business(value: &BusinessEntity, owner: &str, operator: &str) -> Part {
    Part::new("businessEntity")
        .with("businessKey", key_or_empty(value.key))
        .with("operator", operator)
        .with("authorizedName", owner)
        .inside("discoveryURLs", &value.discovery_urls, discovery_url)
        .all(&value.names, text("name"))
        .all(&value.descriptions, text("description"))
        .inside("contacts", &value.contacts, contact)
        .inside("businessServices", &value.services, service)
        .inside("identifierBag", &value.identifier_bag, reference)
        .inside("categoryBag", &value.category_bag, reference)
}

fn tmodel(value: &TModel, owner: &str, operator: &str) -> Part {
    Part::new("tModel")
        .with("tModelKey", key_or_empty(value.key))
        .with("operator", operator)
        .with("authorizedName", owner)
        .child(text("name")(&value.name))
        .all(&value.descriptions, text("description"))
        .all(value.overview_doc.as_slice(), overview)
        .inside("identifierBag", &value.identifier_bag, reference)
        .inside("categoryBag", &value.category_bag, reference)
}

fn service_info(value: &ServiceInfo) -> Part {
    Part::new("serviceInfo")
        .with("serviceKey", value.service_key)
        .with("businessKey", value.business_key)
        .all(&value.names, text("name"))
}

fn business_info(value: &BusinessInfo) -> Part {
    Part::new("businessInfo")
        .with("businessKey", value.business_key)
        .all(&value.names, text("name"))
        .all(&value.descriptions, text("description"))
        .child(Part::new("serviceInfos").all(&value.services, service_info))
}

fn tmodel_info(value: &TModelInfo) -> Part {
    let part = Part::new("tModelInfo").with("tModelKey", value.tmodel_key);
    part.child(text("name")(&value.name))
}

fn related(value: &RelatedBusiness) -> Part {
    let relationships = [("fromKey", &value.from_key), ("toKey", &value.to_key)];
    let shared = relationships.into_iter().filter(|(_, all)| !all.is_empty());
    let shared: Vec<_> = shared.collect();
    Part::new("relatedBusinessInfo")
        .child(key("businessKey", value.business_key))
        .all(&value.names, text("name"))
        .all(&value.descriptions, text("description"))
        .all(&shared, |(direction, all)| {
            let part = Part::new("sharedRelationships").with("direction", direction);
            part.all(all, reference)
        })
}

fn assertion(value: &PublisherAssertion) -> Part {
    Part::new("publisherAssertion")
        .child(key("fromKey", value.from_key))
        .child(key("toKey", value.to_key))
        .child(reference(&value.reference))
}

fn status(value: &AssertionStatus) -> Part {
    let PublisherAssertion {
        from_key,
        to_key,
        reference: kind,
    } = &value.assertion;
    let (from, to) = (key("fromKey", from_key), key("toKey", to_key));
    let mut owned = Part::new("keysOwned");
    if value.owns_from {
        owned = owned.child(key("fromKey", from_key));
    }
    if value.owns_to {
        owned = owned.child(key("toKey", to_key));
    }
    Part::new("assertionStatusItem")
        .with("completionStatus", value.status.as_str())
        .child(from)
        .child(to)
        .child(reference(kind))
        .child(owned)
}

/// The element of an answer.
fn message(local: &'static str, operator: &str) -> Part {
    let mut part = Part::new(local);
    part.0 = part.0.with_namespace("", NAMESPACE);
    part.with("generic", GENERIC).with("operator", operator)
}

/// The dispositionReport of an error, or of success.
pub(super) fn disposition(error: Option<&Error>, operator: &str) -> Element {
    let (code, errno) = error.map_or(("E_success", 0), |error| {
        (error.code.as_str(), error.code.errno())
    });
    let detail = error.map_or_else(String::new, ToString::to_string);
    let key_type = error.and_then(|error| error.key_type);
    let result = Part::new("result")
        .maybe("keyType", key_type.map(|kind| kind.as_str()))
        .with("errno", errno)
        .child(Part::new("errInfo").with("errCode", code).text(detail));
    message("dispositionReport", operator).child(result).0
}

fn list(local: &'static str, is_truncated: bool, operator: &str) -> Part {
    message(local, operator).with("truncated", is_truncated)
}

fn businesses(
    part: Part,
    values: &[Owned<BusinessEntity>],
    operator: &str,
    wrap: impl Fn(Part) -> Part,
) -> Part {
    part.all(values, |one| {
        wrap(business(&one.value, &one.authorized_name, operator))
    })
}

impl Answer {
    /// The SOAP message of the registry `operator`.
    #[must_use]
    pub fn to_text(&self, operator: &str) -> String {
        v1_1::to_text(answer(self, operator))
    }

    /// The same element as a document of its own.
    #[must_use]
    pub fn to_document(&self, operator: &str) -> String {
        let text = answer(self, operator).to_text();
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}")
    }
}

/// The element of an answer of the registry `operator`.
fn answer(answer: &Answer, operator: &str) -> Element {
    let plain = |local| message(local, operator);
    let part = match answer {
        Answer::AuthToken(token) => {
            plain("authToken").child(Part::new("authInfo").text(token.as_str()))
        }
        Answer::BindingDetail(found) => {
            list("bindingDetail", found.is_truncated, operator).all(&found.items, binding)
        }
        Answer::BusinessDetail(values) => {
            businesses(plain("businessDetail"), values, operator, |part| part)
        }
        Answer::BusinessDetailExt(values) => {
            let wrap = |part| Part::new("businessEntityExt").child(part);
            businesses(plain("businessDetailExt"), values, operator, wrap)
        }
        Answer::ServiceDetail(values) => plain("serviceDetail").all(values, service),
        Answer::TModelDetail(values) => plain("tModelDetail").all(values, |one| {
            tmodel(&one.value, &one.authorized_name, operator)
        }),
        Answer::BusinessList(found) => list("businessList", found.is_truncated, operator)
            .child(Part::new("businessInfos").all(&found.items, business_info)),
        Answer::ServiceList(found) => list("serviceList", found.is_truncated, operator)
            .child(Part::new("serviceInfos").all(&found.items, service_info)),
        Answer::TModelList(found) => list("tModelList", found.is_truncated, operator)
            .child(Part::new("tModelInfos").all(&found.items, tmodel_info)),
        Answer::RelatedBusinessesList(focus, found) => {
            list("relatedBusinessesList", found.is_truncated, operator)
                .child(key("businessKey", focus))
                .child(Part::new("relatedBusinessInfos").all(&found.items, related))
        }
        Answer::Assertions(name, values) => plain("publisherAssertions")
            .with("authorizedName", name)
            .all(values, assertion),
        Answer::AssertionStatusReport(values) => plain("assertionStatusReport").all(values, status),
        Answer::RegisteredInfo(info) => plain("registeredInfo")
            .child(Part::new("businessInfos").all(&info.businesses, business_info))
            .child(Part::new("tModelInfos").all(&info.tmodels, tmodel_info)),
        Answer::Success => return disposition(None, operator),
    };
    part.0
}

/// A `businessEntity` that stands alone.
pub(crate) fn business_alone(value: &BusinessEntity, owner: &str) -> Element {
    alone(business(value, owner, ""))
}

/// A `businessService` that stands alone.
pub(crate) fn service_alone(value: &BusinessService) -> Element {
    alone(service(value))
}

/// A `tModel` that stands alone.
pub(crate) fn tmodel_alone(value: &TModel, owner: &str) -> Element {
    alone(tmodel(value, owner, ""))
}

/// A `publisherAssertion` that stands alone.
pub(crate) fn assertion_alone(value: &PublisherAssertion) -> Element {
    alone(assertion(value))
}

/// Without the operator, which is that of the registry where it is read.
fn alone(part: Part) -> Element {
    let mut element = part.0;
    element
        .attributes
        .retain(|(name, _)| name.local != "operator");
    element
}
