//! Virtual sensors: their files, their bindings, their outputs.

mod files;
mod table;

pub(crate) use files::FileError;
pub use files::{Checked, check};
pub(crate) use table::{Bound, Event, Sensor, SensorError, SensorState, Sensors, Source};

use crate::shared::{App, ended};

/// Writes the file of a sensor.
pub(crate) fn write(app: &App, name: &str, text: &str) -> Result<(), FileError> {
    let known = app.sensors.get(name);
    let path = known.map(|sensor| sensor.file.into());
    files::write(&app.config.sensors_directory, path, name, text)
}

/// Removes the file of a sensor.
pub(crate) fn remove(app: &App, name: &str) -> Result<(), FileError> {
    let Some(sensor) = app.sensors.get(name) else {
        return Ok(());
    };
    std::fs::remove_file(&sensor.file)
        .map_err(|error| FileError::Io(format!("{}: {error}", sensor.file)))
}

pub(crate) async fn watch(app: App) {
    ended(&mut app.drain.clone()).await;
}
