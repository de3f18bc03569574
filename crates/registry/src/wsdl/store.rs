//! Adds and removes documents with what they become in UDDI: one batch for each request.
//!
//! A publisher has one tModel for each port type and binding, however many of its documents define the part. It
//! ends with the last of them; a tModel to which a binding still refers is hidden instead.

use std::collections::{BTreeMap, BTreeSet};

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, NamedNodeRef, Term, Triple};

use super::parts::{Parts, Service};
use super::{
    MAX_DOCUMENTS, MEDIA_TYPE, Prepared, SavedDocument, bytes, mapping, too_large, unknown,
};
use crate::entity::{Entity, EntityKind};
use crate::uddi::draft::Draft;
use crate::uddi::limits;
use crate::uddi::save::{Random, next_service_position};
use crate::uddi::{
    BusinessKey, BusinessService, Error, ErrorCode, Key, Publisher, Saved, ServiceKey, TModelKey,
};
use crate::vocabulary::wsdl as v;

/// The tModels of parts by IRI.
pub(crate) type TModels = BTreeMap<String, TModelKey>;

impl Publisher<'_> {
    /// Adds documents, each of which replaces the one with its key. With a business, the services that they define
    /// become services of it.
    ///
    /// # Errors
    /// `E_invalidKeyPassed` for an unknown business, or a key that is not an absolute IRI; `E_userMismatch` if the
    /// business or a key belongs to another publisher; `E_valueNotAllowed` for a name or namespace that is too long
    /// for UDDI; `E_messageTooLarge`; or the registry's own, as of [`Publisher::save_business`].
    pub fn put_documents(
        &mut self,
        documents: &[Prepared],
        business: Option<BusinessKey>,
    ) -> Result<Saved<Vec<SavedDocument>>, Error> {
        check_count(documents.len())?;
        self.run(documents.len(), |draft, random| {
            put(draft, random, documents, business)
        })
    }

    /// Removes documents, with their tModels and services.
    ///
    /// # Errors
    /// `E_invalidKeyPassed` for an unknown document, `E_userMismatch` for another's, or the registry's own.
    pub fn remove_documents(&mut self, keys: &[String]) -> Result<Saved<()>, Error> {
        self.run(keys.len(), |draft, _| remove(draft, keys))
    }
}

pub(crate) fn check_count(count: usize) -> Result<(), Error> {
    match count <= MAX_DOCUMENTS {
        true => Ok(()),
        false => Err(too_large(format!(
            "{count} documents; the limit is {MAX_DOCUMENTS}"
        ))),
    }
}

/// Adds documents, and ends what those that they replace had in UDDI.
fn put(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    documents: &[Prepared],
    business: Option<BusinessKey>,
) -> Result<Vec<SavedDocument>, Error> {
    let mut known = TModels::new();
    let (saved, before) = put_parts(draft, random, documents, business, None, &mut known)?;
    retire(draft, before)?;
    Ok(saved)
}

/// Adds documents; returns them, and what those that they replace had in UDDI. `offered_by` is the service of a
/// device that offers them, and `known` the tModels of parts that the request has met.
pub(crate) fn put_parts(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    documents: &[Prepared],
    business: Option<BusinessKey>,
    offered_by: Option<ServiceKey>,
    known: &mut TModels,
) -> Result<(Vec<SavedDocument>, Parted), Error> {
    if let Some(business) = business {
        draft.own_business(business)?;
    }
    let keys = documents
        .iter()
        .map(|document| key_of(draft, random, document));
    let keys = keys.collect::<Result<Vec<String>, Error>>()?;
    let mut before = Parted::default();
    for key in &keys {
        before.extend(own_document(draft, key)?.iter());
    }
    let mut saved = Vec::new();
    // Port types first: bindings refer to them.
    for document in documents {
        let location = document.location();
        for part in &document.parts.port_types {
            let key = tmodel_key(draft, random, known, &part.iri);
            let tmodel = mapping::port_type(key, part, location);
            limits::tmodel(&tmodel)?;
            draft.put_changed_tmodel(key, &tmodel)?;
        }
    }
    for document in documents {
        for part in &document.parts.bindings {
            let port_type = part.port_type.as_ref();
            let port_type = port_type.and_then(|iri| known_tmodel(draft, known, iri));
            let key = tmodel_key(draft, random, known, &part.iri);
            let tmodel = mapping::binding(key, part, port_type, document.location());
            limits::tmodel(&tmodel)?;
            draft.put_changed_tmodel(key, &tmodel)?;
        }
    }
    let port_types = port_types_of_bindings(draft, documents);
    for (document, key) in documents.iter().zip(&keys) {
        let mut one = SavedDocument {
            key: key.clone(),
            ..SavedDocument::default()
        };
        let mut services = BTreeMap::new();
        for part in &document.parts.services {
            let Some(business) = business else { break };
            let bindings = part.ports.iter().filter_map(|port| port.binding.as_ref());
            let tmodels = bindings.map(|binding| {
                let port_type = port_types.get(binding.as_str());
                let port_type = port_type.and_then(|iri| known_tmodel(draft, known, iri));
                let of_binding = known_tmodel(draft, known, binding);
                (binding.as_str(), (of_binding, port_type))
            });
            let tmodels: BTreeMap<&str, _> = tmodels.collect();
            let service = put_service(draft, random, part, business, |binding| {
                tmodels.get(binding.as_str()).copied().unwrap_or_default()
            })?;
            services.insert(part.iri.as_str(), service);
            one.services.push(service);
        }
        let parts = parts_of(&document.parts);
        one.tmodels = parts
            .filter_map(|iri| known.get(iri.as_str()).copied())
            .collect();
        let entity = entity(draft, document, key, known, &services, offered_by);
        draft.put_document(entity)?;
        saved.push(one);
    }
    Ok((saved, before))
}

