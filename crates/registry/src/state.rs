//! Everything the registry holds in memory. Clones are snapshots.

mod loading;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chappe_identity::Principal;
use oxrdf::{LiteralRef, NamedNode, NamedNodeRef, NamedOrBlankNode, Term, TermRef, Triple};

use crate::access::Access;
use crate::dictionary::{Dictionary, Id, MAX_TERMS};
use crate::entity::{Entity, EntityKind};
use crate::error::Error;
use crate::feed::Side;
use crate::groups::{Groups, Part};
use crate::keys::EntityKeys;
use crate::ordered::OrderedSet;
use crate::partition::{Partition, Put, fold};
use crate::rights::{OwnedRule, Rights};
use crate::uddi_keys::{UddiClass, UddiKeys, UddiPredicates, class_of};
use crate::watch::Predicates;
use crate::{piece_keys, scope, vocabulary};

/// An entity as numbers.
pub(crate) struct StoredEntity {
    entity: Id,
    group: u32,
    kind: EntityKind,
    types: u16,
    scopes: u16,
    /// Number of `rdf:type` statements derived from its types.
    classes: u16,
    /// Number of statements about its rights.
    rights: u16,
    /// See [`Entity::counted_bytes`].
    bytes: u32,
    /// See [`Entity::lease_s`]; 0 without.
    lease_s: u32,
    /// Class, name, owner, types, scopes, classes, then the triples it brings, then its rights.
    triples: Box<[[Id; 3]]>,
}

/// The numbers of the predicates that are indexed by their objects, as far as any entity has them.
pub(crate) struct Indexed {
    /// Those that state what is observed.
    pub(crate) observing: [Option<Id>; 2],
    uddi: UddiPredicates,
}

impl Indexed {
    pub(crate) fn of(dictionary: &Dictionary) -> Self {
        Self {
            observing: [vocabulary::OBSERVES, vocabulary::OBSERVED_PROPERTY]
                .map(|predicate| dictionary.iri(predicate.as_str())),
            uddi: UddiPredicates::of(dictionary),
        }
    }
}

/// Triples of each entity before its types: class, name and owner.
const FIXED: usize = 3;

/// The lease of an entity.
#[derive(Clone, PartialEq, Eq)]
struct Grant {
    entity: Id,
    /// Position of the record that granted or renewed it.
    position: u64,
}

#[derive(Clone)]
struct Slot(Id, Arc<StoredEntity>);

/// The registry's memory.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) dictionary: Dictionary,
    groups: Groups,
    entities: OrderedSet<Slot>,
    leases: OrderedSet<Grant>,
    triples: usize,
    /// Bytes of all entities.
    bytes: usize,
    /// The entities are in no index yet.
    is_loading: bool,
}

impl State {
    pub(crate) fn len(&self) -> usize {
        self.entities.len()
    }

    pub(crate) fn triples(&self) -> usize {
        self.triples
    }

    pub(crate) fn terms(&self) -> usize {
        self.dictionary.len()
    }

