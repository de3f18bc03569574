//! The output of a program: results on standard output, everything else on standard error.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chappe_machine::is_invisible;
use serde::Serialize;
use tempfile::{NamedTempFile, PersistError};

/// The reason why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The error, outermost context first.
    pub message: String,
    /// A remedy, if one is known.
    pub hint: Option<String>,
    /// 1 for a negative result, 2 for an error.
    pub code: u8,
    /// Its code among those that `chappe explain` explains.
    pub error_code: Cow<'static, str>,
}

impl Failure {
    /// The code of an error that has none of its own: its message says all.
    pub const GENERAL: &'static str = "failed";

    /// An error.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            code: 2,
            error_code: Self::GENERAL.into(),
        }
    }

    /// A negative result that was printed already.
    pub fn negative() -> Self {
        Self {
            message: String::new(),
            hint: None,
            code: 1,
            error_code: Self::GENERAL.into(),
        }
    }

    /// Sets its code.
    #[must_use]
    pub fn coded(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.error_code = code.into();
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a remedy, if there is one.
    #[must_use]
    pub fn hint_if(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into).or(self.hint);
        self
    }
}

/// Converts an error with its causes. Its code is that of the system's error among them, if there is one.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let code = system_code(&error);
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(below) = source {
            let text = below.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = below.source();
        }
        Self::new(message).coded(code)
    }
}

/// The code of the first error of the system among an error and its causes.
fn system_code(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let systems = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    let mut codes = systems.filter_map(|error| match error.kind() {
        io::ErrorKind::NotFound => Some("file_not_found"),
        io::ErrorKind::PermissionDenied => Some("permission_denied"),
        io::ErrorKind::ReadOnlyFilesystem => Some("read_only"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("disk_full"),
        io::ErrorKind::AddrInUse => Some("address_in_use"),
        io::ErrorKind::AddrNotAvailable => Some("address_not_available"),
        io::ErrorKind::ConnectionRefused => Some("connection_refused"),
        io::ErrorKind::TimedOut => Some("timed_out"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some("unreachable"),
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset => Some("connection_broken"),
        _ => None,
    });
    codes.next().unwrap_or(Failure::GENERAL)
}

/// The result of a command.
pub type Outcome = Result<(), Failure>;

/// Prints a line to standard output; a closed pipe silently ends the program. It may contain text of strangers:
/// unchanged to a file or pipe, without characters that change what is shown to a terminal.
pub fn line(text: impl fmt::Display) {
    styled("", text);
}

/// The same after a sequence of the program's own that a terminal obeys, such as a word in a colour.
pub fn styled(sequence: &str, text: impl fmt::Display) {
    let mut out = std::io::stdout().lock();
    let text = text.to_string();
    let text = line_for(&text, out.is_terminal());
    let written = writeln!(out, "{sequence}{text}").and_then(|()| out.flush());
    end_unless_printed(written);
}

/// Prints bytes as they are.
pub fn bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    end_unless_printed(out.write_all(bytes).and_then(|()| out.flush()));
}

/// Ends the program if standard output takes nothing: quietly if its reader has enough (`head`), with an error if the
/// result is cut (a full disk).
fn end_unless_printed(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => end(0),
        Err(error) => {
            note(format_args!(
                "error: cannot write to standard output: {error}"
            ));
            end(2);
        }
    }
}

fn end(code: i32) -> ! {
    let temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in temporary.iter() {
        let _ = std::fs::remove_dir_all(folder);
    }
    std::process::exit(code)
}

/// Directories that nothing else removes if the program ends because standard output takes nothing.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes a directory if the program ends because standard output takes nothing.
pub fn remove_at_end(folder: &Path) {
    let mut temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    temporary.push(folder.to_owned());
}

fn line_for(text: &str, is_terminal: bool) -> Cow<'_, str> {
    match is_terminal {
        true => clean_lines(text).into(),
        false => text.into(),
    }
}

/// Prints a JSON document on one line. Characters that change what a terminal shows are escaped, as JSON demands only of
/// those below U+0020.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => line(escaped(&text)),
        Err(error) => note(format_args!("cannot print the result as JSON: {error}")),
    }
}

/// A JSON document with invisible characters, which are in strings alone, as escapes.
fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(is_invisible) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match is_invisible(character) {
            // All are in the first plane.
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text.into()
}

/// Prints a message to standard error, without characters that change what a terminal shows.
pub fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{}", clean_lines(&text.to_string()));
}

