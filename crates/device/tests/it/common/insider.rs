//! A sink of a tree made by hand: for tests that look at what goes over the network, and that send what
//! no sink of ours would.
#![allow(dead_code, unreachable_pub)] // Not every test uses all of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chappe_device::DeviceHost;
use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{Filter, Subscribe, SubscribeResponse, action};
use chappe_dpws::eventing::{TreePeer, TreeSink};
use chappe_dpws::exchange::request;
use chappe_identity::{Contact, Key};
use chappe_machine::{Input, Machine, Output};
use chappe_notification_tree::{
    Body, Command, Contact as TreeContact, Keys, Message, Spread, Transmit, Tree, Window, topic_of,
};
use chappe_soap::EndpointReference;
use chappe_transport::http::{Client, ClientLimits, Response, Server, ServerLimits, StatusCode};
use chappe_transport::{Clock, Drops};
use tokio::sync::mpsc;

/// Subscribes as this sink to an action of the service at a path. Gives what takes its standard notifications, without
/// which its subscription would end, and who the source is.
pub(crate) async fn subscribed_by_hand(
    host: &DeviceHost,
    (path, event): (&str, &str),
    sink: TreeSink,
) -> (Server, TreePeer) {
    let taking = |_| async { Response::empty(StatusCode::ACCEPTED) };
    let here = SocketAddr::new(sink.peer.address.ip(), 0);
    let server = Server::bind(here, ServerLimits::default(), Drops::default(), taking).unwrap();
    let notify_to = format!("http://{}/events", server.local_addr());
    let version = Dialect::V2009.addressing();
    let message = Subscribe {
        end_to: None,
        mode: None,
        notify_to: Some(EndpointReference::new(notify_to)),
        expires: None,
        filter: Some(Filter::actions(
            Dialect::V2009,
            vec![event.to_owned().into()],
        )),
        tree: Ok(Some(sink)),
    };
    let to = format!("http://{}{path}", host.addresses()[0]);
    let http = Client::new(ClientLimits {
        local_address: Some(sink.peer.address.ip()),
        ..ClientLimits::default()
    });
    let envelope = request(
        version,
        &EndpointReference::new(to.clone()),
        action::SUBSCRIBE,
        "urn:uuid:1",
    );
    let envelope = envelope.with_body(message.to_element(version));
    let contact = Contact::parse(&to, 0).unwrap();
    let answer = http.exchange_soap(&contact, &envelope).await.unwrap();
    let answer = answer.unwrap();
    let granted = SubscribeResponse::from_element(version, answer.body().unwrap()).unwrap();
    let offer = granted.tree.expect("the source has to ask first");
    (server, offer.source)
}

/// A sink of the tree that does what it should, unless it is silent, and keeps what it was sent.
pub(crate) struct Insider {
    pub(crate) key: Arc<Key>,
    pub(crate) silent: Arc<AtomicBool>,
    pub(crate) socket: Arc<tokio::net::UdpSocket>,
    sent: mpsc::UnboundedReceiver<Vec<u8>>,
    _taking: Server,
}

impl Insider {
    fn machine(key: &Arc<Key>, address: SocketAddr) -> Tree<Keys> {
        let keys = Keys::new(Arc::clone(key));
        let contact = TreeContact {
            address,
            key: keys.public(),
        };
        Tree::new(Arc::default(), contact, keys, 1)
    }

    /// Of this address, and as critical.
    pub(crate) async fn subscribe(
        host: &DeviceHost,
        of: (&str, &str),
        (ip, criticality): (&str, u8),
    ) -> Self {
        let key = Arc::new(Key::from_seed(chappe_transport::seed().unwrap()));
        let silent = Arc::new(AtomicBool::new(false));
        let socket = tokio::net::UdpSocket::bind((ip, 0)).await.unwrap();
        let socket = Arc::new(socket);
        let address = socket.local_addr().unwrap();
        let peer = TreePeer {
            key: *key.public().as_bytes(),
            address,
        };
        let (taking, source) = subscribed_by_hand(host, of, TreeSink { peer, criticality }).await;
        let mut machine = Self::machine(&key, address);
        let subscribe = Command::Subscribe {
            topic: topic_of(&source.key, of.1),
            source: TreeContact {
                address: source.address,
                key: source.key,
            },
            window: Window::default(),
        };
        let clock = Clock::process();
        machine.handle_input(clock.now(), Input::Command(subscribe));
        let (keep, sent) = mpsc::unbounded_channel();
        let (taken, quiet) = (Arc::clone(&socket), Arc::clone(&silent));
        tokio::spawn(async move {
            let (mut buffer, mut answer) = ([0; 2_048], Vec::new());
            while let Ok(length) = taken.recv(&mut buffer).await {
                let Ok(message) = machine.open(clock.now(), &buffer[..length]) else {
                    continue;
                };
                if !quiet.load(Ordering::Relaxed) {
                    machine.handle_input(clock.now(), Input::Receive(message));
                }
                while let Some(output) = machine.poll_output() {
                    if let Output::Transmit(transmit) = output {
                        machine.seal(&transmit, &mut answer);
                        taken.send_to(&answer, transmit.address).await.unwrap();
                    }
                }
                if keep.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            key,
            silent,
            socket,
            sent,
            _taking: taking,
        }
    }

    /// The next event that it was sent: as a datagram, and its message.
    pub(crate) async fn event(&mut self) -> (Vec<u8>, Message, Spread) {
        loop {
            let datagram = self.sent.recv().await.unwrap();
            let (message, _) = Message::decode(&datagram).unwrap();
            if let Body::Spread(spread) = &message.body
                && !spread.event.is_heartbeat()
            {
                let spread = spread.clone();
                return (datagram, message, spread);
            }
        }
    }

    /// Sends an event to another sink, as one that forwards does.
    pub(crate) async fn forward(&self, own: u32, to: (u32, &TreeContact), spread: Spread) {
        let (number, contact) = to;
        let transmit = Transmit {
            address: contact.address,
            key: contact.key,
            to: number,
            message: Message {
                from: own,
                body: Body::Spread(Spread {
                    first: number,
                    end: number + 1,
                    ..spread
                }),
            },
        };
        let mut machine = Self::machine(&self.key, self.socket.local_addr().unwrap());
        let mut datagram = Vec::new();
        machine.seal(&transmit, &mut datagram);
        self.socket
            .send_to(&datagram, contact.address)
            .await
            .unwrap();
    }
}
