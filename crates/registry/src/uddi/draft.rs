//! The changes of one request, on top of what the registry holds.
//!
//! Who has the right to write an entity may change it and what is below it. It keeps its owner and its
//! rights, and a new child has those of its parent. An entity that the publisher may not see does not
//! exist here, except that it is removed with its parent.
//!
//! A request reads what its earlier steps changed: the same entity may occur twice, and a binding
//! may move between two services that are both saved.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chappe_identity::Principal;
use oxrdf::NamedNodeRef;

use super::encode::{Projection, Stamp};
use super::error::{Error, ErrorCode, KeyType};
use super::graph::{Graph, Member};
use super::key::{BindingKey, BusinessKey, Key, ServiceKey, TModelKey};
use super::taxonomy::Taxonomies;
use super::value::{
    BindingTemplate, BusinessEntity, BusinessService, Endpoint, PublisherAssertion, TModel,
};
use super::{decode, encode};
use crate::access::Access;
use crate::dictionary::Id;
use crate::entity::Entity;
use crate::record::Step;
use crate::rights::{OwnedRule, Right};
use crate::state::State;
use crate::uddi_keys::UddiClass;
use crate::vocabulary::uddi;

/// An entity that the request publishes.
struct Change {
    entity: Entity,
    /// Its parent and position, if it has one.
    place: Option<(String, u32)>,
}

/// The changes, and what they apply to.
pub(crate) struct Draft<'a> {
    /// What the publisher may see.
    pub(crate) graph: Graph<'a>,
    /// What there is.
    all: Graph<'a>,
    pub(super) principal: &'a Principal,
    pub(crate) stamp: Stamp,
    /// The value sets that are checked.
    pub(super) taxonomies: Option<&'a Taxonomies>,
    /// Whether values have the keys that they had elsewhere, and may name what is yet to come.
    pub(super) is_restoring: bool,
    /// By key; `None`: removed.
    changes: BTreeMap<String, Option<Change>>,
    /// The changed children of each parent.
    by_parent: HashMap<String, BTreeSet<String>>,
    /// The last position that was given to a child of each parent.
    last_positions: HashMap<String, u32>,
}

