//! The table of virtual sensors.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use utoipa::ToSchema;

use super::command_view::CommandView;
use crate::catalogue::Names;
use crate::config::Fault;
use crate::view::FieldView;

/// A virtual sensor.
#[derive(Clone, Default, Serialize, ToSchema)]
pub(crate) struct Sensor {
    /// Its name.
    pub(crate) name: String,
    /// Its stream, which usually has the same name.
    pub(crate) stream: String,
    /// The file that describes it.
    pub(crate) file: String,
    /// Its state.
    pub(crate) state: SensorState,
    /// Its error, when it failed.
    pub(crate) error: Option<Fault>,
    /// The fault of the present file, while what it described before runs.
    #[serde(skip)]
    pub(crate) refused: Option<Fault>,
    /// Its statement.
    pub(crate) sql: String,
    /// The plan of the statement: `compiled`, or `SQLite` with the reason; null before it is bound.
    pub(crate) plan: Option<String>,
    /// The windows of its sources, as text.
    pub(crate) window: String,
    /// The fields of its elements.
    pub(crate) fields: Vec<FieldView>,
    /// Its sources with their bindings.
    pub(crate) sources: Vec<Source>,
    /// Its commands.
    pub(crate) commands: Vec<CommandView>,
    /// The names of the wrappers in its file, which run with it.
    pub(crate) wrappers: Vec<String>,
    /// Elements not used since the node started or its file changed, by reason: `late` (arrived
    /// after its window had moved on), `early` (its time is too far ahead of the node's clock),
    /// `equal_time` (another element of the stream has the same time), `misfit` (another structure, or
    /// too long), `not_bound`, `window_elements` and `window_bytes` (its window reached a size limit).
    /// `window_keys` counts keys whose windows were removed at a limit, `turns_skipped` turns of the
    /// node's clock that passed unevaluated.
    /// `sampled_out` counts elements left out by their source's `sampling`; results that are not stored
    /// are `too_soon` (`rate`), `beyond_count` (`count`), `repeated_time` (`unique_times`) and `null`
    /// (`nulls`).
    pub(crate) dropped: BTreeMap<String, u64>,
    /// The history of its bindings, oldest first.
    pub(crate) history: Vec<Event>,
    /// The file itself.
    pub(crate) toml: String,
}

impl Sensor {
    /// Names its streams as they are called now.
    pub(crate) fn use_current_names(&mut self, names: &Names) {
        self.stream = names.current(&self.stream);
        for command in &mut self.commands {
            command.stream = names.current(&command.stream);
        }
        for bound in self.sources.iter_mut().flat_map(|it| &mut it.bound) {
            bound.stream = names.current(&bound.stream);
        }
    }
}

/// The state of a virtual sensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SensorState {
    /// All its sources are bound.
    Running,
    /// A source has no stream yet.
    #[default]
    Waiting,
    /// Its file is invalid, or its statement fails.
    Failed,
}

impl SensorState {
    /// All states with their names.
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Running, "running"),
        (Self::Waiting, "waiting"),
        (Self::Failed, "failed"),
    ];
}

/// A source of a virtual sensor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = SensorSource)]
pub(crate) struct Source {
    /// Its name in the statement.
    pub(crate) alias: String,
    /// The query by which it is found.
    pub(crate) query: Option<String>,
    /// The wrapper in the sensor's file that it reads.
    pub(crate) wrapper: Option<String>,
    /// The stream it names, or that of the command whose calls it reads.
    pub(crate) stream: Option<String>,
    /// Its choices in order of preference, if it has a fallback: the first that delivers is used.
    pub(crate) choices: Vec<Choice>,
    /// The streams it is bound to.
    pub(crate) bound: Vec<Bound>,
    /// The reason why it is bound to none.
    pub(crate) unbound_reason: Option<String>,
}

/// A choice of a source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = SourceChoice)]
pub(crate) struct Choice {
    /// The stream, or the query by which it is found.
    pub(crate) choice: String,
    /// Whether the source reads it.
    pub(crate) is_used: bool,
    /// When it delivered last (RFC 3339), as far as the node knows.
    pub(crate) delivered_at: Option<String>,
}

/// A stream that a source is bound to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = BoundStream)]
pub(crate) struct Bound {
    /// The stream.
    pub(crate) stream: String,
    /// Time of the binding (RFC 3339).
    pub(crate) since: String,
    /// The reason why it matches.
    pub(crate) why: String,
    /// The number of the last element that the sensor has read, as of the last second.
    pub(crate) read: Option<u64>,
}

/// A change of a binding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = BindingChange)]
pub(crate) struct Event {
    /// Its time (RFC 3339).
    pub(crate) at: String,
    /// The change.
    pub(crate) what: String,
}

/// All virtual sensors, by name.
#[derive(Default)]
pub(crate) struct Sensors {
    sensors: Mutex<BTreeMap<String, Sensor>>,
    /// Requests an immediate scan of the sensors' directory.
    pub(crate) rescan: Notify,
}

impl Sensors {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sensor>> {
        self.sensors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or replaces a sensor.
    pub(crate) fn insert(&self, sensor: Sensor) {
        self.lock().insert(sensor.name.clone(), sensor);
    }

    /// Changes a sensor's entry, if there is one.
    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut Sensor)) {
        if let Some(sensor) = self.lock().get_mut(name) {
            change(sensor);
        }
    }

    /// Removes a sensor.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// One sensor.
    pub(crate) fn get(&self, name: &str) -> Option<Sensor> {
        self.lock().get(name).cloned()
    }

    /// Whether the file of a sensor has the wrapper of this name.
    pub(crate) fn have_wrapper(&self, name: &str) -> bool {
        let sensors = self.lock();
        let mut sensors = sensors.values();
        sensors.any(|sensor| sensor.wrappers.iter().any(|wrapper| wrapper == name))
    }

    /// All sensors, by name.
    pub(crate) fn all(&self) -> Vec<Sensor> {
        self.lock().values().cloned().collect()
    }

    /// The number of sensors in each state.
    pub(crate) fn counts(&self) -> [(&'static str, i64); 3] {
        let sensors = self.lock();
        SensorState::ALL.map(|(state, word)| {
            let count = sensors.values().filter(|sensor| sensor.state == state);
            (word, i64::try_from(count.count()).unwrap_or(i64::MAX))
        })
    }
}
