//! The status of a supervised participant.

use chappe_flow::pacer::PacerStatus;
use serde::{Deserialize, Serialize};

use super::SupervisorConfig;
use crate::Qos;

/// Mismatches kept as text for each end, the newest ones. All are counted.
pub(super) const MISMATCHES_MAX: usize = 8;

/// The state of a participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being started, for the first time or again.
    #[default]
    Starting,
    /// It is running.
    Running,
    /// It is not restarted again.
    GivenUp,
}

/// The status of a participant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SupervisorStatus {
    /// The library: `cyclone`.
    pub backend: &'static str,
    /// The domain.
    pub domain: u16,
    /// Its current GUID, which changes with each restart.
    pub guid: Option<String>,
    /// Its state.
    pub state: State,
    /// Known remote participants.
    pub peers: u64,
    /// Restarts.
    pub restarts: u64,
    /// Panics of the thread that calls the library.
    pub panics: u64,
    /// Stalls of the library.
    pub stalls: u64,
    /// Threads that never returned from the library.
    pub abandoned: u64,
    /// Threads that the library of this process has ended by calling `abort`.
    pub aborts: u64,
    /// Warnings and errors of the library: refused participants, malformed messages.
    pub warnings: u64,
    /// The newest of them, oldest first.
    pub newest_warnings: Vec<String>,
    /// The last error.
    pub last_error: Option<String>,
    /// A remedy for it, if one is known.
    pub hint: Option<String>,
    /// Writers.
    pub writers: Vec<OutletStatus>,
    /// Readers.
    pub readers: Vec<InletStatus>,
}

/// The common status of a writer and a reader.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EndStatus {
    /// The topic.
    pub topic: String,
    /// Its type.
    pub type_name: String,
    /// The offered or requested quality of service, with the number of samples that it keeps.
    pub qos: Qos,
    /// Matching remote ends: readers of a writer, writers of a reader.
    pub matched: u64,
    /// Deadlines of the topic that passed without a sample although an end matched.
    pub deadlines_missed: u64,
    /// Incompatible remote ends.
    pub mismatches: u64,
    /// The newest of them, with the values of both sides.
    pub mismatched: Vec<String>,
}

/// The status of a writer.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OutletStatus {
    /// Topic, quality of service and matches.
    #[serde(flatten)]
    pub end: EndStatus,
    /// Samples written.
    pub sent: u64,
    /// The exact number of samples not acknowledged by all reliable readers.
    pub unacknowledged: u64,
    /// Samples acknowledged.
    pub acknowledged: u64,
    /// Samples given up for a stalled reader.
    pub given_up: u64,
    /// Replacements of the writer because of that.
    pub renewed: u64,
    /// Whether a reader is stalled now.
    pub stalled: bool,
    /// Stalls of readers.
    pub stalls: u64,
    /// Seconds in which a sample waited for room.
    pub blocked_s: f64,
    /// The state of its pacer.
    pub pacer: Option<PacerStatus>,
}

/// The status of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InletStatus {
    /// Topic, quality of service and matches.
    #[serde(flatten)]
    pub end: EndStatus,
    /// Samples received.
    pub received: u64,
    /// Lost samples: gaps after the first number of each writer, and all numbers before it if the reader was full.
    pub lost: u64,
}

impl AsMut<EndStatus> for OutletStatus {
    fn as_mut(&mut self) -> &mut EndStatus {
        &mut self.end
    }
}

impl AsMut<EndStatus> for InletStatus {
    fn as_mut(&mut self) -> &mut EndStatus {
        &mut self.end
    }
}

/// Counters over all restarts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) state: State,
    pub(super) guid: Option<String>,
    pub(super) peers: u64,
    pub(super) restarts: u64,
    pub(super) panics: u64,
    pub(super) stalls: u64,
    pub(super) abandoned: u64,
    pub(super) warnings: u64,
    pub(super) newest_warnings: Vec<String>,
    last_error: Option<String>,
    hint: Option<String>,
}

impl Counters {
    /// Records that the participant is unusable.
    pub(super) fn failed(&mut self, why: &str, given_up: bool) {
        self.restarts += u64::from(!given_up);
        self.guid = None;
        self.peers = 0;
        self.last_error = Some(why.to_owned());
        (self.state, self.hint) = match given_up {
            true => (State::GivenUp, Some("restart the node".to_owned())),
            false => (State::Starting, None),
        };
    }

    /// Sets the remedy for the last error.
    pub(super) fn set_hint(&mut self, hint: Option<&str>) {
        self.hint = hint.map(str::to_owned);
    }

    pub(super) fn status(
        &self,
        config: &SupervisorConfig,
        writers: Vec<OutletStatus>,
        readers: Vec<InletStatus>,
    ) -> SupervisorStatus {
        SupervisorStatus {
            backend: "cyclone",
            domain: config.participant.domain,
            guid: self.guid.clone(),
            state: self.state,
            peers: self.peers,
            restarts: self.restarts,
            panics: self.panics,
            stalls: self.stalls,
            abandoned: self.abandoned,
            #[cfg(cyclone)]
            aborts: crate::journal::aborts(),
            #[cfg(not(cyclone))]
            aborts: 0,
            warnings: self.warnings,
            newest_warnings: self.newest_warnings.clone(),
            last_error: self.last_error.clone(),
            hint: self.hint.clone(),
            writers,
            readers,
        }
    }
}

/// Keeps the newest mismatches as text.
pub(super) fn add_mismatch(status: &mut EndStatus, text: String) {
    status.mismatches += 1;
    status.mismatched.retain(|known| *known != text);
    if status.mismatched.len() >= MISMATCHES_MAX {
        status.mismatched.remove(0);
    }
    status.mismatched.push(text);
}
