//! The virtual sensors, as they are shown.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;
use utoipa::ToSchema;

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
    /// Whether it runs.
    pub(crate) state: SensorState,
    /// What is wrong, when it failed.
    pub(crate) error: Option<SensorError>,
    /// Its statement.
    pub(crate) sql: String,
    /// How the statement is evaluated: `compiled`, or `SQLite` and why; none before it is bound.
    pub(crate) plan: Option<String>,
    /// Its window, in words, one source after the other.
    pub(crate) window: String,
    /// What its elements consist of.
    pub(crate) fields: Vec<FieldView>,
    /// What it is bound to.
    pub(crate) sources: Vec<Source>,
    /// Elements that it did not use since the node started or its file changed, by reason: `late` (they came
    /// after its window had moved on), `misfit` (of another shape, or too long), `not_bound`,
    /// `window_elements` and `window_bytes` (its window reached a bound of its size).
    pub(crate) dropped: BTreeMap<String, u64>,
    /// What happened to its bindings, oldest first.
    pub(crate) history: Vec<Event>,
    /// The file itself.
    pub(crate) toml: String,
}

/// Whether a virtual sensor runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SensorState {
    /// All its sources are bound.
    Running,
    /// A source has no stream yet.
    #[default]
    Waiting,
    /// Its file is wrong, or its statement fails.
    Failed,
}

impl SensorState {
    /// All states with their words.
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Running, "running"),
        (Self::Waiting, "waiting"),
        (Self::Failed, "failed"),
    ];
}

/// What is wrong with a virtual sensor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct SensorError {
    /// What.
    pub(crate) message: String,
    /// The line in its file.
    pub(crate) line: Option<usize>,
    /// The key in its file.
    pub(crate) key: Option<String>,
    /// What to do.
    pub(crate) hint: Option<String>,
}

/// A source of a virtual sensor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Source {
    /// Its name in the statement.
    pub(crate) alias: String,
    /// The query by which it is found.
    pub(crate) query: Option<String>,
    /// The stream it names.
    pub(crate) stream: Option<String>,
    /// The streams it is bound to.
    pub(crate) bound: Vec<Bound>,
    /// Why it is bound to none.
    pub(crate) unbound_reason: Option<String>,
}

/// A stream that a source is bound to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Bound {
    /// The stream.
    pub(crate) stream: String,
    /// Since when (RFC 3339).
    pub(crate) since: String,
    /// Why it matches.
    pub(crate) why: String,
}

/// Something that happened to a binding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Event {
    /// When (RFC 3339).
    pub(crate) at: String,
    /// What.
    pub(crate) what: String,
}

/// All virtual sensors, by name.
#[derive(Default)]
pub(crate) struct Sensors {
    sensors: Mutex<BTreeMap<String, Sensor>>,
    /// Asks for a look at the sensors' directory now.
    pub(crate) rescan: Notify,
}

impl Sensors {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sensor>> {
        self.sensors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a sensor as it is now.
    pub(crate) fn show(&self, sensor: Sensor) {
        self.lock().insert(sensor.name.clone(), sensor);
    }

    /// Changes how a sensor is shown, if it is.
    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut Sensor)) {
        if let Some(sensor) = self.lock().get_mut(name) {
            change(sensor);
        }
    }

    /// Shows a sensor no more.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// One sensor.
    pub(crate) fn get(&self, name: &str) -> Option<Sensor> {
        self.lock().get(name).cloned()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Sensor> {
        self.lock().values().cloned().collect()
    }

    /// How many there are in each state.
    pub(crate) fn counts(&self) -> [(&'static str, i64); 3] {
        let sensors = self.lock();
        SensorState::ALL.map(|(state, word)| {
            let count = sensors.values().filter(|sensor| sensor.state == state);
            (word, i64::try_from(count.count()).unwrap_or(i64::MAX))
        })
    }
}
