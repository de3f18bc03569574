//! Cyclone DDS as safe types.
//!
//! `shim.c` in this folder has the functions below, over `libddsc`, which `build.rs` builds from source. Each call is sound
//! because:
//! 1. A handle is a number that the library looks up; for an entity that has ended it returns an error. So no use
//!    of an entity after its end can access freed memory, and only pointers matter.
//! 2. A `struct chappe_end` is created and freed by [`End`] alone, which is neither cloned nor copied, and every call
//!    takes it by reference. An [`End`] holds its [`Presence`], so the topic whose type it points to, and the domain
//!    that the type points to, live as long as it does.
//! 3. [`ring`] and [`acknowledged`] are called by threads of the library with the address of the [`Bell`] that
//!    [`Presence`] keeps alive by its `Arc`. [`Presence`] deletes the participant before it drops the bell. That deletes
//!    its readers, which waits for running listeners and starts none afterwards. A writer's hook loses the bell before
//!    its [`End`], which holds the [`Presence`], is gone.
//! 4. Bytes are borrowed for the time of a call and copied there, in both directions; taken samples are returned,
//!    once each, in the call that took them.
//! 5. Text is passed as C strings that outlive the call, and returned in arrays that `shim.c` terminates with a
//!    zero.
//! 6. The library calls [`log`] with a struct and texts that live during the call, of which the file's name is a
//!    constant of the library; and `shim.c` calls [`chappe_aborted`] with a number.
//! 7. The library may be called from any thread, and from several. [`End`] is `Send`, since nothing in it is bound to
//!    a thread, and not `Sync`.
#![allow(
    unsafe_code,
    reason = "a C library; the module comment lists the requirements of each call"
)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::task::Wake;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::confine::{Marks, confined};
use crate::journal::{self, Journal};
use crate::qos::{Announced, AnnouncedDurability};
use crate::types::TypeHash;
use crate::{DdsError, Durability, Guid, Payload, Qos, Reliability, Topic};

/// Samples taken in one call.
const TAKEN: usize = 64;
/// Operations looked at; reason: a domain has about ten threads.
const OPERATIONS: usize = 64;
/// The largest number of matches of one end; reason: any host in the domain can announce an unlimited
/// number.
pub(crate) const MATCHED_MAX: usize = 4_096;
/// The numbers of domains; reason: the library uses all of them but one as the name of a domain, and none is in use when
/// the count has gone round.
const DOMAINS: u32 = u32::MAX;
/// The largest description of one type; reason: a struct of a thousand members with long names.
const TYPE_BYTES_MAX: usize = 256 << 10;
/// The return code for a timeout.
const TIMEOUT: i64 = -10;

#[repr(C)]
struct RawQos {
    reliable: i32,
    transient_local: i32,
    keep_last: i32,
    samples: i32,
    deadline_ns: i64,
    partitions: *const *const c_char,
    partition_count: u32,
    any_encoding: i32,
    is_keyless: i32,
}

