//! The only part of the check that uses the network: questions out, answers and notifications in.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_identity::{AddressPolicy, Contact, Scheme};
use chappe_soap::udp::DISCOVERY_PORT;
use chappe_transport::http::header::{CONTENT_TYPE, HeaderValue};
use chappe_transport::http::{
    self, Client, ClientLimits, HeaderMap, Method, Request, Response, Security, Server,
    ServerLimits, StatusCode,
};
use chappe_transport::{Drops, interfaces, route_source};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::Error;

/// The multicast groups of discovery (WS-Discovery 1.1, section 2.4).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xc);
/// The pause before a question is repeated (SOAP-over-UDP 1.1, UDP_MAX_DELAY of DPWS).
const REPEAT_AFTER: Duration = Duration::from_millis(250);
/// Datagrams taken in answer to one question. Reason: a device sends two of each answer, and a subnet may have
/// some devices that answer as well.
const ANSWERS_MAX: usize = 64;
/// Notifications queued for the check. Reason: waveforms come some ten times a second, and the check takes them at once
/// while it judges events; more are refused with 503.
const POSTED_MAX: usize = 64;
/// Bytes of a notification. Reason: those of devices are smaller, and all that are queued stay below 20 MB, also where
/// each byte that is no text becomes a replacement character of three.
const POSTED_BYTES_MAX: usize = 96 << 10;
/// Bytes of an answer to a request in chunks. Reason: only its head is judged.
const HEAD_BYTES: u64 = 16 << 10;

/// A message sent by HTTP.
#[derive(Debug, Clone)]
pub(super) struct Post {
    pub(super) url: String,
    pub(super) content_type: &'static str,
    pub(super) body: String,
    pub(super) chunked: bool,
}

/// An answer by HTTP.
#[derive(Debug, Clone, Default)]
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: String,
}

/// A message that the device posted.
#[derive(Debug, Clone)]
pub(super) struct Posted {
    pub(super) path: String,
    pub(super) content_type: String,
    pub(super) body: String,
}

/// What the check needs of a network; tests change the answers on their way.
pub(super) trait Wire {
    /// Posts a message, and returns the answer or why there is none.
    async fn post(&mut self, post: &Post) -> Result<Got, String>;
    /// Gets a document.
    async fn get(&mut self, url: &str) -> Result<Got, String>;
    /// Sends each question to the multicast group, twice, and returns the device's answers to each.
    async fn multicast(&mut self, questions: &[String], window: Duration) -> Vec<Vec<String>>;
    /// The next posted message within this time.
    async fn posted(&mut self, window: Duration) -> Option<Posted>;
    /// The URL below which messages are taken.
    fn sink(&self) -> &str;
    /// Whether multicast reaches the device's address without a router.
    fn on_link(&self) -> bool;
}

/// The network.
pub(super) struct Network {
    device: Contact,
    local: IpAddr,
    client: Client,
    policy: AddressPolicy,
    sink: String,
    posted: mpsc::Receiver<Posted>,
    _server: Server,
}

impl Network {
    /// Opens a sink for notifications at the address from which the device is reached.
    pub(super) fn open(device: Contact, tls: Option<&Security>) -> Result<Self, Error> {
        let client = Client::to_devices(ClientLimits::default(), tls);
        let failed = |source| Error::Listen { at: None, source };
        let local = route_source(device.address).map_err(failed)?;
        let (sender, posted) = mpsc::channel(POSTED_MAX);
        let sender = Arc::new(sender);
        let mut at = SocketAddr::new(local, 0);
        if let (SocketAddr::V6(at), SocketAddr::V6(to)) = (&mut at, device.address) {
            at.set_scope_id(to.scope_id());
        }
        let handler = move |request: Request| {
            let sender = Arc::clone(&sender);
            async move { take(&sender, &request) }
        };
        // A device with TLS sends its events to https alone.
        let is_secured = device.scheme == Scheme::Https;
        let tls = tls.filter(|tls| is_secured && tls.serves());
        let limits = ServerLimits {
            body_bytes: POSTED_BYTES_MAX,
            ..ServerLimits::default()
        };
        let drops = Drops::default();
        let server = Server::bind_secured(at, limits, tls, drops, handler);
        let server = server.map_err(|source| Error::Listen {
            at: Some(local),
            source,
        })?;
        let scheme = tls.map_or(Scheme::Http, |_| Scheme::Https);
        let sink = http::base(scheme, server.local_addr());
        Ok(Self {
            device,
            local,
            client,
            policy: AddressPolicy::default(),
            sink,
            posted,
            _server: server,
        })
    }

