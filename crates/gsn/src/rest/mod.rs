//! GSN's REST interface, as far as its wrapper `remote-api` uses it: the documents, and the order of the calls of a
//! reader, without sockets.
//!
//! | call | answer |
//! |---|---|
//! | POST `/oauth2/token`, a form with `grant_type=client_credentials`, `client_id`, `client_secret` | JSON with `access_token` |
//! | GET `/api/sensors/NAME` | a GeoJSON feature with the `fields` of the sensor |
//! | GET `/api/sensors/NAME/data?from=TIME&to=TIME` | the same with `values`, one array for each element |
//!
//! The first field is `timestamp`, in milliseconds since 1970. The documents were learnt from the calls and the storage
//! of a running GSN 2.0.1, and from the published description of the interface. [`Pull`] finds the range of time to ask
//! for next, and recognizes repeated elements.

mod pull;
mod read;
mod write;

pub use pull::{Asked, Pull, PullError, Taken};
pub use read::{Answer, RestError, Row, read_answer, read_token};
pub use write::{Columns, field_documents, milliseconds, path_segment, time_text};

/// The name of the field with the time of an element.
pub const TIMESTAMP: &str = "timestamp";
