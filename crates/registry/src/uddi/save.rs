//! The save calls.
//!
//! Source: UDDI 2.04 API specification, save_binding, save_business, save_service and
//! save_tModel. A value without a key is new; one with a key replaces what has the key, with
//! everything below it. Children that are left out are deleted; children of another parent of the
//! same publisher are moved.

use std::collections::HashSet;

use super::draft::Draft;
use super::encode::Projection;
use super::error::{Error, ErrorCode, KeyType};
use super::key::{BindingKey, BusinessKey, Key, ServiceKey, TModelKey};
use super::limits;
use super::taxonomy::BagOf;
use super::value::{BindingTemplate, BusinessEntity, BusinessService, Endpoint, TModel};
use crate::uddi_keys::UddiClass;

/// A source of random bits for new keys.
pub(crate) type Random<'a> = dyn FnMut() -> u128 + 'a;

/// The key of a value: its own, or a new one.
fn key_or_new<K: Key>(key: Option<K>, random: &mut Random<'_>) -> K {
    key.unwrap_or_else(|| K::random(random()))
}

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Checks that a child names no parent, or the one that contains it.
fn check_parent<K: Key>(named: Option<K>, parent: K, kind: KeyType) -> Result<(), Error> {
    match named {
        Some(named) if named != parent => {
            let detail = format!("{} {named} is not that of the parent", kind.as_str());
            Err(Error::of_key(ErrorCode::InvalidKeyPassed, kind, detail))
        }
        _ => Ok(()),
    }
}

/// Checks a binding, and puts it at a position of its service.
fn put_binding(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    binding: &BindingTemplate,
    parent: ServiceKey,
    position: u32,
) -> Result<BindingKey, Error> {
    limits::binding(binding)?;
    if let Endpoint::HostingRedirector(target) = binding.endpoint {
        if !draft.has_binding(target) {
            return Err(Error::unknown_key(KeyType::Binding, target));
        }
        if binding.key == Some(target) || draft.is_redirected(target) {
            let detail = format!("bindingKey {target} of a hostingRedirector has one itself");
            let code = ErrorCode::InvalidKeyPassed;
            return Err(Error::of_key(code, KeyType::Binding, detail));
        }
    }
    for info in &binding.tmodels {
        draft.check_reference(info.tmodel_key)?;
    }
    if let Some(key) = binding.key {
        draft.admit(key, |draft| draft.own_binding(key))?;
    }
    let key = key_or_new(binding.key, random);
    draft.put_binding(key, binding, parent, position)?;
    Ok(key)
}

/// save_binding.
pub(crate) fn binding(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    binding: &BindingTemplate,
) -> Result<BindingKey, Error> {
    let Some(parent) = binding.service_key else {
        let detail = "a bindingTemplate has no serviceKey";
        let code = ErrorCode::InvalidKeyPassed;
        return Err(Error::of_key(code, KeyType::Service, detail));
    };
    draft.own_service(parent)?;
    let known = binding.key;
    let known = known.and_then(|key| draft.position_of_binding(key, parent));
    let position = known.unwrap_or_else(|| draft.next_position(parent));
    put_binding(draft, random, binding, parent, position)
}

/// Checks a service, and puts it with its bindings at a position of its business.
fn put_service(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    service: &BusinessService,
    parent: BusinessKey,
    at: u32,
) -> Result<ServiceKey, Error> {
    limits::service(service)?;
    limits::children("bindingTemplate", service.bindings.len())?;
    draft.check_bag(&service.category_bag, BagOf::Categories, UddiClass::Service)?;
    if let Some(key) = service.key {
        draft.admit(key, |draft| draft.own_service(key))?;
    }
    let key = key_or_new(service.key, random);
    let before = draft.bindings_of(key);
    draft.put_service(key, service, parent, at)?;
    let mut kept = HashSet::new();
    for (at, binding) in service.bindings.iter().enumerate() {
        check_parent(binding.service_key, key, KeyType::Service)?;
        kept.insert(put_binding(draft, random, binding, key, position(at))?);
    }
    for (_, binding) in before {
        if !kept.contains(&binding) {
            draft.remove_binding(binding);
        }
    }
    Ok(key)
}

