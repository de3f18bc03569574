//! UDDI values as entities: one for each business, service, binding, tModel and assertion.
//!
//! The order of lists is the order of an entity's triples, which the registry keeps. The children
//! of a business or service are entities of their own, with the parent and their position in it.

use oxrdf::vocab::xsd;
use oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, NamedOrBlankNode, Term, Triple};

use super::key::{BusinessKey, GENERAL_KEYWORDS, Key, ServiceKey, TModelKey};
use super::value::{
    Address, BindingTemplate, BusinessEntity, BusinessService, Contact, Endpoint, KeyedReference,
    OverviewDoc, PublisherAssertion, Reachable, TModel, TModelInstanceInfo, Text,
};
use crate::access::Access;
use crate::entity::{Entity, EntityKind};
use crate::vocabulary::uddi;

/// Who saved a value, who may see it, and when it was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) owner: String,
    pub(crate) access: Access,
    /// As [`crate::time::timestamp`] writes it.
    pub(crate) modified: String,
}

/// A service of another business, shown at a position of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Projection {
    pub(crate) position: u32,
    pub(crate) service: ServiceKey,
    pub(crate) business: BusinessKey,
}

struct Writer {
    triples: Vec<Triple>,
    nodes: usize,
}

type Subject = NamedOrBlankNode;

impl Writer {
    fn new(iri: &str, stamp: &Stamp) -> (Self, Subject) {
        let subject = Subject::from(NamedNode::new_unchecked(iri));
        let mut writer = Self {
            triples: Vec::new(),
            nodes: 0,
        };
        let modified =
            Literal::new_typed_literal(stamp.modified.as_str(), xsd::DATE_TIME.into_owned());
        writer.put(&subject, uddi::MODIFIED, modified);
        (writer, subject)
    }

    fn put(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, object: impl Into<Term>) {
        let triple = Triple::new(subject.clone(), predicate.into_owned(), object.into());
        self.triples.push(triple);
    }

    /// A blank node that is the object of a statement.
    fn node(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>) -> Subject {
        let node = BlankNode::new_unchecked(format!("n{}", self.nodes));
        self.nodes += 1;
        self.put(subject, predicate, node.clone());
        node.into()
    }

    fn literal(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, text: &str) {
        self.put(subject, predicate, Literal::new_simple_literal(text));
    }

    fn optional(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, text: Option<&String>) {
        if let Some(text) = text {
            self.literal(subject, predicate, text);
        }
    }

    fn key(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, key: impl Key) {
        self.put(subject, predicate, NamedNode::new_unchecked(key.iri()));
    }

    fn number(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, number: u32) {
        self.put(subject, predicate, Literal::from(i64::from(number)));
    }

    fn texts(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, texts: &[Text]) {
        for text in texts {
            let literal = match &text.language {
                Some(language) => Literal::new_language_tagged_literal_unchecked(
                    text.text.as_str(),
                    language.as_str(),
                ),
                None => Literal::new_simple_literal(text.text.as_str()),
            };
            self.put(subject, predicate, literal);
        }
    }

    fn bag(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, bag: &[KeyedReference]) {
        for reference in bag {
            let keyword = (predicate == uddi::CATEGORY).then_some(GENERAL_KEYWORDS);
            self.reference(subject, predicate, reference, keyword);
        }
    }

    fn reference(
        &mut self,
        subject: &Subject,
        predicate: NamedNodeRef<'_>,
        reference: &KeyedReference,
        default: Option<TModelKey>,
    ) {
        let node = self.node(subject, predicate);
        if let Some(key) = reference.tmodel_key.or(default) {
            self.key(&node, uddi::TMODEL_KEY, key);
        }
        self.optional(&node, uddi::KEY_NAME, reference.key_name.as_ref());
        self.literal(&node, uddi::KEY_VALUE, &reference.key_value);
    }

    fn overview(&mut self, subject: &Subject, document: Option<&OverviewDoc>) {
        let Some(document) = document else { return };
        let node = self.node(subject, uddi::OVERVIEW_DOC);
        self.texts(&node, uddi::DESCRIPTION, &document.descriptions);
        self.optional(&node, uddi::OVERVIEW_URL, document.url.as_ref());
    }

