//! Polls a document. A document that did not change since the last stored one is not read again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_stream::DescriptorError;
use chappe_transport::http::Answer;
use hyper::header::{
    DATE, ETAG, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use hyper::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Interval, MissedTickBehavior};

use super::peer::{Address, HttpPeer, Server, address};
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, Mark, Step, Wrapper, WrapperError, WrapperFile,
    WrapperKind, WrapperOpening,
};

/// The version of a mark.
const FORMAT: u8 = 1;
/// Longest entity tag or date in bytes; a longer one is not sent back, and the checksum decides.
const VALIDATOR_BYTES_MAX: usize = 256;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "http_poll",
    about: "a document at an address, requested at regular intervals",
    delivery: Delivery {
        acknowledges: "never: a GET changes nothing",
        resumes: "entity tag, date and checksum of the last stored document",
        may_double: "records that a changed document repeats",
        may_miss: "documents that are replaced between two requests",
        back_pressure: "nothing is requested while storing lags",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `http_poll`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The address: http://HOST:PORT/PATH or https://….
    address: String,
    /// Time between two requests. Default: 60.
    #[serde(default = "period_default")]
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    period_s: u64,
    /// How the server is authenticated, and the credential of requests to it.
    #[serde(default)]
    server: Server,
}

fn period_default() -> u64 {
    60
}

fn settings(file: &WrapperFile) -> Result<(Settings, Address, Decoder), DescriptorError> {
    let settings: Settings = file.settings()?;
    let address = address(file, "address", &settings.address)?;
    if !(1..=86_400).contains(&settings.period_s) {
        let message = "it is not within 1 to 86400".to_owned();
        return Err(file.fault("period_s", message, None));
    }
    let decoder = Decoder::new(file, &[])?;
    Ok((settings, address, decoder))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let (settings, address, decoder) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let relative = |path: &std::path::Path| file.path(path);
    let peer = HttpPeer::new(address, &settings.server, relative, BATCH_BYTES_MAX)?;
    let mut tick = tokio::time::interval(Duration::from_secs(settings.period_s));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Ok(Box::new(PollWrapper {
        peer: Arc::new(peer),
        asking: None,
        decoder,
        tick,
        version: Version::read(opening.mark.as_ref())?,
        condition: opening.condition,
    }))
}

/// What identifies a version of the document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Version {
    etag: Option<String>,
    modified: Option<String>,
    /// Length and checksum of its bytes.
    bytes: Option<(u64, u32)>,
}

impl Version {
    fn read(mark: Option<&Mark>) -> Result<Self, WrapperError> {
        let Some(mark) = mark else {
            return Ok(Self::default());
        };
        let version = match mark.bytes().split_first() {
            Some((&FORMAT, bytes)) => postcard::from_bytes(bytes).ok(),
            _ => None,
        };
        version.ok_or_else(|| WrapperError::unreadable_mark(mark, FORMAT, "a document"))
    }

    fn of(headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: HeaderName| {
            let text = headers.get(name)?.to_str().ok()?;
            (text.len() <= VALIDATOR_BYTES_MAX).then(|| text.to_owned())
        };
        // A document that was modified in the second of its answer may change once more within it, and servers
        // of files make date and tag from that second (RFC 9110, 8.8.2.2).
        let modified = text(LAST_MODIFIED);
        let is_settled = modified.is_none() || modified != text(DATE);
        Self {
            etag: text(ETAG).filter(|_| is_settled),
            modified: modified.filter(|_| is_settled),
            bytes: Some((body.len() as u64, crc32fast::hash(body))),
        }
    }

    fn mark(&self) -> Mark {
        let mut bytes = vec![FORMAT];
        // Two short texts and two numbers always encode, and are shorter than the limit.
        bytes.extend(postcard::to_allocvec(self).unwrap_or_default());
        Mark::new(bytes).unwrap_or_default()
    }

    /// The conditions of the next request.
    fn conditions(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: &Option<String>| {
            if let Some(value) = text.as_ref().and_then(|it| HeaderValue::try_from(it).ok()) {
                headers.insert(name, value);
            }
        };
        set(IF_NONE_MATCH, &self.etag);
        set(IF_MODIFIED_SINCE, &self.modified);
        headers
    }
}

struct PollWrapper {
    peer: Arc<HttpPeer>,
    /// The request under way, which outlives a step that is dropped.
    asking: Option<Step<'static, Result<Answer, WrapperError>>>,
    decoder: Decoder,
    tick: Interval,
    version: Version,
    condition: Condition,
}

