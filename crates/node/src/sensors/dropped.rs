//! Elements that a virtual sensor does not use, or that leave its window early.

use chappe_stream::VirtualSensor;

/// Counts by reason.
type Counts = [(&'static str, u64); 7];

/// The last known counters of a sensor.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    of_windows: Vec<Counts>,
    of_sensor: Counts,
}

/// Newly unused elements, with their source if known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unused<'a> {
    pub(super) alias: Option<&'a str>,
    pub(super) reason: &'static str,
    pub(super) count: u64,
}

impl Dropped {
    /// The drops counted since the last call. The counters of a new machine start at zero.
    pub(super) fn take_new<'a>(
        &mut self,
        machine: &VirtualSensor,
        aliases: impl Iterator<Item = &'a str>,
    ) -> Vec<Unused<'a>> {
        let mut drops = Vec::new();
        for (index, alias) in aliases.enumerate() {
            let Some(counters) = machine.window_counters(alias) else {
                continue;
            };
            if self.of_windows.len() <= index {
                self.of_windows.push(Counts::default());
            }
            let now = counters.by_reason();
            let before = std::mem::replace(&mut self.of_windows[index], now);
            drops.extend(since(before, now, Some(alias)));
        }
        let now = machine.counters().by_reason();
        let before = std::mem::replace(&mut self.of_sensor, now);
        drops.extend(since(before, now, None));
        drops
    }
}

fn since(before: Counts, now: Counts, alias: Option<&str>) -> impl Iterator<Item = Unused<'_>> {
    let drops = before
        .into_iter()
        .zip(now)
        .map(move |((_, before), (reason, now))| {
            let count = now.checked_sub(before).unwrap_or(now);
            Unused {
                alias,
                reason,
                count,
            }
        });
    drops.filter(|drop| drop.count > 0)
}
