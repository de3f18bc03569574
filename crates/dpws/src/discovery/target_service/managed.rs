//! Announcements to discovery proxies (WS-Discovery 1.1, section 2.2.2).

use std::net::{Ipv4Addr, SocketAddr};

use chappe_machine::Instant;
use chappe_soap::udp::random_urn;

use super::{Event, Kind, PendingMessage, State, TargetService};
use crate::Dialect;

/// Stands for no interface in particular: a proxy is behind a router, so all transport addresses are announced.
pub(super) const ANY_INTERFACE: u32 = 0;

impl TargetService {
    /// Says Hello or Bye to the discovery proxies, without the random delay: nobody else asks them at the
    /// same time.
    pub(super) fn announce_to_proxies(&mut self, now: Instant, kind: &Kind) {
        let has_proxies = self.config.announces_by_http || !self.config.proxies.is_empty();
        if self.state != State::Started || !has_proxies {
            return;
        }
        self.renewal = match kind {
            Kind::Hello => Some(now + self.config.renewal),
            _ => None,
        };
        for dialect in self.config.dialects.clone() {
            for to in self.config.proxies.clone() {
                self.announce_on(now, dialect, (ANY_INTERFACE, to), kind.clone());
            }
            if self.config.announces_by_http {
                self.announce_by_http(dialect, kind);
            }
        }
    }

    fn announce_by_http(&mut self, dialect: Dialect, kind: &Kind) {
        let pending = PendingMessage {
            to: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            interface: ANY_INTERFACE,
            dialect,
            kind: kind.clone(),
            retransmission: self.config.unicast,
            without_scopes: false,
            as_exi: false,
        };
        self.message_number = self.message_number.wrapping_add(1);
        let id = random_urn(&mut self.random);
        let envelope = self.envelope(&pending, id.into(), self.message_number);
        let action = envelope.addressing.action.to_string();
        let text = envelope.to_text();
        self.event(Event::Announcement { action, text });
    }
}