    pub(crate) fn access_groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let stored = size_of::<StoredEntity>() + 2 * size_of::<usize>();
        let triples = self
            .entities
            .iter()
            .map(|slot| size_of_val(&*slot.1.triples))
            .sum::<usize>();
        self.dictionary.memory_bytes()
            + self.entities.memory_bytes()
            + self.leases.memory_bytes()
            + self.len() * stored
            + triples
            + self.groups.memory_bytes()
    }

    /// Bytes of all entities.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of an owner's entities, and their bytes.
    pub(crate) fn owned_by(&self, owner: &str) -> (usize, usize) {
        self.groups.owned_by(owner)
    }

    /// Bytes of the entity `key`; 0 if there is none.
    pub(crate) fn bytes_at(&self, key: &str) -> usize {
        let id = self.dictionary.iri(key);
        let stored = id.and_then(|id| self.stored(id));
        stored.map_or(0, |stored| stored.bytes as usize)
    }

    /// Checks that there is room for `entity`.
    pub(crate) fn admits(&self, entity: &Entity) -> Result<(), Error> {
        if self.dictionary.len() + 3 * entity.triples.len() + 1024 > MAX_TERMS {
            return Err(Error::Full {
                limit: "terms",
                value: MAX_TERMS,
            });
        }
        self.groups.admits(entity)
    }

    /// Checks that there is room for `entities` together.
    pub(crate) fn admits_all<'a>(
        &self,
        entities: impl Iterator<Item = &'a Entity>,
    ) -> Result<(), Error> {
        let mut terms = self.dictionary.len();
        for entity in entities {
            terms += 3 * entity.triples.len() + 1024;
            self.admits(entity)?;
        }
        if terms > MAX_TERMS {
            let (limit, value) = ("terms", MAX_TERMS);
            return Err(Error::Full { limit, value });
        }
        Ok(())
    }

    /// Whether the entity `key` exists and was not published again since `earlier`.
    pub(crate) fn is_unchanged(&self, earlier: &Self, key: &str) -> bool {
        let stored = |state: &Self| {
            let stored = state.stored(state.dictionary.iri(key)?)?;
            Some(std::ptr::from_ref(stored))
        };
        stored(self).is_some() && stored(self) == stored(earlier)
    }

    fn stored(&self, entity: Id) -> Option<&StoredEntity> {
        let slot = self.entities.first_from(|slot| slot.0 < entity)?;
        (slot.0 == entity).then_some(&*slot.1)
    }

    /// The entity whose key has the number `id`, and the set of indexes among `visible` that holds it.
    pub(crate) fn held<'a>(
        &self,
        id: Id,
        visible: &'a [Arc<Partition>],
    ) -> Option<(Arc<StoredEntity>, &'a Arc<Partition>)> {
        let slot = self.entities.first_from(|slot| slot.0 < id)?;
        let stored = (slot.0 == id).then(|| Arc::clone(&slot.1))?;
        let kind = stored.kind as Id;
        let mut visible = visible.iter();
        let holder = visible.find(|partition| partition.kinds.contains(&[kind, id]))?;
        Some((stored, holder))
    }

    /// The owner of the entity `id`.
    pub(crate) fn owner_of(&self, id: Id) -> Option<Id> {
        self.stored(id).map(StoredEntity::owner)
    }

    /// Inserts `entity`; replaces the one with its key.
    pub(crate) fn insert(&mut self, entity: &Entity) {
        self.remove(&entity.key);
        let group = self.groups.enter(entity);
        let stored = Arc::new(self.encode_entity(entity, group));
        self.triples += stored.triples.len();
        let bytes = stored.bytes as usize;
        self.bytes += bytes;
        self.groups.add_owned(&entity.owner, bytes);
        if !self.is_loading {
            self.index(&stored, &Indexed::of(&self.dictionary), Put::Insert);
        }
        let id = stored.entity;
        self.entities
            .insert_at(|slot| slot.0 < id, Slot(id, stored));
    }

    /// Removes the entity `key`, if it exists.
    pub(crate) fn remove(&mut self, key: &str) {
        let Some(id) = self.dictionary.iri(key) else {
            return;
        };
        let slot = self
            .entities
            .remove_at(|slot| slot.0 < id, |slot| slot.0 == id);
        let Some(Slot(_, stored)) = slot else { return };
        self.leases
            .remove_at(|grant| grant.entity < id, |grant| grant.entity == id);
        self.triples -= stored.triples.len();
        if !self.is_loading {
            self.index(&stored, &Indexed::of(&self.dictionary), Put::Remove);
        }
        let bytes = stored.bytes as usize;
        self.bytes -= bytes;
        let owner = self.dictionary.value(stored.owner());
        self.groups.remove_owned(owner, bytes);
        self.groups.leave(stored.group);
        let mut terms: Vec<Id> = stored.triples.iter().flatten().copied().collect();
        terms.sort_unstable();
        terms.dedup();
        for id in terms {
            self.dictionary.release(id);
        }
    }

    /// Encodes an entity as numbers, with one use of each of its terms.
    fn encode_entity(&mut self, entity: &Entity, group: u32) -> StoredEntity {
        let classes: Vec<NamedNode> = entity.types.iter().filter_map(|name| class(name)).collect();
        let rights = entity.rights.iter();
        let rights: Vec<_> = rights.map(|(right, by)| (right, by.to_string())).collect();
        let key = NamedNodeRef::new_unchecked(&entity.key);
        let dictionary = &mut self.dictionary;
        let id = dictionary.intern(key.into(), 0);
        let mut ids: HashMap<TermRef<'_>, Id> = HashMap::with_capacity(entity.triples.len());
        ids.insert(key.into(), id);
        let mut triples: Vec<[Id; 3]> = Vec::with_capacity(8 + entity.triples.len());
        let mut number = |term| {
            let known = ids.entry(term);
            *known.or_insert_with_key(|term| dictionary.intern(*term, id))
        };
        let class = vocabulary::class(entity.kind).into();
        let fields = fields(entity)
            .map(|(predicate, text)| (predicate, LiteralRef::new_simple_literal(text).into()));
        let stated = std::iter::once((vocabulary::RDF_TYPE, class))
            .chain(fields)
            .chain(
                classes
                    .iter()
                    .map(|class| (vocabulary::RDF_TYPE, class.into())),
            );
        for (predicate, object) in stated {
            triples.push([id, number(predicate.into()), number(object)]);
        }
        let mut seen = HashSet::with_capacity(entity.triples.len());
        for Triple {
            subject,
            predicate,
            object,
        } in &entity.triples
        {
            let subject = number(subject.into());
            let triple = [subject, number(predicate.into()), number(object.into())];
            if seen.insert(triple) {
                triples.push(triple);
            }
        }
        let before = triples.len();
        for (right, holder) in &rights {
            let object = LiteralRef::new_simple_literal(holder).into();
            triples.push([id, number(vocabulary::right(*right).into()), number(object)]);
        }
        StoredEntity {
            rights: u16::try_from(triples.len() - before).unwrap_or(u16::MAX),
            entity: id,
            group,
            kind: entity.kind,
            types: u16::try_from(entity.types.len()).unwrap_or(u16::MAX),
            scopes: u16::try_from(entity.scopes.len()).unwrap_or(u16::MAX),
            classes: u16::try_from(classes.len()).unwrap_or(u16::MAX),
            bytes: u32::try_from(entity.counted_bytes()).unwrap_or(u32::MAX),
            lease_s: entity.lease_s.unwrap_or(0),
            triples: triples.into_boxed_slice(),
        }
    }

    /// Changes the entity in all indexes of its rule.
    fn index(&mut self, stored: &StoredEntity, indexed: &Indexed, put: Put) {
        let keys = keys_of(&self.dictionary, stored, indexed);
        self.put_keys(stored, &keys, put);
    }

    fn put_keys(&mut self, stored: &StoredEntity, keys: &EntityKeys, put: Put) {
        let apply = |partition: &mut Partition| keys.apply(partition, put);
        let owner = self.dictionary.value(stored.owner());
        let (group, rights) = (stored.group, stored.rights());
        self.groups.change(group, owner, Part::Entity, apply);
        if !rights.is_empty() {
            let apply = |partition: &mut Partition| {
                for triple in rights {
                    partition.put(*triple, None, put);
                }
            };
            self.groups.change(group, owner, Part::Rights, apply);
        }
    }

    /// The indexes that together hold what `principal` may see; see [`Groups::visible`].
    pub(crate) fn visible(&self, principal: &Principal) -> Vec<Arc<Partition>> {
        self.groups.visible(principal)
    }

    /// The entity `key`.
    pub(crate) fn get(&self, key: &str) -> Option<Entity> {
        self.restore(self.stored(self.dictionary.iri(key)?)?)
    }

    /// The entity whose key has the number `id`.
    pub(crate) fn entity(&self, id: Id) -> Option<Entity> {
        self.restore(self.stored(id)?)
    }

    /// Owner and rule of the entity `key`, and its kind.
    pub(crate) fn rule_of(&self, key: &str) -> Option<(OwnedRule, EntityKind)> {
        let stored = self.stored(self.dictionary.iri(key)?)?;
        let (access, rights) = self.rule(stored);
        let owned = OwnedRule {
            owner: self.dictionary.value(stored.owner()).to_owned(),
            access,
            rights,
        };
        Some((owned, stored.kind))
    }

    /// Grants the lease of the entity `key`, if it has one, by the record at `position`.
    pub(crate) fn grant(&mut self, key: &str, position: u64) {
        let id = self.dictionary.iri(key);
        let leased = id.filter(|id| self.stored(*id).is_some_and(|stored| stored.lease_s > 0));
        let Some(entity) = leased else { return };
        self.leases.remove_at(
            |grant| grant.entity < entity,
            |grant| grant.entity == entity,
        );
        let grant = Grant { entity, position };
        self.leases.insert_at(|grant| grant.entity < entity, grant);
    }

    /// The position of the record that granted or renewed the lease of the entity `key`.
    pub(crate) fn granted_at(&self, key: &str) -> Option<u64> {
        let id = self.dictionary.iri(key)?;
        let grant = self.leases.first_from(|grant| grant.entity < id)?;
        (grant.entity == id).then_some(grant.position)
    }

    /// The lease of the entity `key`, if there is such an entity.
    pub(crate) fn lease_of(&self, key: &str) -> Option<Option<u32>> {
        let stored = self.stored(self.dictionary.iri(key)?)?;
        Some(Some(stored.lease_s).filter(|lease_s| *lease_s > 0))
    }

    /// What the change feed remembers of the entity `key`.
    pub(crate) fn side_of(&self, key: &str) -> Option<Side> {
        let stored = self.stored(self.dictionary.iri(key)?)?;
        let name = self.dictionary.value(stored.name()).to_owned();
        let (rule, _) = self.rule_of(key)?;
        Some(Side { name, rule })
    }

    /// The predicates of the triples of the entity `key`.
    pub(crate) fn predicates_of(&self, key: &str) -> Predicates {
        let mut predicates = Predicates::default();
        let id = self.dictionary.iri(key);
        if let Some(stored) = id.and_then(|id| self.stored(id)) {
            let all = stored.triples.iter();
            let mut all: Vec<Id> = all.map(|[_, predicate, _]| *predicate).collect();
            all.sort_unstable();
            all.dedup();
            for predicate in all {
                predicates.insert(self.dictionary.value(predicate));
            }
        }
        predicates
    }

    /// All entities.
    pub(crate) fn entities(&self) -> impl Iterator<Item = Entity> + '_ {
        self.entities
            .iter()
            .filter_map(|slot| self.restore(&slot.1))
    }

    /// The fields of the entity `id` that a search compares.
    pub(crate) fn fields(&self, id: Id) -> Option<Fields<'_>> {
        Some(Fields {
            stored: self.stored(id)?,
            dictionary: &self.dictionary,
        })
    }

    fn rule(&self, stored: &StoredEntity) -> (Access, Rights) {
        let rule = self.groups.rule(stored.group);
        let rule = rule.map(|rule| (rule.access.clone(), rule.rights.clone()));
        rule.unwrap_or_default()
    }

    fn restore(&self, stored: &StoredEntity) -> Option<Entity> {
        let text = |id: Id| self.dictionary.value(id).to_owned();
        let own = stored
            .own_triples()
            .iter()
            .map(|[subject, predicate, object]| {
                let subject: NamedOrBlankNode = match self.dictionary.term(*subject)? {
                    Term::NamedNode(node) => node.into(),
                    Term::BlankNode(node) => node.into(),
                    Term::Literal(_) => return None,
                };
                let predicate = NamedNode::new_unchecked(text(*predicate));
                Some(Triple::new(
                    subject,
                    predicate,
                    self.dictionary.term(*object)?,
                ))
            });
        let (access, rights) = self.rule(stored);
        Some(Entity {
            key: text(stored.entity),
            kind: stored.kind,
            name: text(stored.name()),
            types: stored.types().map(text).collect(),
            scopes: stored.scopes().map(text).collect(),
            owner: text(stored.owner()),
            access,
            rights,
            lease_s: Some(stored.lease_s).filter(|lease_s| *lease_s > 0),
            triples: own.collect::<Option<_>>()?,
        })
    }
}

