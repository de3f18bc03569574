//! Hello and Bye on the multicast groups (WS-Discovery 1.1, section 4).

use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::Instant;
use chappe_soap::udp::{SENT_ENVELOPE_BYTES_MAX, discovery_group, random_between};
use chappe_xml::Str;

use super::{Event, Kind, PendingMessage, State, TargetService};
use crate::Dialect;
use crate::discovery::Interface;

impl TargetService {
    /// Plans a Hello on each selected interface, after the random delay.
    pub(super) fn announce_presence(
        &mut self,
        now: Instant,
        is_selected: impl Fn(&(Interface, Vec<Str>)) -> bool,
    ) {
        if self.state != State::Started {
            return;
        }
        // Pending Hellos are out of date.
        let is_hello = |pending: &PendingMessage| matches!(pending.kind, Kind::Hello);
        self.pending.retain(|_, pending| {
            let interfaces = &self.config.interfaces;
            let interface = interfaces
                .iter()
                .find(|(i, _)| i.index == pending.interface);
            !(is_hello(pending) && interface.is_some_and(&is_selected))
        });
        for (dialect, index, group) in self.groups(is_selected) {
            let delay = random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay);
            self.announce_on(now + delay, dialect, (index, group), Kind::Hello);
        }
    }

    pub(super) fn stop(&mut self, now: Instant) {
        if self.state != State::Started {
            return;
        }
        self.pending.clear();
        self.outbox.clear();
        self.announce_to_proxies(now, &Kind::Bye);
        self.state = State::Stopping;
        for (dialect, index, group) in self.groups(|_| true) {
            self.announce_on(now, dialect, (index, group), Kind::Bye);
        }
    }

    /// The groups of the selected interfaces, once for each dialect.
    fn groups(
        &self,
        is_selected: impl Fn(&(Interface, Vec<Str>)) -> bool,
    ) -> Vec<(Dialect, u32, SocketAddr)> {
        let interfaces = self
            .config
            .interfaces
            .iter()
            .filter(|entry| is_selected(entry));
        let groups = interfaces.flat_map(|(interface, _)| {
            let index = interface.index;
            interface
                .families()
                .map(move |family| (index, discovery_group(family, index)))
        });
        let dialects = self.config.dialects.iter();
        let in_dialect = |(index, group)| dialects.clone().map(move |one| (*one, index, group));
        groups.flat_map(in_dialect).collect()
    }

    pub(super) fn announce_on(
        &mut self,
        at: Instant,
        dialect: Dialect,
        (interface, to): (u32, SocketAddr),
        kind: Kind,
    ) {
        let retransmission = match to.ip().is_multicast() {
            true => self.config.multicast,
            false => self.config.unicast,
        };
        let mut pending = PendingMessage {
            to,
            interface,
            dialect,
            kind,
            retransmission,
            without_scopes: false,
            as_exi: false,
        };
        for without_scopes in [false, true] {
            pending.without_scopes = without_scopes;
            if self.largest_size(&pending) <= SENT_ENVELOPE_BYTES_MAX {
                return self.schedule(at, pending);
            }
        }
        let reason = format!("announcement exceeds {SENT_ENVELOPE_BYTES_MAX} bytes");
        self.event(Event::NotSent { reason });
    }
}
