//! A test of multicast: sends a Probe to the group on each interface and expects to receive it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Inbound, Outbound};
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_soap::udp::{DISCOVERY_GROUP_V4, DISCOVERY_GROUP_V6, DISCOVERY_PORT};
use chappe_soap::{Addressing, Envelope};
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_transport::{Drops, Interface};
use chappe_xml::Element;
use tokio::sync::mpsc;

use super::{Check, State};
use crate::output::Failure;

/// Time for a Probe to loop through the kernel.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Time for another host: a device may delay its answer by 2.5 s.
const PATIENCE_WITH: Duration = Duration::from_millis(3_000);

/// Sends Probes and reports the answers.
struct Beacon {
    /// The Probe to the group.
    message: Vec<u8>,
    id: String,
    /// Identifier of the Probe to one host.
    direct_id: String,
    outputs: VecDeque<Output<Outbound, Received>>,
}

/// A received datagram.
enum Received {
    /// Our own Probe, on the group.
    OwnProbe,
    /// An answer from a host.
    Answer(Answer),
}

/// An answer to one of the Probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    host: IpAddr,
    /// True for the Probe to the group.
    multicast: bool,
}

impl Machine for Beacon {
    type Receive = Inbound;
    type Command = Outbound;
    type Transmit = Outbound;
    type Event = Received;

