//! The criteria of an inquiry apart from names, each with the entities that it selects.
//!
//! The criterion that selects the fewest supplies the candidates; the others test them.
//! Source: UDDI 2.04 API specification, arguments of the find calls, and appendix E.

use std::collections::{BTreeMap, HashSet};

use super::graph::Graph;
use super::key::{GENERAL_KEYWORDS, Key, TModelKey};
use super::qualifier::FindQualifiers;
use super::value::{DiscoveryUrl, KeyedReference};
use crate::dictionary::Id;
use crate::ordered::OrderedSet;
use crate::partition::Partition;
use crate::uddi_keys::{NO_TMODEL, UddiClass};
use crate::vocabulary::uddi;

/// A bag of references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bag {
    Category,
    Identifier,
}

impl Bag {
    fn index(self, partition: &Partition) -> &OrderedSet<[Id; 3]> {
        match self {
            Self::Category => &partition.categories,
            Self::Identifier => &partition.identifiers,
        }
    }

    const fn predicate(self) -> oxrdf::NamedNodeRef<'static> {
        match self {
            Self::Category => uddi::CATEGORY,
            Self::Identifier => uddi::IDENTIFIER,
        }
    }
}

/// Whose bag counts for a business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BagScope {
    /// The entity's own.
    Own,
    /// Its own and those of its services.
    Combined,
    /// Those of its services.
    Services,
}

/// How the references of a bag are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combination {
    All,
    Any,
    /// Any in each namespace, and all namespaces.
    AnyOfNamespace,
}

impl Combination {
    /// For category bags: AND by default.
    pub(crate) const fn of_categories(qualifiers: &FindQualifiers) -> Self {
        match qualifiers {
            FindQualifiers {
                or_all_keys: true, ..
            } => Self::Any,
            FindQualifiers {
                or_like_keys: true, ..
            } => Self::AnyOfNamespace,
            _ => Self::All,
        }
    }

    /// For identifier bags: OR by default.
    pub(crate) const fn of_identifiers(qualifiers: &FindQualifiers) -> Self {
        match qualifiers {
            FindQualifiers {
                or_all_keys: true, ..
            } => Self::Any,
            FindQualifiers {
                or_like_keys: true, ..
            } => Self::AnyOfNamespace,
            FindQualifiers {
                and_all_keys: true, ..
            } => Self::All,
            _ => Self::Any,
        }
    }
}

/// A reference as numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    /// (tModel, value): two for `uddi-org:general_keywords`, which may be left out; none if a term
    /// is unknown.
    pairs: Vec<[Id; 2]>,
    /// The name, where it is significant.
    name: Option<String>,
}

impl Reference {
    fn new(graph: &Graph<'_>, reference: &KeyedReference) -> Self {
        let dictionary = &graph.state.dictionary;
        let tmodel = reference.tmodel_key.unwrap_or(GENERAL_KEYWORDS);
        let is_general = tmodel == GENERAL_KEYWORDS;
        let Some(value) = dictionary.text(&reference.key_value) else {
            return Self::default();
        };
        let named = dictionary.iri(&tmodel.iri());
        let unnamed = is_general.then_some(NO_TMODEL);
        let tmodels = named.into_iter().chain(unnamed);
        Self {
            pairs: tmodels.map(|tmodel| [tmodel, value]).collect(),
            name: is_general.then(|| reference.key_name.clone().unwrap_or_default()),
        }
    }

    fn count(&self, graph: &Graph<'_>, bag: Bag) -> usize {
        let indexes = graph
            .partitions
            .iter()
            .map(|partition| bag.index(partition));
        let of = |set: &OrderedSet<[Id; 3]>, [t, v]: [Id; 2]| {
            set.rank(|key| *key <= [t, v, Id::MAX]) - set.rank(|key| *key < [t, v, 0])
        };
        indexes
            .map(|set| self.pairs.iter().map(|pair| of(set, *pair)).sum::<usize>())
            .sum()
    }

