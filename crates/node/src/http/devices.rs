//! Devices and their states.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chappe_identity::{Reach, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::paging::Paging;
use super::params::{self, Name, Params};
use super::problem::Problem;
use super::wrappers::{CommandAnswer, CommandArguments, called};
use crate::accounts::{Caller, View};
use crate::config::{DevicePattern, nearest};
use crate::devices::{
    Device, DeviceState, Exclusion, ExclusionError, Place, PlaceClaim, ReplaceError, device_key,
};
use crate::shared::App;

/// All devices.
#[derive(Serialize, ToSchema)]
pub(crate) struct Devices {
    /// By key, including devices that have left.
    devices: Vec<Device>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// The requested devices.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeviceParams {
    /// Only devices in this state.
    state: Option<DeviceState>,
    /// Maximum number of entries; without it, all.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// All devices discovered in this run, and those that the peers of wrappers announce. Each has the
/// streams that the caller may read, and its operations if the caller may call them.
#[utoipa::path(get, path = "/api/v1/devices", tag = "devices", params(DeviceParams),
    responses((status = 200, body = Devices), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<DeviceParams>,
) -> Result<Json<Devices>, Problem> {
    let view = View::of_reader(&app, &caller);
    let mut devices = app.devices.all();
    devices.retain(|device| {
        params.state.is_none_or(|state| state == device.state) && view.has_device(device)
    });
    for device in &mut devices {
        restrict(&app, &caller, &view, device);
    }
    let paging = Paging::new(params.limit, params.cursor);
    let (devices, next) = paging.cut("devices", devices, |device| &device.key)?;
    Ok(Json(Devices { devices, next }))
}

/// One device, with the streams that the caller may read, and its operations if the caller may call them.
#[utoipa::path(get, path = "/api/v1/devices/{key}", tag = "devices",
    params(("key" = String, Path, description = "The device's key or endpoint address, percent-encoded")),
    responses((status = 200, body = Device), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Json<Device>, Problem> {
    let device = app.devices.get(&as_key(&app, key.clone()));
    let view = View::of_reader(&app, &caller);
    let device = device.filter(|device| view.has_device(device));
    let mut device = device.ok_or_else(|| {
        Problem::not_found(format!("there is no device {key:?}"))
            .hint("`chappe device list` lists all devices (GET /api/v1/devices over HTTP), GET /api/v1/drops the refused ones")
    })?;
    restrict(&app, &caller, &view, &mut device);
    Ok(Json(device))
}

/// Leaves the streams that the caller may read, by their current names, and the operations if the caller may call
/// them, which needs the role `operate` for the whole node.
fn restrict(app: &App, caller: &Caller, view: &View<'_>, device: &mut Device) {
    let may_operate = caller.reach(Role::Operate) == Reach::All;
    leave(device, may_operate, |name| view.has_stream(name));
    for stream in &mut device.streams {
        *stream = app.catalogue.names().current(stream);
    }
}

fn leave(device: &mut Device, may_operate: bool, is_readable: impl Fn(&str) -> bool) {
    if !may_operate {
        device.operations.clear();
    }
    device.streams.retain(|name| is_readable(name));
}

/// The exclusions of devices.
#[derive(Serialize, ToSchema)]
pub(crate) struct Exclusions {
    /// Those of the configuration first.
    exclusions: Vec<Exclusion>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// The exclusions of devices.
#[utoipa::path(get, path = "/api/v1/devices/exclusions", tag = "devices", params(Paging),
    responses((status = 200, body = Exclusions), (status = 400, body = Problem)))]
pub(super) async fn exclusions(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Exclusions>, Problem> {
    // Those of the configuration do not change in this run; the numbers of the others rise.
    let all = app.devices.exclusions.all().into_iter().enumerate();
    let key = |(index, one): &(usize, Exclusion)| match one.id {
        None => format!("0.{index:020}"),
        Some(id) => format!("1.{id:020}"),
    };
    let (exclusions, next) = paging.cut_by("exclusions", all, key)?;
    let exclusions = exclusions.into_iter().map(|(_, one)| one).collect();
    Ok(Json(Exclusions { exclusions, next }))
}

/// Excludes devices, from now on and after restarts. Their streams keep their elements.
#[utoipa::path(post, path = "/api/v1/devices/exclusions", tag = "devices",
    request_body(content = DevicePattern),
    responses((status = 201, body = Exclusion), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 422, body = Problem, description = "the pattern is invalid; nothing was changed")))]
