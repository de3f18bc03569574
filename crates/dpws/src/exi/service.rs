//! The schemas of services, and the grammars made of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use chappe_exi::{MessageSchema, Schema, XsdSource};
use chappe_soap::{schema, wsdl};
use chappe_xml::{Element, Limits};

use super::coder::{Coder, DecodeError};

/// The longest documents of one service of which grammars are made. Reason: typed services have tens of KiB; an SDC
/// device has megabytes, of whose grammars one message uses little.
const DOCUMENTS_BYTES_MAX: usize = 256 << 10;
/// The largest grammars. Reason: a tenth of the default, which limits the time to compile what a stranger wrote.
const GRAMMAR_STATES_MAX: usize = 20_000;
/// The longest documents that are compiled where they are used. Reason: that takes some milliseconds, and a thread for it
/// half a megabyte of a small device.
const SHORT_BYTES_MAX: usize = 8 << 10;
/// Schemas that one end knows; then the oldest is forgotten. Reason: three devices of 20 services each.
pub const SCHEMAS_MAX: usize = 64;

/// The schemas of a service, compiled with those of `dev1` when they are first used.
///
/// Its name in streams is a digest of the grammars that come of it: both ends make them of the WSDL that the service
/// serves, and the same name means the same grammars. So nothing else has to be said: a client that read the WSDL just
/// uses the schema, and an end that has another one refuses the message unread, which leads back to `dev1`. Prefixes,
/// comments and documentation of the documents make no difference.
///
/// Clones are the same schema.
#[derive(Clone)]
pub struct ServiceSchema(Arc<Inner>);

struct Inner {
    documents: Vec<String>,
    coder: OnceLock<Option<Coder>>,
}

impl ServiceSchema {
    /// The schema in these documents: a WSDL with schemas inside, and schemas.
    #[must_use]
    pub fn new<'d>(documents: impl IntoIterator<Item = &'d str>) -> Self {
        let documents: Vec<&str> = documents.into_iter().collect();
        let bytes = documents.iter().map(|text| text.len()).sum::<usize>();
        let documents = match bytes <= DOCUMENTS_BYTES_MAX {
            true => documents.into_iter().map(str::to_owned).collect(),
            false => Vec::new(),
        };
        Self(Arc::new(Inner {
            documents,
            coder: OnceLock::new(),
        }))
    }

    /// Its name in streams; `None` if no grammars can be made of the documents, which are then too large, broken, or
    /// without a schema.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.coder().map(Coder::id)
    }

    /// Whether its grammars are made, so that its use takes no longer than a message does.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.0.coder.get().is_some()
    }

    /// Whether its use takes so long that it should be on another thread: its documents are long, and not compiled yet.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        self.uncompiled_bytes() > SHORT_BYTES_MAX
    }

    /// The length of its documents, if they are not compiled yet.
    fn uncompiled_bytes(&self) -> usize {
        match self.is_compiled() {
            true => 0,
            false => self.0.documents.iter().map(String::len).sum(),
        }
    }

    /// Encodes the text of a message; `None` if it does not fit the schema, or does not get shorter.
    #[must_use]
    pub fn encode(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.coder()?.encode(text)
    }

    pub(super) fn decode(&self, stream: &[u8], limits: Limits) -> Result<String, DecodeError> {
        match self.coder() {
            Some(coder) => coder.decode(stream, limits),
            None => Err(DecodeError::OtherSchema(String::new())),
        }
    }

    pub(super) fn coder(&self) -> Option<&Coder> {
        let made = self.0.coder.get_or_init(|| compile(&self.0.documents));
        made.as_ref()
    }
}

impl PartialEq for ServiceSchema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ServiceSchema {}

impl fmt::Debug for ServiceSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self
            .0
            .coder
            .get()
            .map(|coder| coder.as_ref().map(Coder::id));
        f.debug_tuple("ServiceSchema").field(&id).finish()
    }
}

fn compile(documents: &[String]) -> Option<Coder> {
    let mut sources = Vec::new();
    for document in documents {
        let limits = Limits {
            bytes: document.len(),
            ..Limits::default()
        };
        let root = Element::parse_within(document.as_bytes(), limits).ok()?;
        let schemas = match root.name.is(schema::NAMESPACE, "schema") {
            true => vec![root],
            false if root.name.is(wsdl::NAMESPACE, "definitions") => {
                wsdl::Wsdl::from_element(&root).ok()?.schemas
            }
            false => continue,
        };
        for schema in schemas {
            sources.push(XsdSource {
                name: format!("schema {}", sources.len()),
                document: schema.to_text().into_bytes(),
            });
        }
    }
    if sources.is_empty() {
        return None;
    }
    let limits = chappe_exi::Limits {
        grammar_states: GRAMMAR_STATES_MAX,
        ..chappe_exi::Limits::default()
    };
    let schema = Schema::for_messages_with(MessageSchema::Devices, sources, &limits).ok()?;
    // Twelve bytes: two schemas of a network do not get one name by chance, and whoever makes them do so on purpose
    // confuses only messages of their own.
    let digest = chappe_identity::id_of_bytes(&schema.to_bytes());
    let id = chappe_identity::hex_encode(&digest[..12]);
    Some(Coder::new(schema.with_id(&id), true))
}

/// The schemas of services by which one end takes messages, at most [`SCHEMAS_MAX`]. Clones share them. A message finds
/// only those that are compiled.
#[derive(Debug, Clone, Default)]
pub struct ServiceSchemas(Arc<Mutex<VecDeque<ServiceSchema>>>);

impl ServiceSchemas {
    /// Adds a schema, unless it is among them.
    pub fn add(&self, schema: &ServiceSchema) {
        let mut known = self.known();
        if known.contains(schema) {
            return;
        }
        if known.len() >= SCHEMAS_MAX {
            known.pop_front();
        }
        known.push_back(schema.clone());
    }

    /// Replaces all schemas.
    pub fn set(&self, schemas: impl IntoIterator<Item = ServiceSchema>) {
        *self.known() = schemas.into_iter().take(SCHEMAS_MAX).collect();
    }

    /// Compiles those that were never used. It takes milliseconds for each.
    pub fn compile(&self) {
        let mut known = self.known().clone();
        known.retain(|schema| !schema.is_compiled());
        // Not under the lock.
        for schema in &known {
            schema.coder();
        }
    }

    /// Whether [`compile`](Self::compile) takes so long that it should be on another thread.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        let bytes = self
            .known()
            .iter()
            .map(ServiceSchema::uncompiled_bytes)
            .sum::<usize>();
        bytes > SHORT_BYTES_MAX
    }

    /// Whether some were never used.
    #[must_use]
    pub fn must_compile(&self) -> bool {
        self.known().iter().any(|schema| !schema.is_compiled())
    }

    /// The compiled schema of this name, the latest first.
    pub(super) fn with_id(&self, id: &str) -> Option<ServiceSchema> {
        let known = self.known();
        let mut latest = known.iter().rev();
        let is_it = |schema: &&ServiceSchema| {
            let coder = schema.0.coder.get();
            coder.is_some_and(|coder| coder.as_ref().is_some_and(|coder| coder.id() == id))
        };
        latest.find(is_it).cloned()
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<ServiceSchema>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<ServiceSchema> for ServiceSchemas {
    fn from(schema: ServiceSchema) -> Self {
        let schemas = Self::default();
        schemas.add(&schema);
        schemas
    }
}