    /// The entities whose own bag has it.
    fn holders(&self, graph: &Graph<'_>, bag: Bag) -> Vec<Id> {
        let mut holders = Vec::new();
        for partition in &graph.partitions {
            for [t, v] in self.pairs.iter().copied() {
                let keys = bag.index(partition).iter_from(|key| *key < [t, v, 0]);
                let keys = keys.take_while(|key| key.starts_with(&[t, v]) && graph.step());
                holders.extend(keys.map(|[_, _, entity]| entity));
            }
        }
        holders.retain(|entity| self.has_name(graph, bag, *entity));
        holders
    }

    fn is_held_by(&self, graph: &Graph<'_>, bag: Bag, entity: Id) -> bool {
        let has =
            |partition: &Partition, [t, v]: [Id; 2]| bag.index(partition).contains(&[t, v, entity]);
        let mut partitions = graph.partitions.iter();
        partitions.any(|partition| self.pairs.iter().any(|pair| has(partition, *pair)))
            && self.has_name(graph, bag, entity)
    }

    /// Whether a reference with this tModel and value has the name that must match.
    fn has_name(&self, graph: &Graph<'_>, bag: Bag, entity: Id) -> bool {
        let Some(name) = &self.name else { return true };
        let fields = graph.state.fields(entity);
        let mut nodes = fields
            .iter()
            .flat_map(|fields| fields.objects(bag.predicate()));
        nodes.any(|node| {
            let tmodel = graph.object(node, uddi::TMODEL_KEY).unwrap_or(NO_TMODEL);
            let value = graph.object(node, uddi::KEY_VALUE);
            let found = graph.object(node, uddi::KEY_NAME);
            let found = found.map_or("", |id| graph.state.dictionary.value(id));
            value.is_some_and(|value| self.pairs.contains(&[tmodel, value])) && found == name
        })
    }
}

/// A criterion.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// One of these references is in the bag.
    Reference {
        bag: Bag,
        scope: BagScope,
        references: Vec<Reference>,
    },
    /// One binding of the entity refers to all of these tModels, or to any. An unknown tModel is
    /// `None`.
    Fingerprint { tmodels: Vec<Option<Id>>, any: bool },
    /// One of these discovery URLs, with the kind of use if it matters; or one of these businesses, whose addresses here
    /// were asked for.
    Urls {
        urls: Vec<(Id, String)>,
        businesses: HashSet<Id>,
    },
    /// The services of a business, own and projected.
    ServicesOf(Id),
    /// The bindings of a service.
    BindingsOf(Id),
    /// These entities.
    Among(HashSet<Id>),
}

impl Filter {
    /// The criteria of a bag.
    pub(crate) fn of_bag(
        graph: &Graph<'_>,
        bag: Bag,
        scope: BagScope,
        combination: Combination,
        references: &[KeyedReference],
    ) -> Vec<Self> {
        let mut groups: BTreeMap<(usize, Option<TModelKey>), Vec<Reference>> = BTreeMap::new();
        for (at, reference) in references.iter().enumerate() {
            let namespace = reference.tmodel_key.unwrap_or(GENERAL_KEYWORDS);
            let group = match combination {
                Combination::All => (at, None),
                Combination::Any => (0, None),
                Combination::AnyOfNamespace => (0, Some(namespace)),
            };
            let group = groups.entry(group).or_default();
            group.push(Reference::new(graph, reference));
        }
        let filters = groups.into_values().map(|references| Self::Reference {
            bag,
            scope,
            references,
        });
        filters.collect()
    }

    /// The criterion of a tModelBag, if it is not empty.
    pub(crate) fn of_tmodels(
        graph: &Graph<'_>,
        qualifiers: &FindQualifiers,
        tmodels: &[TModelKey],
    ) -> Option<Self> {
        let ids = tmodels
            .iter()
            .map(|key| graph.state.dictionary.iri(&key.iri()));
        (!tmodels.is_empty()).then(|| Self::Fingerprint {
            tmodels: ids.collect(),
            any: qualifiers.or_all_keys,
        })
    }