/// What the entity adds to each set of indexes that holds it.
fn keys_of(dictionary: &Dictionary, stored: &StoredEntity, indexed: &Indexed) -> EntityKeys {
    let entity = stored.entity;
    let scopes = stored.scopes();
    let scopes = scopes.filter_map(|scope| scope::normalize(dictionary.value(scope)));
    let mut observed = BTreeSet::new();
    let mut about = BTreeSet::new();
    for [subject, predicate, object] in stored.own_triples() {
        if indexed.observing.contains(&Some(*predicate)) {
            observed.insert(*object);
        }
        if *subject != entity && dictionary.blank_scope(*subject).is_none() {
            about.insert(*subject);
        }
    }
    let uddi = class_of(dictionary, stored.types()).map(|class| {
        UddiKeys::of(
            dictionary,
            &indexed.uddi,
            class,
            entity,
            stored.own_triples(),
        )
    });
    let pieces = match stored.kind {
        EntityKind::Metadata => {
            piece_keys::of(dictionary, entity, stored.owner(), stored.own_triples())
        }
        _ => None,
    };
    about.extend(pieces.as_ref().map(|(subject, _)| *subject));
    let mut triples = stored.without_rights().to_vec();
    triples.sort_unstable();
    triples.dedup();
    EntityKeys {
        entity,
        triples,
        pieces: pieces.map(|(_, keys)| keys).unwrap_or_default(),
        name: fold(dictionary.value(stored.name())).into(),
        scopes: scopes.map(Arc::from).collect(),
        types: stored.types().collect(),
        kind: stored.kind as Id,
        observed,
        about,
        owner: stored.owner(),
        uddi,
    }
}