/// Removes documents of the publisher.
pub(crate) fn remove(draft: &mut Draft<'_>, keys: &[String]) -> Result<(), Error> {
    let mut before = Parted::default();
    for key in keys {
        take(draft, key, &mut before)?;
    }
    retire(draft, before)
}

/// Removes a document of the publisher; adds to `before` what it had in UDDI.
pub(crate) fn take(draft: &mut Draft<'_>, key: &str, before: &mut Parted) -> Result<(), Error> {
    let entity = own_document(draft, key)?.ok_or_else(|| unknown(key))?;
    before.extend(std::iter::once(&entity));
    draft.remove_entity(key.to_owned());
    Ok(())
}

/// The key of a document: that which was asked for, its location, or a new one.
fn key_of(
    draft: &Draft<'_>,
    random: &mut Random<'_>,
    document: &Prepared,
) -> Result<String, Error> {
    if let Some(key) = document.key() {
        if NamedNode::new(key).is_err() {
            let shown: String = key.chars().take(80).collect();
            let detail = format!("the key {shown:?} is not an absolute IRI");
            return Err(Error::new(ErrorCode::InvalidKeyPassed, detail));
        }
        return Ok(key.to_owned());
    }
    let location = document
        .location()
        .filter(|url| NamedNode::new(*url).is_ok());
    // Another's document may have been there first.
    let free = location.filter(|url| {
        let known = draft.entity(url);
        known.is_none_or(|known| {
            known.kind == EntityKind::Document && known.owner == draft.stamp.owner
        })
    });
    Ok(free.map_or_else(|| TModelKey::random(random()).iri(), str::to_owned))
}

/// The document with this key, which is the publisher's, if there is one.
fn own_document(draft: &Draft<'_>, key: &str) -> Result<Option<Entity>, Error> {
    let Some(entity) = draft.entity(key) else {
        return Ok(None);
    };
    let shown: String = key.chars().take(200).collect();
    if entity.owner != draft.stamp.owner {
        let detail = format!("the document {shown:?} is not of this publisher");
        return Err(Error::new(ErrorCode::UserMismatch, detail));
    }
    if entity.kind != EntityKind::Document {
        let detail = format!("{shown:?} is not the key of a document");
        return Err(Error::new(ErrorCode::InvalidKeyPassed, detail));
    }
    Ok(Some(entity))
}

/// The parts that have tModels.
fn parts_of(parts: &Parts) -> impl Iterator<Item = &NamedNode> {
    let port_types = parts.port_types.iter().map(|part| &part.iri);
    port_types.chain(parts.bindings.iter().map(|part| &part.iri))
}

/// The port types of the bindings of these documents, and of those that were added before.
fn port_types_of_bindings(
    draft: &Draft<'_>,
    documents: &[Prepared],
) -> BTreeMap<String, NamedNode> {
    let mut found = BTreeMap::new();
    for parts in documents.iter().map(|document| &document.parts) {
        let ports = parts.services.iter().flat_map(|service| &service.ports);
        for binding in ports.filter_map(|port| port.binding.as_ref()) {
            if let Some(port_type) = draft.graph.iri_of(binding.as_str(), v::PORT_TYPE) {
                found.insert(binding.as_str().to_owned(), port_type);
            }
        }
    }
    let bindings = documents
        .iter()
        .flat_map(|document| &document.parts.bindings);
    for binding in bindings {
        if let Some(port_type) = &binding.port_type {
            found.insert(binding.iri.as_str().to_owned(), port_type.clone());
        }
    }
    found
}

