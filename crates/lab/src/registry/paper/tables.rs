//! Tables and figures, with the paper's values next to ours.

use std::fmt::Write as _;

use crate::Report;
use crate::plot::{Mark, Plot, Scale, Series};

/// A table as CSV, each row with a name, a measure, the paper's milliseconds and ours.
#[derive(Default)]
pub(super) struct Table(String);

impl Table {
    /// Adds a row; values that do not exist are empty.
    pub(super) fn row(&mut self, name: &str, measure: &str, paper: Option<f64>, ours: Option<f64>) {
        let text = |value: Option<f64>, digits: usize| {
            value.map_or_else(String::new, |value| format!("{value:.digits$}"))
        };
        let (paper, ours) = (text(paper, 1), text(ours, 3));
        let _ = writeln!(self.0, "\"{name}\",{measure},{paper},{ours}");
    }

    pub(super) fn into(self, report: &mut Report, name: &str) {
        let text = format!("row,measure,paper_ms,measured_ms\n{}", self.0);
        report.tables.insert(name.to_owned(), text);
    }
}

/// A figure against the number of services, as SVG and its values as CSV.
pub(super) fn figure(
    report: &mut Report,
    name: &str,
    title: &str,
    y: &'static str,
    series: &[(String, Vec<(f64, f64)>)],
) {
    let mut csv = format!("series,services,{y}\n");
    for (name, points) in series {
        for (services, value) in points {
            let _ = writeln!(csv, "\"{name}\",{services},{value:.4}");
        }
    }
    report.tables.insert(name.to_owned(), csv);
    let lines = series
        .iter()
        .map(|(name, points)| Series::new(name.clone(), Mark::Line).with(points.iter().copied()));
    let plot = Plot {
        scales: [Scale::Linear, Scale::Logarithmic],
        ..Plot::new(title, "services", y)
    };
    report.figure(name, &plot.with(lines));
}
