//! Goal: metrics and waveforms of an SDC device become elements with units and meaning.
//! Method: messages in the shapes that the reference implementation sends.

use chappe_stream::{FieldType, Quality, Samples, Value};

use super::*;

const MDIB: &[u8] = include_bytes!("../../../../check/sdc/mdib.xml");
const RECEIVED: Timestamp = Timestamp(1_000);

fn mapping() -> SdcMapping {
    let answer = Element::parse(MDIB).expect("the sample is XML");
    let (mapping, first) = SdcMapping::new(&answer, RECEIVED).expect("it has metrics");
    assert_eq!(first, Mapped::default(), "no metric has a value yet");
    mapping
}

#[test]
fn each_metric_is_a_stream_with_unit_and_meaning() {
    let mapping = mapping();
    let names: Vec<_> = mapping
        .offers()
        .iter()
        .map(|offer| offer.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["heart_rate", "ecg_lead_2", "body_temperature", "probe_site"]
    );
    let ecg = &mapping.offers()[1].schema.fields[0];
    assert_eq!(ecg.field_type, FieldType::Samples);
    assert_eq!(ecg.unit.as_deref(), Some("mV"));
    let property = "urn:oid:1.2.840.10004.1.1.1.0.0.1.131330";
    assert_eq!(ecg.observed_property.as_deref(), Some(property));
    assert_eq!(ecg.description.as_deref(), Some("ECG lead II"));
    let site = mapping.offers()[3].schema.fields[0]
        .observed_property
        .as_deref();
    assert_eq!(site, Some("urn:chappe:test:67112960"));
    assert_eq!(mapping.actions(), [EPISODIC_METRIC_REPORT, WAVEFORM_STREAM]);
}

fn report(root: &str, states: &str) -> Element {
    let text = format!("<m:{root} xmlns:m='{MESSAGE}' xmlns:p='{PARTICIPANT}'>{states}</m:{root}>");
    Element::parse(text.as_bytes()).expect("the report is XML")
}

#[test]
fn a_metric_report_yields_an_element_for_each_state() {
    let body = report(
        "EpisodicMetricReport",
        "<m:ReportPart>
           <m:MetricState DescriptorHandle='heart_rate'>
             <p:MetricValue Value='75.5' DeterminationTime='12'><p:MetricQuality Validity='Vld'/></p:MetricValue>
           </m:MetricState>
           <m:MetricState DescriptorHandle='probe_site'>
             <p:MetricValue Value='ear'><p:MetricQuality Validity='Qst'/></p:MetricValue>
           </m:MetricState>
           <m:MetricState DescriptorHandle='body_temperature'>
             <p:MetricValue Value='warm'><p:MetricQuality Validity='Vld'/></p:MetricValue>
           </m:MetricState>
           <m:MetricState DescriptorHandle='unheard_of'><p:MetricValue Value='1'/></m:MetricState>
         </m:ReportPart>",
    );
    let mapped = mapping().map(EPISODIC_METRIC_REPORT, &body, RECEIVED);
    assert_eq!(mapped.elements.len(), 2);
    let (index, element) = &mapped.elements[0];
    assert_eq!((*index, element.source_time), (0, Timestamp(12_000_000)));
    assert_eq!(
        (&element.values[..], element.quality),
        (&[Value::Double(75.5)][..], Quality::Good)
    );
    let (_, site) = &mapped.elements[1];
    assert_eq!(
        (site.source_time, site.quality),
        (RECEIVED, Quality::Questionable)
    );
    assert_eq!(mapped.troubles.len(), 1);
    assert_eq!(mapped.troubles[0].reason, "sdc_value");
}

#[test]
fn a_waveform_is_one_element_a_stretch() {
    let body = report(
        "WaveformStream",
        "<m:State DescriptorHandle='ecg_lead_2'>
           <p:MetricValue DeterminationTime='5' Samples='0.1 0.2 -0.3'><p:MetricQuality Validity='Vld'/></p:MetricValue>
         </m:State>",
    );
    let mapped = mapping().map(WAVEFORM_STREAM, &body, RECEIVED);
    let start = Timestamp(5_000_000);
    let samples = Samples {
        start,
        period_ns: 5_000_000,
        values: vec![0.1, 0.2, -0.3],
    };
    assert_eq!(mapped.elements[0].1.values, [Value::Samples(samples)]);
}

#[test]
fn what_is_no_report_is_said() {
    let body = Element::new(Name::new(MESSAGE, "SystemErrorReport"));
    let mapped = mapping().map("urn:x", &body, RECEIVED);
    assert_eq!(mapped.troubles[0].reason, "sdc_unknown_report");
    assert!(SdcMapping::new(&body, RECEIVED).is_err());
}
