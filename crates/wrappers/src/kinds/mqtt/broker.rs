//! The broker of a file: its address, how it is trusted, and the connection to it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use chappe_stream::DescriptorError;
use chappe_transport::tls::Stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::session::{Event, Opening, Outcome, Publication, Receipt, Session, Version, Will};
use crate::kinds::http::peer::{Server, Trust, secret, trust};
use crate::{CommonKeys, PeerFile, WrapperError};

/// Time to connect, for the handshake of TLS, and for the broker's first answers.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time in which the broker takes what is written to it.
const WRITE_TIME: Duration = Duration::from_secs(20);
/// Seconds between two questions whether the broker is there, unless the file sets another period.
const KEEP_ALIVE_S: u16 = 30;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Groups of events that wait; further bytes stay in the socket. Each is what one read gave.
const EVENTS_MAX: usize = 2;
/// Orders that wait for the connection.
const ORDERS_MAX: usize = 512;
/// Payloads of a topic of availability; reason: the defaults of Home Assistant.
const ONLINE: &[u8] = b"online";
const OFFLINE: &[u8] = b"offline";
/// The token of a birth message, which the connection itself watches.
const BIRTH: u64 = u64::MAX;
/// Bytes of output after which it is written.
const OUTPUT_BYTES: usize = 256 << 10;

/// The keys of every file whose peer is a broker.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(in crate::kinds) struct Broker {
    /// The address: mqtt://HOST:PORT, or mqtts:// with TLS. Default ports: 1883 and 8883.
    pub(in crate::kinds) address: String,
    /// The version of the protocol.
    #[serde(default)]
    pub(in crate::kinds) version: Version,
    /// The name by which the broker knows this client. Default: `chappe-`, the beginning of the
    /// node's fingerprint, and the file's name.
    pub(in crate::kinds) client_id: Option<String>,
    /// The name of the user.
    user: Option<String>,
    /// File with the password. Relative to this file.
    password_file: Option<PathBuf>,
    /// How the broker's certificate is verified, for mqtts.
    #[serde(default)]
    server: Trust,
    /// File with the certificate (PEM) that this client presents. Relative to this file.
    certificate: Option<PathBuf>,
    /// File with the key of the certificate. Relative to this file.
    key_file: Option<PathBuf>,
    /// A topic on which this client publishes `online`, and the broker `offline` when the client is
    /// gone, as its last will. Both are retained.
    availability: Option<String>,
    /// Seconds between two pings to the broker.
    #[serde(default = "keep_alive")]
    #[schemars(range(min = 5, max = 3_600), extend("x-unit" = "s"))]
    pub(in crate::kinds) keep_alive_s: u16,
}

fn keep_alive() -> u16 {
    KEEP_ALIVE_S
}

/// Where the broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Address {
    host: String,
    port: u16,
    has_tls: bool,
}

impl Address {
    pub(in crate::kinds) fn parse(text: &str) -> Result<Self, String> {
        let form = || "write it as mqtt://HOST:PORT or mqtts://HOST:PORT".to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let (has_tls, default_port) = match scheme {
            "mqtt" | "tcp" => (false, 1883),
            "mqtts" | "ssl" => (true, 8883),
            _ => return Err(form()),
        };
        if rest.contains('@') {
            return Err("a password does not belong into an address; use password_file".to_owned());
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port
                    .parse()
                    .map_err(|_| format!("{port:?} is not a port"))?;
                (host, port)
            }
            _ => (rest, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b".-_:%".contains(&b);
        if host.is_empty() || port == 0 || !host.bytes().all(is_plain) {
            return Err(form());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            has_tls,
        })
    }
}

impl Broker {
    /// Whether the file sets a topic of availability.
    pub(in crate::kinds) fn has_availability(&self) -> bool {
        self.availability.is_some()
    }

    /// Checks what is independent of files.
    pub(in crate::kinds) fn check<C: CommonKeys>(
        &self,
        file: &PeerFile<C>,
    ) -> Result<Address, DescriptorError> {
        let fault = |key: &str, text: String| file.fault(key, text, None);
        let address = Address::parse(&self.address).map_err(|text| fault("address", text))?;
        if self.password_file.is_some() && self.user.is_none() && self.version == Version::V3 {
            let text = "MQTT 3.1.1 has no password without a user".to_owned();
            return Err(fault("password_file", text));
        }
        if self.certificate.is_some() != self.key_file.is_some() {
            let text = "set certificate and key_file together".to_owned();
            return Err(fault("certificate", text));
        }
        if let Some(topic) = &self.availability
            && !is_topic(topic)
        {
            let text = "a message has a topic without wildcards".to_owned();
            return Err(fault("availability", text));
        }
        if !(5..=3_600).contains(&self.keep_alive_s) {
            return Err(fault("keep_alive_s", "it is from 5 to 3600".to_owned()));
        }
        Ok(address)
    }

