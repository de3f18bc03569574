//! The wrapper of kind `home_assistant`: it follows the entities that devices announce.

use std::collections::VecDeque;

use chappe_stream::{DescriptorError, Timestamp};
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Deserialize;

use super::discovery::Discovery;
use crate::kinds::mqtt::broker::{Broker, Order, is_topic};
use crate::kinds::mqtt::follow::{Call, Follower, Machine, Output};
use crate::kinds::mqtt::session::Message;
use crate::{
    Command, Delivery, DeviceReport, Mark, NodeParts, Undecodable, Wrapper, WrapperError,
    WrapperFile, WrapperKind, WrapperOpening,
};

/// Topics of one subscription; reason: its packet stays below what brokers take.
const FILTERS_AT_ONCE: usize = 64;
/// Refused announcements that a mark names; reason: a broker repeats them after each connection, and a mark has at
/// most 1 KiB.
const REFUSALS: usize = 100;
/// Bytes of the hash of a refused announcement.
const HASH_BYTES: usize = 8;
/// The first byte of a mark.
const MARK_VERSION: u8 = 1;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "home_assistant",
    about: "entities that devices announce to Home Assistant over MQTT",
    delivery: Delivery {
        acknowledges: "by PUBACK, after the message is stored",
        resumes: "the retained announcements and states of the broker",
        may_double: "the retained state of an entity, after each connection",
        may_miss: "states that were published while there was no connection, except the retained ones",
        back_pressure: "acknowledgements wait, and the socket is not read",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `home_assistant`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(flatten)]
    broker: Broker,
    /// The first level of the topics on which devices announce entities.
    #[serde(default = "super::prefix")]
    prefix: String,
}

fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.broker.check(file)?;
    if !is_topic(&settings.prefix) {
        let text = "it is the beginning of a topic, without wildcards".to_owned();
        return Err(file.fault("prefix", text, None));
    }
    for (key, is_set) in [
        ("format", file.keys.format.is_some()),
        ("stream", !file.keys.streams.is_empty()),
        ("command", !file.keys.commands.is_empty()),
    ] {
        if is_set {
            let text = "the devices announce the streams of this kind".to_owned();
            let hint = "kind = \"mqtt\" reads topics as the file says".to_owned();
            return Err(file.fault(key, text, Some(hint)));
        }
    }
    Ok(settings)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let connector = settings.broker.resolve(file)?;
    let entities_max = file.keys.limits.streams as usize;
    let machine = HomeAssistant {
        discovery: Discovery::new(&settings.prefix, &file.name, entities_max),
        progress: opening
            .mark
            .as_ref()
            .and_then(Progress::of)
            .unwrap_or_default(),
    };
    Ok(Box::new(Follower::new(
        &file.name,
        connector,
        Discovery::filters(&settings.prefix),
        machine,
        opening.condition,
        opening.notes,
    )))
}

struct HomeAssistant {
    discovery: Discovery,
    progress: Progress,
}

impl Machine for HomeAssistant {
    fn attach(&mut self, node: &NodeParts) {
        self.discovery.attach(node);
    }

    fn receive(&mut self, message: &Message, now: Timestamp, output: &mut Output) {
        let (topic, payload) = (&message.topic, &message.payload);
        if let Some(bytes) = message.cut_of {
            output.batch.undecodable.push(Undecodable {
                stream: None,
                reason: format!("{topic}: a packet of {bytes} bytes exceeds the limit"),
                message: payload.clone(),
                is_cut: true,
            });
            return;
        }
        let before = output.batch.undecodable.len();
        let changes = self.discovery.receive(topic, payload, now, output);
        let refused = output.batch.undecodable.len() > before;
        if refused && self.discovery.announces(topic) && self.progress.knows(topic, payload) {
            output.batch.undecodable.truncate(before);
        }
        let mut order = |topics: Vec<String>, order: fn(Vec<String>) -> Order| {
            let chunks = topics.chunks(FILTERS_AT_ONCE);
            output
                .orders
                .extend(chunks.map(|chunk| order(chunk.to_vec())));
        };
        order(changes.new.into_iter().collect(), Order::Subscribe);
        order(changes.gone.into_iter().collect(), Order::Unsubscribe);
    }

    fn devices(&mut self) -> Vec<DeviceReport> {
        self.discovery.devices()
    }

    fn operate(&self, device: &str, command: &Command, _: Timestamp) -> Result<Call, String> {
        self.discovery.operate(device, command)
    }

    fn waits_for(&self) -> Option<&'static str> {
        (self.discovery.len() == 0).then_some("no device has announced an entity")
    }

    fn mark(&mut self) -> Mark {
        self.progress.mark()
    }
}

/// The batches so far, and announcements that were refused: they are dead letters once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Progress {
    number: u64,
    refused: VecDeque<[u8; HASH_BYTES]>,
}

impl Progress {
    fn of(mark: &Mark) -> Option<Self> {
        let (head, hashes) = mark.bytes().split_at_checked(9)?;
        let is_whole = head[0] == MARK_VERSION && hashes.len() % HASH_BYTES == 0;
        is_whole.then_some(())?;
        let hashes = hashes.chunks_exact(HASH_BYTES);
        Some(Self {
            number: u64::from_le_bytes(head[1..].try_into().ok()?),
            refused: hashes
                .map(|hash| hash.try_into().ok())
                .collect::<Option<_>>()?,
        })
    }

    /// Whether an announcement was refused before; afterwards it was.
    fn knows(&mut self, topic: &str, payload: &[u8]) -> bool {
        let content = [topic.as_bytes(), &[0], payload].concat();
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(&digest(&SHA256, &content).as_ref()[..HASH_BYTES]);
        if self.refused.contains(&hash) {
            return true;
        }
        self.refused.push_back(hash);
        if self.refused.len() > REFUSALS {
            self.refused.pop_front();
        }
        false
    }

    fn mark(&mut self) -> Mark {
        self.number = self.number.wrapping_add(1);
        let mut bytes = vec![MARK_VERSION];
        bytes.extend(self.number.to_le_bytes());
        self.refused.iter().for_each(|hash| bytes.extend(hash));
        // 809 bytes at most, below the limit of a mark.
        Mark::new(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;

    #[test]
    fn a_refused_announcement_is_a_dead_letter_once() {
        let mut progress = Progress::default();
        for number in 0..200 {
            assert!(!progress.knows(&format!("a/{number}"), b"x"));
        }
        let mark = progress.mark();
        let mut after = Progress::of(&mark).unwrap();
        assert_ne!(mark, after.mark(), "each batch has a mark of its own");
        assert!(after.knows("a/199", b"x") && !after.knows("a/199", b"y"));
        assert!(!after.knows("a/1", b"x"), "the oldest are forgotten");
        assert_eq!(Progress::of(&Mark::new(vec![2; 9]).unwrap()), None);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let text = "kind = \"home_assistant\"\naddress = \"mqtt://a\"\n";
        assert!(wrapper_file(text).kind().is_ok());
        for (more, key) in [
            ("prefix = \"a/#\"", "prefix"),
            ("format = \"json\"", "format"),
            ("availability = \"+\"", "availability"),
        ] {
            let error = wrapper_file(&format!("{text}{more}\n"))
                .kind()
                .err()
                .unwrap();
            assert_eq!(&*error.key, key, "{error}");
        }
    }
}
