//! The result of a scenario: rows of absolute figures, and targets that are ratios.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::plot::{Mark, Plot, Scale, Series};
use crate::target::{Limit, Reference, Target, Verdict};
use crate::{Error, Machine, percentile};

/// The outcome of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The commit, when the program runs in a checkout.
    pub commit: Option<String>,
    /// The seed of its choices.
    pub seed: u64,
    /// The measurements.
    pub rows: Vec<Row>,
    /// The targets.
    pub targets: Vec<Target>,
    /// Skipped parts, with reasons.
    pub skipped: Vec<String>,
    /// All samples by name, in seconds.
    #[serde(skip)]
    pub raw: BTreeMap<String, Vec<f64>>,
    /// Tables by name, as CSV.
    #[serde(skip)]
    pub tables: BTreeMap<String, String>,
    /// Figures by name, as SVG.
    #[serde(skip)]
    pub figures: BTreeMap<String, String>,
}

/// One measured thing.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The measured property.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The kind of figure: a median, a floor, a size.
    pub note: String,
}

impl Report {
    /// An empty report of a scenario, here and now.
    #[must_use]
    pub fn new(scenario: &'static str, seed: u64) -> Self {
        Self {
            scenario,
            machine: Machine::here(),
            commit: crate::machine::commit(),
            seed,
            rows: Vec::new(),
            targets: Vec::new(),
            skipped: Vec::new(),
            raw: BTreeMap::new(),
            tables: BTreeMap::new(),
            figures: BTreeMap::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, name: &str, value: f64, unit: &'static str, note: impl Into<String>) {
        self.rows.push(Row {
            name: name.to_owned(),
            value,
            unit,
            note: note.into(),
        });
    }

    /// Adds a figure under a name.
    pub(crate) fn figure(&mut self, name: impl Into<String>, plot: &Plot) {
        self.figures.insert(name.into(), plot.svg());
    }

    /// Adds samples of a time: rows of the median and the 99th percentile in milliseconds. Gives both.
    pub fn times(&mut self, name: &str, note: &str, samples: &[Duration]) -> (f64, f64) {
        let mut sorted = samples.to_vec();
        let mut at = |percent| percentile(&mut sorted, percent).as_secs_f64() * 1e3;
        let (median, high) = (at(50.0), at(99.0));
        let of = format!("of {}; {note}", samples.len());
        self.row(&format!("{name}, p50"), median, "ms", of);
        self.row(&format!("{name}, p99"), high, "ms", "");
        let seconds = samples.iter().map(Duration::as_secs_f64).collect();
        self.raw.insert(file_name(name), seconds);
        (median, high)
    }

    /// Judges a measurement by its ratio to a reference of this run.
    pub fn target(
        &mut self,
        name: impl Into<String>,
        measured: (f64, &'static str),
        reference: Reference,
        limit: Limit,
    ) {
        self.compare(name, measured, Ok(reference), limit);
    }

    /// The same where the reference may be missing: then the target is skipped for that reason.
    pub fn compare(
        &mut self,
        name: impl Into<String>,
        measured: (f64, &'static str),
        reference: Result<Reference, String>,
        limit: Limit,
    ) {
        let target = Target::new(name, measured, reference, limit);
        self.targets.push(target);
    }

    /// A part of the product that could not be measured misses its target.
    pub fn failed(&mut self, name: &str, error: &Error) {
        self.skipped.push(format!("{name}: {error}"));
        let runs = Reference::new("runs begun", 1.0);
        let name = format!("{name} ends");
        self.target(name, (0.0, "runs"), runs, Limit::AtLeast(1.0));
    }

    /// Whether no target is missed. A skipped one is printed as such.
    #[must_use]
    pub fn met(&self) -> bool {
        let missed = |target: &Target| target.verdict == Verdict::Missed;
        !self.targets.iter().any(missed)
    }

    /// Writes the report, the table and the raw samples below `directory`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let write = |name: String, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
        };
        std::fs::create_dir_all(directory)
            .map_err(Error::io(format!("making {}", directory.display())))?;
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Failed(format!("the report is not JSON: {error}")))?;
        write(format!("{}.json", self.scenario), json)?;
        write(format!("{}.txt", self.scenario), self.to_string())?;
        for (name, svg) in &self.figures {
            write(format!("{}-{name}.svg", self.scenario), svg.clone())?;
        }
        for (name, csv) in &self.tables {
            write(format!("{}-{name}.csv", self.scenario), csv.clone())?;
        }
        for (name, samples) in &self.raw {
            let lines: Vec<_> = samples
                .iter()
                .map(|seconds| format!("{seconds:.9}\n"))
                .collect();
            write(
                format!("{}-{name}.csv", self.scenario),
                format!("seconds\n{}", lines.concat()),
            )?;
            write(
                format!("{}-{name}.svg", self.scenario),
                distribution(name, samples),
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{} on {} x {}, {} MiB, kernel {}, load {:.1}, commit {}, seed {}",
            self.scenario,
            machine.processors,
            machine.processor,
            machine.memory_bytes >> 20,
            machine.kernel,
            machine.load,
            self.commit.as_deref().unwrap_or("unknown"),
            self.seed,
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "  {:<48} {:>12.3} {:<8} {}",
                row.name, row.value, row.unit, row.note
            )?;
        }
        for skipped in &self.skipped {
            writeln!(f, "  skipped: {skipped}")?;
        }
        for target in &self.targets {
            writeln!(f, "  {target}")?;
        }
        Ok(())
    }
}

/// A name as part of the name of a file.
pub(crate) fn file_name(name: &str) -> String {
    let letter = |sign: char| {
        if sign.is_ascii_alphanumeric() {
            sign
        } else {
            '-'
        }
    };
    name.chars().map(letter).collect()
}

/// Points of a curve, about.
const POINTS: usize = 1_000;

/// The share of samples below a time.
fn distribution(name: &str, samples: &[f64]) -> String {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    // More points than the eye can distinguish only enlarge the file.
    let step = (sorted.len() / POINTS).max(1);
    let points = sorted.iter().enumerate().skip(step - 1).step_by(step);
    let points = points.map(|(index, seconds)| (*seconds, (index + 1) as f64 / count));
    let plot = Plot {
        scales: [Scale::Logarithmic, Scale::Linear],
        ..Plot::new(format!("{name}: {count} samples"), "seconds", "share below")
    };
    plot.with([Series::new("", Mark::Line).with(points)]).svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_a_negative_result_and_a_skipped_one_is_printed() {
        let mut report = Report::new("test", 1);
        let floor = || Reference::new("floor", 2.0);
        report.target("latency", (2.9, "ms"), floor(), Limit::AtMost(3.0));
        let reason = Err("no peer".to_owned());
        report.compare("size", (1.0, "B"), reason, Limit::AtMost(1.0));
        assert!(report.met());
        report.target("rate", (1.0, "1/s"), floor(), Limit::AtLeast(0.99));
        assert!(!report.met());
        let text = report.to_string();
        assert!(
            text.contains("MISSED rate") && text.contains("skipped: no peer: size"),
            "{text}"
        );
    }
}
