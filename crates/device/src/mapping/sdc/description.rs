//! The containment tree: which metrics a device has (11073-10207, MdDescription).

use chappe_soap::schema::parse_duration;
use chappe_stream::{Field, FieldType, StreamSchema};
use chappe_xml::{Element, Name};

use super::tree::DESCRIPTORS_MAX;
use super::{MESSAGE, PARTICIPANT, units};
use crate::mapping::mapped::{Offer, Trouble, column_name};

pub(super) const HANDLE: Name = Name::local("Handle");
/// Bytes of a handle; a longer one is none. Reason: a device may name a handle of a megabyte as the parent
/// of ten thousand others. Known devices have below 64.
pub(super) const HANDLE_BYTES_MAX: usize = 256;
const XSI_TYPE: Name = Name::new("http://www.w3.org/2001/XMLSchema-instance", "type");

/// A metric descriptor.
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
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
    /// An array of samples of one instant, evenly spaced over a range of something else than time.
    Distribution {
        /// The unit of the range as a UCUM code; where the code is unknown, its URI.
        unit: Option<String>,
        /// Where the first sample lies.
        lower: f64,
        /// Where the last sample lies.
        upper: f64,
    },
}

impl Metric {
    /// The stream of this metric: a field named by the handle, and for a distribution its range.
    pub(super) fn offer(&self) -> Offer {
        let name = column_name(&self.handle);
        let field_type = match self.kind {
            Kind::Numeric => FieldType::Double,
            Kind::Text => FieldType::Text,
            Kind::Waveform { .. } | Kind::Distribution { .. } => FieldType::Samples,
        };
        let mut fields = vec![Field {
            name: name.clone(),
            field_type,
            unit: self.unit.clone(),
            observed_property: self.observed_property.clone(),
            description: self.description.clone(),
        }];
        if let Kind::Distribution { unit, .. } = &self.kind {
            let (lower, upper) = ("where its first sample lies", "where its last sample lies");
            for (end, text) in [("lower", lower), ("upper", upper)] {
                let base: String = name.chars().take(64 - "_lower".len()).collect();
                fields.push(Field {
                    name: format!("{base}_{end}"),
                    field_type: FieldType::Double,
                    unit: unit.clone(),
                    observed_property: None,
                    description: Some(text.to_owned()),
                });
            }
        }
        Offer {
            name,
            schema: StreamSchema { fields, key: None },
            description: self.description.clone(),
        }
    }

    /// Whether states of `other` mean the same as those of this metric.
    pub(super) fn means_the_same(&self, other: &Self) -> bool {
        let without_text = |metric: &Self| Self {
            description: None,
            ..metric.clone()
        };
        without_text(self) == without_text(other)
    }
}

/// What a description, or a part of it, holds.
#[derive(Debug, Default)]
pub(super) struct Described {
    /// The metrics in their order.
    pub(super) metrics: Vec<Metric>,
    /// Handles of metrics that become no stream.
    pub(super) left_out: Vec<String>,
    /// Why they do not.
    pub(super) troubles: Vec<Trouble>,
    /// The handle of each descriptor, and that of the one which contains it.
    pub(super) parents: Vec<(String, String)>,
}

impl Described {
    /// Takes a descriptor that `parent` contains, with all descriptors in it.
    pub(super) fn take(&mut self, element: &Element, parent: Option<&str>) {
        let handle = element.attribute(&HANDLE);
        if let (Some(handle), Some(parent)) = (handle, parent)
            && handle.len().max(parent.len()) <= HANDLE_BYTES_MAX
            && self.parents.len() < DESCRIPTORS_MAX
        {
            self.parents.push((handle.to_owned(), parent.to_owned()));
        }
        if is_metric(element) {
            return self.metric(element);
        }
        for child in element.elements() {
            self.take(child, handle.or(parent));
        }
    }

    fn metric(&mut self, element: &Element) {
        match metric(element) {
            Ok(metric) => self.metrics.push(metric),
            Err(trouble) => {
                let handle = element.attribute(&HANDLE);
                self.left_out.extend(handle.map(str::to_owned));
                self.troubles.push(trouble);
            }
        }
    }
}

/// Whether a descriptor is that of a metric: by its element, or by its type in a report.
fn is_metric(element: &Element) -> bool {
    let is_descriptor = element.name.is(MESSAGE, "Descriptor");
    element.name.is(PARTICIPANT, "Metric")
        || is_descriptor && descriptor_type(element).ends_with("MetricDescriptor")
}

/// The local part of a descriptor's type. Prefixes vary, the local part is unique in BICEPS.
fn descriptor_type(element: &Element) -> &str {
    let name = element.attribute(&XSI_TYPE).unwrap_or_default();
    name.rsplit(':').next().unwrap_or_default()
}

fn metric(element: &Element) -> Result<Metric, Trouble> {
    let attribute = |local| element.attribute(&Name::local(local));
    let Some(handle) = element
        .attribute(&HANDLE)
        .filter(|handle| !handle.is_empty())
    else {
        return Err(Trouble::new(
            "sdc_no_handle",
            "a metric descriptor without handle",
        ));
    };
    if handle.len() > HANDLE_BYTES_MAX {
        return Err(Trouble::new("sdc_handle_too_long", handle));
    }
    let kind = match descriptor_type(element) {
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
        "DistributionSampleArrayMetricDescriptor" => distribution(element, handle)?,
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

fn distribution(element: &Element, handle: &str) -> Result<Kind, Trouble> {
    let child = |local| element.child(&Name::new(PARTICIPANT, local));
    let range = child("DistributionRange");
    let end = |local| {
        let text = range.and_then(|range| range.attribute(&Name::local(local)));
        let value = text.and_then(|text| chappe_xml::Value::from(text).double().ok());
        let value = value.filter(|value| value.is_finite());
        value.ok_or_else(|| Trouble::new("sdc_no_distribution_range", handle))
    };
    Ok(Kind::Distribution {
        unit: child("DomainUnit").map(unit),
        lower: end("Lower")?,
        upper: end("Upper")?,
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
