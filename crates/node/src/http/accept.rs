//! Which of several representations a client wants most: RFC 9110, sections 12.4.2 and 12.5.1.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::ResultFormat;

use super::problem::Problem;

/// Maximum number of entries of a header that are read.
const ENTRIES_MAX: usize = 64;

/// The formats that a client accepts.
#[derive(Debug)]
pub(super) struct Accepted {
    /// Media ranges with their weight in thousandths; none: everything is accepted.
    ranges: Vec<(String, u16)>,
}

impl Accepted {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::ACCEPT).iter();
        let entries = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        let ranges = entries.take(ENTRIES_MAX).map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| {
                let (name, value) = part.split_once('=')?;
                name.trim().eq_ignore_ascii_case("q").then(|| weight(value))
            });
            (range, weight.unwrap_or(1_000))
        });
        Self {
            ranges: ranges.collect(),
        }
    }

    /// The best of the formats, the first of equal ones; `None` if none is acceptable.
    pub(super) fn best(&self, formats: &[ResultFormat]) -> Option<ResultFormat> {
        let weighted = formats.iter().map(|format| (self.weight(*format), format));
        let acceptable = weighted.filter(|(weight, _)| *weight > 0);
        // Of equal ones `max_by_key` returns the last.
        let best = acceptable.rev().max_by_key(|(weight, _)| *weight);
        best.map(|(_, format)| *format)
    }

    /// Whether this media type itself is accepted.
    pub(super) fn has(&self, media_type: &str) -> bool {
        let is_it = |(range, weight): &(String, u16)| range == media_type && *weight > 0;
        self.ranges.iter().any(is_it)
    }

    /// The weight of a format: that of the most specific range that includes it.
    fn weight(&self, format: ResultFormat) -> u16 {
        if self.ranges.is_empty() {
            return 1_000;
        }
        let specific = |range: &str| {
            let (kind, _) = format.media_type().split_once('/').unwrap_or_default();
            match range {
                "*/*" => Some(0),
                _ if range.strip_suffix("/*") == Some(kind) => Some(1),
                _ if names(format).contains(&range) => Some(2),
                _ => None,
            }
        };
        let including = self.ranges.iter().filter_map(|(range, weight)| {
            let specific = specific(range)?;
            Some((specific, *weight))
        });
        including.max().map_or(0, |(_, weight)| weight)
    }
}

/// The names of a format: the registered one, and those that clients use for it.
fn names(format: ResultFormat) -> [&'static str; 3] {
    let media_type = format.media_type();
    match format {
        ResultFormat::Json => [media_type, "application/json", "text/json"],
        ResultFormat::Xml | ResultFormat::RdfXml => [media_type, "application/xml", "text/xml"],
        ResultFormat::NTriples => [media_type, "text/ntriples", "text/n-triples"],
        ResultFormat::Turtle => [media_type, "application/turtle", "application/x-turtle"],
        ResultFormat::Csv | ResultFormat::Tsv => [media_type; 3],
    }
}

/// A weight in thousandths; one that cannot be read counts as 0.
fn weight(text: &str) -> u16 {
    let weight: f32 = text.trim().parse().unwrap_or(0.0);
    // Between 0 and 1000, so nothing is lost.
    (weight.clamp(0.0, 1.0) * 1_000.0) as u16
}

/// The answer to a request that accepts none of the formats.
pub(super) fn not_acceptable(formats: &[ResultFormat]) -> Problem {
    let offered = formats.iter().map(|format| format.media_type());
    let offered = offered.collect::<Vec<_>>().join(", ");
    let detail = "none of the formats of this answer is acceptable";
    Problem::new(axum::http::StatusCode::NOT_ACCEPTABLE, detail)
        .hint(format!("accept one of {offered}"))
}

/// A body in a format.
pub(super) fn response(format: ResultFormat, body: Vec<u8>) -> Response {
    let media_type = format.media_type();
    let content_type = match media_type.starts_with("text/") {
        true => format!("{media_type}; charset=utf-8"),
        false => media_type.to_owned(),
    };
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::VARY, "accept".to_owned()),
    ];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResultFormat::{Csv, Json, NTriples, RdfXml, Tsv, Turtle, Xml};

    fn best(lines: &[&str], formats: &[ResultFormat]) -> Option<ResultFormat> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT, line.parse().unwrap());
        }
        Accepted::of(&headers).best(formats)
    }

    #[test]
    fn the_heaviest_format_wins_and_the_first_of_equals() {
        for (lines, rows, graph) in [
            (&[][..], Some(Json), Some(Turtle)),
            (&["*/*"], Some(Json), Some(Turtle)),
            (&["text/csv"], Some(Csv), None),
            (&["text/*"], Some(Csv), Some(Turtle)),
            (
                &["text/csv;q=0.5, text/tab-separated-values"],
                Some(Tsv),
                None,
            ),
            (
                &["application/*;q=0.9", "text/turtle"],
                Some(Json),
                Some(Turtle),
            ),
            (&["application/xml, text/html"], Some(Xml), Some(RdfXml)),
            (
                &["application/n-triples; charset=utf-8 ; Q=0.1"],
                None,
                Some(NTriples),
            ),
            // The most specific range counts, not the heaviest.
            (
                &["*/*, application/sparql-results+json;q=0"],
                Some(Xml),
                Some(Turtle),
            ),
            (&["application/rdf+xml,*/*;q=0.1"], Some(Json), Some(RdfXml)),
            (&["text/html"], None, None),
            (&["text/csv;q=high"], None, None),
            (&[" , ,"], Some(Json), Some(Turtle)),
        ] {
            assert_eq!(best(lines, &ResultFormat::OF_ROWS), rows, "{lines:?}");
            assert_eq!(best(lines, &ResultFormat::OF_GRAPHS), graph, "{lines:?}");
        }
    }
}
