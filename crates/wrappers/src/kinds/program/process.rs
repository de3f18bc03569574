//! The process of a program: its start, its limits, its end.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::errors;
use super::lines::{End, Lines};
use crate::{Notes, WrapperError};

/// Time for the program to end after `stop`, before its processes get SIGTERM.
const STOP_TIME: Duration = Duration::from_secs(3);
/// Time after SIGTERM, before its processes get SIGKILL.
const TERM_TIME: Duration = Duration::from_secs(2);
/// Time to read the rest of standard error once the program has ended.
const ERRORS_TIME: Duration = Duration::from_millis(500);
/// Bytes of standard output that are read after the end of the program; reason: a descendant may go on printing.
const REST_BYTES_MAX: usize = 1 << 20;
/// Bytes of standard output that are read ahead while the program is written to.
const UNREAD_BYTES_MAX: usize = 8 << 20;

/// Which program runs, and within which limits: keys of wrappers and exporters alike.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct Program {
    /// The program and its arguments. It runs in the directory of this file; a program without a slash
    /// in its name is found by `PATH`.
    #[serde(rename = "program")]
    #[schemars(length(min = 1))]
    pub(super) command: Vec<String>,
    /// Variables of its environment, in addition to the node's.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// Passed to the program unchanged, in its first line.
    #[serde(default)]
    pub(super) settings: BTreeMap<String, serde_json::Value>,
    /// Maximum address space of each of its processes. Default: no limit.
    #[schemars(range(min = 1_048_576), extend("x-unit" = "bytes"))]
    pub(super) memory_bytes: Option<u64>,
    /// Time to answer a command, or to store a batch. Default: 30000.
    #[serde(default = "answer_default")]
    #[schemars(range(min = 1, max = 3_600_000), extend("x-unit" = "milliseconds"))]
    pub(super) answer_ms: u64,
}

fn answer_default() -> u64 {
    30_000
}

impl Program {
    /// The key at fault and what is wrong, if something is.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let is_empty = self.command.first().is_none_or(String::is_empty);
        if is_empty {
            return Some(("program", "the program is missing"));
        }
        if self.memory_bytes.is_some_and(|bytes| bytes < 1 << 20) {
            return Some(("memory_bytes", "it is below 1048576"));
        }
        if !(1..=3_600_000).contains(&self.answer_ms) {
            return Some(("answer_ms", "it is not within 1 to 3600000"));
        }
        None
    }

    pub(super) fn answer_time(&self) -> Duration {
        Duration::from_millis(self.answer_ms)
    }
}

/// Refuses a file that others can write: they could run programs as this user.
///
/// # Errors
/// The file or its directory belongs to another user, or others may write it.
pub(super) fn check_owner(directory: &Path, name: &str) -> Result<(), WrapperError> {
    let own = nix::unistd::geteuid().as_raw();
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    for path in [directory.to_owned(), directory.join(format!("{name}.toml"))] {
        let shown = path.display();
        let metadata = std::fs::metadata(&path)
            .map_err(|error| WrapperError::settings(format!("cannot look at {shown}: {error}")))?;
        let is_own = metadata.uid() == own || metadata.uid() == 0;
        let mode = metadata.permissions().mode();
        // A sticky directory, as /tmp, lets nobody replace the file of another.
        let is_sticky = metadata.is_dir() && mode & 0o1000 != 0;
        if !is_own || (mode & 0o022 != 0 && !is_sticky) {
            let text = format!("{shown} can be written by others, and it names a program to run");
            return Err(WrapperError::settings(text).with_hint(format!("chmod go-w {shown}")));
        }
    }
    Ok(())
}

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    /// `None` while it is being ended.
    child: Option<Child>,
    group: Pid,
    input: Input,
    /// `None` once it is not read any more.
    output: Option<ChildStdout>,
    has_output_ended: bool,
    /// Bytes that may still be read, once the program has ended.
    rest_bytes: Option<usize>,
    /// Its standard output as far as it has arrived.
    pub(super) lines: Lines,
    notes: Notes,
    errors: Arc<Mutex<VecDeque<String>>>,
    errors_read: JoinHandle<()>,
}