/// Text of a device on one line for a terminal: characters that change what it shows, such as control characters and
/// those that reverse the order of text, are U+FFFD.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// The same, of several lines.
fn clean_lines(text: &str) -> String {
    let kept = |c| matches!(c, '\n' | '\t');
    let characters = text.chars();
    characters
        .map(|c| if kept(c) { c } else { visible(c) })
        .collect()
}

fn visible(character: char) -> char {
    match is_invisible(character) {
        true => '\u{fffd}',
        false => character,
    }
}

/// Prints a message to standard error, if that is a terminal.
pub fn progress(text: impl fmt::Display) {
    if std::io::stderr().is_terminal() {
        note(text);
    }
}

/// Creates a folder for results. Call it before the work, which would be lost otherwise.
pub fn folder(path: &Path) -> Outcome {
    let made = std::fs::create_dir_all(path);
    made.map_err(|error| refused("create", path, &error))
}

/// Links that are followed to an open file; reason: the kernel follows as many.
const LINKS_MAX: usize = 40;

/// A result that appears under its name once it is complete; dropped before, it leaves nothing behind. A device, a pipe
/// or an open file, such as `/dev/stdout`, gets the result as it is written.
pub struct NewFile {
    content: Content,
    /// The path that the user gave.
    path: PathBuf,
    /// Where the file gets its name: the file that a link names is replaced, not the link.
    target: PathBuf,
    /// Bytes that were written.
    bytes: u64,
}

enum Content {
    /// A file next to the one that it becomes.
    Temporary(NamedTempFile),
    /// The device, the pipe or the open file itself.
    Direct(File),
}

impl NewFile {
    /// Begins a file next to `path`. One that will replace another has its owner and mode from now on, since its text may
    /// hold a token; any other has the permissions of a new file.
    pub fn begin(path: &Path) -> Result<Self, Failure> {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let begin = || match direct(path)? {
            Some(file) => Ok(Content::Direct(file)),
            None => temporary(&target).map(Content::Temporary),
        };
        let content = begin().map_err(|error| unwritable(path, &error))?;
        Ok(Self {
            content,
            path: path.to_owned(),
            target,
            bytes: 0,
        })
    }

    /// The file that holds the content; bytes written to it directly are not counted.
    pub fn file(&mut self) -> &mut File {
        match &mut self.content {
            Content::Temporary(file) => file.as_file_mut(),
            Content::Direct(file) => file,
        }
    }

    /// Syncs it and gives it its name, in place of a former file. Returns the number of bytes written.
    pub fn replace(self) -> Result<u64, Failure> {
        let persist = |whole: NamedTempFile, target: &Path| whole.persist(target);
        self.finish(persist)
    }

    /// The same, unless there is a file of this name.
    ///
    /// # Errors
    /// There is one (`file_exists`), or it cannot be written.
    pub fn create(self) -> Result<u64, Failure> {
        let persist = |whole: NamedTempFile, target: &Path| whole.persist_noclobber(target);
        self.finish(persist)
    }

    fn finish(
        self,
        persist: impl FnOnce(NamedTempFile, &Path) -> Result<File, PersistError>,
    ) -> Result<u64, Failure> {
        let Content::Temporary(whole) = self.content else {
            return Ok(self.bytes);
        };
        let finish = || {
            whole.as_file().sync_all()?;
            persist(whole, &self.target)?;
            let folder = self.target.parent().filter(|it| !it.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(self.bytes)
        };
        finish().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.path),
            _ => unwritable(&self.path, &error),
        })
    }
}

impl Write for NewFile {
    /// A closed standard output silently ends the program, as in [`line`](fn@line).
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.file().write(bytes) {
            Err(error)
                if error.kind() == io::ErrorKind::BrokenPipe && is_standard_output(&self.path) =>
            {
                end(0)
            }
            written => written?,
        };
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// A new file next to `target`.
fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|it| !it.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(0o666)); // Less the process's umask.
    let whole = builder.tempfile_in(folder.unwrap_or(Path::new(".")))?;
    if let Ok(former) = std::fs::metadata(target) {
        let (file, made) = (whole.as_file(), whole.as_file().metadata()?);
        if (made.uid(), made.gid()) != (former.uid(), former.gid()) {
            fchown(file, Some(former.uid()), Some(former.gid()))?;
        }
        file.set_permissions(former.permissions())?;
    }
    Ok(whole)
}

/// What is written to as it is: an open file of this process, a device or a pipe. A directory is an error.
fn direct(path: &Path) -> io::Result<Option<File>> {
    let number = descriptor(path);
    let owned = match number {
        Some(1) => Some(io::stdout().as_fd().try_clone_to_owned()?),
        Some(2) => Some(io::stderr().as_fd().try_clone_to_owned()?),
        _ => None,
    };
    if let Some(owned) = owned {
        return Ok(Some(owned.into()));
    }
    if number.is_some() || std::fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        // The former content of an open file stays.
        return OpenOptions::new().append(true).open(path).map(Some);
    }
    Ok(None)
}

