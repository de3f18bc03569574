//! Rights to entities of the registry: who may read, annotate, write and administer one.

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chappe_registry::{Access, Entity, Error, Holder, Right, Rights};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::guard::Subject;
use super::params::{self, Name};
use super::problem::Problem;
use super::publish::{registry_problem, room};
use super::write::busy::with_pause;
use crate::accounts::{Caller, OPERATOR, Unchanged};
use crate::registrar::{self, Registrar, RightsError};
use crate::shared::App;

/// Those who have each right to an entity, besides its owner and administrators of the node: `everybody`,
/// `accounts`, `account:NAME`, `group:NAME`, or `role:` with read, write, operate or administer. Each right
/// includes those before it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatedRights {
    /// Who may find and read it.
    read: Vec<String>,
    /// Who may attach metadata to it. Null or absent: if everybody may read it, the accounts with the role
    /// `write`; otherwise nobody else.
    annotate: Option<Vec<String>>,
    /// Who may replace and remove it.
    #[serde(default)]
    write: Vec<String>,
    /// Who may read and change its rights.
    #[serde(default)]
    administer: Vec<String>,
}

/// The rights to an entity.
#[derive(Serialize, ToSchema)]
pub(crate) struct EntityRights {
    /// Its key.
    key: String,
    /// Its owner, who has all rights.
    owner: String,
    /// Who may find and read it.
    read: Vec<String>,
    /// Who may attach metadata to it. Null: if everybody may read it, the accounts with the role `write`;
    /// otherwise nobody else.
    annotate: Option<Vec<String>>,
    /// Who may replace and remove it.
    write: Vec<String>,
    /// Who may read and change its rights.
    administer: Vec<String>,
}

impl EntityRights {
    fn of(entity: &Entity) -> Self {
        let texts = |holders: &[Holder]| holders.iter().map(ToString::to_string).collect();
        let rights = &entity.rights;
        let mut read: Vec<String> = match &entity.access {
            Access::Public => vec![Holder::Everybody.to_string()],
            Access::Owner => Vec::new(),
            Access::Readers(names) => {
                let holders = names.iter().cloned().map(Holder::Account);
                holders.map(|holder| holder.to_string()).collect()
            }
        };
        let stated: Vec<String> = texts(&rights.read);
        read.extend(
            stated
                .into_iter()
                .filter(|one| *one != Holder::Everybody.to_string()),
        );
        if entity.rights.read.contains(&Holder::Everybody) && entity.access != Access::Public {
            read.insert(0, Holder::Everybody.to_string());
        }
        Self {
            key: entity.key.clone(),
            owner: entity.owner.clone(),
            read,
            annotate: rights.annotate.as_deref().map(texts),
            write: texts(&rights.write),
            administer: texts(&rights.administer),
        }
    }
}

impl StatedRights {
    fn rights(&self, app: &App) -> Result<Rights, Problem> {
        let list = |right: Right, texts: &[String]| {
            let holders = texts.iter().map(|text| holder(app, right, text));
            holders.collect::<Result<Vec<Holder>, Problem>>()
        };
        let annotate = self.annotate.as_deref();
        Ok(Rights {
            read: list(Right::Read, &self.read)?,
            annotate: annotate
                .map(|texts| list(Right::Annotate, texts))
                .transpose()?,
            write: list(Right::Write, &self.write)?,
            administer: list(Right::Administer, &self.administer)?,
        })
    }
}

/// A holder that exists: a misspelt name would be noticed only by those who lack the right.
fn holder(app: &App, right: Right, text: &str) -> Result<Holder, Problem> {
    let invalid = |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
    let holder = text.parse::<Holder>().map_err(|error| {
        let detail = error.to_string();
        let (detail, hint) = detail.split_once(" (hint: ").unwrap_or((&detail, ""));
        invalid(format!("{right}: {detail}")).hint(format!("write {}", hint.trim_end_matches(')')))
    })?;
    match &holder {
        Holder::Account(name) if name != OPERATOR && app.accounts.get(name).is_none() => {
            let problem = invalid(format!("{right}: there is no account {name:?}"));
            Err(problem.hint("`chappe account list` shows the accounts"))
        }
        Holder::Group(name) if !app.accounts.has_group(name) => {
            let problem = invalid(format!("{right}: no account is in a group {name:?}"));
            Err(problem.hint(format!(
                "put accounts into it: chappe account groups NAME {name}"
            )))
        }
        Holder::Everybody
        | Holder::AnyAccount
        | Holder::Account(_)
        | Holder::Group(_)
        | Holder::Role(_) => Ok(holder),
    }
}