    fn contact(&mut self, subject: &Subject, contact: &Contact) {
        let node = self.node(subject, uddi::CONTACT);
        self.optional(&node, uddi::USE_TYPE, contact.use_type.as_ref());
        self.texts(&node, uddi::DESCRIPTION, &contact.descriptions);
        self.literal(&node, uddi::PERSON_NAME, &contact.person_name);
        self.reachable(&node, uddi::PHONE, &contact.phones);
        self.reachable(&node, uddi::EMAIL, &contact.emails);
        for address in &contact.addresses {
            self.address(&node, address);
        }
    }

    fn reachable(&mut self, subject: &Subject, predicate: NamedNodeRef<'_>, all: &[Reachable]) {
        for one in all {
            let node = self.node(subject, predicate);
            self.optional(&node, uddi::USE_TYPE, one.use_type.as_ref());
            self.literal(&node, uddi::VALUE, &one.value);
        }
    }

    fn address(&mut self, subject: &Subject, address: &Address) {
        let node = self.node(subject, uddi::ADDRESS);
        self.optional(&node, uddi::USE_TYPE, address.use_type.as_ref());
        self.optional(&node, uddi::SORT_CODE, address.sort_code.as_ref());
        if let Some(key) = address.tmodel_key {
            self.key(&node, uddi::TMODEL_KEY, key);
        }
        for line in &address.lines {
            let node = self.node(&node, uddi::ADDRESS_LINE);
            self.optional(&node, uddi::KEY_NAME, line.key_name.as_ref());
            self.optional(&node, uddi::KEY_VALUE, line.key_value.as_ref());
            self.literal(&node, uddi::VALUE, &line.text);
        }
    }

    fn instance(&mut self, subject: &Subject, info: &TModelInstanceInfo) {
        let node = self.node(subject, uddi::INSTANCE_INFO);
        self.key(&node, uddi::TMODEL_KEY, info.tmodel_key);
        self.texts(&node, uddi::DESCRIPTION, &info.descriptions);
        let Some(details) = &info.details else { return };
        let node = self.node(&node, uddi::INSTANCE_DETAILS);
        self.texts(&node, uddi::DESCRIPTION, &details.descriptions);
        self.overview(&node, details.overview_doc.as_ref());
        self.optional(&node, uddi::INSTANCE_PARMS, details.parameters.as_ref());
    }

    fn entity(self, iri: String, kind: EntityKind, of_type: &str, stamp: &Stamp) -> Entity {
        let mut entity = Entity::new(iri, kind, "");
        entity.types = vec![of_type.to_owned()];
        entity.owner.clone_from(&stamp.owner);
        entity.access = stamp.access.clone();
        entity.triples = self.triples;
        entity
    }
}

fn first(names: &[Text]) -> String {
    names
        .first()
        .map(|name| name.text.clone())
        .unwrap_or_default()
}

/// The entity of a business, without its services.
pub(crate) fn business(
    key: BusinessKey,
    business: &BusinessEntity,
    projections: &[Projection],
    stamp: &Stamp,
) -> Entity {
    let (mut writer, subject) = Writer::new(&key.iri(), stamp);
    for discovery in &business.discovery_urls {
        let node = writer.node(&subject, uddi::DISCOVERY_URL);
        writer.literal(&node, uddi::USE_TYPE, &discovery.use_type);
        writer.literal(&node, uddi::VALUE, &discovery.url);
    }
    writer.texts(&subject, uddi::NAME, &business.names);
    writer.texts(&subject, uddi::DESCRIPTION, &business.descriptions);
    for contact in &business.contacts {
        writer.contact(&subject, contact);
    }
    for projection in projections {
        let node = writer.node(&subject, uddi::PROJECTION);
        writer.number(&node, uddi::POSITION, projection.position);
        writer.key(&node, uddi::SERVICE_KEY, projection.service);
        writer.key(&node, uddi::BUSINESS_KEY, projection.business);
    }
    writer.bag(&subject, uddi::IDENTIFIER, &business.identifier_bag);
    writer.bag(&subject, uddi::CATEGORY, &business.category_bag);
    let mut entity = writer.entity(key.iri(), EntityKind::Other, uddi::BUSINESS_TYPE, stamp);
    entity.name = first(&business.names);
    entity
}