    /// What a connection needs, with the secrets in the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(in crate::kinds) fn resolve<C: CommonKeys>(
        &self,
        file: &PeerFile<C>,
    ) -> Result<Connector, WrapperError> {
        let wrong = |error: DescriptorError| WrapperError::settings(error.to_string());
        let address = self.check(file).map_err(wrong)?;
        let relative = |path: &std::path::Path| file.path(path);
        let tls = match address.has_tls {
            false => None,
            true => {
                let server = Server::from(self.server.clone());
                let client = trust(&server, relative, &address.host)?.without_protocol();
                let client = match (&self.certificate, &self.key_file) {
                    (Some(certificate), Some(key)) => client
                        .with_certificate(&relative(certificate), &relative(key))
                        .map_err(|error| WrapperError::settings(error.to_string()))?,
                    _ => client,
                };
                Some(client)
            }
        };
        let password = self
            .password_file
            .as_ref()
            .map(|path| secret(&relative(path)));
        let mut connector = Connector {
            address,
            tls,
            opening: Opening {
                version: self.version,
                client_id: self.client_id.clone().unwrap_or_default(),
                user: self.user.clone(),
                password: password.transpose()?,
                keep_alive_s: self.keep_alive_s,
                ..Opening::default()
            },
        };
        if let Some(topic) = &self.availability {
            connector.announce_availability(topic.clone());
        }
        Ok(connector)
    }
}

/// Whether a message can have this topic.
pub(in crate::kinds) fn is_topic(topic: &str) -> bool {
    !topic.is_empty() && topic.len() <= u16::MAX.into() && !topic.contains(['+', '#', '\0'])
}

/// Connects to a broker.
#[derive(Clone)]
pub(in crate::kinds) struct Connector {
    address: Address,
    tls: Option<chappe_transport::tls::Client>,
    pub(in crate::kinds) opening: Opening,
}

/// What the holder of a connection orders.
#[derive(Debug)]
pub(in crate::kinds) enum Order {
    /// Acknowledge a message.
    Acknowledge(Receipt),
    /// Publish a message.
    Publish(Publication),
    /// Subscribe to these filters, with quality of service 1 and the last message of each topic.
    Subscribe(Vec<String>),
    /// End the subscriptions to these filters.
    Unsubscribe(Vec<String>),
    /// Ask whether the broker has taken all that was sent.
    Ping,
    /// End the connection in order.
    Disconnect,
}

/// A connection, which a task reads and writes.
pub(in crate::kinds) struct Connection {
    /// What happened, in groups.
    pub(in crate::kinds) events: mpsc::Receiver<Vec<Event>>,
    pub(in crate::kinds) orders: mpsc::Sender<Order>,
    /// Whether the broker still had the session.
    pub(in crate::kinds) had_session: bool,
    /// What is published before the connection ends in order.
    farewell: Option<Publication>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(farewell) = self.farewell.take() {
            // Without room for it, the broker publishes the will.
            let _ = self.orders.try_send(Order::Publish(farewell));
        }
        // The task ends with the orders after it has written what waits.
        if self.orders.try_send(Order::Disconnect).is_err() {
            self.task.abort();
        }
    }
}

/// The subscription that a connection begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Subscription {
    pub(in crate::kinds) filters: Vec<String>,
    pub(in crate::kinds) qos: u8,
    pub(in crate::kinds) takes_retained: bool,
    /// The broker already has it if it still has the session.
    pub(in crate::kinds) is_known: bool,
}

impl Connector {
    /// Publishes on this topic whether the client is there.
    pub(in crate::kinds) fn announce_availability(&mut self, topic: String) {
        self.opening.will = Some(Will {
            topic,
            payload: OFFLINE.to_vec(),
            is_retained: true,
        });
        self.opening.birth = Some(ONLINE.to_vec());
    }