/// save_service.
pub(crate) fn service(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    service: &BusinessService,
) -> Result<ServiceKey, Error> {
    let Some(parent) = service.business_key else {
        let detail = "a businessService has no businessKey";
        let code = ErrorCode::InvalidKeyPassed;
        return Err(Error::of_key(code, KeyType::Business, detail));
    };
    let after = next_service_position(draft, parent)?;
    let known = service.key;
    let known = known.and_then(|key| draft.position_of_service(key, parent));
    put_service(draft, random, service, parent, known.unwrap_or(after))
}

/// The position after all services of a business of the publisher, its own and those that it projects.
pub(crate) fn next_service_position(
    draft: &Draft<'_>,
    business: BusinessKey,
) -> Result<u32, Error> {
    let (_, projections) = draft.own_business(business)?;
    let projected = projections.iter().map(|one| one.position.saturating_add(1));
    Ok(projected.fold(draft.next_position(business), u32::max))
}

/// A service of another business, if it is one: it names a business other than the one that
/// contains it.
fn projection(
    draft: &Draft<'_>,
    service: &BusinessService,
    parent: BusinessKey,
    position: u32,
) -> Result<Option<Projection>, Error> {
    let Some(business) = service.business_key.filter(|key| *key != parent) else {
        return Ok(None);
    };
    let key = service
        .key
        .filter(|key| draft.is_service_of(*key, business));
    let Some(service) = key else {
        let named = service.key.map(|key| key.to_string()).unwrap_or_default();
        let detail = format!("businessKey {business} has no service with serviceKey {named:?}");
        let code = ErrorCode::InvalidProjection;
        return Err(Error::of_key(code, KeyType::Service, detail));
    };
    Ok(Some(Projection {
        position,
        service,
        business,
    }))
}

/// save_business.
pub(crate) fn business(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    business: &BusinessEntity,
) -> Result<BusinessKey, Error> {
    limits::business(business)?;
    limits::children("businessService", business.services.len())?;
    let of = UddiClass::Business;
    draft.check_bag(&business.identifier_bag, BagOf::Identifiers, of)?;
    draft.check_bag(&business.category_bag, BagOf::Categories, of)?;
    let addresses = business
        .contacts
        .iter()
        .flat_map(|contact| &contact.addresses);
    for key in addresses.filter_map(|address| address.tmodel_key) {
        draft.check_reference(key)?;
    }
    if let Some(key) = business.key {
        draft.admit(key, |draft| draft.own_business(key))?;
    }
    let key = key_or_new(business.key, random);
    let before = draft.services_of(key);
    let mut projections = Vec::new();
    let mut own = Vec::new();
    for (at, service) in business.services.iter().enumerate() {
        match projection(draft, service, key, position(at))? {
            Some(projection) => projections.push(projection),
            None => own.push((position(at), service)),
        }
    }
    draft.put_business(key, business, &projections)?;
    let mut kept = HashSet::new();
    for (at, service) in own {
        kept.insert(put_service(draft, random, service, key, at)?);
    }
    for (_, service) in before {
        if !kept.contains(&service) {
            draft.remove_service(service);
        }
    }
    Ok(key)
}

/// save_tModel; a hidden tModel is shown again.
pub(crate) fn tmodel(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    tmodel: &TModel,
) -> Result<TModelKey, Error> {
    limits::tmodel(tmodel)?;
    let of = UddiClass::TModel;
    draft.check_bag(&tmodel.identifier_bag, BagOf::Identifiers, of)?;
    draft.check_bag(&tmodel.category_bag, BagOf::Categories, of)?;
    if let Some(key) = tmodel.key {
        draft.admit(key, |draft| draft.own_tmodel(key))?;
    }
    let key = key_or_new(tmodel.key, random);
    draft.put_tmodel(key, tmodel, false)?;
    Ok(key)
}
