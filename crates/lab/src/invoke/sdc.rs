//! sdc11073, the reference implementation of SDC, with messages of its own: its provider as shipped, which waits for
//! acknowledgements before it sends the body of an answer, and with that switched off.

use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::{Error, Report, Settings, checkout};

const PROVIDER_ADDRESS: &str = "127.0.10.3";
const CONSUMER_ADDRESS: &str = "127.0.10.4";
/// Seconds after which a provider ends by itself.
const PROVIDER_S: &str = "600";

/// Reports the round trips, or why there are none.
pub(super) fn run(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let (Some(python), Some(root)) = (checkout::peers_python(), checkout::root()) else {
        let reason = "sdc11073: it is not installed (`check/peers sdc` installs it)";
        report.skipped.push(reason.to_owned());
        return Ok(());
    };
    for (kind, words) in [("as shipped", [].as_slice()), ("Nagle off", &["no-nagle"])] {
        (settings.progress)(&format!("sdc11073, {kind}"));
        let program = |name: &str| {
            let mut command = Command::new(&python);
            command.arg(root.join("check/sdc").join(name));
            command
        };
        let mut provider = program("provider.py");
        provider.args([PROVIDER_ADDRESS, PROVIDER_S]).args(words);
        let mut provider = Process::start_with_errors(&mut provider, "sdc11073's provider")?;
        let rounds = if settings.quick { "10" } else { "200" };
        let mut consumer = program("invoke.py");
        consumer.args([CONSUMER_ADDRESS, rounds]);
        match provider.line().and_then(|_| times(consumer)) {
            Ok(operations) => {
                for (operation, times) in operations {
                    let name = format!("peer sdc11073, {kind}: {operation}");
                    report.times(&name, "round trip, kept connection", &times);
                }
            }
            Err(error) => report.skipped.push(format!("sdc11073, {kind}: {error}")),
        }
    }
    Ok(())
}

/// The times of each operation: a line is its name and nanoseconds.
fn times(mut consumer: Command) -> Result<Vec<(String, Vec<Duration>)>, Error> {
    let mut consumer = Process::start_with_errors(&mut consumer, "sdc11073's consumer")?;
    let mut operations: Vec<(String, Vec<Duration>)> = Vec::new();
    loop {
        let line = consumer.line()?;
        if line == "end" {
            return Ok(operations);
        }
        let wrong = || Error::Failed(format!("sdc11073's consumer printed {line}"));
        let (operation, time) = line.split_once(' ').ok_or_else(wrong)?;
        let time = Duration::from_nanos(time.parse().map_err(|_| wrong())?);
        match operations.last_mut() {
            Some((known, times)) if known == operation => times.push(time),
            _ => operations.push((operation.to_owned(), vec![time])),
        }
    }
}
