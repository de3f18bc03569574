//! Directories of TOML files that take effect while the node runs: virtual sensors, wrappers, exporters.
//!
//! A directory is scanned once a second. A changed file takes effect without a restart; an invalid one is
//! reported with line, key and hint, while what the file described before keeps running unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chappe_stream::DescriptorError;
use nix::unistd::{Uid, User};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::config::Problem;
use crate::notices::NoticeKind;
use crate::shared::{App, Shared};
use crate::tasks::shutdown;

/// Time between two scans of a directory.
const PERIOD: Duration = Duration::from_secs(1);
/// Largest file in bytes; a larger one is refused unread.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// The number of files of a directory that are loaded, the first ones by name; reason: each is a task with its own state.
const FILES_MAX: usize = 1_000;

/// The ending of the names of files with expectations, which `chappe test` reads and a node passes over.
pub(crate) const TEST_ENDING: &str = ".test.toml";

/// What the files of a directory describe.
pub(crate) trait Described: 'static {
    /// What a file says.
    type Parsed: Send;
    /// The kind of notices about a file that was removed.
    const NOTICE: NoticeKind;
    /// The endings of the names of files.
    const EXTENSIONS: &[&str] = &["toml"];

    /// The directory.
    fn directory(app: &Shared) -> &Path;

    /// Wakes the scan before its time.
    fn rescan(app: &Shared) -> &Notify;

    /// Reads the text of a file.
    fn parse(app: &Shared, path: &Path, text: &str) -> Result<Self::Parsed, Box<Problem>>;

    /// The name of what a file describes.
    fn name(parsed: &Self::Parsed) -> String;

    /// Starts it. The task ends after `stop` becomes true.
    fn start(
        app: &App,
        path: &Path,
        text: &str,
        parsed: Self::Parsed,
        stop: watch::Receiver<bool>,
    ) -> JoinHandle<()>;

    /// Shows an invalid file; `is_running` if an earlier version of it runs.
    fn refuse(app: &App, name: &str, path: &Path, problem: Problem, is_running: bool);

    /// Forgets what a removed or changed file described. It has ended.
    fn forget(app: &App, name: &str);
}

