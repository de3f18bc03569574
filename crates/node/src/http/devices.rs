//! Devices and their states.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::paging::Paging;
use super::params::{Name, Params};
use super::problem::Problem;
use crate::accounts::{Caller, View};
use crate::devices::Device;
use crate::shared::App;

/// All devices.
#[derive(Serialize, ToSchema)]
pub(crate) struct Devices {
    /// By key, including devices that have left.
    devices: Vec<Device>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// All devices found in this run.
#[utoipa::path(get, path = "/api/v1/devices", tag = "devices", params(Paging),
    responses((status = 200, body = Devices), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(paging): Params<Paging>,
) -> Result<Json<Devices>, Problem> {
    let view = View::of_reader(&app, &caller);
    let mut devices = app.devices.all();
    devices.retain(|device| view.has_device(device));
    let (devices, next) = paging.cut(devices, |device| &device.key)?;
    Ok(Json(Devices { devices, next }))
}

/// One device.
#[utoipa::path(get, path = "/api/v1/devices/{key}", tag = "devices",
    params(("key" = String, Path, description = "The device's key or endpoint address, percent-encoded")),
    responses((status = 200, body = Device), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Json<Device>, Problem> {
    let by_endpoint = || app.devices.get(&crate::devices::device_key(&key));
    let device = app.devices.get(&key).or_else(by_endpoint);
    let view = View::of_reader(&app, &caller);
    let device = device.filter(|device| view.has_device(device));
    device.map(Json).ok_or_else(|| {
        Problem::not_found(format!("there is no device {key:?}"))
            .hint("GET /api/v1/devices lists all devices, GET /api/v1/drops the refused ones")
    })
}
