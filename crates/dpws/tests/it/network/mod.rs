//! A small seeded network for discovery machines: hosts on one multicast segment with loss,
//! duplication and reordering.

// Each test file uses a part of this module.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chappe_dpws::discovery::{
    Client, Inbound, Interface, Outbound, Proxy, TargetService, client, proxy, target_service,
};
use chappe_machine::{Harness, Input, Instant, Output};
use chappe_soap::udp::DISCOVERY_PORT;

pub(crate) struct Faults {
    /// Percentages.
    pub(crate) loss: u32,
    pub(crate) duplication: u32,
    pub(crate) latency_max: Duration,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        loss: 0,
        duplication: 0,
        latency_max: Duration::from_millis(1),
    };
}

enum Machine {
    Target(Box<Harness<TargetService>>),
    Client(Box<Harness<Client>>),
    Proxy(Box<Harness<Proxy>>),
}

struct Host {
    machine: Machine,
    /// The host's own address; the host also receives on the shared discovery port.
    address: SocketAddr,
    interface: u32,
    /// Multicast reaches only hosts of the same segment.
    segment: u32,
}

pub(crate) struct Network {
    pub(crate) seed: u64,
    pub(crate) now: Instant,
    /// Whether multicasts skip hosts of the sender's role: in large networks, dropping them takes
    /// most of the time.
    pub(crate) separate_roles: bool,
    faults: Faults,
    random: fastrand::Rng,
    hosts: Vec<Host>,
    in_flight: BTreeMap<(Instant, u64), (usize, Inbound)>,
    packets_sent: u64,
    pub(crate) client_events: Vec<(usize, client::Event)>,
    pub(crate) target_events: Vec<(usize, target_service::Event)>,
    pub(crate) sent: Vec<(Instant, usize, Outbound)>,
}

/// Permits only the sender's own host.
pub(crate) fn sender_host_only(xaddr: &str, source: SocketAddr) -> Result<(), String> {
    let host = match source.ip() {
        IpAddr::V4(v4) => format!("://{v4}:"),
        IpAddr::V6(v6) => format!("://[{v6}]:"),
    };
    match xaddr.contains(&host) {
        true => Ok(()),
        false => Err(format!("{xaddr} is not on {source}")),
    }
}

pub(crate) fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 40_000 + u16::from(number)))
}

pub(crate) fn interface(index: u32, address: IpAddr) -> Interface {
    Interface {
        index,
        addresses: vec![address],
    }
}

impl Network {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            seed,
            now: Instant::ZERO,
            separate_roles: false,
            faults,
            random: fastrand::Rng::with_seed(seed ^ 0x5eed),
            hosts: Vec::new(),
            in_flight: BTreeMap::new(),
            packets_sent: 0,
            client_events: Vec::new(),
            target_events: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Adds a target service at `address`; `configure` adjusts its configuration.
    pub(crate) fn target(
        &mut self,
        address: SocketAddr,
        endpoint: &str,
        configure: impl FnOnce(&mut target_service::Config),
    ) -> usize {
        let seed = self.random.u64(..);
        let mut config = target_service::Config::new(endpoint.to_owned(), 1, seed);
        let xaddr = format!("http://{}:5357/{endpoint}", address.ip()).into();
        config.interfaces = vec![(interface(1, address.ip()), vec![xaddr])];
        config.types = vec![chappe_dpws::Dialect::V2009.device_type()];
        configure(&mut config);
        let machine = Harness::new(TargetService::new(config), self.seed);
        self.add(Machine::Target(Box::new(machine)), address)
    }

    pub(crate) fn client(
        &mut self,
        address: SocketAddr,
        configure: impl FnOnce(&mut client::Config),
    ) -> usize {
        let seed = self.random.u64(..);
        let mut config = client::Config::new(vec![interface(1, address.ip())], seed);
        configure(&mut config);
        let machine = Harness::new(Client::new(config, sender_host_only), self.seed);
        self.add(Machine::Client(Box::new(machine)), address)
    }

