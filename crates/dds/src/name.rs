//! Names of participants, to find those with incompatible settings.
//!
//! A participant's announcement need not have a name, and the library does not tell the addresses of others. So each
//! participant here has an end without a match, on a topic that contains both: `chappe/name/GUID/HOST/ADDRESS/PROCESS`. It is created, and therefore
//! announced, before all others.

use std::net::IpAddr;

use crate::backend::{Guid, Participant, ParticipantConfig, Topic};
use crate::{DdsError, Octets, Qos, Reader, Writer};

const PREFIX: &str = "chappe/name/";
/// The longest host name; reason: the name of a topic has at most 255 bytes.
const HOST_BYTES_MAX: usize = 64;

/// The announcing ends: writers and readers are announced separately, each kind in order.
pub(crate) struct Name {
    _writer: Box<dyn Writer>,
    _reader: Box<dyn Reader>,
}

impl Name {
    pub(crate) fn announce(
        participant: &mut dyn Participant,
        config: &ParticipantConfig,
    ) -> Result<Self, DdsError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let topic = Topic {
            name: topic_name(participant.guid(), &host, config, std::process::id()),
            type_name: Octets::TYPE_NAME.to_owned(),
        };
        let qos = Qos::default().best_effort();
        Ok(Self {
            _writer: participant.writer(&topic, &qos)?,
            _reader: participant.reader(&topic, &qos)?,
        })
    }
}

fn topic_name(guid: Guid, host: &str, config: &ParticipantConfig, process: u32) -> String {
    let guid = guid.to_string();
    let plain = |b: char| if b.is_ascii_alphanumeric() { b } else { '_' };
    let host: String = host
        .trim()
        .chars()
        .take(HOST_BYTES_MAX)
        .map(plain)
        .collect();
    let address = config.interfaces.first().map(IpAddr::to_string);
    let address = address.unwrap_or_default().replace('.', "_");
    format!("{PREFIX}{}/{host}/{address}/{process}", &guid[..24])
}

/// The name of an end's participant, if this topic announces it.
pub(crate) fn announced_name(topic: &str, end: Guid) -> Option<String> {
    let (guid, name) = topic.strip_prefix(PREFIX)?.split_once('/')?;
    let mut parts = name.split('/');
    let (host, address, process) = (parts.next()?, parts.next()?, parts.next()?);
    let address: IpAddr = address.replace('_', ".").parse().ok()?;
    let process: u32 = process.parse().ok()?;
    let own = end.to_string()[..24] == *guid && parts.next().is_none();
    (own && host.len() <= HOST_BYTES_MAX).then(|| format!("{host} at {address}, process {process}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_from_its_own_topic_and_valid() {
        let guid = Guid([7; 16]);
        let config = ParticipantConfig {
            interfaces: vec!["10.1.0.5".parse().unwrap()],
            ..ParticipantConfig::default()
        };
        let topic = Topic {
            name: topic_name(guid, "ward-3.example\n", &config, u32::MAX),
            type_name: Octets::TYPE_NAME.to_owned(),
        };
        assert_eq!(topic.check(), Ok(()), "{topic:?}");
        let end = Guid([7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 5, 3]);
        let name = announced_name(&topic.name, end);
        assert_eq!(
            name.as_deref(),
            Some("ward_3_example at 10.1.0.5, process 4294967295")
        );
        assert_eq!(announced_name(&topic.name, Guid([8; 16])), None);
        let long = topic_name(guid, &"ä".repeat(300), &config, 1);
        assert!(announced_name(&long, end).is_some_and(|name| name.len() < 128));
    }

    #[test]
    fn other_topics_have_no_name() {
        let guid = Guid([7; 16]);
        let begin = format!("{PREFIX}{}", "07".repeat(12));
        let host = "h".repeat(65);
        for rest in [
            "".to_owned(),
            "/host".to_owned(),
            "/host/10_1_0_5".to_owned(),
            "/host/10_1_0_5/x".to_owned(),
            "/host/10_1_0_500/1".to_owned(),
            "/host/10_1_0_5/1/more".to_owned(),
            format!("/{host}/10_1_0_5/1"),
        ] {
            assert_eq!(
                announced_name(&format!("{begin}{rest}"), guid),
                None,
                "{rest}"
            );
        }
        assert!(announced_name(&format!("{begin}/h/10_1_0_5/1"), guid).is_some());
    }
}
