//! Finding entities by their fields, all of which must match.

use chappe_identity::Principal;

use crate::entity::{Entity, EntityKind};
use crate::state::State;

/// Entities returned when a search names no limit.
pub const DEFAULT_SEARCH_LIMIT: usize = 100;
/// Most entities one search returns, whatever it asks for.
pub const MAX_SEARCH_LIMIT: usize = 10_000;

/// What to look for; an absent field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Beginning of the name, whatever the case (UDDI's default).
    pub name_prefix: Option<String>,
    /// What it is.
    pub kind: Option<EntityKind>,
    /// One of its types, `{namespace}local`, exactly.
    pub entity_type: Option<String>,
    /// One of its scopes lies under this URI by the WS-Discovery rule `rfc3986`.
    pub scope: Option<String>,
    /// IRI of a property that its triples say is observed.
    pub observed_property: Option<String>,
    /// It says something about the entity or thing with this IRI.
    pub about: Option<String>,
    /// Most entities to return; [`DEFAULT_SEARCH_LIMIT`] when absent.
    pub limit: Option<usize>,
}

/// What a search found, in the order of names (case folded), then keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The entities.
    pub entities: Vec<Entity>,
    /// There are more than the limit let through.
    pub truncated: bool,
}

pub(crate) fn run(state: &State, search: &Search, principal: &Principal) -> Found {
    state.naive_search(search, principal)
}
