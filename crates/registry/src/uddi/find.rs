//! The find calls: what they ask, and what they answer.
//!
//! Source: UDDI 2.04 API specification, find_binding, find_business, find_service and find_tModel.
//! An absent criterion restricts nothing; present criteria must all match. A message without any finds
//! nothing ([`FindBusiness::has_criteria`]). Results are sorted before they are cut to `max_rows`.

use std::collections::HashSet;

use super::error::{Error, ErrorCode, KeyType};
use super::filter::{Bag, BagScope, Combination, Filter};
use super::graph::{Graph, Member};
use super::key::{BusinessKey, ServiceKey, TModelKey};
use super::limits::MAX_ELEMENTS;
use super::name::NamePattern;
use super::qualifier::FindQualifiers;
use super::select::{Order, Selection, names_of};
use super::value::{BindingTemplate, DiscoveryUrl, KeyedReference, Text};
use crate::dictionary::Id;
use crate::uddi_keys::UddiClass;
use crate::vocabulary::uddi;

/// Maximum number of rows in one answer, also when a request names none.
pub const MAX_ROWS: usize = 1_000;

/// find_business.
#[derive(Clone, Debug, Default)]
pub struct FindBusiness {
    /// Maximum number of rows.
    pub max_rows: Option<usize>,
    /// How to match and sort.
    pub qualifiers: FindQualifiers,
    /// Names, one of which matches.
    pub names: Vec<Text>,
    /// Discovery URLs, one of which matches; an empty useType matches every one.
    pub discovery_urls: Vec<DiscoveryUrl>,
    /// Identifiers, one of which matches.
    pub identifier_bag: Vec<KeyedReference>,
    /// Categories, all of which match.
    pub category_bag: Vec<KeyedReference>,
    /// tModels, to all of which one of its bindings refers.
    pub tmodel_bag: Vec<TModelKey>,
}

impl FindBusiness {
    /// Whether it has a criterion: a message without one finds nothing.
    #[must_use]
    pub fn has_criteria(&self) -> bool {
        let bags = [
            self.names.is_empty(),
            self.discovery_urls.is_empty(),
            self.identifier_bag.is_empty(),
            self.category_bag.is_empty(),
            self.tmodel_bag.is_empty(),
        ];
        bags.contains(&false)
    }
}

/// find_service.
#[derive(Clone, Debug, Default)]
pub struct FindService {
    /// Maximum number of rows.
    pub max_rows: Option<usize>,
    /// How to match and sort.
    pub qualifiers: FindQualifiers,
    /// Only services of this business, own and projected.
    pub business_key: Option<BusinessKey>,
    /// Names, one of which matches.
    pub names: Vec<Text>,
    /// Categories, all of which match.
    pub category_bag: Vec<KeyedReference>,
    /// tModels, to all of which one of its bindings refers.
    pub tmodel_bag: Vec<TModelKey>,
}

impl FindService {
    /// Whether it has a criterion: a message without one finds nothing.
    #[must_use]
    pub fn has_criteria(&self) -> bool {
        let bags = [
            self.business_key.is_none(),
            self.names.is_empty(),
            self.category_bag.is_empty(),
            self.tmodel_bag.is_empty(),
        ];
        bags.contains(&false)
    }
}

/// find_binding.
#[derive(Clone, Debug)]
pub struct FindBinding {
    /// Maximum number of rows.
    pub max_rows: Option<usize>,
    /// How to match and sort.
    pub qualifiers: FindQualifiers,
    /// The service whose bindings are asked for.
    pub service_key: ServiceKey,
    /// tModels, to all of which the binding refers.
    pub tmodel_bag: Vec<TModelKey>,
}

/// find_tModel.
#[derive(Clone, Debug, Default)]
pub struct FindTModel {
    /// Maximum number of rows.
    pub max_rows: Option<usize>,
    /// How to match and sort.
    pub qualifiers: FindQualifiers,
    /// A name.
    pub name: Option<Text>,
    /// Identifiers, one of which matches.
    pub identifier_bag: Vec<KeyedReference>,
    /// Categories, all of which match.
    pub category_bag: Vec<KeyedReference>,
}

/// A list of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// The results, in order.
    pub items: Vec<T>,
    /// Whether there were more.
    pub is_truncated: bool,
}

