//! Goal: every test run checks the properties of the fuzz targets.
//! Method: replays their corpora in `fuzz/corpus`, and changes of them, through the targets' checks.

#[cfg(feature = "mqtt")]
#[path = "../../../fuzz/checks/announced.rs"]
mod announced;
#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[cfg(feature = "coap")]
#[path = "../../../fuzz/checks/coap.rs"]
mod coap;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[cfg(all(feature = "line-protocol", feature = "remote-write"))]
#[path = "../../../fuzz/checks/ingest.rs"]
mod ingest;
#[cfg(feature = "modbus")]
#[path = "../../../fuzz/checks/modbus.rs"]
mod modbus;
#[path = "../../../fuzz/checks/program_lines.rs"]
mod program_lines;

use proptest::prelude::*;

/// Checks each of at least `least` inputs, its beginnings, and it with one other bit in each of its bytes.
fn replay(name: &str, least: usize, check: fn(&[u8])) {
    corpus::replay(name, least, |input| {
        check(input);
        for at in 0..input.len().min(600) {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            check(&changed);
            check(&input[..at]);
        }
    });
}

#[test]
fn lines_of_programs_hold() {
    replay("program_lines", 8, program_lines::check);
}

#[cfg(feature = "mqtt")]
#[test]
fn announcements_hold() {
    replay("announced", 2, announced::check);
}

#[cfg(feature = "coap")]
#[test]
fn messages_of_coap_hold() {
    replay("coap", 3, coap::check);
}

#[cfg(feature = "modbus")]
#[test]
fn answers_of_modbus_hold() {
    replay("modbus", 4, modbus::check);
}

#[cfg(all(feature = "line-protocol", feature = "remote-write"))]
#[test]
fn messages_of_agents_hold() {
    replay("ingest", 5, ingest::check);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arbitrary_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        program_lines::check(&bytes);
    }
}
