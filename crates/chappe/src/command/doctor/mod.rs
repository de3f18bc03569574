//! `chappe doctor`: checks this machine for discovery and storage, with a remedy for each problem.

mod answer;
mod beacon;
mod device;
mod host;
mod overlay;
mod proxy;

use chappe_terminal::counted;
use serde::Serialize;

use crate::cli::Doctor;
use crate::output::{self, Failure, Outcome};

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// It works, with a limitation.
    Warning,
    /// It does not work.
    Failed,
    /// It could not be checked here.
    Skipped,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    /// The subject of the check.
    pub name: String,
    /// Its result.
    pub state: State,
    /// The observation.
    pub detail: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, state: State, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state,
            detail: detail.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Runs all checks and prints each result.
pub(crate) fn run(flags: Doctor, json: bool) -> Outcome {
    if flags.answer {
        return answer::run(&flags.interfaces, json);
    }
    let mut checks = Vec::new();
    let mut add = |check: Check| {
        if !json {
            print(&check);
        }
        checks.push(check);
    };
    let interfaces: Vec<_> = chappe_transport::interfaces()?
        .into_iter()
        .filter(|i| flags.interfaces.is_empty() || flags.interfaces.contains(&i.name))
        .collect();
    host::interfaces(&interfaces).into_iter().for_each(&mut add);
    super::network::block_on(async {
        for check in beacon::multicast(&interfaces, flags.with).await? {
            add(check);
        }
        for url in &flags.devices {
            add(device::device(url, &flags.tls).await?);
        }
        let entrances = super::overlay::entrances(&flags.entrances, flags.config.as_deref())?;
        for entrance in entrances {
            add(overlay::entrance(entrance).await?);
        }
        let configured = match flags.config.as_deref() {
            Some(path) => super::config::load(Some(path), Vec::new())?
                .config
                .discovery
                .proxy_contacts(),
            None => Vec::new(),
        };
        for contact in flags.proxies.iter().chain(&configured) {
            add(proxy::proxy(contact).await?);
        }
        Ok(())
    })?;
    add(host::discovery_port());
    add(host::container());
    add(host::receive_buffers());
    add(host::fragment_memory());
    add(host::clock());
    add(host::disk(&flags.data));
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (failed, warnings) = (count(State::Failed), count(State::Warning));
    if json {
        output::json(&serde_json::json!({
            "checks": checks, "failed": failed, "warnings": warnings,
        }));
    } else {
        output::line(format_args!(
            "{}, {failed} failed, {}",
            counted(checks.len(), "check"),
            counted(warnings, "warning")
        ));
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}

/// Prints the checks of the network, for a search without a result.
pub(crate) async fn quick(names: &[String]) -> Outcome {
    let interfaces: Vec<_> = chappe_transport::interfaces()?
        .into_iter()
        .filter(|interface| names.is_empty() || names.contains(&interface.name))
        .collect();
    let mut checks = host::interfaces(&interfaces);
    checks.extend(beacon::multicast(&interfaces, None).await?);
    checks.extend([host::discovery_port(), host::container()]);
    checks.iter().for_each(print);
    Ok(())
}

fn print(check: &Check) {
    let (word, colour) = match check.state {
        State::Ok => ("ok", "32"),
        State::Warning => ("warning", "33"),
        State::Failed => ("FAILED", "31"),
        State::Skipped => ("skipped", "2"),
    };
    let word = if output::colour() {
        format!("\u{1b}[{colour}m{word:<8}\u{1b}[0m")
    } else {
        format!("{word:<8}")
    };
    output::styled(&word, format_args!(" {}: {}", check.name, check.detail));
    if let Some(hint) = &check.hint {
        output::line(format_args!("         hint: {hint}"));
    }
}