pub(super) async fn exclude(State(app): State<App>, body: Body) -> Result<Response, Problem> {
    let pattern: DevicePattern = params::json(&app, body).await?;
    let added = app.devices.exclusions.add(pattern).await;
    let added = added.map_err(|error| exclusion_problem(&error))?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

/// Removes an exclusion, so that its devices are included again. Devices that match another
/// exclusion stay excluded.
#[utoipa::path(delete, path = "/api/v1/devices/exclusions/{id}", tag = "devices",
    params(("id" = u64, Path, description = "The number of an added exclusion")),
    responses((status = 200, body = Exclusion), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn include(
    State(app): State<App>,
    Name(id): Name,
) -> Result<Json<Exclusion>, Problem> {
    let unknown = || Problem::not_found(format!("there is no added exclusion {id:?}"));
    let number = id.parse().map_err(|_| unknown())?;
    let removed = app.devices.exclusions.remove(number).await;
    removed.map(Json).map_err(|error| exclusion_problem(&error))
}

fn exclusion_problem(error: &ExclusionError) -> Problem {
    let text = error.to_string();
    match error {
        ExclusionError::Empty => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text)
            .hint("`chappe device exclude --help` shows examples"),
        ExclusionError::TooMany => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text)
            .hint("use one pattern with `*`, a type or a scope for many devices"),
        ExclusionError::Unknown(_) => Problem::not_found(text)
            .hint("`chappe device excluded` lists them (GET /api/v1/devices/exclusions over HTTP)"),
        ExclusionError::File(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            .hint("check the data directory's disk"),
    }
}

/// The assigned places.
#[derive(Serialize, ToSchema)]
pub(crate) struct Places {
    /// By name.
    places: Vec<Place>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
    /// Places of devices that have left, and the newcomers that claim them; none unless `devices.replace_after_s` is
    /// set.
    claims: Vec<PlaceClaim>,
}

/// The places that are assigned to devices, each with its former devices, and the claims of newcomers to other places.
#[utoipa::path(get, path = "/api/v1/devices/places", tag = "devices", params(Paging),
    responses((status = 200, body = Places), (status = 400, body = Problem)))]
pub(super) async fn places(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Places>, Problem> {
    let key = |place: &Place| place.place.clone();
    let (places, next) = paging.cut_by("places", app.devices.places.all(), key)?;
    let claims = crate::devices::place_claims(&app);
    Ok(Json(Places {
        places,
        next,
        claims,
    }))
}

/// A device to be replaced.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replacement {
    /// The key or endpoint address of the device that is replaced. It must be gone or left out.
    former: String,
    /// The start of its streams' names; needed only if it has streams of several places.
    place: Option<String>,
}

/// Lets a device continue the streams of another one, which it replaces. Elements that it has already sent to its own
/// streams stay there.
#[utoipa::path(post, path = "/api/v1/devices/{key}/replace", tag = "devices",
    params(("key" = String, Path, description = "The new device's key or endpoint address, percent-encoded")),
    request_body(content = Replacement),
    responses((status = 200, body = Place), (status = 401, body = Problem),
        (status = 404, body = Problem, description = "the new device is not present"),
        (status = 409, body = Problem, description = "the former device is still present"),
        (status = 422, body = Problem)))]
pub(super) async fn replace(
    State(app): State<App>,
    Name(key): Name,
    body: Body,
) -> Result<Json<Place>, Problem> {
    let Replacement { former, place } = params::json(&app, body).await?;
    let (device, former) = (as_key(&app, key), as_key(&app, former));
    let replaced = crate::devices::replace(&app, &device, &former, place).await;
    replaced.map(Json).map_err(|error| replace_problem(&error))
}

