//! The services that devices offer, as services of the node's business.

use super::store;
use super::{Prepared, mapping};
use crate::entity::EntityKind;
use crate::uddi::draft::Draft;
use crate::uddi::save::Random;
use crate::uddi::{
    BusinessEntity, BusinessKey, BusinessService, Error, ErrorCode, Key, KeyedReference, Publisher,
    Saved, ServiceKey, Text, limits,
};
use crate::vocabulary::wsdl as v;

/// A service of a device.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The key of its businessService, the same whenever the device is found.
    pub key: ServiceKey,
    /// Its name, unless its WSDL names a service.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Further categories.
    pub categories: Vec<KeyedReference>,
    /// Where it is reached.
    pub address: String,
    /// Its documents, with keys.
    pub documents: Vec<Prepared>,
}

impl Publisher<'_> {
    /// Saves a business under a key that the caller chose, unless it is there with this content.
    ///
    /// # Errors
    /// `E_userMismatch` if the key belongs to another publisher; or as of [`Publisher::save_business`].
    pub fn put_business(
        &mut self,
        key: BusinessKey,
        business: &BusinessEntity,
    ) -> Result<Saved<()>, Error> {
        self.run(1, |draft, _| {
            limits::business(business)?;
            check_free(draft, &key.iri())?;
            let known = draft.own_business(key).map(|(known, _)| known);
            let new = BusinessEntity {
                key: Some(key),
                services: Vec::new(),
                ..business.clone()
            };
            if known.as_ref() != Ok(&new) {
                draft.put_business(key, &new, &[])?;
            }
            Ok(())
        })
    }

    /// Saves services of devices in a business, each with one binding at its address and with its documents.
    /// Documents that a service no longer offers are removed.
    ///
    /// # Errors
    /// As [`Publisher::put_documents`].
    pub fn put_offers(
        &mut self,
        business: BusinessKey,
        offers: &[Offer],
    ) -> Result<Saved<()>, Error> {
        for offer in offers {
            store::check_count(offer.documents.len())?;
        }
        self.run(offers.len(), |draft, random| {
            let mut known = store::TModels::new();
            let mut offers = offers.iter();
            offers.try_for_each(|offer| put_offer(draft, random, business, offer, &mut known))
        })
    }

    /// Removes services of devices with their documents. Those that do not exist are no error.
    ///
    /// # Errors
    /// `E_userMismatch` for another's, or the registry's own.
    pub fn remove_offers(&mut self, services: &[ServiceKey]) -> Result<Saved<()>, Error> {
        self.run(services.len(), |draft, _| {
            services
                .iter()
                .try_for_each(|key| remove_offer(draft, *key))
        })
    }

    /// Removes all services of a business of devices, with their documents.
    ///
    /// # Errors
    /// As [`Publisher::remove_offers`].
    pub fn remove_all_offers(&mut self, business: BusinessKey) -> Result<Saved<()>, Error> {
        self.run(1, |draft, _| {
            let services = draft.services_of(business).into_iter();
            services
                .map(|(_, key)| key)
                .try_for_each(|key| remove_offer(draft, key))
        })
    }
}

/// Refuses a key that another publisher has.
fn check_free(draft: &Draft<'_>, key: &str) -> Result<(), Error> {
    let known = draft.entity(key);
    match known.is_some_and(|known| known.owner != draft.stamp.owner) {
        true => Err(Error::new(
            ErrorCode::UserMismatch,
            format!("{key} is not of this publisher"),
        )),
        false => Ok(()),
    }
}

fn put_offer(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    business: BusinessKey,
    offer: &Offer,
    known_tmodels: &mut store::TModels,
) -> Result<(), Error> {
    draft.own_business(business)?;
    check_free(draft, &offer.key.iri())?;
    let known = documents_of(draft, offer.key);
    let (saved, mut before) = store::put_parts(
        draft,
        random,
        &offer.documents,
        None,
        Some(offer.key),
        known_tmodels,
    )?;
    for key in known {
        if saved.iter().all(|one| one.key != key) {
            store::take(draft, &key, &mut before)?;
        }
    }
    let mut parts = offer.documents.iter().map(|document| &document.parts);
    let service = parts.find_map(|parts| parts.services.first());
    let name = service.map_or(offer.name.as_str(), |part| &part.name.local);
    let ports = service
        .map(|part| part.ports.as_slice())
        .unwrap_or_default();
    let port = ports.first().map(|port| port.name.as_str());
    // The tModels of bindings carry the port's name, those of port types none.
    let mut infos = Vec::new();
    for key in saved.iter().flat_map(|one| &one.tmodels) {
        let (tmodel, _) = draft.own_tmodel(*key)?;
        let bag = tmodel.category_bag.iter();
        let is_binding = bag
            .clone()
            .any(|it| it.tmodel_key == Some(mapping::WSDL_TYPES) && it.key_value == "binding");
        let is_known = infos
            .iter()
            .any(|info: &crate::uddi::TModelInstanceInfo| info.tmodel_key == *key);
        if !is_known {
            infos.push(mapping::instance(*key, port.filter(|_| is_binding)));
        }
    }
    infos.truncate(limits::MAX_ELEMENTS);
    let cut = |text: &str| {
        text.chars()
            .take(limits::MAX_NAME_CHARACTERS)
            .collect::<String>()
    };
    let mut category_bag = service.map(mapping::service_bag).unwrap_or_default();
    category_bag.extend(offer.categories.iter().cloned());
    let new = BusinessService {
        key: Some(offer.key),
        business_key: Some(business),
        names: vec![Text::plain(cut(name))],
        descriptions: vec![Text::plain(cut(&offer.description))],
        bindings: vec![mapping::template(&offer.address, infos)],
        category_bag,
    };
    store::place_service(draft, random, offer.key, &new, business)?;
    // Only now its binding no longer refers to what it does not offer any more.
    store::retire(draft, before)
}

fn remove_offer(draft: &mut Draft<'_>, key: ServiceKey) -> Result<(), Error> {
    if draft.own_service(key).is_ok() {
        draft.remove_service(key);
    }
    let documents = documents_of(draft, key);
    store::remove(draft, &documents)
}

/// The documents that a service offered.
fn documents_of(draft: &Draft<'_>, service: ServiceKey) -> Vec<String> {
    let Some(service) = draft.graph.state.dictionary.iri(&service.iri()) else {
        return Vec::new();
    };
    let documents = draft.graph.subjects(v::OFFERED_BY, service).into_iter();
    let keys = documents.map(|id| draft.graph.value(id));
    keys.filter(|key| is_own(draft, key)).collect()
}

fn is_own(draft: &Draft<'_>, key: &str) -> bool {
    let known = draft.entity(key);
    known
        .is_some_and(|known| known.kind == EntityKind::Document && known.owner == draft.stamp.owner)
}
