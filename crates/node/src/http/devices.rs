//! Devices and their states.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::params::Name;
use super::problem::Problem;
use crate::devices::Device;
use crate::shared::App;

/// All devices.
#[derive(Serialize, ToSchema)]
pub(crate) struct Devices {
    /// By key, including devices that have left.
    devices: Vec<Device>,
}

/// All devices found in this run.
#[utoipa::path(get, path = "/api/v1/devices", tag = "devices",
    responses((status = 200, body = Devices)))]
pub(super) async fn list(State(app): State<App>) -> Json<Devices> {
    Json(Devices {
        devices: app.devices.all(),
    })
}

/// One device.
#[utoipa::path(get, path = "/api/v1/devices/{key}", tag = "devices",
    params(("key" = String, Path, description = "The device's key or endpoint address, percent-encoded")),
    responses((status = 200, body = Device), (status = 404, body = Problem)))]
pub(super) async fn one(State(app): State<App>, Name(key): Name) -> Result<Json<Device>, Problem> {
    let by_endpoint = || app.devices.get(&crate::devices::device_key(&key));
    let device = app.devices.get(&key).or_else(by_endpoint);
    device.map(Json).ok_or_else(|| {
        Problem::not_found(format!("there is no device {key:?}"))
            .hint("GET /api/v1/devices lists all devices, GET /api/v1/drops the refused ones")
    })
}
