//! The files of the console, embedded in the program. A test holds that none is left out.

const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! assets {
    ($(($path:literal, $mime:expr),)*) => {
        &[$(($path, $mime, include_bytes!($path))),*]
    };
}

/// Path under `/`, media type, bytes. `index.html` answers `/` as well.
pub(crate) const ASSETS: &[(&str, &str, &[u8])] = assets![
    ("answer-words.js", JS),
    ("api.js", JS),
    ("band-words.js", JS),
    ("bands.js", JS),
    ("buffer.js", JS),
    ("chart.js", JS),
    ("console.css", CSS),
    ("dom.js", JS),
    ("entity-picture.js", JS),
    ("entity-words.js", JS),
    ("events.js", JS),
    ("format.js", JS),
    ("frames.js", JS),
    ("history.js", JS),
    ("index.html", HTML),
    ("link-layout.js", JS),
    ("link-picture.js", JS),
    ("live.js", JS),
    ("main.js", JS),
    ("mark.svg", SVG),
    ("model.js", JS),
    ("pace.js", JS),
    ("page-accounts.js", JS),
    ("page-devices.js", JS),
    ("page-dropped.js", JS),
    ("page-entity.js", JS),
    ("page-links.js", JS),
    ("page-node.js", JS),
    ("page-overview.js", JS),
    ("page-registry.js", JS),
    ("page-sensors.js", JS),
    ("page-streams.js", JS),
    ("page-topics.js", JS),
    ("page-wrappers.js", JS),
    ("range-chart.js", JS),
    ("ring.js", JS),
    ("semaphore.js", JS),
    ("sensor-editor.js", JS),
    ("spark.js", JS),
    ("time-window.js", JS),
    ("topic-words.js", JS),
    ("vendor/uPlot.LICENSE", TEXT),
    ("vendor/uPlot.iife.min.js", JS),
    ("vendor/uPlot.min.css", CSS),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn files(directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_none_or(|extension| extension != "rs") {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }

    #[test]
    fn every_file_of_the_console_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut found = Vec::new();
        files(&root, &mut found);
        found.sort();
        let embedded = super::ASSETS.iter().map(|(name, ..)| root.join(name));
        let mut embedded: Vec<_> = embedded
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        embedded.sort();
        assert_eq!(found, embedded, "files of the console, ASSETS");
    }
}