/// The standard input of a program.
#[derive(Debug)]
enum Input {
    Open(ChildStdin),
    /// The program has closed it: it needs no messages.
    Closed,
    /// A line is incomplete.
    Broken,
}

impl Process {
    /// Starts the program in a process group of its own.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        program: &Program,
        directory: &Path,
        name: &str,
        notes: &Notes,
    ) -> Result<Self, WrapperError> {
        check_owner(directory, name)?;
        let [path, arguments @ ..] = &*program.command else {
            return Err(WrapperError::settings("the program is missing"));
        };
        let mut command = Command::new(path);
        command
            .args(arguments)
            .envs(&program.environment)
            .env("CHAPPE_NAME", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if !directory.as_os_str().is_empty() {
            command.current_dir(directory);
        }
        let mut child = command.spawn().map_err(|error| {
            let text = format!("cannot start {path:?}: {error}");
            WrapperError::settings(text)
        })?;
        let taken = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = taken else {
            return Err(WrapperError::peer("the program has no pipes"));
        };
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Pid::from_raw(group.ok_or_else(|| WrapperError::peer("it has no number"))?);
        limit_memory(&child, program.memory_bytes)?;
        let kept = Arc::<Mutex<VecDeque<String>>>::default();
        let read = errors::read(name.to_owned(), errors, kept.clone(), notes.clone());
        let errors_read = tokio::spawn(read);
        Ok(Self {
            child: Some(child),
            group,
            input: Input::Open(input),
            output: Some(output),
            has_output_ended: false,
            rest_bytes: None,
            lines: Lines::default(),
            notes: notes.clone(),
            errors: kept,
            errors_read,
        })
    }

    /// Waits until more bytes of standard output have arrived; false: it has ended, or the program has and
    /// the pipe, which a descendant may keep open, gives nothing more. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// The pipe failed.
    pub(super) async fn read(&mut self) -> Result<bool, WrapperError> {
        if self.lines.has_ended() {
            return Ok(false);
        }
        if !self.has_output_ended {
            let Some(output) = &mut self.output else {
                return Ok(false);
            };
            let mut read = None;
            if self.rest_bytes.is_none() {
                tokio::select! {
                    biased;
                    got = output.read_buf(self.lines.room()) => read = Some(got),
                    () = exit(&mut self.child) => self.rest_bytes = Some(REST_BYTES_MAX),
                }
            }
            let read = match (read, self.rest_bytes) {
                (Some(read), _) => read,
                (None, Some(0)) => Ok(0),
                (None, _) => {
                    let rest = output.read_buf(self.lines.room());
                    let rest = tokio::time::timeout(ERRORS_TIME, rest).await;
                    rest.unwrap_or(Ok(0))
                }
            };
            let read = read.map_err(|error| WrapperError::peer(format!("cannot read: {error}")))?;
            self.has_output_ended = read == 0;
            if let Some(rest) = &mut self.rest_bytes {
                *rest = rest.saturating_sub(read);
            }
            if read > 0 {
                return Ok(true);
            }
        }
        let end = self.end().await;
        self.lines.end(end);
        Ok(self.lines.held_bytes() > 0)
    }

    /// How its standard output, which has ended, ended.
    async fn end(&mut self) -> End {
        // How it ended concerns only a last line without a line end.
        let Some(child) = self.child.as_mut().filter(|_| self.lines.held_bytes() > 0) else {
            return End::Whole;
        };
        match tokio::time::timeout(STOP_TIME, child.wait()).await {
            Ok(Ok(status)) if !status.success() => End::Cut,
            _ => End::Whole,
        }
    }

    /// Writes lines to the program.
    ///
    /// # Errors
    /// It does not read them within `time`.
    pub(super) async fn write(&mut self, lines: &[u8], time: Duration) -> Result<(), WrapperError> {
        // A write that is dropped leaves an incomplete line: nothing may follow it.
        let mut input = match std::mem::replace(&mut self.input, Input::Broken) {
            Input::Open(input) => input,
            Input::Closed => {
                self.input = Input::Closed;
                return Ok(());
            }
            Input::Broken => {
                return Err(WrapperError::peer("a write to the program was interrupted"));
            }
        };
        let Some(output) = &mut self.output else {
            return Err(WrapperError::peer("the program is being ended"));
        };
        let write = async {
            input.write_all(lines).await?;
            input.flush().await
        };
        let deadline = tokio::time::sleep(time);
        tokio::pin!(write, deadline);
        let written = loop {
            let has_room = self.lines.held_bytes() < UNREAD_BYTES_MAX && !self.has_output_ended;
            tokio::select! {
                written = &mut write => break written,
                // A program that waits for its output to be read does not read its input.
                read = output.read_buf(self.lines.room()), if has_room => {
                    if !matches!(read, Ok(bytes) if bytes > 0) {
                        self.has_output_ended = true;
                    }
                }
                () = &mut deadline => {
                    let text = format!("the program has not read for {} s", time.as_secs_f64());
                    return Err(WrapperError::peer(text));
                }
            }
        };
        match written {
            Ok(()) => self.input = Input::Open(input),
            // A program that only prints may close its input, or end without reading it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.input = Input::Closed,
            Err(error) => {
                let text = format!("the program does not read: {error}{}", self.said());
                return Err(WrapperError::peer(text));
            }
        }
        Ok(())
    }

    /// Why the program has ended.
    pub(super) async fn ended(&mut self) -> WrapperError {
        // Its standard output is closed: it ends soon, or is ended.
        let Some(child) = &mut self.child else {
            return WrapperError::peer("the program has ended");
        };
        let how = match tokio::time::timeout(STOP_TIME, child.wait()).await {
            Ok(Ok(status)) => shown(status),
            Ok(Err(error)) => format!("ended in an unknown manner: {error}"),
            Err(_) => "closed its standard output and did not end".to_owned(),
        };
        // A descendant may keep the pipe open.
        let _ = tokio::time::timeout(ERRORS_TIME, &mut self.errors_read).await;
        WrapperError::peer(format!("the program {how}{}", self.said()))
    }

    /// Asks the program to stop; returns how long it took to end, or `None` if it did not.
    pub(super) async fn stop(mut self) -> Option<Duration> {
        let start = std::time::Instant::now();
        let _ = self.write(b"{\"stop\":{}}\n", STOP_TIME).await;
        self.input = Input::Closed;
        let child = self.child.as_mut()?;
        drop(self.output.take());
        let end = child.wait();
        let ended = tokio::time::timeout(STOP_TIME, end).await;
        ended.is_ok().then(|| start.elapsed())
    }

    /// Its last lines of standard error, for an error message, which the operator sees.
    fn said(&self) -> String {
        self.notes.forget();
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = errors.iter().map(String::as_str).collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!("; it printed: {}", lines.join(" / "))
        }
    }
}

