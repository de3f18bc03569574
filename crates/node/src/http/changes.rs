//! The route of changes of the registry.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::{EntityKind, Mark, WatchStart, WatchSubject};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::entities::{self, unknown_kind};
use super::params::Params;
use super::parts;
use super::problem::Problem;
use super::{shapes, sparql};
use crate::accounts::Caller;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::subscriptions::stored::About;
use crate::subscriptions::{Follow, stream};

/// Queued events of a connection; reason: one is being sent while the next is prepared.
const EVENTS_QUEUED: usize = 1;

/// What to follow: an entity, a query, or the entities that match all of the other criteria.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesParams {
    /// The key of an entity, which need not exist yet.
    key: Option<String>,
    /// A SELECT query, whose added and removed rows are sent, or an ASK query, whose result is sent when it changes.
    query: Option<String>,
    /// Prefix of the name, case-insensitive.
    prefix: Option<String>,
    /// Only entities of this kind.
    #[param(value_type = Option<shapes::EntityKind>)]
    kind: Option<String>,
    /// A type, `{namespace}local`.
    #[serde(rename = "type")]
    entity_type: Option<String>,
    /// A URI that is a prefix of one of its scopes.
    scope: Option<String>,
    /// The IRI of an observed property.
    observed_property: Option<String>,
    /// Only entities whose properties describe the entity with this key.
    about: Option<String>,
    /// Its owner.
    owner: Option<String>,
    /// Whether subclasses and subproperties are followed, in a query and for the type and the observed property
    /// of a search, as for `GET /api/v1/sparql` and `GET /api/v1/entities`. A search follows the ontologies as
    /// they are when the connection is opened. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    inferred: bool,
    /// Whether the current state is sent first.
    #[serde(default)]
    present: bool,
    /// The id of the last event that was received; a `Last-Event-ID` takes precedence.
    after: Option<String>,
}

impl ChangesParams {
    /// What they describe.
    ///
    /// # Errors
    /// They exclude each other, or the kind is unknown.
    pub(super) fn about(self) -> Result<About, Problem> {
        let unknown = |name: &&str| EntityKind::from_word(name).is_none();
        if let Some(name) = self.kind.as_deref().filter(unknown) {
            return Err(unknown_kind(name));
        }
        let about = About {
            key: self.key,
            query: self.query,
            prefix: self.prefix,
            kind: self.kind,
            entity_type: self.entity_type,
            scope: self.scope,
            observed_property: self.observed_property,
            about: self.about,
            owner: self.owner,
        };
        match about.is_one() {
            true => Ok(about),
            false => Err(Problem::bad_request(
                "key, query and criteria of a search exclude each other",
            )
            .hint("follow each over a connection of its own")),
        }
    }

    /// What the events of WS-Eventing are about.
    ///
    /// # Errors
    /// As [`Self::about`], or a parameter is for server-sent events only.
    pub(super) fn about_of_events(self) -> Result<About, Problem> {
        let others = [
            ("inferred", self.inferred),
            ("present", self.present),
            ("after", self.after.is_some()),
        ];
        match others.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Problem::bad_request(format!(
                "{name}: it is for server-sent events; events of WS-Eventing begin with the subscription, and follow no \
                 subclasses"
            ))
            .hint("follow GET /api/v1/registry/changes, or leave it out")),
            None => self.about(),
        }
    }
}

/// Changes of the registry as server-sent events.
///
/// `added`, `changed` and `removed` carry `{change, key, kind, name, position}`, for a query `{change, row, position}`
/// with a row as in SPARQL's results, or `answer` for ASK. `resync {reason, position}` means that the client must
/// discard its state; the current state follows as `added`, up to `synced`. It is sent if `present` is true, if the
/// changes since the last event are no longer available (`too-old`), if the rights of the account changed, or if the
/// answer of a query changed while the client was away. `end {reason}` is the last event of a subscription that cannot
/// continue. A client that reconnects with a `Last-Event-ID` either misses nothing or receives a `resync`, even if the
/// node was restarted. A change is sent only if the account may see it at the time of delivery.
#[utoipa::path(get, path = "/api/v1/registry/changes", tag = "registry", params(ChangesParams,
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received")),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 400, body = Problem), (status = 429, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn changes(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Params(params): Params<ChangesParams>,
) -> Result<Response, Problem> {
    let last_event = headers.get("last-event-id");
    let last_event = last_event.map(|value| value.to_str().unwrap_or("unreadable").to_owned());
    let last_event = last_event.filter(|id| !id.is_empty());
    let start = match last_event.or_else(|| params.after.clone()) {
        Some(text) => WatchStart::After(text.parse::<Mark>().map_err(Problem::bad_request)?),
        None if params.present => WatchStart::Present,
        None => WatchStart::Now,
    };
    let is_inferred = params.inferred;
    let subject = match (params.about()?.subject(), is_inferred) {
        (WatchSubject::Entity(_), true) => {
            return Err(Problem::bad_request(
                "inferred: it is for a search or a query",
            ));
        }
        (WatchSubject::Search(search), true) => {
            let wide = entities::widened(&app, *search, &caller).await?;
            WatchSubject::Search(Box::new(wide))
        }
        (subject, _) => subject,
    };
    let permit = parts::permit(&app, &caller, RequestKind::Live)?;
    let follow = Follow::start(app.clone(), caller.clone(), subject, start);
    let mut follow = follow.map_err(|error| sparql::problem(&error))?;
    if is_inferred {
        follow = follow.inferring(sparql::ontology_authors(&caller));
    }
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
    tokio::spawn(async move {
        stream::run(app, caller, follow, sender).await;
        drop(permit);
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}
