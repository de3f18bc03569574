//! Lines that become elements, from their arrival to their acknowledgement at level `power`: printed by a program as
//! messages with marks and as CSV, and written in a file; the elements that pass through a processor in Python; and
//! what dead exporters cost one that works. Points and samples that agents send over HTTP, messages of an MQTT broker,
//! and a stream that is copied into PostgreSQL.
//!
//! Node, program and floors share one processor, one after another. The floors are the same program whose
//! lines are only read, or also parsed, and the log's own append: the floor of a rate is that of both, one
//! after the other. A server of PostgreSQL has the other processors to itself.

mod exporters;
mod floors;
mod ingest;
mod mqtt;
pub(crate) mod node;
#[cfg(feature = "postgres")]
mod postgres;

use std::fmt::Write as _;
use std::path::Path;

use crate::pinned::Pinned;
use crate::process::Folder;
use crate::write::Floor;
use crate::{Error, Limit, Reference, Report, Settings};

/// The parts.
pub(crate) const PARTS: [&str; 7] = [
    "program",
    "file",
    "processor",
    "exporters",
    "ingest",
    "mqtt",
    "postgres",
];
/// Lines of a run.
const LINES: usize = 1_000_000;
/// The least share of its floor that a rate has: 200,000 messages and 500,000 rows a second are 0.06 and 0.08 of the
/// floors of one processor.
const LIMIT: f64 = 0.1;
/// Lines of a quick one.
const LINES_QUICK: usize = 200_000;

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("wrappers", settings.seed);
    let lines = match settings.quick {
        true => LINES_QUICK,
        false => LINES,
    };
    let folder = Folder::new("wrappers")?;
    let wants = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
    let scenario = Wrappers {
        folder: folder.path(),
        lines,
        progress: settings.progress,
    };
    if wants("postgres") {
        #[cfg(feature = "postgres")]
        postgres::run(&scenario, settings.quick, &mut report)?;
        #[cfg(not(feature = "postgres"))]
        report
            .skipped
            .push("copied to PostgreSQL: built without the feature `postgres`".to_owned());
    }
    let _pinned = Pinned::new()?;
    if wants("program") || wants("file") {
        let log = Floor::open(folder.path(), settings.seed)?.rows()?;
        report.row("log", log, "1/s", "floor: appended ahead, awaited");
        if wants("program") {
            scenario.program(&mut report, log)?;
        }
        if wants("file") {
            scenario.file(&mut report, log)?;
        }
    }
    if wants("processor") {
        scenario.processor(&mut report)?;
    }
    if wants("exporters") {
        exporters::run(&scenario, settings.quick, &mut report)?;
    }
    if wants("ingest") {
        ingest::run(&scenario, settings.quick, &mut report)?;
    }
    if wants("mqtt") {
        mqtt::run(&scenario, settings.quick, &mut report)?;
    }
    Ok(report)
}

/// What all parts share.
struct Wrappers<'s> {
    folder: &'s Path,
    lines: usize,
    progress: fn(&str),
}

