//! Profiles of devices: what a rule compares to find the successor of a device that has left.
//!
//! A profile is an unauthenticated claim, like everything that a device reports of itself. It is kept across restarts of
//! the node, because a device may be replaced while the node does not run.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::device::Device;
use super::kept_list::KeptList;
use crate::config::Config;

/// The file of profiles in the data directory.
pub(crate) const PROFILES: &str = "device-profiles.json";
/// Profiles; reason: one for each device of a large plant. The devices that left first are forgotten.
const PROFILES_MAX: usize = 10_000;
/// A device that was here before it had a profile succeeds no other.
pub(super) const ALWAYS: i64 = i64::MIN;

/// What a device reported when it was last here. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Profile {
    /// The key of the device.
    pub(super) device: String,
    /// Its friendly name.
    pub(super) name: String,
    /// Its types, in order.
    pub(super) types: Vec<String>,
    /// Its scopes, in order.
    pub(super) scopes: Vec<String>,
    /// The transport address at which it answered, an http URI.
    pub(super) address: String,
    /// When it was first described, or [`ALWAYS`].
    pub(super) since: i64,
    /// When it left; none while it is here.
    pub(super) left_at: Option<i64>,
}

impl Profile {
    /// The profile of a described device that answers at `address`.
    pub(super) fn of(device: &Device, address: String, since: i64) -> Self {
        let sorted = |texts: &[String]| {
            let mut texts = texts.to_vec();
            texts.sort();
            texts.dedup();
            texts
        };
        Self {
            device: device.key.clone(),
            name: device.name.clone(),
            types: sorted(&device.types),
            scopes: sorted(&device.scopes),
            address,
            since,
            left_at: None,
        }
    }

    /// What a newcomer has in common with the device that it replaces.
    pub(super) fn traits(&self) -> (&str, &[String], &[String]) {
        (&self.name, &self.types, &self.scopes)
    }
}

/// All profiles.
pub(super) struct Profiles(Arc<KeptList<Profile>>);

impl Profiles {
    /// The profiles of earlier runs. Devices that were here at the end of the last one count as having left at `now`,
    /// until they are found again.
    ///
    /// # Errors
    /// Their file cannot be read.
    pub(super) fn open(config: &Config, now: i64) -> Result<Self, String> {
        let profiles = KeptList::<Profile>::open(config, PROFILES)?;
        for profile in profiles.items().iter_mut() {
            profile.left_at.get_or_insert(now);
        }
        Ok(Self(profiles))
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Profile> {
        self.0.items().clone()
    }

    /// Changes whenever one of them does.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    /// Records that a device is here. A known one keeps the time at which it was first described.
    ///
    /// # Errors
    /// The file cannot be written; then nothing has changed.
    pub(super) async fn arrived(&self, mut profile: Profile) -> io::Result<()> {
        let change = move |profiles: &mut Vec<Profile>| {
            if let Some(known) = profiles.iter_mut().find(|one| one.device == profile.device) {
                profile.since = known.since;
                *known = profile;
                return Ok(());
            }
            if profiles.len() >= PROFILES_MAX {
                let left = profiles.iter().enumerate();
                let left = left.filter_map(|(index, one)| Some((one.left_at?, index)));
                let Some((_, oldest)) = left.min() else {
                    let text = format!("there are already {PROFILES_MAX} profiles");
                    return Err(io::Error::other(text));
                };
                profiles.remove(oldest);
            }
            profiles.push(profile);
            Ok(())
        };
        self.0.change(change).await
    }

    /// Records that a device has left, if it has a profile.
    ///
    /// # Errors
    /// The file cannot be written; then nothing has changed.
    pub(super) async fn left(&self, device: &str, now: i64) -> io::Result<()> {
        let device = device.to_owned();
        let change = move |profiles: &mut Vec<Profile>| {
            if let Some(known) = profiles.iter_mut().find(|one| one.device == device) {
                known.left_at = Some(now);
            }
            Ok(())
        };
        self.0.change(change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn profiles_outlive_a_restart_and_keep_their_first_time() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            data_directory: directory.path().to_owned(),
            ..Config::default()
        };
        let pump = Device {
            key: "a".into(),
            name: "Pump".into(),
            types: vec!["{urn:b}B".into(), "{urn:a}A".into()],
            ..Device::default()
        };
        let address = "http://192.0.2.7/";
        let profiles = Profiles::open(&config, 0).unwrap();
        profiles
            .arrived(Profile::of(&pump, address.into(), 5))
            .await
            .unwrap();
        profiles.left("a", 7).await.unwrap();
        let known = profiles.all()[0].clone();
        assert_eq!((known.since, known.left_at), (5, Some(7)));
        profiles
            .arrived(Profile::of(&pump, address.into(), 9))
            .await
            .unwrap();
        let known = profiles.all()[0].clone();
        assert_eq!((known.since, known.left_at), (5, None));

        let profiles = Profiles::open(&config, 20).unwrap();
        assert_eq!(profiles.all()[0].left_at, Some(20), "not found again");
        let mut other = pump.clone();
        other.key = "b".into();
        other.types.reverse();
        let other = Profile::of(&other, address.into(), 9);
        assert_eq!(other.traits(), known.traits());
    }
}
