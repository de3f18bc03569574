//! Foreign programs of a run: ended with the bench, however it ends.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::process::own_process;
use crate::{Error, checkout};

/// A running foreign program. Dropping it kills it.
pub(crate) struct Foreign {
    child: Child,
    log: PathBuf,
}

impl Foreign {
    /// Starts a program through our own, which binds its life to this thread's.
    pub(crate) fn start(
        program: &Path,
        arguments: &[OsString],
        folder: &Path,
    ) -> Result<Self, Error> {
        let what = format!("starting {}", program.display());
        std::fs::create_dir_all(folder).map_err(Error::io(&what))?;
        let log = folder.join("output.txt");
        let output = File::create(&log).map_err(Error::io(&what))?;
        let errors = output.try_clone().map_err(Error::io(&what))?;
        let child = own_process("program")?
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(Error::io(&what))?;
        Ok(Self { child, log })
    }

    /// Whether it is still running.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines that it printed.
    pub(crate) fn last_output(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// Processor time in seconds so far.
    pub(crate) fn processor_s(&self) -> f64 {
        crate::process::processor_s(self.child.id())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Becomes a foreign program that the kernel kills when the bench ends.
pub(crate) fn become_program(arguments: &[OsString]) -> Result<(), Error> {
    let Some((program, arguments)) = arguments.split_first() else {
        return Err(Error::Failed("the program is missing".to_owned()));
    };
    set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| Error::io("binding a program's life")(error.into()))?;
    let error = Command::new(program).args(arguments).exec();
    Err(Error::io(format!("starting {}", program.to_string_lossy()))(error))
}

/// A program: below `target/peers` of the checkout, where check/peers installs programs without a
/// package, or on the path.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let made = checkout::root().map(|root| root.join("target/peers/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = made.into_iter().chain(std::env::split_paths(&path));
    let folders = folders.chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut programs = folders.map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}
