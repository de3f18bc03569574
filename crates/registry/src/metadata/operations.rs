//! Finds operations and interfaces by the metadata of parts of their messages.
//!
//! Pieces are about the IRIs of parts. Which operation exchanges which message is what those WSDL documents
//! say that the asker may see.

use std::collections::BTreeSet;

use super::find::{Criterion, MAX_PAGE, Metadata, Page};
use super::wsdl_part::{WsdlPart, message_name};
use crate::dictionary::Id;
use crate::limits::Interrupt;
use crate::uddi::graph::Graph;
use crate::uddi::{Error, ErrorCode, Key as _, ServiceKey, TModelKey};
use crate::uddi_keys::UddiClass;
use crate::vocabulary::{self, uddi, wsdl as v};

/// Maximum number of message parts with the metadata of one request; reason: all are looked up before the
/// answer begins.
const PARTS_MAX: usize = 100_000;
/// What one candidate counts for in the limit of an answer.
const CANDIDATE_BYTES: usize = 256;

/// The criteria of find_operation; all that are given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindOperations {
    /// The operation has one of these local names.
    pub names: Vec<String>,
    /// Pieces about the operation.
    pub metadata: Vec<Criterion>,
    /// One of its messages.
    pub message: FindMessage,
    /// The entity it belongs to: the key of a document, tModel or service, or the IRI of a port type.
    pub of: Option<String>,
}

/// The criteria of a message and one of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindMessage {
    /// The message has one of these local names.
    pub names: Vec<String>,
    /// And is in one of these namespaces.
    pub namespaces: Vec<String>,
    /// And has a part with one of these names.
    pub part_names: Vec<String>,
    /// About which there are these pieces.
    pub part_metadata: Vec<Criterion>,
}

impl FindMessage {
    /// Whether it asks for nothing.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl FindOperations {
    /// Whether the documents decide, and not the metadata of operations alone.
    pub(super) fn needs_documents(&self) -> bool {
        self.metadata.is_empty() || !self.message.is_empty() || self.of.is_some()
    }
}

