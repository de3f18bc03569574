//! The registry of the metrics, which also keeps their descriptions: the text of a scrape leaves out those without a
//! value, and the reference has all.

use prometheus_client::registry::{Metric, Unit};

/// A metric as the reference describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricDescription {
    /// The name in a scrape, with its unit and ending.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The unit, if it has one.
    pub unit: Option<String>,
    /// What it measures.
    pub help: &'static str,
}

/// The registry of the metrics.
#[derive(Debug)]
pub(crate) struct Registry {
    metrics: prometheus_client::registry::Registry,
    descriptions: Vec<MetricDescription>,
}

/// The first part of each name.
const PREFIX: &str = "chappe";

impl Default for Registry {
    fn default() -> Self {
        Self {
            metrics: prometheus_client::registry::Registry::with_prefix(PREFIX),
            descriptions: Vec::new(),
        }
    }
}

impl Registry {
    /// Adds a metric without a unit.
    pub(super) fn register(&mut self, name: &str, help: &'static str, metric: impl Metric) {
        self.describe(name, help, None, &metric);
        self.metrics.register(name, help, metric);
    }

    /// Adds a metric with a unit, which is appended to its name.
    pub(super) fn register_with_unit(
        &mut self,
        name: &str,
        help: &'static str,
        unit: Unit,
        metric: impl Metric,
    ) {
        self.describe(name, help, Some(&unit), &metric);
        self.metrics.register_with_unit(name, help, unit, metric);
    }

    fn describe(
        &mut self,
        name: &str,
        help: &'static str,
        unit: Option<&Unit>,
        metric: &impl Metric,
    ) {
        let kind = metric.metric_type().as_str().to_owned();
        let suffix = unit.map_or(String::new(), |unit| format!("_{}", unit.as_str()));
        let total = if kind == "counter" { "_total" } else { "" };
        self.descriptions.push(MetricDescription {
            name: format!("{PREFIX}_{name}{suffix}{total}"),
            kind,
            unit: unit.map(|unit| unit.as_str().to_owned()),
            help,
        });
    }

    /// The metrics, for a scrape.
    pub(super) const fn metrics(&self) -> &prometheus_client::registry::Registry {
        &self.metrics
    }

    /// The descriptions, by name.
    pub(super) fn descriptions(mut self) -> Vec<MetricDescription> {
        self.descriptions.sort();
        self.descriptions
    }
}
