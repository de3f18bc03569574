//! Announces one service by multicast DNS, as DNS-SD describes it.
//!
//! [`Responder`] is a machine without input or output; [`run`] drives it on sockets. It answers only questions about its
//! own records, announces them when it starts, and takes them back when it ends. It asks nothing and remembers
//! nothing that others send, so strangers cannot make it grow.
//!
//! Names are not probed before they are used (RFC 6762, section 8.1): give the instance and the host names that contain
//! something unique, such as a part of a key. Questions in unicast are not received: the port belongs to the
//! responder of the system, and this one only joins its group.
//!
//! Sources: RFC 6762 (multicast DNS), RFC 6763 (DNS-SD), RFC 1035 (messages).

mod message;
mod records;
mod responder;
mod sockets;

pub use message::{MessageError, Name, Query, Question, read_query};
pub use records::Service;
pub use responder::{Asked, Reply, Responder, ResponderCommand, ResponderEvent};
pub use sockets::run;

/// The port of the group, section 3.
pub const PORT: u16 = 5353;
