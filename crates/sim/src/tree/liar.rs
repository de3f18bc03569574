//! Sinks that break the protocol.

use std::sync::Arc;

use chappe_machine::Output;
use chappe_notification_tree::{
    Body, Coverage, Event, EventId, Message, Piece, Pull, Response, Spread, Transmit, TreeEvent,
};

/// A kind of lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Accepts its part, and drops it.
    DropsPart,
    /// Claims at once that all of its part has the event.
    ClaimsCoverage,
    /// Claims at once that all of its part has failed.
    ClaimsFailure,
    /// Does everything, but answers long after the time-out.
    AnswersLate,
    /// Answers for ranges that were assigned to others.
    AnswersForOthers,
    /// Changes the event that it forwards.
    Alters,
    /// Sends everything many times, with invented ranges.
    Floods,
}

/// Messages that a flooding sink sends for each that it gets.
const FLOOD: u32 = 16;

impl Lie {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DropsPart,
        Self::ClaimsCoverage,
        Self::ClaimsFailure,
        Self::AnswersLate,
        Self::AnswersForOthers,
        Self::Alters,
        Self::Floods,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DropsPart => "drops-part",
            Self::ClaimsCoverage => "claims-coverage",
            Self::ClaimsFailure => "claims-failure",
            Self::AnswersLate => "answers-late",
            Self::AnswersForOthers => "answers-for-others",
            Self::Alters => "alters",
            Self::Floods => "floods",
        }
    }

    /// The lie of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lie| lie.name() == name)
    }

    /// Whether its own machine keeps running, so that it gets the event itself.
    pub(super) fn is_half_honest(self) -> bool {
        matches!(
            self,
            Self::AnswersLate | Self::AnswersForOthers | Self::Alters | Self::Floods
        )
    }

    /// Its messages in response to a spread message, to its sender or to others (by number), each
    /// with the number of the receiver.
    pub(super) fn answers(
        self,
        own: u32,
        from: u32,
        sinks: u32,
        spread: &Spread,
        random: &mut fastrand::Rng,
    ) -> Vec<(u32, Message)> {
        let response = Response {
            id: spread.event.id(),
            version: spread.event.version(),
            first: spread.first,
            end: spread.end,
            stamp_us: spread.stamp_us,
            dwell_us: 0,
        };
        let claim = |response: Response, failed, random: &mut fastrand::Rng| Message {
            from: own,
            body: Body::Coverage(Coverage {
                response,
                pieces: 1,
                piece: Piece {
                    first: response.first,
                    end: response.end,
                    failed,
                    receipts: random.u128(..),
                },
            }),
        };
        let respond = Message {
            from: own,
            body: Body::Response(response),
        };
        match self {
            Self::DropsPart => vec![(from, respond)],
            Self::ClaimsCoverage => vec![(from, claim(response, Vec::new(), random))],
            Self::ClaimsFailure => {
                let end = spread.end.min(spread.first + 200);
                let all = (spread.first..end).collect();
                vec![(from, claim(Response { end, ..response }, all, random))]
            }
            Self::AnswersLate => Vec::new(),
            Self::AnswersForOthers => (0..FLOOD)
                .map(|_| {
                    let first = random.u32(..sinks);
                    let end = random.u32(first + 1..=sinks);
                    let other = Response {
                        first,
                        end,
                        ..response
                    };
                    let to = if random.bool() {
                        from
                    } else {
                        random.u32(..sinks)
                    };
                    (to, claim(other, Vec::new(), random))
                })
                .collect(),
            Self::Alters => Vec::new(),
            Self::Floods => (0..FLOOD)
                .map(|nth| {
                    let to = random.u32(..sinks);
                    let body = match nth % 4 {
                        0 | 1 => Body::Spread(Spread {
                            first: random.u32(..=to),
                            end: random.u32(to + 1..=sinks),
                            due_us: random.u32(..),
                            timeout_us: random.u32(..),
                            ..spread.clone()
                        }),
                        2 => Body::Response(response),
                        _ => Body::Pull(Pull {
                            topic: response.id.topic,
                            version: response.version,
                            boot: response.id.boot,
                            first: 0,
                            wanted: u64::MAX,
                        }),
                    };
                    (to, Message { from: own, body })
                })
                .collect(),
        }
    }

    /// Changes the output of an otherwise honest machine.
    pub(super) fn twist(self, output: Output<Transmit, TreeEvent>) -> Output<Transmit, TreeEvent> {
        let Output::Transmit(mut transmit) = output else {
            return output;
        };
        if let (Self::Alters, Body::Spread(spread)) = (self, &mut transmit.message.body) {
            let id: EventId = spread.event.id();
            let mut bytes = spread.event.bytes().to_vec();
            // A byte of the body; the signature is unchanged.
            let body = spread.event.body();
            let at = bytes
                .windows(body.len().max(1))
                .position(|window| window == body);
            if let (Some(at), false) = (at, body.is_empty()) {
                bytes[at] ^= 1;
            }
            if let Ok(event) = Event::decode(&bytes) {
                debug_assert_eq!(event.id(), id);
                spread.event = Arc::new(event);
            }
        }
        Output::Transmit(transmit)
    }
}
