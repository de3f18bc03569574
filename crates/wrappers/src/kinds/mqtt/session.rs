//! A session with a broker in MQTT 5.0 or 3.1.1 (OASIS), as one set of events. It has no input or output and no clock.

use std::collections::{HashMap, VecDeque};

use mqtt::common::Cursor;
use mqtt::connection::Event as Protocol;
use mqtt::packet::{
    GenericPacketTrait as _, Packet, Property, Qos, SubEntry, SubOpts, v3_1_1, v5_0,
};
use mqtt::result_code::{ConnectReasonCode, ConnectReturnCode, MqttError};
use mqtt::role::Client;
use mqtt_protocol_core::mqtt;
use schemars::JsonSchema;
use serde::Deserialize;

use super::frames::{Frame, Frames};
use super::packets::{connect, maximum, outcome, publication, service};

/// Messages of ours that wait for the broker, unless it sets a lower limit; reason: it fills a link with some
/// milliseconds of delay, and is below what brokers take by default.
const IN_FLIGHT_MAX: usize = 256;

/// The version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub(in crate::kinds) enum Version {
    /// MQTT 3.1.1.
    #[serde(rename = "3.1.1")]
    V3,
    /// MQTT 5.0.
    #[default]
    #[serde(rename = "5.0")]
    V5,
}

/// How a session is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::kinds) struct Opening {
    pub(in crate::kinds) version: Version,
    pub(in crate::kinds) client_id: String,
    pub(in crate::kinds) user: Option<String>,
    pub(in crate::kinds) password: Option<String>,
    pub(in crate::kinds) keep_alive_s: u16,
    /// How long the broker keeps the session after the connection; 0: it starts without one.
    pub(in crate::kinds) session_s: u32,
    /// Most messages that the broker has on their way to us (MQTT 5.0).
    pub(in crate::kinds) receive_maximum: u16,
    /// What the broker publishes when the connection breaks, with quality of service 1.
    pub(in crate::kinds) will: Option<Will>,
    /// What is published on the topic of the will when the connection is there.
    pub(in crate::kinds) birth: Option<Vec<u8>>,
}

/// A message that the broker publishes for a client that is gone. A client that ends in order publishes it itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Will {
    pub(in crate::kinds) topic: String,
    pub(in crate::kinds) payload: Vec<u8>,
    pub(in crate::kinds) is_retained: bool,
}

/// A message from the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Message {
    pub(in crate::kinds) topic: String,
    pub(in crate::kinds) payload: Vec<u8>,
    /// How to acknowledge it; `None`: the broker expects nothing.
    pub(in crate::kinds) receipt: Option<Receipt>,
    /// The broker says that it sent it before.
    pub(in crate::kinds) is_duplicate: bool,
    /// It is the last message of its topic, and was sent because of the subscription.
    pub(in crate::kinds) is_retained: bool,
    /// The bytes of its packet, if it is longer than the limit: the payload is only a beginning.
    pub(in crate::kinds) cut_of: Option<usize>,
}

/// What identifies a message that must be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kinds) struct Receipt {
    pub(in crate::kinds) packet_id: u16,
    /// Quality of service 2: it is received with PUBREC.
    pub(in crate::kinds) is_exactly_once: bool,
}

/// A message to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Publication {
    /// What the caller knows it by.
    pub(in crate::kinds) token: u64,
    pub(in crate::kinds) topic: String,
    pub(in crate::kinds) payload: Vec<u8>,
    pub(in crate::kinds) qos: u8,
    pub(in crate::kinds) is_retained: bool,
    /// A user property (MQTT 5.0).
    pub(in crate::kinds) property: Option<(&'static str, String)>,
}

