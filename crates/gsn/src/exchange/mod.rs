//! The conversations of GSN servers, without sockets.
//!
//! | GSN's wrapper | who connects | what it promises | here |
//! |---|---|---|---|
//! | `zeromq-async` | the reader, with a SUB, after a [`Question`] to the directory | nothing: a slow or absent reader loses elements | [`read_publication`], [`write_publication`] |
//! | `zeromq-sync` | the sender, with a REQ, after the reader's registration by a [`Question`] | each element is sent until it is answered with one byte | [`Reception`], [`Delivery`] |
//! | `zeromq-push` | the sender, with a REQ | the same; without a directory | [`Reception`], [`Delivery`] |

mod delivery;
mod directory;
mod publication;
mod reception;

pub use delivery::{Delivery, DeliveryArrival, DeliveryDispatch, DeliveryOccurrence};
pub use directory::{QUESTION_BYTES_MAX, Question, QuestionError};
pub use publication::{read_publication, topic, write_publication};
pub use reception::{
    ACCEPTED, Arrival, Dispatch, Many, Occurrence, Peer, Progress, REFUSED, Reception,
    Registration, Verdict,
};
pub(crate) use reception::{SAME_TIME_MAX, content};
