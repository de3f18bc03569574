//! Virtual sensors: their bindings and their files.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::paging::Paging;
use super::params::{self, Name, Params};
use super::problem::{Problem, code};
use super::streams::store_problem;
use super::wrappers;
use crate::accounts::{Caller, View};
use crate::config::{Problem as Fault, nearest};
use crate::reload::FileError;
use crate::sensors::{self, Sensor, SensorState};
use crate::shared::App;

/// All virtual sensors.
#[derive(Serialize, ToSchema)]
pub(crate) struct VirtualSensors {
    /// By name, including sensors with an invalid file.
    virtual_sensors: Vec<Sensor>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// The requested virtual sensors.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SensorParams {
    /// Only virtual sensors in this state.
    state: Option<SensorState>,
    /// Maximum number of entries; without it, all.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// All virtual sensors.
#[utoipa::path(get, path = "/api/v1/virtual-sensors", tag = "virtual sensors", params(SensorParams),
    responses((status = 200, body = VirtualSensors), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<SensorParams>,
) -> Result<Json<VirtualSensors>, Problem> {
    let mut sensors = visible(&app, &caller);
    sensors.retain(|sensor| params.state.is_none_or(|state| state == sensor.state));
    for sensor in &mut sensors {
        sensor.use_current_names(app.catalogue.names());
    }
    let paging = Paging::new(params.limit, params.cursor);
    let (virtual_sensors, next) = paging.cut("virtual_sensors", sensors, |sensor| &sensor.name)?;
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
        .map(|mut sensor| {
            sensor.use_current_names(app.catalogue.names());
            Json(sensor)
        })
        .ok_or_else(|| unknown(&app, &caller, &name))
}

/// Writes the file of a virtual sensor; the change takes effect within a second.
#[utoipa::path(put, path = "/api/v1/virtual-sensors/{name}", tag = "virtual sensors",
    params(("name" = String, Path, description = "The sensor's name")),
    request_body(content((String = "application/toml"), (Vec<u8> = "application/octet-stream")),
        description = "the file"),
    responses((status = 204), (status = 401, body = Problem),
        (status = 403, body = Problem, description = "the file has wrappers, which needs `administer`"),
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
    let had_wrappers = app
        .sensors
        .get(&name)
        .is_some_and(|sensor| !sensor.wrappers.is_empty());
    if (had_wrappers || sensors::has_wrappers(&text)) && !caller.administers() {
        return Err(needs_administer(&name));
    }
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
    let Some(sensor) = app.sensors.get(&name) else {
        return Err(unknown(&app, &caller, &name));
    };
    if !sensor.wrappers.is_empty() && !caller.administers() {
        return Err(needs_administer(&name));
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

/// The file of a sensor has wrappers, which are as powerful as those in files of their own.
pub(super) fn needs_administer(name: &str) -> Problem {
    let detail = format!("the file of the virtual sensor {name:?} has wrappers");
    let problem = Problem::new(StatusCode::FORBIDDEN, detail).code(code::ROLE_MISSING);
    problem.hint("previewing, writing and removing wrappers needs the role `administer`")
}

/// What became of a call.
#[derive(Serialize, ToSchema)]
pub(crate) struct SensorCall {
    /// The stream of the command's calls.
    stream: String,
    /// The epoch of the call in it.
    epoch: String,
    /// The number of the call in it.
    sequence: u64,
    /// What the wrapper's peer answered, if the command is passed on to a wrapper: any JSON value.
    answer: Value,
}

/// Calls a command of a virtual sensor; the body is an object of arguments. The call is first passed on to the
/// wrapper that the command names, if it names one, and then stored in the command's stream.
#[utoipa::path(post, path = "/api/v1/virtual-sensors/{name}/commands/{command}", tag = "virtual sensors",
    params(("name" = String, Path, description = "The sensor's name"),
        ("command" = String, Path, description = "The name of a [[command]] of its file")),
    request_body(content = wrappers::CommandArguments),
    responses((status = 200, body = SensorCall), (status = 401, body = Problem),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "an argument does not fit; nothing was done"),
        (status = 502, body = Problem, description = "the wrapper's peer failed; the call is not stored"),
        (status = 503, body = Problem)))]
pub(super) async fn command(
    State(app): State<App>,
    caller: Caller,
    Path((name, command)): Path<(String, String)>,
    body: Body,
) -> Result<Json<SensorCall>, Problem> {
    let arguments: Map<String, Value> = params::json(&app, body).await?;
    let sensor = app
        .sensors
        .get(&name)
        .ok_or_else(|| unknown(&app, &caller, &name))?;
    let mut commands = sensor.commands.iter();
    let Some(found) = commands.find(|one| one.name == command) else {
        let problem = Problem::not_found(format!("{name} has no command {command:?}"));
        let names = sensor.commands.iter().map(|one| one.name.as_str());
        return Err(match nearest(&command, names) {
            Some(near) => problem.hint(format!("did you mean {near:?}?")),
            None => problem.hint("a [[command]] of the sensor's file defines one"),
        });
    };
    let described = &found.described;
    let values = described.values(&arguments).map_err(|error| {
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        match error.hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    })?;
    let entry = app.catalogue.get(&found.stream);
    let entry = entry.ok_or_else(|| {
        let detail = format!("the virtual sensor {name:?} does not run");
        Problem::unavailable(detail).hint(format!("chappe why {name}"))
    })?;
    let answer = match &described.pass_to {
        Some(pass) => wrappers::call(&app, &pass.wrapper, pass.command.clone(), arguments).await?,
        None => Value::Null,
    };
    let position = sensors::store_call(&entry, caller.name(), values);
    let position = position.await.map_err(store_problem)?;
    Ok(Json(SensorCall {
        stream: entry.current_name(),
        epoch: position.epoch.to_string(),
        sequence: position.sequence,
        answer,
    }))
}

pub(super) fn written(
    done: Result<Result<(), FileError>, tokio::task::JoinError>,
) -> Result<StatusCode, Problem> {
    match done {
        Ok(Ok(())) => Ok(StatusCode::NO_CONTENT),
        Ok(Err(FileError::Invalid(fault))) => Err(invalid(&fault)),
        Ok(Err(FileError::Io(text))) => Err(Problem::internal(text)),
        Ok(Err(FileError::Unwritable { text, hint })) => Err(Problem::internal(text)
            .code(code::FILE_UNWRITABLE)
            .hint(hint)),
        Ok(Err(FileError::Full(text))) => {
            let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, text);
            Err(problem
                .code(code::DISK_FULL)
                .hint("free space on the node's disk"))
        }
        Err(_) => Err(Problem::internal("writing the sensor's file failed")),
    }
}

/// A fault of a file, with its line.
pub(super) fn invalid(fault: &Fault) -> Problem {
    let text = fault.to_string();
    let text = text.lines().next().unwrap_or_default();
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text);
    match &fault.hint {
        Some(hint) => problem.hint(hint.clone()),
        None => problem,
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
