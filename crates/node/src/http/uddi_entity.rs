//! Entities of UDDI by their keys over HTTP GET: the addresses of the discoveryURLs that answers have.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use chappe_registry::uddi::message::{Answer, Request};
use chappe_registry::uddi::{BindingKey, BusinessKey, ErrorCode, Key, ServiceKey, TModelKey};
use serde::Deserialize;

use super::params::Params;
use super::parts;
use super::problem::Problem;
use super::uddi::{inquiry, run, soap};
use crate::accounts::Caller;
use crate::shared::App;

/// The key of the entity; one of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct KeyParams {
    business_key: Option<String>,
    service_key: Option<String>,
    binding_key: Option<String>,
    #[serde(rename = "tModelKey")]
    tmodel_key: Option<String>,
}

fn unknown(key: &str) -> Problem {
    let key: String = key.chars().take(80).collect();
    Problem::not_found(format!("there is no entity {key:?}"))
}

fn parsed<K: Key>(key: &str) -> Result<Vec<K>, Problem> {
    K::from_text(key)
        .map(|key| vec![key])
        .ok_or_else(|| unknown(key))
}

impl KeyParams {
    /// The key, and the request that gets its entity.
    fn request(self) -> Result<(String, Request), Problem> {
        let given = (
            self.business_key,
            self.service_key,
            self.binding_key,
            self.tmodel_key,
        );
        Ok(match given {
            (Some(key), None, None, None) => {
                let keys = parsed::<BusinessKey>(&key)?;
                (key, Request::BusinessDetail(keys))
            }
            (None, Some(key), None, None) => {
                let keys = parsed::<ServiceKey>(&key)?;
                (key, Request::ServiceDetail(keys))
            }
            (None, None, Some(key), None) => {
                let keys = parsed::<BindingKey>(&key)?;
                (key, Request::BindingDetail(keys))
            }
            (None, None, None, Some(key)) => {
                let keys = parsed::<TModelKey>(&key)?;
                (key, Request::TModelDetail(keys))
            }
            _ => {
                let detail = "the address does not have one key";
                let hint = "add one of businessKey, serviceKey, bindingKey and tModelKey";
                return Err(Problem::bad_request(detail).hint(hint));
            }
        })
    }
}

/// The businessDetail, serviceDetail, bindingDetail or tModelDetail of a key.
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Params(params): Params<KeyParams>,
) -> Result<Response, Problem> {
    let (key, request) = params.request()?;
    let base = parts::own_url(&app, &headers);
    let reader = caller.reader();
    let answered = run(&app, &caller, move |app| {
        inquiry(app, &reader).answer(request, &app.taxonomies)
    });
    let answer: Answer = match answered.await.and_then(|answered| answered) {
        Ok(answer) => answer,
        Err(error) if error.code == ErrorCode::InvalidKeyPassed => return Err(unknown(&key)),
        Err(error) => return Err(Problem::unavailable(error.to_string())),
    };
    let document = answer
        .with_discovery_urls(&base)
        .to_document(&app.identity.name);
    Ok(soap(StatusCode::OK, document))
}
