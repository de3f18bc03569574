//! The table of all medians, the figures of the study, and the targets.

use std::fmt::Write as _;

use super::load::Load;
use super::network::Cable;
use super::relay::Bytes;
use super::stack::{Connection, Stack};
use crate::plot::{Mark, Plot, Scale, Series, add};
use crate::{Limit, Reference, Report};

/// Medians, and a tail, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) one_way_us: f64,
    pub(super) round_trip_us: f64,
    pub(super) round_trip_p99_us: f64,
}

/// What crosses a cable in a call, in both directions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frames {
    pub(super) packets: f64,
    /// With the heads of Ethernet, IP and TCP.
    pub(super) bytes: f64,
}

/// A stack with one load at one place, and its floors.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) place: String,
    pub(super) cable: Option<Cable>,
    pub(super) stack: Stack,
    pub(super) connection: Connection,
    pub(super) load: Load,
    pub(super) bytes: Bytes,
    /// Where they were counted.
    pub(super) frames: Option<Frames>,
    pub(super) own: Times,
    pub(super) tcp: Times,
    pub(super) http: Times,
}

impl Measured {
    /// The share of the round trip that the stack takes above raw TCP with as many bytes.
    fn share_above_tcp(&self) -> f64 {
        1.0 - self.tcp.round_trip_us / self.own.round_trip_us
    }

    /// The same above bare HTTP with bodies as large.
    fn share_above_http(&self) -> f64 {
        1.0 - self.http.round_trip_us / self.own.round_trip_us
    }
}

/// Loads whose medians are rows of the report. Reason: those that have targets, and the small ones between.
const ROWS: [Load; 7] = [
    Load::Integers(1),
    Load::Integers(10),
    Load::Integers(100),
    Load::Integers(1_000),
    Load::Characters(10),
    Load::Characters(1_000),
    Load::Characters(10_000),
];

/// The largest round trip in round trips of gSOAP without WS-Addressing, on a kept connection.
const TARGETS: [(Load, f64); 4] = [
    (Load::Integers(1), 0.5),
    (Load::Integers(100), 0.2),
    (Load::Integers(1_000), 0.15),
    (Load::Characters(10_000), 0.5),
];
/// The largest round trip in those of bare HTTP, where that is more. Reason: no stack can be faster than HTTP alone.
const HTTP_MOST: f64 = 1.5;

/// The largest share of the bytes as EXI in those as text.
const EXI_MOST: [(Load, f64); 2] = [(Load::Integers(1), 0.55), (Load::Integers(100), 0.3)];

/// The largest round trip over TLS in those without it, on a kept connection.
const TLS_MOST: f64 = 1.5;

/// Adds table, figures, rows and targets.
pub(super) fn write(measured: &[Measured], report: &mut Report) {
    report.tables.insert("calls".to_owned(), table(measured));
    for one in measured.iter().filter(|one| ROWS.contains(&one.load)) {
        row(one, report);
    }
    figures(measured, report);
    targets(measured, report);
    exi_targets(measured, report);
}

fn row(one: &Measured, report: &mut Report) {
    let (stack, kind, load) = (one.stack.name(), one.connection.name(), one.load);
    let name = format!("{stack}, {kind}, {load}, {}", one.place);
    let packets = match one.frames {
        Some(frames) => format!(", {:.1} packets", frames.packets),
        None => String::new(),
    };
    let note = format!(
        "one way {:.1}; TCP {:.1}, HTTP {:.1}; {} + {} B{packets}",
        one.own.one_way_us,
        one.tcp.round_trip_us,
        one.http.round_trip_us,
        one.bytes.whole.question,
        one.bytes.whole.answer
    );
    report.row(&name, one.own.round_trip_us, "us", note);
}

fn table(measured: &[Measured]) -> String {
    let mut csv = "place,stack,connection,load,count,request_bytes,answer_bytes,packets,cable_bytes,one_way_us,round_trip_us,\
                   round_trip_p99_us,tcp_one_way_us,tcp_us,http_us,share_above_tcp,share_above_http\n"
        .to_owned();
    for one in measured {
        let frames = one
            .frames
            .map(|frames| format!("{:.1},{:.0}", frames.packets, frames.bytes));
        let _ = writeln!(
            csv,
            "\"{}\",{},{},{},{},{},{},{},{:.2},{:.2},{:.2},{:.2},{:.2},{:.2},{:.4},{:.4}",
            one.place,
            one.stack.name(),
            one.connection.name(),
            one.load.kind(),
            one.load.count(),
            one.bytes.whole.question,
            one.bytes.whole.answer,
            frames.unwrap_or_else(|| ",".to_owned()),
            one.own.one_way_us,
            one.own.round_trip_us,
            one.own.round_trip_p99_us,
            one.tcp.one_way_us,
            one.tcp.round_trip_us,
            one.http.round_trip_us,
            one.share_above_tcp(),
            one.share_above_http(),
        );
    }
    csv
}