/// What became of a message to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) enum Outcome {
    /// The broker has it, or with quality of service 0 it was sent.
    Taken,
    /// The broker will never take it.
    Refused(String),
    /// The broker cannot take it now.
    Later(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) enum Event {
    /// The broker accepted the session.
    Connected {
        /// It still had the session of before.
        had_session: bool,
    },
    /// It did not, for this reason, which a hint may explain.
    Refused(String, Option<&'static str>),
    /// It accepted all subscriptions, or not this one.
    Subscribed(Result<(), (String, String)>),
    /// A message.
    Message(Message),
    /// What became of a message of ours.
    Published(u64, Outcome),
    /// It has taken all that was sent before [`Session::ask`].
    Answered,
    /// The connection must end.
    Failed(String),
}

/// The machine.
pub(in crate::kinds) struct Session {
    connection: mqtt::Connection<Client>,
    version: Version,
    frames: Frames,
    /// Subscriptions that wait for the broker, by identifier.
    subscribing: HashMap<u16, Vec<String>>,
    /// Messages of ours that wait for the broker, by identifier.
    waiting: HashMap<u16, u64>,
    /// Most of them.
    in_flight_max: usize,
    /// The highest quality of service that the broker takes.
    qos_max: u8,
    output: Vec<u8>,
    /// Pings so far, and their answers.
    pings: u64,
    pongs: u64,
    /// The number of the ping whose answer is waited for.
    asked_at: Option<u64>,
    events: VecDeque<Event>,
}

impl Session {
    /// A session whose first output opens it.
    pub(in crate::kinds) fn open(opening: &Opening) -> Result<Self, String> {
        let version = match opening.version {
            Version::V3 => mqtt::Version::V3_1_1,
            Version::V5 => mqtt::Version::V5_0,
        };
        let built = |receive_maximum| {
            let packet = connect(opening, receive_maximum);
            packet.map_err(|error: MqttError| error.to_string())
        };
        let (sent, known) = (built(opening.receive_maximum)?, built(u16::MAX)?);
        let mut session = Self {
            connection: mqtt::Connection::new(version),
            version: opening.version,
            frames: Frames::default(),
            subscribing: HashMap::new(),
            waiting: HashMap::new(),
            in_flight_max: IN_FLIGHT_MAX,
            qos_max: 2,
            output: Vec::new(),
            pings: 0,
            pongs: 0,
            asked_at: None,
            events: VecDeque::new(),
        };
        // mosquitto 2.0.11 sends more than it was allowed after a broken connection (quality of service 2), again after
        // each: what it sends is taken, so that the session goes on.
        session.send(known);
        session.output = sent.to_continuous_buffer();
        Ok(session)
    }

    /// What is to be written to the connection; it counts as written.
    pub(in crate::kinds) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Bytes that are to be written.
    pub(in crate::kinds) fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// The next event.
    pub(in crate::kinds) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Adds what was read from the connection.
    pub(in crate::kinds) fn receive(&mut self, bytes: &[u8]) {
        if let Err(reason) = self.frames.push(bytes) {
            self.events.push_back(Event::Failed(reason));
            return;
        }
        while let Some(frame) = self.frames.next() {
            match frame {
                Frame::Packet(packet) => {
                    let mut cursor = Cursor::new(&packet[..]);
                    let events = self.connection.recv(&mut cursor);
                    self.handle(events);
                }
                Frame::Long(long) => self.events.push_back(Event::Message(Message {
                    topic: long.topic,
                    payload: long.beginning,
                    receipt: long.packet_id.map(|packet_id| Receipt {
                        packet_id,
                        is_exactly_once: long.qos == 2,
                    }),
                    is_duplicate: long.is_duplicate,
                    is_retained: long.is_retained,
                    cut_of: Some(long.bytes),
                })),
            }
        }
    }

    /// Asks whether the broker has taken all that was sent.
    pub(in crate::kinds) fn ask(&mut self) {
        self.ping();
        self.asked_at = Some(self.pings);
    }

    /// Asks whether the broker is there.
    pub(in crate::kinds) fn ping(&mut self) {
        self.pings += 1;
        match self.version {
            Version::V3 => self.build(v3_1_1::Pingreq::builder().build()),
            Version::V5 => self.build(v5_0::Pingreq::builder().build()),
        }
    }

    /// Ends the session's connection in order.
    pub(in crate::kinds) fn disconnect(&mut self) {
        match self.version {
            Version::V3 => self.build(v3_1_1::Disconnect::builder().build()),
            Version::V5 => self.build(v5_0::Disconnect::builder().build()),
        }
    }

    /// Subscribes to these filters. `takes_retained`: the last message of each topic is sent as well, for a
    /// subscription that is new.
    pub(in crate::kinds) fn subscribe(
        &mut self,
        filters: &[String],
        qos: u8,
        takes_retained: bool,
    ) {
        use mqtt::packet::RetainHandling::{DoNotSendRetained, SendRetainedIfNotExists};
        let Some(packet_id) = self.packet_id() else {
            return;
        };
        let retained = match takes_retained {
            true => SendRetainedIfNotExists,
            false => DoNotSendRetained,
        };
        let mut options = SubOpts::new().set_qos(service(qos));
        if self.version == Version::V5 {
            options = options.set_rh(retained);
        }
        self.subscribing.insert(packet_id, filters.to_vec());
        let entries: Result<Vec<_>, _> = filters
            .iter()
            .map(|filter| SubEntry::new(filter.as_str(), options))
            .collect();
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.fail(&error),
        };
        match self.version {
            Version::V3 => {
                let packet = v3_1_1::Subscribe::builder().packet_id(packet_id);
                self.build(packet.entries(entries).build());
            }
            Version::V5 => {
                let packet = v5_0::Subscribe::builder().packet_id(packet_id);
                self.build(packet.entries(entries).build());
            }
        }
    }

    /// Ends the subscriptions to these filters.
    pub(in crate::kinds) fn unsubscribe(&mut self, filters: &[String]) {
        let Some(packet_id) = self.packet_id() else {
            return;
        };
        match self.version {
            Version::V3 => {
                let packet = v3_1_1::Unsubscribe::builder().packet_id(packet_id);
                match packet.entries(filters.to_vec()) {
                    Ok(packet) => self.build(packet.build()),
                    Err(error) => self.fail(&error),
                }
            }
            Version::V5 => {
                let packet = v5_0::Unsubscribe::builder().packet_id(packet_id);
                match packet.entries(filters.to_vec()) {
                    Ok(packet) => self.build(packet.build()),
                    Err(error) => self.fail(&error),
                }
            }
        }
    }

    /// Acknowledges a message: with quality of service 1 by PUBACK, with 2 by PUBREC.
    pub(in crate::kinds) fn acknowledge(&mut self, receipt: Receipt) {
        let id = receipt.packet_id;
        match (self.version, receipt.is_exactly_once) {
            (Version::V3, false) => self.build(v3_1_1::Puback::builder().packet_id(id).build()),
            (Version::V3, true) => self.build(v3_1_1::Pubrec::builder().packet_id(id).build()),
            (Version::V5, false) => self.build(v5_0::Puback::builder().packet_id(id).build()),
            (Version::V5, true) => self.build(v5_0::Pubrec::builder().packet_id(id).build()),
        }
    }

    /// Whether a further message can be published now.
    pub(in crate::kinds) fn has_room(&self) -> bool {
        let vacancy = self.connection.get_receive_maximum_vacancy_for_send();
        self.waiting.len() < self.in_flight_max && vacancy != Some(0)
    }

    /// Publishes a message, for which there must be room.
    pub(in crate::kinds) fn publish(&mut self, message: Publication) {
        let token = message.token;
        let qos = message.qos.min(self.qos_max);
        let packet_id = match qos {
            0 => None,
            _ => match self.packet_id() {
                Some(packet_id) => Some(packet_id),
                None => return,
            },
        };
        let packet = match publication(self.version, message, qos, packet_id) {
            Ok(packet) => packet,
            Err(error) => {
                self.release(packet_id);
                let outcome = Outcome::Refused(error.to_string());
                return self.events.push_back(Event::Published(token, outcome));
            }
        };
        if let Some(packet_id) = packet_id {
            self.waiting.insert(packet_id, token);
        }
        let events = self.connection.send(packet);
        let refused = events.iter().find_map(|event| match event {
            Protocol::NotifyError(error) => Some(*error),
            _ => None,
        });
        if let Some(error) = refused {
            if let Some(packet_id) = packet_id {
                self.waiting.remove(&packet_id);
            }
            let outcome = match error {
                MqttError::PacketTooLarge => {
                    Outcome::Refused("it is longer than the broker accepts".to_owned())
                }
                other => Outcome::Later(other.to_string()),
            };
            return self.events.push_back(Event::Published(token, outcome));
        }
        self.handle(events);
        if packet_id.is_none() {
            let taken = Event::Published(token, Outcome::Taken);
            self.events.push_back(taken);
        }
    }

    fn packet_id(&mut self) -> Option<u16> {
        match self.connection.acquire_packet_id() {
            Ok(packet_id) => Some(packet_id),
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn release(&mut self, packet_id: Option<u16>) {
        if let Some(packet_id) = packet_id {
            let events = self.connection.release_packet_id(packet_id);
            self.handle(events);
        }
    }

    fn build<P: Into<Packet>>(&mut self, packet: Result<P, MqttError>) {
        match packet {
            Ok(packet) => self.send(packet.into()),
            Err(error) => self.fail(&error),
        }
    }

    fn send(&mut self, packet: Packet) {
        let events = self.connection.send(packet);
        self.handle(events);
    }

    fn fail(&mut self, error: &MqttError) {
        let text = format!("the protocol was broken: {error}");
        self.events.push_back(Event::Failed(text));
    }

    fn handle(&mut self, events: Vec<Protocol>) {
        let is_closed = events.iter().any(|it| matches!(it, Protocol::RequestClose));
        let has_reason = events
            .iter()
            .any(|it| matches!(it, Protocol::NotifyError(_)));
        for event in events {
            match event {
                Protocol::RequestSendPacket { packet, .. } => {
                    self.output.extend(packet.to_continuous_buffer());
                }
                Protocol::NotifyPacketReceived(packet) => self.take(packet),
                Protocol::NotifyError(error) => self.fail(&error),
                // The connection has timers of its own, which know when nothing is read.
                Protocol::RequestTimerReset { .. }
                | Protocol::RequestTimerCancel(_)
                | Protocol::NotifyPacketIdReleased(_)
                | Protocol::RequestClose => {}
            }
        }
        if is_closed && !has_reason {
            let text = "the protocol was broken".to_owned();
            self.events.push_back(Event::Failed(text));
        }
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::V3_1_1Connack(answer) => match answer.return_code() {
                ConnectReturnCode::Accepted => self.connected(answer.session_present()),
                code => {
                    let hint = match code {
                        ConnectReturnCode::UnacceptableProtocolVersion => Some(OTHER_VERSION),
                        ConnectReturnCode::BadUserNameOrPassword
                        | ConnectReturnCode::NotAuthorized => Some(CREDENTIALS),
                        ConnectReturnCode::IdentifierRejected => Some(IDENTIFIER),
                        _ => None,
                    };
                    self.events
                        .push_back(Event::Refused(code.to_string(), hint));
                }
            },
            Packet::V5_0Connack(answer) => {
                for property in answer.props() {
                    match property {
                        Property::ReceiveMaximum(most) => {
                            self.in_flight_max = IN_FLIGHT_MAX.min(usize::from(most.val()).max(1));
                        }
                        Property::MaximumQos(most) => self.qos_max = maximum(most),
                        _ => {}
                    }
                }
                match answer.reason_code() {
                    ConnectReasonCode::Success => self.connected(answer.session_present()),
                    code => {
                        let hint = match code {
                            ConnectReasonCode::UnsupportedProtocolVersion => Some(OTHER_VERSION),
                            ConnectReasonCode::BadUserNameOrPassword
                            | ConnectReasonCode::NotAuthorized => Some(CREDENTIALS),
                            ConnectReasonCode::ClientIdentifierNotValid => Some(IDENTIFIER),
                            _ => None,
                        };
                        self.events
                            .push_back(Event::Refused(code.to_string(), hint));
                    }
                }
            }
            Packet::V3_1_1Suback(answer) => {
                let codes = answer.return_codes();
                self.subscribed(
                    answer.packet_id(),
                    codes
                        .iter()
                        .map(|code| (code.is_success(), code.to_string())),
                );
            }
            Packet::V5_0Suback(answer) => {
                let codes = answer.reason_codes();
                self.subscribed(
                    answer.packet_id(),
                    codes
                        .iter()
                        .map(|code| (code.is_success(), code.to_string())),
                );
            }
            Packet::V3_1_1Publish(message) => self.message(
                message.topic_name(),
                message.payload().as_slice(),
                (message.qos(), message.packet_id()),
                (message.dup(), message.retain()),
            ),
            Packet::V5_0Publish(message) => self.message(
                message.topic_name(),
                message.payload().as_slice(),
                (message.qos(), message.packet_id()),
                (message.dup(), message.retain()),
            ),
            Packet::V3_1_1Puback(answer) => self.published(answer.packet_id(), Outcome::Taken),
            Packet::V5_0Puback(answer) => {
                let outcome = answer.reason_code().map_or(Outcome::Taken, outcome);
                self.published(answer.packet_id(), outcome);
            }
            Packet::V3_1_1Pubrec(answer) => {
                let packet = v3_1_1::Pubrel::builder().packet_id(answer.packet_id());
                self.build(packet.build());
            }
            Packet::V5_0Pubrec(answer) => match answer.reason_code() {
                Some(code) if !code.is_success() => {
                    let outcome = Outcome::Later(code.to_string());
                    self.published(answer.packet_id(), outcome);
                }
                _ => {
                    let packet = v5_0::Pubrel::builder().packet_id(answer.packet_id());
                    self.build(packet.build());
                }
            },
            Packet::V3_1_1Pubcomp(answer) => self.published(answer.packet_id(), Outcome::Taken),
            Packet::V5_0Pubcomp(answer) => self.published(answer.packet_id(), Outcome::Taken),
            Packet::V3_1_1Pubrel(release) => {
                let packet = v3_1_1::Pubcomp::builder().packet_id(release.packet_id());
                self.build(packet.build());
            }
            Packet::V5_0Pubrel(release) => {
                let packet = v5_0::Pubcomp::builder().packet_id(release.packet_id());
                self.build(packet.build());
            }
            Packet::V3_1_1Pingresp(_) | Packet::V5_0Pingresp(_) => {
                // Pings are answered in their order.
                self.pongs += 1;
                if self.asked_at.is_some_and(|asked| asked <= self.pongs) {
                    self.asked_at = None;
                    self.events.push_back(Event::Answered);
                }
            }
            Packet::V5_0Disconnect(end) => {
                let reason = end
                    .reason_code()
                    .map_or_else(String::new, |it| format!(": {it}"));
                let text = format!("the broker ended the connection{reason}");
                self.events.push_back(Event::Failed(text));
            }
            _ => {}
        }
    }

    fn connected(&mut self, had_session: bool) {
        self.events.push_back(Event::Connected { had_session });
    }

    fn subscribed(&mut self, packet_id: u16, codes: impl Iterator<Item = (bool, String)>) {
        let filters = self.subscribing.remove(&packet_id).unwrap_or_default();
        let mut answers = filters.iter().zip(codes);
        let refused = answers.find(|(_, (is_success, _))| !is_success);
        let result = match refused {
            Some((filter, (_, reason))) => Err((filter.clone(), reason)),
            None => Ok(()),
        };
        self.events.push_back(Event::Subscribed(result));
    }

    fn message(
        &mut self,
        topic: &str,
        payload: &[u8],
        (qos, packet_id): (Qos, Option<u16>),
        (is_duplicate, is_retained): (bool, bool),
    ) {
        self.events.push_back(Event::Message(Message {
            topic: topic.to_owned(),
            payload: payload.to_vec(),
            receipt: packet_id.map(|packet_id| Receipt {
                packet_id,
                is_exactly_once: qos == Qos::ExactlyOnce,
            }),
            is_duplicate,
            is_retained,
            cut_of: None,
        }));
    }

    fn published(&mut self, packet_id: u16, outcome: Outcome) {
        if let Some(token) = self.waiting.remove(&packet_id) {
            self.events.push_back(Event::Published(token, outcome));
        }
    }
}

const OTHER_VERSION: &str = "set version = \"3.1.1\", or \"5.0\"";
const CREDENTIALS: &str = "set user and password_file";
const IDENTIFIER: &str = "set client_id to a name that the broker accepts";