    fn handle_input(&mut self, _: Instant, input: Input<Inbound, Outbound>) {
        match input {
            Input::Command(datagram) => self.outputs.push_back(Output::Transmit(datagram)),
            Input::Receive(datagram) if datagram.multicast => {
                if datagram.bytes == self.message {
                    self.outputs.push_back(Output::Event(Received::OwnProbe));
                }
            }
            Input::Receive(datagram) => {
                let text = String::from_utf8_lossy(&datagram.bytes);
                let multicast = text.contains(&self.id);
                if multicast || text.contains(&self.direct_id) {
                    let answer = Answer {
                        host: datagram.from.ip(),
                        multicast,
                    };
                    self.outputs
                        .push_back(Output::Event(Received::Answer(answer)));
                }
            }
            Input::Timeout => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Received>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// Tests every interface, to itself and, if named, to another host.
pub(crate) async fn multicast(
    interfaces: &[Interface],
    with: Option<IpAddr>,
) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    let mut reached = Vec::new();
    for interface in interfaces.iter().filter(|i| i.usable()) {
        let (check, answers) = try_interface(interface, with).await?;
        checks.push(check);
        reached.extend(answers);
    }
    if checks.is_empty() {
        let check = Check::new("multicast", State::Failed, "no interface can carry it");
        checks.push(check.hint("bring an interface up: ip link set NAME up multicast on"));
    }
    if let Some(host) = with {
        let by = |multicast| reached.contains(&Answer { host, multicast });
        let name = format!("with {host}");
        checks.push(match (by(true), by(false)) {
            (true, _) => Check::new(name, State::Ok, "it answers a multicast Probe"),
            (false, true) => {
                Check::new(name, State::Warning, "it answers a unicast Probe only").hint(
                    "multicast does not pass in both directions: look for a router, bridge or wireless \
                     access point in between, or name such hosts with --host",
                )
            }
            (false, false) => Check::new(name, State::Failed, "no answer to a Probe").hint(
                "run a device or `chappe doctor --answer` there, and let both firewalls pass UDP \
                 port 3702 and its answers",
            ),
        });
    }
    Ok(checks)
}

async fn try_interface(
    interface: &Interface,
    with: Option<IpAddr>,
) -> Result<(Check, Vec<Answer>), Failure> {
    let name = format!("multicast on {}", interface.name);
    let drops = Drops::default();
    // Most systems carry no IPv6 multicast on loopback, and nothing depends on it.
    let addresses = interface.addresses.iter().map(|(address, _)| *address);
    let addresses = addresses.filter(|address| address.is_ipv4() || !interface.loopback);
    let of_discovery = chappe_dpws::discovery::Interface {
        index: interface.index,
        addresses: addresses.collect(),
    };
    let sockets = match UdpSockets::bind(&[of_discovery], &UdpOptions::new(Role::Client), &drops) {
        Ok(sockets) => sockets,
        Err(error) => {
            let hint = drops.entries().into_iter().find_map(|dropped| dropped.hint);
            let check = Check::new(name, State::Failed, error.to_string());
            return Ok((
                check.hint(hint.unwrap_or_else(|| "list the addresses: ip address".into())),
                Vec::new(),
            ));
        }
    };
    let families: Vec<bool> = sockets
        .info()
        .iter()
        .map(|info| info.local.is_ipv4())
        .collect();
    let (message, id) = probe()?;
    let (direct, direct_id) = probe()?;
    let beacon = Beacon {
        message: message.clone(),
        id,
        direct_id,
        outputs: VecDeque::new(),
    };
    let (orders, orders_rx) = mpsc::channel(8);
    let (events_tx, mut events) = mpsc::channel(64);
    let running = tokio::spawn(run_udp(
        beacon,
        sockets,
        orders_rx,
        events_tx,
        drops.clone(),
    ));
    for v4 in &families {
        let group: IpAddr = if *v4 {
            DISCOVERY_GROUP_V4.into()
        } else {
            DISCOVERY_GROUP_V6.into()
        };
        send(&orders, interface.index, group, &message).await;
    }
    if let Some(host) = with {
        send(&orders, interface.index, host, &direct).await;
    }
    let mut own_probes = 0;
    let mut answers = Vec::new();
    let all = async {
        while let Some(event) = events.recv().await {
            match event {
                Received::OwnProbe => own_probes += 1,
                Received::Answer(answer) => answers.push(answer),
            }
            let multicast = |host| Answer {
                host,
                multicast: true,
            };
            if own_probes >= families.len()
                && with.is_none_or(|host| answers.contains(&multicast(host)))
            {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(
        if with.is_some() {
            PATIENCE_WITH
        } else {
            PATIENCE
        },
        all,
    )
    .await;
    drop(orders);
    running.abort();
    Ok((
        judge(name, interface, &families, own_probes, &drops),
        answers,
    ))
}

async fn send(orders: &mpsc::Sender<Order<Outbound>>, interface: u32, to: IpAddr, message: &[u8]) {
    let bytes = message.to_vec();
    let datagram = Outbound {
        to: (to, DISCOVERY_PORT).into(),
        interface,
        bytes,
    };
    let _ = orders.send(Order::Command(datagram)).await;
}

fn judge(
    name: String,
    interface: &Interface,
    families: &[bool],
    own_probes: usize,
    drops: &Drops,
) -> Check {
    let words: Vec<_> = families
        .iter()
        .map(|v4| if *v4 { "IPv4" } else { "IPv6" })
        .collect();
    if own_probes >= families.len() {
        return Check::new(
            name,
            State::Ok,
            format!("own Probe received by {}", words.join(" and ")),
        );
    }
    let drop_reasons: Vec<_> = drops
        .entries()
        .into_iter()
        .map(|dropped| dropped.detail)
        .collect();
    let detail = format!(
        "own Probe received {own_probes} of {} times {}",
        families.len(),
        drop_reasons.join("; ")
    );
    let state = if own_probes > 0 {
        State::Warning
    } else {
        State::Failed
    };
    let hint = match (state, interface.loopback) {
        (State::Warning, _) => {
            "one address family works; for the other check `ip maddress` and the firewall".into()
        }
        (_, true) => "let the firewall pass UDP port 3702 on loopback".to_owned(),
        (_, false) => format!(
            "add a route: ip route add 239.0.0.0/8 dev {0}; let the firewall pass UDP port 3702; check `ip link show {0}`",
            interface.name
        ),
    };
    Check::new(name, state, detail.trim_end().to_owned()).hint(hint)
}

/// A Probe that every target service matches, and its identifier.
fn probe() -> Result<(Vec<u8>, String), Failure> {
    let seed = chappe_transport::seed()?;
    let hex: String = seed
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let id = format!(
        "urn:uuid:{}-{}-4{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    );
    let dialect = Dialect::V2009;
    let mut addressing = Addressing::new(dialect.addressing(), dialect.discovery_action("Probe"));
    addressing.to = Some(dialect.multicast_to().into());
    addressing.message_id = Some(id.clone().into());
    let envelope =
        Envelope::new(addressing).with_body(Element::new(dialect.discovery_name("Probe")));
    Ok((envelope.to_text().into_bytes(), id))
}
