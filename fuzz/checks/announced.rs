//! Invariants of messages of MQTT by which devices announce themselves, for any bytes.

use chappe_stream::{Timestamp, check_name};
use chappe_wrappers::announced::{home_assistant, sparkplug};

use crate::bounds::Bound;

/// A metric or entity takes some hundred bytes for each of the messages, and there are some more copies of its texts.
const BOUND: Bound = Bound::memory(4 << 20, 2_000);
/// Most metrics or entities.
const MOST: usize = 50;
/// The topics of messages, by the first byte of each.
const SPARKPLUG: [&str; 6] = [
    "spBv1.0/g/NBIRTH/n",
    "spBv1.0/g/NDATA/n",
    "spBv1.0/g/NDEATH/n",
    "spBv1.0/g/DBIRTH/n/d",
    "spBv1.0/g/DDATA/n/d",
    "spBv1.0/g/DDEATH/n/d",
];
const HOME_ASSISTANT: [&str; 5] = [
    "homeassistant/sensor/n/a/config",
    "homeassistant/switch/b/config",
    "homeassistant/device/c/config",
    "s",
    "a",
];

/// No panic; no more streams than allowed; their names and elements are valid. The first byte says which protocol; then
/// each message has a byte for its topic and two for its length.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        let Some((first, mut rest)) = data.split_first() else {
            return;
        };
        let is_sparkplug = first % 2 == 0;
        let topics: &[&str] = if is_sparkplug {
            &SPARKPLUG
        } else {
            &HOME_ASSISTANT
        };
        let mut messages = Vec::new();
        while let [topic, low, high, bytes @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let (payload, after) = bytes.split_at(length.min(bytes.len()));
            messages.push((topics[usize::from(*topic) % topics.len()], payload));
            rest = after;
        }
        let now = Timestamp(1_800_000_000_000_000_000);
        let batch = match is_sparkplug {
            true => sparkplug("plant", MOST, now, messages),
            false => home_assistant("home", MOST, now, messages),
        };
        for part in &batch.parts {
            assert_eq!(check_name(&part.stream).err(), None);
            assert_eq!(part.definition.schema.check_names(), Ok(()));
        }
        for one in &batch.undecodable {
            assert!(!one.reason.is_empty());
        }
    });
}
