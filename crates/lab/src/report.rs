//! What a scenario found: rows, and targets that are met or not.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::{Error, Machine, percentile};

/// The outcome of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: &'static str,
    /// What it ran on.
    pub machine: Machine,
    /// The commit, when the program runs in a checkout.
    pub commit: Option<String>,
    /// The seed of its choices.
    pub seed: u64,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was to be reached.
    pub targets: Vec<Target>,
    /// What was left out, and why.
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
    /// What was measured.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What the figure is: a median, a floor, a size.
    pub note: String,
}

/// Which side of the bound is good.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// Something to be reached.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// What.
    pub name: String,
    /// What was measured.
    pub measured: f64,
    /// What is wanted.
    pub bound: Bound,
    /// The unit of both.
    pub unit: &'static str,
    /// Whether it is met.
    pub met: bool,
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

    /// Adds a figure.
    pub fn row(&mut self, name: &str, value: f64, unit: &'static str, note: impl Into<String>) {
        self.rows.push(Row {
            name: name.to_owned(),
            value,
            unit,
            note: note.into(),
        });
    }

    /// Adds samples of a time: rows of the median and the 99th percentile in milliseconds. Gives both.
    pub fn times(&mut self, name: &str, note: &str, samples: &[Duration]) -> (f64, f64) {
        let mut sorted = samples.to_vec();
        let mut at = |percent| percentile(&mut sorted, percent).as_secs_f64() * 1e3;
        let (median, high) = (at(50.0), at(99.0));
        let of = format!("of {}; {note}", samples.len());
        self.row(&format!("{name}, p50"), median, "ms", of);
        self.row(&format!("{name}, p99"), high, "ms", "");
        let file: String = name
            .chars()
            .map(|sign| {
                if sign.is_ascii_alphanumeric() {
                    sign
                } else {
                    '-'
                }
            })
            .collect();
        let seconds = samples.iter().map(Duration::as_secs_f64).collect();
        self.raw.insert(file, seconds);
        (median, high)
    }

    /// Adds a target and says whether it is met.
    pub fn target(&mut self, name: &str, measured: f64, bound: Bound, unit: &'static str) -> bool {
        let met = match bound {
            Bound::AtMost(most) => measured <= most,
            Bound::AtLeast(least) => measured >= least,
        };
        self.targets.push(Target {
            name: name.to_owned(),
            measured,
            bound,
            unit,
            met,
        });
        met
    }

    /// Whether every target is met.
    #[must_use]
    pub fn met(&self) -> bool {
        self.targets.iter().all(|target| target.met)
    }

    /// Writes the report, the table and the raw samples below `directory`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let write = |name: String, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
        };
        std::fs::create_dir_all(directory)
            .map_err(Error::io(format!("making {}", directory.display())))?;
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Failed(format!("the report is no JSON: {error}")))?;
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
                figure(name, samples),
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
            let (word, bound) = match target.bound {
                Bound::AtMost(bound) => ("at most", bound),
                Bound::AtLeast(bound) => ("at least", bound),
            };
            let met = if target.met { "met   " } else { "MISSED" };
            writeln!(
                f,
                "  {met} {}: {:.3} {unit}, wanted {word} {bound} {unit}",
                target.name,
                target.measured,
                unit = target.unit,
            )?;
        }
        Ok(())
    }
}

/// Points of a curve, about.
const POINTS: usize = 1_000;

/// The distribution of samples as a curve: share of samples (up) below a time (right, logarithmic).
fn figure(name: &str, samples: &[f64]) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 320.0;
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| *s > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return String::from("<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
    };
    let (low, high) = (
        first.log10().floor(),
        last.log10().ceil().max(first.log10().floor() + 1.0),
    );
    let x = |seconds: f64| 50.0 + (seconds.log10() - low) / (high - low) * (WIDTH - 70.0);
    let y = |share: f64| HEIGHT - 30.0 - share * (HEIGHT - 60.0);
    let count = sorted.len() as f64;
    // More points than can be told apart only make the file large.
    let step = (sorted.len() / POINTS).max(1);
    let points: Vec<_> = sorted
        .iter()
        .enumerate()
        .skip(step - 1)
        .step_by(step)
        .map(|(index, s)| format!("{:.1},{:.1}", x(*s), y((index + 1) as f64 / count)))
        .collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/><text x=\"50\" y=\"18\">{name}: share of {} samples below a time</text>",
        sorted.len()
    );
    let mut decade = low;
    while decade <= high {
        let at = x(10_f64.powf(decade));
        svg.push_str(&format!(
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"30\" y2=\"{:.1}\" stroke=\"#ccc\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            HEIGHT - 30.0,
            HEIGHT - 12.0,
            10_f64.powf(decade)
        ));
        decade += 1.0;
    }
    for share in [0.0, 0.5, 0.99, 1.0] {
        svg.push_str(&format!(
            "<text x=\"44\" y=\"{:.1}\" text-anchor=\"end\">{share}</text>",
            y(share) + 4.0
        ));
    }
    svg.push_str(&format!(
        "<polyline fill=\"none\" stroke=\"#1b5e8c\" stroke-width=\"1.5\" points=\"{}\"/></svg>",
        points.join(" ")
    ));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_on_the_right_side() {
        let mut report = Report::new("test", 1);
        assert!(report.target("latency", 2.9, Bound::AtMost(3.0), "ms"));
        assert!(!report.target("rate", 98.0, Bound::AtLeast(99.0), "1/s"));
        assert!(!report.met());
        assert!(report.to_string().contains("MISSED rate"));
    }
}
