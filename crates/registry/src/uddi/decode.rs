//! Entities as UDDI values.
//!
//! An entity whose triples do not have the form that [`super::encode`] writes is not UDDI data:
//! `None`. Clients may publish entities of any form.

use std::collections::{HashMap, HashSet};

use oxrdf::{NamedNodeRef, NamedOrBlankNode, Term};

use super::encode::{Projection, Stamp};
use super::key::{BindingKey, BusinessKey, Key, ServiceKey};
use super::value::{
    Address, AddressLine, BindingTemplate, BusinessEntity, BusinessService, Contact, DiscoveryUrl,
    Endpoint, InstanceDetails, KeyedReference, Language, OverviewDoc, PublisherAssertion,
    Reachable, TModel, TModelInstanceInfo, Text, UrlType,
};
use crate::entity::Entity;
use crate::vocabulary::uddi;

/// The statements of an entity by subject, in order.
struct Facts<'a> {
    by_subject: HashMap<&'a str, Vec<(&'a str, &'a Term)>>,
}

/// An entity's own key, or the label of one of its blank nodes.
type Subject<'a> = &'a str;

impl<'a> Facts<'a> {
    /// The statements of an entity of this type. A node that several others have would be copied for each of them, and
    /// nodes within nodes multiply, so such an entity is not UDDI data.
    fn of(entity: &'a Entity, of_type: &str) -> Option<(Self, Subject<'a>)> {
        if !entity.types.iter().any(|name| name == of_type) {
            return None;
        }
        let mut by_subject: HashMap<_, Vec<_>> = HashMap::new();
        let mut nodes = HashSet::new();
        for triple in &entity.triples {
            if let Term::BlankNode(node) = &triple.object
                && !nodes.insert(node)
            {
                return None;
            }
            let subject = match &triple.subject {
                NamedOrBlankNode::NamedNode(node) => node.as_str(),
                NamedOrBlankNode::BlankNode(node) => node.as_str(),
            };
            let statement = (triple.predicate.as_str(), &triple.object);
            by_subject.entry(subject).or_default().push(statement);
        }
        Some((Self { by_subject }, entity.key.as_str()))
    }

    fn all(
        &self,
        subject: Subject<'_>,
        predicate: NamedNodeRef<'static>,
    ) -> impl Iterator<Item = &'a Term> + '_ {
        let facts = self.by_subject.get(subject).map_or(&[][..], Vec::as_slice);
        let matching = facts
            .iter()
            .filter(move |(found, _)| *found == predicate.as_str());
        matching.map(|(_, object)| *object)
    }

    fn nodes(
        &self,
        subject: Subject<'_>,
        predicate: NamedNodeRef<'static>,
    ) -> impl Iterator<Item = Subject<'a>> + '_ {
        self.all(subject, predicate).filter_map(|term| match term {
            Term::BlankNode(node) => Some(node.as_str()),
            _ => None,
        })
    }