/// The number of the open file of this process that a path names, such as 1 for `/dev/stdout`.
fn descriptor(path: &Path) -> Option<u32> {
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..LINKS_MAX {
        let folder = path.parent()?.canonicalize().ok()?;
        if folder.starts_with(&own) && folder.ends_with("fd") {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = folder.join(std::fs::read_link(&path).ok()?);
    }
    None
}

/// Whether a path names standard output: then what is said about the result goes to standard error.
#[must_use]
pub fn is_standard_output(path: &Path) -> bool {
    descriptor(path) == Some(1)
}

/// Checks that a file can be written at `path`, in a folder that may not exist yet. Call it before the work, which would
/// be lost otherwise; it leaves nothing behind.
pub fn check_writable(path: &Path) -> Outcome {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let existing = whole.ancestors().find(|it| it.exists());
    let tried = tempfile::tempfile_in(existing.unwrap_or(&whole));
    tried.map(drop).map_err(|error| match folder.exists() {
        true => unwritable(path, &error),
        false => refused("create", folder, &error),
    })
}

/// Writes a result to a file, which has either its former content or all of this one at any time. A device, a pipe or an
/// open file is written to as it is.
pub fn file(path: &Path, text: &str) -> Outcome {
    filled(path, text)?.replace().map(drop)
}

/// Writes a file that does not exist yet; an existing one stays as it is.
///
/// # Errors
/// It exists (`file_exists`), or cannot be written.
pub fn new_file(path: &Path, text: &str) -> Outcome {
    if path.exists() {
        return Err(exists(path));
    }
    filled(path, text)?.create().map(drop)
}

fn filled(path: &Path, text: &str) -> Result<NewFile, Failure> {
    let mut new = NewFile::begin(path)?;
    let written = new.write_all(text.as_bytes());
    written.map_err(|error| unwritable(path, &error))?;
    Ok(new)
}

fn exists(path: &Path) -> Failure {
    Failure::new(format!("{} already exists", path.display())).coded("file_exists")
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    refused("write", path, error)
}

/// The failure to create or write something at a path.
pub fn refused(verb: &str, path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "disk_full",
        io::ErrorKind::ReadOnlyFilesystem => "read_only",
        _ => "file_unwritable",
    };
    // That of a temporary file goes on with the file's path, which says nothing to a user.
    let reason = error.to_string();
    let reason = reason.split(" at path \"").next().unwrap_or_default();
    let message = format!("cannot {verb} {}: {reason}", path.display());
    Failure::new(message).coded(code)
}

/// Whether standard output may be coloured.
pub fn colour() -> bool {
    colour_of(&std::io::stdout())
}

/// Whether an output may be coloured: a file or the journal shows the codes of colours as text.
pub(crate) fn colour_of(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Columns of the terminal to which results are printed; `None` if that is not a terminal.
#[must_use]
pub fn width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(out)?;
    Some(usize::from(columns))
}

