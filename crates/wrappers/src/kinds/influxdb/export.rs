//! Writes elements to an InfluxDB of version 1 or 2.
//!
//! A point that is written again replaces itself, because the measurement, the tags and the time identify it. So a
//! request of which the server refused some points is sent again in halves, down to the points at fault.

use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chappe_format::{Encoder, Encoding};
use chappe_stream::{DescriptorError, Position, Value};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::exporter::TURN_TIME;
use crate::kinds::http::peer::{Address, HttpPeer, Trust, address, secret};
use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, ExporterOpening, Refused, Step, WrapperError,
    Written,
};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Points of one request; reason: InfluxDB's documentation recommends 5,000.
const POINTS_MAX: usize = 5_000;
/// Bytes of one request without its compression; reason: a server refuses a longer one.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Characters of an answer that a dead letter repeats.
const SHOWN_MAX: usize = 200;

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "influxdb",
    about: "writes elements to an InfluxDB of version 1 or 2",
    written: "the server answers with status 204",
    may_double: "no: a point that is written again replaces itself",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The version of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum Version {
    #[serde(rename = "1")]
    V1,
    #[serde(rename = "2")]
    V2,
}

/// The keys of an exporter of kind `influxdb`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The address of the server: http://HOST:PORT or https://…, optionally with a path that precedes those of the
    /// interface.
    address: String,
    /// The version of its interface: `"1"` or `"2"`. Default: `"2"`.
    version: Option<Version>,
    /// Version 1: the database.
    database: Option<String>,
    /// Version 1: the retention policy. Default: that of the database.
    retention_policy: Option<String>,
    /// Version 1: the user.
    user: Option<String>,
    /// Version 1: the file with the password. Relative to this file.
    password_file: Option<PathBuf>,
    /// Version 2: the organization.
    organization: Option<String>,
    /// Version 2: the bucket.
    bucket: Option<String>,
    /// Version 2: the file with the token. Relative to this file.
    token_file: Option<PathBuf>,
    /// Whether requests are compressed.
    #[serde(default = "compresses")]
    gzip: bool,
    /// How the server is authenticated.
    #[serde(default)]
    server: Trust,
}

const fn compresses() -> bool {
    true
}

impl Settings {
    /// The path of the interface with its query.
    fn path(&self, file: &ExporterFile, address: &Address) -> Result<String, DescriptorError> {
        let missing = |key: &str, version: &str| {
            let message = format!("version {version} needs the key {key}");
            file.fault("version", message, Some(format!("add {key} = \"…\"")))
        };
        let other = |key: &str, version: &str| {
            let message = format!("the key is of version {version}");
            Err(file.fault(key, message, Some("set `version`".to_owned())))
        };
        let base = address.path().trim_end_matches('/');
        if base.contains('?') {
            let message = "the address has a query".to_owned();
            return Err(file.fault("address", message, Some("use the keys for it".to_owned())));
        }
        if self.version == Some(Version::V1) {
            for (key, is_set) in [
                ("bucket", self.bucket.is_some()),
                ("organization", self.organization.is_some()),
                ("token_file", self.token_file.is_some()),
            ] {
                if is_set {
                    return other(key, "2");
                }
            }
            let database = self
                .database
                .as_ref()
                .ok_or_else(|| missing("database", "1"))?;
            let policy = self.retention_policy.as_ref();
            let policy =
                policy.map_or_else(String::new, |policy| format!("&rp={}", encoded(policy)));
            return Ok(format!(
                "{base}/write?db={}{policy}&precision=ns",
                encoded(database)
            ));
        }
        for (key, is_set) in [
            ("database", self.database.is_some()),
            ("retention_policy", self.retention_policy.is_some()),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
        ] {
            if is_set {
                return other(key, "1");
            }
        }
        let bucket = self.bucket.as_ref().ok_or_else(|| missing("bucket", "2"))?;
        let organization = self.organization.as_ref();
        let organization = organization.ok_or_else(|| missing("organization", "2"))?;
        Ok(format!(
            "{base}/api/v2/write?org={}&bucket={}&precision=ns",
            encoded(organization),
            encoded(bucket)
        ))
    }

