//! The stacks under test and the floors, each as the commands of its two processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::load::Load;
use super::network::Place;
use super::process::command;
use crate::process::Process;
use crate::{Error, checkout};

/// A floor or a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stack {
    /// Raw bytes over TCP.
    Tcp,
    /// The same bodies over HTTP, with the client and server that our SOAP uses.
    Http,
    /// The typed library at both ends, with all headers of WS-Addressing, as text.
    Chappe,
    /// The same as EXI.
    ChappeExi,
    /// The same as text over TLS, where the client has no certificate.
    ChappeTls,
    /// gSOAP at both ends, without WS-Addressing.
    Gsoap,
    /// gSOAP at both ends, with its plugin for WS-Addressing.
    GsoapAddressing,
    /// zeep as the client of our device.
    Zeep,
}

impl Stack {
    /// All that call by SOAP.
    pub(super) const SOAP: [Self; 6] = [
        Self::Chappe,
        Self::ChappeExi,
        Self::ChappeTls,
        Self::Gsoap,
        Self::GsoapAddressing,
        Self::Zeep,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Chappe => "chappe",
            Self::ChappeExi => "chappe-exi",
            Self::ChappeTls => "chappe-tls",
            Self::Gsoap => "gsoap",
            Self::GsoapAddressing => "gsoap-addressing",
            Self::Zeep => "zeep",
        }
    }

    /// The stack that answers.
    pub(super) fn server(self) -> Self {
        match self {
            Self::ChappeExi | Self::Zeep => Self::Chappe,
            stack => stack,
        }
    }

    /// The stack that sends the same messages such that a relay can read them.
    pub(super) fn readable(self) -> Self {
        match self {
            Self::ChappeTls => Self::Chappe,
            stack => stack,
        }
    }
}

/// Whether a connection serves many calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Connection {
    Kept,
    New,
}

impl Connection {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::New => "new",
        }
    }
}

/// The programs of the peers, or the reasons why they are missing.
pub(super) struct Peers {
    gsoap: Result<[PathBuf; 2], String>,
    zeep: Result<[PathBuf; 2], String>,
}

impl Peers {
    /// Finds them; gSOAP's are built from the WSDL of our device.
    pub(super) fn find(folder: &Path) -> Result<Self, Error> {
        let root = checkout::root().ok_or("this is not a checkout".to_owned());
        let gsoap = match root.clone() {
            Ok(root) => gsoap(&root, folder)?,
            Err(reason) => Err(reason),
        };
        let zeep = root.and_then(|root| {
            let missing = "it is not installed (`check/peers dpws` installs it)".to_owned();
            let python = checkout::peers_python().ok_or(missing)?;
            Ok([python, root.join("check/dpws/invoke_zeep.py")])
        });
        Ok(Self { gsoap, zeep })
    }

    /// The reason why a stack cannot be measured.
    pub(super) fn missing(&self, stack: Stack) -> Option<&str> {
        match stack {
            Stack::Gsoap | Stack::GsoapAddressing => self.gsoap.as_ref().err(),
            Stack::Zeep => self.zeep.as_ref().err(),
            Stack::Tcp | Stack::Http | Stack::Chappe | Stack::ChappeExi | Stack::ChappeTls => None,
        }
        .map(String::as_str)
    }

    /// A command of a process of a stack.
    fn command(&self, stack: Stack, words: &[&str]) -> Result<Command, Error> {
        let missing = |reason: &String| Error::Failed(format!("{}: {reason}", stack.name()));
        let programs = match stack {
            Stack::Tcp | Stack::Http | Stack::Chappe | Stack::ChappeExi | Stack::ChappeTls => {
                let mut own = vec![words[0], stack.name()];
                own.extend(&words[1..]);
                return command(&own);
            }
            Stack::Gsoap => &self.gsoap.as_ref().map_err(missing)?[..1],
            Stack::GsoapAddressing => &self.gsoap.as_ref().map_err(missing)?[1..],
            Stack::Zeep => &self.zeep.as_ref().map_err(missing)?[..],
        };
        let mut command = Command::new(&programs[0]);
        command.args(&programs[1..]).args(words);
        Ok(command)
    }

    /// Starts the server of a stack; returns it with its address.
    pub(super) fn serve(&self, stack: Stack, place: &Place) -> Result<(Process, String), Error> {
        let stack = stack.server();
        let command = self.command(stack, &["serve", place.address])?;
        let what = format!("the server of {}", stack.name());
        let mut process = Process::start_with_errors(&mut place.at_server(command), &what)?;
        let line = process.line()?;
        let address = line.strip_prefix("ready ").map(str::to_owned);
        let wrong = || Error::Failed(format!("{what} printed {line}"));
        Ok((process, address.ok_or_else(wrong)?))
    }

    /// Runs a client; returns the time of each call, by load.
    pub(super) fn call(
        &self,
        stack: Stack,
        address: &str,
        connection: Connection,
        rounds: usize,
        loads: &[Load],
    ) -> Result<Vec<Call>, Error> {
        let rounds_text = rounds.to_string();
        let names: Vec<String> = loads.iter().map(ToString::to_string).collect();
        let mut words = vec!["call", address, connection.name(), &rounds_text];
        words.extend(names.iter().map(String::as_str));
        let mut command = self.command(stack, &words)?;
        let what = format!("the client of {}", stack.name());
        let mut process = Process::start_with_errors(&mut command, &what)?;
        let calls = (0..rounds * loads.len()).map(|_| Call::read(&process.line()?));
        calls.collect()
    }
}

/// One call as its client timed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) load: Load,
    pub(super) one_way: Duration,
    pub(super) round_trip: Duration,
}

impl Call {
    fn read(line: &str) -> Result<Self, Error> {
        let wrong = || Error::Failed(format!("a client printed {line}"));
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or_else(wrong);
        let load = word()?.parse()?;
        let mut time = || Ok(Duration::from_nanos(word()?.parse().map_err(|_| wrong())?));
        Ok(Self {
            load,
            one_way: time()?,
            round_trip: time()?,
        })
    }
}

/// gSOAP's programs without and with WS-Addressing.
fn gsoap(root: &Path, folder: &Path) -> Result<Result<[PathBuf; 2], String>, Error> {
    if !Path::new("/usr/bin/wsdl2h").is_file() {
        let reason = "it is not installed (`check/peers dpws` installs it)";
        return Ok(Err(reason.to_owned()));
    }
    let mut device = Process::start(
        &mut command(&["serve", "chappe", "127.0.10.2"])?,
        "a device for its WSDL",
    )?;
    let line = device.line()?;
    let wsdl = line.replace("ready ", "http://") + "/Study?wsdl";
    let mut programs = Vec::new();
    for kind in ["plain", "addressing"] {
        let built = folder.join(kind);
        let output = Command::new(root.join("check/dpws/gsoap/build"))
            .arg(&wsdl)
            .arg(root.join("check/dpws/gsoap/study.c"))
            .args([built.as_os_str(), kind.as_ref()])
            .output()
            .map_err(Error::io("building with gSOAP"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or_default();
            return Ok(Err(format!("it does not build: {last}")));
        }
        programs.push(built.join("program"));
    }
    let wrong = || Error::Failed("two programs of gSOAP".to_owned());
    Ok(Ok(programs.try_into().map_err(|_| wrong())?))
}