/// A loaded file.
struct LoadedFile {
    stamp: Stamp,
    name: String,
    running: Option<Run>,
    /// The fault of a file that may become valid without a change of its stamp, which is why it is read again.
    passing: Option<Problem>,
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

/// Runs what the files of a directory describe, until the node shuts down.
pub(crate) async fn watch<D: Described>(app: App) {
    let mut drain = app.drain.clone();
    let mut loaded: BTreeMap<PathBuf, LoadedFile> = BTreeMap::new();
    let mut notified = None;
    loop {
        let directory = D::directory(&app).to_owned();
        let scanned = tokio::task::spawn_blocking(move || scan(&directory, D::EXTENSIONS)).await;
        match scanned {
            Ok(Ok(Scan { found, fault })) => {
                reload::<D>(&app, &mut loaded, found).await;
                notify_once::<D>(&app, &mut notified, fault);
            }
            Ok(Err(error)) => {
                let fault = format!("cannot be read: {error}");
                notify_once::<D>(&app, &mut notified, Some(fault));
            }
            Err(_) => {}
        }
        tokio::select! {
            () = shutdown(&mut drain) => break,
            () = D::rescan(&app).notified() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
    for (_, file) in loaded {
        if let Some(running) = file.running {
            running.stop().await;
        }
    }
}

/// Reports a fault of the directory, if it is another one than before.
fn notify_once<D: Described>(app: &App, notified: &mut Option<String>, fault: Option<String>) {
    if let Some(text) = fault.as_ref().filter(|_| *notified != fault) {
        let directory = D::directory(app).display().to_string();
        let notices = &app.observability.notices;
        notices.notify(NoticeKind::Health, &directory, text.clone());
    }
    *notified = fault;
}

/// Stops what removed files described, and starts what new or changed ones describe.
async fn reload<D: Described>(
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
            D::forget(app, &file.name);
            app.observability
                .notices
                .notify(D::NOTICE, &file.name, "its file was removed");
        }
    }
    for (path, stamp) in found {
        let known = loaded.get(&path);
        if known.is_some_and(|known| known.stamp == stamp && known.passing.is_none()) {
            continue;
        }
        let (file, of) = (path.clone(), app.clone());
        // What a file includes may take long.
        let parsed = tokio::task::spawn_blocking(move || parse::<D>(&of, &file)).await;
        let passing = |message: String| Fault::Passing(Box::new(problem_of(&path, message)));
        let parsed = parsed.unwrap_or_else(|_| Err(passing("the file cannot be read".to_owned())));
        let before = loaded.remove(&path);
        let parsed = parsed.and_then(|(parsed, text)| {
            let name = D::name(&parsed);
            let named = |(_, other): &(&PathBuf, &LoadedFile)| other.name == name;
            match loaded.iter().find(named) {
                Some((other, _)) => {
                    let other = other.display();
                    Err(passing(format!("{other} already has the name {name:?}")))
                }
                None => Ok((parsed, text)),
            }
        });
        let file = match parsed {
            Ok((parsed, text)) => start::<D>(app, before, &path, stamp, parsed, &text).await,
            Err(fault) => refuse::<D>(app, before, &path, stamp, fault),
        };
        loaded.insert(path, file);
    }
}

/// Why a file is refused.
enum Fault {
    /// Its text is wrong: it stays refused until the file changes.
    Text(Box<Problem>),
    /// Something around it is: its permissions, or another file of the same name.
    Passing(Box<Problem>),
}

fn parse<D: Described>(app: &Shared, path: &Path) -> Result<(D::Parsed, String), Fault> {
    let text = read(path).map_err(|message| Fault::Passing(Box::new(problem_of(path, message))))?;
    Ok((D::parse(app, path, &text).map_err(Fault::Text)?, text))
}

async fn start<D: Described>(
    app: &App,
    before: Option<LoadedFile>,
    path: &Path,
    stamp: Stamp,
    parsed: D::Parsed,
    text: &str,
) -> LoadedFile {
    let name = D::name(&parsed);
    if let Some(before) = before {
        if let Some(running) = before.running {
            running.stop().await;
        }
        D::forget(app, &before.name);
    }
    let (stop, stopped) = watch::channel(false);
    let task = D::start(app, path, text, parsed, stopped);
    LoadedFile {
        stamp,
        name,
        running: Some(Run { stop, task }),
        passing: None,
    }
}

/// Reports an invalid file. What runs keeps running unchanged.
fn refuse<D: Described>(
    app: &App,
    before: Option<LoadedFile>,
    path: &Path,
    stamp: Stamp,
    fault: Fault,
) -> LoadedFile {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let (name, running, reported) = match before {
        Some(before) => (before.name, before.running, before.passing),
        None => (stem.into_owned(), None, None),
    };
    let (problem, passing) = match fault {
        Fault::Text(problem) => (*problem, None),
        Fault::Passing(problem) => (*problem.clone(), Some(*problem)),
    };
    if passing.is_none() || passing != reported {
        tracing::warn!("{problem}");
        app.observability
            .notices
            .notify(NoticeKind::Health, &name, problem.to_string());
        D::refuse(app, &name, path, problem, running.is_some());
    }
    LoadedFile {
        stamp,
        name,
        running,
        passing,
    }
}

/// Converts a fault of a file.
pub(crate) fn problem(error: DescriptorError) -> Problem {
    Problem {
        location: error.file,
        line: Some(error.line),
        key: Some(error.key).filter(|key| !key.is_empty()),
        message: error.message,
        hint: error.hint,
    }
}

/// A fault of a whole file.
pub(crate) fn problem_of(path: &Path, message: String) -> Problem {
    Problem {
        location: path.display().to_string(),
        line: None,
        key: None,
        message,
        hint: None,
    }
}

/// File metadata that reveals a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// What was found in a directory.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The files to load.
    pub(crate) found: BTreeMap<PathBuf, Stamp>,
    /// Why these are not all of them.
    pub(crate) fault: Option<String>,
}

/// The files of a directory; none if it does not exist.
pub(crate) fn scan(directory: &Path, extensions: &[&str]) -> io::Result<Scan> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeMap::new();
    let mut beyond = 0_u64;
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Scan::default()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let extension = path.extension().unwrap_or_default();
        let is_described = extensions.iter().any(|one| extension == *one);
        if name.starts_with('.') || name.ends_with(TEST_ENDING) || !is_described {
            continue;
        }
        // The file may have been removed since.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if metadata.is_file() {
            let stamp = Stamp {
                modified: metadata.modified().ok(),
                bytes: metadata.len(),
                inode: metadata.ino(),
            };
            found.insert(path, stamp);
            if found.len() > FILES_MAX {
                found.pop_last();
                beyond += 1;
            }
        }
    }
    let fault = (beyond > 0).then(|| {
        format!("has {beyond} files too many: only the first {FILES_MAX} by name are loaded")
    });
    Ok(Scan { found, fault })
}

