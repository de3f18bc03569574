//! What a supervised participant tells of itself.

use chappe_flow::pacer::PacerStatus;
use serde::{Deserialize, Serialize, Serializer};

use super::SupervisorConfig;
use crate::Qos;

/// Mismatches that are kept in words for each end; the newest. They are all counted.
pub(super) const MISMATCHES_MAX: usize = 8;

/// Whether a participant takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being made, for the first time or again.
    #[default]
    Starting,
    /// It takes part.
    Running,
    /// It is made anew no more.
    GivenUp,
}

/// A participant at a glance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SupervisorStatus {
    /// The library.
    pub backend: &'static str,
    /// The domain.
    pub domain: u16,
    /// Who it is now; another one after each restart.
    pub guid: Option<String>,
    /// Whether it takes part.
    pub state: State,
    /// Participants elsewhere that are known.
    pub peers: u64,
    /// How often it was made anew.
    pub restarts: u64,
    /// Panics of the library.
    pub panics: u64,
    /// How often nothing moved in it that should have.
    pub stalls: u64,
    /// Threads that never came back from it.
    pub abandoned: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// What can be done about it, when that is known.
    pub hint: Option<String>,
    /// Writers.
    pub writers: Vec<OutletStatus>,
    /// Readers.
    pub readers: Vec<InletStatus>,
}

/// What a writer and a reader both tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EndStatus {
    /// The topic.
    pub topic: String,
    /// Its type.
    pub type_name: String,
    /// What a writer offers or a reader requests, with the number of samples that it keeps.
    pub qos: Qos,
    /// Ends elsewhere that match: readers of a writer, writers of a reader.
    pub matched: u64,
    /// Deadlines of the topic that passed without a sample while somebody matched.
    pub deadlines_missed: u64,
    /// Ends elsewhere that do not fit.
    pub mismatches: u64,
    /// The newest of them, with both sides' values.
    pub mismatched: Vec<String>,
}

/// A writer at a glance.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OutletStatus {
    /// Topic, quality of service, who matches.
    #[serde(flatten)]
    pub end: EndStatus,
    /// Samples written.
    pub sent: u64,
    /// Samples written and not acknowledged by all reliable readers: exact.
    pub unacknowledged: u64,
    /// Samples acknowledged.
    pub acknowledged: u64,
    /// Samples that were given up for a reader that acknowledged nothing.
    pub given_up: u64,
    /// How often the writer was made anew for that.
    pub renewed: u64,
    /// Whether a reader acknowledges nothing now.
    pub stalled: bool,
    /// How often one did.
    pub stalls: u64,
    /// Seconds in which there was a sample and no room for it.
    pub blocked_s: f64,
    /// Its pacer.
    #[serde(serialize_with = "pacing")]
    pub pacer: Option<PacerStatus>,
}

/// A reader at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InletStatus {
    /// Topic, quality of service, who matches.
    #[serde(flatten)]
    pub end: EndStatus,
    /// Samples received.
    pub received: u64,
    /// Samples passed over: numbers missing behind the first of each writer.
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

/// A pacer in words and numbers, as those of links are told.
#[derive(Serialize)]
struct Pacing {
    pacer: &'static str,
    state: &'static str,
    occupation: u64,
    low_threshold: u64,
    high_threshold: u64,
    period_s: f64,
    round_trip_s: Option<f64>,
    round_trip_min_s: Option<f64>,
    delivery_rate_bytes_per_s: Option<u64>,
    acknowledged_at_once: u64,
}

#[allow(clippy::ref_option, reason = "serde gives it so")]
fn pacing<S: Serializer>(status: &Option<PacerStatus>, to: S) -> Result<S::Ok, S::Error> {
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let told = status.map(|status| Pacing {
        pacer: status.name,
        state: status.state.as_str(),
        occupation: status.occupation,
        low_threshold: status.low_threshold,
        high_threshold: status.high_threshold,
        period_s: seconds(status.period),
        round_trip_s: status.round_trip.map(seconds),
        round_trip_min_s: status.round_trip_min.map(seconds),
        delivery_rate_bytes_per_s: status.delivery_rate_bytes_per_s,
        acknowledged_at_once: status.acknowledged_at_once,
    });
    told.serialize(to)
}

/// What is counted over all restarts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) state: State,
    pub(super) guid: Option<String>,
    pub(super) peers: u64,
    pub(super) restarts: u64,
    pub(super) panics: u64,
    pub(super) stalls: u64,
    pub(super) abandoned: u64,
    last_error: Option<String>,
    hint: Option<String>,
}

impl Counters {
    /// The participant is of no more use.
    pub(super) fn failed(&mut self, why: &str, given_up: bool) {
        self.restarts += u64::from(!given_up);
        self.guid = None;
        self.peers = 0;
        self.last_error = Some(why.to_owned());
        (self.state, self.hint) = match given_up {
            true => (State::GivenUp, Some("start the node anew".to_owned())),
            false => (State::Starting, None),
        };
    }

    /// What can be done about the last error.
    pub(super) fn hinted(&mut self, hint: Option<&str>) {
        self.hint = hint.map(str::to_owned);
    }

    pub(super) fn status(
        &self,
        config: &SupervisorConfig,
        writers: Vec<OutletStatus>,
        readers: Vec<InletStatus>,
    ) -> SupervisorStatus {
        SupervisorStatus {
            backend: config.backend.as_str(),
            domain: config.participant.domain,
            guid: self.guid.clone(),
            state: self.state,
            peers: self.peers,
            restarts: self.restarts,
            panics: self.panics,
            stalls: self.stalls,
            abandoned: self.abandoned,
            last_error: self.last_error.clone(),
            hint: self.hint.clone(),
            writers,
            readers,
        }
    }
}

/// Keeps the newest mismatches in words.
pub(super) fn note(status: &mut EndStatus, words: String) {
    status.mismatches += 1;
    status.mismatched.retain(|known| *known != words);
    if status.mismatched.len() >= MISMATCHES_MAX {
        status.mismatched.remove(0);
    }
    status.mismatched.push(words);
}
