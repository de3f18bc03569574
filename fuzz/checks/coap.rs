//! Invariants of a CoAP client that receives any datagrams.

use std::time::Duration;

use chappe_machine::{Input, Instant, Output, drain};
use chappe_wrappers::coap::{Client, Event, Pace, Target};

use crate::bounds::Bound;

/// The client remembers the identifiers of 1,024 messages and the bodies of two resources.
const BOUND: Bound = Bound::memory(1 << 20, 400);
/// Bytes of a token.
const TOKEN_BYTES: usize = 8;

/// No panic; an input has few outputs; a deadline is never in the past of the newest timeout. Each datagram has two bytes
/// before it: the seconds that pass, and its length with a bit that makes it an answer to the newest request.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || run(data));
}

fn run(mut data: &[u8]) {
    let pace = Pace {
        poll: Duration::from_secs(10),
        silence: Duration::from_secs(60),
    };
    let targets = vec![Target::default(), Target::default()];
    let (mut client, mut now) = (Client::new(targets, pace, [1; 32]), Instant::ZERO);
    let mut request = Vec::new();
    pass(&mut client, now, Input::Timeout, &mut request);
    while let [seconds, length, rest @ ..] = data {
        now += Duration::from_secs(u64::from(*seconds));
        let (datagram, rest) = rest.split_at(rest.len().min(usize::from(*length >> 1)));
        data = rest;
        let datagram = match length & 1 {
            0 => datagram.to_vec(),
            // The acknowledgement of the newest request: 2.05 with its identifier and token.
            _ => [&[0x68, 0x45], &request[2..4 + TOKEN_BYTES], datagram].concat(),
        };
        pass(&mut client, now, Input::Receive(datagram), &mut request);
        pass(&mut client, now, Input::Timeout, &mut request);
    }
}

fn pass(client: &mut Client, now: Instant, input: Input<Vec<u8>, u16>, request: &mut Vec<u8>) {
    let (mut outputs, mut stored) = (0, Vec::new());
    let due = drain(client, now, input, |output| {
        outputs += 1;
        match output {
            // A request has the code 0.01.
            Output::Transmit(bytes) if bytes[1] == 1 => *request = bytes,
            Output::Event(Event::State { acknowledge, .. }) => stored.extend(acknowledge),
            Output::Transmit(_) | Output::Event(_) => {}
        }
    });
    assert!(outputs <= 8, "{outputs} outputs");
    assert!(due.is_some());
    for id in stored {
        pass(client, now, Input::Command(id), request);
    }
}
