//! The host of wrappers and exporters: reads their files, runs them, stores what wrappers read and reads
//! what exporters write.
//!
//! Each runs in a task of its own, which is opened again after pauses that grow when a step fails: one
//! whose peer is gone delays no other. What a wrapper has received and is not stored yet is bounded
//! (`limits.unstored_bytes`); at the bound the wrapper is not asked for more.

mod attempts;
mod export;
mod letters;
mod pause;
mod progress;
mod run;
mod store;
mod table;

use std::path::Path;
use std::sync::Arc;

use chappe_links::DeadLetters;
use chappe_wrappers::{ExporterFile, NodeParts, StreamNow, WrapperFile};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

pub(crate) use letters::{LetterError, discard, resend};
pub(crate) use table::{
    Call, Exporter, ExporterHandle, Exporters, FileFault, InboxError, PeerState, Row, Wrapper,
    WrapperHandle, Wrappers,
};

use crate::config::Problem;
use crate::notices::NoticeKind;
use crate::reload::{self, Described, FileError};
use crate::shared::{App, Shared};

/// Calls that wait for a wrapper; reason: each has a client that waits.
const CALLS_MAX: usize = 16;

/// The key of a wrapper in the registry, which is also the source of its streams.
pub(crate) fn wrapper_key(wrapper: &str) -> String {
    format!("urn:chappe:wrapper:{wrapper}")
}

/// The name of the wrapper with this key in the registry.
pub(crate) fn wrapper_name(key: &str) -> Option<&str> {
    key.strip_prefix("urn:chappe:wrapper:")
}

/// Whether a wrapper has this name; its file may not be read yet.
pub(crate) fn exists(app: &Shared, wrapper: &str) -> bool {
    let file = || {
        app.config
            .wrappers_directory
            .join(format!("{wrapper}.toml"))
    };
    app.wrappers.has(wrapper) || file().exists()
}

/// Runs the wrappers of the directory until the node shuts down.
pub(crate) async fn watch_wrappers(app: App) {
    reload::watch::<WrapperFiles>(app).await;
}

/// Runs the exporters of the directory until the node shuts down.
pub(crate) async fn watch_exporters(app: App) {
    reload::watch::<ExporterFiles>(app).await;
}

/// Writes the file of a wrapper that was sent to the node.
pub(crate) fn write_wrapper(app: &App, name: &str, text: &str) -> Result<(), FileError> {
    let directory = &app.config.wrappers_directory;
    let path = directory.join(format!("{name}.toml"));
    let file = WrapperFile::parse(&path, text);
    let parsed = file.and_then(|file| file.check_sent(file.kind()?.name));
    parsed.map_err(|error| FileError::Invalid(Box::new(reload::problem(error))))?;
    reload::write(directory, &path, name, text)
}

/// Writes the file of an exporter that was sent to the node.
pub(crate) fn write_exporter(app: &App, name: &str, text: &str) -> Result<(), FileError> {
    let directory = &app.config.exporters_directory;
    let path = directory.join(format!("{name}.toml"));
    let file = ExporterFile::parse(&path, text);
    let parsed = file.and_then(|file| file.check_sent(file.kind()?.name));
    parsed.map_err(|error| FileError::Invalid(Box::new(reload::problem(error))))?;
    reload::write(directory, &path, name, text)
}

/// Removes the file of a wrapper or an exporter.
pub(crate) fn remove(row: &impl Row) -> Result<(), FileError> {
    reload::remove(Path::new(row.file()))
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
        app.wrappers.insert(Wrapper {
            name: file.name.clone(),
            kind: file.keys.kind.clone(),
            file: path.display().to_string(),
            description: file.keys.description.clone(),
            toml: text.to_owned(),
            ..Wrapper::default()
        });
        let app = app.clone();
        tokio::spawn(async move {
            let (name, most) = (
                format!("wrapper/{}", file.name),
                file.keys.limits.dead_letters,
            );
            let file = Arc::new(file);
            match open_letters(&app, name, most).await {
                Ok(letters) => {
                    let (calls, called) = mpsc::channel(CALLS_MAX);
                    let handle = WrapperHandle {
                        file: file.clone(),
                        letters: letters.clone(),
                        calls,
                        inbox: Arc::default(),
                    };
                    app.wrappers.set_handle(&file.name, handle.clone());
                    run::run(app, handle, called, stop).await;
                }
                Err(reason) => app.wrappers.update(&file.name, |row| {
                    row.set_state(PeerState::Trouble, Some(reason), None);
                }),
            }
        })
    }

    fn refuse(app: &App, name: &str, path: &Path, problem: Problem, is_running: bool) {
        refuse(&app.wrappers, name, path, problem, is_running);
    }

    fn forget(app: &App, name: &str) {
        app.wrappers.remove(name);
    }
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
        app.exporters.insert(Exporter {
            name: file.name.clone(),
            kind: file.keys.kind.clone(),
            file: path.display().to_string(),
            description: file.keys.description.clone(),
            toml: text.to_owned(),
            ..Exporter::default()
        });
        let app = app.clone();
        tokio::spawn(async move {
            let (name, most) = (format!("exporter/{}", file.name), file.keys.dead_letters);
            let file = Arc::new(file);
            match open_letters(&app, name, most).await {
                Ok(letters) => {
                    let handle = ExporterHandle {
                        letters: letters.clone(),
                    };
                    app.exporters.set_handle(&file.name, handle);
                    export::run(app, file, letters, stop).await;
                }
                Err(reason) => app.exporters.update(&file.name, |row| {
                    row.set_state(PeerState::Trouble, Some(reason), None);
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

fn refuse<R: Row, H: Clone>(
    table: &table::Table<R, H>,
    name: &str,
    path: &Path,
    problem: Problem,
    is_running: bool,
) {
    let error = FileFault {
        message: problem.message,
        line: problem.line,
        key: problem.key,
        hint: problem.hint,
    };
    match is_running {
        true => table.update(name, |row| row.set_error(error)),
        false => table.insert(R::failed(name, &path.display().to_string(), error)),
    }
}

/// The parts of the node that some kinds use. They end before the node, which they do not keep alive.
fn node_parts(app: &App) -> NodeParts {
    let node = Arc::downgrade(app);
    NodeParts {
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
            })
        }),
    }
}

/// Opens the dead letters of a wrapper or an exporter, which reads the disk.
async fn open_letters(app: &App, name: String, most: u64) -> Result<Arc<DeadLetters>, String> {
    let store = app.catalogue.store();
    let opened = tokio::task::spawn_blocking(move || DeadLetters::named(&store, &name, most)).await;
    match opened {
        Ok(Ok(letters)) => Ok(Arc::new(letters)),
        Ok(Err(error)) => Err(format!("cannot read the dead letters: {error}")),
        Err(_) => Err("reading the dead letters was interrupted".to_owned()),
    }
}
