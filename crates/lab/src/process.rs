//! Programs under test as separate processes, ended with the scenario.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

use crate::Error;

/// Bytes of standard error that are read when a process has ended.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// Processes that were started and not waited for.
static STARTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn started() -> MutexGuard<'static, BTreeSet<i32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends this program and every process that a scenario has started, from any thread.
pub fn exit(code: i32) -> ! {
    // Locked until the end, so that no further process is started.
    let started = started();
    for id in started.iter() {
        // It may have ended.
        let _ = kill(Pid::from_raw(*id), Signal::SIGKILL);
    }
    std::process::exit(code)
}

/// This program again, in a role of a scenario.
pub(crate) fn own_process(role: &str) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(Error::io("finding this program"))?;
    let mut command = Command::new(program);
    command.args(["process", role]);
    Ok(command)
}

/// A process whose output is read by lines. Dropping it kills it.
pub(crate) struct Process {
    what: String,
    child: Child,
    output: BufReader<ChildStdout>,
    errors: Option<ChildStderr>,
}

impl Process {
    /// Starts `command`; its standard error is discarded.
    pub(crate) fn start(command: &mut Command, what: &str) -> Result<Self, Error> {
        Self::with_errors(command, what, Stdio::null())
    }

    /// The same for a program that prints little on standard error: the reason of an error is read from it.
    pub(crate) fn start_with_errors(command: &mut Command, what: &str) -> Result<Self, Error> {
        Self::with_errors(command, what, Stdio::piped())
    }

    fn with_errors(command: &mut Command, what: &str, errors: Stdio) -> Result<Self, Error> {
        let failed = Error::io(format!("starting {what}"));
        let mut started = started();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        started.insert(child.id().cast_signed());
        drop(started);
        let errors = child.stderr.take();
        let output = child.stdout.take();
        let output = output.ok_or_else(|| Error::Failed(format!("{what} has no output")))?;
        Ok(Self {
            what: what.to_owned(),
            child,
            output: BufReader::new(output),
            errors,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        let reading = Error::io(format!("reading from {}", self.what));
        if self.output.read_line(&mut line).map_err(reading)? == 0 {
            let status = self.wait();
            let status = status.map_or_else(|error| error.to_string(), |it| it.to_string());
            let mut text = String::new();
            if let Some(errors) = &mut self.errors {
                // Without text the exit status is the reason.
                let _ = errors.take(ERROR_BYTES_MAX).read_to_string(&mut text);
            }
            let reason = text.lines().find_map(|line| line.strip_prefix("error: "));
            let why = reason.map_or(status, str::to_owned);
            return Err(Error::Failed(format!("{} ended: {why}", self.what)));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits until it has ended; from then on its number may be reused.
    fn wait(&mut self) -> std::io::Result<ExitStatus> {
        started().remove(&self.child.id().cast_signed());
        self.child.wait()
    }

    /// A memory figure of the process, such as `VmRSS`, in bytes.
    pub(crate) fn memory(&self, field: &str) -> Result<u64, Error> {
        let path = format!("/proc/{}/status", self.id());
        let status =
            std::fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))?;
        kibibytes(&status, field)
            .map(|kibibytes| kibibytes * 1024)
            .ok_or_else(|| Error::Failed(format!("{path} has no {field}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.wait();
    }
}

/// A field of /proc/PID/status.
fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let mut lines = status.lines();
    let rest = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A field of this process's status that is an amount of memory, such as `VmRSS`; 0 when unknown.
pub(crate) fn own_memory_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&status, field).unwrap_or(0) * 1024
}

/// The peak of this process's memory begins again at what it has now.
pub(crate) fn reset_own_peak() {
    // Where that is refused, the peak is that of the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Processor time in seconds of a process so far, to a hundredth.
pub(crate) fn processor_s(id: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // After the name in parentheses, the 12th and 13th field are ticks of 10 ms.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = rest.split_whitespace().skip(11).take(2);
    let ticks = fields.filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Processor time of all threads of this process so far in seconds.
pub(crate) fn own_processor_s() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return 0.0;
    };
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// A folder of this run, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let name = format!("chappe-lab-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).map_err(Error::io(format!("making {}", path.display())))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    use super::*;

    const SOCKET: &str = "CHAPPE_TEST_SOCKET";

    /// This program again, running one of the ignored tests below.
    fn again(what: &str, socket: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        let name = format!("process::tests::{what}");
        command.args(["--exact", &name, "--ignored", "--nocapture"]);
        command.env(SOCKET, socket);
        command
    }

    #[test]
    fn who_exits_takes_along_what_it_has_started() {
        let folder = Folder::new("exit-test").expect("a folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let starter = again("starts_another_and_exits", &socket)
            .stdout(Stdio::null())
            .status();
        assert_eq!(starter.expect("it runs").code(), Some(3));
        let (mut other, _) = listener.accept().expect("it connected before");
        let mut last_words = String::new();
        other.read_to_string(&mut last_words).expect("its end");
        assert_eq!(last_words, "");
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn starts_another_and_exits() {
        let Some(socket) = std::env::var_os(SOCKET) else {
            return;
        };
        let other = Process::start(&mut again("says_that_it_lives", socket), "another");
        let mut other = other.expect("it starts");
        while !other.line().expect("it says so").contains("connected") {}
        exit(3);
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn says_that_it_lives() {
        use std::io::Write as _;
        let Some(socket) = std::env::var_os(SOCKET) else {
            return;
        };
        let mut socket = UnixStream::connect(socket).expect("somebody listens");
        println!("connected");
        // Ended here.
        std::thread::sleep(Duration::from_secs(30));
        let _ = socket.write_all(b"it lives");
    }

    #[test]
    fn fields_of_a_status_are_found_by_their_whole_name() {
        let status = "Name:\tx\nVmRSSX:\t 1 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(kibibytes(status, "VmRSS"), Some(2048));
        assert_eq!(kibibytes(status, "VmHWM"), None);
    }
}
