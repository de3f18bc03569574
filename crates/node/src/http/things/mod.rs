//! The directory of things (WoT Discovery, section 7.3.2): Things API, Events API, Search API, and the
//! directory's own Thing Description.

mod change;
mod directory;
mod events;
mod list;
mod search;

use chappe_registry::Error;
use chappe_registry::thing::ThingError;
use utoipa::ToSchema;

use super::problem::{InvalidThing, Problem, ValidationError};
use super::publish::registry_problem;
use super::write::busy::with_pause;

pub(super) use change::*;
pub(super) use directory::*;
pub(super) use events::*;
pub(super) use list::*;
pub(super) use search::*;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// The content type of a Thing Description.
const TD_JSON: &str = "application/td+json";

/// A Thing Description 1.1 (W3C Recommendation of 5 December 2023): a JSON-LD document. The directory keeps
/// all members.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only")]
pub(crate) struct ThingDescription {
    /// Names `https://www.w3.org/2022/wot/td/v1.1`, and prefixes of further vocabularies.
    #[schema(rename = "@context")]
    context: serde_json::Value,
    /// An absolute IRI; the directory gives one to a document without it.
    id: Option<String>,
    /// For people.
    title: String,
    /// The schemes that `security` may name.
    #[schema(rename = "securityDefinitions")]
    security_definitions: serde_json::Map<String, serde_json::Value>,
    /// The name of a scheme, or a list of names.
    security: serde_json::Value,
}

/// The things of a list.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only")]
#[serde(untagged)]
pub(crate) enum ThingList {
    /// With `format=array`.
    Array(Vec<ThingDescription>),
    /// With `format=collection`: a page with its links and `members`.
    Collection(serde_json::Map<String, serde_json::Value>),
}

/// The answer to a change that failed.
fn refusal(error: &ThingError) -> Response {
    let text = error.to_string();
    match error {
        ThingError::Invalid(faults) => {
            let faults = faults.iter().map(|fault| ValidationError {
                field: fault.field.clone(),
                description: fault.description.clone(),
            });
            let problem = Problem::bad_request(text)
                .hint("docs/reference/things.md lists the requirements for a Thing Description");
            let validation_errors = faults.collect();
            let invalid = InvalidThing {
                problem,
                validation_errors,
            };
            invalid.into_response()
        }
        ThingError::TooLong { .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
        }
        ThingError::Unknown(_) => Problem::not_found(text)
            .hint("percent-encode the id in the path; GET /things lists all things")
            .into_response(),
        ThingError::NotThing { .. } => Problem::new(StatusCode::CONFLICT, text)
            .hint("choose another id")
            .into_response(),
        ThingError::Registry(Error::NotOwner { .. }) => foreign(text).into_response(),
        ThingError::Registry(Error::InvalidEntity { .. }) => {
            Problem::bad_request(text).into_response()
        }
        ThingError::Registry(error) => with_pause(registry_problem(error)),
        _ => Problem::internal(text).into_response(),
    }
}

/// The thing belongs to somebody else.
fn foreign(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, detail)
        .hint("only its owner and administrators may change a thing")
}