/// A figure of each load on the loopback, of the shares, of the sizes of packets and of the slow network.
fn figures(measured: &[Measured], report: &mut Report) {
    let kept = |one: &&Measured| one.connection == Connection::Kept;
    let loopback = || measured.iter().filter(|one| one.cable.is_none());
    let count = |one: &Measured| one.load.count() as f64;
    for (kind, x) in [("integers", "integers"), ("characters", "characters")] {
        let of_kind = || loopback().filter(|one| one.load.kind() == kind);
        for connection in [Connection::Kept, Connection::New] {
            let title = format!("round trip, {} connections", connection.name());
            let mut lines = Vec::new();
            for one in of_kind().filter(|one| one.connection == connection) {
                add(
                    &mut lines,
                    one.stack.name(),
                    (count(one), one.own.round_trip_us),
                );
                if one.stack == Stack::Chappe {
                    add(&mut lines, "raw TCP", (count(one), one.tcp.round_trip_us));
                    add(
                        &mut lines,
                        "bare HTTP",
                        (count(one), one.http.round_trip_us),
                    );
                }
            }
            let name = format!("{kind}-{}", connection.name());
            figure(report, &name, (title, x, "µs"), Scale::Logarithmic, lines);
        }
        let mut lines = Vec::new();
        for one in of_kind().filter(kept) {
            let share = 100.0 * one.share_above_tcp();
            add(&mut lines, one.stack.name(), (count(one), share));
        }
        let title = "share of the round trip above raw TCP".to_owned();
        let axes = (title, x, "%");
        figure(report, &format!("{kind}-share"), axes, Scale::Linear, lines);
    }
    let mut lines = Vec::new();
    let cables = || measured.iter().filter_map(|one| Some((one, one.cable?)));
    for (one, cable) in cables().filter(|(_, cable)| cable.rate_kbit.is_none()) {
        let name = format!("{} {}", one.stack.name(), one.load);
        let has_line = [Load::Integers(1), Load::Integers(1_000)].contains(&one.load);
        if has_line {
            add(&mut lines, &name, (cable.mtu as f64, one.own.round_trip_us));
        }
    }
    let axes = ("round trip by the largest packet".to_owned(), "bytes", "µs");
    figure(report, "mtu", axes, Scale::Logarithmic, lines);
    let mut lines = Vec::new();
    for (one, _) in cables().filter(|(_, cable)| cable.rate_kbit.is_some()) {
        let ms = one.own.round_trip_us / 1e3;
        add(&mut lines, one.stack.name(), (count(one), ms));
    }
    let axes = ("round trip at 250 kbit/s".to_owned(), "integers", "ms");
    figure(report, "rate", axes, Scale::Logarithmic, lines);
}

fn figure(
    report: &mut Report,
    name: &str,
    (title, x, y): (String, &'static str, &'static str),
    scale: Scale,
    mut lines: Vec<Series>,
) {
    if lines.is_empty() {
        return;
    }
    for line in &mut lines {
        line.mark = Mark::Both;
    }
    let plot = Plot {
        scales: [Scale::Logarithmic, scale],
        ..Plot::new(title, x, y)
    };
    report.figure(name, &plot.with(lines));
}

