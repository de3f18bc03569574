//! Finds interfaces, operations and services by what documents say of them.
//!
//! What a message part means is the `modelReference` of the part, of its element or of the element's type, in the
//! document or in any other statement about these that the asker may see: a piece of metadata counts as well.

use std::collections::BTreeSet;

use oxrdf::NamedNodeRef;

use super::{identifier as id, read, unknown};
use crate::dictionary::Id;
use crate::uddi::find::{self, ServiceInfo};
use crate::uddi::graph::Graph;
use crate::uddi::{Error, ErrorCode, Inquiry, Key as _, List, MAX_ROWS, TModelKey};
use crate::vocabulary::wsdl as v;

/// Which message of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// What the service receives.
    Input,
    /// What it sends.
    Output,
    /// What it sends in case of an error.
    Fault,
}

impl Exchange {
    const fn predicate(self) -> NamedNodeRef<'static> {
        match self {
            Self::Input => v::INPUT,
            Self::Output => v::OUTPUT,
            Self::Fault => v::FAULT,
        }
    }
}

/// The messages in which a part is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// All messages.
    #[default]
    Any,
    /// One kind of messages.
    Only(Exchange),
}

/// The criteria of interfaces; all that are given must match one operation.
///
/// An operation is given by its local name or its IRI. A part of a message is given by its IRI, its local name, its
/// element or type (`{namespace}local` or IRI), or what it means (an IRI).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindInterface {
    /// An operation.
    pub operation: Option<String>,
    /// A part of its input.
    pub input: Option<String>,
    /// A part of its output.
    pub output: Option<String>,
    /// Only interfaces after this IRI.
    pub after: Option<String>,
    /// Maximum number of results.
    pub max_rows: Option<usize>,
}

/// The criteria of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindOperation {
    /// A part of a message, as in [`FindInterface`].
    pub part: String,
    /// In which messages.
    pub direction: Direction,
    /// Only operations after this IRI.
    pub after: Option<String>,
    /// Maximum number of results.
    pub max_rows: Option<usize>,
}

/// The criteria of services; all that are given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindServices {
    /// A port type: its IRI, `{namespace}local`, its local name or the key of its tModel.
    pub interface: Option<String>,
    /// What one operation of the interface must match; `after` and `max_rows` are not evaluated.
    pub operation: FindInterface,
    /// Only services after this key.
    pub after: Option<String>,
    /// Maximum number of results.
    pub max_rows: Option<usize>,
}

/// A port type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its IRI.
    pub iri: String,
    /// Its local name.
    pub name: String,
    /// Its tModels, one for each publisher.
    pub tmodels: Vec<TModelKey>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its IRI.
    pub iri: String,
    /// Its local name.
    pub name: String,
    /// The IRI of its port type.
    pub interface: String,
    /// `one-way`, `request-response`, `notification` or `solicit-response`.
    pub pattern: String,
}

/// A message of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationMessage {
    /// The IRI of the input, output or fault.
    pub iri: String,
    /// The IRI of the message.
    pub message: String,
    /// Its local name; empty if its document is not known.
    pub name: String,
    /// Its WS-Addressing action.
    pub action: String,
    /// Its parts.
    pub parts: Vec<MessagePart>,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePart {
    /// Its IRI.
    pub iri: String,
    /// Its local name.
    pub name: String,
    /// The IRI of its element.
    pub element: Option<String>,
    /// The IRI of its type.
    pub type_definition: Option<String>,
    /// What it means: IRIs.
    pub meanings: Vec<String>,
}

impl Inquiry {
    /// The operations of the document at a URL, or with this key.
    ///
    /// # Errors
    /// `E_invalidKeyPassed` if there is no such document; `E_messageTooLarge`.
    pub fn operations_at(&self, url: &str) -> Result<Vec<Operation>, Error> {
        self.ask(|graph| {
            let key = read::key_at(graph, url).ok_or_else(|| unknown(url))?;
            let document = graph.state.dictionary.iri(&key);
            let fields = document.and_then(|id| graph.state.fields(id));
            let defined = fields.iter().flat_map(|fields| fields.objects(v::DEFINES));
            let operations = defined.flat_map(|part| graph.objects(part, v::OPERATION));
            Ok(in_order(
                operations,
                |id| operation(graph, id),
                |it| &it.iri,
            ))
        })
    }