impl Metadata {
    /// The operations of documents that match, in the order of their IRIs.
    ///
    /// # Errors
    /// Those of the criteria; `E_messageTooLarge`.
    pub fn find_operations(
        &self,
        ask: &FindOperations,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<WsdlPart>, Error> {
        let state = self.state();
        let graph = Graph::limited(state, self.principal(), &Interrupt::never());
        let mut candidates = Vec::new();
        if !ask.message.is_empty() {
            candidates.push(operations_of(&graph, &self.messages(&graph, &ask.message)?));
        }
        if let Some(of) = &ask.of {
            candidates.push(operations_in(&graph, of));
        }
        let both =
            |one: BTreeSet<Id>, other: BTreeSet<Id>| one.intersection(&other).copied().collect();
        let found = candidates.into_iter().reduce(both);
        let found = found.unwrap_or_else(|| operations_named(&graph, &ask.names));
        let is_wanted = |iri: &str| -> Result<Option<WsdlPart>, Error> {
            let Some(WsdlPart::Operation { name, .. }) = WsdlPart::parse(iri) else {
                return Ok(None);
            };
            let is_named = ask.names.is_empty() || ask.names.contains(&name);
            match is_named && (ask.metadata.is_empty() || self.has(iri, &ask.metadata)?) {
                true => Ok(WsdlPart::parse(iri)),
                false => Ok(None),
            }
        };
        let page = page(&graph, &found, after, limit, is_wanted)?;
        graph.check_limits()?;
        Ok(page)
    }

    /// The IRIs of the interfaces with an operation of which a message part has these pieces.
    ///
    /// # Errors
    /// Those of the criteria; `E_messageTooLarge`.
    pub fn interfaces_by_message_part(
        &self,
        asked: &[Criterion],
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<String>, Error> {
        let state = self.state();
        let graph = Graph::limited(state, self.principal(), &Interrupt::never());
        let parts = self.parts(asked, &[])?;
        let messages = graph.subjects_of(v::PART, &parts);
        let found = graph.subjects_of(v::OPERATION, &operations_of(&graph, &messages));
        let page = page(&graph, &found, after, limit, |iri| Ok(Some(iri.to_owned())))?;
        graph.check_limits()?;
        Ok(page)
    }

    /// The messages that match.
    fn messages(&self, graph: &Graph<'_>, asked: &FindMessage) -> Result<BTreeSet<Id>, Error> {
        let dictionary = &graph.state.dictionary;
        let named = |names: &[String]| -> BTreeSet<Id> {
            let names = names.iter().filter_map(|name| dictionary.text(name));
            names
                .flat_map(|name| graph.subjects(v::NAME, name))
                .collect()
        };
        let mut found = if !asked.part_metadata.is_empty() {
            let parts = self.parts(&asked.part_metadata, &asked.part_names)?;
            graph.subjects_of(v::PART, &parts)
        } else if !asked.part_names.is_empty() {
            graph.subjects_of(v::PART, &named(&asked.part_names))
        } else if !asked.names.is_empty() {
            named(&asked.names)
        } else {
            let class = dictionary.iri(v::MESSAGE_CLASS.as_str());
            let all = class.map(|class| graph.subjects(vocabulary::RDF_TYPE, class));
            all.unwrap_or_default()
        };
        found.retain(|id| {
            let name = message_name(dictionary.value(*id));
            name.is_some_and(|(namespace, name)| {
                let is_one_of = |texts: &[String], text: &str| {
                    texts.is_empty() || texts.iter().any(|one| one == text)
                };
                let mut namespaces = asked.namespaces.iter();
                let is_inside = asked.namespaces.is_empty()
                    || namespaces.any(|one| one.strip_suffix('#').unwrap_or(one) == namespace);
                is_one_of(&asked.names, name) && is_inside
            })
        });
        Ok(found)
    }

    /// The message parts that have these pieces, and one of these names if there are any.
    fn parts(&self, asked: &[Criterion], names: &[String]) -> Result<BTreeSet<Id>, Error> {
        let wanted = |key: &str| match WsdlPart::parse(key) {
            Some(WsdlPart::MessagePart { name, .. }) => names.is_empty() || names.contains(&name),
            _ => false,
        };
        let dictionary = &self.state().dictionary;
        let (mut found, mut after) = (BTreeSet::new(), None::<String>);
        loop {
            let page = self.entities_where(asked, after.as_deref(), MAX_PAGE, wanted)?;
            found.extend(page.items.iter().filter_map(|key| dictionary.iri(key)));
            if found.len() > PARTS_MAX {
                let detail = format!("more than {PARTS_MAX} message parts have this metadata");
                return Err(Error::new(ErrorCode::MessageTooLarge, detail));
            }
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }
}

/// The operations with one of these messages.
fn operations_of(graph: &Graph<'_>, messages: &BTreeSet<Id>) -> BTreeSet<Id> {
    let exchanges = graph.subjects_of(v::MESSAGE, messages);
    let kinds = [v::INPUT, v::OUTPUT, v::FAULT].into_iter();
    kinds
        .flat_map(|kind| graph.subjects_of(kind, &exchanges))
        .collect()
}

/// The operations of a document, tModel, service or port type.
fn operations_in(graph: &Graph<'_>, key: &str) -> BTreeSet<Id> {
    let dictionary = &graph.state.dictionary;
    let Some(id) = dictionary.iri(key) else {
        return BTreeSet::new();
    };
    let mut port_types = BTreeSet::from([id]);
    port_types.extend(graph.objects(id, v::DEFINES));
    if TModelKey::from_iri(key).is_some() {
        port_types.extend(graph.subjects(v::TMODEL, id));
    }
    let service = ServiceKey::from_iri(key).and_then(|key| graph.find(key, UddiClass::Service));
    if let Some(service) = service {
        let bindings = graph.bindings(service).into_iter();
        let infos = bindings.flat_map(|binding| graph.objects(binding.id, uddi::INSTANCE_INFO));
        let tmodels = infos.flat_map(|info| graph.objects(info, uddi::TMODEL_KEY));
        port_types.extend(graph.subjects_of(v::TMODEL, &tmodels.collect()));
    }
    let operations = port_types.into_iter();
    operations
        .flat_map(|id| graph.objects(id, v::OPERATION))
        .collect()
}

/// The operations with one of these names; without names, all.
fn operations_named(graph: &Graph<'_>, names: &[String]) -> BTreeSet<Id> {
    let dictionary = &graph.state.dictionary;
    let class = dictionary.iri(v::OPERATION_CLASS.as_str());
    let names_known = names.iter().filter_map(|name| dictionary.text(name));
    match (names.is_empty(), class) {
        (_, None) => BTreeSet::new(),
        (true, Some(class)) => graph.subjects(vocabulary::RDF_TYPE, class),
        (false, Some(_)) => names_known
            .flat_map(|name| graph.subjects(v::NAME, name))
            .collect(),
    }
}

/// A part of the results in the order of their IRIs; `read` refuses or makes each.
fn page<T>(
    graph: &Graph<'_>,
    found: &BTreeSet<Id>,
    after: Option<&str>,
    limit: usize,
    read: impl Fn(&str) -> Result<Option<T>, Error>,
) -> Result<Page<T>, Error> {
    let iris = found.iter().map(|id| graph.state.dictionary.value(*id));
    let mut iris: Vec<&str> = iris
        .filter(|iri| after.is_none_or(|after| *iri > after))
        .collect();
    iris.sort_unstable();
    let limit = limit.clamp(1, MAX_PAGE);
    let mut page = Page {
        items: Vec::new(),
        next: None,
        entries_read: 0,
    };
    let mut last = None;
    for iri in iris {
        if page.items.len() >= limit {
            page.next = last;
            break;
        }
        page.entries_read += 1;
        if !graph.charge(CANDIDATE_BYTES) {
            break;
        }
        let item = read(iri)?;
        page.items.extend(item);
        last = Some(iri.to_owned());
    }
    Ok(page)
}
