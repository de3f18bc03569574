//! The cost of calling an operation of a device: integers against a string of the same content.
//!
//! Source: "Evaluating the Performance of DPWS in a Body Area Network", repeated with today's stacks: the typed library at
//! both ends, gSOAP at both ends without and with WS-Addressing, zeep as a client of our device, sdc11073 with its own
//! messages. Client and server are separate processes on one processor. The floors are raw TCP with as many bytes, heads
//! of HTTP included, and bare HTTP with bodies as large. Our client calls with text, with EXI, and
//! with text over TLS, whose bytes are given as those of the text.
//!
//! `one way` is the time until the server's operation is called with the whole message; the answer, which is small,
//! carries it.

mod load;
mod network;
pub(crate) mod process;
mod relay;
mod results;
mod sdc;
mod stack;

use std::net::SocketAddr;
use std::time::Duration;

use crate::pinned::Pinned;
use crate::process::Folder;
use crate::{Error, Report, Settings, percentile};
use load::{COUNTS, Load};
use network::{Cable, Place};
use relay::{Bytes, Relay};
use results::{Frames, Measured, Times};
use stack::{Call, Connection, Peers, Stack};

/// The parts of the scenario.
pub(crate) const PARTS: [&str; 4] = ["loopback", "mtu", "rate", "sdc"];
/// The largest packets of the networks, as in the study and today.
const MTUS: [usize; 5] = [150, 296, 576, 1280, 1500];
/// The rate of the slow network, as that of the study's radio.
const RATE_KBIT: usize = 250;
/// Rounds of a load whose bytes or packets are counted; one more call is made before. Reason: the first message of a client
/// is text, and few of so many acknowledgements of TCP come late.
const COUNTED_ROUNDS: usize = 10;
/// Their calls.
const COUNTED_CALLS: usize = COUNTED_ROUNDS + 1;

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("invoke", settings.seed);
    let wants = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
    let folder = Folder::new("invoke")?;
    let _pinned = Pinned::new()?;
    (settings.progress)("gSOAP and zeep");
    let peers = Peers::find(folder.path())?;
    for stack in Stack::SOAP {
        if let Some(reason) = peers.missing(stack) {
            report.skipped.push(format!("{}: {reason}", stack.name()));
        }
    }
    let mut measured = Vec::new();
    if wants("loopback") {
        let (place, loads) = (Place::loopback(), Load::all());
        for connection in [Connection::Kept, Connection::New] {
            for stack in Stack::SOAP {
                let rounds = rounds(settings, stack, 2_000);
                let setup = (stack, connection, rounds);
                measured.extend(measure(settings, &peers, &place, setup, &loads)?);
            }
        }
    }
    let some = [1, 10, 100, 1_000].map(Load::Integers);
    let large = [Load::Characters(10_000)];
    let some: Vec<Load> = some.into_iter().chain(large).collect();
    for mtu in MTUS {
        if wants("mtu") {
            let rate_kbit = None;
            let cable = Cable { mtu, rate_kbit };
            let rounds = if settings.quick { 20 } else { 500 };
            on_cable(
                settings,
                &peers,
                cable,
                rounds,
                &some,
                &mut measured,
                &mut report,
            )?;
        }
    }
    if wants("rate") {
        let cable = Cable {
            mtu: 1_500,
            rate_kbit: Some(RATE_KBIT),
        };
        let rounds = if settings.quick { 3 } else { 10 };
        let loads: Vec<Load> = COUNTS.map(Load::Integers).to_vec();
        on_cable(
            settings,
            &peers,
            cable,
            rounds,
            &loads,
            &mut measured,
            &mut report,
        )?;
    }
    results::write(&measured, &mut report);
    if wants("sdc") {
        sdc::run(settings, &mut report)?;
    }
    Ok(report)
}

/// Calls of one load. Reason for fewer of zeep: it takes a hundred times as long.
fn rounds(settings: &Settings, stack: Stack, whole: usize) -> usize {
    let rounds = if settings.quick { whole / 20 } else { whole };
    match stack {
        Stack::Zeep => rounds / 4,
        _ => rounds,
    }
}

