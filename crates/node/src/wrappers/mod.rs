//! The host of wrappers and exporters: reads their files, runs them, stores what wrappers read and reads
//! what exporters write.
//!
//! Each runs in a task of its own, which is opened again after pauses that grow when a step fails: one
//! whose peer is gone delays no other. What a wrapper has received and is not stored yet is bounded
//! (`limits.unstored_bytes`); at the bound the wrapper is not asked for more.

mod attempts;
mod devices;
mod export;
mod key;
mod letters;
mod loops;
mod pause;
mod processing;
mod progress;
mod reading;
mod repeats;
mod run;
mod shared_letters;
mod store;
mod table;
mod under_way;

use std::path::Path;
use std::sync::Arc;

use chappe_stream::DescriptorError;
use chappe_transport::signatures::Signing;
use chappe_wrappers::{ExporterFile, NodeParts, Notes, StreamNow, WrapperFile};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

pub(crate) use key::{wrapper_key, wrapper_name};
pub(crate) use letters::{LetterError, discard, resend, shown};
pub(crate) use shared_letters::SharedLetters;
pub(crate) use table::{
    Call, Exporter, ExporterHandle, Exporters, Handle, InboxError, PeerState, PeerStatus, Row,
    Table, Wrapper, WrapperHandle, Wrappers,
};

use crate::config::{Fault, Problem};
use crate::notices::NoticeKind;
use crate::reload::{self, Described, FileError};
use crate::shared::{App, Shared};

/// Calls that wait for a wrapper; reason: each has a client that waits.
const CALLS_MAX: usize = 16;

/// Whether a wrapper has this name; its file may not be read yet.
pub(crate) fn exists(app: &Shared, wrapper: &str) -> bool {
    let file = || {
        app.config
            .wrappers_directory
            .join(format!("{wrapper}.toml"))
    };
    app.wrappers.has(wrapper) || file().exists() || is_of_sensor(app, wrapper)
}

/// Whether a wrapper is in the file of a virtual sensor, which may not be read yet.
fn is_of_sensor(app: &Shared, wrapper: &str) -> bool {
    let directory = &app.config.sensors_directory;
    let is_unread = |sensor: &str| {
        let file = |extension| directory.join(format!("{sensor}.{extension}"));
        app.sensors.get(sensor).is_none() && (file("toml").exists() || file("xml").exists())
    };
    // Its name begins with the sensor's, which may have dots itself.
    let mut sensors = wrapper.match_indices('.').map(|(end, _)| &wrapper[..end]);
    app.sensors.have_wrapper(wrapper) || sensors.any(is_unread)
}

/// Passes on what the program of a wrapper or an exporter prints for people.
fn notes(app: &App, name: &str) -> Notes {
    let (app, name) = (Arc::downgrade(app), name.to_owned());
    Notes::new(move |text| {
        if let Some(app) = app.upgrade() {
            let notices = &app.observability.notices;
            notices.notify(NoticeKind::Link, &name, text);
        }
    })
}

/// Runs the wrappers of the directory until the node shuts down.
pub(crate) async fn watch_wrappers(app: App) {
    reload::watch::<WrapperFiles>(app).await;
}

/// Runs the exporters of the directory until the node shuts down.
pub(crate) async fn watch_exporters(app: App) {
    reload::watch::<ExporterFiles>(app).await;
}

/// A row whose file may be sent to the node.
pub(crate) trait Sent: Row {
    /// The directory of the files.
    fn directory(app: &Shared) -> &Path;

    /// Checks a file.
    fn check(path: &Path, text: &str) -> Result<(), DescriptorError>;
}

impl Sent for Wrapper {
    fn directory(app: &Shared) -> &Path {
        &app.config.wrappers_directory
    }

    fn check(path: &Path, text: &str) -> Result<(), DescriptorError> {
        let file = WrapperFile::parse(path, text)?;
        file.check_sent(file.kind()?.name)
    }
}

