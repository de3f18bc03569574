//! What must hold of a responder of multicast DNS for any query: no panic, no work that grows faster than the query, and no
//! answer that is much longer than all that the responder has to say.

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_transport::mdns::{Asked, Responder, ResponderCommand, Service, read_query};

use crate::bounds::Bound;

/// A responder with its records; names of 255 bytes, each from a pointer of two bytes.
const BOUND: Bound = Bound::memory(256 << 10, 200);
/// All records with names of the longest kind, and the questions that an answer repeats.
const REPLY_BYTES_MAX: usize = 4_096;

/// Answers a query, as one of multicast DNS and as one of a resolver that knows only unicast.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let service = Service {
        instance: "a".into(),
        kind: "_wot".into(),
        subtype: Some("_directory".into()),
        host: "h".into(),
        port: 1,
        texts: vec!["td=/".into()],
    };
    let mut responder = Responder::new(service, 1);
    let addresses = vec![(1, vec!["10.0.0.1".parse().expect("an address")])];
    responder.handle_input(
        Instant::ZERO,
        Input::Command(ResponderCommand::Addresses(addresses)),
    );
    while responder.poll_output().is_some() {}
    let is_query = read_query(data).is_ok();
    for port in [5353, 40_000] {
        let asked = Asked {
            from: ([10, 0, 0, 2], port).into(),
            interface: 1,
            bytes: data.to_vec(),
        };
        let mut now = Instant::ZERO;
        responder.handle_input(now, Input::Receive(asked));
        loop {
            while let Some(output) = responder.poll_output() {
                if let Output::Transmit(reply) = output {
                    assert!(is_query || reply.to.is_none());
                    assert!(
                        reply.bytes.len() <= REPLY_BYTES_MAX,
                        "{} bytes",
                        reply.bytes.len()
                    );
                }
            }
            responder.check().expect("an invariant");
            let Some(deadline) = responder.deadline() else {
                break;
            };
            now = now.max(deadline);
            responder.handle_input(now, Input::Timeout);
        }
    }
}
