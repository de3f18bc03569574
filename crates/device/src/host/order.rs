//! In which order a source lists its sinks: what the user chooses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chappe_dpws::eventing::TreeSink;
use chappe_identity::Prefix;
pub use chappe_notification_tree::schedule::Order;

/// How a source orders its lists of sinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOrder {
    /// Which sinks come where. Default: as listed.
    pub order: Order,
    /// How critical sinks are, whatever they say: the first rule that has a sink's address counts. Of a
    /// sink that no rule has, what it says counts: 0 unless it says more. Default: no rules.
    pub rules: Vec<CriticalityRule>,
    /// How soon a list is made anew because of what was measured since; when sinks come or go it is made
    /// anyway. Default 10 s: each is a version that sinks have to get.
    pub anew_after: Duration,
}

impl Default for TreeOrder {
    fn default() -> Self {
        Self {
            order: Order::AsListed,
            rules: Vec::new(),
            anew_after: Duration::from_secs(10),
        }
    }
}

impl TreeOrder {
    /// How critical a sink is.
    pub(super) fn criticality(&self, sink: &TreeSink) -> u8 {
        let address = sink.peer.address.ip();
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.sinks.contains(address));
        rule.map_or(sink.criticality, |rule| rule.criticality)
    }
}

/// How critical the sinks at some addresses are; written `10.1.0.0/16=7`.
///
/// ```
/// use chappe_device::host::CriticalityRule;
/// let rule: CriticalityRule = "10.1.0.0/16=7".parse()?;
/// assert_eq!(rule.criticality, 7);
/// assert!(rule.sinks.contains("10.1.2.3".parse()?));
/// assert!("10.1.0.0/16=256".parse::<CriticalityRule>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalityRule {
    /// Where they take datagrams.
    pub sinks: Prefix,
    /// Larger is more.
    pub criticality: u8,
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say how critical which sinks are; write for example 10.1.0.0/16=7, up to 255"
)]
pub struct CriticalityRuleError(String);

impl FromStr for CriticalityRule {
    type Err = CriticalityRuleError;
    fn from_str(text: &str) -> Result<Self, CriticalityRuleError> {
        let read = || {
            let (sinks, criticality) = text.split_once('=')?;
            Some(Self {
                sinks: sinks.parse().ok()?,
                criticality: criticality.parse().ok()?,
            })
        };
        read().ok_or_else(|| CriticalityRuleError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for CriticalityRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.sinks, self.criticality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_dpws::eventing::TreePeer;

    #[test]
    fn the_first_rule_that_has_a_sink_counts_and_else_what_it_says() {
        let rule = |text: &str| text.parse::<CriticalityRule>().unwrap();
        let order = TreeOrder {
            rules: vec![
                rule("10.1.0.9=200"),
                rule("10.1.0.0/16=7"),
                rule("2001:db8::/32=1"),
            ],
            ..TreeOrder::default()
        };
        let of = |address: &str, criticality| {
            order.criticality(&TreeSink {
                peer: TreePeer {
                    key: [1; 32],
                    address: address.parse().unwrap(),
                },
                criticality,
            })
        };
        assert_eq!(of("10.1.0.9:5400", 0), 200);
        assert_eq!(of("10.1.3.9:5400", 255), 7);
        assert_eq!(of("[2001:db8::7]:5400", 255), 1);
        assert_eq!(of("10.2.0.9:5400", 9), 9);
        assert_eq!(rule("10.1.0.0/16=7").to_string(), "10.1.0.0/16=7");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "10.1.0.0/16",
            "=7",
            "10.1.0.0/33=7",
            "10.1.0.0/16=-1",
            "10.1.0.0/16=256",
        ] {
            assert!(text.parse::<CriticalityRule>().is_err(), "{text}");
        }
        let long = "x".repeat(10_000);
        let error = long.parse::<CriticalityRule>().unwrap_err();
        assert!(error.to_string().len() < 200);
    }
}
