//! Completeness: how many elements of a stream are stored, lost, refused and removed in a span of source
//! time, and how long its source was away.
//!
//! Three parties know a part of it. The log knows what is stored, damaged and removed, and is asked at the
//! time of the answer. The record of losses ([`Ledger`]) knows what never reached the log. The record of
//! sources knows when the source was away, so that silence differs from loss. Where the time of lost
//! elements is known only as a range that reaches beyond the span, the answer gives the certain number
//! and the largest possible one, and says that it is not exact.

mod absence;
mod answer;
mod distance;
mod journal;
mod ledger;
mod reader;
mod run_state;

pub(crate) use answer::{Completeness, Count, completeness};
pub(crate) use distance::readers;
pub(crate) use ledger::{Ledger, Loss, LossKind};
pub(crate) use reader::Reader;
pub(crate) use run_state::{RunState, Slot};
