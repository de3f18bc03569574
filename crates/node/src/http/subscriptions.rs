//! Subscriptions to the registry by e-mail.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use chappe_registry::{EntityKind, WatchStart};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::entities::unknown_kind;
use super::params::{self, Name};
use super::problem::Problem;
use super::shapes::EntityKind as EntityKindShape;
use super::sparql::problem as sparql_problem;
use crate::accounts::Caller;
use crate::shared::App;
use crate::subscriptions::Follow;
use crate::subscriptions::mail::{self, About, LEASE_DEFAULT_S, LEASE_MAX_S, MailError, Stored};

/// A subscription: to an entity, a query, or the entities that match all of the other criteria.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSubscription {
    /// The address that gets the mail.
    mail: String,
    /// Seconds after which it ends, unless it is renewed. Default: a week; at most a year.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_622_400)]
    lease_s: Option<u64>,
    /// The key of an entity, which need not exist yet.
    #[serde(default)]
    key: Option<String>,
    /// A SELECT or ASK query.
    #[serde(default)]
    query: Option<String>,
    /// Prefix of the name, case-insensitive.
    #[serde(default)]
    prefix: Option<String>,
    /// Only entities of this kind.
    #[serde(default)]
    #[schema(value_type = Option<EntityKindShape>)]
    kind: Option<String>,
    /// A type, `{namespace}local`.
    #[serde(default, rename = "type")]
    entity_type: Option<String>,
    /// A URI that is a prefix of one of its scopes.
    #[serde(default)]
    scope: Option<String>,
    /// The IRI of an observed property.
    #[serde(default)]
    observed_property: Option<String>,
    /// Only entities whose properties describe the entity with this key.
    #[serde(default)]
    about: Option<String>,
    /// Its owner.
    #[serde(default)]
    owner: Option<String>,
}

/// A subscription by e-mail.
#[derive(Serialize, ToSchema)]
pub(crate) struct Subscription {
    id: String,
    /// The account that made it, and whose rights decide what is sent.
    account: String,
    mail: String,
    /// What it is about.
    #[schema(value_type = Object)]
    about: About,
    /// Seconds until it ends, unless it is renewed.
    left_s: u64,
}

/// The subscriptions by e-mail.
#[derive(Serialize, ToSchema)]
pub(crate) struct Subscriptions {
    subscriptions: Vec<Subscription>,
}

/// A new lease.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewLease {
    /// Seconds from now. Default: a week; at most a year.
    #[schema(minimum = 1, maximum = 31_622_400)]
    lease_s: Option<u64>,
}

impl From<Stored> for Subscription {
    fn from(stored: Stored) -> Self {
        Self {
            id: stored.id,
            account: stored.account,
            mail: stored.mail,
            about: stored.about,
            left_s: stored.left_s,
        }
    }
}

fn lease(lease_s: Option<u64>) -> Result<u64, Problem> {
    let lease_s = lease_s.unwrap_or(LEASE_DEFAULT_S);
    match (1..=LEASE_MAX_S).contains(&lease_s) {
        true => Ok(lease_s),
        false => Err(invalid(format!("lease_s: is not 1 to {LEASE_MAX_S}"))),
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// Nobody without an account has mail sent.
fn known(caller: &Caller) -> Result<(), Problem> {
    match caller.is_anonymous() {
        false => Ok(()),
        true => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "a subscription by e-mail needs an account",
        )
        .hint("send the token of an account: Authorization: Bearer TOKEN")),
    }
}

/// Subscribes to changes of the registry by e-mail.
#[utoipa::path(post, path = "/api/v1/registry/subscriptions", tag = "registry", request_body = NewSubscription,
    responses((status = 201, body = Subscription), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 403, body = Problem, description = "the address is not one of mail.recipients"),
        (status = 422, body = Problem), (status = 429, body = Problem),
        (status = 503, body = Problem, description = "the node sends no mail")))]