    /// The address in a URL of the device, if it may be contacted.
    fn contact(&self, url: &str) -> Result<Contact, String> {
        let checked = self.policy.check(url, self.device.address);
        let contact = checked.map_err(|refusal| format!("{url} is not contacted: {refusal}"))?;
        let is_plain = contact.scheme == Scheme::Http && self.device.scheme == Scheme::Https;
        match is_plain {
            true => Err(format!("{url} is not contacted: the device has https")),
            // Whatever serves it has the certificate of the device.
            false => Ok(Contact {
                proof: self.device.proof.clone(),
                ..contact
            }),
        }
    }

    async fn request(
        &self,
        url: &str,
        method: Method,
        content_type: Option<&'static str>,
        body: String,
    ) -> Result<Got, String> {
        let contact = self.contact(url)?;
        let mut headers = HeaderMap::new();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        let request = self
            .client
            .request(&contact, method, headers, Bytes::from(body));
        let answer = request.await.map_err(|error| error.to_string())?;
        let content_type = answer.headers.get(CONTENT_TYPE);
        let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()));
        Ok(Got {
            status: answer.status.as_u16(),
            content_type: content_type.unwrap_or_default().into_owned(),
            body: String::from_utf8_lossy(&answer.body).into_owned(),
        })
    }

    /// Posts in two chunks, on a connection of its own.
    async fn post_chunked(&self, post: &Post) -> Result<Got, String> {
        let contact = self.contact(&post.url)?;
        let connection = self.client.connection(&contact).await;
        let mut stream = connection.map_err(|error| error.to_string())?;
        let exchange = async {
            let (first, second) = post.body.as_bytes().split_at(post.body.len() / 2);
            let head = format!(
                "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\
                 Connection: close\r\n\r\n",
                contact.path, contact.address, post.content_type
            );
            let mut request = head.into_bytes();
            for chunk in [first, second] {
                request.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                request.extend(chunk);
                request.extend(b"\r\n");
            }
            request.extend(b"0\r\n\r\n");
            stream.write_all(&request).await?;
            let mut answer = Vec::new();
            stream.take(HEAD_BYTES).read_to_end(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let answer = timeout(self.client.limits().header_deadline, exchange)
            .await
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&answer);
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok(Got {
            status: status.ok_or("the answer is not HTTP")?,
            ..Got::default()
        })
    }

    /// A socket that sends to the group on the interface that leads to the device.
    fn socket(&self) -> io::Result<(UdpSocket, SocketAddr)> {
        let group = match (self.local, self.device.address) {
            (IpAddr::V6(_), SocketAddr::V6(device)) => {
                let scope = self.interface().unwrap_or(device.scope_id());
                SocketAddr::V6(SocketAddrV6::new(GROUP_V6, DISCOVERY_PORT, 0, scope))
            }
            _ => (GROUP_V4, DISCOVERY_PORT).into(),
        };
        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
        match (self.local, group) {
            (IpAddr::V4(local), _) => socket.set_multicast_if_v4(&local)?,
            (IpAddr::V6(_), SocketAddr::V6(group)) => {
                socket.set_multicast_if_v6(group.scope_id())?;
            }
            _ => {}
        }
        let mut at = SocketAddr::new(self.local, 0);
        if let (SocketAddr::V6(at), SocketAddr::V6(group)) = (&mut at, group) {
            at.set_scope_id(group.scope_id());
        }
        socket.bind(&at.into())?;
        socket.set_nonblocking(true)?;
        Ok((UdpSocket::from_std(socket.into())?, group))
    }

    /// The index of the interface with the local address.
    fn interface(&self) -> Option<u32> {
        let all = interfaces().ok()?;
        let has = |one: &chappe_transport::Interface| {
            one.addresses.iter().any(|(own, _)| *own == self.local)
        };
        all.into_iter().find(has).map(|one| one.index)
    }
}

