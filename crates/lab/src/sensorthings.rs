//! Pages of observations by OGC SensorThings, from a long stream next to the same pages from a short one.
//!
//! Both streams are in one node, whose log is in the page cache. A client reads each page of both in turn; a page has
//! 100 observations unless its name says otherwise.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use chappe_node::Node;

use crate::process::Folder;
use crate::timing::median;
use crate::wrappers::node;
use crate::write::http::Client;
use crate::{Error, Limit, Reference, Report, Settings};

/// Observations of the short stream.
const SHORT: u64 = 100_000;
/// Observations of the long one, and in a quick run.
const LONG: u64 = 10_000_000;
const LONG_QUICK: u64 = 1_000_000;
/// Times that each page is read.
const REPEATS: usize = 51;
/// The time of the first observation, in milliseconds.
const START_MS: u64 = 1_795_255_200_000;
/// Time from one observation to the next.
const PERIOD_MS: u64 = 10;
/// Time between two looks at what is stored.
const LOOK: Duration = Duration::from_millis(20);
/// The most by which a page may take longer.
const LIMIT: f64 = 1.5;

/// The pages: name and query. `MIDDLE` stands for a time in the middle of the stream.
const PAGES: [(&str, &str); 7] = [
    ("the first", ""),
    ("the newest one", "$top=1&$orderby=phenomenonTime%20desc"),
    ("in the order of time", "$orderby=phenomenonTime"),
    ("after 50,000", "$skip=50000"),
    ("from a time", "$filter=phenomenonTime%20ge%20MIDDLE"),
    (
        "from a time, newest first",
        "$filter=phenomenonTime%20le%20MIDDLE&$orderby=phenomenonTime%20desc",
    ),
    ("only counted", "$count=true&$top=0"),
];

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("sensorthings", settings.seed);
    let folder = Folder::new("sensorthings")?;
    let long = if settings.quick { LONG_QUICK } else { LONG };
    let streams = [("short", SHORT), ("long", long)];
    for (name, count) in streams {
        wrapper(folder.path(), name, count)?;
    }
    let progress = settings.progress;
    let mut config = node::config(folder.path());
    config.log.keep_elements = 0;
    let times = node::with(config, async |node| {
        progress(&format!("storing {long} observations"));
        for (name, count) in streams {
            stored(node, name, count).await;
        }
        progress("reading pages");
        let address = node.address();
        let token = node.new_token().unwrap_or_default().to_owned();
        let reading = tokio::task::spawn_blocking(move || {
            let mut client = Client::connect(address, &token)?;
            PAGES
                .iter()
                .map(|(_, query)| page(&mut client, query, long))
                .collect::<Result<Vec<_>, _>>()
        });
        let panicked = |_| Err(Error::Failed("the client panicked".to_owned()));
        reading.await.unwrap_or_else(panicked)
    })?;
    for ((name, _), (short, long)) in PAGES.iter().zip(times) {
        let name = format!("page: {name}");
        report.row(&name, short * 1e3, "ms", "of 100,000");
        report.row(&name, long * 1e3, "ms", "of the long stream");
        let reference = Reference::new("of 100,000", short * 1e3);
        report.target(name, (long * 1e3, "ms"), reference, Limit::AtMost(LIMIT));
    }
    Ok(report)
}

/// A file with so many rows, and the wrapper that reads it.
fn wrapper(folder: &Path, name: &str, count: u64) -> Result<(), Error> {
    let rows = folder.join(format!("{name}.csv"));
    let failed = || Error::io("writing rows");
    let mut file = BufWriter::new(File::create(&rows).map_err(failed())?);
    writeln!(file, "at,celsius").map_err(failed())?;
    for number in 0..count {
        let (at, celsius) = (START_MS + number * PERIOD_MS, number % 40);
        writeln!(file, "{at},{celsius}.25").map_err(failed())?;
    }
    file.flush().map_err(failed())?;
    let text = format!(
        "kind = \"file\"\npath = \"{}\"\nstart = \"oldest\"\nlevel = \"process\"\n\
         format = {{ csv = {{ time = \"at\", time_format = \"ms\" }} }}\n\
         [[stream]]\nname = \"{name}\"\nfields = [{{ name = \"celsius\", type = \"double\", unit = \"Cel\" }}]\n",
        rows.display()
    );
    node::write(folder, &format!("wrappers/{name}.toml"), &text)
}

async fn stored(node: &Node, name: &str, count: u64) {
    while node.stream(name).is_none_or(|log| log.log().last() < count) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Seconds that a page of both streams takes: medians.
fn page(client: &mut Client, query: &str, long: u64) -> Result<(f64, f64), Error> {
    let paths = [("short", SHORT), ("long", long)].map(|(name, count)| {
        let query = query.replace("MIDDLE", &time(count / 2));
        format!("/sensorthings/v1.1/Datastreams('{name}:celsius')/Observations?{query}")
    });
    let (mut short, mut of_long) = (Vec::new(), Vec::new());
    let mut bytes = [0, 0];
    for _ in 0..REPEATS {
        for (path, (times, bytes)) in paths
            .iter()
            .zip([&mut short, &mut of_long].into_iter().zip(&mut bytes))
        {
            let start = Instant::now();
            *bytes = client.get(path)?.len();
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let [one, other] = bytes;
    // An answer without observations would be fast.
    if one.abs_diff(other) * 4 > one.max(other) {
        let text = format!("the pages of {query:?} have {one} and {other} bytes");
        return Err(Error::Failed(text));
    }
    Ok((median(short), median(of_long)))
}

/// The time of an observation.
fn time(number: u64) -> String {
    let ns = (START_MS + number * PERIOD_MS) * 1_000_000;
    chappe_stream::Timestamp(ns.cast_signed()).to_string()
}