    /// The criterion of discovery URLs, if there are any.
    pub(crate) fn of_urls(graph: &Graph<'_>, urls: &[DiscoveryUrl]) -> Option<Self> {
        let known = urls.iter().filter_map(|discovery| {
            let url = graph.state.dictionary.text(&discovery.url)?;
            Some((url, discovery.use_type.clone()))
        });
        let businesses = urls.iter().filter_map(DiscoveryUrl::generated_for);
        let businesses = businesses.filter_map(|key| graph.find(key, UddiClass::Business));
        (!urls.is_empty()).then(|| Self::Urls {
            urls: known.collect(),
            businesses: businesses.collect(),
        })
    }

    /// About how many statements are read to find the entities.
    pub(crate) fn cost(&self, graph: &Graph<'_>) -> usize {
        match self {
            Self::Reference {
                bag, references, ..
            } => {
                let counts = references.iter().map(|one| one.count(graph, *bag));
                counts.sum()
            }
            Self::Fingerprint { tmodels, any } => {
                let counts = tmodels
                    .iter()
                    .map(|id| id.map_or(0, |id| graph.count(uddi::TMODEL_KEY, id)));
                if *any {
                    counts.sum()
                } else {
                    counts.min().unwrap_or(0)
                }
            }
            Self::Urls { urls, businesses } => {
                let counts = urls.iter().map(|(url, _)| graph.count(uddi::VALUE, *url));
                counts.sum::<usize>() + businesses.len()
            }
            Self::ServicesOf(business) => graph.count(uddi::BUSINESS_KEY, *business),
            Self::BindingsOf(service) => graph.count(uddi::SERVICE_KEY, *service),
            Self::Among(entities) => entities.len(),
        }
    }

    /// The entities of `class` that it selects.
    pub(crate) fn selected(&self, graph: &Graph<'_>, class: UddiClass) -> HashSet<Id> {
        let found: HashSet<Id> = match self {
            Self::Reference {
                bag,
                scope,
                references,
            } => {
                let holders = references.iter().flat_map(|one| one.holders(graph, *bag));
                if *scope == BagScope::Own {
                    holders.collect()
                } else {
                    holders
                        .flat_map(|holder| businesses_of_holder(graph, *scope, holder))
                        .collect()
                }
            }
            Self::Fingerprint { tmodels, any } => {
                let known = tmodels.iter().copied().flatten();
                let read: Vec<Id> = if *any {
                    known.collect()
                } else {
                    let rarest = known.min_by_key(|id| graph.count(uddi::TMODEL_KEY, *id));
                    rarest.into_iter().collect()
                };
                let bindings = read.into_iter().flat_map(|id| graph.bindings_of_tmodel(id));
                let bindings: HashSet<Id> = bindings.collect();
                let fitting = bindings
                    .into_iter()
                    .filter(|binding| self.fits_binding(graph, *binding));
                fitting
                    .flat_map(|binding| lift(graph, binding, class))
                    .collect()
            }
            Self::Urls { urls, businesses } => {
                let subjects = urls
                    .iter()
                    .flat_map(|(url, _)| graph.subjects(uddi::VALUE, *url));
                let entities = subjects.filter_map(|node| graph.state.dictionary.blank_scope(node));
                let mut entities: HashSet<Id> =
                    entities.chain(businesses.iter().copied()).collect();
                entities.retain(|entity| self.accepts(graph, class, *entity));
                entities
            }
            Self::ServicesOf(business) => {
                let services = graph.services(*business).into_iter();
                services.map(|service| service.id).collect()
            }
            Self::BindingsOf(service) => {
                let bindings = graph.bindings(*service).into_iter();
                bindings.map(|binding| binding.id).collect()
            }
            Self::Among(entities) => entities.clone(),
        };
        let of_class = |id: &Id| graph.fields(*id, class).is_some();
        found.into_iter().filter(of_class).collect()
    }

