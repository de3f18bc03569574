//! The hops of a link: its connection, its streams, its lag.

use chappe_links::{LinkState, LinkStatus, StreamStatus};

use super::{HopState, Path};
use crate::shared::Shared;

/// A window this full means that this node stores more slowly than the origin sends.
const FULL: f64 = 0.9;
/// Seconds by which elements may arrive late.
const LATE_S: f64 = 60.0;

/// The link of this name.
pub(super) fn find(app: &Shared, name: &str) -> Option<LinkStatus> {
    app.exchange.get()?.links().show(name).ok()
}

impl Path<'_> {
    /// A link with all its streams.
    pub(super) fn link_with_streams(&mut self, status: &LinkStatus) {
        self.link(status, None);
        for stream in &status.streams {
            if let Some(entry) = self.app.catalogue.get(&stream.local_name) {
                self.stream_after_source(&entry);
            }
        }
    }

    /// A link, with one of its streams or all.
    pub(super) fn link(&mut self, status: &LinkStatus, stream: Option<&str>) {
        let name = status.name.as_str();
        let is_new = self.enter("link", name);
        if !is_new && stream.is_none() {
            return;
        }
        let error = status.last_error.clone().unwrap_or_default();
        let address = &status.address;
        match status.state {
            LinkState::Connected => {
                let detail = format!("connected to {address}");
                self.add("link", name, HopState::Ok, detail, None);
            }
            LinkState::Ended => {
                let hint = Some("add it again with chappe link add".to_owned());
                self.add("link", name, HopState::Blocked, "it was ended", hint);
            }
            LinkState::Connecting | LinkState::Waiting => {
                let detail = match error.is_empty() {
                    true => format!("is connecting to {address}"),
                    false => format!("not connected to {address}: {error}"),
                };
                let hint = status.hint.clone().or_else(|| {
                    Some("check that the other node runs and listens at this address".to_owned())
                });
                self.add("link", name, HopState::Blocked, detail, hint);
            }
        }
        if status.streams.is_empty() && status.state == LinkState::Connected {
            let detail = "the origin offers no stream that the link selects";
            let hint = Some(format!(
                "chappe link show {name} lists the streams that it selects"
            ));
            self.add("origin", name, HopState::Blocked, detail, hint);
        }
        let wanted = |one: &&StreamStatus| stream.is_none_or(|it| it == one.local_name);
        for one in status.streams.iter().filter(wanted) {
            self.link_stream(name, status, one);
        }
    }

    fn link_stream(&mut self, link: &str, status: &LinkStatus, stream: &StreamStatus) {
        let name = match stream.local_name.is_empty() {
            true => stream.name.clone(),
            false => self.app.catalogue.names().current(&stream.local_name),
        };
        let name = name.as_str();
        if let Some(refusal) = &stream.refusal {
            let hint = Some(format!("chappe link show {link}"));
            return self.add("origin", name, HopState::Blocked, refusal.clone(), hint);
        }
        let letters: u64 = stream.refused.values().sum();
        if letters > 0 && status.dead_letters > 0 {
            let detail = format!("elements that became dead letters: {letters}");
            let hint = Some(format!("chappe link dead-letters {link}"));
            self.add("storing", name, HopState::Degraded, detail, hint);
        }
        let lag = stream.lag_elements.unwrap_or(0);
        if lag > 0 && stream.occupation >= FULL {
            let detail = format!(
                "lags {lag} elements; its window is full, so this node stores more slowly than the \
                 origin sends"
            );
            let hint =
                "check the disk of this node; log.commit_pause_ms lets more elements share a sync";
            self.add(
                "storing",
                name,
                HopState::Degraded,
                detail,
                Some(hint.to_owned()),
            );
        } else if lag > 0 {
            let detail = format!("lags {lag} elements that the origin has and this node has not");
            let hint = match status.state {
                LinkState::Connected => {
                    "it catches up at the connection's rate; compare the rates \
                                         of both nodes with chappe link show"
                }
                _ => {
                    "they are read when the link is connected again, unless retention at the origin \
                      removes them first"
                }
            };
            self.add(
                "origin",
                name,
                HopState::Degraded,
                detail,
                Some(hint.to_owned()),
            );
        } else if stream.lag_s > LATE_S {
            let detail = format!(
                "the newest element arrived {:.0} s after its source time",
                stream.lag_s
            );
            let hint = Some("compare the clocks of both nodes".to_owned());
            self.add("origin", name, HopState::Degraded, detail, hint);
        } else {
            let detail = format!("elements received: {}", stream.received);
            self.add("origin", name, HopState::Ok, detail, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::node::tests::on_node;
    use chappe_links::LinkConfig;

    fn status(state: LinkState, stream: StreamStatus) -> LinkStatus {
        let config = serde_json::json!({ "name": "ward-3", "kind": "zeromq", "streams": ["a.*"],
            "address": "tcp://192.0.2.7:8471" });
        let config: LinkConfig = serde_json::from_value(config).unwrap();
        LinkStatus {
            serialization: config.serialization(),
            name: config.name,
            kind: config.kind,
            address: config.address,
            selects: config.streams,
            as_prefix: None,
            state,
            last_error: None,
            hint: None,
            reconnects: 0,
            rate_per_s: 0.0,
            lag_elements: stream.lag_elements,
            lag_s: stream.lag_s,
            held_bytes: 0,
            bytes_received: 0,
            dead_letters: 0,
            refused: BTreeMap::new(),
            lost: BTreeMap::new(),
            streams: vec![stream],
        }
    }

    #[test]
    fn a_link_that_lags_says_which_end_is_slow() {
        on_node(
            |_| {},
            async |app| {
                let lagging = |lag, occupation| StreamStatus {
                    name: "a.b".into(),
                    local_name: "a.b".into(),
                    lag_elements: Some(lag),
                    occupation,
                    ..StreamStatus::default()
                };
                let obstacle = |state, stream| {
                    let mut path = Path::new(app, true);
                    path.link(&status(state, stream), None);
                    path.finish("ward-3", None).obstacle
                };
                let connected = LinkState::Connected;
                let full = obstacle(connected, lagging(500, 0.97)).unwrap();
                assert_eq!((full.hop, full.state), ("storing", HopState::Degraded));
                assert!(full.detail.contains("500") && full.hint.is_some());
                let behind = obstacle(connected, lagging(500, 0.1)).unwrap();
                assert_eq!((behind.hop, behind.state), ("origin", HopState::Degraded));
                assert_eq!(obstacle(connected, lagging(0, 0.1)), None);
                let cut = obstacle(LinkState::Waiting, lagging(500, 0.97)).unwrap();
                assert_eq!((cut.hop, cut.state), ("link", HopState::Blocked));
                let refused = StreamStatus {
                    refusal: Some("no such stream".into()),
                    ..lagging(0, 0.0)
                };
                let refused = obstacle(connected, refused).unwrap();
                assert_eq!((refused.hop, refused.state), ("origin", HopState::Blocked));
            },
        );
    }
}