    /// The inputs, outputs or faults of an operation, given by its IRI.
    ///
    /// # Errors
    /// `E_invalidKeyPassed` if there is no such operation; `E_messageTooLarge`.
    pub fn messages_of(
        &self,
        operation: &str,
        exchange: Exchange,
    ) -> Result<Vec<OperationMessage>, Error> {
        self.ask(|graph| {
            let id = graph.state.dictionary.iri(operation);
            let id = id.filter(|id| !graph.subjects(v::OPERATION, *id).is_empty());
            let id = id.ok_or_else(|| {
                let shown: String = operation.chars().take(200).collect();
                let detail = format!("there is no operation {shown:?}");
                Error::new(ErrorCode::InvalidKeyPassed, detail)
            })?;
            let found = graph.objects(id, exchange.predicate()).into_iter();
            let read = |id| Some(message(graph, id));
            Ok(in_order(found, read, |it| &it.iri))
        })
    }

    /// The port types with an operation that matches.
    ///
    /// # Errors
    /// `E_messageTooLarge`.
    pub fn find_interfaces(&self, ask: &FindInterface) -> Result<List<Interface>, Error> {
        self.ask(|graph| {
            let found = match operations(graph, ask) {
                Some(operations) => graph.subjects_of(v::OPERATION, &operations),
                None => all_interfaces(graph),
            };
            Ok(page(
                graph,
                found,
                ask.after.as_deref(),
                ask.max_rows,
                |id| interface(graph, id),
            ))
        })
    }

    /// The operations with a part in one of their messages.
    ///
    /// # Errors
    /// `E_messageTooLarge`.
    pub fn find_operations(&self, ask: &FindOperation) -> Result<List<Operation>, Error> {
        self.ask(|graph| {
            let parts = parts(graph, &ask.part);
            let exchanges = match ask.direction {
                Direction::Any => vec![Exchange::Input, Exchange::Output, Exchange::Fault],
                Direction::Only(one) => vec![one],
            };
            let mut found = BTreeSet::new();
            for exchange in exchanges {
                found.extend(operations_of_parts(graph, &parts, exchange));
            }
            Ok(page(
                graph,
                found,
                ask.after.as_deref(),
                ask.max_rows,
                |id| operation(graph, id),
            ))
        })
    }

    /// The businessServices with a binding to the tModel of an interface that matches.
    ///
    /// # Errors
    /// `E_messageTooLarge`.
    pub fn find_services(&self, ask: &FindServices) -> Result<List<ServiceInfo>, Error> {
        self.ask(|graph| {
            let by_operation = operations(graph, &ask.operation)
                .map(|operations| graph.subjects_of(v::OPERATION, &operations));
            let by_name = ask.interface.as_deref().map(|name| interfaces(graph, name));
            let found = match (by_name, by_operation) {
                (Some(one), Some(other)) => one.intersection(&other).copied().collect(),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => all_interfaces(graph),
            };
            let tmodels = found.iter().flat_map(|id| graph.objects(*id, v::TMODEL));
            let tmodels: BTreeSet<Id> = tmodels.collect();
            let bindings = tmodels.iter().flat_map(|id| graph.bindings_of_tmodel(*id));
            let services = bindings.filter_map(|id| graph.parent_of_binding(id));
            let services: BTreeSet<Id> = services.collect();
            Ok(page(
                graph,
                services,
                ask.after.as_deref(),
                ask.max_rows,
                |id| find::service_info(graph, id),
            ))
        })
    }
}