    /// Whether it selects the entity, which is of `class`.
    pub(crate) fn accepts(&self, graph: &Graph<'_>, class: UddiClass, entity: Id) -> bool {
        match self {
            Self::Reference {
                bag,
                scope,
                references,
            } => {
                let holds = |entity: Id| {
                    let mut references = references.iter();
                    references.any(|one| one.is_held_by(graph, *bag, entity))
                };
                let in_services = || {
                    let mut services = graph.services(entity).into_iter();
                    services.any(|service| holds(service.id))
                };
                match scope {
                    BagScope::Own => holds(entity),
                    BagScope::Combined => holds(entity) || in_services(),
                    BagScope::Services => in_services(),
                }
            }
            Self::Fingerprint { .. } => match class {
                UddiClass::Binding => self.fits_binding(graph, entity),
                UddiClass::Service => {
                    let mut bindings = graph.bindings(entity).into_iter();
                    bindings.any(|binding| self.fits_binding(graph, binding.id))
                }
                UddiClass::Business => {
                    let mut services = graph.services(entity).into_iter();
                    services.any(|one| self.accepts(graph, UddiClass::Service, one.id))
                }
                UddiClass::TModel | UddiClass::Assertion => false,
            },
            Self::Urls { urls, businesses } => {
                let fields = graph.state.fields(entity);
                let mut nodes = fields.iter().flat_map(|f| f.objects(uddi::DISCOVERY_URL));
                businesses.contains(&entity)
                    || nodes.any(|node| {
                        let use_type = graph.object(node, uddi::USE_TYPE);
                        let use_type = use_type.map_or("", |id| graph.state.dictionary.value(id));
                        urls.iter().any(|(url, asked)| {
                            graph.says(node, uddi::VALUE, *url)
                                && (asked.is_empty() || asked == use_type)
                        })
                    })
            }
            Self::ServicesOf(business) => {
                graph.parent_of_service(entity) == Some(*business)
                    || graph.projecting(entity).contains(business)
            }
            Self::BindingsOf(service) => graph.parent_of_binding(entity) == Some(*service),
            Self::Among(entities) => entities.contains(&entity),
        }
    }

    fn fits_binding(&self, graph: &Graph<'_>, binding: Id) -> bool {
        let Self::Fingerprint { tmodels, any } = self else {
            return false;
        };
        let has = |tmodel: &Option<Id>| tmodel.is_some_and(|id| graph.has_tmodel(binding, id));
        if *any {
            tmodels.iter().any(has)
        } else {
            tmodels.iter().all(has)
        }
    }
}

/// The businesses that own or project a service.
fn businesses_of_service(graph: &Graph<'_>, service: Id) -> Vec<Id> {
    let mut businesses = Vec::from_iter(graph.projecting(service));
    businesses.extend(graph.parent_of_service(service));
    businesses
}

/// The businesses for which the bag of `holder` counts.
fn businesses_of_holder(graph: &Graph<'_>, scope: BagScope, holder: Id) -> Vec<Id> {
    match graph
        .state
        .fields(holder)
        .and_then(|fields| fields.uddi_class())
    {
        Some(UddiClass::Business) if scope == BagScope::Combined => vec![holder],
        Some(UddiClass::Service) => businesses_of_service(graph, holder),
        _ => Vec::new(),
    }
}

/// A binding, its service, or the businesses of its service.
fn lift(graph: &Graph<'_>, binding: Id, class: UddiClass) -> Vec<Id> {
    let service = graph.parent_of_binding(binding);
    match class {
        UddiClass::Binding => vec![binding],
        UddiClass::Service => service.into_iter().collect(),
        UddiClass::Business => {
            let businesses = service.map(|service| businesses_of_service(graph, service));
            businesses.unwrap_or_default()
        }
        UddiClass::TModel | UddiClass::Assertion => Vec::new(),
    }
}
