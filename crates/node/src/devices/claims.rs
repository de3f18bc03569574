//! Which newcomers claim the places of devices that have left.
//!
//! A newcomer is a device that was first described after the other had left, and reports the same friendly name, types
//! and scopes. It gets the place only if nothing is doubtful: it is the only one, it claims one place only, and the
//! former device filled one place only. In all other cases an operator decides.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::profiles::Profile;
use crate::clock;

/// A place whose device has left, and the newcomers that claim it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PlaceClaim {
    /// The place: the start of its streams' names. Several if the former device had streams of several places.
    pub(crate) places: Vec<String>,
    /// The key of the device that filled it.
    pub(crate) former: String,
    /// Time at which that device left (RFC 3339).
    pub(crate) left_at: String,
    /// The keys of the newcomers with the same friendly name, types and scopes, by the time of their first
    /// description.
    pub(crate) devices: Vec<String>,
    /// Time from which the only newcomer takes the place if the former device does not answer (RFC 3339); null when an
    /// operator has to decide.
    pub(crate) due: Option<String>,
    /// Why an operator has to decide, by `chappe device replace`.
    pub(crate) doubt: Option<String>,
}

/// What the claims depend on, besides the profiles.
pub(super) struct Circumstances<'a> {
    /// Nanoseconds since 1970.
    pub(super) now: i64,
    /// Nanoseconds for which a device must have been gone.
    pub(super) after: i64,
    /// The places of the streams that belong to a device, if they were not assigned to another one.
    pub(super) places_of: &'a dyn Fn(&str) -> Vec<String>,
    /// Whether a device claims nothing: it has a place, or is left out.
    pub(super) is_out: &'a dyn Fn(&str) -> bool,
}

/// All claims, by the keys of the former devices.
pub(super) fn claims(profiles: &[Profile], of: &Circumstances<'_>) -> Vec<PlaceClaim> {
    let mut claims: Vec<PlaceClaim> = Vec::new();
    let mut times = Vec::new();
    let mut alike: BTreeMap<_, Vec<&Profile>> = BTreeMap::new();
    for profile in profiles {
        alike.entry(profile.traits()).or_default().push(profile);
    }
    for former in profiles {
        let Some(left_at) = former.left_at else {
            continue;
        };
        // A newcomer that has itself been gone for the time no longer counts.
        let is_newcomer = |one: &&Profile| {
            one.device != former.device
                && one.since >= left_at
                && one
                    .left_at
                    .is_none_or(|left| of.now.saturating_sub(left) < of.after)
                && !(of.is_out)(&one.device)
        };
        let others = alike.get(&former.traits()).into_iter().flatten().copied();
        let mut newcomers: Vec<&Profile> = others.filter(is_newcomer).collect();
        if newcomers.is_empty() {
            continue;
        }
        let places = (of.places_of)(&former.device);
        if places.is_empty() {
            continue;
        }
        newcomers.sort_by_key(|one| one.since);
        let devices = newcomers.into_iter().map(|one| one.device.clone());
        times.push(left_at);
        claims.push(PlaceClaim {
            places,
            former: former.device.clone(),
            left_at: text(left_at),
            devices: devices.collect(),
            due: None,
            doubt: None,
        });
    }
    let all = claims.clone();
    for (claim, left_at) in claims.iter_mut().zip(times) {
        claim.doubt = doubt(claim, &all);
        if claim.doubt.is_none() {
            claim.due = Some(text(left_at.saturating_add(of.after)));
        }
    }
    claims.sort_by(|one, two| one.former.cmp(&two.former));
    claims
}

/// Why an operator has to decide on a claim.
fn doubt(claim: &PlaceClaim, all: &[PlaceClaim]) -> Option<String> {
    let newcomer = match claim.devices.as_slice() {
        [one] => one,
        several => return Some(format!("{} newcomers claim it", several.len())),
    };
    if claim.places.len() > 1 {
        return Some("its former device has streams of several places".to_owned());
    }
    let others = all.iter().filter(|other| other.devices.contains(newcomer));
    match others.count() {
        0 | 1 => None,
        count => Some(format!("the newcomer claims {count} places")),
    }
}

fn text(time: i64) -> String {
    chappe_stream::Timestamp(time).to_string()
}

impl PlaceClaim {
    /// The newcomer that takes the place now.
    pub(super) fn successor(&self) -> Option<&str> {
        let due = chappe_stream::Timestamp::parse(self.due.as_deref()?)?;
        let newcomer = self.devices.first().filter(|_| due.0 <= clock::now().0);
        newcomer.map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::profiles::ALWAYS;

    fn profile(device: &str, name: &str, since: i64, left_at: Option<i64>) -> Profile {
        Profile {
            device: device.into(),
            name: name.into(),
            types: vec!["{urn:t}Pump".into()],
            scopes: Vec::new(),
            address: "http://192.0.2.7/".into(),
            since,
            left_at,
        }
    }

    fn claimed(profiles: &[Profile]) -> Vec<PlaceClaim> {
        let circumstances = Circumstances {
            now: 1_000,
            after: 100,
            places_of: &|device| match device {
                "streamless" => Vec::new(),
                "moved" => vec!["a".into(), "b".into()],
                other => vec![format!("place-of-{other}")],
            },
            is_out: &|device| device == "placed",
        };
        claims(profiles, &circumstances)
    }

    #[test]
    fn the_only_newcomer_takes_the_place_when_the_time_has_passed() {
        let old = profile("old", "Pump", 0, Some(500));
        for (other, is_claimed) in [
            (profile("new", "Pump", 600, None), true),
            (profile("new", "Pump", 600, Some(950)), true),
            (profile("new", "Pump", 600, Some(900)), false),
            (profile("new", "Valve", 600, None), false),
            (profile("neighbour", "Pump", 400, None), false),
            (profile("known", "Pump", ALWAYS, None), false),
            (profile("placed", "Pump", 600, None), false),
        ] {
            let found = claimed(&[old.clone(), other.clone()]);
            assert_eq!(found.len(), usize::from(is_claimed), "{other:?}");
            if let [claim] = &found[..] {
                assert_eq!(claim.successor(), Some("new"));
                assert_eq!(claim.due.as_deref(), Some(&*text(600)));
            }
        }
        let new = profile("new", "Pump", 600, None);
        let present = profile("present", "Pump", 0, None);
        let streamless = profile("streamless", "Pump", 0, Some(500));
        assert!(claimed(&[present, new.clone()]).is_empty());
        assert!(claimed(&[streamless, new]).is_empty());
    }

    #[test]
    fn in_doubt_an_operator_decides() {
        let old = profile("old", "Pump", 0, Some(500));
        let (one, two) = (
            profile("two", "Pump", 700, None),
            profile("one", "Pump", 600, None),
        );
        let found = claimed(&[old.clone(), one.clone(), two]);
        assert_eq!(found[0].devices, ["one", "two"]);
        let second = profile("second", "Pump", 0, Some(550));
        let two_places = claimed(&[old, second, one.clone()]);
        assert_eq!(two_places.len(), 2);
        let moved = claimed(&[profile("moved", "Pump", 0, Some(500)), one]);
        for claim in found.iter().chain(&two_places).chain(&moved) {
            assert!(claim.doubt.is_some(), "{claim:?}");
            assert_eq!((claim.successor(), claim.due.as_deref()), (None, None));
        }
    }
}
