//! The containment tree: which metrics a device has (11073-10207, MdDescription).

use chappe_soap::schema::parse_duration;
use chappe_stream::{Field, FieldType, StreamSchema};
use chappe_xml::{Element, Name};

use super::{PARTICIPANT, units};
use crate::mapping::{Offer, Trouble, column_name};

/// Metrics of one device that become streams. Reason: each costs a stream, an entity and a chart;
/// the largest anaesthesia workstations describe a few hundred.
pub(crate) const METRICS_MAX: usize = 512;

const XSI_TYPE: Name = Name::new("http://www.w3.org/2001/XMLSchema-instance", "type");

/// A metric descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Its handle, unique within the device.
    pub handle: String,
    /// What kind of values it has.
    pub kind: Kind,
    /// Its type code as a URI.
    pub observed_property: Option<String>,
    /// Its unit as a UCUM code; where the code is unknown, its URI.
    pub unit: Option<String>,
    /// The device's words for the type.
    pub description: Option<String>,
}

/// What kind of values a metric has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Numeric,
    /// A text or one of several.
    Text,
    /// A real-time sample array.
    Waveform {
        /// Nanoseconds from one sample to the next.
        period_ns: u64,
    },
}

impl Metric {
    /// The stream of this metric: one field, named by the handle.
    pub(super) fn offer(&self) -> Offer {
        let field_type = match self.kind {
            Kind::Numeric => FieldType::Double,
            Kind::Text => FieldType::Text,
            Kind::Waveform { .. } => FieldType::Samples,
        };
        let field = Field {
            name: column_name(&self.handle),
            field_type,
            unit: self.unit.clone(),
            observed_property: self.observed_property.clone(),
            description: self.description.clone(),
        };
        Offer {
            name: column_name(&self.handle),
            schema: StreamSchema {
                fields: vec![field],
                key: None,
            },
            description: self.description.clone(),
        }
    }
}

/// The metrics below `answer`, and those left out with the reason.
pub(super) fn metrics(answer: &Element) -> Result<(Vec<Metric>, Vec<Trouble>), Trouble> {
    let mut found = Vec::new();
    let mut left_out = Vec::new();
    collect(answer, &mut |element| match metric(element) {
        Ok(metric)
            if found
                .iter()
                .any(|other: &Metric| other.handle == metric.handle) =>
        {
            left_out.push(Trouble::new("sdc_handle_repeats", metric.handle));
        }
        Ok(_) if found.len() == METRICS_MAX => {
            let detail = format!("more than {METRICS_MAX} metrics");
            left_out.push(Trouble::new("sdc_metrics_limit", detail));
        }
        Ok(metric) => found.push(metric),
        Err(trouble) => left_out.push(trouble),
    });
    if found.is_empty() {
        let trouble = Trouble::new("sdc_no_metrics", "the description holds no usable metric");
        return Err(trouble.hint("check that the provider publishes an MdDescription with metrics"));
    }
    Ok((found, left_out))
}

fn collect(element: &Element, take: &mut impl FnMut(&Element)) {
    if element.name.is(PARTICIPANT, "Metric") {
        take(element);
        return;
    }
    for child in element.elements() {
        collect(child, take);
    }
}

fn metric(element: &Element) -> Result<Metric, Trouble> {
    let attribute = |local| element.attribute(&Name::local(local));
    let Some(handle) = attribute("Handle").filter(|handle| !handle.is_empty()) else {
        return Err(Trouble::new(
            "sdc_no_handle",
            "a metric descriptor without handle",
        ));
    };
    // Descriptors name their type by a QName; prefixes vary, the local part is unique in BICEPS.
    let kind = element.attribute(&XSI_TYPE).unwrap_or_default();
    let kind = match kind.rsplit(':').next().unwrap_or_default() {
        "NumericMetricDescriptor" => Kind::Numeric,
        "StringMetricDescriptor" | "EnumStringMetricDescriptor" => Kind::Text,
        "RealTimeSampleArrayMetricDescriptor" => {
            let period = attribute("SamplePeriod").and_then(|text| parse_duration(text).ok());
            let period = period
                .and_then(|ns| u64::try_from(ns).ok())
                .filter(|ns| *ns > 0);
            let Some(period_ns) = period else {
                return Err(Trouble::new("sdc_no_sample_period", handle));
            };
            Kind::Waveform { period_ns }
        }
        other => {
            return Err(Trouble::new(
                "sdc_metric_kind",
                format!("{handle} is a {other:?}"),
            ));
        }
    };
    let child = |local| element.child(&Name::new(PARTICIPANT, local));
    let coded = child("Type").map(|coded| {
        let code = coded.attribute(&Name::local("Code")).unwrap_or_default();
        units::concept(coded.attribute(&Name::local("CodingSystem")), code)
    });
    let description = child("Type")
        .and_then(|coded| coded.child(&Name::new(PARTICIPANT, "ConceptDescription")))
        .map(|text| text.text().trim().to_owned());
    let unit = child("Unit").map(unit);
    Ok(Metric {
        handle: handle.to_owned(),
        kind,
        observed_property: coded,
        unit,
        description,
    })
}

fn unit(coded: &Element) -> String {
    let code = coded.attribute(&Name::local("Code")).unwrap_or_default();
    let system = coded.attribute(&Name::local("CodingSystem"));
    let known = match system {
        None | Some("" | units::MDC) => code.parse().ok().and_then(units::ucum),
        Some(_) => None,
    };
    known.unwrap_or_else(|| units::concept(system, code))
}