/// The entity of a service at a position of its business, without its bindings.
pub(crate) fn service(
    key: ServiceKey,
    service: &BusinessService,
    parent: BusinessKey,
    position: u32,
    stamp: &Stamp,
) -> Entity {
    let (mut writer, subject) = Writer::new(&key.iri(), stamp);
    writer.key(&subject, uddi::BUSINESS_KEY, parent);
    writer.number(&subject, uddi::POSITION, position);
    writer.texts(&subject, uddi::NAME, &service.names);
    writer.texts(&subject, uddi::DESCRIPTION, &service.descriptions);
    writer.bag(&subject, uddi::CATEGORY, &service.category_bag);
    let mut entity = writer.entity(key.iri(), EntityKind::Service, uddi::SERVICE_TYPE, stamp);
    entity.name = first(&service.names);
    entity
}

/// The entity of a binding at a position of its service.
pub(crate) fn binding(
    key: super::key::BindingKey,
    binding: &BindingTemplate,
    parent: ServiceKey,
    position: u32,
    stamp: &Stamp,
) -> Entity {
    let (mut writer, subject) = Writer::new(&key.iri(), stamp);
    writer.key(&subject, uddi::SERVICE_KEY, parent);
    writer.number(&subject, uddi::POSITION, position);
    writer.texts(&subject, uddi::DESCRIPTION, &binding.descriptions);
    match &binding.endpoint {
        Endpoint::AccessPoint { url_type, address } => {
            writer.literal(&subject, uddi::URL_TYPE, url_type.as_str());
            writer.literal(&subject, uddi::ACCESS_POINT, address);
        }
        Endpoint::HostingRedirector(target) => {
            writer.key(&subject, uddi::HOSTING_REDIRECTOR, *target);
        }
    }
    for info in &binding.tmodels {
        writer.instance(&subject, info);
    }
    let mut entity = writer.entity(key.iri(), EntityKind::Other, uddi::BINDING_TYPE, stamp);
    entity.name = match &binding.endpoint {
        Endpoint::AccessPoint { address, .. } => address.clone(),
        Endpoint::HostingRedirector(target) => format!("redirects to {target}"),
    };
    entity
}

/// The entity of a tModel; a hidden one was deleted.
pub(crate) fn tmodel(
    key: super::key::TModelKey,
    tmodel: &TModel,
    is_hidden: bool,
    stamp: &Stamp,
) -> Entity {
    let (mut writer, subject) = Writer::new(&key.iri(), stamp);
    if is_hidden {
        writer.put(&subject, uddi::HIDDEN, Literal::from(true));
    }
    writer.texts(&subject, uddi::NAME, std::slice::from_ref(&tmodel.name));
    writer.texts(&subject, uddi::DESCRIPTION, &tmodel.descriptions);
    writer.overview(&subject, tmodel.overview_doc.as_ref());
    writer.bag(&subject, uddi::IDENTIFIER, &tmodel.identifier_bag);
    writer.bag(&subject, uddi::CATEGORY, &tmodel.category_bag);
    let mut entity = writer.entity(key.iri(), EntityKind::Other, uddi::TMODEL_TYPE, stamp);
    entity.name.clone_from(&tmodel.name.text);
    entity
}

/// The entity `iri` of an assertion.
pub(crate) fn assertion(iri: String, assertion: &PublisherAssertion, stamp: &Stamp) -> Entity {
    let (mut writer, subject) = Writer::new(&iri, stamp);
    writer.key(&subject, uddi::FROM_KEY, assertion.from_key);
    writer.key(&subject, uddi::TO_KEY, assertion.to_key);
    writer.reference(&subject, uddi::KEYED_REFERENCE, &assertion.reference, None);
    let mut entity = writer.entity(iri, EntityKind::Other, uddi::ASSERTION_TYPE, stamp);
    entity.name = format!("{} to {}", assertion.from_key, assertion.to_key);
    entity
}
