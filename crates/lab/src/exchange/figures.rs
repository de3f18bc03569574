//! The study's figures 2 to 5, from what was measured.

use super::figure::Figure;
use super::outcome::Outcome;
use crate::Report;

/// Draws a kind's figures: loads over time (its figures 2 and 3), what each node produced (figure 4).
pub(crate) fn kind(report: &mut Report, name: &str, outcome: &Outcome) {
    let file: String = name.replace([' ', ','], "-");
    let load = Figure {
        title: format!("{name}: processors busy with all nodes"),
        unit: "processors",
        series: vec![("busy".to_owned(), outcome.load.clone())],
        ..Figure::default()
    };
    report.figures.insert(format!("{file}-load"), load.lines());
    let wire = Figure {
        title: format!("{name}: traffic of all nodes, heads included"),
        unit: "Mbit/s",
        series: vec![("on the loopback".to_owned(), outcome.wire_mbit.clone())],
        ..Figure::default()
    };
    report
        .figures
        .insert(format!("{file}-traffic"), wire.lines());
    let numbers = 0..outcome.producers.len();
    let produced = Figure {
        title: format!("{name}: what each node produced"),
        unit: "elements a second",
        names: numbers.map(|number| number.to_string()).collect(),
        series: vec![("produced".to_owned(), outcome.producers.clone())],
    };
    let name = format!("{file}-producers");
    report.figures.insert(name, produced.bars());
}

/// What the summary says of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Elements a second of a producer.
    pub(crate) generated: f64,
    /// Elements a second of a virtual sensor.
    pub(crate) consumed: f64,
}

/// What the study published: 24 virtual machines of two processors on nine hosts.
const STUDY: [(&str, f64, f64); 3] = [
    ("study:\nremote, XML", 90.0, 7.0),
    ("study:\nzeromq, XML", 57.0, 13.0),
    ("study:\nzeromq, Kryo", 38.0, 36.0),
];

/// Draws the summary (its figure 5), theirs beside ours.
pub(crate) fn summary(report: &mut Report, lines: &[Line]) {
    let study = STUDY.map(|(name, generated, consumed)| Line {
        name: name.to_owned(),
        generated,
        consumed,
    });
    let all: Vec<Line> = study.into_iter().chain(lines.iter().cloned()).collect();
    let figure = Figure {
        title: "Elements a second: of a producer, of a virtual sensor over a received stream"
            .to_owned(),
        unit: "1/s",
        names: all.iter().map(|line| line.name.clone()).collect(),
        series: vec![
            (
                "generation".to_owned(),
                all.iter().map(|l| l.generated).collect(),
            ),
            (
                "consumption".to_owned(),
                all.iter().map(|l| l.consumed).collect(),
            ),
        ],
    };
    report.figures.insert("summary".to_owned(), figure.bars());
    for (name, generated, consumed) in STUDY {
        let name = name.replace('\n', " ");
        report.row(&format!("{name}: a virtual sensor"), consumed, "1/s", format!(
            "of {generated:.0} generated; as published, 24 machines of 2 processors; not run here"
        ));
    }
}
