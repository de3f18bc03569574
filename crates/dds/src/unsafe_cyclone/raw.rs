//! What `shim.c` and the library declare, as Rust sees it: structs with the same layout, and functions.

use std::ffi::{c_char, c_void};

use crate::fields::BYTES_MAX;

/// The announced fields, and a zero.
pub(super) const FIELDS_ROOM: usize = BYTES_MAX + 1;

#[repr(C)]
pub(super) struct RawQos {
    pub(super) reliable: i32,
    pub(super) transient_local: i32,
    pub(super) keep_last: i32,
    pub(super) samples: i32,
    pub(super) deadline_ns: i64,
    pub(super) partitions: *const *const c_char,
    pub(super) partition_count: u32,
    pub(super) any_encoding: i32,
    pub(super) is_version_2: i32,
    pub(super) is_keyless: i32,
    pub(super) is_batched: i32,
    pub(super) fields: *const c_char,
}

/// Opaque: `struct chappe_end`.
#[repr(C)]
pub(super) struct RawEnd {
    _nothing: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawSample {
    pub(super) data: *mut c_void,
    pub(super) bytes: *const u8,
    pub(super) size: usize,
    pub(super) number: i64,
    pub(super) writer: u64,
    pub(super) source_time_ns: i64,
    pub(super) encoding: i32,
}

#[repr(C)]
pub(super) struct RawFound {
    pub(super) guid: [u8; 16],
    pub(super) is_alive: i32,
    pub(super) is_secure: i32,
    pub(super) reliable: i32,
    pub(super) durability: i32,
    pub(super) deadline_ns: i64,
    pub(super) has_type: i32,
    pub(super) type_hash: [u8; 14],
    pub(super) partitions: [c_char; 512],
    pub(super) topic: [c_char; 256],
    pub(super) type_name: [c_char; 256],
    pub(super) name: [c_char; 129],
    pub(super) fields: [c_char; FIELDS_ROOM],
}

/// The library's `dds_log_data_t`.
#[repr(C)]
pub(super) struct RawLog {
    pub(super) priority: u32,
    pub(super) domain: u32,
    pub(super) file: *const c_char,
    pub(super) line: u32,
    pub(super) function: *const c_char,
    pub(super) message: *const c_char,
    pub(super) size: usize,
    pub(super) header_size: usize,
}

pub(super) type Ring = extern "C" fn(i32, *mut c_void);

unsafe extern "C" {
    pub(super) fn dds_create_domain(domain: u32, configuration: *const c_char) -> i32;
    pub(super) fn dds_delete(entity: i32) -> i32;
    pub(super) fn dds_set_log_sink(
        sink: extern "C" fn(*mut c_void, *const RawLog),
        of: *mut c_void,
    );
    pub(super) fn dds_strretcode(code: i32) -> *const c_char;
    pub(super) fn chappe_participant(
        domain: i32,
        ring: Ring,
        bell: *mut c_void,
        found: *mut i32,
    ) -> i32;
    pub(super) fn chappe_domain_number(domain: i32, number: u32) -> i32;
    pub(super) fn chappe_received_bytes(participant: i32) -> u64;
    pub(super) fn chappe_participant_exists(participant: i32) -> i32;
    pub(super) fn chappe_forget(reader: i32, guid: *const u8) -> i32;
    pub(super) fn chappe_forget_end(reader: i32, guid: *const u8, writes: i32) -> i32;
    #[cfg(feature = "planted")]
    pub(super) fn ddsrt_malloc(bytes: usize) -> *mut c_void;
    pub(super) fn chappe_end_new(
        participant: i32,
        writes: i32,
        name: *const c_char,
        type_name: *const c_char,
        of: *const RawQos,
        ring: Ring,
        bell: *mut c_void,
        out: *mut *mut RawEnd,
    ) -> i32;
    pub(super) fn chappe_end_free(end: *mut RawEnd);
    pub(super) fn chappe_end_entity(end: *const RawEnd) -> i32;
    pub(super) fn chappe_guid(entity: i32, guid: *mut u8) -> i32;
    pub(super) fn chappe_write(
        end: *mut RawEnd,
        encoding: i32,
        bytes: *const u8,
        size: usize,
    ) -> i64;
    pub(super) fn chappe_flush(end: *const RawEnd) -> i32;
    pub(super) fn chappe_type(participant: i32, hash: *const u8, into: *mut u8, room: usize)
    -> i64;
    pub(super) fn chappe_found_reader(participant: i32, ring: Ring, bell: *mut c_void) -> i32;
    pub(super) fn chappe_acknowledged(end: *mut RawEnd) -> i64;
    pub(super) fn chappe_readers(end: *const RawEnd) -> u32;
    pub(super) fn chappe_retransmitted(end: *const RawEnd) -> u64;
    pub(super) fn chappe_operations(end: *const RawEnd, into: *mut u64, most: u32) -> u32;
    pub(super) fn chappe_take(end: *const RawEnd, into: *mut RawSample, most: u32) -> i32;
    pub(super) fn chappe_sample_free(data: *mut c_void);
    pub(super) fn chappe_matched(end: *const RawEnd, handles: *mut u64, most: u32) -> i32;
    pub(super) fn chappe_matched_guid(end: *const RawEnd, handle: u64, guid: *mut u8) -> i32;
    pub(super) fn chappe_matched_fields(
        end: *const RawEnd,
        handle: u64,
        into: *mut c_char,
        room: usize,
    );
    pub(super) fn chappe_found(reader: i32, ends: i32, found: *mut RawFound) -> i32;
}
