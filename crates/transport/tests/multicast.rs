//! Goal: datagrams of discovery pass over the loopback, from and to each device's own address.
//!
//! Method: a machine that answers what it hears runs on 127.0.1.7; a client's machine runs on
//! 127.0.0.1. Port 3702 is the standard's, and shared, so other programs may hold it too.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use chappe_dpws::discovery::{Inbound, Interface, Outbound};
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_soap::udp::discovery_group;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_transport::{Drops, interfaces};
use tokio::sync::mpsc;

const DEADLINE: Duration = Duration::from_secs(20);

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

fn run(address: &str, role: Role) -> Running {
    let drops = Drops::default();
    let interface = Interface {
        index: loopback(),
        addresses: vec![address.parse().unwrap()],
    };
    let options = UdpOptions::new(role);
    let sockets = UdpSockets::bind(&[interface], &options, &drops).unwrap();
    let info = sockets.info();
    assert_eq!(info[0].local.ip(), address.parse::<IpAddr>().unwrap());
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
    let mut devices = [
        run("127.0.1.7", Role::Device),
        run("127.0.1.8", Role::Device),
    ];
    let mut client = run("127.0.0.1", Role::Client);
    let question = Outbound {
        to: discovery_group("127.0.0.1".parse().unwrap(), loopback()),
        interface: loopback(),
        bytes: b"?elbis".to_vec(),
    };
    client.orders.send(Order::Command(question)).await.unwrap();
    for device in &mut devices {
        let datagram = heard(device, b"?elbis").await;
        assert!(datagram.multicast);
        assert_eq!(datagram.interface, loopback());
        assert_eq!(datagram.from.ip(), "127.0.0.1".parse::<IpAddr>().unwrap());
        assert_ne!(datagram.from.port(), 3702);
    }
    let mut answered = Vec::new();
    for _ in 0..2 {
        let answer = heard(&mut client, b"sible?").await;
        assert!(!answer.multicast);
        answered.push(answer.from.to_string());
    }
    answered.sort();
    assert_eq!(answered, ["127.0.1.7:3702", "127.0.1.8:3702"]);
}

#[tokio::test]
async fn unicast_reaches_the_device_of_that_address_alone() {
    let mut devices = [
        run("127.0.1.17", Role::Device),
        run("127.0.1.18", Role::Device),
    ];
    let client = run("127.0.0.1", Role::Client);
    for (address, text) in [("127.0.1.18:3702", "for 18"), ("127.0.1.17:3702", "for 17")] {
        let datagram = Outbound {
            to: address.parse().unwrap(),
            interface: loopback(),
            bytes: text.into(),
        };
        client.orders.send(Order::Command(datagram)).await.unwrap();
    }
    for (device, text) in devices.iter_mut().zip(["for 17", "for 18"]) {
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
    let mut device = run("127.0.1.27", Role::Device);
    let client = run("127.0.0.1", Role::Client);
    // The queue of events holds 8; the rest waits in the kernel.
    for number in 0..100 {
        let datagram = Outbound {
            to: "127.0.1.27:3702".parse().unwrap(),
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
