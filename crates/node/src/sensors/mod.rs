//! Virtual sensors: their files, their bindings, their outputs.
//!
//! The directory is scanned once a second. A changed file takes effect without a restart; an invalid
//! one is reported with line, key and hint, while the sensor keeps running unchanged.

mod candidates;
mod dead_letters;
mod dropped;
mod facts;
mod files;
mod follow;
mod output;
mod progress;
mod run;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chappe_stream::Descriptor;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use candidates::sensor_key;
pub(crate) use files::FileError;
use files::Stamp;
pub use files::{Checked, check};
use table::SensorError;
pub(crate) use table::{Sensor, SensorState, Sensors};

use crate::config::{Problem, Read};
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::shutdown;

/// Time between two scans of the directory.
const PERIOD: Duration = Duration::from_secs(1);

/// Writes the file of a sensor.
pub(crate) fn write(app: &App, name: &str, text: &str) -> Result<(), FileError> {
    let path = app.sensors.get(name).map(|sensor| sensor.file.into());
    let reading = app.config.access.read;
    files::write(&app.config.sensors_directory, reading, path, name, text)
}

/// Removes the file of a sensor.
pub(crate) fn remove(app: &App, name: &str) -> Result<(), FileError> {
    let Some(sensor) = app.sensors.get(name) else {
        return Ok(());
    };
    std::fs::remove_file(&sensor.file)
        .map_err(|error| FileError::Io(format!("{}: {error}", sensor.file)))
}

/// A loaded sensor file.
struct LoadedFile {
    stamp: Stamp,
    /// The name of its entry in the table of sensors.
    name: String,
    running: Option<Run>,
}

struct Run {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Run {
    async fn stop(self) {
        self.stop.send_replace(true);
        // A failed task has ended as well.
        let _ = self.task.await;
    }
}

/// Runs the sensors of the directory until the node shuts down.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let mut loaded: BTreeMap<PathBuf, LoadedFile> = BTreeMap::new();
    let mut notified = None;
    loop {
        let directory = app.config.sensors_directory.clone();
        let scanned = tokio::task::spawn_blocking(move || files::scan(&directory)).await;
        match scanned {
            Ok(Ok(found)) => {
                notified = None;
                reload(&app, &mut loaded, found).await;
            }
            Ok(Err(error)) => {
                let text = format!("cannot be read: {error}");
                if notified.as_ref() != Some(&text) {
                    let directory = app.config.sensors_directory.display().to_string();
                    app.observability
                        .notices
                        .notify(NoticeKind::Health, &directory, text.clone());
                    notified = Some(text);
                }
            }
            Err(_) => {}
        }
        tokio::select! {
            () = shutdown(&mut drain) => break,
            () = app.sensors.rescan.notified() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
    for (_, file) in loaded {
        if let Some(running) = file.running {
            running.stop().await;
        }
    }
}

/// Stops sensors whose files were removed, and starts those whose files are new or changed.
async fn reload(
    app: &App,
    loaded: &mut BTreeMap<PathBuf, LoadedFile>,
    found: BTreeMap<PathBuf, Stamp>,
) {
    let removed: Vec<PathBuf> = loaded
        .keys()
        .filter(|path| !found.contains_key(*path))
        .cloned()
        .collect();
    for path in removed {
        if let Some(file) = loaded.remove(&path) {
            if let Some(running) = file.running {
                running.stop().await;
            }
            app.sensors.remove(&file.name);
            app.observability.notices.notify(
                NoticeKind::Binding,
                &file.name,
                "its file was removed",
            );
        }
    }
    for (path, stamp) in found {
        let known = loaded.get(&path);
        if known.is_some_and(|known| known.stamp == stamp) {
            continue;
        }
        let file = path.clone();
        let text = tokio::task::spawn_blocking(move || files::read(&file)).await;
        let text = text.unwrap_or_else(|_| Err("the file cannot be read".to_owned()));
        let before = loaded.remove(&path);
        let is_taken = |name: &str| loaded.values().any(|other| other.name == name);
        let parsed = parse(&path, text, app.config.access.read, is_taken);
        let file = match parsed {
            Ok((descriptor, text)) => start(app, before, &path, stamp, descriptor, &text).await,
            Err(problem) => refuse(app, before, &path, stamp, *problem),
        };
        loaded.insert(path, file);
    }
}

fn parse(
    path: &Path,
    text: Result<String, String>,
    reading: Read,
    is_taken: impl Fn(&str) -> bool,
) -> Result<(Descriptor, String), Box<Problem>> {
    let location = path.display().to_string();
    let plain = |message: String| {
        Box::new(Problem {
            location: location.clone(),
            line: None,
            key: None,
            message,
            hint: None,
        })
    };
    let text = text.map_err(plain)?;
    let descriptor = files::descriptor(&location, &text, reading)?;
    if is_taken(&descriptor.name) {
        let message = format!("another file already has the name {:?}", descriptor.name);
        return Err(plain(message));
    }
    Ok((descriptor, text))
}

async fn start(
    app: &App,
    before: Option<LoadedFile>,
    path: &Path,
    stamp: Stamp,
    descriptor: Descriptor,
    text: &str,
) -> LoadedFile {
    let name = descriptor.name.clone();
    if let Some(before) = before {
        if let Some(running) = before.running {
            running.stop().await;
        }
        app.sensors.remove(&before.name);
    }
    let file = path.display().to_string();
    app.sensors.insert(run::describe(&descriptor, &file, text));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(run::run(app.clone(), descriptor, stopped));
    LoadedFile {
        stamp,
        name,
        running: Some(Run { stop, task }),
    }
}

/// Reports an invalid file. A running sensor keeps running unchanged.
fn refuse(
    app: &App,
    before: Option<LoadedFile>,
    path: &Path,
    stamp: Stamp,
    problem: Problem,
) -> LoadedFile {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let (name, running) = match before {
        Some(before) => (before.name, before.running),
        None => (stem.into_owned(), None),
    };
    app.observability
        .notices
        .notify(NoticeKind::Health, &name, problem.to_string());
    let error = SensorError {
        message: problem.message,
        line: problem.line,
        key: problem.key,
        hint: problem.hint,
    };
    if running.is_some() {
        app.sensors
            .update(&name, |sensor| sensor.error = Some(error));
    } else {
        app.sensors.insert(Sensor {
            name: name.clone(),
            file: path.display().to_string(),
            state: SensorState::Failed,
            error: Some(error),
            ..Sensor::default()
        });
    }
    LoadedFile {
        stamp,
        name,
        running,
    }
}
