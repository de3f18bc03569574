//! Sends elements by HTTP: one request for each batch.

use std::time::{Duration, Instant};

use bytes::Bytes;
use chappe_stream::view::ElementView;
use chappe_stream::{DescriptorError, StreamElement};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::peer::{Address, HttpPeer, Server, address};
use crate::exporter::TURN_TIME;
use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, ExporterOpening, Part, Refused, Step,
    WrapperError, Written,
};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Elements of one request; reason: a server refuses a request as a whole.
const ELEMENTS_MAX: usize = 256;
/// Characters of an answer that a dead letter repeats.
const SHOWN_MAX: usize = 200;
/// The header that is the same for the same elements.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "http_push",
    about: "sends elements to an address by POST",
    written: "the server answers with a status from 200 to 299",
    may_double: "the last request after a crash or a lost answer; it has the same `Idempotency-Key`, unless more elements are there by then",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `http_push`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The address: http://HOST:PORT/PATH or https://….
    address: String,
    /// How the server is authenticated, and the credential of requests to it.
    #[serde(default)]
    server: Server,
}

fn settings(file: &ExporterFile) -> Result<(Settings, Address), DescriptorError> {
    let settings: Settings = file.settings()?;
    let address = address(file, "address", &settings.address)?;
    Ok((settings, address))
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let (settings, address) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let relative = |path: &std::path::Path| file.path(path);
    let peer = HttpPeer::new(address, &settings.server, relative, ANSWER_BYTES_MAX)?;
    Ok(Box::new(PushExporter {
        peer,
        turn: TURN_TIME,
    }))
}

struct PushExporter {
    peer: HttpPeer,
    /// Time after which a call returns what the server has.
    turn: Duration,
}

impl Exporter for PushExporter {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            let (mut written, mut reached) = (Written::default(), Vec::new());
            let begun = Instant::now();
            for part in &batch.parts {
                let mut last = None;
                for elements in part.elements.chunks(ELEMENTS_MAX) {
                    let has_any = last.is_some() || !reached.is_empty();
                    if has_any && begun.elapsed() >= self.turn {
                        reached.extend(last);
                        return written.until(reached, None);
                    }
                    if let Err(error) = self.send_all(part, elements, &mut written).await {
                        reached.extend(last);
                        return written.until(reached, Some(error));
                    }
                    let position = elements.last().map(|element| element.position);
                    last = position.map(|at| (part.stream.to_string(), at));
                }
                reached.extend(last);
            }
            Ok(written)
        })
    }
}

/// What a server does with a request.
enum Outcome {
    /// It has the elements, or refuses them for good.
    Done,
    /// It would take fewer.
    TooLarge,
}

impl PushExporter {
    /// Sends some elements of a part, in halves as long as a request is too large for the server.
    async fn send_all(
        &self,
        part: &Part,
        elements: &[StreamElement],
        written: &mut Written,
    ) -> Result<(), WrapperError> {
        let mut waiting = vec![elements];
        while let Some(elements) = waiting.pop() {
            if let Outcome::TooLarge = self.send(part, elements, written).await? {
                let (first, second) = elements.split_at(elements.len() / 2);
                waiting.extend([second, first]);
            }
        }
        Ok(())
    }

