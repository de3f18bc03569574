//! Elements that a virtual sensor does not use, or that leave its window early.

use chappe_stream::VirtualSensor;

/// Reasons counted per source: the element was late, its time was too far ahead, or another element of
/// its stream had the same time; the window reached a size limit and removed elements early; a key's
/// whole window was removed at a limit; turns of the node's clock passed unevaluated.
const WINDOW_REASONS: [&str; 7] = [
    "late",
    "early",
    "equal_time",
    "window_elements",
    "window_bytes",
    "window_keys",
    "turns_skipped",
];
/// Reasons counted per sensor: the element's structure differs from the bound schema or is too long for
/// a table, its stream is no longer bound, or the source's sampling left it out; and of results: they
/// came too soon, after the last of the statement, at the time of an earlier one, or with a null.
const SENSOR_REASONS: [&str; 7] = [
    "misfit",
    "not_bound",
    "sampled_out",
    "too_soon",
    "beyond_count",
    "repeated_time",
    "null",
];

/// The last known counters of a sensor.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    of_windows: Vec<[u64; WINDOW_REASONS.len()]>,
    of_sensor: [u64; SENSOR_REASONS.len()],
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
                self.of_windows.push([0; WINDOW_REASONS.len()]);
            }
            let now = [
                counters.late_dropped,
                counters.early_dropped,
                counters.equal_times,
                counters.over_elements,
                counters.over_bytes,
                counters.keys_dropped,
                counters.turns_skipped,
            ];
            let before = std::mem::replace(&mut self.of_windows[index], now);
            drops.extend(since(WINDOW_REASONS, before, now, Some(alias)));
        }
        let counters = machine.counters();
        let now = [
            counters.misfits,
            counters.strangers,
            counters.sampled_out,
            counters.too_soon,
            counters.beyond_count,
            counters.repeated_times,
            counters.nulls,
        ];
        let before = std::mem::replace(&mut self.of_sensor, now);
        drops.extend(since(SENSOR_REASONS, before, now, None));
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