/// A service in short (serviceInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceInfo {
    /// Its key.
    pub service_key: ServiceKey,
    /// Its business.
    pub business_key: BusinessKey,
    /// Its names.
    pub names: Vec<Text>,
}

/// A business in short (businessInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusinessInfo {
    /// Its key.
    pub business_key: BusinessKey,
    /// Its names.
    pub names: Vec<Text>,
    /// Its descriptions.
    pub descriptions: Vec<Text>,
    /// Its services.
    pub services: Vec<ServiceInfo>,
}

/// A tModel in short (tModelInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TModelInfo {
    /// Its key.
    pub tmodel_key: TModelKey,
    /// Its name.
    pub name: Text,
}

impl<T> List<T> {
    /// No results.
    pub(crate) const fn empty() -> Self {
        Self {
            items: Vec::new(),
            is_truncated: false,
        }
    }
}

/// The results of a selection, each read by `item`.
fn list<T>(graph: &Graph<'_>, selection: &Selection, item: impl FnMut(Id) -> Option<T>) -> List<T> {
    let (found, is_truncated) = selection.run(graph);
    List {
        items: found.into_iter().filter_map(item).collect(),
        is_truncated,
    }
}

/// Refuses bags that are larger than any that was saved.
fn criteria(counts: &[usize]) -> Result<(), Error> {
    match counts.iter().find(|count| **count > MAX_ELEMENTS) {
        Some(count) => {
            let detail = format!("{count} criteria of one kind; the limit is {MAX_ELEMENTS}");
            Err(Error::new(ErrorCode::TooManyOptions, detail))
        }
        None => Ok(()),
    }
}

fn rows(asked: Option<usize>) -> usize {
    asked.unwrap_or(MAX_ROWS).min(MAX_ROWS)
}

/// Refuses a tModel that does not exist.
fn known_tmodels(graph: &Graph<'_>, keys: &[TModelKey]) -> Result<(), Error> {
    let mut keys = keys.iter();
    match keys.find(|key| graph.find(**key, UddiClass::TModel).is_none()) {
        Some(key) => Err(Error::unknown_key(KeyType::TModel, key)),
        None => Ok(()),
    }
}

pub(crate) fn service_info(graph: &Graph<'_>, id: Id) -> Option<ServiceInfo> {
    Some(ServiceInfo {
        service_key: graph.service_key(id)?,
        business_key: graph.business_key(graph.parent_of_service(id)?)?,
        names: names_of(graph, id, uddi::NAME),
    })
}

/// A business in short, with those of its services that `shows` admits.
pub(crate) fn business_info(
    graph: &Graph<'_>,
    id: Id,
    shows: impl Fn(&Member) -> bool,
) -> Option<BusinessInfo> {
    let services = graph.services(id).into_iter().filter(shows);
    Some(BusinessInfo {
        business_key: graph.business_key(id)?,
        names: names_of(graph, id, uddi::NAME),
        descriptions: names_of(graph, id, uddi::DESCRIPTION),
        services: services
            .filter_map(|service| service_info(graph, service.id))
            .collect(),
    })
}

pub(crate) fn businesses(
    graph: &Graph<'_>,
    ask: &FindBusiness,
) -> Result<List<BusinessInfo>, Error> {
    let qualifiers = &ask.qualifiers;
    let names = NamePattern::all(&ask.names, qualifiers)?;
    criteria(&[
        ask.discovery_urls.len(),
        ask.identifier_bag.len(),
        ask.category_bag.len(),
        ask.tmodel_bag.len(),
    ])?;
    known_tmodels(graph, &ask.tmodel_bag)?;
    let scope = match qualifiers {
        FindQualifiers {
            service_subset: true,
            ..
        } => BagScope::Services,
        FindQualifiers {
            combine_category_bags: true,
            ..
        } => BagScope::Combined,
        _ => BagScope::Own,
    };
    let categories = |scope, combination| {
        Filter::of_bag(graph, Bag::Category, scope, combination, &ask.category_bag)
    };
    let mut filters = categories(scope, Combination::of_categories(qualifiers));
    filters.extend(Filter::of_bag(
        graph,
        Bag::Identifier,
        BagScope::Own,
        Combination::of_identifiers(qualifiers),
        &ask.identifier_bag,
    ));
    filters.extend(Filter::of_urls(graph, &ask.discovery_urls));
    let fingerprint = Filter::of_tmodels(graph, qualifiers, &ask.tmodel_bag);
    filters.extend(fingerprint.clone());
    let selection = Selection {
        class: UddiClass::Business,
        names,
        filters,
        order: Order::of_names(qualifiers),
        max_rows: rows(ask.max_rows),
    };
    // With serviceSubset only services that match one of the categories are shown, and with a tModelBag
    // only those with a binding that matches it.
    let any = categories(BagScope::Own, Combination::Any);
    let is_subset = qualifiers.service_subset && !ask.category_bag.is_empty();
    let shows = |service: &Member| {
        let accepts = |filter: &Filter| filter.accepts(graph, UddiClass::Service, service.id);
        (!is_subset || any.iter().any(accepts)) && fingerprint.iter().all(accepts)
    };
    Ok(list(graph, &selection, |id| {
        business_info(graph, id, shows)
    }))
}