/// Reads a file, or returns the reason why it cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    // Whatever length the system says it has.
    fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file is longer than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())
}

/// A file was not written or removed.
pub(crate) enum FileError {
    /// It is invalid.
    Invalid(Box<Problem>),
    /// It cannot be written.
    Io(String),
    /// The disk is full.
    Full(String),
    /// The node may not write there.
    Unwritable {
        /// What failed.
        text: String,
        /// What the operator of the node can do.
        hint: String,
    },
}

impl FileError {
    /// Why the system refuses something at a path.
    pub(crate) fn of(path: &Path, error: &std::io::Error) -> Self {
        let text = format!("{}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(text),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let hint = remedy(path.parent().unwrap_or(path), error.kind());
                Self::Unwritable { text, hint }
            }
            _ => Self::Io(text),
        }
    }
}

/// How the node gets a directory that it can write.
fn remedy(directory: &Path, kind: io::ErrorKind) -> String {
    let directory = directory.display();
    let other = "name another directory in node.toml (sensors_directory, wrappers_directory, \
                 exporters_directory) and restart the node";
    if kind == io::ErrorKind::ReadOnlyFilesystem {
        return format!("{directory} is read-only for the node: {other}");
    }
    let own = Uid::effective();
    let user = User::from_uid(own).ok().flatten();
    let user = user.map_or_else(|| own.to_string(), |user| user.name);
    format!("on the node's host: sudo install -d -o {user} {directory}; or {other}")
}

/// Writes a file atomically; of several at once, the last one stays. `name` begins that of its temporary.
pub(crate) fn write(
    directory: &Path,
    path: &Path,
    name: &str,
    text: &str,
) -> Result<(), FileError> {
    let write = || {
        fs::create_dir_all(directory)?;
        let mut whole = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".new")
            .permissions(fs::Permissions::from_mode(0o666)) // Less the process's umask.
            .tempfile_in(directory)?;
        whole.write_all(text.as_bytes())?;
        whole.as_file().sync_all()?;
        whole.persist(path)?;
        fs::File::open(directory)?.sync_all()
    };
    write().map_err(|error: io::Error| FileError::of(path, &error))
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        // Another request has removed it, and the directory was not read since.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| FileError::of(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_the_limit_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..FILES_MAX {
            fs::write(folder.path().join(format!("{number:04}.toml")), "").unwrap();
        }
        let all = scan(folder.path(), &["toml"]).unwrap();
        assert_eq!((all.found.len(), all.fault), (FILES_MAX, None));
        for name in ["0000b.toml", "other.toml"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let Scan { found, fault } = scan(folder.path(), &["toml"]).unwrap();
        assert_eq!(found.len(), FILES_MAX);
        assert!(found.contains_key(&folder.path().join("0000b.toml")));
        let fault = fault.unwrap();
        assert!(fault.starts_with("has 2 files too many"), "{fault}");
    }

    #[test]
    fn a_refusal_of_the_system_says_what_to_do() {
        let path = Path::new("/etc/chappe/sensors/a.toml");
        // EACCES, EROFS.
        for (code, part) in [
            (13, "sudo install -d -o "),
            (30, "is read-only for the node"),
        ] {
            let refused = FileError::of(path, &io::Error::from_raw_os_error(code));
            let FileError::Unwritable { text, hint } = refused else {
                panic!("{code}");
            };
            assert!(text.contains("/etc/chappe/sensors/a.toml"), "{text}");
            assert!(
                hint.contains(part) && hint.contains("sensors_directory"),
                "{hint}"
            );
        }
    }

    #[test]
    fn of_files_written_at_once_each_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let texts = ["a".repeat(9_000), "b".repeat(5_000), "c".repeat(1_000)];
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert!(write(folder.path(), &path, "a", text).is_ok());
                        let read = fs::read_to_string(&path).unwrap();
                        assert!(texts.contains(&read), "{} bytes", read.len());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
