//! The wrapper of kind `gsn-remote-api`: reads a sensor by the REST interface of a GSN server, as GSN's own wrapper
//! `remote-api` does.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chappe_gsn::rest::{
    Answer, Asked, Pull, Taken, path_segment, read_answer, read_token, time_text,
};
use chappe_stream::DescriptorError;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::receive::{Marked, Start};
use super::{Target, check_stream};
use crate::clock::now;
use crate::kinds::http::peer::{Address, Failure, HttpPeer, Trust, address, secret};
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, Lost, Step, Wrapper, WrapperError, WrapperFile,
    WrapperKind, WrapperOpening,
};

/// Longest answer; reason: parsed it takes a few times as much memory. Of a longer one a part is asked for.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Most elements of a batch.
const ELEMENTS_MAX: usize = 1_024;
/// The pause before the next part of what the server has is asked for.
const PART_PAUSE: Duration = Duration::from_millis(20);
/// A token is renewed so long before it expires.
const RENEWAL: Duration = Duration::from_secs(5);

/// The kind.
pub(crate) const REMOTE_WRAPPER: WrapperKind = WrapperKind {
    name: "gsn-remote-api",
    about: "a sensor of a GSN 2 server, polled over its REST interface",
    delivery: Delivery {
        acknowledges: "never: a GET changes nothing",
        resumes: "the time of the newest stored element, from which it asks again",
        may_double: "no: a repeated element is recognized; after a restart not one that is dated more than five minutes ahead of this node's clock",
        may_miss: "elements that the server removes from its history during an outage, or stores later than younger ones",
        back_pressure: "nothing is requested while storing lags",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `gsn-remote-api`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The address of the interface, without `/api`: https://HOST:PORT/ws.
    address: String,
    /// The virtual sensor at the server.
    sensor: String,
    /// The client that the server's operator created for this node. Default: calls without a token.
    client_id: Option<String>,
    /// File with the secret of the client. Relative to this file.
    client_secret_file: Option<PathBuf>,
    /// The name of the stream, if the file has no [[stream]]. Default: made from that of the sensor.
    stream_name: Option<String>,
    /// Where to start if nothing was stored yet. Default: first.
    #[serde(default)]
    start: Start,
    /// Time between two requests once everything was read. Default: 10.
    #[serde(default = "period_default")]
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    period_s: u64,
    /// How the server is authenticated.
    #[serde(default)]
    server: Trust,
    /// Send the secret without encryption beyond this machine. Default: false.
    #[serde(default)]
    insecure: bool,
}

fn period_default() -> u64 {
    10
}

fn settings(file: &WrapperFile) -> Result<(Settings, Address), DescriptorError> {
    let settings: Settings = file.settings()?;
    let address = address(file, "address", &settings.address)?;
    if address.path().contains('?') {
        let message = "it must not have a query".to_owned();
        return Err(file.fault("address", message, None));
    }
    if settings.client_id.is_some() != settings.client_secret_file.is_some() {
        let message = "it needs client_id and client_secret_file, or neither".to_owned();
        return Err(file.fault("client_id", message, None));
    }
    if address.is_exposed() && !settings.insecure && settings.client_id.is_some() {
        let message = "it would send the secret without encryption".to_owned();
        let hint = "use https, or allow it with insecure = true".to_owned();
        return Err(file.fault("address", message, Some(hint)));
    }
    if settings.sensor.is_empty() {
        return Err(file.fault("sensor", "it is empty".to_owned(), None));
    }
    if !(1..=86_400).contains(&settings.period_s) {
        let message = "it is not within 1 to 86400".to_owned();
        return Err(file.fault("period_s", message, None));
    }
    check_stream(file, settings.stream_name.as_deref(), false)?;
    Ok((settings, address))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let (settings, address) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let marked = opening.mark.as_ref().map(Marked::read).transpose()?;
    let marked = marked.unwrap_or_default();
    let target = Target::new(file, settings.stream_name.as_deref(), &settings.sensor);
    let base = address.path().trim_end_matches('/').to_owned();
    let client = settings.client_id.zip(settings.client_secret_file);
    let relative = |path: &std::path::Path| file.path(path);
    let server = settings.server.into();
    let remote = Remote {
        peer: HttpPeer::new(address, &server, relative, ANSWER_BYTES_MAX)?,
        sensor: format!("{base}/api/sensors/{}", path_segment(&settings.sensor)),
        base,
        client: client.map(|(id, path)| (id, file.path(&path))),
        token: Mutex::default(),
    };
    let start_ms = match settings.start {
        Start::First => 0,
        Start::New => now_ms(),
    };
    let mut tick = tokio::time::interval(Duration::from_secs(settings.period_s));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Ok(Box::new(Reader {
        remote: Arc::new(remote),
        target,
        number: marked.number,
        pull: Pull::new(marked.progress(), start_ms),
        tick,
        is_waiting: true,
        asking: None,
        answer: None,
        rows: 0,
        new: 0,
        longest: 0,
        condition: opening.condition,
    }))
}

fn now_ms() -> i64 {
    now().0.div_euclid(1_000_000)
}

type Asking = Pin<Box<dyn Future<Output = Result<Bytes, Failure>> + Send>>;

struct Reader {
    remote: Arc<Remote>,
    target: Target,
    pull: Pull,
    /// The number of the last batch, so that no two marks are equal.
    number: u64,
    tick: Interval,
    /// Whether the next request waits for the tick.
    is_waiting: bool,
    asking: Option<(Asked, Asking)>,
    answer: Option<(Asked, Answer)>,
    /// Rows of the answer so far, and how many of them are new.
    rows: usize,
    new: usize,
    /// Rows of the longest answer. One as long may have been cut by the server.
    longest: usize,
    condition: Condition,
}

impl Wrapper for Reader {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                if let Some(batch) = self.batch()? {
                    self.condition.runs();
                    return Ok(batch);
                }
                self.ask().await?;
            }
        })
    }
}