/// Opaque: `struct chappe_end`.
#[repr(C)]
struct RawEnd {
    _nothing: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawSample {
    data: *mut c_void,
    bytes: *const u8,
    size: usize,
    number: i64,
    writer: u64,
    source_time_ns: i64,
    encoding: i32,
}

#[repr(C)]
struct RawFound {
    guid: [u8; 16],
    is_alive: i32,
    is_secure: i32,
    reliable: i32,
    durability: i32,
    deadline_ns: i64,
    has_type: i32,
    type_hash: [u8; 14],
    partitions: [c_char; 512],
    topic: [c_char; 256],
    type_name: [c_char; 256],
    name: [c_char; 129],
}

/// The library's `dds_log_data_t`.
#[repr(C)]
struct RawLog {
    priority: u32,
    domain: u32,
    file: *const c_char,
    line: u32,
    function: *const c_char,
    message: *const c_char,
    size: usize,
    header_size: usize,
}

type Ring = extern "C" fn(i32, *mut c_void);

unsafe extern "C" {
    fn dds_create_domain(domain: u32, configuration: *const c_char) -> i32;
    fn dds_delete(entity: i32) -> i32;
    fn dds_set_log_sink(sink: extern "C" fn(*mut c_void, *const RawLog), of: *mut c_void);
    fn dds_strretcode(code: i32) -> *const c_char;
    fn chappe_participant(domain: i32, ring: Ring, bell: *mut c_void, found: *mut i32) -> i32;
    fn chappe_domain_number(domain: i32, number: u32) -> i32;
    fn chappe_participant_exists(participant: i32) -> i32;
    fn chappe_forget(reader: i32, guid: *const u8) -> i32;
    #[cfg(feature = "planted")]
    fn ddsrt_malloc(bytes: usize) -> *mut c_void;
    fn chappe_end_new(
        participant: i32,
        writes: i32,
        name: *const c_char,
        type_name: *const c_char,
        of: *const RawQos,
        ring: Ring,
        bell: *mut c_void,
        out: *mut *mut RawEnd,
    ) -> i32;
    fn chappe_end_free(end: *mut RawEnd);
    fn chappe_end_entity(end: *const RawEnd) -> i32;
    fn chappe_guid(entity: i32, guid: *mut u8) -> i32;
    fn chappe_write(end: *mut RawEnd, encoding: i32, bytes: *const u8, size: usize) -> i64;
    fn chappe_type(participant: i32, hash: *const u8, into: *mut u8, room: usize) -> i64;
    fn chappe_found_reader(participant: i32, ring: Ring, bell: *mut c_void) -> i32;
    fn chappe_acknowledged(end: *const RawEnd) -> i64;
    fn chappe_operations(end: *const RawEnd, into: *mut u64, most: u32) -> u32;
    fn chappe_take(end: *const RawEnd, into: *mut RawSample, most: u32) -> i32;
    fn chappe_sample_free(sample: *mut RawSample);
    fn chappe_matched(end: *const RawEnd, handles: *mut u64, most: u32) -> i32;
    fn chappe_matched_guid(end: *const RawEnd, handle: u64, guid: *mut u8) -> i32;
    fn chappe_found(reader: i32, ends: i32, found: *mut RawFound) -> i32;
}

/// Wakes a waiting thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    #[cfg(feature = "planted")]
    participant: std::sync::OnceLock<Guid>,
}

impl Bell {
    /// Ends the present or the next wait.
    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until it is rung, also since the last wait, or the timeout passes. Returns whether it was rung.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *rung || left.is_zero() {
                return std::mem::take(&mut *rung);
            }
            let waited = self.changed.wait_timeout(rung, left);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// Called by the library with a warning or an error.
extern "C" fn log(_: *mut c_void, data: *const RawLog) {
    // SAFETY: 6 of the module documentation.
    let (domain, line, file, message) = unsafe {
        let data = &*data;
        let (file, message) = (CStr::from_ptr(data.file), CStr::from_ptr(data.message));
        (data.domain, data.line, file, message)
    };
    let place = (line, file.to_str().unwrap_or_default());
    journal::warn(domain, place, &message.to_string_lossy());
}

/// Called by `shim.c` when the library has ended a thread.
#[unsafe(no_mangle)]
extern "C" fn chappe_aborted(domain: u32) {
    journal::abort(domain);
}

/// Lets the library end a thread: it does so when it has no memory.
#[cfg(feature = "planted")]
pub(crate) fn abort_in_library() {
    // SAFETY: it returns memory or ends the thread; so much memory there is not.
    unsafe { ddsrt_malloc(usize::MAX / 2) };
}

/// Called by the library when data or an event is available.
extern "C" fn ring(_: i32, bell: *mut c_void) {
    // SAFETY: 3 of the module documentation: it points to the bell of a live presence.
    let bell = unsafe { &*bell.cast::<Bell>() };
    bell.ring();
}

/// Called by the library when the last number that all readers of a writer have acknowledged has grown.
extern "C" fn acknowledged(writer: i32, bell: *mut c_void) {
    #[cfg(feature = "planted")]
    {
        // SAFETY: 3 of the module documentation: it points to the bell of a live presence.
        let bell = unsafe { &*bell.cast::<Bell>() };
        if let Some(participant) = bell.participant.get() {
            crate::planted::fail_if_planted(*participant, crate::planted::Fault::Stall);
            crate::planted::fail_if_planted(*participant, crate::planted::Fault::Abort);
        }
    }
    ring(writer, bell);
}

/// The library's text for an error.
fn error(doing: &'static str, code: i64) -> DdsError {
    let code = i32::try_from(code).unwrap_or(i32::MIN);
    // SAFETY: it returns a static text of its own for any number.
    let words = unsafe { CStr::from_ptr(dds_strretcode(code)) };
    let why = words.to_string_lossy().into_owned();
    DdsError::Library { doing, why }
}

/// The library's text for an error, with its last warning, which has the reason.
fn refused(doing: &'static str, code: i64, journal: &Journal) -> DdsError {
    let mut error = error(doing, code);
    if let (DdsError::Library { why, .. }, Some(reason)) = (&mut error, journal.newest().last()) {
        *why = format!("{why}: {reason}");
    }
    error
}

fn text(of: &str) -> Result<CString, DdsError> {
    CString::new(of).map_err(|_| DdsError::Library {
        doing: "naming",
        why: "it contains a zero byte".into(),
    })
}

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
    participant: i32,
    /// The readers of discovery: participants, writers and readers.
    found: [i32; 3],
    guid: Guid,
    bell: Arc<Bell>,
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
    pub(crate) name: Option<String>,
}

