//! The cost of a pacer: nanoseconds for asking it, and for reporting sent and acknowledged samples.
//! `cargo run --release -p chappe-flow --example pacer`

#![allow(clippy::disallowed_methods)] // it measures: the clock is what it is for

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use chappe_flow::pacer::{AdaptiveConfig, Choice, InFlight, Pace};
use chappe_machine::Instant;

const CALLS: u32 = 2_000_000;

fn main() {
    let session = Choice::Adaptive(AdaptiveConfig {
        least_bytes: 64 * 1024,
    });
    for (name, choice, on_way) in [
        ("adaptive of a session, little on the way", session, 10),
        ("adaptive, 10 on the way", Choice::default(), 10),
        ("fixed window", Choice::FixedWindow(16), 10),
        ("flood", Choice::Flood, 10),
    ] {
        let mut pacer = choice.build();
        let mut now = Instant::ZERO;
        let in_flight = |elements: u64| InFlight {
            bytes: elements * 200,
            elements,
            ..InFlight::default()
        };
        let mut waits = 0_u32;
        let began = Clock::now();
        for call in 0..CALLS {
            now += Duration::from_micros(10);
            match pacer.next(now, black_box(in_flight(on_way))) {
                Pace::Now => pacer.sent(now, 200, 1),
                Pace::At(_) | Pace::AfterAcknowledgement => waits += 1,
            }
            if call % 10 == 9 {
                pacer.acknowledged(now, 2_000, 10, None, in_flight(on_way - 5));
            }
        }
        let each = began.elapsed().as_nanos() as f64 / f64::from(CALLS);
        println!(
            "{name}: {each:.1} ns an element (asked, sent, a tenth of an acknowledgement); waited {waits} of {CALLS} times"
        );
    }
}