impl Reader {
    /// The next new elements of the last answer.
    fn batch(&mut self) -> Result<Option<Batch>, WrapperError> {
        let Some((asked, answer)) = &mut self.answer else {
            return Ok(None);
        };
        let mut batch = Batch::default();
        let (mut count, mut bytes, mut is_complete, mut unclear) = (0, 0, false, 0);
        while count < ELEMENTS_MAX && bytes < BATCH_BYTES_MAX / 2 {
            let Some(row) = answer.next() else {
                is_complete = true;
                break;
            };
            self.rows += 1;
            let taken = self.pull.take(&row, now_ms());
            match taken.map_err(|error| WrapperError::peer(error.to_string()))? {
                Taken::New => {}
                Taken::Repeated => continue,
                Taken::Unclear => {
                    unclear += 1;
                    continue;
                }
            }
            self.new += 1;
            count += 1;
            bytes += 64 + 12 * answer.fields.len() + row.text.len();
            match row.element {
                Ok(element) => self.target.add(&element, &mut batch),
                Err(reason) => self
                    .target
                    .add_undecodable(reason, row.text.as_bytes(), &mut batch),
            }
        }
        if is_complete {
            self.pull.answered(*asked, now_ms());
            // A part of what the server has is followed by the next one at once.
            let is_cut = self.new > 0 && self.rows >= self.longest;
            self.is_waiting = asked.to_ms.is_none() && !is_cut;
            self.longest = self.longest.max(self.rows);
            (self.rows, self.new) = (0, 0);
            self.answer = None;
        }
        if unclear > 0 {
            batch.lost.push(Lost {
                stream: Some(self.target.name.to_string()),
                reason: "same_time",
                messages: unclear,
            });
        }
        if count == 0 && unclear == 0 {
            return Ok(None);
        }
        self.number += 1;
        batch.mark = Marked::mark(&self.pull.progress(), self.number)?;
        Ok(Some(batch))
    }

    /// Asks for the next range. If it is cancelled, the next call continues.
    async fn ask(&mut self) -> Result<(), WrapperError> {
        if self.answer.is_some() {
            return Ok(());
        }
        if self.asking.is_none() {
            if self.is_waiting {
                self.tick.tick().await;
                self.is_waiting = false;
            } else {
                tokio::time::sleep(PART_PAUSE).await;
            }
            let asked = self.pull.next(now_ms());
            let remote = self.remote.clone();
            let asking: Asking = Box::pin(async move { remote.data(asked).await });
            self.asking = Some((asked, asking));
        }
        let Some((asked, asking)) = &mut self.asking else {
            return Ok(());
        };
        let (asked, document) = (*asked, asking.await);
        self.asking = None;
        let document = match document {
            Ok(document) => document,
            Err(Failure::TooLong(_)) if self.pull.too_long(asked, now_ms()) => return Ok(()),
            Err(failure) => return Err(failure.into()),
        };
        let sensor = &self.remote.sensor;
        let answer = read_answer(&document)
            .map_err(|error| WrapperError::peer(format!("{sensor} answered: {error}")))?;
        if !answer.fields.is_empty() {
            self.target.learn(answer.fields.clone())?;
        }
        self.condition.waits("the sensor has no newer element");
        self.answer = Some((asked, answer));
        Ok(())
    }
}