/// A part of the results in the order of their IRIs.
fn page<T>(
    graph: &Graph<'_>,
    found: BTreeSet<Id>,
    after: Option<&str>,
    max_rows: Option<usize>,
    read: impl Fn(Id) -> Option<T>,
) -> List<T> {
    let keyed = found
        .into_iter()
        .map(|id| (graph.state.dictionary.value(id), id));
    let mut keyed: Vec<(&str, Id)> = keyed
        .filter(|(key, _)| after.is_none_or(|after| *key > after))
        .collect();
    keyed.sort_unstable();
    let limit = max_rows.unwrap_or(MAX_ROWS).min(MAX_ROWS);
    let is_truncated = keyed.len() > limit;
    let items = keyed.into_iter().take(limit).filter_map(|(_, id)| {
        graph.charge(256);
        read(id)
    });
    List {
        items: items.collect(),
        is_truncated,
    }
}

fn in_order<T>(
    ids: impl Iterator<Item = Id>,
    read: impl Fn(Id) -> Option<T>,
    key: impl Fn(&T) -> &String,
) -> Vec<T> {
    let mut all: Vec<T> = ids.filter_map(read).collect();
    all.sort_by(|one, other| key(one).cmp(key(other)));
    all.dedup_by(|one, other| key(one) == key(other));
    all
}

fn interface(graph: &Graph<'_>, id: Id) -> Option<Interface> {
    let tmodels = graph.objects(id, v::TMODEL).into_iter();
    let tmodels = tmodels.filter_map(|id| TModelKey::from_iri(graph.state.dictionary.value(id)));
    Some(Interface {
        iri: graph.value(id),
        name: graph.value_of(id, v::NAME)?,
        tmodels: tmodels.collect(),
    })
}

fn operation(graph: &Graph<'_>, id: Id) -> Option<Operation> {
    let of = graph.subjects(v::OPERATION, id).into_iter().next()?;
    Some(Operation {
        iri: graph.value(id),
        name: graph.value_of(id, v::NAME)?,
        interface: graph.value(of),
        pattern: graph.value_of(id, v::PATTERN).unwrap_or_default(),
    })
}

fn message(graph: &Graph<'_>, id: Id) -> OperationMessage {
    let message = graph.object(id, v::MESSAGE);
    let parts = message.map(|message| graph.objects(message, v::PART));
    let parts = parts.unwrap_or_default().into_iter();
    let text = |id, predicate| graph.value_of(id, predicate);
    OperationMessage {
        iri: graph.value(id),
        message: message.map(|id| graph.value(id)).unwrap_or_default(),
        name: message.and_then(|id| text(id, v::NAME)).unwrap_or_default(),
        action: text(id, v::ACTION).unwrap_or_default(),
        parts: in_order(parts, |id| Some(part(graph, id)), |it| &it.iri),
    }
}

fn part(graph: &Graph<'_>, id: Id) -> MessagePart {
    let mut meant = BTreeSet::from([id]);
    for predicate in [v::ELEMENT, v::TYPE] {
        let of: Vec<Id> = meant.iter().copied().collect();
        meant.extend(of.into_iter().flat_map(|id| graph.objects(id, predicate)));
    }
    let meanings = meant
        .into_iter()
        .flat_map(|id| graph.objects(id, v::MODEL_REFERENCE));
    let meanings: BTreeSet<String> = meanings.map(|id| graph.value(id)).collect();
    MessagePart {
        iri: graph.value(id),
        name: graph.value_of(id, v::NAME).unwrap_or_default(),
        element: graph.value_of(id, v::ELEMENT),
        type_definition: graph.value_of(id, v::TYPE),
        meanings: meanings.into_iter().collect(),
    }
}

fn all_interfaces(graph: &Graph<'_>) -> BTreeSet<Id> {
    let class = graph.state.dictionary.iri(v::PORT_TYPE_CLASS.as_str());
    let found = class.map(|class| graph.subjects(crate::vocabulary::RDF_TYPE, class));
    let found = found.unwrap_or_default().into_iter();
    // Anybody can name a class; only documents give names.
    found
        .filter(|id| graph.object(*id, v::NAME).is_some())
        .collect()
}