impl Wire for Network {
    async fn post(&mut self, post: &Post) -> Result<Got, String> {
        if post.chunked {
            return self.post_chunked(post).await;
        }
        let media = Some(post.content_type);
        let body = post.body.clone();
        self.request(&post.url, Method::POST, media, body).await
    }

    async fn get(&mut self, url: &str) -> Result<Got, String> {
        self.request(url, Method::GET, None, String::new()).await
    }

    async fn multicast(&mut self, questions: &[String], window: Duration) -> Vec<Vec<String>> {
        let device = self.device.address.ip();
        let until = Instant::now() + window;
        let mut asking = JoinSet::new();
        for (index, question) in questions.iter().enumerate() {
            let Ok((socket, group)) = self.socket() else {
                continue;
            };
            let question = question.clone();
            asking.spawn(async move { (index, ask(socket, group, question, device, until).await) });
        }
        let mut answers = vec![Vec::new(); questions.len()];
        while let Some(asked) = asking.join_next().await {
            if let Ok((index, taken)) = asked {
                answers[index] = taken;
            }
        }
        answers
    }

    async fn posted(&mut self, window: Duration) -> Option<Posted> {
        timeout(window, self.posted.recv()).await.ok().flatten()
    }

    fn sink(&self) -> &str {
        &self.sink
    }

    fn on_link(&self) -> bool {
        let device = self.device.address.ip();
        let all = interfaces().unwrap_or_default();
        let mut usable = all.iter().filter(|interface| interface.usable());
        usable.any(|one| one.addresses.iter().any(|(_, net)| net.contains(device)))
    }
}

/// Takes a posted message; the device may send it again if the check does not keep up.
fn take(sender: &mpsc::Sender<Posted>, request: &Request) -> Response {
    let content_type = request.headers.get(CONTENT_TYPE);
    let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let posted = Posted {
        path: request.path.clone(),
        content_type: content_type.unwrap_or_default().into_owned(),
        body: String::from_utf8_lossy(&request.body).into_owned(),
    };
    match sender.try_send(posted) {
        Ok(()) => Response::empty(StatusCode::ACCEPTED),
        Err(_) => Response::empty(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Sends a question twice, and collects the answers of one host until the time is over.
async fn ask(
    socket: UdpSocket,
    group: SocketAddr,
    question: String,
    device: IpAddr,
    until: Instant,
) -> Vec<String> {
    let mut answers = Vec::new();
    let mut buffer = vec![0; 65_536];
    let repeat = async {
        let _ = socket.send_to(question.as_bytes(), group).await;
        sleep(REPEAT_AFTER).await;
        let _ = socket.send_to(question.as_bytes(), group).await;
        std::future::pending::<()>().await
    };
    let receive = async {
        while answers.len() < ANSWERS_MAX {
            match timeout_at(until, socket.recv_from(&mut buffer)).await {
                Ok(Ok((length, from))) if from.ip() == device => {
                    answers.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                }
                // Other devices of the subnet, and errors of earlier datagrams.
                Ok(_) => {}
                Err(_) => break,
            }
        }
    };
    tokio::select! {
        () = repeat => {}
        () = receive => {}
    }
    answers
}