/// The interface of a server.
struct Remote {
    peer: HttpPeer,
    /// The path before `/api`.
    base: String,
    /// The path of the sensor.
    sensor: String,
    /// The client's name and the file of its secret.
    client: Option<(String, PathBuf)>,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    until: Option<Instant>,
}

impl Remote {
    /// The elements of a range of time.
    async fn data(&self, asked: Asked) -> Result<Bytes, Failure> {
        let mut path = format!("{}/data?from={}", self.sensor, time_text(asked.from_ms));
        if let Some(to_ms) = asked.to_ms {
            path += &format!("&to={}", time_text(to_ms));
        }
        let mut is_renewed = false;
        loop {
            let mut headers = HeaderMap::new();
            if let Some(client) = &self.client {
                let header = self.authorization(client).await?;
                headers.insert(AUTHORIZATION, header);
            }
            let request = self
                .peer
                .request_at(path.clone(), Method::GET, headers, Bytes::new());
            let answer = request.await?;
            match answer.status {
                status if status.is_success() => return Ok(answer.body),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
                    if self.client.is_some() && !is_renewed =>
                {
                    *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    is_renewed = true;
                }
                status => {
                    let text = format!("the server answers {status} for {}", self.sensor);
                    return Err(Failure::Other(WrapperError::peer(text)));
                }
            }
        }
    }

    /// The value of `Authorization`, with the token of the last call as long as it is valid.
    async fn authorization(&self, client: &(String, PathBuf)) -> Result<HeaderValue, Failure> {
        let known = self
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(token) = known
            && token.until.is_none_or(|until| Instant::now() < until)
        {
            return Ok(token.header);
        }
        let token = self.ask_token(client).await?;
        let header = token.header.clone();
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(header)
    }

    async fn ask_token(&self, (id, path): &(String, PathBuf)) -> Result<Token, Failure> {
        let secret = secret(path).map_err(Failure::Other)?;
        let (id, secret) = (path_segment(id), path_segment(&secret));
        let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        let mut headers = HeaderMap::new();
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form_type);
        let path = format!("{}/oauth2/token", self.base);
        let request = self
            .peer
            .request_at(path.clone(), Method::POST, headers, Bytes::from(form));
        let answer = request.await?;
        let failed = |text: String| {
            let hint = "client_id and client_secret_file are those of a client at the server";
            Failure::Other(WrapperError::peer(text).with_hint(hint))
        };
        if !answer.status.is_success() {
            let status = answer.status;
            return Err(failed(format!("the server answers {status} for {path}")));
        }
        let (token, expires_s) = read_token(&answer.body)
            .map_err(|error| failed(format!("{path} answered: {error}")))?;
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header = header.map_err(|_| failed(format!("{path} answered no usable token")))?;
        header.set_sensitive(true);
        let until = expires_s.map(|seconds| {
            let valid = Duration::from_secs(seconds.min(86_400 * 365));
            Instant::now() + valid.saturating_sub(RENEWAL).max(valid / 2)
        });
        Ok(Token { header, until })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use crate::kinds::http::peer::tests_server::serve;
    use crate::tests::{open, wrapper_file_in};

    const TOKEN: &str = "{\"access_token\":\"abc\",\"expires_in\":3600}";

