//! Goal: datagrams of discovery pass over the loopback, from and to each device's own address.
//!
//! Method: machines that answer what they hear run on addresses of their own; a client's machine runs on
//! 127.0.0.1. Port 3702 is the standard's, and shared, so other programs may hold it too, and the devices
//! of the other tests hear and answer what is multicast.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::common::own_address;
use chappe_dpws::discovery::{Inbound, Interface, Outbound};
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_soap::udp::discovery_group;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_transport::{Drops, interfaces};
use tokio::sync::mpsc;

const DEADLINE: Duration = Duration::from_secs(300);

/// Tells what arrives, sends what it is told, answers questions with their text reversed.
#[derive(Default)]
struct Reverser {
    outputs: VecDeque<Output<Outbound, Inbound>>,
    deadline: Option<Instant>,
}

impl Machine for Reverser {
    type Receive = Inbound;
    type Command = Outbound;
    type Transmit = Outbound;
    type Event = Inbound;

    fn handle_input(&mut self, _: Instant, input: Input<Inbound, Outbound>) {
        match input {
            Input::Receive(datagram) => {
                if datagram.bytes.first() == Some(&b'?') {
                    self.outputs.push_back(Output::Transmit(Outbound {
                        to: datagram.from,
                        interface: datagram.interface,
                        bytes: datagram.bytes.iter().rev().copied().collect(),
                    }));
                }
                self.outputs.push_back(Output::Event(datagram));
            }
            Input::Command(datagram) => self.outputs.push_back(Output::Transmit(datagram)),
            Input::Timeout => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Inbound>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

struct Running {
    orders: mpsc::Sender<Order<Outbound>>,
    events: mpsc::Receiver<Inbound>,
}

fn run(address: Ipv4Addr, role: Role) -> Running {
    let drops = Drops::default();
    let interface = Interface {
        index: loopback(),
        addresses: vec![address.into()],
    };
    let options = UdpOptions::new(role);
    let sockets = UdpSockets::bind(&[interface], &options, &drops).unwrap();
    let info = sockets.info();
    assert_eq!(info[0].local.ip(), IpAddr::from(address));
    assert!(info[0].receive_buffer_bytes > 0);
    let (orders, receive_orders) = mpsc::channel(8);
    let (send_events, events) = mpsc::channel(8);
    tokio::spawn(run_udp(
        Reverser::default(),
        sockets,
        receive_orders,
        send_events,
        drops,
    ));
    Running { orders, events }
}

fn loopback() -> u32 {
    let all = interfaces().unwrap();
    all.iter()
        .find(|interface| interface.loopback)
        .unwrap()
        .index
}

/// The next event with this text; others on the shared port are none of ours.
async fn heard(running: &mut Running, text: &[u8]) -> Inbound {
    let hear = async {
        loop {
            let datagram = running.events.recv().await.expect("the driver runs");
            if datagram.bytes == text {
                return datagram;
            }
        }
    };
    tokio::time::timeout(DEADLINE, hear).await.expect("in time")
}

#[tokio::test]
async fn multicast_is_heard_and_answered_from_the_devices_own_address() {
    let addresses = [own_address(), own_address()];
    let mut devices = addresses.map(|address| run(address, Role::Device));
    let mut client = run(Ipv4Addr::LOCALHOST, Role::Client);
    let question = Outbound {
        to: discovery_group(Ipv4Addr::LOCALHOST.into(), loopback()),
        interface: loopback(),
        bytes: b"?elbis".to_vec(),
    };
    client.orders.send(Order::Command(question)).await.unwrap();
    for device in &mut devices {
        let datagram = heard(device, b"?elbis").await;
        assert!(datagram.multicast);
        assert_eq!(datagram.interface, loopback());
        assert_eq!(datagram.from.ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
        assert_ne!(datagram.from.port(), 3702);
    }
    let mut awaited = addresses
        .map(|address| SocketAddr::from((address, 3702)))
        .to_vec();
    while !awaited.is_empty() {
        let answer = heard(&mut client, b"sible?").await;
        assert!(!answer.multicast);
        awaited.retain(|address| *address != answer.from);
    }
}

#[tokio::test]
async fn unicast_reaches_the_device_of_that_address_alone() {
    let addresses = [own_address(), own_address()];
    let mut devices = addresses.map(|address| run(address, Role::Device));
    let client = run(Ipv4Addr::LOCALHOST, Role::Client);
    for (address, text) in [
        (addresses[1], "for the second"),
        (addresses[0], "for the first"),
    ] {
        let datagram = Outbound {
            to: (address, 3702).into(),
            interface: loopback(),
            bytes: text.into(),
        };
        client.orders.send(Order::Command(datagram)).await.unwrap();
    }
    for (device, text) in devices.iter_mut().zip(["for the first", "for the second"]) {
        // Only unicast ones: others may multicast meanwhile.
        let datagram = loop {
            let hearing = tokio::time::timeout(DEADLINE, device.events.recv());
            let datagram = hearing.await.expect("in time").expect("the driver runs");
            if !datagram.multicast {
                break datagram;
            }
        };
        assert_eq!(datagram.bytes, text.as_bytes());
    }
}

#[tokio::test]
async fn no_event_is_lost_while_the_receiver_is_behind() {
    let address = own_address();
    let mut device = run(address, Role::Device);
    let client = run(Ipv4Addr::LOCALHOST, Role::Client);
    // The queue of events holds 8; the rest waits in the kernel.
    for number in 0..100 {
        let datagram = Outbound {
            to: (address, 3702).into(),
            interface: loopback(),
            bytes: format!("number {number}").into(),
        };
        client.orders.send(Order::Command(datagram)).await.unwrap();
    }
    for number in 0..100 {
        heard(&mut device, format!("number {number}").as_bytes()).await;
    }
}

#[tokio::test]
async fn an_address_that_is_not_ours_is_told_with_its_reason() {
    let drops = Drops::default();
    let interface = Interface {
        index: loopback(),
        addresses: vec!["192.0.2.254".parse().unwrap()],
    };
    let options = UdpOptions::new(Role::Device);
    assert!(UdpSockets::bind(&[interface], &options, &drops).is_err());
    let entry = &drops.entries()[0];
    assert_eq!(
        (entry.reason, entry.peer.as_str()),
        ("no multicast", "192.0.2.254")
    );
    assert!(entry.hint.is_some());
}