impl Sent for Exporter {
    fn directory(app: &Shared) -> &Path {
        &app.config.exporters_directory
    }

    fn check(path: &Path, text: &str) -> Result<(), DescriptorError> {
        let file = ExporterFile::parse(path, text)?;
        file.check_sent(file.kind()?.name)
    }
}

/// Writes the file of a wrapper or an exporter that was sent to the node.
pub(crate) fn write<R: Sent>(app: &Shared, name: &str, text: &str) -> Result<(), FileError> {
    let directory = R::directory(app);
    let path = directory.join(format!("{name}.toml"));
    if name.contains(['/', '\\']) {
        let message = format!("{name:?} is not a name: it has a slash");
        let problem = reload::problem_of(&path, message);
        return Err(FileError::Invalid(Box::new(problem)));
    }
    let checked = R::check(&path, text);
    checked.map_err(|error| FileError::Invalid(Box::new(reload::problem(error))))?;
    reload::write(directory, &path, name, text)
}

/// Removes the file of a wrapper or an exporter.
pub(crate) fn remove(row: &impl Row) -> Result<(), FileError> {
    reload::remove(Path::new(&row.peer().file))
}

/// The files of wrappers.
struct WrapperFiles;

impl Described for WrapperFiles {
    type Parsed = WrapperFile;
    const NOTICE: NoticeKind = NoticeKind::Link;

    fn directory(app: &Shared) -> &Path {
        &app.config.wrappers_directory
    }

    fn rescan(app: &Shared) -> &Notify {
        &app.wrappers.rescan
    }

    fn parse(_: &Shared, path: &Path, text: &str) -> Result<WrapperFile, Box<Problem>> {
        let located = |error| Box::new(reload::problem(error));
        let file = WrapperFile::parse(path, text).map_err(located)?;
        file.kind().map_err(located)?;
        Ok(file)
    }

    fn name(file: &WrapperFile) -> String {
        file.name.clone()
    }

    fn start(
        app: &App,
        path: &Path,
        text: &str,
        file: WrapperFile,
        stop: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        start(app, file, path.display().to_string(), text, None, stop)
    }

    fn refuse(app: &App, name: &str, path: &Path, problem: Problem, is_running: bool) {
        refuse(&app.wrappers, name, path, problem, is_running);
    }

    fn forget(app: &App, name: &str) {
        app.wrappers.remove(name);
    }
}

/// Starts a wrapper that is in the file of a virtual sensor.
pub(crate) fn start_of_sensor(
    app: &App,
    sensor: &str,
    wrapper: WrapperFile,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let file = app.sensors.get(sensor).map(|sensor| sensor.file);
    let text = toml::to_string(&wrapper.table()).unwrap_or_default();
    let file = file.unwrap_or_default();
    start(app, wrapper, file, &text, Some(sensor), stop)
}

/// Starts a wrapper, which the file `path` describes with `text`.
fn start(
    app: &App,
    file: WrapperFile,
    path: String,
    text: &str,
    sensor: Option<&str>,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    app.wrappers.insert(Wrapper {
        sensor: sensor.map(str::to_owned),
        ..started(
            path,
            text,
            (&file.name, &file.keys.kind, &file.keys.description),
        )
    });
    let app = app.clone();
    tokio::spawn(async move {
        let (name, most) = (
            format!("wrapper/{}", file.name),
            file.keys.limits.dead_letters,
        );
        let file = Arc::new(file);
        let shared = app.wrappers.letters(&file.name);
        match shared.open(app.catalogue.store(), name, most).await {
            Ok(letters) => {
                let (calls, called) = mpsc::channel(CALLS_MAX);
                let handle = WrapperHandle {
                    file: file.clone(),
                    letters: letters.clone(),
                    calls,
                    inbox: Arc::default(),
                    databases: chappe_wrappers::databases(&file).into(),
                    shared,
                };
                app.wrappers.set_handle(&file.name, handle.clone());
                run::run(app, handle, called, stop).await;
            }
            Err(reason) => app.wrappers.update(&file.name, |row| {
                row.peer.set_state(PeerState::Trouble, Some(reason), None);
            }),
        }
    })
}