/// The steps that remove a business or a service with what is below it; `None` for any other entity.
pub(crate) fn removal(state: &State, principal: &Principal, entity: &Entity) -> Option<Vec<Step>> {
    let unused = Stamp {
        owner: String::new(),
        access: Access::Owner,
        modified: String::new(),
    };
    let mut draft = Draft::new(state, principal, unused, None);
    if decode::business(entity).is_some() {
        draft.remove_business(BusinessKey::from_iri(&entity.key)?);
    } else if decode::service(entity).is_some() {
        draft.remove_service(ServiceKey::from_iri(&entity.key)?);
    } else {
        return None;
    }
    Some(draft.into_steps())
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        state: &'a State,
        principal: &'a Principal,
        stamp: Stamp,
        taxonomies: Option<&'a Taxonomies>,
    ) -> Self {
        Self {
            graph: Graph::new(state, principal),
            all: Graph::new(state, &Principal::Operator),
            principal,
            stamp,
            taxonomies,
            is_restoring: false,
            changes: BTreeMap::new(),
            by_parent: HashMap::new(),
            last_positions: HashMap::new(),
        }
    }

    /// A draft of an import: keys may be new, and references are not checked.
    pub(crate) fn restoring(state: &'a State, principal: &'a Principal, stamp: Stamp) -> Self {
        Self {
            is_restoring: true,
            ..Self::new(state, principal, stamp, None)
        }
    }

    /// Whether a value may have this key: it is new in an import, or `own` finds it.
    pub(crate) fn admit<T>(
        &self,
        key: impl Key,
        own: impl FnOnce(&Self) -> Result<T, Error>,
    ) -> Result<(), Error> {
        if self.is_restoring && self.get(key).is_none() {
            return Ok(());
        }
        own(self).map(|_| ())
    }

    /// The steps of the batch.
    pub(crate) fn into_steps(self) -> Vec<Step> {
        let steps = self
            .changes
            .into_iter()
            .filter_map(|(key, change)| match change {
                Some(change) => Some(Step::Publish(change.entity)),
                // It may never have existed.
                None => self.graph.state.rule_of(&key).map(|_| Step::Remove(key)),
            });
        steps.collect()
    }

    fn get(&self, key: impl Key) -> Option<Entity> {
        self.entity(&key.iri())
    }

    /// The entity with this key, as the request leaves it.
    pub(crate) fn entity(&self, key: &str) -> Option<Entity> {
        match self.changes.get(key) {
            Some(change) => change.as_ref().map(|change| change.entity.clone()),
            None => {
                let entity = self.graph.state.get(key)?;
                entity
                    .permits(self.principal, Right::Read)
                    .then_some(entity)
            }
        }
    }

    /// The entities that the request publishes.
    pub(crate) fn changed_entities(&self) -> impl Iterator<Item = &Entity> {
        let changes = self.changes.values().flatten();
        changes.map(|change| &change.entity)
    }

    /// Whether the request publishes or removes the entity.
    pub(crate) fn is_changed(&self, key: &str) -> bool {
        self.changes.contains_key(key)
    }

    /// Whether a binding refers to this tModel, as the request leaves it.
    pub(crate) fn has_bindings_of(&self, key: TModelKey) -> bool {
        let iri = key.iri();
        let id = self.graph.state.dictionary.iri(&iri);
        let stored = id
            .map(|id| self.all.bindings_of_tmodel(id))
            .unwrap_or_default();
        let mut stored = stored
            .into_iter()
            .map(|id| self.graph.state.dictionary.value(id));
        let refers = |entity: &Entity| {
            entity.types.iter().any(|name| name == uddi::BINDING_TYPE)
                && entity.triples.iter().any(|triple| {
                    let is_key =
                        matches!(&triple.object, oxrdf::Term::NamedNode(it) if it.as_str() == iri);
                    is_key && triple.predicate == uddi::TMODEL_KEY
                })
        };
        stored.any(|key| !self.is_changed(key)) || self.changed_entities().any(refers)
    }

    /// Publishes a document.
    ///
    /// # Errors
    /// As of a save.
    pub(crate) fn put_document(&mut self, entity: Entity) -> Result<(), Error> {
        self.put(entity, None)
    }

    /// Removes an entity that is no child of another.
    pub(crate) fn remove_entity(&mut self, key: String) {
        self.remove(key);
    }

    /// Publishes a tModel that is not hidden, unless it is there with this content.
    ///
    /// # Errors
    /// As of a save.
    pub(crate) fn put_changed_tmodel(
        &mut self,
        key: TModelKey,
        tmodel: &TModel,
    ) -> Result<(), Error> {
        let known = self.get(key);
        let is_same = known.as_ref().is_some_and(|known| {
            let found = decode::tmodel(known);
            known.permits(self.principal, Right::Write)
                && found.is_some_and(|(found, is_hidden)| found == *tmodel && !is_hidden)
        });
        match is_same {
            true => Ok(()),
            false => self.put_tmodel(key, tmodel, false),
        }
    }

    /// Owner and rights of an entity as the request leaves it so far.
    fn rule(&self, iri: &str) -> Option<OwnedRule> {
        match self.changes.get(iri) {
            Some(change) => change.as_ref().map(|change| OwnedRule::of(&change.entity)),
            None => self.graph.state.rule_of(iri).map(|(rule, _)| rule),
        }
    }

    fn put(&mut self, mut entity: Entity, place: Option<(String, u32)>) -> Result<(), Error> {
        let key = entity.key.clone();
        let above = place.as_ref().and_then(|(parent, _)| self.rule(parent));
        let known = self.rule(&key);
        let may_replace = self.changes.contains_key(&key)
            || known
                .as_ref()
                .is_none_or(|known| known.permits(self.principal, Right::Write));
        if !may_replace {
            let detail = format!("the key {key} is not available");
            return Err(Error::new(ErrorCode::InvalidKeyPassed, detail));
        }
        if let (Some(above), Some(known)) = (&above, &known)
            && above.owner != known.owner
        {
            let detail = format!("{key} cannot be moved to a parent of another owner");
            return Err(Error::new(ErrorCode::UserMismatch, detail));
        }
        if let Some(rule) = known.or(above) {
            (entity.owner, entity.access, entity.rights) = (rule.owner, rule.access, rule.rights);
        }
        if let Some((parent, position)) = &place {
            let children = self.by_parent.entry(parent.clone()).or_default();
            children.insert(key.clone());
            let last = self.last_positions.entry(parent.clone()).or_default();
            *last = (*last).max(*position);
        }
        let before = self
            .changes
            .insert(key.clone(), Some(Change { entity, place }));
        self.leave_parent(&key, before.flatten());
        Ok(())
    }

    fn remove(&mut self, iri: String) {
        let before = self.changes.insert(iri.clone(), None);
        self.leave_parent(&iri, before.flatten());
    }

    /// Takes a child from the parent that an earlier step gave it, unless it is still there.
    fn leave_parent(&mut self, key: &str, before: Option<Change>) {
        let Some((parent, _)) = before.and_then(|change| change.place) else {
            return;
        };
        let now = self.changes.get(key).and_then(Option::as_ref);
        let now = now.and_then(|change| change.place.as_ref());
        if now.is_none_or(|(now, _)| *now != parent)
            && let Some(children) = self.by_parent.get_mut(&parent)
        {
            children.remove(key);
        }
    }

    /// The children of `parent` in a graph as the request leaves them, in order.
    fn children<P: Key, K: Key>(
        &self,
        graph: &Graph<'a>,
        parent: P,
        class: UddiClass,
        stored: impl Fn(&Graph<'a>, Id) -> Vec<Member>,
    ) -> Vec<(u32, K)> {
        let iri = parent.iri();
        let id = graph.state.dictionary.iri(&iri);
        let stored = id.map(|id| stored(graph, id)).unwrap_or_default();
        let unchanged = stored.into_iter().filter_map(|child| {
            let key: K = graph.key(child.id)?;
            (!self.changes.contains_key(&key.iri())).then_some((child.position, key))
        });
        let changed = self.by_parent.get(&iri).into_iter().flatten();
        let changed = changed.filter_map(|key| {
            let change = self.changes.get(key)?.as_ref()?;
            let is_of_class = change
                .entity
                .types
                .iter()
                .any(|name| name == class.type_name());
            let (_, position) = change.place.as_ref().filter(|_| is_of_class)?;
            Some((*position, K::from_iri(key)?))
        });
        let mut children: Vec<(u32, K)> = unchanged.chain(changed).collect();
        children.sort_by_key(|(position, key)| (*position, key.uuid()));
        children
    }

    /// The position after all children of `parent`, stored and changed.
    pub(crate) fn next_position(&self, parent: impl Key) -> u32 {
        let iri = parent.iri();
        let id = self.graph.state.dictionary.iri(&iri);
        let stored = id.and_then(|id| self.graph.last_position(id));
        let last = stored.max(self.last_positions.get(&iri).copied());
        last.map_or(0, |last| last.saturating_add(1))
    }

    /// The position of a service in this business, if it is in it.
    pub(crate) fn position_of_service(&self, key: ServiceKey, parent: BusinessKey) -> Option<u32> {
        let (service, position) = decode::service(&self.get(key)?)?;
        (service.business_key == Some(parent)).then_some(position)
    }

    /// The position of a binding in this service, if it is in it.
    pub(crate) fn position_of_binding(&self, key: BindingKey, parent: ServiceKey) -> Option<u32> {
        let (binding, position) = decode::binding(&self.get(key)?)?;
        (binding.service_key == Some(parent)).then_some(position)
    }

    pub(crate) fn services_of(&self, business: BusinessKey) -> Vec<(u32, ServiceKey)> {
        self.children(
            &self.graph,
            business,
            UddiClass::Service,
            Graph::own_services,
        )
    }

    pub(crate) fn bindings_of(&self, service: ServiceKey) -> Vec<(u32, BindingKey)> {
        self.children(&self.graph, service, UddiClass::Binding, Graph::bindings)
    }

    /// Whether no entity has this key, not even a hidden one.
    pub(crate) fn is_free(&self, key: &str) -> bool {
        self.rule(key).is_none()
    }

    /// Whether the publisher may write the entity.
    pub(crate) fn may_write(&self, entity: &Entity) -> bool {
        entity.permits(self.principal, Right::Write)
    }

    /// Checks that the publisher may write the entity.
    fn check_right(&self, entity: &Entity, kind: KeyType, key: impl Key) -> Result<(), Error> {
        if entity.permits(self.principal, Right::Write) {
            return Ok(());
        }
        let detail = format!("{} {key} is not of this publisher", kind.as_str());
        Err(Error::of_key(ErrorCode::UserMismatch, kind, detail))
    }

    /// A business of the publisher, without its services.
    pub(crate) fn own_business(
        &self,
        key: BusinessKey,
    ) -> Result<(BusinessEntity, Vec<Projection>), Error> {
        let entity = self.get(key);
        let found = entity.as_ref().and_then(decode::business);
        let (Some(entity), Some(found)) = (&entity, found) else {
            return Err(Error::unknown_key(KeyType::Business, key));
        };
        self.check_right(entity, KeyType::Business, key)?;
        Ok(found)
    }

    /// A service of the publisher, without its bindings, and its position.
    pub(crate) fn own_service(&self, key: ServiceKey) -> Result<(BusinessService, u32), Error> {
        let entity = self.get(key);
        let found = entity.as_ref().and_then(decode::service);
        let (Some(entity), Some(found)) = (&entity, found) else {
            return Err(Error::unknown_key(KeyType::Service, key));
        };
        self.check_right(entity, KeyType::Service, key)?;
        Ok(found)
    }

    /// A binding of the publisher, and its position.
    pub(crate) fn own_binding(&self, key: BindingKey) -> Result<(BindingTemplate, u32), Error> {
        let entity = self.get(key);
        let found = entity.as_ref().and_then(decode::binding);
        let (Some(entity), Some(found)) = (&entity, found) else {
            return Err(Error::unknown_key(KeyType::Binding, key));
        };
        self.check_right(entity, KeyType::Binding, key)?;
        Ok(found)
    }

    /// A tModel of the publisher, and whether it is hidden.
    pub(crate) fn own_tmodel(&self, key: TModelKey) -> Result<(TModel, bool), Error> {
        let entity = self.get(key);
        let found = entity.as_ref().and_then(decode::tmodel);
        let (Some(entity), Some(found)) = (&entity, found) else {
            return Err(Error::unknown_key(KeyType::TModel, key));
        };
        self.check_right(entity, KeyType::TModel, key)?;
        Ok(found)
    }

    /// The owner of what the request saved.
    pub(crate) fn owner(&self, key: impl Key) -> String {
        let rule = self.rule(&key.iri());
        rule.map_or_else(|| self.stamp.owner.clone(), |rule| rule.owner)
    }

    /// Checks that a business exists; returns its owner.
    pub(crate) fn business_owner(&self, key: BusinessKey) -> Result<String, Error> {
        let entity = self.get(key);
        let entity = entity.filter(|entity| decode::business(entity).is_some());
        let owner = entity.map(|entity| entity.owner);
        owner.ok_or_else(|| Error::unknown_key(KeyType::Business, key))
    }

    /// Whether a service belongs to this business.
    pub(crate) fn is_service_of(&self, service: ServiceKey, business: BusinessKey) -> bool {
        if self.is_restoring {
            return true;
        }
        let entity = self.get(service);
        let found = entity.as_ref().and_then(decode::service);
        found.is_some_and(|(found, _)| found.business_key == Some(business))
    }

    pub(crate) fn has_binding(&self, key: BindingKey) -> bool {
        self.is_restoring || self.get(key).as_ref().and_then(decode::binding).is_some()
    }

    /// Whether a binding refers to another one for its address; in an import that is not checked.
    pub(crate) fn is_redirected(&self, key: BindingKey) -> bool {
        let binding = self.binding(key).filter(|_| !self.is_restoring);
        binding.is_some_and(|it| matches!(it.endpoint, Endpoint::HostingRedirector(_)))
    }

    /// A tModel that exists. A hidden one may still be referred to.
    pub(crate) fn check_tmodel(&self, key: TModelKey) -> Result<TModel, Error> {
        let entity = self.get(key);
        let found = entity.as_ref().and_then(decode::tmodel);
        match found {
            Some((tmodel, _)) => Ok(tmodel),
            None => Err(Error::unknown_key(KeyType::TModel, key)),
        }
    }

    /// Checks that a reference names such a tModel.
    pub(crate) fn check_reference(&self, key: TModelKey) -> Result<(), Error> {
        match self.is_restoring {
            true => Ok(()),
            false => self.check_tmodel(key).map(|_| ()),
        }
    }

    pub(crate) fn put_business(
        &mut self,
        key: BusinessKey,
        business: &BusinessEntity,
        projections: &[Projection],
    ) -> Result<(), Error> {
        let entity = encode::business(key, business, projections, &self.stamp);
        self.put(entity, None)
    }

    pub(crate) fn put_service(
        &mut self,
        key: ServiceKey,
        service: &BusinessService,
        parent: BusinessKey,
        position: u32,
    ) -> Result<(), Error> {
        let entity = encode::service(key, service, parent, position, &self.stamp);
        self.put(entity, Some((parent.iri(), position)))
    }

    pub(crate) fn put_binding(
        &mut self,
        key: BindingKey,
        binding: &BindingTemplate,
        parent: ServiceKey,
        position: u32,
    ) -> Result<(), Error> {
        let entity = encode::binding(key, binding, parent, position, &self.stamp);
        self.put(entity, Some((parent.iri(), position)))
    }

    pub(crate) fn put_tmodel(
        &mut self,
        key: TModelKey,
        tmodel: &TModel,
        is_hidden: bool,
    ) -> Result<(), Error> {
        let entity = encode::tmodel(key, tmodel, is_hidden, &self.stamp);
        self.put(entity, None)
    }

    pub(crate) fn put_assertion(
        &mut self,
        iri: String,
        assertion: &PublisherAssertion,
    ) -> Result<(), Error> {
        let entity = encode::assertion(iri, assertion, &self.stamp);
        self.put(entity, None)
    }

    pub(crate) fn remove_binding(&mut self, key: BindingKey) {
        self.remove(key.iri());
    }

    /// Removes a service with its bindings.
    pub(crate) fn remove_service(&mut self, key: ServiceKey) {
        let bindings = self.children(&self.all, key, UddiClass::Binding, Graph::bindings);
        for (_, binding) in bindings {
            self.remove_binding(binding);
        }
        self.remove(key.iri());
    }

    /// Removes a business with its services, and every assertion about it.
    pub(crate) fn remove_business(&mut self, key: BusinessKey) {
        let services = self.children(&self.all, key, UddiClass::Service, Graph::own_services);
        for (_, service) in services {
            self.remove_service(service);
        }
        for (iri, _, _) in self.assertions_about(key) {
            self.remove(iri);
        }
        self.remove(key.iri());
    }

    pub(crate) fn remove_assertion(&mut self, iri: String) {
        self.remove(iri);
    }

    /// The stored assertions that name a business: key, owner and value.
    fn assertions_about(&self, key: BusinessKey) -> Vec<(String, String, PublisherAssertion)> {
        let id = self.graph.state.dictionary.iri(&key.iri());
        let of = |predicate: NamedNodeRef<'_>| {
            id.map(|id| self.all.subjects(predicate, id))
                .unwrap_or_default()
        };
        let mut ids = of(uddi::FROM_KEY);
        ids.extend(of(uddi::TO_KEY));
        let found = ids.into_iter().filter_map(|id| {
            let entity = self.all.entity(id)?;
            let assertion = decode::assertion(&entity)?;
            Some((entity.key, entity.owner, assertion))
        });
        found.collect()
    }

    /// A binding as the request leaves it.
    pub(crate) fn binding(&self, key: BindingKey) -> Option<BindingTemplate> {
        decode::binding(&self.get(key)?).map(|(binding, _)| binding)
    }

    /// A service as the request leaves it.
    pub(crate) fn service(&self, key: ServiceKey) -> Option<BusinessService> {
        let (mut service, _) = decode::service(&self.get(key)?)?;
        let bindings = self.bindings_of(key).into_iter();
        service.bindings = bindings.filter_map(|(_, key)| self.binding(key)).collect();
        Some(service)
    }

    /// A business as the request leaves it.
    pub(crate) fn business(&self, key: BusinessKey) -> Option<BusinessEntity> {
        let (mut business, projections) = decode::business(&self.get(key)?)?;
        let mut services = self.services_of(key);
        services.extend(projections.iter().map(|one| (one.position, one.service)));
        services.sort_by_key(|(position, _)| *position);
        let services = services.into_iter();
        business.services = services.filter_map(|(_, key)| self.service(key)).collect();
        Some(business)
    }
}
