//! Metadata: what anyone says about an entity, each statement with its author.
//!
//! A [`Piece`] has a key of its own, a subject, a type, a value, an author and a date. It is an
//! entity, whose key names the graph of its triples, so access rules, the journal, search and SPARQL
//! apply to it; attaching, updating or deleting one rewrites neither its subject nor other pieces. An
//! [`Annotator`] changes pieces; [`Metadata`] reads them and finds what they are about. [`message`] has
//! the messages of SOAP.
//!
//! Subjects are all entities (UDDI structures, devices, streams, sensors, other pieces) and the parts
//! of WSDL documents ([`WsdlPart`]). A piece outlives its subject, because devices leave and return
//! under the same key. While the subject does not exist, the piece is unreachable: only its author
//! and the operator read it.
//!
//! Source: the interfaces of GRIMOIRES 1.7 (`metadata.xsd`, `metadata_uddi.xsd`,
//! `metadata_wsdl.xsd`). Its queries in RDQL are SPARQL here.
//!
//! ```
//! use chappe_identity::Role;
//! use chappe_registry::metadata::{Annotator, Criterion, Draft, Value};
//! use chappe_registry::{Entity, EntityKind, MemoryJournal, Principal, Registry};
//!
//! let registry = Registry::open(MemoryJournal::new())?;
//! registry.publish(Entity::new("urn:device:7", EntityKind::Device, "Pump"))?.wait()?;
//! let mut random = || 1;
//! let reader = Principal::account("ada", [], [Role::Write]);
//! let mut ada = Annotator::new(&registry, "ada", reader, 0, &mut random);
//! let draft = Draft {
//!     key: None,
//!     subject: "urn:device:7".into(),
//!     piece_type: "urn:trust".into(),
//!     value: Value::Text("calibrated".into()),
//!     rule: None,
//!     lease_s: None,
//! };
//! ada.attach(&draft)?.wait()?;
//! let calibrated = Criterion {
//!     piece_type: Some("urn:trust".into()),
//!     value: Some(Value::Text("calibrated".into())),
//!     authors: vec!["ada".into()],
//!     ..Criterion::default()
//! };
//! let metadata = registry.metadata(&Principal::Anonymous);
//! assert_eq!(metadata.entities(&[calibrated], None, 10)?.items, ["urn:device:7"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod annotate;
mod error;
mod find;
pub mod message;
mod operations;
mod piece;
mod wsdl_part;

pub use annotate::{Annotator, Changed, Draft};
pub use error::Error;
pub use find::{Criterion, DEFAULT_PAGE, MAX_CRITERIA, MAX_PAGE, Metadata, Page};
pub use operations::{FindMessage, FindOperations};
pub use piece::{Piece, Value};
pub use wsdl_part::WsdlPart;
