//! The cost of a small device: the thermometer of the device crate, built for size.
//!
//! It is measured while it serves: clients probe, describe and call it, and a subscriber receives
//! one event a second. The papers' boards have 8 to 64 MB in total. The floor is a program that
//! only reports that it runs, built by the same compiler with the same options.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_device::client::{Delivery, Description, Search, Seen};
use chappe_xml::{Element, Name};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::memory_group::MemoryGroup;
use crate::process::{Folder, Process};
use crate::{Error, Limit, Reference, Report, Settings, checkout};

const NAMESPACE: &str = "https://chappe.example/thermometer";
const SET_PERIOD: &str = "https://chappe.example/thermometer/Thermometer/SetPeriodRequest";
/// Addresses of the device and its client.
const ADDRESS: &str = "127.0.5.1";
const CLIENT_ADDRESS: &str = "127.0.9.2";
/// Size of the memory that the smallest board has.
const BOARD_BYTES: u64 = 8 << 20;
/// Time limit of each step.
const DEADLINE: Duration = Duration::from_secs(60);
const MIB: f64 = 1_048_576.0;
/// The floor, and the target in the group, by name.
const IDLE: &str = "an idle program";
const IN_GROUP: &str = "events received in a group of 8 MiB";

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("device", settings.seed);
    let Some(root) = checkout::root() else {
        let reason = "the device can only be built from a checkout";
        report.skipped.push(reason.to_owned());
        return Ok(report);
    };
    (settings.progress)("building the small device");
    let program = match build(&root) {
        Ok(program) => program,
        Err(error) => {
            report
                .skipped
                .push(format!("cannot build the device: {error}"));
            return Ok(report);
        }
    };
    let size =
        std::fs::metadata(&program).map_err(Error::io("reading the size of the small device"))?;
    let size = size.len() as f64 / MIB;
    report.row(
        "program, stripped",
        size,
        "MiB",
        "thermometer, profile small",
    );
    let idle = Idle::build();
    let size_of_idle = idle.as_ref().map(|idle| idle.size).map_err(String::clone);
    let reference = size_of_idle.map(|size| Reference::new(IDLE, size));
    report.compare(
        "program, stripped",
        (size, "MiB"),
        reference,
        Limit::AtMost(10.0),
    );
    let events = if settings.quick { 3 } else { 30 };
    (settings.progress)("the device serves");
    serve(&program, events, idle, &mut report)?;
    (settings.progress)("the device serves in a group of 8 MiB");
    match MemoryGroup::new(BOARD_BYTES) {
        Ok(group) => confined(&program, &group, events, &mut report)?,
        Err(error) => {
            let reason = Err(format!("cannot make a group of 8 MiB: {error}"));
            report.compare(IN_GROUP, (0.0, "events"), reason, Limit::AtLeast(1.0));
        }
    }
    Ok(report)
}

/// Builds the thermometer as a device for small boards would be.
fn build(root: &Path) -> Result<PathBuf, Error> {
    let arguments = ["--profile", "small", "--no-default-features"];
    let example = ["-p", "chappe-device", "--example", "thermometer"];
    checkout::build(root, "thermometer", &[&arguments[..], &example].concat())
}

/// The floor.
struct Idle {
    size: f64,
    peak: f64,
}

impl Idle {
    /// Builds the idle program with the options of the profile `small`, and runs it once.
    fn build() -> Result<Self, String> {
        const SOURCE: &str = "fn main() { println!(\"ready\"); std::thread::park(); }";
        let skipped = |error: Error| format!("no floor: {error}");
        let folder = Folder::new("device-floor").map_err(skipped)?;
        let (source, program) = (folder.path().join("idle.rs"), folder.path().join("idle"));
        let writing = Error::io("writing the idle program");
        std::fs::write(&source, SOURCE)
            .map_err(writing)
            .map_err(skipped)?;
        let mut rustc = Command::new("rustc");
        rustc.args([
            "--edition=2024",
            "-Copt-level=s",
            "-Clto=fat",
            "-Cpanic=abort",
        ]);
        rustc.args(["-Ccodegen-units=1", "-Cstrip=symbols", "-o"]);
        let output = rustc.arg(&program).arg(&source).output();
        let output = output
            .map_err(Error::io("running rustc"))
            .map_err(skipped)?;
        if !output.status.success() {
            return Err("no floor: rustc cannot build the idle program".to_owned());
        }
        Self::measure(&program).map_err(skipped)
    }

    fn measure(program: &Path) -> Result<Self, Error> {
        let size = std::fs::metadata(program)
            .map_err(Error::io("reading the size of the idle program"))?;
        let mut process = Process::start(&mut Command::new(program), "the idle program")?;
        process.line()?;
        let peak = process.memory("VmHWM")? as f64 / MIB;
        let size = size.len() as f64 / MIB;
        Ok(Self { size, peak })
    }
}

fn serve(
    program: &Path,
    events: usize,
    idle: Result<Idle, String>,
    report: &mut Report,
) -> Result<(), Error> {
    let mut command = Command::new(program);
    let mut process = Process::start(command.arg(ADDRESS), "the small device")?;
    process.line()?;
    let started = process.memory("VmRSS")? as f64 / MIB;
    report.row("resident, idle", started, "MiB", "just started");
    exchange(events)?;
    let resident = process.memory("VmRSS")? as f64 / MIB;
    let peak = process.memory("VmHWM")? as f64 / MIB;
    let note = format!("after probes, description, calls and {events} events");
    report.row("resident, serving", resident, "MiB", note);
    report.row("resident, at most", peak, "MiB", "");
    let reference = idle.map(|idle| Reference::new(IDLE, idle.peak));
    report.compare(
        "resident, at most",
        (peak, "MiB"),
        reference,
        Limit::AtMost(3.0),
    );
    Ok(())
}

