//! The configured order of a source's list of sinks.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chappe_dpws::eventing::TreeSink;
use chappe_identity::Prefix;
pub use chappe_notification_tree::schedule::Order;

/// The order in which a source lists its sinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOrder {
    /// The order. Default: as listed.
    pub order: Order,
    /// The criticality of sinks, overriding their own claim: the first rule that contains a sink's address
    /// counts. Without a matching rule the sink's claim counts, 0 by default. Default: no rules.
    pub rules: Vec<CriticalityRule>,
    /// How soon measurements change a list; changed sinks change it anyway. Default 10 s, since sinks have
    /// to fetch each version.
    pub rearrange_interval: Duration,
}

impl Default for TreeOrder {
    fn default() -> Self {
        Self {
            order: Order::AsListed,
            rules: Vec::new(),
            rearrange_interval: Duration::from_secs(10),
        }
    }
}

impl TreeOrder {
    /// The criticality of a sink.
    pub(super) fn criticality(&self, sink: &TreeSink) -> u8 {
        let address = sink.peer.address.ip();
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.sinks.contains(address));
        rule.map_or(sink.criticality, |rule| rule.criticality)
    }
}

/// The criticality of the sinks at some addresses; written `10.1.0.0/16=7`.
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
    /// The UDP addresses of the sinks.
    pub sinks: Prefix,
    /// Larger is more critical.
    pub criticality: u8,
}

/// A malformed rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a criticality rule; write for example 10.1.0.0/16=7, up to 255")]
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
    fn the_first_matching_rule_overrides_the_claim() {
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
    fn malformed_rules_are_refused() {
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