    fn literal(&self, subject: Subject<'_>, predicate: NamedNodeRef<'static>) -> Option<&'a str> {
        match self.all(subject, predicate).next()? {
            Term::Literal(literal) => Some(literal.value()),
            _ => None,
        }
    }

    fn optional(&self, subject: Subject<'_>, predicate: NamedNodeRef<'static>) -> Option<String> {
        self.literal(subject, predicate).map(str::to_owned)
    }

    fn key<K: Key>(&self, subject: Subject<'_>, predicate: NamedNodeRef<'static>) -> Option<K> {
        match self.all(subject, predicate).next()? {
            Term::NamedNode(node) => K::from_iri(node.as_str()),
            _ => None,
        }
    }

    fn number(&self, subject: Subject<'_>, predicate: NamedNodeRef<'static>) -> Option<u32> {
        self.literal(subject, predicate)?.parse().ok()
    }

    fn texts(&self, subject: Subject<'_>, predicate: NamedNodeRef<'static>) -> Vec<Text> {
        let literals = self.all(subject, predicate).filter_map(|term| match term {
            Term::Literal(literal) => Some(literal),
            _ => None,
        });
        let texts = literals.map(|literal| Text {
            language: literal.language().and_then(Language::parse),
            text: literal.value().to_owned(),
        });
        texts.collect()
    }

    fn bag(
        &self,
        subject: Subject<'_>,
        predicate: NamedNodeRef<'static>,
    ) -> Option<Vec<KeyedReference>> {
        let nodes = self.nodes(subject, predicate);
        let references = nodes.map(|node| {
            Some(KeyedReference {
                tmodel_key: self.key(node, uddi::TMODEL_KEY),
                key_name: self.optional(node, uddi::KEY_NAME),
                key_value: self.optional(node, uddi::KEY_VALUE)?,
            })
        });
        references.collect()
    }

    fn overview(&self, subject: Subject<'_>) -> Option<OverviewDoc> {
        let node = self.nodes(subject, uddi::OVERVIEW_DOC).next()?;
        Some(OverviewDoc {
            descriptions: self.texts(node, uddi::DESCRIPTION),
            url: self.optional(node, uddi::OVERVIEW_URL),
        })
    }

    fn discovery_urls(&self, subject: Subject<'_>) -> Option<Vec<DiscoveryUrl>> {
        let nodes = self.nodes(subject, uddi::DISCOVERY_URL);
        let urls = nodes.map(|node| {
            Some(DiscoveryUrl {
                use_type: self.optional(node, uddi::USE_TYPE)?,
                url: self.optional(node, uddi::VALUE)?,
            })
        });
        urls.collect()
    }

    fn contacts(&self, subject: Subject<'_>) -> Option<Vec<Contact>> {
        let nodes = self.nodes(subject, uddi::CONTACT);
        let contacts = nodes.map(|node| {
            let addresses = self.nodes(node, uddi::ADDRESS);
            Some(Contact {
                use_type: self.optional(node, uddi::USE_TYPE),
                descriptions: self.texts(node, uddi::DESCRIPTION),
                person_name: self.optional(node, uddi::PERSON_NAME)?,
                phones: self.reachable(node, uddi::PHONE)?,
                emails: self.reachable(node, uddi::EMAIL)?,
                addresses: addresses
                    .map(|node| self.address(node))
                    .collect::<Option<_>>()?,
            })
        });
        contacts.collect()
    }

    fn reachable(
        &self,
        subject: Subject<'_>,
        predicate: NamedNodeRef<'static>,
    ) -> Option<Vec<Reachable>> {
        let nodes = self.nodes(subject, predicate);
        let all = nodes.map(|node| {
            Some(Reachable {
                use_type: self.optional(node, uddi::USE_TYPE),
                value: self.optional(node, uddi::VALUE)?,
            })
        });
        all.collect()
    }

    fn address(&self, node: Subject<'_>) -> Option<Address> {
        let lines = self.nodes(node, uddi::ADDRESS_LINE).map(|line| {
            Some(AddressLine {
                key_name: self.optional(line, uddi::KEY_NAME),
                key_value: self.optional(line, uddi::KEY_VALUE),
                text: self.optional(line, uddi::VALUE)?,
            })
        });
        Some(Address {
            use_type: self.optional(node, uddi::USE_TYPE),
            sort_code: self.optional(node, uddi::SORT_CODE),
            tmodel_key: self.key(node, uddi::TMODEL_KEY),
            lines: lines.collect::<Option<_>>()?,
        })
    }

    fn instances(&self, subject: Subject<'_>) -> Option<Vec<TModelInstanceInfo>> {
        let nodes = self.nodes(subject, uddi::INSTANCE_INFO);
        let infos = nodes.map(|node| {
            let mut details = self.nodes(node, uddi::INSTANCE_DETAILS);
            Some(TModelInstanceInfo {
                tmodel_key: self.key(node, uddi::TMODEL_KEY)?,
                descriptions: self.texts(node, uddi::DESCRIPTION),
                details: details.next().map(|node| InstanceDetails {
                    descriptions: self.texts(node, uddi::DESCRIPTION),
                    overview_doc: self.overview(node),
                    parameters: self.optional(node, uddi::INSTANCE_PARMS),
                }),
            })
        });
        infos.collect()
    }

    fn endpoint(&self, subject: Subject<'_>) -> Option<Endpoint> {
        if let Some(target) = self.key(subject, uddi::HOSTING_REDIRECTOR) {
            return Some(Endpoint::HostingRedirector(target));
        }
        Some(Endpoint::AccessPoint {
            url_type: UrlType::from_word(self.literal(subject, uddi::URL_TYPE)?)?,
            address: self.optional(subject, uddi::ACCESS_POINT)?,
        })
    }
}