/// `{namespace}local` as two texts.
fn expanded(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix('{')?.split_once('}')
}

/// The parts of documents with this local name.
fn named(graph: &Graph<'_>, name: &str) -> BTreeSet<Id> {
    let name = graph.state.dictionary.text(name);
    name.map(|name| graph.subjects(v::NAME, name))
        .unwrap_or_default()
}

/// The port types that a text names.
fn interfaces(graph: &Graph<'_>, name: &str) -> BTreeSet<Id> {
    let dictionary = &graph.state.dictionary;
    if let Some(key) = TModelKey::parse(name) {
        let key = dictionary.iri(&key.iri());
        return key
            .map(|key| graph.subjects(v::TMODEL, key))
            .unwrap_or_default();
    }
    let iri = match expanded(name) {
        Some((namespace, local)) => id::port_type(namespace, local).map(|iri| iri.into_string()),
        None => Some(name.to_owned()),
    };
    let mut found: BTreeSet<Id> = iri
        .and_then(|iri| dictionary.iri(&iri))
        .into_iter()
        .collect();
    found.extend(named(graph, name));
    let class = dictionary.iri(v::PORT_TYPE_CLASS.as_str());
    found.retain(|id| {
        class.is_some_and(|class| graph.says(*id, crate::vocabulary::RDF_TYPE, class))
    });
    found
}

/// The operations that match all criteria; `None` without any.
fn operations(graph: &Graph<'_>, ask: &FindInterface) -> Option<BTreeSet<Id>> {
    let by_name = ask.operation.as_deref().map(|name| {
        let mut found: BTreeSet<Id> = graph.state.dictionary.iri(name).into_iter().collect();
        found.extend(named(graph, name));
        found.retain(|id| !graph.subjects(v::OPERATION, *id).is_empty());
        found
    });
    let by_part = |asked: Option<&String>, exchange| {
        let parts = asked.map(|asked| parts(graph, asked))?;
        Some(operations_of_parts(graph, &parts, exchange))
    };
    let all = [
        by_name,
        by_part(ask.input.as_ref(), Exchange::Input),
        by_part(ask.output.as_ref(), Exchange::Output),
    ];
    let both = |one: BTreeSet<Id>, other: BTreeSet<Id>| one.intersection(&other).copied().collect();
    all.into_iter().flatten().reduce(both)
}

fn operations_of_parts(
    graph: &Graph<'_>,
    parts: &BTreeSet<Id>,
    exchange: Exchange,
) -> BTreeSet<Id> {
    let messages = graph.subjects_of(v::PART, parts);
    let exchanges = graph.subjects_of(v::MESSAGE, &messages);
    graph.subjects_of(exchange.predicate(), &exchanges)
}

/// The message parts that a text names, or that mean it.
fn parts(graph: &Graph<'_>, text: &str) -> BTreeSet<Id> {
    let dictionary = &graph.state.dictionary;
    let mut roots: BTreeSet<Id> = BTreeSet::new();
    match expanded(text) {
        Some((namespace, local)) => {
            let iris = [
                id::element(namespace, local),
                id::type_definition(namespace, local),
            ];
            let iris = iris.into_iter().flatten();
            roots.extend(iris.filter_map(|iri| dictionary.iri(iri.as_str())));
        }
        None => {
            if let Some(iri) = dictionary.iri(text) {
                roots.extend(graph.subjects(v::MODEL_REFERENCE, iri));
                roots.insert(iri);
            }
            roots.extend(named(graph, text));
        }
    }
    // A type is that of elements and of parts, an element that of parts.
    let of_type = graph.subjects_of(v::TYPE, &roots);
    roots.extend(of_type);
    let of_element = graph.subjects_of(v::ELEMENT, &roots);
    roots.extend(of_element);
    roots
}
