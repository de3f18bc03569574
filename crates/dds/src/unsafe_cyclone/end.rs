//! Writers and readers.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use super::bell::{acknowledged, ring};
use super::presence::{Presence, guid_of, words};
use super::raw::{
    FIELDS_ROOM, RawEnd, RawQos, RawSample, chappe_acknowledged, chappe_end_entity,
    chappe_end_free, chappe_end_new, chappe_flush, chappe_matched, chappe_matched_fields,
    chappe_matched_guid, chappe_operations, chappe_readers, chappe_retransmitted,
    chappe_sample_free, chappe_take, chappe_write,
};
use super::{error, refused, text};
use crate::fields::announcement;
use crate::{DdsError, Durability, Guid, Payload, Qos, Reliability, Sending, Topic};

/// Samples taken in one call.
const TAKEN: usize = 64;
/// Operations looked at; reason: a domain has about ten threads.
const OPERATIONS: usize = 64;
/// The largest number of matches of one end; reason: any host in the domain can announce an unlimited
/// number.
const MATCHED_MAX: usize = 4_096;
/// The return code for a timeout.
const TIMEOUT: i64 = -10;

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

/// The bytes of a taken sample, in memory of the library.
struct Lent {
    data: *mut c_void,
    bytes: *const u8,
    size: usize,
}

// SAFETY: 8 of the head.
unsafe impl Send for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: 8 of the head: the bytes exist, and do not change, until the sample is returned.
        unsafe { std::slice::from_raw_parts(self.bytes, self.size) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: 8 of the head: this sample is returned once.
        unsafe { chappe_sample_free(self.data) };
    }
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
        let fields = text(&announcement(&qos.fields))?;
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
            is_version_2: i32::from(qos.is_version_2),
            is_keyless: i32::from(qos.is_keyless),
            is_batched: i32::from(qos.sending == Sending::Batched),
            fields: fields.as_ptr(),
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
            let journal = presence.journal();
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

    /// Sends collected samples.
    pub(crate) fn flush(&self) -> Result<(), DdsError> {
        // SAFETY: 2 of the head.
        let result = unsafe { chappe_flush(self.raw.as_ptr()) };
        match result {
            0.. => Ok(()),
            code => Err(error("sending", code.into())),
        }
    }

    /// The last number that all matched reliable readers have acknowledged.
    pub(crate) fn acknowledged(&mut self) -> Result<u64, DdsError> {
        // SAFETY: 2 of the head.
        let through = unsafe { chappe_acknowledged(self.raw.as_ptr()) };
        u64::try_from(through).map_err(|_| error("reading acknowledgements", through))
    }

    /// The number of matching readers of other participants when [`End::acknowledged`] last looked.
    pub(crate) fn readers(&self) -> u32 {
        // SAFETY: 2 of the head.
        unsafe { chappe_readers(self.raw.as_ptr()) }
    }

    /// The bytes retransmitted until the last call of [`Self::acknowledged`].
    pub(crate) fn retransmitted(&self) -> u64 {
        // SAFETY: 2 of the head.
        unsafe { chappe_retransmitted(self.raw.as_ptr()) }
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
        for sample in &raw[..count] {
            // The library does not use it any more, so that it need not be copied.
            let bytes = Bytes::from_owner(Lent {
                data: sample.data,
                bytes: sample.bytes,
                size: sample.size,
            });
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

    /// The fields that a match announced, or the data of another program; empty if it has left.
    pub(crate) fn matched_fields(&self, handle: u64) -> String {
        let mut fields = [0; FIELDS_ROOM];
        let (into, room) = (fields.as_mut_ptr(), fields.len());
        // SAFETY: 2 and 5 of the head; it writes at most as many bytes as there is room for.
        unsafe { chappe_matched_fields(self.raw.as_ptr(), handle, into, room) };
        words(&fields)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: 2 of the head.
        unsafe { chappe_end_free(self.raw.as_ptr()) };
    }
}
