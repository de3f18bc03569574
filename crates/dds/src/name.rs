//! What participants call themselves, so that who does not fit can be found.
//!
//! RustDDS announces no name and tells no address of others. So each participant here has an end that
//! nobody matches, on a topic whose name says both: `chappe/name/GUID/HOST/ADDRESS/PROCESS`. It is made
//! before all others, and is heard of before them.

use std::net::IpAddr;

use crate::backend::{Guid, Participant, ParticipantConfig, Topic};
use crate::{DdsError, Octets, Qos, Reader, Writer};

const BEGIN: &str = "chappe/name/";
/// The longest name of a host here; reason: a topic's name ends at 255 bytes.
const HOST_BYTES_MAX: usize = 64;

/// The ends that tell it: writers and readers are announced apart from each other, each in order.
pub(crate) struct Name {
    _writer: Box<dyn Writer>,
    _reader: Box<dyn Reader>,
}

impl Name {
    pub(crate) fn tell(
        participant: &mut dyn Participant,
        config: &ParticipantConfig,
    ) -> Result<Self, DdsError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let topic = Topic {
            name: of(participant.guid(), &host, config, std::process::id()),
            type_name: Octets::TYPE_NAME.to_owned(),
        };
        let qos = Qos::default().best_effort();
        Ok(Self {
            _writer: participant.writer(&topic, &qos)?,
            _reader: participant.reader(&topic, &qos)?,
        })
    }
}

fn of(guid: Guid, host: &str, config: &ParticipantConfig, process: u32) -> String {
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
    format!("{BEGIN}{}/{host}/{address}/{process}", &guid[..24])
}

/// What the participant of an end on this topic calls itself, if the topic says that.
pub(crate) fn heard(topic: &str, end: Guid) -> Option<String> {
    let (guid, name) = topic.strip_prefix(BEGIN)?.split_once('/')?;
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
    fn a_name_is_heard_of_who_has_it_and_every_library_takes_it() {
        let guid = Guid([7; 16]);
        let config = ParticipantConfig {
            interfaces: vec!["10.1.0.5".parse().unwrap()],
            ..ParticipantConfig::default()
        };
        let topic = Topic {
            name: of(guid, "ward-3.example\n", &config, u32::MAX),
            type_name: Octets::TYPE_NAME.to_owned(),
        };
        assert!(topic.is_for_every_library(), "{topic:?}");
        let end = Guid([7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 5, 3]);
        let name = heard(&topic.name, end);
        assert_eq!(
            name.as_deref(),
            Some("ward_3_example at 10.1.0.5, process 4294967295")
        );
        assert_eq!(heard(&topic.name, Guid([8; 16])), None);
        let long = of(guid, &"ä".repeat(300), &config, 1);
        assert!(heard(&long, end).is_some_and(|name| name.len() < 128));
    }

    #[test]
    fn what_is_no_name_is_none() {
        let guid = Guid([7; 16]);
        let begin = format!("{BEGIN}{}", "07".repeat(12));
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
            assert_eq!(heard(&format!("{begin}{rest}"), guid), None, "{rest}");
        }
        assert!(heard(&format!("{begin}/h/10_1_0_5/1"), guid).is_some());
    }
}
