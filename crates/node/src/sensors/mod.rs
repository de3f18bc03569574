//! Virtual sensors: their files, their bindings, their outputs.
//!
//! The directory is looked at once a second. A changed file takes effect without a restart; one that
//! is wrong is shown with line, key and hint, while the sensor goes on as it was.

mod candidates;
mod dropped;
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

pub(crate) use files::FileError;
use files::Stamp;
pub use files::{Checked, check};
pub(crate) use table::{Sensor, Sensors};
use table::{SensorError, SensorState};

use crate::config::Problem;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::ended;

/// How often the directory is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Writes the file of a sensor.
pub(crate) fn write(app: &App, name: &str, text: &str) -> Result<(), FileError> {
    let path = app.sensors.get(name).map(|sensor| sensor.file.into());
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

/// A file that was seen.
struct Seen {
    stamp: Stamp,
    /// The name under which it is shown.
    name: String,
    running: Option<Run>,
}

struct Run {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Run {
    async fn end(self) {
        self.stop.send_replace(true);
        // A failed task has ended as well.
        let _ = self.task.await;
    }
}

/// Runs what the directory holds until the node ends.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let mut seen: BTreeMap<PathBuf, Seen> = BTreeMap::new();
    let mut told = None;
    loop {
        let directory = app.config.sensors_directory.clone();
        let scanned = tokio::task::spawn_blocking(move || files::scan(&directory)).await;
        match scanned {
            Ok(Ok(found)) => {
                told = None;
                renew(&app, &mut seen, found).await;
            }
            Ok(Err(error)) => {
                let text = format!("cannot be read: {error}");
                if told.as_ref() != Some(&text) {
                    let directory = app.config.sensors_directory.display().to_string();
                    app.observability
                        .notices
                        .tell(NoticeKind::Health, &directory, text.clone());
                    told = Some(text);
                }
            }
            Err(_) => {}
        }
        tokio::select! {
            () = ended(&mut drain) => break,
            () = app.sensors.rescan.notified() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
    for (_, one) in seen {
        if let Some(running) = one.running {
            running.end().await;
        }
    }
}

/// Ends what is gone, begins what is new, and takes up what changed.
async fn renew(app: &App, seen: &mut BTreeMap<PathBuf, Seen>, found: BTreeMap<PathBuf, Stamp>) {
    let gone: Vec<PathBuf> = seen
        .keys()
        .filter(|path| !found.contains_key(*path))
        .cloned()
        .collect();
    for path in gone {
        if let Some(one) = seen.remove(&path) {
            if let Some(running) = one.running {
                running.end().await;
            }
            app.sensors.remove(&one.name);
            app.observability
                .notices
                .tell(NoticeKind::Binding, &one.name, "its file is gone");
        }
    }
    for (path, stamp) in found {
        let known = seen.get(&path);
        if known.is_some_and(|known| known.stamp == stamp) {
            continue;
        }
        let file = path.clone();
        let text = tokio::task::spawn_blocking(move || files::read(&file)).await;
        let text = text.unwrap_or_else(|_| Err("it cannot be read".to_owned()));
        let before = seen.remove(&path);
        let taken = |name: &str| seen.values().any(|other| other.name == name);
        let parsed = parse(&path, text, taken);
        let one = match parsed {
            Ok((descriptor, text)) => begin(app, before, &path, stamp, descriptor, &text).await,
            Err(problem) => refuse(app, before, &path, stamp, *problem),
        };
        seen.insert(path, one);
    }
}

fn parse(
    path: &Path,
    text: Result<String, String>,
    taken: impl Fn(&str) -> bool,
) -> Result<(Descriptor, String), Box<Problem>> {
    let place = path.display().to_string();
    let plain = |what: String| {
        Box::new(Problem {
            place: place.clone(),
            line: None,
            key: None,
            what,
            hint: None,
        })
    };
    let text = text.map_err(plain)?;
    let descriptor = Descriptor::parse(&place, &text);
    let descriptor = descriptor.map_err(|error| Box::new(files::problem(error)))?;
    if taken(&descriptor.name) {
        let what = format!("another file has the name {:?} already", descriptor.name);
        return Err(plain(what));
    }
    Ok((descriptor, text))
}

async fn begin(
    app: &App,
    before: Option<Seen>,
    path: &Path,
    stamp: Stamp,
    descriptor: Descriptor,
    text: &str,
) -> Seen {
    let name = descriptor.name.clone();
    if let Some(before) = before {
        if let Some(running) = before.running {
            running.end().await;
        }
        app.sensors.remove(&before.name);
    }
    let file = path.display().to_string();
    app.sensors.show(run::shown(&descriptor, &file, text));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(run::run(app.clone(), descriptor, stopped));
    Seen {
        stamp,
        name,
        running: Some(Run { stop, task }),
    }
}

/// Shows what is wrong with a file. A sensor that runs goes on as it was.
fn refuse(app: &App, before: Option<Seen>, path: &Path, stamp: Stamp, problem: Problem) -> Seen {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let (name, running) = match before {
        Some(before) => (before.name, before.running),
        None => (stem.into_owned(), None),
    };
    app.observability
        .notices
        .tell(NoticeKind::Health, &name, problem.to_string());
    let error = SensorError {
        message: problem.what,
        line: problem.line,
        key: problem.key,
        hint: problem.hint,
    };
    if running.is_some() {
        app.sensors
            .update(&name, |sensor| sensor.error = Some(error));
    } else {
        app.sensors.show(Sensor {
            name: name.clone(),
            file: path.display().to_string(),
            state: SensorState::Failed,
            error: Some(error),
            ..Sensor::default()
        });
    }
    Seen {
        stamp,
        name,
        running,
    }
}
