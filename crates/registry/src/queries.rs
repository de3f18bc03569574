//! Searches and SPARQL of a [`Registry`], over a snapshot of what is in memory.

use chappe_identity::Principal;

use crate::entity::Entity;
use crate::facets::{self, FacetLimits, Facets};
use crate::limits::{Interrupt, SparqlError, SparqlLimits};
use crate::registry::Registry;
use crate::results::SparqlAnswer;
use crate::search::{Search, SearchResult};
use crate::sparql::{Cost, SparqlRequest};
use crate::surroundings::{self, NeighbourPage, Surroundings};

impl Registry {
    /// Finds entities by their fields.
    #[must_use]
    pub fn search(&self, search: &Search, principal: &Principal) -> SearchResult {
        crate::search::run(&self.snapshot(), search, principal)
    }

    /// The keys of all entities that match, in the order of [`Registry::search`], without its limit unless
    /// `search` names one.
    #[must_use]
    pub fn search_keys(&self, search: &Search, principal: &Principal) -> Vec<String> {
        crate::search::keys(&self.snapshot(), search, principal)
    }

    /// Counts the facets of all entities that match; position and limit of the search do not count. `keep`
    /// leaves out further entities, which takes longer.
    #[must_use]
    pub fn facets(
        &self,
        search: &Search,
        principal: &Principal,
        limits: FacetLimits,
        keep: Option<&dyn Fn(&Entity) -> bool>,
    ) -> Facets {
        let search = Search {
            after: None,
            limit: None,
            ..search.clone()
        };
        facets::count(&self.snapshot(), &search, principal, limits, keep)
    }

    /// The entities that the entity `key` names, and those that name it; `None` if `principal` may not see it.
    ///
    /// # Errors
    /// [`SparqlError::Interrupted`].
    pub fn surroundings(
        &self,
        key: &str,
        principal: &Principal,
        page: NeighbourPage<'_>,
        interrupt: &Interrupt,
    ) -> Result<Option<Surroundings>, SparqlError> {
        surroundings::page(&self.snapshot(), key, principal, page, interrupt)
    }

    /// The search with the subclasses of its type and the subproperties and subclasses of its observed
    /// property, as the visible ontologies of these authors state them.
    ///
    /// # Errors
    /// [`SparqlError`]: a hierarchy exceeds a limit.
    pub fn widened(
        &self,
        mut search: Search,
        authors: &[String],
        principal: &Principal,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<Search, SparqlError> {
        let state = self.snapshot();
        let bounds = (limits, interrupt);
        let narrower =
            |iri: &str| crate::inference::narrower(&state, iri, authors, principal, bounds);
        if let Some(class) = search.entity_type.as_deref().and_then(crate::state::class) {
            search.classes = narrower(class.as_str())?;
        }
        if let Some(property) = &search.observed_property {
            search.observed_properties = narrower(property)?;
        }
        Ok(search)
    }

    /// Answers a SPARQL 1.1 query over the triples that `principal` may see. Blocks
    /// the calling thread; a deep query is evaluated on its own thread with a larger stack.
    ///
    /// # Errors
    /// [`SparqlError`]: the query is invalid, not supported, or exceeds a limit.
    pub fn sparql(
        &self,
        query: &str,
        principal: &Principal,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<SparqlAnswer, SparqlError> {
        self.sparql_with_cost(query, principal, limits, interrupt)
            .map(|(answer, _)| answer)
    }

    /// Answers a query over the triples that entities of these owners bring, as far as `principal`
    /// may see them; other entities bring none, neither about themselves nor about others.
    ///
    /// # Errors
    /// As [`Registry::sparql`].
    pub fn sparql_of(
        &self,
        query: &str,
        principal: &Principal,
        owners: &[String],
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<SparqlAnswer, SparqlError> {
        let request = SparqlRequest {
            owners: Some(owners.to_vec()),
            ..query.into()
        };
        let answer = self.answer(&request, principal, limits, interrupt);
        answer.map(|(answer, _)| answer)
    }

    /// Like [`Registry::sparql`], with the cost of the answer.
    ///
    /// # Errors
    /// As [`Registry::sparql`].
    pub fn sparql_with_cost(
        &self,
        query: &str,
        principal: &Principal,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<(SparqlAnswer, Cost), SparqlError> {
        self.answer(&query.into(), principal, limits, interrupt)
    }

    /// Answers a query with the choices of its request, and returns the cost.
    ///
    /// # Errors
    /// As [`Registry::sparql`].
    pub fn answer(
        &self,
        request: &SparqlRequest,
        principal: &Principal,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<(SparqlAnswer, Cost), SparqlError> {
        let state = self.snapshot();
        crate::sparql::run(&state, request, principal, limits, interrupt)
    }
}
