//! Measures links for Prometheus.

use chappe_links::LinkState;
use chappe_links::http::PUSH_LETTERS;

use super::exchange::Exchange;
use crate::config::Limits;
use crate::metrics::{
    LinkLabel, LinkReasonLabels, LinkStreamLabels, Metrics, PacerStateLabel, ReaderLabel,
};

/// Readers with their own label in metrics; reason: each costs six lines per scrape.
const READERS_NAMED_MAX: usize = 256;

impl Exchange {
    /// Updates the metrics of links.
    pub(crate) fn measure(&self, metrics: &Metrics, limits: &Limits) {
        let of = &metrics.links;
        of.clear();
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        for status in self.links.list() {
            let link = status.name;
            let label = LinkLabel { link: link.clone() };
            let connected = i64::from(status.state == LinkState::Connected);
            of.connected.get_or_create(&label).set(connected);
            of.reconnects
                .get_or_create(&label)
                .inc_by(status.reconnects);
            let bytes = of.received_bytes.get_or_create(&label);
            bytes.inc_by(status.bytes_received);
            of.rate.get_or_create(&label).set(status.rate_per_s);
            of.dead_letters
                .get_or_create(&label)
                .set(gauge(status.dead_letters));
            for stream in status.streams {
                // Streams beyond the limit share a label, so their values are added up.
                let labels = LinkStreamLabels {
                    link: link.clone(),
                    stream: metrics.stream_label(&stream.local_name, limits),
                };
                of.acknowledged
                    .get_or_create(&labels)
                    .inc_by(stream.acknowledged);
                of.repeated.get_or_create(&labels).inc_by(stream.repeated);
                if let Some(lag) = stream.lag_elements {
                    of.lag_elements.get_or_create(&labels).inc_by(gauge(lag));
                }
                of.held
                    .get_or_create(&labels)
                    .inc_by(gauge(stream.held_bytes));
                let lag = of.lag.get_or_create(&labels);
                lag.set(lag.get().max(stream.lag_s));
                drop(lag);
                let occupation = of.occupation.get_or_create(&labels);
                occupation.set(occupation.get().max(stream.occupation));
                drop(occupation);
                for (reason, count) in &stream.refused {
                    let labels = LinkReasonLabels {
                        link: labels.link.clone(),
                        stream: labels.stream.clone(),
                        reason: reason.clone(),
                    };
                    of.refused.get_or_create(&labels).inc_by(*count);
                }
            }
        }
        // A log that cannot be read has no value; listing the letters reports its error.
        if let Ok(letters) = self.links.push_dead_letters() {
            let link = PUSH_LETTERS.to_owned();
            let kept = of.dead_letters.get_or_create(&LinkLabel { link });
            kept.set(gauge(letters));
        }
        let peers = self.peers();
        of.peers.set(gauge(peers.len() as u64));
        let in_flight = peers.iter().map(|peer| peer.in_flight).sum();
        of.peers_in_flight.set(gauge(in_flight));
        for (number, peer) in peers.into_iter().enumerate() {
            let reader = match number < READERS_NAMED_MAX {
                true => peer.key.unwrap_or(peer.address),
                false => "other".to_owned(),
            };
            // Several sessions of one reader are added up; the longest of their periods counts.
            let label = ReaderLabel { reader };
            let rate = of.reader_rate.get_or_create(&label);
            rate.set(rate.get() + peer.rate_per_s);
            drop(rate);
            of.reader_sent.get_or_create(&label).inc_by(peer.sent);
            of.reader_sent_again
                .get_or_create(&label)
                .inc_by(peer.sent_again);
            of.reader_lag_elements
                .get_or_create(&label)
                .inc_by(gauge(peer.lag_elements));
            let Some(pacing) = peer.pacing else { continue };
            let state = pacing.state.as_str();
            of.pacer_states
                .get_or_create(&PacerStateLabel { state })
                .inc();
            of.pacer_occupation
                .get_or_create(&label)
                .inc_by(gauge(pacing.occupation));
            let period = of.pacer_period.get_or_create(&label);
            period.set(period.get().max(pacing.period.as_secs_f64()));
        }
    }
}