impl Drop for Process {
    /// Asks the program to stop, then ends its process group.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let group = Group(self.group);
        let input = std::mem::replace(&mut self.input, Input::Closed);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            if let Input::Open(mut input) = input {
                let write = input.write_all(b"{\"stop\":{}}\n");
                let _ = tokio::time::timeout(STOP_TIME, write).await;
            }
            if tokio::time::timeout(STOP_TIME, child.wait()).await.is_err() {
                group.signal(Signal::SIGTERM);
                let _ = tokio::time::timeout(TERM_TIME, child.wait()).await;
            }
        });
    }
}

/// The process group of a program, which ends with this value.
#[derive(Debug)]
struct Group(Pid);

impl Group {
    fn signal(&self, signal: Signal) {
        // An error means that the group has ended already.
        let _ = killpg(self.0, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Waits for the end of the program.
async fn exit(child: &mut Option<Child>) {
    match child {
        // An error: the system does not know it any more.
        Some(child) => drop(child.wait().await),
        None => std::future::pending().await,
    }
}

fn limit_memory(child: &Child, bytes: Option<u64>) -> Result<(), WrapperError> {
    use rustix::process::{Resource, Rlimit, prlimit};
    let (Some(bytes), Some(pid)) = (bytes, child.id()) else {
        return Ok(());
    };
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    prlimit(pid, Resource::As, limit)
        .map(drop)
        .map_err(|error| WrapperError::peer(format!("cannot limit its memory: {error}")))
}

fn shown(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal).map_or("", Signal::as_str);
            format!("was ended by signal {signal} {name}")
        }
        (None, None) => format!("ended: {status}"),
    }
}