impl Wrapper for PollWrapper {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                if self.asking.is_none() {
                    self.tick.tick().await;
                }
                let asking = self.asking.get_or_insert_with(|| {
                    let (peer, conditions) = (self.peer.clone(), self.version.conditions());
                    Box::pin(async move {
                        let body = Bytes::new();
                        peer.request(Method::GET, conditions, body).await
                    })
                });
                let answer = asking.await;
                self.asking = None;
                let answer = answer?;
                match answer.status {
                    StatusCode::NOT_MODIFIED => {
                        self.condition.waits("the document has not changed");
                        continue;
                    }
                    // Another one of success has no document, or a part of it.
                    status if status != StatusCode::OK => {
                        return Err(WrapperError::peer(format!("the server answers {status}")));
                    }
                    _ => {}
                }
                let version = Version::of(&answer.headers, &answer.body);
                if version.bytes == self.version.bytes {
                    self.version = version;
                    self.condition.waits("the document has not changed");
                    continue;
                }
                self.condition.runs();
                let mut batch = Batch {
                    mark: version.mark(),
                    ..Batch::default()
                };
                self.decoder.message(&answer.body, now(), &mut batch);
                self.version = version;
                return Ok(batch);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::http::peer::tests_server::serve;
    use crate::tests::{open, wrapper_file};

    #[tokio::test]
    async fn a_document_is_read_once_for_each_version() {
        // The first answer has a tag; the second says that nothing changed; the third is another one.
        let (address, requests) = serve(vec![
            "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 25\r\n\r\n[{\"value\":1},{\"value\":2}]",
            "HTTP/1.1 304 Not Modified\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n[{\"value\":3}]",
        ])
        .await;
        let text = format!(
            "kind = \"http_poll\"\naddress = \"http://{address}/data?x=1\"\nperiod_s = 1\nformat = {{ json = {{ each = \"$[*]\" }} }}\n\
             [[stream]]\nname = \"a\"\nfields = [{{ name = \"value\", type = \"integer\" }}]\n"
        );
        let file = wrapper_file(&text);
        let first = open(&file, None).next().await.unwrap();
        assert_eq!(first.elements(), 2);
        // A new start continues with the mark.
        let mut again = open(&file, Some(first.mark));
        let second = again.next().await.unwrap();
        assert_eq!(second.elements(), 1);
        let requests = requests.lock().unwrap();
        assert!(
            requests[0].starts_with("GET /data?x=1 HTTP/1.1\r\n"),
            "{requests:?}"
        );
        assert!(!requests[0].to_lowercase().contains("if-none-match"));
        assert!(
            requests[1].to_lowercase().contains("if-none-match: \"a\""),
            "{requests:?}"
        );
    }

    #[tokio::test]
    async fn a_document_that_changes_twice_in_a_second_is_read_again() {
        let answer = "HTTP/1.1 200 OK\r\nDate: Thu, 26 Nov 2026 03:00:00 GMT\r\nETag: \"1\"\r\n\
            Last-Modified: Thu, 26 Nov 2026 03:00:00 GMT\r\nContent-Length: 11\r\n\r\n{\"value\":1}";
        let later = "HTTP/1.1 200 OK\r\nDate: Thu, 26 Nov 2026 03:00:01 GMT\r\nETag: \"1\"\r\n\
            Last-Modified: Thu, 26 Nov 2026 03:00:00 GMT\r\nContent-Length: 11\r\n\r\n{\"value\":2}";
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"value\":3}";
        let (address, requests) = serve(vec![answer, later, later, last]).await;
        let text = format!(
            "kind = \"http_poll\"\naddress = \"http://{address}/\"\nperiod_s = 1\nformat = \"json\"\n\
             [[stream]]\nname = \"a\"\nfields = [{{ name = \"value\", type = \"integer\" }}]\n"
        );
        let file = wrapper_file(&text);
        let first = open(&file, None).next().await.unwrap();
        let mut again = open(&file, Some(first.mark));
        // The same tag, and other bytes.
        assert_eq!(again.next().await.unwrap().elements(), 1);
        // The same bytes, then another document.
        assert_eq!(again.next().await.unwrap().elements(), 1);
        let requests = requests.lock().unwrap();
        let tags = requests
            .iter()
            .map(|it| it.to_lowercase().contains("if-none-match: \"1\""));
        assert_eq!(
            tags.collect::<Vec<_>>(),
            [false, false, true, true],
            "{requests:?}"
        );
    }

    #[tokio::test]
    async fn an_error_of_the_server_is_one_of_the_wrapper() {
        let (address, _) = serve(vec!["HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"]).await;
        let text = format!(
            "kind = \"http_poll\"\naddress = \"http://{address}/\"\nformat = \"json\"\n\
             [[stream]]\nname = \"a\"\nfields = [{{ name = \"value\", type = \"integer\" }}]\n"
        );
        let error = open(&wrapper_file(&text), None).next().await.unwrap_err();
        assert!(error.to_string().contains("500"), "{error}");
    }
}
