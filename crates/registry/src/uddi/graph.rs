//! UDDI data in the registry's graph, as far as a principal may see it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use chappe_identity::Principal;
use oxrdf::NamedNodeRef;

use super::error::{Error, ErrorCode};
use super::key::{BusinessKey, Key, ServiceKey};
use super::value::{BindingTemplate, BusinessEntity, BusinessService};
use super::{decode, encode};
use crate::budget::{Budget, QueryTraits};
use crate::dictionary::Id;
use crate::entity::Entity;
use crate::limits::{Interrupt, SparqlLimits};
use crate::partition::{Partition, Range};
use crate::rights::Right;
use crate::state::{Fields, State};
use crate::uddi_keys::UddiClass;
use crate::vocabulary::uddi;

/// A service of a business, in the business's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) position: u32,
    pub(crate) id: Id,
    pub(crate) is_projected: bool,
}

/// Maximum size of what one answer reads, as [`Entity::counted_bytes`] counts it; reason: the answer is
/// held in memory several times, and one key may stand for a business with thousands of services.
pub const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The graph.
pub(crate) struct Graph<'a> {
    pub(crate) state: &'a State,
    pub(crate) partitions: Vec<Arc<Partition>>,
    principal: &'a Principal,
    /// What may still be read; `None`: anything.
    left: Cell<Option<usize>>,
    /// The work that may still be done; `None`: any.
    budget: Option<Arc<Budget>>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(state: &'a State, principal: &'a Principal) -> Self {
        Self {
            state,
            partitions: state.visible(principal),
            principal,
            left: Cell::new(None),
            budget: None,
        }
    }

    /// The graph for one answer, of which [`MAX_ANSWER_BYTES`] can be read, with the steps of a SPARQL query and until
    /// `interrupt`.
    pub(crate) fn limited(
        state: &'a State,
        principal: &'a Principal,
        interrupt: &Interrupt,
    ) -> Self {
        let (limits, traits) = (SparqlLimits::default(), QueryTraits::default());
        Self {
            left: Cell::new(Some(MAX_ANSWER_BYTES)),
            budget: Some(Budget::new(&limits, interrupt, traits)),
            ..Self::new(state, principal)
        }
    }

    /// Counts an index entry or an entity that is visited; false once the budget is spent.
    pub(crate) fn step(&self) -> bool {
        let mut budget = self.budget.iter();
        budget.all(|budget| budget.step().is_ok())
    }

    pub(crate) fn principal(&self) -> &Principal {
        self.principal
    }

    /// Counts what an answer reads; false once it has read as much as it may.
    pub(crate) fn charge(&self, bytes: usize) -> bool {
        match self.left.get() {
            None => true,
            Some(left) => {
                let left = left.saturating_sub(bytes);
                self.left.set(Some(left));
                left > 0
            }
        }
    }

    /// Refuses an answer that would be too large, or takes too long: what it lacks looks as if it did not exist.
    pub(crate) fn check_limits(&self) -> Result<(), Error> {
        let verdict = self.budget.as_ref().map(|budget| budget.verdict());
        if let Some(Err(spent)) = verdict {
            let detail = format!("{spent}; ask with more criteria, or for fewer entities");
            return Err(Error::new(ErrorCode::Busy, detail));
        }
        if self.left.get() != Some(0) {
            return Ok(());
        }
        let detail =
            format!("the answer has more than {MAX_ANSWER_BYTES} bytes; ask for fewer entities");
        Err(Error::new(ErrorCode::MessageTooLarge, detail))
    }

    /// The fields of the entity `id`, if it is of `class`.
    pub(crate) fn fields(&self, id: Id, class: UddiClass) -> Option<Fields<'a>> {
        let fields = self.state.fields(id).filter(|_| self.step())?;
        (fields.uddi_class() == Some(class)).then_some(fields)
    }

    /// Whether the principal may read the entity `id`.
    fn is_visible(&self, id: Id) -> bool {
        let rule = self.state.rule_of(self.state.dictionary.value(id));
        rule.is_some_and(|(rule, _)| rule.permits(self.principal, Right::Read))
    }

    /// The visible entity `key` of `class`.
    pub(crate) fn find(&self, key: impl Key, class: UddiClass) -> Option<Id> {
        let iri = key.iri();
        let (rule, _) = self.state.rule_of(&iri)?;
        if !rule.permits(self.principal, Right::Read) {
            return None;
        }
        let id = self.state.dictionary.iri(&iri)?;
        self.fields(id, class).map(|_| id)
    }

    pub(crate) fn key<K: Key>(&self, id: Id) -> Option<K> {
        K::from_iri(self.state.dictionary.value(id))
    }

    /// The subjects of statements with this predicate and object.
    pub(crate) fn subjects(&self, predicate: NamedNodeRef<'_>, object: Id) -> BTreeSet<Id> {
        let Some(predicate) = self.state.dictionary.iri(predicate.as_str()) else {
            return BTreeSet::new();
        };
        let range = Range::of(None, Some(predicate), Some(object));
        let partitions = self.partitions.iter();
        let triples = partitions.flat_map(|partition| partition.triples(range));
        let triples = triples.take_while(|_| self.step());
        triples.map(|[subject, _, _]| subject).collect()
    }

    /// The number of statements with this predicate and object.
    pub(crate) fn count(&self, predicate: NamedNodeRef<'_>, object: Id) -> usize {
        let Some(predicate) = self.state.dictionary.iri(predicate.as_str()) else {
            return 0;
        };
        let range = Range::of(None, Some(predicate), Some(object));
        self.partitions
            .iter()
            .map(|partition| partition.count(range))
            .sum()
    }

    /// The object of a statement about `subject`.
    pub(crate) fn object(&self, subject: Id, predicate: NamedNodeRef<'_>) -> Option<Id> {
        let predicate = self.state.dictionary.iri(predicate.as_str())?;
        let range = Range::of(Some(subject), Some(predicate), None);
        let mut partitions = self.partitions.iter();
        let triple = partitions.find_map(|partition| partition.triples(range).next());
        triple.map(|[_, _, object]| object)
    }

    /// Whether the statement is visible.
    pub(crate) fn says(&self, subject: Id, predicate: NamedNodeRef<'_>, object: Id) -> bool {
        let Some(predicate) = self.state.dictionary.iri(predicate.as_str()) else {
            return false;
        };
        let triple = [subject, predicate, object];
        let mut partitions = self.partitions.iter();
        self.step() && partitions.any(|partition| partition.contains(triple))
    }

    /// The children of `parent`, which is of the class above `class`, in order. A child counts
    /// only if it has the owner of its parent: others cannot add to what is not theirs.
    fn children(&self, parent: Id, class: UddiClass) -> Vec<Member> {
        let Some(owner) = self.owner(parent) else {
            return Vec::new();
        };
        let partitions = self.partitions.iter();
        let keys = partitions.flat_map(|partition| {
            let keys = partition
                .children
                .iter_from(|key| *key < [parent, owner, 0, 0]);
            keys.take_while(|[of, by, _, _]| [*of, *by] == [parent, owner])
        });
        let children = keys.filter_map(|[_, _, position, id]| {
            self.fields(id, class)?;
            Some(Member {
                position,
                id,
                is_projected: false,
            })
        });
        self.in_order(children.collect())
    }

    fn owner(&self, id: Id) -> Option<Id> {
        let owner = self.state.fields(id)?.owner();
        self.state.dictionary.text(owner)
    }

    /// The last position of a child of `parent`.
    pub(crate) fn last_position(&self, parent: Id) -> Option<u32> {
        let owner = self.owner(parent)?;
        let partitions = self.partitions.iter();
        let last = partitions.filter_map(|partition| {
            let end = [parent, owner, u32::MAX, u32::MAX];
            let [of, by, position, _] = *partition.children.last_before(|key| *key <= end)?;
            ([of, by] == [parent, owner]).then_some(position)
        });
        last.max()
    }

    /// The services of a business, its own and those that it projects.
    pub(crate) fn services(&self, business: Id) -> Vec<Member> {
        let mut services = self.children(business, UddiClass::Service);
        let Some(fields) = self.state.fields(business) else {
            return services;
        };
        for node in fields.objects(uddi::PROJECTION) {
            let position = self.object(node, uddi::POSITION);
            let position = position.and_then(|id| self.state.dictionary.integer(id));
            // A projection ends when its service is deleted.
            let service = self.object(node, uddi::SERVICE_KEY);
            if let Some(id) = service.filter(|id| self.fields(*id, UddiClass::Service).is_some())
                && self.is_visible(id)
                && self.parent_of_service(id).is_some()
            {
                services.push(Member {
                    position: position.unwrap_or(u32::MAX),
                    id,
                    is_projected: true,
                });
            }
        }
        self.in_order(services)
    }

    /// Entities in the order in which they were saved; numbers of entities depend on what is hidden.
    pub(crate) fn by_time(&self, ids: BTreeSet<Id>) -> Vec<Id> {
        let mut ids = Vec::from_iter(ids);
        let saved = |id: Id| {
            let fields = self.state.fields(id)?;
            let saved = fields.objects(uddi::MODIFIED).next()?;
            Some(self.state.dictionary.value(saved))
        };
        ids.sort_by_cached_key(|id| (saved(*id), self.state.dictionary.value(*id)));
        ids
    }

    /// Sorts by position, then by key: numbers of entities depend on what is hidden.
    fn in_order(&self, mut members: Vec<Member>) -> Vec<Member> {
        let key = |id: Id| self.state.dictionary.value(id);
        members.sort_unstable_by_key(|one| (one.position, key(one.id), one.is_projected));
        // Several sets of indexes may hold one entity.
        members.dedup();
        members
    }

    /// The own services of a business.
    pub(crate) fn own_services(&self, business: Id) -> Vec<Member> {
        self.children(business, UddiClass::Service)
    }

    /// The bindings of a service.
    pub(crate) fn bindings(&self, service: Id) -> Vec<Member> {
        self.children(service, UddiClass::Binding)
    }

    fn parent(&self, child: Id, class: UddiClass, predicate: NamedNodeRef<'_>) -> Option<Id> {
        let fields = self.state.fields(child)?;
        let parent = fields.objects(predicate).next()?;
        let above = self.fields(parent, class)?;
        let is_visible = self.is_visible(parent);
        (is_visible && above.owner() == fields.owner()).then_some(parent)
    }

    /// The business of a service.
    pub(crate) fn parent_of_service(&self, service: Id) -> Option<Id> {
        self.parent(service, UddiClass::Business, uddi::BUSINESS_KEY)
    }

    /// The service of a binding.
    pub(crate) fn parent_of_binding(&self, binding: Id) -> Option<Id> {
        self.parent(binding, UddiClass::Service, uddi::SERVICE_KEY)
    }

    /// The businesses that project a service.
    pub(crate) fn projecting(&self, service: Id) -> BTreeSet<Id> {
        let nodes = self.subjects(uddi::SERVICE_KEY, service).into_iter();
        let entities = nodes.filter_map(|node| self.state.dictionary.blank_scope(node));
        entities
            .filter(|id| self.fields(*id, UddiClass::Business).is_some())
            .collect()
    }

    /// The bindings that refer to a tModel.
    pub(crate) fn bindings_of_tmodel(&self, tmodel: Id) -> BTreeSet<Id> {
        let nodes = self.subjects(uddi::TMODEL_KEY, tmodel).into_iter();
        let entities = nodes.filter_map(|node| self.state.dictionary.blank_scope(node));
        entities
            .filter(|id| self.fields(*id, UddiClass::Binding).is_some())
            .collect()
    }

    /// Whether a binding refers to a tModel.
    pub(crate) fn has_tmodel(&self, binding: Id, tmodel: Id) -> bool {
        let fields = self.state.fields(binding);
        let mut infos = fields.iter().flat_map(|f| f.objects(uddi::INSTANCE_INFO));
        infos.any(|node| self.says(node, uddi::TMODEL_KEY, tmodel))
    }

    pub(crate) fn entity(&self, id: Id) -> Option<Entity> {
        let entity = self.state.entity(id)?;
        self.charge(entity.counted_bytes()).then_some(entity)
    }

    /// A binding.
    pub(crate) fn binding(&self, id: Id) -> Option<BindingTemplate> {
        decode::binding(&self.entity(id)?).map(|(binding, _)| binding)
    }

    /// A service with its bindings.
    pub(crate) fn service(&self, id: Id) -> Option<BusinessService> {
        let (mut service, _) = decode::service(&self.entity(id)?)?;
        let bindings = self.bindings(id).into_iter();
        service.bindings = bindings
            .filter_map(|binding| self.binding(binding.id))
            .collect();
        Some(service)
    }

    /// A business with its services, and who saved it.
    pub(crate) fn business(&self, id: Id) -> Option<(BusinessEntity, encode::Stamp)> {
        let entity = self.entity(id)?;
        let (mut business, _) = decode::business(&entity)?;
        let services = self.services(id).into_iter();
        business.services = services
            .filter_map(|service| self.service(service.id))
            .collect();
        Some((business, decode::stamp(&entity)?))
    }

    pub(crate) fn business_key(&self, id: Id) -> Option<BusinessKey> {
        self.key(id)
    }

    pub(crate) fn service_key(&self, id: Id) -> Option<ServiceKey> {
        self.key(id)
    }
}