    /// Opens a session, and subscribes if there is something to subscribe to.
    ///
    /// # Errors
    /// The broker cannot be reached, or refuses the session or the subscription.
    pub(in crate::kinds) async fn connect(
        self,
        subscription: Option<Subscription>,
    ) -> Result<Connection, WrapperError> {
        let shown = format!("{}:{}", self.address.host, self.address.port);
        let late = |_| WrapperError::peer(format!("{shown} does not answer"));
        tokio::time::timeout(3 * CONNECT_TIME, self.connecting(subscription, &shown))
            .await
            .map_err(late)?
    }

    async fn connecting(
        &self,
        subscription: Option<Subscription>,
        shown: &str,
    ) -> Result<Connection, WrapperError> {
        let failed = |error: std::io::Error| {
            WrapperError::peer(format!("cannot connect to {shown}: {error}"))
        };
        let Address { host, port, .. } = &self.address;
        let connecting = TcpStream::connect((host.as_str(), *port));
        let connected = tokio::time::timeout(CONNECT_TIME, connecting).await;
        let late = |_| Err(std::io::ErrorKind::TimedOut.into());
        let stream = connected.unwrap_or_else(late).map_err(failed)?;
        // Small packets are written when they are complete; a system that cannot goes on.
        let _ = stream.set_nodelay(true);
        let mut stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(client) => {
                let connected = client.connect(stream, CONNECT_TIME).await;
                connected.map_err(|error| {
                    let failed = WrapperError::peer(format!("{shown}: {error}"));
                    match error.hint() {
                        Some(hint) => failed.with_hint(hint),
                        None => failed,
                    }
                })?
            }
        };
        let session = Session::open(&self.opening).map_err(WrapperError::settings)?;
        let mut pump = Pump {
            session,
            buffer: vec![0; READ_BYTES],
        };
        let mut had_session = None;
        let mut early = Vec::new();
        let mut is_subscribed = subscription.is_none();
        while had_session.is_none() || !is_subscribed {
            pump.write(&mut stream).await.map_err(failed)?;
            pump.read(&mut stream).await.map_err(failed)?;
            while let Some(event) = pump.session.next_event() {
                match event {
                    Event::Connected { had_session: had } => {
                        had_session = Some(had);
                        match &subscription {
                            Some(one) if !(one.is_known && had) => {
                                let takes = one.takes_retained;
                                pump.session.subscribe(&one.filters, one.qos, takes);
                            }
                            _ => is_subscribed = true,
                        }
                    }
                    Event::Refused(reason, hint) => {
                        let text = format!("{shown} refuses the session: {reason}");
                        let error = WrapperError::peer(text);
                        return Err(match hint {
                            Some(hint) => error.with_hint(hint),
                            None => error,
                        });
                    }
                    Event::Subscribed(Ok(())) => is_subscribed = true,
                    Event::Subscribed(Err((filter, reason))) => {
                        return Err(WrapperError::peer(format!(
                            "{shown} refuses the subscription {filter:?}: {reason}"
                        )));
                    }
                    Event::Failed(reason) => {
                        return Err(WrapperError::peer(format!("{shown}: {reason}")));
                    }
                    other => early.push(other),
                }
            }
        }
        let of_will = |token: u64, payload: &[u8]| {
            let will = self.opening.will.as_ref()?;
            Some(Publication {
                token,
                topic: will.topic.clone(),
                payload: payload.to_vec(),
                qos: 1,
                is_retained: will.is_retained,
                property: None,
            })
        };
        if let Some(birth) = self.opening.birth.as_ref()
            && let Some(birth) = of_will(BIRTH, birth)
        {
            pump.session.publish(birth);
        }
        let will = self.opening.will.as_ref();
        let farewell = will.and_then(|will| of_will(BIRTH, &will.payload));
        let (send, events) = mpsc::channel(EVENTS_MAX);
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let keep_alive = Duration::from_secs(self.opening.keep_alive_s.into());
        let task = tokio::spawn(pump.run(stream, early, send, ordered, keep_alive));
        Ok(Connection {
            events,
            orders,
            had_session: had_session.unwrap_or_default(),
            farewell,
            task: task.abort_handle(),
        })
    }
}

/// Reads and writes a connection for a session.
struct Pump {
    session: Session,
    buffer: Vec<u8>,
}

