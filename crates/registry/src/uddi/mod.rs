//! UDDI v2: businesses, services, bindings, tModels and assertions in the registry.
//!
//! Values ([`BusinessEntity`] and others) become entities with triples in one vocabulary
//! ([`crate::vocabulary::uddi`], docs/reference/registry-graph.md), so SPARQL and access rules apply to them, and
//! come back element for element. A [`Publisher`] changes them, each request as one batch:
//! all of it becomes visible and durable, or none. An [`Inquiry`] finds and reads them.
//!
//! Source: UDDI 2.04 API specification and UDDI 2.03 data structure reference (OASIS, 19 July
//! 2002), schema `uddi_v2.xsd`. docs/evidence/uddi-conformance.md lists the rules with their tests.
//!
//! ```
//! use chappe_registry::uddi::{BusinessEntity, BusinessService, FindService, Publisher, Text};
//! use chappe_registry::{Access, MemoryJournal, Principal, Registry};
//!
//! let registry = Registry::open(MemoryJournal::new())?;
//! let mut bits = 0_u128;
//! let mut random = || { bits += 1; bits };
//! let mut ada = Publisher::new(&registry, "ada", Access::Public, 0, &mut random);
//! let service = BusinessService { names: vec![Text::plain("Heart rate")], ..Default::default() };
//! let business = BusinessEntity {
//!     names: vec![Text::plain("Ward 3")],
//!     services: vec![service],
//!     ..Default::default()
//! };
//! ada.save_business(&[business])?.wait()?;
//! let ask = FindService { names: vec![Text::plain("heart")], ..Default::default() };
//! let found = registry.uddi(&Principal::Anonymous).find_service(&ask)?;
//! assert_eq!(found.items[0].names[0].text, "Heart rate");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`message`] has the messages of SOAP, which a host receives and sends. Not here: authentication
//! tokens, replication and custody transfer.

mod assertion;
mod canonical;
mod checked;
mod decode;
pub(crate) mod draft;
mod encode;
mod error;
mod filter;
pub(crate) mod find;
mod get;
pub(crate) mod graph;
mod key;
pub(crate) mod limits;
pub mod message;
mod name;
mod publisher;
mod qualifier;
pub(crate) mod restore;
pub(crate) mod save;
mod select;
mod taxonomy;
mod value;

use std::collections::HashSet;
use std::sync::Arc;

use chappe_identity::Principal;

pub use assertion::{AssertionStatus, CompletionStatus, FindRelatedBusinesses, RelatedBusiness};
pub use canonical::canonical_tmodels;
pub use error::{Error, ErrorCode, KeyType};
pub use find::{
    BusinessInfo, FindBinding, FindBusiness, FindService, FindTModel, List, MAX_ROWS, ServiceInfo,
    TModelInfo,
};
pub use graph::MAX_ANSWER_BYTES;
pub use key::{
    BindingKey, BusinessKey, GENERAL_KEYWORDS, Key, RELATIONSHIPS, ServiceKey, TModelKey, TYPES,
};
pub(crate) use key::{random_uuid, uuid_iri};
pub use limits::{
    MAX_ADDRESS_LINE_CHARACTERS, MAX_CHILDREN, MAX_ELEMENTS, MAX_NAME_CHARACTERS,
    MAX_PHONE_CHARACTERS, MAX_SORT_CODE_CHARACTERS, MAX_TEXT_CHARACTERS,
};
pub use name::MAX_NAMES;
pub use publisher::{MAX_VALUES, Publisher, RegisteredInfo, Saved};
pub use qualifier::{FindCall, FindQualifiers, SortOrder};
pub use taxonomy::{MAX_TAXONOMY_VALUES, Taxonomies, TaxonomyError, Values};
pub use value::{
    Address, AddressLine, BindingTemplate, BusinessEntity, BusinessService, Contact, DiscoveryUrl,
    Endpoint, InstanceDetails, KeyedReference, Language, MAX_LANGUAGE_CHARACTERS, OverviewDoc,
    PublisherAssertion, Reachable, TModel, TModelInstanceInfo, Text, UrlType,
};

use crate::limits::Interrupt;
#[cfg(doc)]
use crate::limits::SparqlLimits;
use crate::registry::Registry;
use crate::state::State;
use graph::Graph;

/// A value with the name of its publisher (attribute `authorizedName`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned<T> {
    /// The value.
    pub value: T,
    /// The publisher.
    pub authorized_name: String,
}

impl Registry {
    /// Inquiries over what `principal` may see now.
    #[must_use]
    pub fn uddi(&self, principal: &Principal) -> Inquiry {
        Inquiry::of(self.snapshot(), principal.clone())
    }
}

