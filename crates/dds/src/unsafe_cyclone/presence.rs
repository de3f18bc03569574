//! A participant, in a domain of its own, and what it discovers.

use std::ffi::c_char;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};

use super::bell::{Bell, log, ring};
use super::raw::{
    FIELDS_ROOM, RawFound, chappe_domain_number, chappe_forget, chappe_forget_end, chappe_found,
    chappe_found_reader, chappe_guid, chappe_participant, chappe_participant_exists,
    chappe_received_bytes, chappe_type, dds_create_domain, dds_delete, dds_set_log_sink,
};
use super::{error, refused, text};
use crate::backend::AnnouncedType;
use crate::confine::{Marks, confined};
use crate::fields::structure;
use crate::journal::Journal;
use crate::qos::{Announced, AnnouncedDurability};
use crate::types::TypeHash;
use crate::{DdsError, Guid, Reliability, Topic};

/// The numbers of domains; reason: the library uses all of them but one as the name of a domain, and none is in use when
/// the count has gone round.
const DOMAINS: u32 = u32::MAX;
/// The largest description of one type; reason: a struct of a thousand members with long names.
const TYPE_BYTES_MAX: usize = 256 << 10;

/// A domain of the library, which ends when it is dropped. Each participant has one: so it has threads, sockets and
/// locks of its own, and can be replaced when one of them stalls. The library has a domain once in a process, by number;
/// on the network all of them are the domain that the configuration names.
#[derive(Debug)]
struct Domain {
    handle: i32,
    journal: Arc<Journal>,
}

impl Domain {
    fn new(
        interfaces: &[IpAddr],
        external: u16,
        configuration: impl Fn(&Marks) -> String,
    ) -> Result<Self, DdsError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static LOG: Once = Once::new();
        // SAFETY: 6 of the head.
        LOG.call_once(|| unsafe { dds_set_log_sink(log, std::ptr::null_mut()) });
        confined(interfaces, |marks| {
            let words = text(&configuration(marks))?;
            let number = NEXT.fetch_add(1, Ordering::Relaxed) % DOMAINS;
            let journal = Journal::of(number);
            // SAFETY: 5 of the head.
            let handle = unsafe { dds_create_domain(number, words.as_ptr()) };
            if handle < 0 {
                let code = handle.into();
                return Err(refused("taking part in the domain", code, &journal));
            }
            let domain = Self { handle, journal };
            // SAFETY: 1 of the head.
            let result = unsafe { chappe_domain_number(handle, external.into()) };
            match result {
                0.. => Ok(domain),
                code => Err(error("taking part in the domain", code.into())),
            }
        })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: 1 of the head.
        unsafe { dds_delete(self.handle) };
    }
}

/// A participant of the library, held by its ends.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(super) participant: i32,
    /// The readers of discovery: participants, writers and readers.
    found: [i32; 3],
    guid: Guid,
    pub(super) bell: Arc<Bell>,
    // Dropped after the participant.
    domain: Domain,
}

/// A discovered participant or end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) guid: Guid,
    pub(crate) is_alive: bool,
    /// A participant that announces DDS Security.
    pub(crate) is_secure: bool,
    pub(crate) topic: Topic,
    pub(crate) announced: Announced,
    pub(crate) partitions: Vec<String>,
    pub(crate) type_hash: Option<TypeHash>,
    /// The fields that a writer or reader announced, or the data of another program.
    pub(crate) fields: String,
    pub(crate) name: Option<String>,
}

/// The kinds of discovery events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Participant,
    Writer,
    Reader,
}

pub(super) fn guid_of(entity: i32) -> Result<Guid, DdsError> {
    let mut guid = [0; 16];
    // SAFETY: 1 of the head; it writes 16 bytes.
    let result = unsafe { chappe_guid(entity, guid.as_mut_ptr()) };
    match result {
        0.. => Ok(Guid(guid)),
        code => Err(error("reading a GUID", code.into())),
    }
}

impl Presence {
    /// Takes part in the domain with that number on the network.
    pub(crate) fn open(
        interfaces: &[IpAddr],
        external: u16,
        configuration: impl Fn(&Marks) -> String,
    ) -> Result<Arc<Self>, DdsError> {
        let domain = Domain::new(interfaces, external, configuration)?;
        let bell = Arc::new(Bell::default());
        let mut found = [0; 3];
        let at = Arc::as_ptr(&bell).cast_mut().cast();
        // SAFETY: 3 of the head; it writes three numbers.
        let participant =
            unsafe { chappe_participant(domain.handle, ring, at, found.as_mut_ptr()) };
        if participant < 0 {
            let (doing, code) = ("taking part in the domain", participant.into());
            return Err(refused(doing, code, &domain.journal));
        }
        // From here on dropping it ends the participant.
        let mut presence = Self {
            participant,
            found,
            guid: Guid([0; 16]),
            bell,
            domain,
        };
        presence.guid = guid_of(participant)?;
        #[cfg(feature = "planted")]
        let _ = presence.bell.participant.set(presence.guid);
        Ok(Arc::new(presence))
    }

    pub(crate) fn guid(&self) -> Guid {
        self.guid
    }

    /// What the library reports.
    pub(crate) fn journal(&self) -> &Journal {
        &self.domain.journal
    }

    /// Whether the library still has this participant.
    pub(crate) fn exists(&self) -> bool {
        // SAFETY: 1 of the head.
        unsafe { chappe_participant_exists(self.participant) != 0 }
    }