/// Calls an operation of a device that a wrapper's peer announces; the body is an object whose only member may be
/// `value`. Responds when the peer has acknowledged the call; for Sparkplug, when data of the device shows the new
/// value.
#[utoipa::path(post, path = "/api/v1/devices/{key}/operations/{operation}", tag = "devices",
    params(("key" = String, Path, description = "The device's key or endpoint address, percent-encoded"),
        ("operation" = String, Path, description = "The name of one of its operations, percent-encoded")),
    request_body(content = CommandArguments),
    responses((status = 200, body = CommandAnswer), (status = 401, body = Problem),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "the argument does not fit, or nothing confirmed the call in time"),
        (status = 502, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn operate(
    State(app): State<App>,
    caller: Caller,
    Path((key, operation)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let arguments: Map<String, Value> = params::json(&app, body).await?;
    let device = app.devices.get(&as_key(&app, key.clone()));
    let view = View::of_reader(&app, &caller);
    let device = device.filter(|device| view.has_device(device));
    let device = device.ok_or_else(|| {
        Problem::not_found(format!("there is no device {key:?}"))
            .hint("`chappe device list` lists all devices (GET /api/v1/devices over HTTP)")
    })?;
    let names = || device.operations.iter().map(|one| one.name.as_str());
    if !names().any(|name| name == operation) {
        let problem = Problem::not_found(format!("{} has no operation {operation:?}", device.name));
        return Err(match (nearest(&operation, names()), &device.wrapper) {
            (Some(near), _) => problem.hint(format!("did you mean {near:?}?")),
            (None, Some(_)) => problem.hint("`operations` of the device lists all"),
            (None, None) => problem.hint("`chappe call` calls operations of devices of DPWS"),
        });
    }
    let wrapper = device.wrapper.as_deref().unwrap_or_default();
    let prefix = format!("{}:", crate::wrappers::wrapper_key(wrapper));
    let id = device.endpoint.strip_prefix(&prefix).unwrap_or_default();
    called(&app, wrapper, Some(id.to_owned()), operation, arguments)
        .await
        .map(Json)
}

/// The key of a device that is given by its key or its endpoint address.
fn as_key(app: &App, text: String) -> String {
    if app.devices.get(&text).is_some() || text.starts_with(&device_key("")) {
        return text;
    }
    device_key(&text)
}

fn replace_problem(error: &ReplaceError) -> Problem {
    let text = error.to_string();
    let invalid = |text| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text);
    match error {
        ReplaceError::Absent(_) => {
            Problem::not_found(text).hint("`chappe device list` lists the devices and their states (GET /api/v1/devices over HTTP)")
        }
        ReplaceError::Present(_) => Problem::new(StatusCode::CONFLICT, text)
            .hint("switch it off, or leave it out by `chappe device exclude --endpoint …`"),
        ReplaceError::SeveralPlaces(..) => invalid(text).hint("choose one of them with `place`"),
        ReplaceError::NoStreams(_) => {
            invalid(text).hint("GET /api/v1/streams shows the source of each stream")
        }
        ReplaceError::Itself => invalid(text),
        ReplaceError::File(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            .hint("check the data directory's disk"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::DeviceOperation;

    #[test]
    fn a_device_shows_only_streams_and_operations_that_the_caller_may_use() {
        let mut device = Device::new("urn:chappe:device:x");
        device.streams = vec!["ward.pulse".into(), "lab.diagnosis".into()];
        device.operations = vec![DeviceOperation {
            name: "valve".into(),
            description: None,
            argument: None,
        }];
        let mut read = device.clone();
        leave(&mut read, false, |name| name.starts_with("ward."));
        assert_eq!(read.streams, ["ward.pulse"]);
        assert_eq!(read.operations, []);
        let mut operated = device.clone();
        leave(&mut operated, true, |_| true);
        assert_eq!(operated, device);
    }
}