/// Who saved an entity, and when.
pub(crate) fn stamp(entity: &Entity) -> Option<Stamp> {
    let saved = entity.triples.iter();
    let mut saved = saved.filter(|triple| triple.predicate == uddi::MODIFIED);
    let Term::Literal(modified) = &saved.next()?.object else {
        return None;
    };
    Some(Stamp {
        owner: entity.owner.clone(),
        access: entity.access.clone(),
        modified: modified.value().to_owned(),
    })
}

/// A business without its services, and its projections.
pub(crate) fn business(entity: &Entity) -> Option<(BusinessEntity, Vec<Projection>)> {
    let (facts, subject) = Facts::of(entity, uddi::BUSINESS_TYPE)?;
    let business = BusinessEntity {
        key: Some(BusinessKey::from_iri(subject)?),
        discovery_urls: facts.discovery_urls(subject)?,
        names: facts.texts(subject, uddi::NAME),
        descriptions: facts.texts(subject, uddi::DESCRIPTION),
        contacts: facts.contacts(subject)?,
        services: Vec::new(),
        identifier_bag: facts.bag(subject, uddi::IDENTIFIER)?,
        category_bag: facts.bag(subject, uddi::CATEGORY)?,
    };
    let projections = facts.nodes(subject, uddi::PROJECTION).map(|node| {
        Some(Projection {
            position: facts.number(node, uddi::POSITION)?,
            service: facts.key(node, uddi::SERVICE_KEY)?,
            business: facts.key(node, uddi::BUSINESS_KEY)?,
        })
    });
    Some((business, projections.collect::<Option<_>>()?))
}

/// A service without its bindings, and its position.
pub(crate) fn service(entity: &Entity) -> Option<(BusinessService, u32)> {
    let (facts, subject) = Facts::of(entity, uddi::SERVICE_TYPE)?;
    let service = BusinessService {
        key: Some(ServiceKey::from_iri(subject)?),
        business_key: Some(facts.key(subject, uddi::BUSINESS_KEY)?),
        names: facts.texts(subject, uddi::NAME),
        descriptions: facts.texts(subject, uddi::DESCRIPTION),
        bindings: Vec::new(),
        category_bag: facts.bag(subject, uddi::CATEGORY)?,
    };
    Some((service, facts.number(subject, uddi::POSITION)?))
}

/// A binding and its position.
pub(crate) fn binding(entity: &Entity) -> Option<(BindingTemplate, u32)> {
    let (facts, subject) = Facts::of(entity, uddi::BINDING_TYPE)?;
    let binding = BindingTemplate {
        key: Some(BindingKey::from_iri(subject)?),
        service_key: Some(facts.key(subject, uddi::SERVICE_KEY)?),
        descriptions: facts.texts(subject, uddi::DESCRIPTION),
        endpoint: facts.endpoint(subject)?,
        tmodels: facts.instances(subject)?,
    };
    Some((binding, facts.number(subject, uddi::POSITION)?))
}

/// A tModel, and whether it is hidden.
pub(crate) fn tmodel(entity: &Entity) -> Option<(TModel, bool)> {
    let (facts, subject) = Facts::of(entity, uddi::TMODEL_TYPE)?;
    let tmodel = TModel {
        key: Some(Key::from_iri(subject)?),
        name: facts.texts(subject, uddi::NAME).into_iter().next()?,
        descriptions: facts.texts(subject, uddi::DESCRIPTION),
        overview_doc: facts.overview(subject),
        identifier_bag: facts.bag(subject, uddi::IDENTIFIER)?,
        category_bag: facts.bag(subject, uddi::CATEGORY)?,
    };
    let is_hidden = facts.literal(subject, uddi::HIDDEN) == Some("true");
    Some((tmodel, is_hidden))
}

/// An assertion.
pub(crate) fn assertion(entity: &Entity) -> Option<PublisherAssertion> {
    let (facts, subject) = Facts::of(entity, uddi::ASSERTION_TYPE)?;
    let references = facts.bag(subject, uddi::KEYED_REFERENCE)?;
    Some(PublisherAssertion {
        from_key: facts.key(subject, uddi::FROM_KEY)?,
        to_key: facts.key(subject, uddi::TO_KEY)?,
        reference: references.into_iter().next()?,
    })
}