impl StoredEntity {
    /// The number of entries in [`StoredEntity::triple`]; a few may repeat earlier ones.
    pub(crate) fn len(&self) -> usize {
        self.triples.len()
    }

    /// The triple at a position, unless it repeats an earlier one: what the entity brings may be
    /// what its fields state.
    pub(crate) fn triple(&self, at: usize) -> Option<[Id; 3]> {
        let triple = self.triples.get(at)?;
        let brought = self.without_rights().len();
        let stated = brought - self.own_triples().len();
        // A statement of a right may be one that the entity brings as well.
        let end = if at < brought { at.min(stated) } else { at };
        let earlier = self.triples.get(..end).unwrap_or_default();
        let may_repeat = at >= FIXED && triple[0] == self.entity;
        (!may_repeat || !earlier.contains(triple)).then_some(*triple)
    }

    fn object(&self, at: usize) -> Id {
        self.triples
            .get(at)
            .map_or(Id::MAX, |[_, _, object]| *object)
    }

    fn name(&self) -> Id {
        self.object(1)
    }

    fn owner(&self) -> Id {
        self.object(2)
    }

    fn types(&self) -> impl Iterator<Item = Id> + '_ {
        let count = usize::from(self.types);
        self.triples
            .iter()
            .skip(FIXED)
            .take(count)
            .map(|[_, _, object]| *object)
    }

    fn scopes(&self) -> impl Iterator<Item = Id> + '_ {
        let (skip, count) = (FIXED + usize::from(self.types), usize::from(self.scopes));
        self.triples
            .iter()
            .skip(skip)
            .take(count)
            .map(|[_, _, object]| *object)
    }

    /// The statements about its rights, the last of its triples.
    pub(crate) fn rights(&self) -> &[[Id; 3]] {
        self.triples
            .get(self.without_rights().len()..)
            .unwrap_or_default()
    }

    fn without_rights(&self) -> &[[Id; 3]] {
        let end = self.triples.len().saturating_sub(usize::from(self.rights));
        self.triples.get(..end).unwrap_or_default()
    }

    fn own_triples(&self) -> &[[Id; 3]] {
        let intrinsic = usize::from(self.types) + usize::from(self.scopes);
        self.without_rights()
            .get(FIXED + intrinsic + usize::from(self.classes)..)
            .unwrap_or_default()
    }
}