/// The files of exporters.
struct ExporterFiles;

impl Described for ExporterFiles {
    type Parsed = ExporterFile;
    const NOTICE: NoticeKind = NoticeKind::Link;

    fn directory(app: &Shared) -> &Path {
        &app.config.exporters_directory
    }

    fn rescan(app: &Shared) -> &Notify {
        &app.exporters.rescan
    }

    fn parse(_: &Shared, path: &Path, text: &str) -> Result<ExporterFile, Box<Problem>> {
        let located = |error| Box::new(reload::problem(error));
        let file = ExporterFile::parse(path, text).map_err(located)?;
        file.kind().map_err(located)?;
        Ok(file)
    }

    fn name(file: &ExporterFile) -> String {
        file.name.clone()
    }

    fn start(
        app: &App,
        path: &Path,
        text: &str,
        file: ExporterFile,
        stop: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let keys = (&*file.name, &*file.keys.kind, &file.keys.description);
        app.exporters
            .insert(started(path.display().to_string(), text, keys));
        let app = app.clone();
        tokio::spawn(async move {
            let (name, most) = (format!("exporter/{}", file.name), file.keys.dead_letters);
            let file = Arc::new(file);
            let shared = app.exporters.letters(&file.name);
            match shared.open(app.catalogue.store(), name, most).await {
                Ok(letters) => {
                    let handle = ExporterHandle {
                        letters: letters.clone(),
                        _shared: shared,
                    };
                    app.exporters.set_handle(&file.name, handle);
                    export::run(app, file, letters, stop).await;
                }
                Err(reason) => app.exporters.update(&file.name, |row| {
                    row.peer.set_state(PeerState::Trouble, Some(reason), None);
                }),
            }
        })
    }

    fn refuse(app: &App, name: &str, path: &Path, problem: Problem, is_running: bool) {
        refuse(&app.exporters, name, path, problem, is_running);
    }

    fn forget(app: &App, name: &str) {
        app.exporters.remove(name);
    }
}

/// The row of one that starts: its name, kind and description.
fn started<R: Row>(
    file: String,
    text: &str,
    (name, kind, description): (&str, &str, &Option<String>),
) -> R {
    R::from(PeerStatus {
        name: name.to_owned(),
        kind: kind.to_owned(),
        file,
        description: description.clone(),
        toml: text.to_owned(),
        ..PeerStatus::default()
    })
}

fn refuse<R: Row, H: Handle>(
    table: &Table<R, H>,
    name: &str,
    path: &Path,
    problem: Problem,
    is_running: bool,
) {
    let error = Fault::from(problem);
    match is_running {
        true => table.update(name, |row| row.peer_mut().error = Some(error)),
        false => table.insert(R::from(PeerStatus {
            name: name.to_owned(),
            file: path.display().to_string(),
            state: PeerState::Failed,
            error: Some(error),
            ..PeerStatus::default()
        })),
    }
}

/// The parts of the node that some kinds use. They end before the node, which they do not keep alive.
fn node_parts(app: &App) -> NodeParts {
    let node = Arc::downgrade(app);
    NodeParts {
        id: app.identity.public_key.as_str().into(),
        #[cfg(feature = "dds")]
        topics: Some(app.topics.clone()),
        stream: Arc::new(move |name: &str| {
            let entry = node.upgrade()?.catalogue.get(name)?;
            let log = &entry.log;
            Some(StreamNow {
                name: entry.name.clone(),
                schema: log.schema(),
                level: log.log().level(),
                last: log.log().last(),
                source: entry.source(),
                metadata_bytes: log.log().metadata_bytes(),
            })
        }),
        signing: app.signatures.clone().map(|signatures| Signing {
            signatures,
            mode: app.config.signatures.hosted.into(),
        }),
    }
}