    /// The credential.
    fn authorization(&self, file: &ExporterFile) -> Result<Option<HeaderValue>, WrapperError> {
        let password = self
            .password_file
            .as_ref()
            .map(|path| secret(&file.path(path)));
        let token = self
            .token_file
            .as_ref()
            .map(|path| secret(&file.path(path)));
        let text = match (password.transpose()?, token.transpose()?) {
            (Some(password), _) => {
                let user = self.user.as_deref().unwrap_or_default();
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            (None, Some(token)) => format!("Token {token}"),
            (None, None) => return Ok(None),
        };
        let wrong = |_| WrapperError::settings("the token has characters of no token");
        let mut value = HeaderValue::try_from(text).map_err(wrong)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// A value of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn settings(file: &ExporterFile) -> Result<(Settings, Address, String), DescriptorError> {
    let settings: Settings = file.settings()?;
    let address = address(file, "address", &settings.address)?;
    let path = settings.path(file, &address)?;
    Ok((settings, address, path))
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let (settings, address, path) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let authorization = settings.authorization(file)?;
    let relative = |path: &std::path::Path| file.path(path);
    let server = settings.server.into();
    let peer = HttpPeer::new(address, &server, relative, ANSWER_BYTES_MAX)?;
    Ok(Box::new(InfluxExporter {
        peer,
        path,
        authorization,
        is_gzip: settings.gzip,
        turn: TURN_TIME,
    }))
}

struct InfluxExporter {
    peer: HttpPeer,
    path: String,
    authorization: Option<HeaderValue>,
    is_gzip: bool,
    /// Time after which a call returns what the server has.
    turn: Duration,
}

/// A point of a request.
struct Point<'b> {
    stream: &'b str,
    position: Position,
    /// Where its line ends in the text of the request.
    end: usize,
}

/// The points of a request.
#[derive(Default)]
struct Points<'b> {
    text: String,
    points: Vec<Point<'b>>,
}

impl Exporter for InfluxExporter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            let begun = Instant::now();
            let (mut written, mut reached) = (Written::default(), Vec::new());
            let mut at = Place::default();
            loop {
                let request = next_request(batch, &mut at, &mut written);
                if request.points.is_empty() {
                    return Ok(written);
                }
                if !reached.is_empty() && begun.elapsed() >= self.turn {
                    return written.until(reached, None);
                }
                if let Err(error) = self.send_all(&request, &mut written).await {
                    return written.until(reached, Some(error));
                }
                for point in request.points {
                    note(&mut reached, point.stream, point.position);
                }
            }
        })
    }
}

/// The part of a batch and the element of it that come next.
#[derive(Default)]
struct Place {
    part: usize,
    element: usize,
}

/// The points of the next request. Elements that are no points are refused.
fn next_request<'b>(batch: &'b Batch, at: &mut Place, written: &mut Written) -> Points<'b> {
    let mut request = Points::default();
    while let Some(part) = batch.parts.get(at.part) {
        let schema = part.definition.schema.clone();
        let encoder = Encoder::new(Encoding::LineProtocol, &part.stream, schema.into());
        for element in &part.elements[at.element..] {
            if request.points.len() >= POINTS_MAX || request.text.len() >= REQUEST_BYTES_MAX {
                return request;
            }
            at.element += 1;
            let is_finite =
                |value: &Value| !matches!(value, Value::Double(number) if !number.is_finite());
            let encoded = match element.values.iter().all(is_finite) {
                true => encoder
                    .encode(element, &mut request.text)
                    .map_err(|error| error.to_string()),
                false => Err("InfluxDB has no number that is not finite".to_owned()),
            };
            match encoded {
                Ok(()) => request.points.push(Point {
                    stream: &part.stream,
                    position: element.position,
                    end: request.text.len(),
                }),
                Err(reason) => written.refused.push(Refused {
                    stream: part.stream.to_string(),
                    position: element.position,
                    reason,
                }),
            }
        }
        *at = Place {
            part: at.part + 1,
            element: 0,
        };
    }
    request
}

