//! Metrics of DDS topics.

use std::sync::atomic::{AtomicU64, Ordering};

use chappe_dds::topics::Topics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::registry::Registry;

use super::PacerStateLabel;

/// A topic; the configuration bounds their number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TopicLabel {
    topic: String,
}

/// Metrics of DDS topics, filled at each scrape.
#[derive(Debug, Default)]
pub(crate) struct TopicMetrics {
    unacknowledged: Family<TopicLabel, Gauge>,
    matched: Family<TopicLabel, Gauge>,
    sent: Family<TopicLabel, Counter>,
    acknowledged: Family<TopicLabel, Counter>,
    given_up: Family<TopicLabel, Counter>,
    received: Family<TopicLabel, Counter>,
    lost: Family<TopicLabel, Counter>,
    mismatches: Family<TopicLabel, Counter>,
    stalls: Family<TopicLabel, Counter>,
    blocked: Family<TopicLabel, Counter<f64, AtomicU64>>,
    deadlines_missed: Family<TopicLabel, Counter>,
    pacer_occupation: Family<TopicLabel, Gauge>,
    pacer_period: Family<TopicLabel, Gauge<f64, AtomicU64>>,
    pacer_states: Family<PacerStateLabel, Gauge>,
    restarts: Counter,
    panics: Counter,
    library_stalls: Counter,
    aborts: Counter,
    warnings: Counter,
    peers: Gauge,
}

impl TopicMetrics {
    pub(crate) fn register(&self, r: &mut Registry) {
        let text = "Samples written but not yet acknowledged by all reliable readers";
        r.register("dds_unacknowledged", text, self.unacknowledged.clone());
        let text = "Matched readers of a published topic, or writers of a subscribed one";
        r.register("dds_matched", text, self.matched.clone());
        r.register("dds_sent", "Samples written", self.sent.clone());
        let text = "Samples acknowledged by all reliable readers";
        r.register("dds_acknowledged", text, self.acknowledged.clone());
        let text = "Samples given up because a reader acknowledged nothing";
        r.register("dds_given_up", text, self.given_up.clone());
        r.register("dds_received", "Samples received", self.received.clone());
        let text = "Samples skipped, by the writers' sequence numbers";
        r.register("dds_lost", text, self.lost.clone());
        let text = "Remote endpoints with incompatible quality of service";
        r.register("dds_mismatches", text, self.mismatches.clone());
        let text = "Number of times that a reader acknowledged nothing";
        r.register("dds_reader_stalls", text, self.stalls.clone());
        let (text, unit) = ("Time that samples waited for room", Unit::Seconds);
        r.register_with_unit("dds_blocked", text, unit, self.blocked.clone());
        let text = "Deadlines that passed without a sample while endpoints matched";
        let missed = self.deadlines_missed.clone();
        r.register("dds_deadlines_missed", text, missed);
        let text = "Samples in flight, as counted by the writer's pacer";
        let occupation = self.pacer_occupation.clone();
        r.register("dds_pacer_occupation", text, occupation);
        let (text, unit) = ("Pause between two samples", Unit::Seconds);
        let period = self.pacer_period.clone();
        r.register_with_unit("dds_pacer_period", text, unit, period);
        let text = "Number of writers' pacers by state";
        r.register("dds_pacers", text, self.pacer_states.clone());
        let text = "Restarts of the participant";
        r.register("dds_restarts", text, self.restarts.clone());
        r.register(
            "dds_panics",
            "Panics of the DDS library",
            self.panics.clone(),
        );
        let text = "Number of times that the DDS library stalled";
        r.register("dds_stalls", text, self.library_stalls.clone());
        let text = "Threads that the DDS library has ended by calling abort";
        r.register("dds_aborts", text, self.aborts.clone());
        let text = "Warnings and errors of the DDS library";
        r.register("dds_warnings", text, self.warnings.clone());
        let text = "Number of remote participants";
        r.register("dds_peers", text, self.peers.clone());
    }
}

/// Updates the metrics of topics.
pub(crate) fn measure(topics: &Topics, of: &TopicMetrics) {
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let counters = [
        &of.sent,
        &of.acknowledged,
        &of.given_up,
        &of.received,
        &of.lost,
        &of.mismatches,
        &of.stalls,
        &of.deadlines_missed,
    ];
    counters.into_iter().for_each(Family::clear);
    of.blocked.clear();
    of.matched.clear();
    of.unacknowledged.clear();
    of.pacer_occupation.clear();
    of.pacer_period.clear();
    of.pacer_states.clear();
    let Some(participant) = topics.participant() else {
        of.peers.set(0);
        return;
    };
    for writer in participant.writers {
        let label = TopicLabel {
            topic: writer.end.topic,
        };
        let count = |family: &Family<TopicLabel, Counter>, by: u64| {
            family.get_or_create(&label).inc_by(by);
        };
        count(&of.sent, writer.sent);
        count(&of.acknowledged, writer.acknowledged);
        count(&of.given_up, writer.given_up);
        count(&of.mismatches, writer.end.mismatches);
        count(&of.deadlines_missed, writer.end.deadlines_missed);
        count(&of.stalls, writer.stalls);
        of.blocked.get_or_create(&label).inc_by(writer.blocked_s);
        let unacknowledged = of.unacknowledged.get_or_create(&label);
        unacknowledged.inc_by(gauge(writer.unacknowledged));
        of.matched
            .get_or_create(&label)
            .inc_by(gauge(writer.end.matched));
        let Some(pacer) = writer.pacer else { continue };
        let occupation = of.pacer_occupation.get_or_create(&label);
        occupation.inc_by(gauge(pacer.occupation));
        // With several writers of a topic, the longest period counts.
        let period = of.pacer_period.get_or_create(&label);
        period.set(period.get().max(pacer.period.as_secs_f64()));
        let state = pacer.state.as_str();
        let states = of.pacer_states.get_or_create(&PacerStateLabel { state });
        states.inc();
    }
    for reader in participant.readers {
        let label = TopicLabel {
            topic: reader.end.topic,
        };
        of.received.get_or_create(&label).inc_by(reader.received);
        of.lost.get_or_create(&label).inc_by(reader.lost);
        of.mismatches
            .get_or_create(&label)
            .inc_by(reader.end.mismatches);
        of.deadlines_missed
            .get_or_create(&label)
            .inc_by(reader.end.deadlines_missed);
        of.matched
            .get_or_create(&label)
            .inc_by(gauge(reader.end.matched));
    }
    let whole = [
        (&of.restarts, participant.restarts),
        (&of.panics, participant.panics),
        (&of.library_stalls, participant.stalls),
        (&of.aborts, participant.aborts),
        (&of.warnings, participant.warnings),
    ];
    for (counter, count) in whole {
        counter.inner().store(count, Ordering::Relaxed);
    }
    of.peers.set(gauge(participant.peers));
}