/// The same with a limit on memory, page cache and kernel buffers together.
fn confined(
    program: &Path,
    group: &MemoryGroup,
    events: usize,
    report: &mut Report,
) -> Result<(), Error> {
    // A copy that is not cached, so that its pages count where they are first used.
    let copies = Folder::new("device")?;
    let program = copy_to_disk(program, &copies)?;
    // The shell joins the group and becomes the device, so all of the device's memory counts.
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "echo $$ > \"$1\" && exec \"$2\" \"$3\"", "sh"])
        .arg(group.members())
        .arg(&program)
        .arg(ADDRESS);
    let received = Process::start(&mut command, "the small device in a group").and_then(|mut p| {
        p.line()?;
        exchange(events)?;
        p.memory("VmRSS")
    });
    let sent = Reference::new("sent", events as f64);
    match received {
        Ok(resident) => {
            let peak = group.peak().map(|peak| peak as f64 / MIB);
            let note = "page cache of the program included";
            let resident = resident as f64 / MIB;
            report.row("in the group, resident", resident, "MiB", "");
            if let Some(peak) = peak {
                report.row("in the group, all memory at most", peak, "MiB", note);
            }
            report.target(IN_GROUP, (sent.value, "events"), sent, Limit::AtLeast(1.0));
        }
        Err(error) => {
            report.row(IN_GROUP, 0.0, "events", error.to_string());
            report.target(IN_GROUP, (0.0, "events"), sent, Limit::AtLeast(1.0));
        }
    }
    Ok(())
}

fn copy_to_disk(program: &Path, folder: &Folder) -> Result<PathBuf, Error> {
    let path = folder.path().join("device");
    let failed = || Error::io("copying the small device");
    std::fs::copy(program, &path).map_err(failed())?;
    let file = std::fs::File::open(&path).map_err(failed())?;
    file.sync_all().map_err(failed())?;
    let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    posix_fadvise(&file, 0, 0, advice).map_err(|error| failed()(error.into()))?;
    Ok(path)
}

/// Finds the device, describes it, sets its period and receives events.
fn exchange(events: usize) -> Result<(), Error> {
    crate::readiness::runtime()?.block_on(async {
        let exchanging = async {
            let client = crate::readiness::client(CLIENT_ADDRESS)?;
            let description = described(&client).await?;
            called(&client, &description).await?;
            received(&client, &description, events).await?;
            client.close().await;
            Ok(())
        };
        let late = || Error::Failed(format!("the small device took more than {DEADLINE:?}"));
        tokio::time::timeout(DEADLINE + Duration::from_secs(events as u64), exchanging)
            .await
            .map_err(|_| late())?
    })
}

async fn described(client: &DeviceClient) -> Result<Description, Error> {
    let mut discovery = client.listen();
    let search = Search {
        types: vec![Name::new(NAMESPACE, "Thermometer")],
        ..Search::default()
    };
    let mut found = None;
    // Several searches, as a network has them.
    for _ in 0..5 {
        let asking = Error::failed("asking for the small device");
        let search = client.search(&search).await.map_err(asking)?;
        loop {
            match discovery.next().await {
                Some(Seen::Found(seen))
                    if seen.types.contains(&Name::new(NAMESPACE, "Thermometer")) =>
                {
                    found = Some(seen);
                }
                Some(Seen::Match { id, .. }) if id == search => break,
                Some(Seen::SearchEnded { id, .. }) if id == search => break,
                Some(_) => {}
                None => return Err(Error::Failed("the client ended".to_owned())),
            }
        }
    }
    let found = found.ok_or_else(|| Error::Failed("the small device was not found".to_owned()))?;
    let describing = Error::failed("describing the small device");
    client.describe(&found).await.map_err(describing)
}

async fn called(client: &DeviceClient, description: &Description) -> Result<(), Error> {
    let service = description.service_of(SET_PERIOD);
    let service = service.ok_or_else(|| Error::Failed("no operation SetPeriod".to_owned()))?;
    for _ in 0..100 {
        let seconds = Element::new(Name::new(NAMESPACE, "seconds")).with_text("1");
        let body = Element::new(Name::new(NAMESPACE, "SetPeriod")).with_child(seconds);
        let calling = Error::failed("calling the small device");
        client
            .call(service, SET_PERIOD, body)
            .await
            .map_err(calling)?;
    }
    Ok(())
}

async fn received(
    client: &DeviceClient,
    description: &Description,
    events: usize,
) -> Result<(), Error> {
    let service = description.services.first();
    let service = service.ok_or_else(|| Error::Failed("no service".to_owned()))?;
    let subscribing = Error::failed("subscribing at the small device");
    let mut subscription = client.subscribe(service, &[]).await.map_err(subscribing)?;
    let mut count = 0;
    while count < events {
        match subscription.next().await {
            Some(Delivery::Notification(_)) => count += 1,
            Some(Delivery::Subscribed { .. }) => {}
            other => {
                return Err(Error::Failed(format!(
                    "expected an event, received {other:?}"
                )));
            }
        }
    }
    Ok(())
}