/// The tModel that the publisher has for a part.
fn own_tmodel(draft: &Draft<'_>, part: &str) -> Option<TModelKey> {
    let keys = draft.graph.iris_of(part, v::TMODEL).into_iter();
    let mut keys = keys.filter_map(|iri| TModelKey::from_iri(iri.as_str()));
    keys.find(|key| draft.own_tmodel(*key).is_ok())
}

fn known_tmodel(draft: &Draft<'_>, known: &TModels, part: &NamedNode) -> Option<TModelKey> {
    let key = known.get(part.as_str()).copied();
    key.or_else(|| own_tmodel(draft, part.as_str()))
}

/// The tModel of a part: the one that it has, or a new one.
fn tmodel_key(
    draft: &Draft<'_>,
    random: &mut Random<'_>,
    known: &mut TModels,
    part: &NamedNode,
) -> TModelKey {
    let key = known_tmodel(draft, known, part);
    let key = key.unwrap_or_else(|| TModelKey::random(random()));
    known.insert(part.as_str().to_owned(), key);
    key
}

/// Saves a service of a document; the one that an earlier version of it became is replaced.
fn put_service(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    part: &Service,
    business: BusinessKey,
    tmodels: impl Fn(&NamedNode) -> (Option<TModelKey>, Option<TModelKey>),
) -> Result<ServiceKey, Error> {
    let keys = draft
        .graph
        .iris_of(part.iri.as_str(), v::BUSINESS_SERVICE)
        .into_iter();
    let mut keys = keys.filter_map(|iri| ServiceKey::from_iri(iri.as_str()));
    let known = keys.find(|key| {
        let own = draft.own_service(*key);
        own.is_ok_and(|(service, _)| service.business_key == Some(business))
    });
    let key = known.unwrap_or_else(|| ServiceKey::random(random()));
    let service = mapping::service(key, business, part, tmodels);
    place_service(draft, random, key, &service, business)?;
    Ok(key)
}

/// Puts a service with its bindings, which keep the keys of those that they replace.
pub(crate) fn place_service(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    key: ServiceKey,
    service: &BusinessService,
    business: BusinessKey,
) -> Result<(), Error> {
    limits::service(service)?;
    limits::children("bindingTemplate", service.bindings.len())?;
    let position = draft.position_of_service(key, business);
    let position = match position {
        Some(position) => position,
        None => next_service_position(draft, business)?,
    };
    let mut before = draft.bindings_of(key).into_iter().map(|(_, key)| key);
    draft.put_service(key, service, business, position)?;
    for (position, binding) in (0..).zip(&service.bindings) {
        limits::binding(binding)?;
        let of_binding = before.next();
        let of_binding = of_binding.unwrap_or_else(|| Key::random(random()));
        draft.put_binding(of_binding, binding, key, position)?;
    }
    for left in before {
        draft.remove_binding(left);
    }
    Ok(())
}

