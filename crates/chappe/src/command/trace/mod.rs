//! `chappe trace`: messages on the wire or in a capture, decoded, with the reason of each drop.

mod captured;
mod live;
mod message;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_dpws::discovery::client::Config;
use chappe_dpws::discovery::{Client, Content, DropReason, Inbound, Message, Outbound, Target};
use chappe_dpws::exi::{self, ServiceSchemas};
use chappe_identity::AddressPolicy;
use chappe_machine::{Input, Instant, Machine, Output, drain};
use chappe_soap::Envelope;
use chappe_transport::Drops;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_xml::{Limits, Str};
use serde::Serialize;
use tokio::sync::mpsc;

use super::find::clean;
use super::network;
use crate::cli::Trace;
use crate::output::{self, Failure, Outcome};
use captured::Printer;

/// Prints what a capture has, or listens until the time has passed or an interrupt arrives.
pub(crate) fn run(flags: Trace, json: bool) -> Outcome {
    if let Some(file) = &flags.capture {
        return captured::run(file, Printer::new(&flags, json)?);
    }
    if flags.http {
        return live::run(&flags, Printer::new(&flags, json)?);
    }
    discovery(flags, json)
}

/// Discovery alone, which needs no privilege.
fn discovery(flags: Trace, json: bool) -> Outcome {
    network::block_on(async move {
        let interfaces = network::interfaces(&flags.interfaces)?;
        let named: Vec<_> = interfaces
            .iter()
            .map(|i| (i.index, i.name.clone()))
            .collect();
        let of_discovery = network::of_discovery(&interfaces);
        let drops = Drops::default();
        let sockets = UdpSockets::bind(&of_discovery, &UdpOptions::new(Role::Device), &drops)
            .map_err(|error| {
                Failure::new(format!("cannot join the multicast group: {error}"))
                    .coded("interface_unusable")
                    .hint("find out which program holds the port: chappe doctor")
            })?;
        let names: Vec<_> = interfaces.iter().map(|i| i.name.as_str()).collect();
        output::progress(format_args!("listening on {}", names.join(", ")));
        let tracer = Tracer::new(of_discovery)?;
        let (orders, orders_rx) = mpsc::channel::<Order<()>>(1);
        let (events_tx, mut events) = mpsc::channel(1_024);
        tokio::spawn(run_udp(tracer, sockets, orders_rx, events_tx, drops));
        let end = async {
            match flags.seconds {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(end);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(traced) => print(&traced, &named, flags.raw, json),
                    None => break,
                },
                () = &mut end => break,
                result = network::interrupted() => { result?; break }
            }
        }
        drop(orders);
        Ok(())
    })
}

/// A decoded datagram, and a client's verdict on it.
#[derive(Debug, Serialize)]
struct Traced {
    from: SocketAddr,
    interface: u32,
    multicast: bool,
    bytes: usize,
    /// `text` or `exi`.
    coding: &'static str,
    dialect: Option<String>,
    action: Option<&'static str>,
    message_id: Option<Str>,
    relates_to: Option<Str>,
    subjects: Vec<String>,
    dropped: Option<&'static str>,
    detail: Option<String>,
    text: String,
}

/// A client that only listens: it never transmits.
struct Tracer {
    client: Client,
    outputs: VecDeque<Traced>,
    deadline: Option<Instant>,
}

impl Tracer {
    fn new(interfaces: Vec<chappe_dpws::discovery::Interface>) -> Result<Self, Failure> {
        let policy = AddressPolicy::default();
        let judge = move |xaddr: &str, source: SocketAddr| {
            policy
                .check(xaddr, source)
                .map(drop)
                .map_err(|refusal| refusal.to_string())
        };
        let config = Config::new(interfaces, chappe_transport::seed_number()?);
        Ok(Self {
            client: Client::new(config, judge),
            outputs: VecDeque::new(),
            deadline: None,
        })
    }
}

impl Machine for Tracer {
    type Receive = Inbound;
    type Command = ();
    type Transmit = Outbound;
    type Event = Traced;