    fn answer(body: &str) -> &'static str {
        let length = body.len();
        Box::leak(
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_boxed_str(),
        )
    }

    fn data(rows: &str) -> &'static str {
        answer(&format!(
            "{{\"properties\":{{\"fields\":[{{\"name\":\"timestamp\",\"type\":\"time\"}},\
             {{\"name\":\"level\",\"type\":\"double\",\"unit\":\"m\"}}],\"values\":[{rows}]}}}}"
        ))
    }

    async fn server(
        answers: Vec<&'static str>,
        directory: &Path,
    ) -> (String, Arc<Mutex<Vec<String>>>) {
        std::fs::write(directory.join("secret"), "s3/cret\n").unwrap();
        let (address, requests): (SocketAddr, _) = serve(answers).await;
        let text = format!(
            "kind = \"gsn-remote-api\"\naddress = \"http://{address}/ws/\"\nsensor = \"Station7\"\n\
             client_id = \"me\"\nclient_secret_file = \"secret\"\nperiod_s = 1\n"
        );
        (text, requests)
    }

    #[tokio::test]
    async fn elements_are_taken_once_through_a_restart_and_a_new_token() {
        let directory = tempfile::tempdir().unwrap();
        let refusal = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n";
        let answers = vec![
            answer(TOKEN),
            data("[1700000000000,1],[1700000000001,2]"),
            // After the restart: a token that is refused once, then an element that was stored already.
            answer(TOKEN),
            refusal,
            answer(TOKEN),
            data("[1700000000001,2],[1700000000001,3],[1700000000005,null],[1700000000006,\"x\"]"),
        ];
        let (text, requests) = server(answers, directory.path()).await;
        let file = wrapper_file_in(directory.path(), &text);
        let first = open(&file, None).next().await.unwrap();
        assert_eq!(first.elements(), 2);
        assert_eq!(&*first.parts[0].stream, "station7");
        let fields = &first.parts[0].definition.schema.fields;
        assert_eq!(fields.len(), 1);
        assert_eq!(fields[0].unit.as_deref(), Some("m"));
        let second = open(&file, Some(first.mark)).next().await.unwrap();
        assert_eq!((second.elements(), second.undecodable.len()), (2, 1));
        let requests = requests.lock().unwrap();
        assert!(requests[0].starts_with("POST /ws/oauth2/token HTTP/1.1\r\n"));
        assert!(
            requests[0]
                .ends_with("grant_type=client_credentials&client_id=me&client_secret=s3%2Fcret"),
            "{requests:?}"
        );
        let first = "GET /ws/api/sensors/Station7/data?from=1970-01-01T00:00:00.000Z HTTP/1.1\r\n";
        assert!(requests[1].starts_with(first), "{requests:?}");
        assert!(
            requests[1]
                .to_lowercase()
                .contains("authorization: bearer abc\r\n")
        );
        let resumed =
            "GET /ws/api/sensors/Station7/data?from=2023-11-14T22:13:20.000Z HTTP/1.1\r\n";
        assert!(requests[5].starts_with(resumed), "{requests:?}");
    }

    #[tokio::test]
    async fn an_error_names_the_sensor_and_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        let unknown = "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
        let (text, _) = server(vec![answer(TOKEN), unknown], directory.path()).await;
        let file = wrapper_file_in(directory.path(), &text);
        let error = open(&file, None).next().await.unwrap_err().to_string();
        assert!(
            error.contains("404") && error.contains("Station7"),
            "{error}"
        );
        let refused = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n";
        let (text, _) = server(vec![refused], directory.path()).await;
        let file = wrapper_file_in(directory.path(), &text);
        let error = open(&file, None).next().await.unwrap_err();
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("client_secret_file"))
        );
        assert!(!error.to_string().contains("cret"), "{error}");
    }

    #[test]
    fn a_secret_is_not_sent_in_clear_text_beyond_this_machine() {
        let base = "kind = \"gsn-remote-api\"\nsensor = \"a\"\nclient_id = \"me\"\n\
                    client_secret_file = \"secret\"\n";
        let check = |more: &str| {
            let file = wrapper_file_in(Path::new(""), &format!("{base}{more}"));
            file.kind().map(drop).map_err(|error| error.to_string())
        };
        assert!(check("address = \"https://gsn.example/ws\"").is_ok());
        assert!(check("address = \"http://127.0.0.1:9000/ws\"").is_ok());
        let error = check("address = \"http://gsn.example/ws\"").unwrap_err();
        assert!(error.contains("without encryption"), "{error}");
        assert!(check("address = \"http://gsn.example/ws\"\ninsecure = true").is_ok());
        assert!(check("address = \"https://gsn.example/ws?x=1\"").is_err());
        let file = wrapper_file_in(
            Path::new(""),
            "kind = \"gsn-remote-api\"\nsensor = \"a\"\nclient_id = \"me\"\naddress = \"https://a/\"",
        );
        assert!(file.kind().is_err());
    }
}