fn targets(measured: &[Measured], report: &mut Report) {
    let find = |stack: Stack, load: Load| {
        let is_it = |one: &&Measured| {
            one.stack == stack
                && one.load == load
                && one.connection == Connection::Kept
                && one.cable.is_none()
        };
        measured.iter().find(is_it)
    };
    let missing = || "gSOAP was not measured".to_owned();
    for (load, most) in TARGETS {
        let Some(own) = find(Stack::Chappe, load) else {
            continue;
        };
        let gsoap = find(Stack::Gsoap, load);
        let http = own.http.round_trip_us;
        let reference = gsoap.ok_or_else(missing).map(|gsoap| {
            let gsoap = gsoap.own.round_trip_us;
            // The one that permits more; the limit is that of gSOAP.
            match HTTP_MOST * http > most * gsoap {
                true => Reference::new("bare HTTP, scaled", HTTP_MOST * http / most),
                false => Reference::new("gSOAP", gsoap),
            }
        });
        let measured = (own.own.round_trip_us, "us");
        let name = format!("round trip of {load}, p50");
        report.compare(name, measured, reference, Limit::AtMost(most));
        let share = gsoap.ok_or_else(missing);
        let share = share.map(|gsoap| Reference::new("gSOAP", 100.0 * gsoap.share_above_tcp()));
        let measured = (100.0 * own.share_above_tcp(), "%");
        let name = format!("share above raw TCP of {load}");
        report.compare(name, measured, share, Limit::AtMost(1.0));
        if let Some(tls) = find(Stack::ChappeTls, load) {
            let reference = Reference::new("without TLS", own.own.round_trip_us);
            let measured = (tls.own.round_trip_us, "us");
            let name = format!("round trip of {load} over TLS, p50");
            report.target(name, measured, reference, Limit::AtMost(TLS_MOST));
        }
    }
}

/// The bytes of a call as EXI in those as text, heads of HTTP included; on a slow network the time, next to raw TCP
/// with as many bytes.
fn exi_targets(measured: &[Measured], report: &mut Report) {
    let is_kept = |one: &&Measured| one.connection == Connection::Kept;
    for exi in measured.iter().filter(is_kept) {
        let is_text = |one: &&Measured| {
            let is_same = one.load == exi.load && one.place == exi.place;
            is_same && one.stack == Stack::Chappe && one.connection == Connection::Kept
        };
        let text = measured.iter().find(is_text);
        let (Stack::ChappeExi, Some(text)) = (exi.stack, text) else {
            continue;
        };
        let bytes = |one: &Measured| (one.bytes.whole.question + one.bytes.whole.answer) as f64;
        let most = EXI_MOST.iter().find(|(load, _)| *load == exi.load);
        if let (Some((load, most)), None) = (most, exi.cable) {
            let name = format!("bytes of {load} as EXI");
            let reference = Reference::new("text", bytes(text));
            report.target(name, (bytes(exi), "B"), reference, Limit::AtMost(*most));
        }
        let is_slow = exi.cable.is_some_and(|cable| cable.rate_kbit.is_some());
        if is_slow {
            // Not by the bytes themselves: the cable passes a burst at once, whatever its rate.
            let of_bytes = exi.tcp.round_trip_us / text.tcp.round_trip_us;
            let expected = text.own.round_trip_us * of_bytes;
            let measured = (exi.own.round_trip_us, "us");
            for limit in [Limit::AtLeast(0.9), Limit::AtMost(1.1)] {
                let name = format!("round trip of {} as EXI, {}", exi.load, exi.place);
                let reference = Reference::new("text, scaled by raw TCP", expected);
                report.target(name, measured, reference, limit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::Sizes;

    fn measured(stack: Stack, round_trip_us: f64) -> Measured {
        let times = |round_trip_us| Times {
            one_way_us: round_trip_us / 2.0,
            round_trip_us,
            round_trip_p99_us: round_trip_us,
        };
        let sizes = Sizes {
            question: 700,
            answer: 600,
        };
        Measured {
            place: "loopback".to_owned(),
            cable: None,
            stack,
            connection: Connection::Kept,
            load: Load::Integers(1),
            bytes: Bytes {
                whole: sizes,
                bodies: sizes,
            },
            frames: None,
            own: times(round_trip_us),
            tcp: times(5.0),
            http: times(9.0),
        }
    }

    #[test]
    fn the_reference_is_the_one_that_permits_more() {
        for (gsoap, name) in [(20.0, "bare HTTP, scaled"), (100.0, "gSOAP")] {
            let mut report = Report::new("invoke", 1);
            let both = [measured(Stack::Chappe, 13.0), measured(Stack::Gsoap, gsoap)];
            write(&both, &mut report);
            let target = &report.targets[0];
            let reference = target.reference.as_ref().expect("a reference");
            assert_eq!(reference.name, name);
            assert!(report.met(), "{report}");
            assert_eq!(report.tables["calls"].lines().count(), 3);
            assert!(report.figures.contains_key("integers-kept"));
        }
    }

    #[test]
    fn a_missing_peer_skips_its_targets() {
        let mut report = Report::new("invoke", 1);
        write(&[measured(Stack::Chappe, 13.0)], &mut report);
        assert!(report.met() && report.targets[0].reference.is_none());
    }
}