    /// Adds a started discovery proxy.
    pub(crate) fn proxy(&mut self, address: SocketAddr) -> usize {
        let seed = self.random.u64(..);
        let mut config = proxy::Config::new("urn:proxy", 1, seed);
        let xaddr = format!("http://{}:8474/", address.ip()).into();
        config.interfaces = vec![(interface(1, address.ip()), vec![xaddr])];
        let mut machine = Harness::new(Proxy::new(config, sender_host_only), self.seed);
        machine
            .input(Input::Command(proxy::Command::Start))
            .unwrap_or_else(|v| panic!("{v}"));
        self.add(Machine::Proxy(Box::new(machine)), address)
    }

    pub(crate) fn proxy_machine(&self, host: usize) -> &Proxy {
        match &self.hosts[host].machine {
            Machine::Proxy(harness) => harness.machine(),
            Machine::Client(_) | Machine::Target(_) => panic!("host {host} is no proxy"),
        }
    }

    /// Moves a host to another segment; all begin in segment 0.
    pub(crate) fn move_to(&mut self, host: usize, segment: u32) {
        self.hosts[host].segment = segment;
    }

    fn add(&mut self, machine: Machine, address: SocketAddr) -> usize {
        self.hosts.push(Host {
            machine,
            address,
            interface: 1,
            segment: 0,
        });
        self.hosts.len() - 1
    }

    pub(crate) fn client_machine(&self, host: usize) -> &Client {
        match &self.hosts[host].machine {
            Machine::Client(harness) => harness.machine(),
            Machine::Target(_) | Machine::Proxy(_) => panic!("host {host} is no client"),
        }
    }

    pub(crate) fn target_machine(&self, host: usize) -> &TargetService {
        match &self.hosts[host].machine {
            Machine::Target(harness) => harness.machine(),
            Machine::Client(_) | Machine::Proxy(_) => panic!("host {host} is no target service"),
        }
    }

    pub(crate) fn command_client(&mut self, host: usize, command: client::Command) {
        let Machine::Client(harness) = &mut self.hosts[host].machine else {
            panic!("host {host} is a target service");
        };
        let outputs = harness
            .input(Input::Command(command))
            .unwrap_or_else(|v| panic!("{v}"));
        self.client_outputs(host, outputs);
    }

    pub(crate) fn command_target(&mut self, host: usize, command: target_service::Command) {
        let Machine::Target(harness) = &mut self.hosts[host].machine else {
            panic!("host {host} is a client");
        };
        let outputs = harness
            .input(Input::Command(command))
            .unwrap_or_else(|v| panic!("{v}"));
        self.target_outputs(host, outputs);
    }

    /// Delivers a datagram to a host immediately.
    pub(crate) fn inject(&mut self, host: usize, from: SocketAddr, multicast: bool, bytes: &[u8]) {
        let datagram = Inbound {
            from,
            interface: self.hosts[host].interface,
            multicast,
            bytes: bytes.to_vec(),
        };
        self.deliver(host, datagram);
    }

    fn deliver(&mut self, host: usize, datagram: Inbound) {
        match &mut self.hosts[host].machine {
            Machine::Client(harness) => {
                let outputs = harness.input(Input::Receive(datagram));
                self.client_outputs(host, outputs.unwrap_or_else(|v| panic!("{v}")));
            }
            Machine::Target(harness) => {
                let outputs = harness.input(Input::Receive(datagram));
                self.target_outputs(host, outputs.unwrap_or_else(|v| panic!("{v}")));
            }
            Machine::Proxy(harness) => {
                let outputs = harness.input(Input::Receive(datagram));
                self.proxy_outputs(host, outputs.unwrap_or_else(|v| panic!("{v}")));
            }
        }
    }

