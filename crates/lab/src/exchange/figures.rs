//! Figures 2 to 5 of the study, drawn from the measurements.

use super::outcome::Outcome;
use crate::Report;
use crate::plot::{Mark, Plot, Series};
use crate::report::file_name;

/// Values at 0, 1, 2, …: seconds, or names.
fn counted(name: &str, mark: Mark, values: impl IntoIterator<Item = f64>) -> Series {
    let values = values.into_iter().enumerate();
    Series::new(name, mark).with(values.map(|(at, value)| (at as f64, value)))
}

/// Draws the figures of one kind: load over time (figures 2 and 3 of the study), and the production
/// of each node (its figure 4).
pub(crate) fn kind(report: &mut Report, name: &str, outcome: &Outcome) {
    let file = file_name(name);
    let seconds = |title: &str, unit: &'static str, values: &[f64]| {
        let line = counted(title, Mark::Line, values.iter().copied());
        Plot::new(format!("{name}: {title}"), "seconds", unit).with([line])
    };
    let load = seconds("all nodes", "processors busy", &outcome.load);
    report.figure(format!("{file}-load"), &load);
    let wire = seconds("all nodes, with headers", "Mbit/s", &outcome.wire_mbit);
    report.figure(format!("{file}-traffic"), &wire);
    let bars = counted("produced", Mark::Bars, outcome.producers.iter().copied());
    let names = 0..outcome.producers.len();
    let produced = Plot {
        names: names.map(|number| number.to_string()).collect(),
        ..Plot::new(
            format!("{name}: each producer"),
            "node",
            "elements a second",
        )
        .with([bars])
    };
    report.figure(format!("{file}-producers"), &produced);
}

/// A kind in the summary.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Elements a second of a producer.
    pub(crate) generated: f64,
    /// Elements a second of a virtual sensor.
    pub(crate) consumed: f64,
}

/// The study's published figures: 24 virtual machines of two processors on nine hosts.
const STUDY: [(&str, f64, f64); 3] = [
    ("study:\nremote, XML", 90.0, 7.0),
    ("study:\nzeromq, XML", 57.0, 13.0),
    ("study:\nzeromq, Kryo", 38.0, 36.0),
];

/// Draws the summary (its figure 5), theirs next to ours.
pub(crate) fn summary(report: &mut Report, lines: &[Line]) {
    let study = STUDY.map(|(name, generated, consumed)| Line {
        name: name.to_owned(),
        generated,
        consumed,
    });
    let all: Vec<Line> = study.into_iter().chain(lines.iter().cloned()).collect();
    let title = "Elements a second: of a producer, of a virtual sensor over a received stream";
    let generated = all.iter().map(|line| line.generated);
    let consumed = all.iter().map(|line| line.consumed);
    let plot = Plot {
        names: all.iter().map(|line| line.name.clone()).collect(),
        ..Plot::new(title, "", "1/s").with([
            counted("generation", Mark::Bars, generated),
            counted("consumption", Mark::Bars, consumed),
        ])
    };
    report.figure("summary", &plot);
    for (name, generated, consumed) in STUDY {
        let name = name.replace('\n', " ");
        report.row(&format!("{name}: a virtual sensor"), consumed, "1/s", format!(
            "of {generated:.0} generated; as published, 24 machines of 2 processors; not run here"
        ));
    }
}