/// Inquiries over one state of the registry, as one principal sees it.
pub struct Inquiry {
    state: Arc<State>,
    principal: Principal,
    interrupt: Interrupt,
}

impl Inquiry {
    /// Inquiries over this state.
    pub(crate) fn of(state: Arc<State>, principal: Principal) -> Self {
        Self {
            state,
            principal,
            interrupt: Interrupt::never(),
        }
    }

    /// The same inquiries, each of which fails with `E_busy` once `interrupt` says so. Without, one fails after as
    /// many steps as a SPARQL query ([`SparqlLimits`]).
    #[must_use]
    pub fn until(self, interrupt: Interrupt) -> Self {
        Self { interrupt, ..self }
    }

    /// find_service among these services; `None`: among all.
    pub(crate) fn find_service_among(
        &self,
        ask: &FindService,
        among: Option<HashSet<u32>>,
    ) -> Result<List<ServiceInfo>, Error> {
        self.ask(|graph| find::services(graph, ask, among))
    }

    /// Runs an inquiry, whose answer and work have limits.
    pub(crate) fn ask<T>(
        &self,
        run: impl FnOnce(&Graph<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let graph = Graph::limited(&self.state, &self.principal, &self.interrupt);
        let answer = run(&graph);
        // Beyond a limit everything looks as if it did not exist.
        graph.check_limits()?;
        answer
    }

    /// find_business.
    ///
    /// # Errors
    /// `E_nameTooLong`, `E_tooManyOptions`; as of all inquiries, `E_messageTooLarge` for an answer of more than
    /// [`MAX_ANSWER_BYTES`], and `E_busy` if it takes too long ([`Inquiry::until`]).
    pub fn find_business(&self, ask: &FindBusiness) -> Result<List<BusinessInfo>, Error> {
        self.ask(|graph| find::businesses(graph, ask))
    }

    /// find_relatedBusinesses.
    ///
    /// # Errors
    /// `E_invalidKeyPassed`, `E_unsupported`.
    pub fn find_related_businesses(
        &self,
        ask: &FindRelatedBusinesses,
    ) -> Result<List<RelatedBusiness>, Error> {
        self.ask(|graph| assertion::related(graph, ask))
    }

    /// find_service.
    ///
    /// # Errors
    /// `E_invalidKeyPassed`, `E_nameTooLong`, `E_tooManyOptions`, `E_unsupported`.
    pub fn find_service(&self, ask: &FindService) -> Result<List<ServiceInfo>, Error> {
        self.ask(|graph| find::services(graph, ask, None))
    }

    /// find_binding.
    ///
    /// # Errors
    /// `E_invalidKeyPassed`, `E_unsupported`.
    pub fn find_binding(&self, ask: &FindBinding) -> Result<List<BindingTemplate>, Error> {
        self.ask(|graph| find::bindings(graph, ask))
    }

    /// find_tModel; hidden tModels are not found.
    ///
    /// # Errors
    /// `E_nameTooLong`, `E_unsupported`.
    pub fn find_tmodel(&self, ask: &FindTModel) -> Result<List<TModelInfo>, Error> {
        self.ask(|graph| find::tmodels(graph, ask))
    }

    /// get_bindingDetail.
    ///
    /// # Errors
    /// `E_invalidKeyPassed`, `E_tooManyOptions` for more than [`MAX_ROWS`] keys.
    pub fn binding_detail(&self, keys: &[BindingKey]) -> Result<Vec<BindingTemplate>, Error> {
        self.ask(|graph| get::bindings(graph, keys))
    }

    /// get_businessDetail and get_businessDetailExt.
    ///
    /// # Errors
    /// As [`Inquiry::binding_detail`].
    pub fn business_detail(
        &self,
        keys: &[BusinessKey],
    ) -> Result<Vec<Owned<BusinessEntity>>, Error> {
        self.ask(|graph| get::businesses(graph, keys))
    }

    /// get_serviceDetail.
    ///
    /// # Errors
    /// As [`Inquiry::binding_detail`].
    pub fn service_detail(&self, keys: &[ServiceKey]) -> Result<Vec<BusinessService>, Error> {
        self.ask(|graph| get::services(graph, keys))
    }

    /// get_tModelDetail; also of hidden tModels.
    ///
    /// # Errors
    /// As [`Inquiry::binding_detail`].
    pub fn tmodel_detail(&self, keys: &[TModelKey]) -> Result<Vec<Owned<TModel>>, Error> {
        self.ask(|graph| get::tmodels(graph, keys))
    }
}

impl std::fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inquiry")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}