    fn proxy_outputs(&mut self, host: usize, outputs: Vec<Output<Outbound, proxy::Event>>) {
        for output in outputs {
            if let Output::Transmit(datagram) = output {
                self.send(host, datagram);
            }
        }
    }

    fn client_outputs(&mut self, host: usize, outputs: Vec<Output<Outbound, client::Event>>) {
        for output in outputs {
            match output {
                Output::Transmit(datagram) => self.send(host, datagram),
                Output::Event(event) => self.client_events.push((host, event)),
            }
        }
    }

    fn target_outputs(
        &mut self,
        host: usize,
        outputs: Vec<Output<Outbound, target_service::Event>>,
    ) {
        for output in outputs {
            match output {
                Output::Transmit(datagram) => self.send(host, datagram),
                Output::Event(event) => self.target_events.push((host, event)),
            }
        }
    }

    fn send(&mut self, sender: usize, datagram: Outbound) {
        let from = self.hosts[sender].address;
        let multicast = datagram.to.ip().is_multicast();
        self.sent.push((self.now, sender, datagram.clone()));
        let receivers: Vec<_> = (0..self.hosts.len())
            .filter(|index| {
                let host = &self.hosts[*index];
                let same_role = self.is_target(sender) == self.is_target(*index);
                let same_segment = self.hosts[sender].segment == host.segment;
                // Multicast loops back to the sender.
                multicast && same_segment && !(self.separate_roles && same_role)
                    || datagram.to == host.address
                    || datagram.to == SocketAddr::new(host.address.ip(), DISCOVERY_PORT)
            })
            .collect();
        for receiver in receivers {
            if self.random.u32(0..100) < self.faults.loss {
                continue;
            }
            let copies = 1 + u32::from(self.random.u32(0..100) < self.faults.duplication);
            for _ in 0..copies {
                let nanos = self
                    .random
                    .u64(0..=self.faults.latency_max.as_nanos() as u64);
                let inbound = Inbound {
                    from,
                    interface: datagram.interface,
                    multicast,
                    bytes: datagram.bytes.clone(),
                };
                self.packets_sent += 1;
                let at = self.now + Duration::from_nanos(nanos);
                self.in_flight
                    .insert((at, self.packets_sent), (receiver, inbound));
            }
        }
    }

    fn is_target(&self, host: usize) -> bool {
        matches!(self.hosts[host].machine, Machine::Target(_))
    }

    fn deadline(&self, host: usize) -> Option<Instant> {
        match &self.hosts[host].machine {
            Machine::Client(harness) => harness.deadline(),
            Machine::Target(harness) => harness.deadline(),
            Machine::Proxy(harness) => harness.deadline(),
        }
    }

    /// Advances all machines to `at`.
    fn step_to(&mut self, at: Instant) {
        let pause = at - self.now;
        self.now = at;
        for host in 0..self.hosts.len() {
            match &mut self.hosts[host].machine {
                Machine::Client(harness) => {
                    let outputs = harness.advance(pause).unwrap_or_else(|v| panic!("{v}"));
                    self.client_outputs(host, outputs);
                }
                Machine::Target(harness) => {
                    let outputs = harness.advance(pause).unwrap_or_else(|v| panic!("{v}"));
                    self.target_outputs(host, outputs);
                }
                Machine::Proxy(harness) => {
                    let outputs = harness.advance(pause).unwrap_or_else(|v| panic!("{v}"));
                    self.proxy_outputs(host, outputs);
                }
            }
        }
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let deadlines = (0..self.hosts.len()).filter_map(|host| self.deadline(host));
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let next = deadlines.chain(arrival).min().filter(|at| *at <= end);
            let Some(next) = next else {
                return self.step_to(end);
            };
            self.step_to(next.max(self.now));
            while let Some(entry) = self.in_flight.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (receiver, datagram) = entry.remove();
                self.deliver(receiver, datagram);
            }
        }
    }
}