/// A number with at most six digits after the point, for a person to read.
#[must_use]
pub fn number(number: f64) -> String {
    let exact = number.to_string();
    let size = number.abs();
    match size {
        _ if exact.len() <= 10 || !number.is_finite() => exact,
        0.001..1e9 => {
            let text = format!("{number:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{number:.5e}"),
    }
}

/// Rows in aligned columns under a header.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a header.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self::with_head(head.iter().map(ToString::to_string).collect())
    }

    /// A table with a header that is computed at run time.
    pub fn with_head(head: Vec<String>) -> Self {
        Self { rows: vec![head] }
    }

    /// Characters of the longest line.
    #[must_use]
    pub fn width(&self) -> usize {
        let lines = self.to_string();
        lines
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0)
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut text = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                text.push_str(&format!("{:<width$}  ", clean(cell)));
            }
            let end = if index + 1 == self.rows.len() {
                ""
            } else {
                "\n"
            };
            write!(f, "{}{end}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Samples as at most 40 bars, each the largest sample of its share.
pub fn sparkline(samples: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const WIDTH: usize = 40;
    let finite = || samples.iter().copied().filter(|value| value.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let share = samples.len().div_ceil(WIDTH).max(1);
    let bar = |values: &[f64]| {
        let peak = values
            .iter()
            .copied()
            .filter(|v| v.is_finite())
            .fold(low, f64::max);
        let height = if high > low {
            (peak - low) / (high - low)
        } else {
            0.0
        };
        BARS[((height * 7.0).round() as usize).min(7)]
    };
    samples.chunks(share).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_keep_control_characters_away() {
        let mut table = Table::new(["name", "n"]);
        table.row(["a\u{1b}[31mb".into(), "1".into()]);
        assert_eq!(table.to_string(), "name     n\na\u{fffd}[31mb  1");
    }

    #[test]
    fn an_error_of_the_system_gives_its_code_through_its_causes() {
        let error = io::Error::from(io::ErrorKind::AddrInUse);
        assert_eq!(Failure::from(error).error_code, "address_in_use");
        assert_eq!(Failure::from(fmt::Error).error_code, "failed");
        assert_eq!(Failure::new("x").coded("y").error_code, "y");
    }

    #[test]
    fn text_of_devices_changes_nothing_but_itself() {
        assert_eq!(
            clean("a\u{9b}31m\u{85}\n\u{202e}é"),
            "a\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}é"
        );
        assert_eq!(
            clean_lines("a\u{1b}[2J\r\n\tb\u{9b}"),
            "a\u{fffd}[2J\u{fffd}\n\tb\u{fffd}"
        );
    }

    #[test]
    fn lines_are_cleaned_for_terminals_alone() {
        let text = "<a>\u{1b}]0;x\u{7}\n\u{202e}b</a>";
        assert_eq!(line_for(text, false), text);
        assert_eq!(
            line_for(text, true),
            "<a>\u{fffd}]0;x\u{fffd}\n\u{fffd}b</a>"
        );
    }

    #[test]
    fn json_of_strangers_is_the_same_text_without_invisible_characters() {
        let text = "a\u{9b}31m\u{7f}\u{202e}\u{1b}é\n";
        let json = serde_json::to_string(text).unwrap();
        let printed = escaped(&json);
        assert_eq!(printed, r#""a\u009b31m\u007f\u202e\u001bé\n""#);
        assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), text);
        assert!(matches!(escaped("{\"a\":1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        new_file(&path, "one").unwrap();
        let refused = new_file(&path, "two").unwrap_err();
        assert_eq!(refused.error_code, "file_exists");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink("a", &link).unwrap();
        file(&link, "three").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Root keeps the owner, too.
        let owner = |uid| std::os::unix::fs::chown(&path, Some(uid), None);
        if owner(65_534).is_ok() {
            file(&path, "five").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().uid(), 65_534);
        }
        file(Path::new("/dev/null"), "four").unwrap();
        assert!(NewFile::begin(folder.path()).is_err());
        let mut half = NewFile::begin(&folder.path().join("b")).unwrap();
        half.write_all(b"half").unwrap();
        drop(half);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        check_writable(&folder.path().join("none/b")).unwrap();
        let refused = check_writable(&path.join("none/b")).unwrap_err();
        assert!(
            refused.message.contains("cannot create "),
            "{}",
            refused.message
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let gone = file(&folder.path().join("none/b"), "").unwrap_err();
        assert_eq!(gone.error_code, "file_unwritable");
        assert!(gone.message.contains("none/b: "), "{}", gone.message);
    }

    #[test]
    fn devices_and_open_files_are_written_to_as_they_are() {
        use std::io::{Read as _, Seek as _};
        use std::os::fd::AsRawFd as _;
        let mut open = tempfile::tempfile().unwrap();
        open.write_all(b"head\n").unwrap();
        let of_open = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
        for path in [Path::new("/dev/null"), &of_open] {
            let mut new = NewFile::begin(path).unwrap();
            new.write_all(b"row\n").unwrap();
            assert_eq!(new.replace().unwrap(), 4, "{path:?}");
        }
        assert_eq!(
            new_file(&of_open, "x").unwrap_err().error_code,
            "file_exists"
        );
        let mut text = String::new();
        open.rewind().unwrap();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "head\nrow\n");
        assert!(is_standard_output(Path::new("/dev/stdout")));
        assert!(!is_standard_output(&of_open));
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [21.0, 64.0 / 3.0, -0.1, 1.0 / 3e9, 1e300, f64::NAN];
        let texts = numbers.map(number);
        assert_eq!(
            texts,
            [
                "21",
                "21.333333",
                "-0.1",
                "3.33333e-10",
                "1.00000e300",
                "NaN"
            ]
        );
    }

    #[test]
    fn waveforms_become_bars() {
        assert_eq!(sparkline(&[0.0, 0.5, 1.0]), "▁▅█");
        assert_eq!(sparkline(&[3.0; 2]), "▁▁");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&vec![1.0; 1_000]).chars().count(), 40);
        assert_eq!(sparkline(&[f64::NAN, 1.0, 2.0]).chars().count(), 3);
    }
}
