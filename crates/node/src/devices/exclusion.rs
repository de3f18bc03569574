//! Which devices are left out: by the configuration, and by exclusions that were added to the running node.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::ToSchema;

use super::device::Device;
use super::kept_list::KeptList;
use crate::clock;
use crate::config::{Config, DevicePattern};

/// The file of added exclusions in the data directory.
pub(crate) const EXCLUSIONS: &str = "excluded-devices.json";
/// Added exclusions; reason: each is compared with each device.
const ADDED_MAX: usize = 1_000;

/// A rule by which devices are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Exclusion {
    /// Its number among the added ones; null when the configuration defines it.
    pub(crate) id: Option<u64>,
    /// The devices.
    pub(crate) devices: DevicePattern,
    /// Time at which it was added (RFC 3339); null when the configuration defines it.
    pub(crate) since: Option<String>,
}

/// An exclusion cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExclusionError {
    #[error("an exclusion needs an endpoint, a name, a type or a scope")]
    Empty,
    #[error("there are already {ADDED_MAX} added exclusions")]
    TooMany,
    #[error("there is no added exclusion {0}")]
    Unknown(u64),
    #[error("cannot write {EXCLUSIONS}: {0}")]
    File(#[from] io::Error),
}

/// All exclusions.
pub(crate) struct Exclusions {
    configured: Vec<DevicePattern>,
    added: Arc<KeptList<Exclusion>>,
}

impl Exclusions {
    /// Those of the configuration, and those that an earlier run of the node was given.
    ///
    /// # Errors
    /// The file of the latter cannot be read.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        Ok(Self {
            configured: config.devices.exclude.clone(),
            added: KeptList::open(config, EXCLUSIONS)?,
        })
    }

    /// All of them, the configured ones first.
    pub(crate) fn all(&self) -> Vec<Exclusion> {
        let configured = self.configured.iter().map(|devices| Exclusion {
            id: None,
            devices: devices.clone(),
            since: None,
        });
        configured
            .chain(self.added.items().iter().cloned())
            .collect()
    }

    /// The first one that matches a device.
    pub(super) fn of(&self, device: &Device) -> Option<Exclusion> {
        let name = Some(device.name.as_str()).filter(|_| device.is_described);
        let matches = |one: &Exclusion| {
            let (endpoint, types, scopes) = (&device.endpoint, &device.types, &device.scopes);
            one.devices.matches(endpoint, name, types, scopes)
        };
        self.all().into_iter().find(matches)
    }

    /// Changes whenever an exclusion is added or removed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.added.changes()
    }

    /// Adds an exclusion, or returns the one that has this pattern already.
    ///
    /// # Errors
    /// See [`ExclusionError`]; then nothing has changed.
    pub(crate) async fn add(&self, devices: DevicePattern) -> Result<Exclusion, ExclusionError> {
        if devices.is_empty() {
            return Err(ExclusionError::Empty);
        }
        let change = move |added: &mut Vec<Exclusion>| {
            if let Some(known) = added.iter().find(|one| one.devices == devices) {
                return Ok(known.clone());
            }
            if added.len() >= ADDED_MAX {
                return Err(ExclusionError::TooMany);
            }
            let last = added.iter().filter_map(|one| one.id).max();
            let exclusion = Exclusion {
                id: Some(last.unwrap_or(0) + 1),
                devices,
                since: Some(clock::now().to_string()),
            };
            added.push(exclusion.clone());
            Ok(exclusion)
        };
        self.added.change(change).await
    }

    /// Removes an added exclusion.
    ///
    /// # Errors
    /// See [`ExclusionError`]; then nothing has changed.
    pub(crate) async fn remove(&self, id: u64) -> Result<Exclusion, ExclusionError> {
        let change = move |added: &mut Vec<Exclusion>| {
            let place = added.iter().position(|one| one.id == Some(id));
            Ok(added.remove(place.ok_or(ExclusionError::Unknown(id))?))
        };
        self.added.change(change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn added_exclusions_outlive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_directory: directory.path().to_owned(),
            ..Config::default()
        };
        config.devices.exclude = vec![DevicePattern {
            device_type: Some("Printer".into()),
            ..DevicePattern::default()
        }];
        let pump = DevicePattern {
            name: Some("Pump".into()),
            ..DevicePattern::default()
        };
        let exclusions = Exclusions::open(&config).unwrap();
        let mut changes = exclusions.changes();
        let added = exclusions.add(pump.clone()).await.unwrap();
        assert!(changes.has_changed().unwrap());
        assert_eq!(exclusions.add(pump).await.unwrap(), added, "added once");
        let none = exclusions.add(DevicePattern::default()).await;
        assert!(matches!(none, Err(ExclusionError::Empty)));

        let exclusions = Exclusions::open(&config).unwrap();
        let all = exclusions.all();
        assert_eq!(all.len(), 2);
        assert_eq!(all[1], added);
        let mut device = Device {
            name: "Pump".into(),
            ..Device::default()
        };
        assert_eq!(exclusions.of(&device), None, "it is not described yet");
        device.is_described = true;
        assert_eq!(exclusions.of(&device), Some(added.clone()));
        changes.mark_unchanged();
        exclusions.remove(added.id.unwrap()).await.unwrap();
        assert_eq!(exclusions.of(&device), None);
        let again = exclusions.remove(added.id.unwrap()).await;
        assert!(matches!(again, Err(ExclusionError::Unknown(1))));
        device.types = vec!["{urn:office}Printer".into()];
        assert_eq!(exclusions.of(&device), Some(all[0].clone()));
        std::fs::write(directory.path().join(EXCLUSIONS), "{").unwrap();
        assert!(Exclusions::open(&config).is_err());
    }
}