/// Shows the rights to an entity to those who may administer it.
#[utoipa::path(get, path = "/api/v1/entities/{key}/rights", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded")),
    responses((status = 200, body = EntityRights), (status = 403, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Json<EntityRights>, Problem> {
    let entity = app
        .registry
        .require(&key, &caller.reader(), Right::Administer);
    let entity = entity.map_err(|error| registry_problem(&error))?;
    Ok(Json(EntityRights::of(&entity)))
}

/// Sets the rights to an entity. The list of each right replaces the previous one.
#[utoipa::path(put, path = "/api/v1/entities/{key}/rights", tag = "registry",
    request_body = StatedRights,
    params(("key" = String, Path, description = "The entity's key, percent-encoded")),
    responses((status = 200, body = EntityRights), (status = 400, body = Problem),
        (status = 403, body = Problem, description = "the account does not have the right to administer the entity"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "a node publishes the entity itself, in UDDI"),
        (status = 422, body = Problem, description = "a name is invalid or unknown; nothing was changed"),
        (status = 507, body = Problem)))]
pub(super) async fn set(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
    body: Body,
) -> Result<Response, Response> {
    let stated: StatedRights = params::json(&app, body)
        .await
        .map_err(IntoResponse::into_response)?;
    let refused = |error: Error| registry_problem(&error).into_response();
    let reader = caller.reader();
    let known = app.registry.require(&key, &reader, Right::Administer);
    let known = known.map_err(refused)?;
    let is_published = app.registrar.publishes(&known);
    if Registrar::is_node(&known.owner) && !is_published {
        let detail = format!("{key} is saved by a node itself, with the rights of its business");
        let problem = Problem::new(StatusCode::CONFLICT, detail);
        let hint = "set rights to devices and streams at the node that found them; those to the services \
            of devices in UDDI cannot be set";
        return Err(problem.hint(hint).into_response());
    }
    let rights = stated.rights(&app).map_err(IntoResponse::into_response)?;
    let room = room(&app, &caller);
    let (of, its_key) = (app.clone(), key.clone());
    // A change that has begun runs to its end, so that file and registry agree.
    let set = tokio::spawn(async move {
        if is_published {
            let set = of.registrar.set_rights(&reader, &its_key, rights, &room);
            return set.await;
        }
        let set = registrar::set_rights(&of.registry, &reader, &its_key, &rights, &room);
        Ok(set.await?)
    });
    let (is_changed, entity) = match set.await {
        Ok(Ok(set)) => set,
        Ok(Err(RightsError::Registry(error))) => return Err(with_pause(registry_problem(&error))),
        Ok(Err(error @ RightsError::File(_))) => {
            let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string());
            let problem =
                problem.hint("nothing was changed; is the disk of the data directory full?");
            return Err(problem.into_response());
        }
        Err(_) => return Err(Problem::internal("setting the rights failed").into_response()),
    };
    let shown = EntityRights::of(&entity);
    let subject = Extension(Subject(format!("{key} {}", summary(&entity.rights))));
    let mut response = (subject, Json(shown)).into_response();
    if !is_changed {
        response.extensions_mut().insert(Unchanged);
    }
    Ok(response)
}

/// The rights as the audit stream shows them.
fn summary(rights: &Rights) -> String {
    let rights = rights
        .iter()
        .map(|(right, holder)| format!("{right}={holder}"));
    rights.collect::<Vec<_>>().join(" ")
}
