//! Devices: found, described, registered, streamed, and let go when they leave.

mod table;

pub(crate) use table::{Device, DeviceState, Devices, Service};

use crate::shared::{App, ended};

pub(crate) async fn watch(app: App) {
    ended(&mut app.drain.clone()).await;
}