/// The kinds of discovery events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Participant,
    Writer,
    Reader,
}

fn guid_of(entity: i32) -> Result<Guid, DdsError> {
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

    /// Makes the library forget a remote participant. Returns whether there was one.
    pub(crate) fn forget(&self, guid: Guid) -> bool {
        // SAFETY: 1 of the head; it reads 16 bytes.
        unsafe { chappe_forget(self.found[0], guid.0.as_ptr()) != 0 }
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

impl Found {
    fn of(raw: &RawFound) -> Self {
        let words = |of: &[c_char]| {
            let bytes = of.iter().take_while(|byte| **byte != 0);
            let bytes: Vec<u8> = bytes.map(|byte| byte.to_ne_bytes()[0]).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
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
            name: Some(words(&raw.name)).filter(|name| !name.is_empty()),
        }
    }
}

/// A writer or a reader of the library.
#[derive(Debug)]
pub(crate) struct End {
    raw: NonNull<RawEnd>,
    guid: Guid,
    // Dropped after the end.
    _presence: Arc<Presence>,
}

// SAFETY: 7 of the head.
unsafe impl Send for End {}

/// A taken sample.
pub(crate) struct Taken {
    /// The library's handle of its writer.
    pub(crate) writer: u64,
    pub(crate) number: i64,
    pub(crate) source_time_ns: i64,
    pub(crate) payload: Payload,
}

/// The reason why a sample was not written.
pub(crate) enum Refused {
    Full,
    Dds(DdsError),
}

impl End {
    /// Creates a writer or a reader that keeps this many samples.
    pub(crate) fn new(
        presence: &Arc<Presence>,
        writes: bool,
        topic: &Topic,
        qos: &Qos,
    ) -> Result<Self, DdsError> {
        let (name, type_name) = (text(&topic.name)?, text(&topic.type_name)?);
        let samples = if writes { qos.window() } else { qos.held() };
        let partitions: Vec<CString> = qos
            .partitions
            .iter()
            .map(|name| text(name))
            .collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = partitions.iter().map(|name| name.as_ptr()).collect();
        let of = RawQos {
            reliable: i32::from(qos.reliability == Reliability::Reliable),
            transient_local: i32::from(qos.durability == Durability::TransientLocal),
            keep_last: i32::try_from(qos.keep_last).unwrap_or(i32::MAX),
            samples: i32::try_from(samples).unwrap_or(i32::MAX),
            deadline_ns: qos.deadline().map_or(0, |deadline| {
                i64::try_from(deadline.as_nanos()).unwrap_or(i64::MAX)
            }),
            partitions: pointers.as_ptr(),
            partition_count: u32::try_from(pointers.len()).unwrap_or(0),
            any_encoding: i32::from(qos.any_encoding),
            is_keyless: i32::from(qos.is_keyless),
        };
        let bell = Arc::as_ptr(&presence.bell).cast_mut().cast();
        let mut made = std::ptr::null_mut();
        // SAFETY: 1, 3 and 5 of the head; it writes the pointer, and reads the struct, whose layout is
        // that of `struct chappe_qos`, and the texts that it points to, during the call.
        let result = unsafe {
            chappe_end_new(
                presence.participant,
                writes.into(),
                name.as_ptr(),
                type_name.as_ptr(),
                &raw const of,
                if writes { acknowledged } else { ring },
                bell,
                &raw mut made,
            )
        };
        let raw = NonNull::new(made).filter(|_| result >= 0).ok_or_else(|| {
            let journal = &presence.domain.journal;
            refused("making a writer or reader", result.into(), journal)
        })?;
        let mut end = Self {
            raw,
            guid: Guid([0; 16]),
            _presence: presence.clone(),
        };
        // SAFETY: 2 of the head.
        end.guid = guid_of(unsafe { chappe_end_entity(raw.as_ptr()) })?;
        Ok(end)
    }

    pub(crate) fn guid(&self) -> Guid {
        self.guid
    }

    /// Writes a sample. Returns its number.
    pub(crate) fn write(&mut self, payload: &Payload) -> Result<u64, Refused> {
        let (bytes, encoding) = (&payload.bytes, payload.encapsulation().into());
        // SAFETY: 2 and 4 of the head.
        let number =
            unsafe { chappe_write(self.raw.as_ptr(), encoding, bytes.as_ptr(), bytes.len()) };
        u64::try_from(number).map_err(|_| match number {
            TIMEOUT => Refused::Full,
            code => Refused::Dds(error("writing", code)),
        })
    }

    /// The last number that all matched reliable readers have acknowledged.
    pub(crate) fn acknowledged(&self) -> Result<u64, DdsError> {
        // SAFETY: 2 of the head.
        let through = unsafe { chappe_acknowledged(self.raw.as_ptr()) };
        u64::try_from(through).map_err(|_| error("reading acknowledgements", through))
    }

    /// Identifies the operations that the library's threads run in the domain at present.
    pub(crate) fn operations(&self) -> Vec<u64> {
        let mut found = [0; OPERATIONS];
        // SAFETY: 2 of the head; it writes at most as many as there is room for.
        let count = unsafe { chappe_operations(self.raw.as_ptr(), found.as_mut_ptr(), 64) };
        found[..count as usize].to_vec()
    }

    /// Takes some received samples, in the order of each writer.
    pub(crate) fn take(&self, each: &mut dyn FnMut(Taken)) -> Result<usize, DdsError> {
        let nothing = RawSample {
            data: std::ptr::null_mut(),
            bytes: std::ptr::null(),
            size: 0,
            number: 0,
            writer: 0,
            source_time_ns: 0,
            encoding: 0,
        };
        let mut raw = [nothing; TAKEN];
        // SAFETY: 2 of the head; it writes at most as many as there is room for.
        let count = unsafe { chappe_take(self.raw.as_ptr(), raw.as_mut_ptr(), 64) };
        let count = usize::try_from(count).map_err(|_| error("reading", count.into()))?;
        for sample in &mut raw[..count] {
            // SAFETY: 4 of the head: the bytes exist until the sample is returned, below.
            let bytes = unsafe { std::slice::from_raw_parts(sample.bytes, sample.size) };
            let bytes = Bytes::copy_from_slice(bytes);
            // SAFETY: 4 of the head: this sample is returned once.
            unsafe { chappe_sample_free(sample) };
            each(Taken {
                writer: sample.writer,
                number: sample.number,
                source_time_ns: sample.source_time_ns,
                payload: Payload::of(sample.encoding, bytes),
            });
        }
        Ok(count)
    }

    /// The library's handles of the matching ends.
    pub(crate) fn matched(&self) -> Result<Vec<u64>, DdsError> {
        let mut handles = vec![0; 64];
        loop {
            let room = u32::try_from(handles.len()).unwrap_or(u32::MAX);
            // SAFETY: 2 of the head; it writes at most as many as there is room for.
            let count = unsafe { chappe_matched(self.raw.as_ptr(), handles.as_mut_ptr(), room) };
            let count = usize::try_from(count).map_err(|_| error("matching", count.into()))?;
            if count <= handles.len() || handles.len() >= MATCHED_MAX {
                handles.truncate(count);
                return Ok(handles);
            }
            handles.resize(count.min(MATCHED_MAX), 0);
        }
    }

    /// The GUID of a match; `None` if it has left.
    pub(crate) fn matched_guid(&self, handle: u64) -> Option<Guid> {
        let mut guid = [0; 16];
        // SAFETY: 2 of the head; it writes 16 bytes.
        let known = unsafe { chappe_matched_guid(self.raw.as_ptr(), handle, guid.as_mut_ptr()) };
        (known != 0).then_some(Guid(guid))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: 2 of the head.
        unsafe { chappe_end_free(self.raw.as_ptr()) };
    }
}