impl Pump {
    async fn write(&mut self, stream: &mut Stream) -> std::io::Result<()> {
        let output = self.session.take_output();
        if output.is_empty() {
            return Ok(());
        }
        let writing = async {
            stream.write_all(&output).await?;
            stream.flush().await
        };
        let late = |_| Err(std::io::ErrorKind::TimedOut.into());
        tokio::time::timeout(WRITE_TIME, writing)
            .await
            .unwrap_or_else(late)
    }

    async fn read(&mut self, stream: &mut Stream) -> std::io::Result<()> {
        match stream.read(&mut self.buffer).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.session.receive(&self.buffer[..count]);
                Ok(())
            }
        }
    }

    /// Runs until either end ends the connection; the last event says why.
    async fn run(
        mut self,
        mut stream: Stream,
        mut happened: Vec<Event>,
        send: mpsc::Sender<Vec<Event>>,
        mut orders: mpsc::Receiver<Order>,
        keep_alive: Duration,
    ) {
        let mut heard = Instant::now();
        let mut ask_at = heard + keep_alive;
        loop {
            let news = std::iter::from_fn(|| self.session.next_event());
            happened.extend(news.filter_map(watched));
            if let Err(error) = self.write(&mut stream).await {
                happened.push(Event::Failed(format!("the connection broke: {error}")));
            }
            let has_failed = matches!(happened.last(), Some(Event::Failed(_)));
            let has_news = !happened.is_empty();
            if has_failed {
                // The holder may have gone.
                let _ = send.send(happened).await;
                return;
            }
            let give_up = heard + keep_alive * 3 / 2;
            tokio::select! {
                biased;
                permit = send.reserve(), if has_news => match permit {
                    Ok(permit) => {
                        permit.send(std::mem::take(&mut happened));
                        // While nobody took the news, nothing was read, and the broker was not heard.
                        heard = Instant::now();
                    }
                    Err(_) => return,
                },
                order = orders.recv(), if self.session.has_room() => {
                    let mut next = order;
                    loop {
                        match next {
                            Some(Order::Acknowledge(receipt)) => self.session.acknowledge(receipt),
                            Some(Order::Publish(message)) => self.session.publish(message),
                            Some(Order::Subscribe(filters)) => self.session.subscribe(&filters, 1, true),
                            Some(Order::Unsubscribe(filters)) => self.session.unsubscribe(&filters),
                            Some(Order::Ping) => self.session.ask(),
                            Some(Order::Disconnect) | None => {
                                self.session.disconnect();
                                // The broker may have gone first.
                                let _ = self.write(&mut stream).await;
                                return;
                            }
                        }
                        let is_full = self.session.output_bytes() >= OUTPUT_BYTES;
                        if is_full || !self.session.has_room() {
                            break;
                        }
                        match orders.try_recv() {
                            Ok(order) => next = Some(order),
                            Err(_) => break,
                        }
                    }
                }
                read = self.read(&mut stream), if !has_news => match read {
                    Ok(()) => heard = Instant::now(),
                    Err(error) => {
                        let text = match error.kind() {
                            std::io::ErrorKind::UnexpectedEof => {
                                "the broker ended the connection".to_owned()
                            }
                            _ => format!("the connection broke: {error}"),
                        };
                        happened.push(Event::Failed(text));
                    }
                },
                () = tokio::time::sleep_until(ask_at.into()) => {
                    self.session.ping();
                    ask_at = Instant::now() + keep_alive * 2 / 3;
                }
                () = tokio::time::sleep_until(give_up.into()), if !has_news => {
                    let text = "the broker does not answer any more".to_owned();
                    happened.push(Event::Failed(text));
                }
            }
        }
    }
}

/// What the holder learns of an event: of a birth message only that the broker refuses it.
fn watched(event: Event) -> Option<Event> {
    match event {
        Event::Published(BIRTH, Outcome::Taken) => None,
        Event::Published(BIRTH, Outcome::Refused(reason) | Outcome::Later(reason)) => {
            let text =
                format!("the broker refuses the message that this client is there: {reason}");
            Some(Event::Failed(text))
        }
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_divided() {
        let address = Address::parse("mqtts://broker.example").unwrap();
        assert_eq!((&*address.host, address.port), ("broker.example", 8883));
        let address = Address::parse("mqtt://[::1]:1884/").unwrap();
        assert_eq!((&*address.host, address.port), ("::1", 1884));
        for wrong in [
            "",
            "broker",
            "http://a",
            "mqtt://",
            "mqtt://u:p@a",
            "mqtt://a:0",
            "mqtt://a b",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
