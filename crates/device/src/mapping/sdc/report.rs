//! Reports: maps metric states to elements (11073-10207, AbstractMetricState and its subtypes).

use chappe_stream::{Quality, StreamElement, Timestamp, Value};
use chappe_xml::{Element, Name};

use super::description::{Kind, Metric};
use super::{MESSAGE, PARTICIPANT};
use crate::mapping::mapped::{self, Trouble};

/// Calls `take` with the handle of each state below `element`.
pub(super) fn for_each_state(element: &Element, take: &mut impl FnMut(&str, &Element)) {
    for child in element.elements() {
        let space = &*child.name.namespace;
        let is_state = matches!(&*child.name.local, "State" | "MetricState")
            && (space == MESSAGE || space == PARTICIPANT);
        match child.attribute(&Name::local("DescriptorHandle")) {
            Some(handle) if is_state => take(handle, child),
            _ => for_each_state(child, take),
        }
    }
}

/// The element of one state; `None` while the metric has no value.
pub(super) fn state(
    metric: &Metric,
    state: &Element,
    received: Timestamp,
) -> Result<Option<StreamElement>, Trouble> {
    let Some(value) = state.child(&Name::new(PARTICIPANT, "MetricValue")) else {
        return Ok(None);
    };
    let attribute = |local| value.attribute(&Name::local(local));
    let time = attribute("DeterminationTime")
        .map(determination_time)
        .transpose();
    let time =
        time.map_err(|text| Trouble::new("sdc_time", format!("{}: {text}", metric.handle)))?;
    let time = time.unwrap_or(received);
    let wrong = |error: chappe_xml::ValueError| {
        Trouble::new("sdc_value", format!("{}: {error}", metric.handle))
    };
    let mapped = match &metric.kind {
        Kind::Numeric => match attribute("Value") {
            Some(text) => Value::Double(chappe_xml::Value::from(text).double().map_err(wrong)?),
            None => Value::Null,
        },
        Kind::Text => attribute("Value").map_or(Value::Null, |text| Value::Text(text.to_owned())),
        Kind::Waveform { period_ns } => match attribute("Samples") {
            Some(text) => Value::Samples(mapped::samples(text, time, *period_ns).map_err(wrong)?),
            None => Value::Null,
        },
        Kind::Distribution { .. } => match attribute("Samples") {
            // All samples of one instant.
            Some(text) => Value::Samples(mapped::samples(text, time, 0).map_err(wrong)?),
            None => Value::Null,
        },
    };
    let quality = value
        .child(&Name::new(PARTICIPANT, "MetricQuality"))
        .and_then(|quality| quality.attribute(&Name::local("Validity")))
        .map_or(Quality::Good, quality);
    if mapped == Value::Null && quality == Quality::Good {
        return Ok(None);
    }
    let mut values = vec![mapped];
    if let Kind::Distribution { lower, upper, .. } = metric.kind {
        values.extend([lower, upper].map(Value::Double));
    }
    Ok(Some(mapped::element(time, received, quality, values)))
}

/// The version of a state; `None` if it has none.
pub(super) fn state_version(state: &Element) -> Option<u64> {
    number(state, "StateVersion")
}

/// A counter in an attribute.
pub(super) fn number(element: &Element, local: &'static str) -> Option<u64> {
    let text = element.attribute(&Name::local(local))?;
    text.trim().parse().ok()
}

/// Milliseconds since 1970 (11073-10207, Timestamp).
fn determination_time(text: &str) -> Result<Timestamp, String> {
    let wrong = || text.chars().take(32).collect::<String>();
    let milliseconds: i64 = text.trim().parse().map_err(|_| wrong())?;
    milliseconds
        .checked_mul(1_000_000)
        .map(Timestamp)
        .ok_or_else(wrong)
}

/// MeasurementValidity: valid, validated, ongoing, questionable, calibration ongoing, invalid,
/// overflow, underflow, not available.
fn quality(validity: &str) -> Quality {
    match validity {
        "Vld" | "Vldated" => Quality::Good,
        "Ong" | "Qst" | "Calib" => Quality::Questionable,
        _ => Quality::Bad,
    }
}
