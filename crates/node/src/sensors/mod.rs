//! Virtual sensors: their files, their bindings, their outputs.

mod candidates;
mod columns;
mod command_view;
mod commands;
mod dead_letters;
mod described;
mod dropped;
mod facts;
mod files;
mod inline;
mod interrupt;
mod preview;
mod progress;
mod run;
mod table;

use std::path::Path;

use chappe_stream::Descriptor;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub(crate) use candidates::sensor_key;
pub use columns::NotChecked;
pub(crate) use commands::store as store_call;
pub use files::{Checked, check};
pub(crate) use preview::{Preview, PreviewError, begin as begin_preview, preview};
pub(crate) use table::{Sensor, SensorState, Sensors};

use crate::config::{Fault, Problem};
use crate::notices::NoticeKind;
use crate::reload::{self, Described, FileError};
use crate::shared::{App, Shared};

/// Writes the file of a sensor.
pub(crate) fn write(app: &App, name: &str, text: &str) -> Result<(), FileError> {
    let path = app.sensors.get(name).map(|sensor| sensor.file.into());
    let reading = app.config.access.read;
    files::write(&app.config.sensors_directory, reading, path, name, text)
}

/// Whether the file `text` of a sensor has wrappers, so that writing and previewing it needs the right to write wrappers.
pub(crate) fn has_wrappers(text: &str) -> bool {
    // An invalid file is refused later.
    Descriptor::parse("", text).is_ok_and(|descriptor| inline::has_any(&descriptor))
}

/// Removes the file of a sensor.
pub(crate) fn remove(app: &App, name: &str) -> Result<(), FileError> {
    match app.sensors.get(name) {
        Some(sensor) => reload::remove(Path::new(&sensor.file)),
        None => Ok(()),
    }
}

/// Runs the sensors of the directory until the node shuts down.
pub(crate) async fn watch(app: App) {
    reload::watch::<SensorFiles>(app).await;
}

/// The files of virtual sensors.
struct SensorFiles;

impl Described for SensorFiles {
    type Parsed = Descriptor;
    const NOTICE: NoticeKind = NoticeKind::Binding;
    const EXTENSIONS: &[&str] = files::EXTENSIONS;

    fn directory(app: &Shared) -> &Path {
        &app.config.sensors_directory
    }

    fn rescan(app: &Shared) -> &Notify {
        &app.sensors.rescan
    }

    fn parse(app: &Shared, path: &Path, text: &str) -> Result<Descriptor, Box<Problem>> {
        files::descriptor(&path.display().to_string(), text, app.config.access.read)
    }

    fn name(descriptor: &Descriptor) -> String {
        descriptor.name.clone()
    }

    fn start(
        app: &App,
        path: &Path,
        text: &str,
        descriptor: Descriptor,
        stop: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let file = path.display().to_string();
        app.sensors
            .insert(described::describe(&descriptor, &file, text));
        // They were checked with the file.
        let wrappers = inline::read(&descriptor, path, text).unwrap_or_default();
        tokio::spawn(run::run(app.clone(), descriptor, wrappers, stop))
    }

    fn refuse(app: &App, name: &str, path: &Path, problem: Problem, is_running: bool) {
        let error = Fault::from(problem);
        if is_running {
            app.sensors.update(name, |sensor| {
                sensor.refused = Some(error.clone());
                sensor.error = Some(error);
            });
        } else {
            app.sensors.insert(Sensor {
                name: name.to_owned(),
                file: path.display().to_string(),
                state: SensorState::Failed,
                error: Some(error),
                ..Sensor::default()
            });
        }
    }

    fn forget(app: &App, name: &str) {
        app.sensors.remove(name);
    }
}