fn entity(
    draft: &Draft<'_>,
    document: &Prepared,
    key: &str,
    known: &TModels,
    services: &BTreeMap<&str, ServiceKey>,
    offered_by: Option<ServiceKey>,
) -> Entity {
    let parts = &document.parts;
    let name = match (&parts.name, parts.is_schema) {
        (Some(name), _) if !name.trim().is_empty() => name.as_str(),
        _ => &parts.target_namespace,
    };
    let name: String = name.chars().take(limits::MAX_NAME_CHARACTERS).collect();
    let mut entity = Entity::new(key, EntityKind::Document, name);
    let class = if parts.is_schema {
        v::SCHEMA_TYPE
    } else {
        v::DOCUMENT_TYPE
    };
    entity.types = vec![class.to_owned()];
    entity.owner.clone_from(&draft.stamp.owner);
    entity.access = draft.stamp.access.clone();
    // Rights that its owner gave to others stay.
    let before = draft.entity(key);
    entity.rights = before.map(|before| before.rights).unwrap_or_default();
    let subject = NamedNode::new_unchecked(key);
    let mut triples = Vec::new();
    let mut say = |subject: &NamedNode, predicate: NamedNodeRef<'_>, object: Term| {
        triples.push(Triple::new(subject.clone(), predicate.into_owned(), object));
    };
    let text = |text: &str| Term::from(Literal::new_simple_literal(text));
    let modified = draft.stamp.modified.as_str();
    let modified = Literal::new_typed_literal(modified, xsd::DATE_TIME.into_owned());
    say(&subject, crate::vocabulary::uddi::MODIFIED, modified.into());
    say(&subject, v::TARGET_NAMESPACE, text(&parts.target_namespace));
    if let Some(location) = document.location() {
        say(&subject, v::LOCATION, text(location));
    }
    let media_type = document.new.media_type.as_deref().unwrap_or(MEDIA_TYPE);
    say(&subject, v::MEDIA_TYPE, text(media_type));
    let size = i64::try_from(document.size()).unwrap_or(i64::MAX);
    say(&subject, v::SIZE, Literal::from(size).into());
    if let Some(service) = offered_by {
        let service = NamedNode::new_unchecked(service.iri());
        say(&subject, v::OFFERED_BY, service.into());
    }
    for import in &parts.imports {
        let at = super::read::resolve(document.location(), import);
        if let Ok(at) = NamedNode::new(at) {
            say(&subject, v::IMPORTS, at.into());
        }
    }
    for part in &parts.defined {
        say(&subject, v::DEFINES, part.clone().into());
    }
    for part in parts_of(parts) {
        if let Some(key) = known.get(part.as_str()) {
            say(part, v::TMODEL, NamedNode::new_unchecked(key.iri()).into());
        }
    }
    for part in &parts.services {
        if let Some(key) = services.get(part.iri.as_str()) {
            let key = NamedNode::new_unchecked(key.iri());
            say(&part.iri, v::BUSINESS_SERVICE, key.into());
        }
    }
    triples.extend(parts.triples.iter().cloned());
    for chunk in bytes::pack(&document.new.bytes) {
        let chunk = Literal::new_simple_literal(chunk);
        triples.push(Triple::new(subject.clone(), v::CONTENT.into_owned(), chunk));
    }
    entity.triples = triples;
    entity
}

/// What documents had in UDDI before the request: (part, tModel or service).
#[derive(Default)]
pub(crate) struct Parted {
    tmodels: BTreeSet<(String, TModelKey)>,
    services: BTreeSet<(String, ServiceKey)>,
}

impl Parted {
    pub(crate) fn extend<'e>(&mut self, documents: impl Iterator<Item = &'e Entity>) {
        for entity in documents {
            for triple in &entity.triples {
                let oxrdf::NamedOrBlankNode::NamedNode(part) = &triple.subject else {
                    continue;
                };
                let Term::NamedNode(object) = &triple.object else {
                    continue;
                };
                let part = part.as_str().to_owned();
                if triple.predicate == v::TMODEL {
                    let key = TModelKey::from_iri(object.as_str());
                    self.tmodels.extend(key.map(|key| (part, key)));
                } else if triple.predicate == v::BUSINESS_SERVICE {
                    let key = ServiceKey::from_iri(object.as_str());
                    self.services.extend(key.map(|key| (part, key)));
                }
            }
        }
    }
}

/// Ends the tModels and services of parts that no document of the publisher defines any more.
pub(crate) fn retire(draft: &mut Draft<'_>, before: Parted) -> Result<(), Error> {
    for (part, key) in &before.services {
        let is_used = is_stated(draft, part, v::BUSINESS_SERVICE, &key.iri());
        if !is_used && draft.own_service(*key).is_ok() {
            draft.remove_service(*key);
        }
    }
    for (part, key) in &before.tmodels {
        if is_stated(draft, part, v::TMODEL, &key.iri()) {
            continue;
        }
        let Ok((tmodel, _)) = draft.own_tmodel(*key) else {
            continue;
        };
        match draft.has_bindings_of(*key) {
            true => draft.put_tmodel(*key, &tmodel, true)?,
            false => draft.remove_entity(key.iri()),
        }
    }
    Ok(())
}

/// Whether a document of the publisher makes a statement about a part, as the request leaves it.
fn is_stated(draft: &Draft<'_>, part: &str, predicate: NamedNodeRef<'_>, object: &str) -> bool {
    let says = |entity: &Entity| {
        entity.kind == EntityKind::Document
            && entity.owner == draft.stamp.owner
            && entity.triples.iter().any(|triple| {
                let subject = matches!(&triple.subject, oxrdf::NamedOrBlankNode::NamedNode(it) if it.as_str() == part);
                let is_object = matches!(&triple.object, Term::NamedNode(it) if it.as_str() == object);
                subject && is_object && triple.predicate == predicate
            })
    };
    // Those that the request changes, then those that it leaves alone.
    let changed = draft.changed_entities();
    if changed.into_iter().any(says) {
        return true;
    }
    let mut others = draft.graph.entities_about(part).into_iter();
    others.any(|key| {
        !draft.is_changed(&key) && draft.entity(&key).is_some_and(|entity| says(&entity))
    })
}
