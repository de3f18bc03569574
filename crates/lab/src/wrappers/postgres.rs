//! A stream that is copied into a table of PostgreSQL, next to a COPY of the same rows by psql.

use std::time::{Duration, Instant};

use super::{Wrappers, exporters, node};
use crate::write::postgres::Postgres;
use crate::{Error, Limit, Reference, Report};

/// Repeats; the fastest of each counts.
const REPEATS: usize = 3;
/// Time between two looks at the table; reason: each look starts psql.
const LOOK: Duration = Duration::from_millis(50);
/// The least share of the rate of COPY.
const LIMIT: f64 = 0.8;

pub(super) fn run(bench: &Wrappers<'_>, quick: bool, report: &mut Report) -> Result<(), Error> {
    let server = match Postgres::start(bench.folder) {
        Ok(server) => server,
        Err(reason) => {
            report
                .skipped
                .push(format!("copied to PostgreSQL: {reason}"));
            return Ok(());
        }
    };
    let folder = exporters::filled(bench)?;
    let lines = bench.lines as u64;
    let address = format!(
        "postgres://postgres@/postgres?host={}",
        server.folder().display()
    );
    let failed = |reason: String| Error::Failed(reason);
    let (mut exported, mut copied) = (f64::INFINITY, f64::INFINITY);
    for repeat in 0..if quick { 1 } else { REPEATS } {
        (bench.progress)(&format!("postgres: exporter, repeat {}", repeat + 1));
        let table = format!("copied_{repeat}");
        let text = format!(
            "kind = \"postgres\"\nstreams = [\"bench\"]\naddress = \"{address}\"\ntable = \"{table}\"\n\
             create = true\n"
        );
        let directory = folder.join("exporters");
        let _ = std::fs::remove_dir_all(&directory);
        node::write(&directory, &format!("copy-{repeat}.toml"), &text)?;
        let query = format!(
            "select coalesce(max(sequence), 0) from chappe_cursor where exporter = 'copy-{repeat}'"
        );
        let seconds = node::with(node::config(&folder), async |_| {
            let start = Instant::now();
            // The table of cursors may not be there yet.
            let at = || {
                server
                    .value(&query)
                    .ok()
                    .and_then(|text| text.parse::<u64>().ok())
            };
            while at() < Some(lines) {
                tokio::time::sleep(LOOK).await;
            }
            Ok(start.elapsed().as_secs_f64())
        })?;
        exported = exported.min(seconds);
        (bench.progress)(&format!("postgres: COPY, repeat {}", repeat + 1));
        let file = server.folder().join("rows");
        let file = file.display();
        server
            .statement(&format!("copy {table} to '{file}' (format binary)"))
            .map_err(failed)?;
        // The same table, with the same key.
        server
            .statement(&format!("truncate {table}"))
            .map_err(failed)?;
        let start = Instant::now();
        server
            .statement(&format!("\\copy {table} from '{file}' (format binary)"))
            .map_err(failed)?;
        copied = copied.min(start.elapsed().as_secs_f64());
    }
    let rate = |seconds: f64| lines as f64 / seconds;
    report.row(
        "copied to PostgreSQL by an exporter",
        rate(exported),
        "1/s",
        "from the start of the node",
    );
    report.row(
        "copied to PostgreSQL by psql",
        rate(copied),
        "1/s",
        "the same rows, COPY in binary",
    );
    report.target(
        "copied to PostgreSQL",
        (rate(exported), "1/s"),
        Reference::new("COPY of the same rows", rate(copied)),
        Limit::AtLeast(LIMIT),
    );
    Ok(())
}