/// Measures the stacks in C and Rust over a cable, or skips it with the reason.
fn on_cable(
    settings: &Settings,
    peers: &Peers,
    cable: Cable,
    rounds: usize,
    loads: &[Load],
    measured: &mut Vec<Measured>,
    report: &mut Report,
) -> Result<(), Error> {
    let result = network::apart(|| {
        let place = match Place::cable(cable) {
            Ok(place) => place,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut measured = Vec::new();
        for stack in Stack::SOAP.into_iter().filter(|it| *it != Stack::Zeep) {
            let setup = (stack, Connection::Kept, rounds);
            measured.extend(measure(settings, peers, &place, setup, loads)?);
        }
        Ok(Ok(measured))
    })?;
    match result {
        Ok(more) => measured.extend(more),
        Err(reason) => {
            let what = format!("a network with an MTU of {}: {reason}", cable.mtu);
            report.skipped.push(what);
        }
    }
    Ok(())
}

/// Measures a stack and its floors; nothing where its peer is missing.
fn measure(
    settings: &Settings,
    peers: &Peers,
    place: &Place,
    (stack, connection, rounds): (Stack, Connection, usize),
    loads: &[Load],
) -> Result<Vec<Measured>, Error> {
    if peers.missing(stack).is_some() {
        return Ok(Vec::new());
    }
    let (name, kind) = (stack.name(), connection.name());
    (settings.progress)(&format!("{name}, {kind} connections, {}", place.name()));
    let bytes = {
        let readable = stack.readable();
        let (_server, address) = peers.serve(readable, place)?;
        bytes(peers, readable, &address, connection, loads)?
    };
    let (_server, address) = peers.serve(stack, place)?;
    let frames = frames(peers, place, stack, &address, loads)?;
    let calls = peers.call(stack, &address, connection, rounds, loads)?;
    let floor = |floor: Stack, sizes: fn(&Bytes) -> Load| {
        let loads: Vec<Load> = bytes.iter().map(sizes).collect();
        let (_server, address) = peers.serve(floor, place)?;
        peers.call(floor, &address, connection, rounds, &loads)
    };
    let tcp = floor(Stack::Tcp, |bytes| {
        Load::Bytes(bytes.whole.question, bytes.whole.answer)
    })?;
    let http = floor(Stack::Http, |bytes| {
        Load::Bytes(bytes.bodies.question, bytes.bodies.answer)
    })?;
    // The calls of each load are together, in its order.
    let times = |calls: &[Call]| -> Vec<Times> { calls.chunks(rounds).map(times_of).collect() };
    let (own, tcp, http) = (times(&calls), times(&tcp), times(&http));
    let measured = loads.iter().enumerate().map(|(index, load)| Measured {
        place: place.name(),
        cable: place.cable,
        stack,
        connection,
        load: *load,
        bytes: bytes[index],
        frames: frames.get(index).copied(),
        own: own[index],
        tcp: tcp[index],
        http: http[index],
    });
    Ok(measured.collect())
}

fn times_of(calls: &[Call]) -> Times {
    let us = |time: fn(&Call) -> Duration, percent: f64| {
        let mut times: Vec<Duration> = calls.iter().map(time).collect();
        percentile(&mut times, percent).as_secs_f64() * 1e6
    };
    Times {
        one_way_us: us(|call| call.one_way, 50.0),
        round_trip_us: us(|call| call.round_trip, 50.0),
        round_trip_p99_us: us(|call| call.round_trip, 99.0),
    }
}

/// The bytes of a call of each load.
fn bytes(
    peers: &Peers,
    stack: Stack,
    address: &str,
    connection: Connection,
    loads: &[Load],
) -> Result<Vec<Bytes>, Error> {
    let wrong = || Error::Failed(format!("{address} is no address"));
    let server: SocketAddr = address.parse().map_err(|_| wrong())?;
    let relay = Relay::start(server)?;
    let address = relay.address.to_string();
    peers.call(stack, &address, connection, COUNTED_ROUNDS, loads)?;
    let calls = relay.last(loads.len() * COUNTED_CALLS)?;
    let of_load = calls.chunks(COUNTED_CALLS);
    Ok(of_load.filter_map(|calls| calls.last().copied()).collect())
}

/// The packets of a call of each load, in both directions, and their bytes; none without a cable.
fn frames(
    peers: &Peers,
    place: &Place,
    stack: Stack,
    address: &str,
    loads: &[Load],
) -> Result<Vec<Frames>, Error> {
    if place.cable.is_none() {
        return Ok(Vec::new());
    }
    let of_run = |rounds: usize, load: Load| {
        let before = place.traffic();
        peers.call(stack, address, Connection::Kept, rounds, &[load])?;
        let after = place.traffic();
        let [received_bytes, received, sent_bytes, sent] =
            [0, 1, 2, 3].map(|column| (after[column] - before[column]) as f64);
        Ok((received + sent, received_bytes + sent_bytes))
    };
    let of_call = |load: &Load| {
        // What a client does besides calling is in both.
        let (few, many) = (of_run(1, *load)?, of_run(COUNTED_CALLS, *load)?);
        // One of the second run is called before and not counted.
        let calls = COUNTED_CALLS as f64;
        Ok(Frames {
            packets: (many.0 - few.0) / calls,
            bytes: (many.1 - few.1) / calls,
        })
    };
    loads.iter().map(of_call).collect()
}