/// Notes how far the server has a stream.
fn note(reached: &mut Vec<(String, Position)>, stream: &str, position: Position) {
    match reached.iter_mut().find(|(known, _)| known == stream) {
        Some((_, known)) => *known = position,
        None => reached.push((stream.to_owned(), position)),
    }
}

/// What a server does with a request.
enum Outcome {
    /// It has the points.
    Done,
    /// It refuses some of them, or all: why.
    Refused(String),
}

impl Points<'_> {
    /// The lines of some points.
    fn lines(&self, range: &Range<usize>) -> &str {
        let end_before = |index: usize| index.checked_sub(1).map_or(0, |at| self.points[at].end);
        &self.text[end_before(range.start)..end_before(range.end)]
    }
}

impl InfluxExporter {
    /// Sends the points of a request, in halves as long as the server refuses some.
    async fn send_all(
        &self,
        request: &Points<'_>,
        written: &mut Written,
    ) -> Result<(), WrapperError> {
        let mut waiting: Vec<_> = std::iter::once(0..request.points.len()).collect();
        while let Some(range) = waiting.pop() {
            let Outcome::Refused(reason) = self.send(request.lines(&range)).await? else {
                continue;
            };
            match range.len() {
                0 => {}
                1 => {
                    let point = &request.points[range.start];
                    written.refused.push(Refused {
                        stream: point.stream.to_owned(),
                        position: point.position,
                        reason,
                    });
                }
                count => {
                    let middle = range.start + count / 2;
                    waiting.extend([middle..range.end, range.start..middle]);
                }
            }
        }
        Ok(())
    }

    /// Sends some lines in one request.
    async fn send(&self, lines: &str) -> Result<Outcome, WrapperError> {
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, kind);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let body = match self.is_gzip {
            false => lines.as_bytes().to_vec(),
            true => {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                compressed(lines)
                    .map_err(|error| WrapperError::peer(format!("cannot compress: {error}")))?
            }
        };
        let sent =
            self.peer
                .request_at(self.path.clone(), Method::POST, headers, Bytes::from(body));
        let answer = sent.await?;
        let status = answer.status;
        // Another status of success comes from what is no server of InfluxDB, such as the page of a proxy.
        if status == StatusCode::NO_CONTENT {
            return Ok(Outcome::Done);
        }
        let text = String::from_utf8_lossy(&answer.body);
        let text: String = text.trim().chars().take(SHOWN_MAX).collect();
        if matches!(
            status,
            StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNPROCESSABLE_ENTITY
        ) {
            return Ok(Outcome::Refused(format!("{status}: {text}")));
        }
        let after = answer
            .headers
            .get(RETRY_AFTER)
            .and_then(|it| it.to_str().ok());
        let after = after.map_or_else(String::new, |it| format!(", retry after {it}"));
        let error = WrapperError::peer(format!("the server answers {status}{after}: {text}"));
        Err(match status {
            StatusCode::NOT_FOUND => error.with_hint("create the database or bucket at the server"),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                error.with_hint("correct the credential in its file")
            }
            _ => error,
        })
    }
}