pub(super) async fn add(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<Subscription>), Problem> {
    known(&caller)?;
    let new: NewSubscription = params::json(&app, body).await?;
    let lease_s = lease(new.lease_s)?;
    let about = About {
        key: new.key,
        query: new.query,
        prefix: new.prefix,
        kind: new.kind,
        entity_type: new.entity_type,
        scope: new.scope,
        observed_property: new.observed_property,
        about: new.about,
        owner: new.owner,
    };
    if let Some(kind) = about
        .kind
        .as_deref()
        .filter(|kind| EntityKind::from_word(kind).is_none())
    {
        return Err(unknown_kind(kind));
    }
    if !about.is_one() {
        return Err(invalid(
            "key, query and criteria of a search exclude each other".to_owned(),
        ));
    }
    // A query that cannot be followed is refused here.
    let checked = Follow::start(
        app.clone(),
        caller.clone(),
        about.subject(),
        WatchStart::Now,
    );
    checked.map_err(|error| sparql_problem(&error))?;
    let adding = move || mail::add(&app, &caller, about, new.mail, lease_s);
    let added = tokio::task::spawn_blocking(adding).await;
    let added = added.map_err(|error| Problem::internal(error.to_string()))?;
    let stored = added.map_err(|error| problem(&error))?;
    Ok((StatusCode::CREATED, Json(stored.into())))
}

fn problem(error: &MailError) -> Problem {
    let text = error.to_string();
    match error {
        MailError::Off => Problem::unavailable(text).hint("mail.server sets the server"),
        MailError::Address(_) => invalid(text),
        MailError::Recipient(_) => Problem::new(StatusCode::FORBIDDEN, text)
            .hint("mail.recipients lists the addresses and domains that may"),
        MailError::OfAccount { .. } => Problem::new(StatusCode::TOO_MANY_REQUESTS, text)
            .hint("remove one, or name several entities by one search"),
        MailError::Full => Problem::unavailable(text),
        MailError::Store(_) => Problem::internal(text),
    }
}

/// The caller's subscriptions by e-mail; an administrator gets all.
#[utoipa::path(get, path = "/api/v1/registry/subscriptions", tag = "registry",
    responses((status = 200, body = Subscriptions), (status = 401, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<Subscriptions>, Problem> {
    known(&caller)?;
    let all = app.mail.all().into_iter();
    let own = all.filter(|one| caller.administers() || one.account == caller.name());
    Ok(Json(Subscriptions {
        subscriptions: own.map(Subscription::from).collect(),
    }))
}

/// Checks that there is such a subscription of the caller.
fn own(app: &App, caller: &Caller, id: &str) -> Result<(), Problem> {
    known(caller)?;
    let all = app.mail.all();
    let mut own = all
        .iter()
        .filter(|one| caller.administers() || one.account == caller.name());
    match own.any(|one| one.id == id) {
        true => Ok(()),
        false => Err(unknown(id)),
    }
}

fn unknown(id: &str) -> Problem {
    Problem::not_found(format!("there is no subscription {id:?}"))
        .hint("GET /api/v1/registry/subscriptions lists them")
}

/// Renews a subscription by e-mail.
#[utoipa::path(post, path = "/api/v1/registry/subscriptions/{id}/renew", tag = "registry",
    request_body = NewLease, params(("id" = String, Path, description = "Its id")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn renew(
    State(app): State<App>,
    caller: Caller,
    Name(id): Name,
    body: Body,
) -> Result<StatusCode, Problem> {
    own(&app, &caller, &id)?;
    let new: NewLease = params::json(&app, body).await?;
    let (lease_s, of) = (lease(new.lease_s)?, id.clone());
    let renewed = mail::change(&app, move |kept| kept.renew(&of, lease_s)).await;
    match renewed.map_err(|error| Problem::internal(error.to_string()))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown(&id)),
    }
}

/// Ends a subscription by e-mail.
#[utoipa::path(delete, path = "/api/v1/registry/subscriptions/{id}", tag = "registry",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Name(id): Name,
) -> Result<StatusCode, Problem> {
    own(&app, &caller, &id)?;
    let of = id.clone();
    let removed = mail::change(&app, move |kept| kept.remove(&of)).await;
    match removed.map_err(|error| Problem::internal(error.to_string()))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown(&id)),
    }
}