    /// Sends some elements of a part in one request.
    async fn send(
        &self,
        part: &Part,
        elements: &[StreamElement],
        written: &mut Written,
    ) -> Result<Outcome, WrapperError> {
        let views: Vec<_> = elements
            .iter()
            .map(|element| ElementView {
                stream: Some(&part.stream),
                element,
                schema: &part.definition.schema,
            })
            .collect();
        let body = serde_json::to_vec(&views)
            .map_err(|error| WrapperError::peer(format!("cannot encode elements: {error}")))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let (Some(first), Some(last)) = (elements.first(), elements.last()) {
            let (first, last) = (first.position, last.position.sequence);
            let key = format!("{}:{first}-{last}", part.stream);
            if let Ok(key) = HeaderValue::try_from(key) {
                headers.insert(IDEMPOTENCY_KEY, key);
            }
        }
        let answer = self
            .peer
            .request(Method::POST, headers, Bytes::from(body))
            .await?;
        let status = answer.status;
        if status.is_success() {
            return Ok(Outcome::Done);
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE && elements.len() > 1 {
            return Ok(Outcome::TooLarge);
        }
        let is_for_good = status.is_client_error() && !may_change(status);
        if !is_for_good {
            let after = answer
                .headers
                .get(RETRY_AFTER)
                .and_then(|it| it.to_str().ok());
            let after = after.map_or_else(String::new, |it| format!(", retry after {it}"));
            return Err(WrapperError::peer(format!(
                "the server answers {status}{after}"
            )));
        }
        let text = String::from_utf8_lossy(&answer.body);
        let text: String = text.chars().take(SHOWN_MAX).collect();
        written
            .refused
            .extend(elements.iter().map(|element| Refused {
                stream: part.stream.to_string(),
                position: element.position,
                reason: format!("{status}: {text}"),
            }));
        Ok(Outcome::Done)
    }
}

/// Whether the server may accept the same request later: it lacks a credential, or is busy.
fn may_change(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kinds::http::peer::tests_server::serve;
    use chappe_stream::{Epoch, Field, FieldType, Position, StreamSchema};

    fn batch(count: u64) -> Batch {
        let definition = Arc::new(crate::StreamDefinition {
            schema: StreamSchema {
                fields: vec![Field {
                    name: "value".to_owned(),
                    field_type: FieldType::Double,
                    unit: None,
                    observed_property: None,
                    description: None,
                }],
                key: None,
            },
            ..Default::default()
        });
        let mut batch = Batch::default();
        for number in 1..=count {
            let mut element = crate::tests::element(0.5);
            element.position = Position {
                epoch: Epoch(7),
                sequence: number,
            };
            batch.push(&"a.b".into(), &definition, element);
        }
        batch
    }

    #[tokio::test]
    async fn what_the_server_has_is_not_sent_again_after_a_failure() {
        let (address, _) = serve(vec![
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        ])
        .await;
        let text = format!(
            "kind = \"http_push\"\nstreams = [\"a.*\"]\naddress = \"http://{address}/in\"\n"
        );
        let file = ExporterFile::parse(std::path::Path::new("out.toml"), &text).unwrap();
        let opening = ExporterOpening {
            file: &file,
            notes: Default::default(),
            drops: Default::default(),
        };
        let mut exporter = open(opening).unwrap();
        let written = exporter
            .write(&batch(2 * ELEMENTS_MAX as u64))
            .await
            .unwrap();
        let partial = written.partial.unwrap();
        let at = Position {
            epoch: Epoch(7),
            sequence: ELEMENTS_MAX as u64,
        };
        assert_eq!(partial.reached, [("a.b".to_owned(), at)]);
        let error = partial.error.unwrap().to_string();
        assert!(error.contains("503"), "{error}");
        // A server that is slow gets the rest in another call.
        let (address, requests) = serve(vec!["HTTP/1.1 204 No Content\r\n\r\n"; 2]).await;
        let address = super::super::peer::address(&file, "address", &format!("http://{address}/"));
        let relative = |path: &std::path::Path| path.to_owned();
        let server = Server::default();
        let peer = HttpPeer::new(address.unwrap(), &server, relative, ANSWER_BYTES_MAX).unwrap();
        let turn = Duration::ZERO;
        let mut slow = PushExporter { peer, turn };
        let written = slow.write(&batch(2 * ELEMENTS_MAX as u64)).await.unwrap();
        let partial = written.partial.unwrap();
        assert_eq!(
            (partial.reached, partial.error),
            (vec![("a.b".to_owned(), at)], None)
        );
        assert_eq!(requests.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_server_takes_refuses_for_good_or_is_asked_again() {
        let (address, requests) = serve(vec![
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 422 No\r\nContent-Length: 7\r\n\r\nno unit",
            "HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n",
        ])
        .await;
        let text = format!(
            "kind = \"http_push\"\nstreams = [\"a.*\"]\naddress = \"http://{address}/in\"\n"
        );
        let file = ExporterFile::parse(std::path::Path::new("out.toml"), &text).unwrap();
        let mut exporter = open(ExporterOpening {
            file: &file,
            notes: Default::default(),
            drops: Default::default(),
        })
        .unwrap();
        let written = exporter
            .write(&batch(ELEMENTS_MAX as u64 + 1))
            .await
            .unwrap();
        assert_eq!(written.refused.len(), 1, "the second request");
        assert_eq!(
            written.refused[0].position.sequence,
            ELEMENTS_MAX as u64 + 1
        );
        assert!(written.refused[0].reason.contains("no unit"), "{written:?}");
        let error = exporter.write(&batch(1)).await.unwrap_err();
        assert!(error.to_string().contains("retry after 9"), "{error}");
        let requests = requests.lock().unwrap();
        let first = requests[0].to_lowercase();
        assert!(
            first.contains("idempotency-key: a.b:0000000000000007:1-256"),
            "{first}"
        );
        assert!(requests[2].contains("\"stream\":\"a.b\""), "{requests:?}");
    }

    #[tokio::test]
    async fn a_request_that_is_too_large_is_sent_in_halves() {
        let too_large = "HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n";
        let taken = "HTTP/1.1 204 No Content\r\n\r\n";
        let (address, requests) = serve(vec![too_large, taken, too_large, taken, too_large]).await;
        let text = format!(
            "kind = \"http_push\"\nstreams = [\"a.*\"]\naddress = \"http://{address}/in\"\n"
        );
        let file = ExporterFile::parse(std::path::Path::new("out.toml"), &text).unwrap();
        let mut exporter = open(ExporterOpening {
            file: &file,
            notes: Default::default(),
            drops: Default::default(),
        })
        .unwrap();
        let written = exporter.write(&batch(4)).await.unwrap();
        let refused: Vec<u64> = written
            .refused
            .iter()
            .map(|it| it.position.sequence)
            .collect();
        assert_eq!((refused, written.partial), (vec![4], None));
        let requests = requests.lock().unwrap();
        for (request, range) in requests.iter().zip(["1-4", "1-2", "3-4", "3-3", "4-4"]) {
            let key = format!("idempotency-key: a.b:0000000000000007:{range}\r\n");
            assert!(request.to_lowercase().contains(&key), "{range}: {request}");
        }
    }
}
