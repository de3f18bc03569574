//! Runs requests.

use std::collections::HashSet;

use super::{Answer, Part, Request};
use crate::metadata::annotate::{Annotator, Changed};
use crate::metadata::find::{Criterion, DEFAULT_PAGE, MAX_PAGE, Metadata, Page};
use crate::metadata::wsdl_part::{WsdlPart, is_part};
use crate::uddi::{Error, ErrorCode, Inquiry};
use crate::uddi_keys::UddiClass;
use crate::vocabulary;

/// Maximum number of services with the metadata of one find_service.
const SERVICES_MAX: usize = 100_000;

/// The types of entities, as IRIs.
fn entity_types() -> Vec<String> {
    let classes = crate::EntityKind::ALL.map(vocabulary::class);
    let uddi = [
        UddiClass::Business,
        UddiClass::Service,
        UddiClass::Binding,
        UddiClass::TModel,
    ];
    let uddi = uddi.map(UddiClass::type_name);
    let uddi = uddi.iter().filter_map(|name| crate::state::class(name));
    let parts = [vocabulary::WSDL_OPERATION, vocabulary::WSDL_MESSAGE_PART];
    uddi.map(|class| class.into_string())
        .chain(classes.iter().map(|class| class.as_str().to_owned()))
        .chain(parts.map(|class| class.as_str().to_owned()))
        .collect()
}

impl Part {
    fn limit(&self) -> usize {
        self.max_rows.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE)
    }

    fn after(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

impl Metadata {
    /// Runs a request that changes nothing.
    ///
    /// # Errors
    /// Those of the request; `E_unsupported` for one that changes something.
    pub fn answer(&self, request: &Request) -> Result<Answer, Error> {
        Ok(match request {
            Request::Detail(key) => Answer::Piece(Box::new(self.piece(key)?)),
            Request::OfEntity(subject, part) => {
                Answer::Pieces(self.of_subject(subject, part.after(), part.limit())?)
            }
            Request::FindEntities(asked, part) => {
                let page = self.entities(asked, part.after(), part.limit())?;
                let typed = page.items.into_iter().map(|key| {
                    let entity_type = self.type_of(&key);
                    (key, entity_type)
                });
                Answer::Entities(Page {
                    items: typed.collect(),
                    next: page.next,
                    entries_read: page.entries_read,
                })
            }
            Request::EntityTypes => Answer::Uris(Page {
                items: entity_types(),
                next: None,
                entries_read: 0,
            }),
            Request::FindService(ask, asked) => {
                let among = match asked.as_slice() {
                    [] => None,
                    asked => Some(self.services(asked)?),
                };
                let inquiry = Inquiry::of(self.shared_state(), self.principal().clone());
                Answer::Services(inquiry.find_service_among(ask, among)?)
            }
            Request::FindOperations(ask, part) if ask.needs_documents() => {
                Answer::Operations(self.find_operations(ask, part.after(), part.limit())?)
            }
            Request::FindOperations(ask, part) => {
                Answer::Operations(self.operations(&ask.metadata, part, &ask.names)?)
            }
            Request::FindInterfacesByPart(asked, part) => {
                let (after, limit) = (part.after(), part.limit());
                Answer::Uris(self.interfaces_by_message_part(asked, after, limit)?)
            }
            Request::FindInterfaces(asked, part) => {
                let page = self.operations(asked, part, &[])?;
                // Operations of one interface follow each other.
                let interfaces = page.items.iter().filter_map(WsdlPart::interface);
                let mut interfaces: Vec<String> = interfaces.map(|one| one.iri()).collect();
                interfaces.dedup();
                Answer::Uris(Page {
                    items: interfaces,
                    next: page.next,
                    entries_read: page.entries_read,
                })
            }
            Request::Attach(_) | Request::Delete(_) => {
                let detail = "the request changes something";
                return Err(Error::new(ErrorCode::Unsupported, detail));
            }
        })
    }

    /// The type of an entity that was found.
    fn type_of(&self, key: &str) -> String {
        match WsdlPart::parse(key) {
            Some(WsdlPart::Operation { .. }) => {
                return vocabulary::WSDL_OPERATION.as_str().to_owned();
            }
            Some(WsdlPart::MessagePart { .. }) => {
                return vocabulary::WSDL_MESSAGE_PART.as_str().to_owned();
            }
            _ if is_part(key) => return vocabulary::WSDL_PART.as_str().to_owned(),
            _ => {}
        }
        let state = self.state();
        let fields = state.dictionary.iri(key).and_then(|id| state.fields(id));
        let uddi = fields.as_ref().and_then(|fields| fields.uddi_class());
        let uddi = uddi.and_then(|class| crate::state::class(class.type_name()));
        match (uddi, fields) {
            (Some(class), _) => class.into_string(),
            (None, Some(fields)) => vocabulary::class(fields.kind()).as_str().to_owned(),
            (None, None) => String::new(),
        }
    }

    /// The services of UDDI that have these pieces.
    fn services(&self, asked: &[Criterion]) -> Result<HashSet<u32>, Error> {
        let state = self.state();
        let id_of = |key: &str| {
            let id = state.dictionary.iri(key)?;
            let class = state.fields(id)?.uddi_class();
            (class == Some(UddiClass::Service)).then_some(id)
        };
        let (mut found, mut after) = (HashSet::new(), None);
        loop {
            let wanted = |key: &str| id_of(key).is_some();
            let page = self.entities_where(asked, after.as_deref(), MAX_PAGE, wanted)?;
            found.extend(page.items.iter().filter_map(|key| id_of(key)));
            if found.len() > SERVICES_MAX {
                let detail = format!("more than {SERVICES_MAX} services have this metadata");
                return Err(Error::new(ErrorCode::MessageTooLarge, detail));
            }
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// The operations that have these pieces, and one of these names if there are any.
    fn operations(
        &self,
        asked: &[Criterion],
        part: &Part,
        names: &[String],
    ) -> Result<Page<WsdlPart>, Error> {
        let wanted = |key: &str| match WsdlPart::parse(key) {
            Some(WsdlPart::Operation { name, .. }) => names.is_empty() || names.contains(&name),
            _ => false,
        };
        let page = self.entities_where(asked, part.after(), part.limit(), wanted)?;
        let parts = page.items.iter().filter_map(|key| WsdlPart::parse(key));
        Ok(Page {
            items: parts.collect(),
            next: page.next,
            entries_read: page.entries_read,
        })
    }
}

impl Annotator<'_> {
    /// Runs a request that changes something; returns the key of the piece with the answer.
    ///
    /// # Errors
    /// Those of the request; `E_unsupported` for one that changes nothing.
    pub fn answer(&mut self, request: &Request) -> Result<Changed<(String, Answer)>, Error> {
        Ok(match request {
            Request::Attach(draft) => {
                let changed = self.attach(draft)?;
                Changed {
                    value: (
                        changed.value.key.clone(),
                        Answer::Piece(Box::new(changed.value)),
                    ),
                    publication: changed.publication,
                }
            }
            Request::Delete(key) => {
                let changed = self.delete(key)?;
                Changed {
                    value: (changed.value.key, Answer::Success),
                    publication: changed.publication,
                }
            }
            _ => {
                let detail = "the request changes nothing";
                return Err(Error::new(ErrorCode::Unsupported, detail));
            }
        })
    }
}
