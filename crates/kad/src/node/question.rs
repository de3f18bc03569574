//! One request as its sender sees it: the question, its purpose and the answer.

use crate::contact::{ADDRESS_V4_BYTES, CONTACT_BYTES_MAX};
use crate::cryptography::TAG_BYTES;
use crate::message::{AROUND_BYTES, PACKET_BYTES_MAX, Verdict};
use crate::peers::padding;
use crate::{Body, Contact, HEAD_BYTES, Key, Record};

/// The identifier of a task.
pub(super) type TaskId = u32;

/// The question of a request, kept so that the request can be repeated with a token.
#[derive(Clone, Debug)]
pub(super) enum Question {
    Greet,
    Ping,
    Find {
        target: Key,
        count: u8,
    },
    Store {
        level: u8,
        record: Record,
    },
    Ask {
        place: Key,
        after: u128,
        digest: u64,
    },
}

impl Question {
    /// The maximum length of the answer in bytes.
    pub(super) fn answer_bytes(&self, to: &Contact) -> usize {
        let body = match self {
            Self::Greet | Self::Ping | Self::Store { .. } => 1,
            Self::Find { count, .. } => {
                let one = match to.address.is_ipv4() {
                    true => 32 + ADDRESS_V4_BYTES,
                    false => CONTACT_BYTES_MAX,
                };
                usize::from(*count) * one
            }
            Self::Ask { .. } => PACKET_BYTES_MAX,
        };
        (AROUND_BYTES + body).min(PACKET_BYTES_MAX)
    }

    pub(super) fn body(self, answer_bytes: usize, is_confirmed: bool) -> Body {
        let own = |body: usize| HEAD_BYTES + body + TAG_BYTES;
        let pad = |body: usize| match is_confirmed {
            true => 0,
            false => padding(own(body), answer_bytes),
        };
        match self {
            Self::Greet | Self::Ping => Body::Ping,
            Self::Find { target, count } => Body::Find {
                target,
                count,
                padding: pad(17),
            },
            Self::Store { level, record } => Body::Store { level, record },
            Self::Ask {
                place,
                after,
                digest,
            } => Body::Ask {
                place,
                after,
                digest,
                // At most one packet.
                bytes: answer_bytes as u16,
                padding: pad(42),
            },
        }
    }

    pub(super) fn is_answered_by(&self, body: &Body) -> bool {
        matches!(
            (self, body),
            (Self::Greet, Body::Greeting)
                | (Self::Ping, Body::Pong)
                | (Self::Find { .. }, Body::Contacts(_))
                | (Self::Store { .. }, Body::Stored(_))
                | (Self::Ask { .. }, Body::Records { .. })
        )
    }
}

/// The receiver of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of a lookup, or of the walk of a gathering.
    Walk(TaskId),
    /// Asks a member of a region for other members.
    Probe(TaskId),
    /// Stores a record.
    Store(TaskId),
    /// Reads a page of records.
    Ask(TaskId),
    /// Checks that a contact still answers.
    Check,
    /// Contacts an entrance to the network.
    Enter,
    /// Checks whether a lost contact answers again.
    Return,
    /// Pings a node for the application.
    Application,
}

impl Purpose {
    pub(super) fn task(self) -> Option<TaskId> {
        match self {
            Self::Walk(id) | Self::Probe(id) | Self::Store(id) | Self::Ask(id) => Some(id),
            Self::Check | Self::Enter | Self::Return | Self::Application => None,
        }
    }

    /// Whether a request whose packet was lost is sent again: no other node can answer, or asking another
    /// costs more than waiting.
    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Self::Store(_) | Self::Ask(_) | Self::Application)
    }
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Contacts that may be asked, with their places; none from a node that only confirms that it is
    /// alive.
    Contacts(Vec<(Key, Contact)>),
    Stored(Verdict),
    Records {
        held: u16,
        is_split: bool,
        records: Vec<Record>,
    },
    /// Refused, malformed, or not answered in time.
    Nothing,
}
