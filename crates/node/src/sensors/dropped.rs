//! Elements that a virtual sensor does not use, or not as long as its window says.

use chappe_stream::VirtualSensor;

/// Reasons that each window counts: its element came too late, or it reached a bound of its size and put
/// elements out before their time.
const OF_WINDOW: [&str; 3] = ["late", "window_elements", "window_bytes"];
/// Reasons that the sensor counts: the element has another shape than its stream had when it was bound or
/// is too long for a table, or its stream is not bound any more.
const OF_SENSOR: [&str; 2] = ["misfit", "not_bound"];

/// The counters of a sensor as they were last.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    of_windows: Vec<[u64; 3]>,
    of_sensor: [u64; 2],
}

/// Elements of which one more was not used, of this source if it is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unused<'a> {
    pub(super) alias: Option<&'a str>,
    pub(super) reason: &'static str,
    pub(super) count: u64,
}

impl Dropped {
    /// What has been counted since the last call. A machine that is new begins at zero.
    pub(super) fn look<'a>(
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
                self.of_windows.push([0; 3]);
            }
            let now = [
                counters.late_dropped,
                counters.over_elements,
                counters.over_bytes,
            ];
            let before = std::mem::replace(&mut self.of_windows[index], now);
            drops.extend(since(OF_WINDOW, before, now, Some(alias)));
        }
        let counters = machine.counters();
        let now = [counters.misfits, counters.strangers];
        let before = std::mem::replace(&mut self.of_sensor, now);
        drops.extend(since(OF_SENSOR, before, now, None));
        drops
    }
}

fn since<'a, const N: usize>(
    reasons: [&'static str; N],
    before: [u64; N],
    now: [u64; N],
    alias: Option<&'a str>,
) -> impl Iterator<Item = Unused<'a>> {
    let counts = before.into_iter().zip(now);
    let drops = reasons
        .into_iter()
        .zip(counts)
        .map(move |(reason, (before, now))| {
            let count = now.checked_sub(before).unwrap_or(now);
            Unused {
                alias,
                reason,
                count,
            }
        });
    drops.filter(|drop| drop.count > 0)
}
