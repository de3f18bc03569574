//! Semantic registry: entities and triples in ordered indexes, SPARQL, journal, change feed.
//!
//! A [`Registry`] holds [`Entity`]s: nodes, devices, services, streams, virtual sensors, or statements
//! about one of these. Their fields and triples form one graph. [`Registry::search`] finds entities by
//! name, type, scope or meaning, [`Registry::sparql`] answers queries, and [`Registry::subscribe`]
//! follows changes. Each answer is computed as if entities that the caller may not see did not exist.
//!
//! [`uddi`] is the model of UDDI v2 on top: businesses, services, bindings and tModels, saved by
//! requests that are one batch each, and its inquiries. [`wsdl`] keeps WSDL documents and maps them to it.
//!
//! [`metadata`] holds the pieces of metadata that anyone attaches to entities, each with its author.
//!
//! Everything is in memory and recorded in a [`Journal`]; with [`LogJournal`] it survives power loss.
//!
//! ```
//! use chappe_identity::Principal;
//! use chappe_registry::{Entity, EntityKind, MemoryJournal, Registry, Search};
//!
//! let registry = Registry::open(MemoryJournal::new())?;
//! registry.publish(Entity::new("urn:uuid:1", EntityKind::Device, "Heart monitor"))?.wait()?;
//! let search = Search { name_prefix: Some("heart".into()), ..Search::default() };
//! assert_eq!(registry.search(&search, &Principal::Anonymous).entities.len(), 1);
//! # Ok::<(), chappe_registry::Error>(())
//! ```
//!
//! An entity may have a lease: [`Registry::renew`] starts it again, and [`Registry::expire`] removes entities
//! whose leases are over, each once however many nodes share the journal.
//!
//! This crate has no signatures.

#![forbid(unsafe_code)]

mod access;
mod budget;
mod dictionary;
mod entity;
mod error;
mod exchange;
mod expression;
mod facets;
mod feed;
mod graph_patterns;
mod graphs;
mod groups;
mod guard;
mod history;
mod inference;
mod journal;
mod keys;
mod lease_clock;
mod limits;
mod log_journal;
mod merged;
pub mod metadata;
mod ordered;
mod partition;
mod pending;
mod piece_keys;
mod plan;
mod queries;
mod rdf_document;
mod record;
mod record_fields;
mod registry;
mod results;
mod rights;
mod rights_changes;
mod scope;
mod search;
mod source;
mod sparql;
mod state;
mod surroundings;
pub mod thing;
mod time;
mod turtle;
pub mod uddi;
mod uddi_keys;
mod view;
pub mod vocabulary;
mod watch;
pub mod wsdl;

pub use access::Access;
pub use chappe_identity::Principal;
pub use entity::{
    Entity, EntityKind, MAX_DOCUMENT_ENTITY_BYTES, MAX_ENTITY_BYTES, MAX_LEASE_S, MAX_LIST,
    MAX_TERM_BYTES, MAX_TEXT_BYTES, MAX_TRIPLES,
};
pub use error::Error;
pub use exchange::{ExportError, Format, ImportError, ImportRules, Imported, MAX_STATEMENT_BYTES};
pub use facets::{Facet, FacetLimits, Facets, MAX_FACET_ENTITIES, MAX_FACET_VALUES};
pub use feed::{Change, FEED_CAPACITY, FeedItem, Subscription};
pub use history::{Differences, History, MAX_SHOWN_TRIPLES, MAX_VERSIONS, Version, VersionChange};
pub use journal::{Journal, JournalError, MemoryJournal, Receipt, Stamped, Tail};
pub use limits::{Interrupt, Room, SparqlError, SparqlLimits};
pub use log_journal::LogJournal;
pub use oxrdf;
pub use rdf_document::{MAX_DOCUMENT_BYTES, ontology, triples_from_document};
pub use registry::{Attempts, Expiry, MAX_BATCH_BYTES, Publication, Registry, Statistics};
pub use results::{ResultFormat, SparqlAnswer};
pub use rights::{Holder, Right, Rights};
pub use scope::is_in_scope;
pub use search::{Category, DEFAULT_SEARCH_LIMIT, MAX_SEARCH_LIMIT, Search, SearchResult};
pub use sparql::{Cost, SparqlRequest};
pub use surroundings::{MAX_NEIGHBOURS, Neighbour, NeighbourPage, Surroundings};
pub use turtle::triples_from_turtle;
pub use watch::{
    MAX_KNOWN, Mark, ResyncReason, Watch, WatchEvent, WatchItem, WatchStart, WatchStep,
    WatchSubject,
};
