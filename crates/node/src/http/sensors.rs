//! Virtual sensors: their bindings and their files.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::paging::Paging;
use super::params::{self, Name, Params};
use super::problem::Problem;
use crate::accounts::{Caller, View};
use crate::config::nearest;
use crate::reload::FileError;
use crate::sensors::{self, Sensor};
use crate::shared::App;

/// All virtual sensors.
#[derive(Serialize, ToSchema)]
pub(crate) struct VirtualSensors {
    /// By name, including sensors with an invalid file.
    virtual_sensors: Vec<Sensor>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// All virtual sensors.
#[utoipa::path(get, path = "/api/v1/virtual-sensors", tag = "virtual sensors", params(Paging),
    responses((status = 200, body = VirtualSensors), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(paging): Params<Paging>,
) -> Result<Json<VirtualSensors>, Problem> {
    let sensors = visible(&app, &caller);
    let (virtual_sensors, next) = paging.cut(sensors, |sensor| &sensor.name)?;
    Ok(Json(VirtualSensors {
        virtual_sensors,
        next,
    }))
}

/// The sensors whose streams the caller may read.
fn visible(app: &App, caller: &Caller) -> Vec<Sensor> {
    let view = View::of_reader(app, caller);
    let mut sensors = app.sensors.all();
    // A sensor with an invalid file may have no stream.
    sensors.retain(|one| view.is_whole() || view.has_stream(&one.stream));
    sensors
}

/// One virtual sensor.
#[utoipa::path(get, path = "/api/v1/virtual-sensors/{name}", tag = "virtual sensors",
    params(("name" = String, Path, description = "The sensor's name")),
    responses((status = 200, body = Sensor), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<Sensor>, Problem> {
    let view = View::of_reader(&app, &caller);
    let sensor = app.sensors.get(&name);
    sensor
        .filter(|one| view.is_whole() || view.has_stream(&one.stream))
        .map(Json)
        .ok_or_else(|| unknown(&app, &caller, &name))
}

/// Writes the file of a virtual sensor; the change takes effect within a second.
#[utoipa::path(put, path = "/api/v1/virtual-sensors/{name}", tag = "virtual sensors",
    params(("name" = String, Path, description = "The sensor's name")),
    request_body(content = String, content_type = "application/toml"),
    responses((status = 204), (status = 401, body = Problem),
        (status = 422, body = Problem, description = "the file is invalid; nothing was changed")))]
pub(super) async fn put(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    body: Body,
) -> Result<StatusCode, Problem> {
    let bytes = params::body(&app, body).await?;
    let text = String::from_utf8(bytes.into())
        .map_err(|_| Problem::bad_request("the sensor file is not UTF-8"))?;
    let done = tokio::task::spawn_blocking({
        let app = app.clone();
        move || {
            let failed = |error: std::io::Error| FileError::Io(error.to_string());
            let (key, owners) = (sensors::sensor_key(&name), &app.owners);
            // The sensor of an earlier file belongs to the node, or to its first account.
            let is_new = app.sensors.get(&name).is_none();
            let is_owned = is_new && owners.set(&key, caller.name()).map_err(failed)?;
            let written = sensors::write(&app, &name, &text);
            if written.is_err() && is_owned {
                owners.forget(&key).map_err(failed)?;
            }
            written
        }
    });
    let done = done.await;
    app.sensors.rescan.notify_one();
    written(done)
}

/// Removes a virtual sensor and its file; its stream stays.
#[utoipa::path(delete, path = "/api/v1/virtual-sensors/{name}", tag = "virtual sensors",
    params(("name" = String, Path, description = "The sensor's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    if app.sensors.get(&name).is_none() {
        return Err(unknown(&app, &caller, &name));
    }
    let done = tokio::task::spawn_blocking({
        let app = app.clone();
        move || {
            sensors::remove(&app, &name)?;
            let forgotten = app.owners.forget(&sensors::sensor_key(&name));
            forgotten.map_err(|error| FileError::Io(error.to_string()))
        }
    });
    let done = done.await;
    app.sensors.rescan.notify_one();
    written(done)
}

pub(super) fn written(
    done: Result<Result<(), FileError>, tokio::task::JoinError>,
) -> Result<StatusCode, Problem> {
    match done {
        Ok(Ok(())) => Ok(StatusCode::NO_CONTENT),
        Ok(Err(FileError::Invalid(fault))) => {
            let hint = fault.hint.clone();
            let text = fault.to_string();
            let text = text.lines().next().unwrap_or_default();
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text);
            Err(match hint {
                Some(hint) => problem.hint(hint),
                None => problem,
            })
        }
        Ok(Err(FileError::Io(text))) => Err(Problem::internal(text)),
        Err(_) => Err(Problem::internal("writing the sensor's file failed")),
    }
}

fn unknown(app: &App, caller: &Caller, name: &str) -> Problem {
    let sensors = visible(app, caller);
    let problem = Problem::not_found(format!("there is no virtual sensor {name:?}"));
    match nearest(name, sensors.iter().map(|sensor| sensor.name.as_str())) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => problem.hint("GET /api/v1/virtual-sensors lists all virtual sensors"),
    }
}
