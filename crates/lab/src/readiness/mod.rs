//! The time until a device is usable: found, described, its first event stored.
//!
//! Everything runs over the loopback, client and device as separate processes, both on one
//! processor where the figure is a latency. The study "Evaluating the Performance of DPWS in a Body
//! Area Network" reports about a second from the search to the description; it is not run here.

mod appear;
mod crowd;
mod found;
mod peer;

pub(crate) use found::client;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::floor::{self, Sizes};
use crate::pinned::Pinned;
use crate::process::{Folder, Process};
use crate::{Error, Limit, Reference, Report, Settings};

/// The client's address. A device limits the answers to a /24, so the client has its own.
const CLIENT_ADDRESS: &str = "127.0.9.1";
/// The device's address.
const DEVICE_ADDRESS: &str = "127.0.8.1";

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("readiness", settings.seed);
    let bench = Bench {
        settings,
        program: settings.chappe()?,
        folder: Folder::new("readiness")?,
        namespace: format!(
            "https://chappe.example/bench/{}-{}",
            settings.seed,
            std::process::id()
        ),
    };
    {
        let _pinned = Pinned::new()?;
        let floors = bench.floors(&mut report)?;
        bench.latency(floors, &mut report)?;
        (settings.progress)("a device appears next to a node");
        appear::run(&bench, floors, &mut report)?;
    }
    bench.with_delay(&mut report)?;
    (settings.progress)("200 devices probed at once");
    crowd::run(&bench, &mut report)?;
    peer::run(&bench, &mut report)?;
    report.row(
        "the study, search to description",
        1_000.0,
        "ms",
        "about, as published; not run here",
    );
    Ok(report)
}

/// Medians of the time that the system alone takes for the same bytes, in milliseconds.
#[derive(Clone, Copy)]
struct Floors {
    /// A UDP exchange.
    udp_ms: f64,
    /// A TCP connection with two exchanges.
    tcp_ms: f64,
    /// An append and its `fdatasync`, where the node stores.
    sync_ms: f64,
}

/// Shared state of the parts of the scenario.
struct Bench<'a> {
    settings: &'a Settings,
    /// The program under test.
    program: PathBuf,
    folder: Folder,
    /// Of this run alone: others may use the loopback too.
    namespace: String,
}

impl Bench<'_> {
    fn rounds(&self, whole: usize, quick: usize) -> usize {
        if self.settings.quick { quick } else { whole }
    }

    fn floors(&self, report: &mut Report) -> Result<Floors, Error> {
        (self.settings.progress)("floors");
        let rounds = self.rounds(5_000, 500);
        let datagrams = Sizes {
            question: 900,
            answer: 1_300,
        };
        let times = floor::udp(datagrams, rounds)?;
        let (udp_ms, _) = report.times("floor: UDP exchange", "900 and 1,300 bytes", &times);
        let bodies = Sizes {
            question: 800,
            answer: 3_000,
        };
        let times = floor::tcp(bodies, 2, rounds)?;
        let note = "new connection, two exchanges of 800 and 3,000 bytes";
        let (tcp_ms, _) = report.times("floor: TCP exchange", note, &times);
        let times = floor::syncs(
            self.folder.path(),
            1,
            500,
            Duration::ZERO,
            self.rounds(200, 50),
        )?;
        let (sync_ms, _) = report.times("floor: append and fdatasync", "500 bytes", &times);
        Ok(Floors {
            udp_ms,
            tcp_ms,
            sync_ms,
        })
    }

    /// A device that the program runs from a description.
    fn device(&self, delay: &str) -> Result<Process, Error> {
        let path = self.description()?;
        let mut command = Command::new(&self.program);
        command.args(["--json", "device", "run"]).arg(path);
        command.args(["--address", DEVICE_ADDRESS, "--announce-within", delay]);
        let mut process = Process::start(&mut command, "chappe device run")?;
        process.line()?;
        Ok(process)
    }

    fn description(&self) -> Result<PathBuf, Error> {
        let text = format!(
            "name = \"Readiness\"\nmanufacturer = \"Chappe\"\nmodel = \"bench\"\n\
             namespace = \"{}\"\ntypes = [\"Readiness\"]\n\
             [[event]]\nname = \"Report\"\nperiod_ms = 60000\nrecording = \"celsius.csv\"\n\
             [[event.field]]\nname = \"celsius\"\ntype = \"double\"\nunit = \"Cel\"\n\
             [[value]]\nname = \"Limit\"\ntype = \"double\"\ninitial = \"8.0\"\nsettable = true\n",
            self.namespace
        );
        let path = self.folder.path().join("device.toml");
        let write = |path: &PathBuf, text: &str| {
            std::fs::write(path, text).map_err(Error::io(format!("writing {}", path.display())))
        };
        write(
            &self.folder.path().join("celsius.csv"),
            "celsius\n20.5\n21\n",
        )?;
        write(&path, &text)?;
        Ok(path)
    }

    fn latency(&self, floors: Floors, report: &mut Report) -> Result<(), Error> {
        (self.settings.progress)("probe, resolve, metadata");
        let _device = self.device("0ms")?;
        let rounds = self.rounds(500, 50);
        let steps = found::measure(self, rounds, Duration::from_millis(110))?;
        let note = "delay off, a client that knows nothing yet";
        report.times("probe", note, &steps.probe);
        report.times("resolve", note, &steps.resolve);
        report.times(
            "metadata",
            "Get, GetMetadata with WSDL, new connection",
            &steps.metadata,
        );
        let name = "probe + resolve + metadata";
        let (median, _) = report.times(name, note, &steps.all);
        let floor = 2.0 * floors.udp_ms + floors.tcp_ms;
        let floor = Reference::new("floor: 2 UDP, 1 TCP, p50", floor);
        report.target(
            format!("{name}, p50"),
            (median, "ms"),
            floor,
            Limit::AtMost(25.0),
        );
        Ok(())
    }

    fn with_delay(&self, report: &mut Report) -> Result<(), Error> {
        (self.settings.progress)("the same with the standard's delay of up to 2.5 s");
        let _device = self.device("2500ms")?;
        let steps = found::measure(self, self.rounds(30, 5), Duration::ZERO)?;
        let note = "standard's delay, answers wait up to 2.5 s";
        report.times("probe + resolve + metadata, delayed", note, &steps.all);
        Ok(())
    }
}

/// A runtime of one thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("starting the runtime"))
}