    fn handle_input(&mut self, now: Instant, input: Input<Inbound, ()>) {
        let datagram = match input {
            Input::Receive(datagram) => datagram,
            Input::Timeout => {
                self.deadline = drain(&mut self.client, now, Input::Timeout, |_| {});
                return;
            }
            Input::Command(()) => return,
        };
        let before: Vec<u64> = self.client.drops().iter().map(|(_, count)| count).collect();
        let mut traced = decode(&datagram);
        let mut detail = None;
        self.deadline = drain(&mut self.client, now, Input::Receive(datagram), |output| {
            if let Output::Event(chappe_dpws::discovery::client::Event::Dropped {
                detail: why,
                ..
            }) = output
            {
                detail = Some(why);
            }
        });
        let after = self.client.drops().iter().zip(before);
        let reason = after
            .filter(|((_, now), before)| now > before)
            .map(|((reason, _), _)| reason)
            .next();
        // Clients drop questions, which target services answer: not a fault.
        if let Some(reason) = reason.filter(|reason| *reason != DropReason::OtherRole) {
            traced.dropped = Some(reason.label());
            traced.detail = detail.or(traced.detail);
        }
        self.outputs.push_back(traced);
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Traced>> {
        self.outputs.pop_front().map(Output::Event)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// The text of EXI that needs no schema of a device.
fn text_of_exi(stream: &[u8], limits: Limits) -> Result<String, exi::DecodeError> {
    let decoded = exi::decode(stream, limits, &ServiceSchemas::default());
    decoded.map(|decoded| decoded.text)
}

fn decode(datagram: &Inbound) -> Traced {
    let is_exi = exi::is_exi(&datagram.bytes);
    let read = match is_exi {
        true => text_of_exi(&datagram.bytes, Limits::datagram()).map_err(|error| error.to_string()),
        false => Ok(String::from_utf8_lossy(&datagram.bytes).into_owned()),
    };
    let mut traced = Traced {
        from: datagram.from,
        interface: datagram.interface,
        multicast: datagram.multicast,
        bytes: datagram.bytes.len(),
        coding: if is_exi { "exi" } else { "text" },
        dialect: None,
        action: None,
        message_id: None,
        relates_to: None,
        subjects: Vec::new(),
        dropped: None,
        detail: None,
        text: String::new(),
    };
    let message = read.and_then(|text| {
        // A text is read as it arrived.
        let bytes = if is_exi {
            text.as_bytes()
        } else {
            &datagram.bytes
        };
        let envelope = Envelope::parse_within(bytes, Limits::datagram());
        traced.text = text;
        let envelope = envelope.map_err(|error| error.to_string())?;
        Message::from_envelope(&envelope).map_err(|error| error.to_string())
    });
    match message {
        Ok(message) => {
            traced.dialect = Some(network::dialect(message.dialect).to_owned());
            traced.action = Some(message.content.action());
            traced.subjects = subjects(&message.content);
            traced.message_id = Some(message.message_id);
            traced.relates_to = message.relates_to;
        }
        Err(error) => traced.detail = Some(error),
    }
    traced
}

fn subjects(content: &Content) -> Vec<String> {
    let words = |names: &[chappe_xml::Name]| {
        names
            .iter()
            .map(|name| name.local.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let target = |target: &Target| {
        let mut text = target.endpoint.address.to_string();
        if !target.types.is_empty() {
            text.push_str(&format!(" ({})", words(&target.types)));
        }
        if !target.xaddrs.is_empty() {
            text.push_str(&format!(" at {}", target.xaddrs.join(" ")));
        }
        text
    };
    match content {
        Content::Hello(one) | Content::Bye(one) => vec![target(one)],
        Content::ProbeMatches(all) => all.iter().map(target).collect(),
        Content::ResolveMatches(one) => one.iter().map(target).collect(),
        Content::Resolve(endpoint) => vec![endpoint.address.to_string()],
        Content::Probe(probe) => {
            let types = if probe.types.is_empty() {
                "everything".into()
            } else {
                words(&probe.types)
            };
            vec![
                format!("for {types} {}", probe.scopes.join(" "))
                    .trim_end()
                    .to_owned(),
            ]
        }
    }
}

fn print(traced: &Traced, named: &[(u32, String)], raw: bool, json: bool) {
    if json {
        output::json(traced);
        return;
    }
    let name = named.iter().find(|(index, _)| *index == traced.interface);
    let name = name.map_or("?", |(_, name)| name.as_str());
    let cast = if traced.multicast {
        "multicast"
    } else {
        "unicast"
    };
    let action = traced.action.unwrap_or("unreadable");
    let dialect = traced.dialect.as_deref().unwrap_or("-");
    output::line(format_args!(
        "{name} {} {cast} {} {dialect} {action} {}",
        traced.from,
        traced.coding,
        clean(&traced.subjects.join("; "))
    ));
    if let Some(reason) = traced.dropped {
        let detail = traced.detail.as_deref().unwrap_or_default();
        output::line(format_args!("    dropped: {reason} {}", clean(detail)));
    }
    if raw {
        output::line(&traced.text);
    }
}
