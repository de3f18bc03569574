//! The services of devices in UDDI: services of the node's business, with binding and WSDL.
//!
//! A device's service has the same key whenever the node finds it. Its documents are those that the device gave with
//! its description, with keys of their own: two devices may name one location.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use chappe_device::client::{Description, HostedService};
use chappe_registry::uddi::{
    BusinessEntity, BusinessKey, DiscoveryUrl, GENERAL_KEYWORDS, Key as _, KeyedReference,
    MAX_TEXT_CHARACTERS, ServiceKey, Text,
};
use chappe_registry::wsdl::{MAX_DOCUMENTS, NewDocument, Offer};
use chappe_transport::Hop;

use super::key::service_key;
use crate::shared::App;

/// The prefix of the keys of devices' documents; the key of the service and the number of the document follow.
const DOCUMENT_PREFIX: &str = "urn:chappe:document:";
/// The keyName under which a service's categories name its device.
const DEVICE_KEYWORD: &str = "device";

/// The key of the node's business.
pub(crate) fn business_key(app: &App) -> BusinessKey {
    BusinessKey::from_name(&format!("urn:chappe:node:{}", app.identity.public_key))
}

/// The key of the businessService of a device's service.
pub(super) fn key(app: &App, service: &str) -> ServiceKey {
    ServiceKey::from_name(&format!("{} {service}", business_key(app)))
}

/// The node as a business. Services of an earlier run end: their devices are found again.
pub(crate) async fn publish_business(app: &App) {
    let key = business_key(app);
    let business = BusinessEntity {
        names: vec![Text::plain(app.identity.name.clone())],
        descriptions: vec![Text::plain(
            "A node of Chappe, with the services of its devices",
        )],
        discovery_urls: vec![DiscoveryUrl {
            use_type: "homepage".to_owned(),
            url: format!("{}/", app.identity.url()),
        }],
        ..BusinessEntity::default()
    };
    let name = &app.identity.name;
    app.registrar
        .change_services(name, |node| node.remove_all_offers(key))
        .await;
    app.registrar
        .change_services(name, |node| node.put_business(key, &business))
        .await;
}

/// A number that changes with what a device offers.
pub(super) fn fingerprint(description: &Description) -> u64 {
    let mut hasher = DefaultHasher::new();
    description.name().hash(&mut hasher);
    for service in &description.services {
        (&service.id, service.contact.to_string()).hash(&mut hasher);
        for name in &service.types {
            (&*name.namespace, &*name.local).hash(&mut hasher);
        }
        for document in &service.documents {
            (&document.location, &document.text).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Publishes the services of a device.
pub(super) async fn publish(app: &App, device: &str, description: &Description) {
    let drafts = description.services.iter().enumerate();
    let drafts: Vec<_> = drafts
        .map(|(index, service)| draft(app, device, description.name(), index, service))
        .collect();
    // A description may have megabytes of XML.
    let read = tokio::task::spawn_blocking(move || {
        let mut refusals = Vec::new();
        let read = drafts.into_iter().map(|(mut offer, documents)| {
            for document in documents {
                let location = document.location.clone().unwrap_or_default();
                match document.prepare() {
                    Ok(prepared) => offer.documents.push(prepared),
                    Err(error) => refusals.push(format!("{location}: {}", error.detail)),
                }
            }
            offer
        });
        (read.collect::<Vec<Offer>>(), refusals)
    });
    let Ok((offers, refusals)) = read.await else {
        return;
    };
    for detail in refusals {
        let drops = &app.observability.drops;
        drops.record(
            Hop::Metadata,
            "document not registered",
            device,
            detail,
            None,
        );
    }
    let business = business_key(app);
    // One batch a service: a batch has a limit, and a service that is refused does not keep others out.
    for offer in &offers {
        let offer = std::slice::from_ref(offer);
        app.registrar
            .change_services(device, |node| node.put_offers(business, offer))
            .await;
    }
}

/// Removes these services of a device, which may not be there.
pub(super) async fn remove(app: &App, services: Vec<String>) {
    if services.is_empty() {
        return;
    }
    let keys = services.iter().map(|service| key(app, service));
    let keys: Vec<ServiceKey> = keys.collect();
    let name = services.first().map(String::as_str).unwrap_or_default();
    app.registrar
        .change_services(name, |node| node.remove_offers(&keys))
        .await;
}

/// A service, with its documents before they are read.
fn draft(
    app: &App,
    device: &str,
    device_name: &str,
    index: usize,
    service: &HostedService,
) -> (Offer, Vec<NewDocument>) {
    let key = key(app, &service_key(device, index));
    let name = service.types.first().map(|name| name.local.to_string());
    let keyword = KeyedReference {
        tmodel_key: Some(GENERAL_KEYWORDS),
        key_name: Some(DEVICE_KEYWORD.to_owned()),
        key_value: device_name.chars().take(MAX_TEXT_CHARACTERS).collect(),
    };
    let documents = service.documents.iter().take(MAX_DOCUMENTS).enumerate();
    let documents = documents.map(|(number, document)| NewDocument {
        key: Some(format!("{DOCUMENT_PREFIX}{key}:{}", number + 1)),
        ..NewDocument::new(document.location.clone(), document.text.as_bytes())
    });
    let documents = documents.collect();
    let offer = Offer {
        key,
        name: name.unwrap_or_else(|| service.id.clone()),
        description: format!("{} of {device_name}", service.id),
        categories: vec![keyword],
        address: service.contact.to_string(),
        documents: Vec::new(),
    };
    (offer, documents)
}