    /// The bytes of buffers that hold received packets: of samples that are not complete, or not the next ones.
    pub(crate) fn received_bytes(&self) -> u64 {
        // SAFETY: 1 of the head.
        unsafe { chappe_received_bytes(self.participant) }
    }

    /// Makes the library forget a remote participant. Returns whether there was one.
    pub(crate) fn forget(&self, guid: Guid) -> bool {
        // SAFETY: 1 of the head; it reads 16 bytes.
        unsafe { chappe_forget(self.found[0], guid.0.as_ptr()) != 0 }
    }

    /// Makes the library forget a remote writer or reader. Returns whether there was one.
    pub(crate) fn forget_end(&self, guid: Guid, writes: bool) -> bool {
        // SAFETY: 1 of the head; it reads 16 bytes.
        unsafe { chappe_forget_end(self.found[0], guid.0.as_ptr(), writes.into()) != 0 }
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The next discovery event.
    pub(crate) fn found(&self, kind: Kind) -> Result<Option<Found>, DdsError> {
        match kind {
            Kind::Participant => found(self.found[0], 0),
            Kind::Writer => found(self.found[1], 1),
            Kind::Reader => found(self.found[2], 1),
        }
    }

    /// The description of the type with this hash, from the library's or a remote participant's memory; `None` while it
    /// is being requested.
    pub(crate) fn type_object(&self, hash: &TypeHash) -> Result<Option<Vec<u8>>, DdsError> {
        let mut bytes = vec![0; TYPE_BYTES_MAX];
        let (into, room) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: 1 of the head; it reads 14 bytes and writes at most as many as there is room for.
        let size = unsafe { chappe_type(self.participant, hash.as_ptr(), into, room) };
        match usize::try_from(size) {
            Ok(0) => Ok(None),
            Ok(size) => {
                bytes.truncate(size);
                Ok(Some(bytes))
            }
            Err(_) => Err(error("reading a type", size)),
        }
    }
}

/// Announced writers, read independently of the participant's own discovery.
#[derive(Debug)]
pub(crate) struct WriterList {
    reader: i32,
    _presence: Arc<Presence>,
}

impl WriterList {
    pub(crate) fn new(presence: &Arc<Presence>) -> Result<Self, DdsError> {
        let bell = Arc::as_ptr(&presence.bell).cast_mut().cast();
        // SAFETY: 3 of the head.
        let reader = unsafe { chappe_found_reader(presence.participant, ring, bell) };
        match reader {
            0.. => Ok(Self {
                reader,
                _presence: presence.clone(),
            }),
            code => Err(error("reading discovery", code.into())),
        }
    }

    /// The next writer that was found or has left.
    pub(crate) fn next(&self) -> Result<Option<Found>, DdsError> {
        found(self.reader, 1)
    }
}

impl Drop for WriterList {
    fn drop(&mut self) {
        // SAFETY: 1 of the head.
        unsafe { dds_delete(self.reader) };
    }
}

fn found(reader: i32, ends: i32) -> Result<Option<Found>, DdsError> {
    let mut raw = RawFound {
        guid: [0; 16],
        is_alive: 0,
        is_secure: 0,
        reliable: 0,
        durability: 0,
        deadline_ns: -1,
        has_type: 0,
        type_hash: [0; 14],
        partitions: [0; 512],
        topic: [0; 256],
        type_name: [0; 256],
        name: [0; 129],
        fields: [0; FIELDS_ROOM],
    };
    // SAFETY: 1 of the head; it fills the struct, whose layout is that of `struct chappe_found`.
    match unsafe { chappe_found(reader, ends, &raw mut raw) } {
        0 => Ok(None),
        code @ ..0 => Err(error("reading discovery", code.into())),
        _ => Ok(Some(Found::of(&raw))),
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // SAFETY: 1 and 3 of the head: afterwards the bell is not rung any more.
        unsafe { dds_delete(self.participant) };
    }
}

/// A text in an array, up to its zero.
pub(super) fn words(of: &[c_char]) -> String {
    let bytes = of.iter().take_while(|byte| **byte != 0);
    let bytes: Vec<u8> = bytes.map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Found {
    /// What a writer or reader announced about its type.
    pub(crate) fn announced_type(&self) -> AnnouncedType {
        match self.type_hash {
            Some(hash) => AnnouncedType::Hash(hash),
            None => match structure(&self.topic.type_name, &self.fields) {
                Some(of) => AnnouncedType::Known(Arc::new(of)),
                None => AnnouncedType::Name,
            },
        }
    }

    fn of(raw: &RawFound) -> Self {
        Self {
            guid: Guid(raw.guid),
            is_alive: raw.is_alive != 0,
            is_secure: raw.is_secure != 0,
            topic: Topic {
                name: words(&raw.topic),
                type_name: words(&raw.type_name),
            },
            announced: Announced {
                reliability: match raw.reliable {
                    0 => Reliability::BestEffort,
                    _ => Reliability::Reliable,
                },
                durability: match raw.durability {
                    0 => AnnouncedDurability::Volatile,
                    1 => AnnouncedDurability::TransientLocal,
                    2 => AnnouncedDurability::Transient,
                    _ => AnnouncedDurability::Persistent,
                },
                deadline_ms: u64::try_from(raw.deadline_ns).ok().map(|ns| ns / 1_000_000),
            },
            partitions: words(&raw.partitions).lines().map(str::to_owned).collect(),
            type_hash: (raw.has_type != 0).then_some(raw.type_hash),
            fields: words(&raw.fields),
            name: Some(words(&raw.name)).filter(|name| !name.is_empty()),
        }
    }
}
