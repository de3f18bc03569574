//! The records of a service.

use std::net::IpAddr;

use super::message::{A, AAAA, ANY, CLASS_IN, FLUSH, Name, PTR, Query, SRV, TXT};

/// Time for which others may remember a record with the name of a host, and any other one (RFC 6762, section 10).
const HOST_TTL_S: u32 = 120;
const OTHER_TTL_S: u32 = 4_500;
/// The same in an answer to a resolver that knows nothing of multicast DNS (section 6.7).
const LEGACY_TTL_S: u32 = 10;
/// Questions that an answer to such a resolver repeats; reason: it asks one at a time.
const QUESTIONS_MAX: usize = 4;
/// The flags of an answer: it is one, and the responder is its authority.
const ANSWER: u16 = 0x8400;

/// A service, as DNS-SD describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name of the instance, for people; it has to be unique in the network.
    pub instance: String,
    /// The type, such as `_wot` of `_wot._tcp`.
    pub kind: String,
    /// The subtype, such as `_directory`.
    pub subtype: Option<String>,
    /// The name of the host, without `.local`; it has to be unique in the network.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// What the TXT record says, `key=value` each, at most 255 bytes.
    pub texts: Vec<String>,
}

/// A record: its name, type, time to live, whether it is the only one of its name, and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: Name,
    pub(super) record: u16,
    ttl_s: u32,
    is_unique: bool,
    data: Vec<u8>,
}

impl Service {
    fn of_kind(&self, before: &[&str]) -> Name {
        Name::of(&[before, &[&self.kind, "_tcp", "local"]].concat())
    }

    /// All its records at a host with these addresses, pointers first.
    pub(super) fn records(&self, addresses: &[IpAddr]) -> Vec<Record> {
        let (instance, host) = (
            self.of_kind(&[&self.instance]),
            Name::of(&[&self.host, "local"]),
        );
        let pointer = |name: Name, to: &Name| Record {
            name,
            record: PTR,
            ttl_s: OTHER_TTL_S,
            is_unique: false,
            data: to.bytes().to_vec(),
        };
        let mut records = vec![pointer(self.of_kind(&[]), &instance)];
        if let Some(subtype) = &self.subtype {
            records.push(pointer(self.of_kind(&[subtype, "_sub"]), &instance));
        }
        // Which types there are (RFC 6763, section 9).
        let types = Name::of(&["_services", "_dns-sd", "_udp", "local"]);
        records.push(pointer(types, &self.of_kind(&[])));
        let unique = |name: &Name, record, ttl_s, data| Record {
            name: name.clone(),
            record,
            ttl_s,
            is_unique: true,
            data,
        };
        // Priority and weight are zero.
        let target = [&[0; 4], &self.port.to_be_bytes()[..], host.bytes()].concat();
        records.push(unique(&instance, SRV, HOST_TTL_S, target));
        let mut texts = Vec::new();
        for text in &self.texts {
            // A longer one has no form (RFC 6763, section 6.1).
            if let Ok(length) = u8::try_from(text.len()) {
                texts.push(length);
                texts.extend_from_slice(text.as_bytes());
            }
        }
        if texts.is_empty() {
            texts.push(0);
        }
        records.push(unique(&instance, TXT, OTHER_TTL_S, texts));
        for address in addresses {
            let (record, data) = match address {
                IpAddr::V4(address) => (A, address.octets().to_vec()),
                IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
            };
            records.push(unique(&host, record, HOST_TTL_S, data));
        }
        records
    }
}

/// Which of the records answer a query, without those that the asker has (RFC 6762, section 7.1).
pub(super) fn asked(records: &[Record], query: &Query) -> Vec<usize> {
    let is_known = |record: &Record| {
        let mut known = query.known.iter();
        known.any(|(name, target, ttl_s)| {
            *name == record.name
                && target.bytes().eq_ignore_ascii_case(&record.data)
                && *ttl_s >= record.ttl_s / 2
        })
    };
    let answers = |record: &Record| {
        let mut questions = query.questions.iter();
        questions.any(|question| {
            question.name == record.name
                && (question.record == record.record || question.record == ANY)
        })
    };
    let all = records.iter().enumerate();
    let wanted = all.filter(|(_, record)| answers(record) && !is_known(record));
    wanted.map(|(index, _)| index).collect()
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Usual,
    /// Others forget the records.
    Goodbye,
    /// To a resolver that knows only unicast, whose query had this number and these questions.
    Legacy(u16),
}

/// An answer with some of the records, followed by the others that are about the instance and its host.
pub(super) fn answer(
    records: &[Record],
    asked: &[usize],
    query: Option<&Query>,
    form: Form,
) -> Vec<u8> {
    // A query may have many that are not answered: an answer is not to be much longer than its query.
    let mut questions = match (form, query) {
        (Form::Legacy(_), Some(query)) => query.questions.clone(),
        _ => Vec::new(),
    };
    questions.retain(|question| records.iter().any(|record| record.name == question.name));
    questions.truncate(QUESTIONS_MAX);
    let more: Vec<usize> = (0..records.len())
        .filter(|index| {
            records[*index].is_unique && !asked.contains(index) && form != Form::Goodbye
        })
        .collect();
    let id = match form {
        Form::Legacy(id) => id,
        _ => 0,
    };
    let count = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
    let mut message = Vec::new();
    for number in [
        id,
        ANSWER,
        count(questions.len()),
        count(asked.len()),
        0,
        count(more.len()),
    ] {
        message.extend_from_slice(&number.to_be_bytes());
    }
    for question in &questions {
        message.extend_from_slice(question.name.bytes());
        message.extend_from_slice(&question.record.to_be_bytes());
        message.extend_from_slice(&CLASS_IN.to_be_bytes());
    }
    for index in asked.iter().chain(&more) {
        records[*index].write(form, &mut message);
    }
    message
}

impl Record {
    fn write(&self, form: Form, message: &mut Vec<u8>) {
        let is_flushed = self.is_unique && form == Form::Usual;
        let class = CLASS_IN | if is_flushed { FLUSH } else { 0 };
        let ttl_s = match form {
            Form::Usual => self.ttl_s,
            Form::Goodbye => 0,
            Form::Legacy(_) => self.ttl_s.min(LEGACY_TTL_S),
        };
        message.extend_from_slice(self.name.bytes());
        message.extend_from_slice(&self.record.to_be_bytes());
        message.extend_from_slice(&class.to_be_bytes());
        message.extend_from_slice(&ttl_s.to_be_bytes());
        let length = u16::try_from(self.data.len()).unwrap_or_default();
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&self.data[..usize::from(length)]);
    }
}