fn compressed(lines: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(lines.as_bytes())?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chappe_stream::{Epoch, Field, FieldType, StreamSchema};

    use super::*;
    use crate::kinds::http::peer::tests_server::serve;

    fn batch(values: &[f64]) -> Batch {
        let definition = Arc::new(crate::StreamDefinition {
            schema: StreamSchema {
                fields: vec![Field {
                    name: "value".to_owned(),
                    field_type: FieldType::Double,
                    unit: None,
                    observed_property: None,
                    description: None,
                }],
                key: Some("machine".to_owned()),
            },
            ..crate::StreamDefinition::default()
        });
        let mut batch = Batch::default();
        for (number, value) in (1..).zip(values) {
            let mut element = crate::tests::element(*value);
            element.key = Some("a b".to_owned());
            element.position = Position {
                epoch: Epoch(7),
                sequence: number,
            };
            batch.push(&"plant.heat".into(), &definition, element);
        }
        batch
    }

    fn file(keys: &str) -> ExporterFile {
        let text = format!("kind = \"influxdb\"\nstreams = [\"plant.*\"]\n{keys}");
        ExporterFile::parse(std::path::Path::new("out.toml"), &text).unwrap()
    }

    fn exporter(file: &ExporterFile) -> Box<dyn Exporter> {
        let opening = ExporterOpening {
            file,
            notes: Default::default(),
            drops: Default::default(),
        };
        open(opening).unwrap()
    }

    #[test]
    fn the_keys_belong_to_a_version() {
        let fault = |keys: &str| {
            let keys = format!("address = \"http://h:8086/base/\"\n{keys}");
            settings(&file(&keys))
                .map(|(_, _, path)| path)
                .map_err(|error| error.key)
        };
        let path = "/base/write?db=a%20b&rp=r&precision=ns".to_owned();
        let keys = "version = \"1\"\ndatabase = \"a b\"\nretention_policy = \"r\"";
        assert_eq!(fault(keys), Ok(path));
        let path = "/base/api/v2/write?org=o&bucket=b&precision=ns".to_owned();
        assert_eq!(fault("organization = \"o\"\nbucket = \"b\""), Ok(path));
        assert_eq!(fault("bucket = \"b\""), Err("version".to_owned()));
        assert_eq!(fault("version = \"1\""), Err("version".to_owned()));
        assert_eq!(fault("database = \"a\""), Err("database".to_owned()));
        let keys = "version = \"1\"\ndatabase = \"a\"\nbucket = \"b\"";
        assert_eq!(fault(keys), Err("bucket".to_owned()));
    }

    #[tokio::test]
    async fn points_at_fault_are_found_by_halves() {
        let taken = "HTTP/1.1 204 No Content\r\n\r\n";
        let partial = "HTTP/1.1 400 No\r\nContent-Length: 13\r\n\r\npartial write";
        let (address, requests) = serve(vec![partial, taken, partial, partial, taken]).await;
        let keys = format!(
            "address = \"http://{address}\"\norganization = \"o\"\nbucket = \"b\"\ngzip = false\n"
        );
        let mut exporter = exporter(&file(&keys));
        let written = exporter
            .write(&batch(&[1.0, 2.0, 3.0, 4.0, f64::NAN]))
            .await
            .unwrap();
        let refused: Vec<u64> = written
            .refused
            .iter()
            .map(|one| one.position.sequence)
            .collect();
        assert_eq!((refused, written.partial), (vec![5, 3], None));
        let requests = requests.lock().unwrap();
        assert!(
            requests[0].contains("plant.heat,machine=a\\ b value=1 1\n"),
            "{}",
            requests[0]
        );
        assert!(requests[3].ends_with("value=3 1\n"), "{}", requests[3]);
    }

    #[tokio::test]
    async fn a_server_that_may_change_is_asked_again() {
        let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n";
        let none = "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n";
        let (address, _) = serve(vec![busy, none]).await;
        let keys = format!(
            "address = \"http://{address}\"\nversion = \"1\"\ndatabase = \"b\"\ngzip = false\n"
        );
        let mut exporter = exporter(&file(&keys));
        let error = exporter.write(&batch(&[1.0])).await.unwrap_err();
        assert!(error.to_string().contains("retry after 9"), "{error}");
        let error = exporter.write(&batch(&[1.0])).await.unwrap_err();
        assert!(
            error.hint().unwrap().contains("create the database"),
            "{error}"
        );
    }
}
