//! The integration tests of `chappe-log` in one program: linking one takes seconds.

mod backup;
mod common;
mod count;
mod cursor;
mod definitions;
mod driven;
mod eager;
mod faults;
mod fill;
mod followers;
mod full_disk;
mod hostile_bytes;
mod interleaved;
mod model;
mod power_loss;
mod recent;
mod remove;
mod restored_copy;
mod roundtrip;
mod shares;
mod snapshots;
mod times;
mod trim;
mod versions;
mod waiting;