/// An entity's fields, not yet decoded to text.
pub(crate) struct Fields<'a> {
    stored: &'a StoredEntity,
    dictionary: &'a Dictionary,
}

impl<'a> Fields<'a> {
    pub(crate) fn kind(&self) -> EntityKind {
        self.stored.kind
    }

    pub(crate) fn folded_name(&self) -> String {
        fold(self.dictionary.value(self.stored.name()))
    }

    pub(crate) fn key(&self) -> &'a str {
        self.dictionary.value(self.stored.entity)
    }

    pub(crate) fn owner(&self) -> &'a str {
        self.dictionary.value(self.stored.owner())
    }

    pub(crate) fn owner_id(&self) -> Id {
        self.stored.owner()
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = Id> + 'a {
        self.stored.types()
    }

    /// The triples that it brings.
    pub(crate) fn own_triples(&self) -> &'a [[Id; 3]] {
        self.stored.own_triples()
    }

    /// The objects of all its statements with one of these predicates, whatever they are about.
    pub(crate) fn objects_of(&self, predicates: [Option<Id>; 2]) -> impl Iterator<Item = Id> + 'a {
        let triples = self.stored.own_triples().iter();
        let stating = triples.filter(move |[_, verb, _]| predicates.contains(&Some(*verb)));
        stating.map(|[_, _, object]| *object)
    }

    /// (tModel, value) of its category bag.
    pub(crate) fn categories(&self, indexed: &Indexed) -> impl Iterator<Item = [Id; 2]> {
        let triples = self.uddi_class().map(|_| self.own_triples());
        let uddi = &indexed.uddi;
        uddi.categories(self.stored.entity, triples.unwrap_or_default())
    }

    pub(crate) fn name(&self) -> &'a str {
        self.dictionary.value(self.stored.name())
    }

    pub(crate) fn has_type(&self, name: &str) -> bool {
        let mut types = self.stored.types();
        types.any(|id| self.dictionary.value(id) == name)
    }

    /// The objects of all statements of the entity with this predicate, whatever they are about, in order.
    pub(crate) fn statements(&self, predicate: NamedNodeRef<'_>) -> impl Iterator<Item = &'a str> {
        let predicate = self.dictionary.iri(predicate.as_str());
        let dictionary = self.dictionary;
        let triples = self.stored.own_triples().iter();
        let stating = triples.filter(move |[_, verb, _]| Some(*verb) == predicate);
        stating.map(move |[_, _, object]| dictionary.value(*object))
    }

    /// What UDDI data it is, if it is any.
    pub(crate) fn uddi_class(&self) -> Option<UddiClass> {
        class_of(self.dictionary, self.stored.types())
    }

    /// The objects of the statements that the entity makes about itself, in order.
    pub(crate) fn objects(&self, predicate: NamedNodeRef<'_>) -> impl Iterator<Item = Id> {
        let predicate = self.dictionary.iri(predicate.as_str());
        let entity = self.stored.entity;
        let triples = self.stored.own_triples().iter();
        triples.filter_map(move |[subject, verb, object]| {
            (*subject == entity && Some(*verb) == predicate).then_some(*object)
        })
    }

    pub(crate) fn has_scope_under(&self, asked: &str) -> bool {
        let mut scopes = self
            .stored
            .scopes()
            .map(|scope| self.dictionary.value(scope));
        scopes.any(|scope| scope::lies_under(asked, scope))
    }
}

/// Name, owner, types and scopes with their predicates.
fn fields(entity: &Entity) -> impl Iterator<Item = (NamedNodeRef<'static>, &str)> {
    let types = entity
        .types
        .iter()
        .map(|name| (vocabulary::TYPE, name.as_str()));
    let scopes = entity
        .scopes
        .iter()
        .map(|scope| (vocabulary::SCOPE, scope.as_str()));
    [
        (vocabulary::RDFS_LABEL, entity.name.as_str()),
        (vocabulary::OWNER, entity.owner.as_str()),
    ]
    .into_iter()
    .chain(types)
    .chain(scopes)
}

/// The IRI of the type `{namespace}local`: both joined, with a slash unless the namespace ends with
/// a separator.
pub(crate) fn class(name: &str) -> Option<NamedNode> {
    let (namespace, local) = name.strip_prefix('{')?.split_once('}')?;
    let separator = if namespace.ends_with(['/', '#', ':']) {
        ""
    } else {
        "/"
    };
    NamedNode::new(format!("{namespace}{separator}{local}")).ok()
}

#[cfg(test)]
mod tests;