/// find_service, among these services if some are given.
pub(crate) fn services(
    graph: &Graph<'_>,
    ask: &FindService,
    among: Option<HashSet<Id>>,
) -> Result<List<ServiceInfo>, Error> {
    let qualifiers = &ask.qualifiers;
    let names = NamePattern::all(&ask.names, qualifiers)?;
    criteria(&[ask.category_bag.len(), ask.tmodel_bag.len()])?;
    let mut filters = Filter::of_bag(
        graph,
        Bag::Category,
        BagScope::Own,
        Combination::of_categories(qualifiers),
        &ask.category_bag,
    );
    filters.extend(among.map(Filter::Among));
    if let Some(key) = ask.business_key {
        let business = graph.find(key, UddiClass::Business);
        let business = business.ok_or_else(|| Error::unknown_key(KeyType::Business, key))?;
        filters.push(Filter::ServicesOf(business));
    }
    known_tmodels(graph, &ask.tmodel_bag)?;
    filters.extend(Filter::of_tmodels(graph, qualifiers, &ask.tmodel_bag));
    let selection = Selection {
        class: UddiClass::Service,
        names,
        filters,
        order: Order::of_names(qualifiers),
        max_rows: rows(ask.max_rows),
    };
    Ok(list(graph, &selection, |id| service_info(graph, id)))
}

pub(crate) fn bindings(
    graph: &Graph<'_>,
    ask: &FindBinding,
) -> Result<List<BindingTemplate>, Error> {
    let qualifiers = &ask.qualifiers;
    criteria(&[ask.tmodel_bag.len()])?;
    let service = graph.find(ask.service_key, UddiClass::Service);
    let service = service.ok_or_else(|| Error::unknown_key(KeyType::Service, ask.service_key))?;
    known_tmodels(graph, &ask.tmodel_bag)?;
    let mut filters = vec![Filter::BindingsOf(service)];
    filters.extend(Filter::of_tmodels(graph, qualifiers, &ask.tmodel_bag));
    let selection = Selection {
        class: UddiClass::Binding,
        names: Vec::new(),
        filters,
        order: Order::of_dates(qualifiers),
        max_rows: rows(ask.max_rows),
    };
    Ok(list(graph, &selection, |id| graph.binding(id)))
}

pub(crate) fn tmodels(graph: &Graph<'_>, ask: &FindTModel) -> Result<List<TModelInfo>, Error> {
    let qualifiers = &ask.qualifiers;
    let names = NamePattern::all(ask.name.as_slice(), qualifiers)?;
    criteria(&[ask.category_bag.len(), ask.identifier_bag.len()])?;
    let mut filters = Filter::of_bag(
        graph,
        Bag::Category,
        BagScope::Own,
        Combination::of_categories(qualifiers),
        &ask.category_bag,
    );
    filters.extend(Filter::of_bag(
        graph,
        Bag::Identifier,
        BagScope::Own,
        Combination::of_identifiers(qualifiers),
        &ask.identifier_bag,
    ));
    let selection = Selection {
        class: UddiClass::TModel,
        names,
        filters,
        order: Order::of_names(qualifiers),
        max_rows: rows(ask.max_rows),
    };
    Ok(list(graph, &selection, |id| {
        Some(TModelInfo {
            tmodel_key: graph.key(id)?,
            name: names_of(graph, id, uddi::NAME).into_iter().next()?,
        })
    }))
}
