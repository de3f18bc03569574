//! Places: what is measured where, such as `pump-1`. The streams of a place carry its name before their last part, and
//! one device fills it at a time.
//!
//! Without an operator's word a device fills the place that its friendly name gives. An operator assigns a place to
//! another device when a device is replaced; its streams then continue. Each change is kept.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::ToSchema;

use super::kept_list::KeptList;
use crate::clock;
use crate::config::Config;

/// The file of assigned places in the data directory.
pub(crate) const PLACES: &str = "places.json";
/// Assigned places; reason: one for each device of a large plant.
const PLACES_MAX: usize = 100_000;
/// Former devices that a place remembers; the oldest are forgotten.
const FORMER_MAX: usize = 100;

/// An assigned place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Place {
    /// Its name: the streams' names without their last part.
    pub(crate) place: String,
    /// The key of the device that fills it.
    pub(crate) device: String,
    /// Time of the assignment (RFC 3339).
    pub(crate) since: String,
    /// The devices that filled it before, the latest last.
    pub(crate) former: Vec<Former>,
}

/// A device that filled a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FormerDevice)]
pub(crate) struct Former {
    /// Its key.
    pub(crate) device: String,
    /// Time at which another device took its place (RFC 3339).
    pub(crate) until: String,
}

/// All assigned places.
pub(crate) struct Places(Arc<KeptList<Place>>);

impl Places {
    /// The places that earlier runs of the node assigned.
    ///
    /// # Errors
    /// Their file cannot be read.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        Ok(Self(KeptList::open(config, PLACES)?))
    }

    /// All of them, in the order of their first assignment.
    pub(crate) fn all(&self) -> Vec<Place> {
        self.0.items().clone()
    }

    /// The place that is assigned to a device.
    pub(crate) fn of(&self, device: &str) -> Option<String> {
        let assigned = self.0.items();
        let place = assigned.iter().find(|place| place.device == device);
        place.map(|place| place.place.clone())
    }

    /// The device to which a place is assigned.
    pub(super) fn device_of(&self, place: &str) -> Option<String> {
        let assigned = self.0.items();
        let place = assigned.iter().find(|one| one.place == place);
        place.map(|place| place.device.clone())
    }

    /// Changes whenever a place is assigned.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    /// Assigns a place to `device`, which leaves its own one; `former` filled it before.
    ///
    /// # Errors
    /// The file cannot be written, or there are too many places; then nothing has changed.
    pub(crate) async fn assign(
        &self,
        place: String,
        device: String,
        former: String,
    ) -> io::Result<Place> {
        let change = move |assigned: &mut Vec<Place>| {
            let now = clock::now().to_string();
            assigned.retain(|one| one.device != device || one.place == place);
            let known = assigned.iter().position(|one| one.place == place);
            let known = known.map(|known| assigned.remove(known));
            let mut past = known.map_or(Vec::new(), |known| known.former);
            past.push(Former {
                device: former,
                until: now.clone(),
            });
            let excess = past.len().saturating_sub(FORMER_MAX);
            past.drain(..excess);
            if assigned.len() >= PLACES_MAX {
                let text = format!("there are already {PLACES_MAX} assigned places");
                return Err(io::Error::other(text));
            }
            let made = Place {
                place,
                device,
                since: now,
                former: past,
            };
            assigned.push(made.clone());
            Ok(made)
        };
        self.0.change(change).await
    }
}

/// The place of a stream: its name without the last part.
pub(super) fn place_of_stream(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_has_one_device_and_remembers_the_former_ones() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            data_directory: directory.path().to_owned(),
            ..Config::default()
        };
        let places = Places::open(&config).unwrap();
        let assign = async |place: &str, device: &str, former: &str| {
            let assigned = places.assign(place.into(), device.into(), former.into());
            assigned.await.unwrap()
        };
        assign("pump", "b", "a").await;
        let made = assign("pump", "c", "b").await;
        let former: Vec<_> = made.former.iter().map(|one| one.device.as_str()).collect();
        assert_eq!(former, ["a", "b"]);
        assert_eq!(places.of("b"), None);
        // A device fills one place.
        assign("valve", "c", "d").await;
        let places = Places::open(&config).unwrap();
        assert_eq!(places.of("c").as_deref(), Some("valve"));
        assert_eq!(places.all().len(), 1);
        assert_eq!(place_of_stream("ward.pump-1.pulse"), "ward.pump-1");
    }
}