impl Wrappers<'_> {
    fn program(&self, report: &mut Report, log: f64) -> Result<(), Error> {
        let each = self.write("each.ndjson", &messages(self.lines, 1))?;
        let some = self.write("some.ndjson", &messages(self.lines, 100))?;
        let csv = self.write("rows.csv", &csv(self.lines))?;
        (self.progress)("floors: lines that are only read, and parsed");
        let read = floors::read(&some)?;
        let parsed = floors::parsed(&some)?;
        let read_csv = floors::read(&csv)?;
        report.row("messages, only read", read, "1/s", "floor");
        report.row("messages, read and parsed", parsed, "1/s", "floor");
        report.row("rows of a program, only read", read_csv, "1/s", "floor");
        let cases = [
            (
                "messages, a mark each",
                &each,
                "marks = true\n",
                parsed,
                None,
            ),
            (
                "messages, a mark in 100",
                &some,
                "marks = true\n",
                parsed,
                Some(LIMIT),
            ),
            (
                "rows of a program",
                &csv,
                "output = \"elements\"\nformat = { csv = { time = \"source_time\" } }\n",
                read_csv,
                Some(LIMIT),
            ),
        ];
        for (name, path, keys, source, limit) in cases {
            (self.progress)(name);
            let shown = path.display();
            // It ends with its input, not with its file.
            let command = format!("cat '{shown}'; exec cat > /dev/null");
            let text = format!(
                "kind = \"program\"\nprogram = [\"sh\", \"-c\", \"{command}\"]\n{keys}{STREAM}"
            );
            self.judge(report, name, &text, both(source, log), limit)?;
        }
        Ok(())
    }

    /// A processor that copies what a file holds.
    fn processor(&self, report: &mut Report) -> Result<(), Error> {
        let python = std::process::Command::new("python3")
            .arg("--version")
            .output();
        if python.is_err() {
            let text = "elements through a processor: python3 is not installed";
            report.skipped.push(text.to_owned());
            return Ok(());
        }
        let lines = self.lines / 10;
        (self.progress)("elements through a processor");
        let path = self.write("inputs.csv", &csv(lines))?;
        let file = file_wrapper(&path).replace("\"bench\"", "\"inputs\"");
        let program = self.write("copy.py", COPY)?;
        let text = format!(
            "kind = \"program\"\nprogram = [\"python3\", \"{}\"]\ninputs = [\"inputs\"]\n{STREAM}",
            program.display()
        );
        let rate = node::stored(self.folder, &[("bench", &text), ("inputs", &file)], lines)?;
        let note = "from log to log; the program copies each element";
        report.row("elements through a processor", rate, "1/s", note);
        Ok(())
    }

    fn file(&self, report: &mut Report, log: f64) -> Result<(), Error> {
        let path = self.write("file.csv", &csv(self.lines))?;
        (self.progress)("rows of a file");
        let read = floors::read_file(&path)?;
        report.row("rows of a file, only read", read, "1/s", "floor");
        let text = file_wrapper(&path);
        self.judge(
            report,
            "rows of a file",
            &text,
            both(read, log),
            Some(LIMIT),
        )
    }

    /// Measures a wrapper and compares its rate with a floor.
    fn judge(
        &self,
        report: &mut Report,
        name: &str,
        wrapper: &str,
        floor: f64,
        limit: Option<f64>,
    ) -> Result<(), Error> {
        let measured = node::stored(self.folder, &[("bench", wrapper)], self.lines)?;
        report.row(name, measured, "1/s", "from arrival to acknowledgement");
        if let Some(limit) = limit {
            let floor = Reference::new("read, then appended", floor);
            let name = format!("elements stored, {name}");
            report.target(name, (measured, "1/s"), floor, Limit::AtLeast(limit));
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<std::path::PathBuf, Error> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(Error::io(format!("writing {name}")))?;
        Ok(path)
    }
}

/// The rate of doing one after the other.
fn both(a: f64, b: f64) -> f64 {
    1.0 / (1.0 / a + 1.0 / b)
}

/// The stream of all wrappers.
const STREAM: &str = "level = \"power\"\n[[stream]]\nname = \"bench\"\nfields = [\
    { name = \"temperature\", type = \"double\", unit = \"Cel\" }, { name = \"people\", type = \"integer\" }]\n";

/// A wrapper of a file.
fn file_wrapper(path: &Path) -> String {
    format!(
        "kind = \"file\"\npath = \"{}\"\nstart = \"oldest\"\n\
         format = {{ csv = {{ time = \"source_time\" }} }}\n{STREAM}",
        path.display()
    )
}

/// A processor that copies each element.
const COPY: &str = r#"import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "element" in message:
        sys.stdout.write(json.dumps({"element": message["element"]["values"]}) + "\n")
    elif "mark" in message:
        sys.stdout.write(json.dumps({"stored": message["mark"]}) + "\n")
        sys.stdout.flush()
    elif "stop" in message:
        break
"#;

fn messages(lines: usize, mark_every: usize) -> String {
    let mut text = String::new();
    for line in 1..=lines {
        let temperature = line % 40;
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "{{\"element\":{{\"source_time\":\"2026-11-21T10:00:00Z\",\"temperature\":{temperature}.25,\"people\":{line}}}"
        );
        if line % mark_every == 0 {
            let _ = write!(text, ",\"mark\":{line}");
        }
        text.push_str("}\n");
    }
    text
}

fn csv(lines: usize) -> String {
    let mut text = "source_time,temperature,people\n".to_owned();
    for line in 1..=lines {
        let temperature = line % 40;
        let _ = writeln!(text, "2026-11-21T10:00:00Z,{temperature}.25,{line}");
    }
    text
}
