//! Goal: metrics and waveforms of an SDC device become elements with units and meaning.
//! Method: messages in the format of the reference implementation.

use chappe_stream::{FieldType, Quality, Samples, StreamElement, Timestamp, Value};

use super::*;
use crate::mapping::mapped::{Mapped, Trouble};
use crate::mapping::offers::Offers;

const MDIB: &[u8] = include_bytes!("../../../../../check/sdc/mdib.xml");
const RECEIVED: Timestamp = Timestamp(1_000);

/// A device updated by its reports.
struct Device {
    mapping: SdcMapping,
    offers: Offers,
}

impl Device {
    fn new() -> Self {
        let mut device = Self {
            mapping: SdcMapping::default(),
            offers: Offers::default(),
        };
        let answer = Element::parse(MDIB).expect("the sample is XML");
        let read = device.mapping.read(&answer, &mut device.offers);
        assert!(read.expect("it has metrics").offers_changed);
        let current = device.mapping.current(&answer, RECEIVED);
        assert_eq!(current, Mapped::default(), "no metric has a value yet");
        device
    }

    fn names(&self) -> Vec<&str> {
        let offers = self.offers.iter();
        offers.map(|(_, offer)| offer.name.as_str()).collect()
    }

    fn field(&self, name: &str) -> &chappe_stream::Field {
        let mut offers = self.offers.iter();
        let found = offers.find(|(_, offer)| offer.name == name);
        &found.expect("it is offered").1.schema.fields[0]
    }

    fn report(&mut self, body: &Element) -> Outcome {
        match self.mapping.report(body, RECEIVED, true, &mut self.offers) {
            Reported::Mapped(outcome) => outcome,
            needs => panic!("{needs:?}"),
        }
    }

    fn needs(&mut self, body: &Element) -> Trouble {
        match self.mapping.report(body, RECEIVED, true, &mut self.offers) {
            Reported::NeedsDescription(trouble) => trouble,
            mapped => panic!("{mapped:?}"),
        }
    }

    /// Elements by the names of their streams, and the reasons of problems.
    fn summary(&self, mapped: &Mapped) -> (Vec<(String, Value)>, Vec<&'static str>) {
        let name = |number: &usize| self.offers.get(*number).expect("is known").name.clone();
        let value = |element: &StreamElement| element.values[0].clone();
        let elements = mapped.elements.iter();
        let elements = elements.map(|(number, element)| (name(number), value(element)));
        let reasons = mapped.troubles.iter().map(|trouble| trouble.reason);
        (elements.collect(), reasons.collect())
    }
}

#[test]
fn each_metric_is_a_stream_with_unit_and_meaning() {
    let device = Device::new();
    let names = ["heart_rate", "ecg_lead_2", "body_temperature", "probe_site"];
    assert_eq!(device.names(), names);
    let ecg = device.field("ecg_lead_2");
    assert_eq!(ecg.field_type, FieldType::Samples);
    assert_eq!(ecg.unit.as_deref(), Some("mV"));
    let property = "urn:oid:1.2.840.10004.1.1.1.0.0.1.131330";
    assert_eq!(ecg.observed_property.as_deref(), Some(property));
    assert_eq!(ecg.description.as_deref(), Some("ECG lead II"));
    let site = device.field("probe_site").observed_property.as_deref();
    assert_eq!(site, Some("urn:chappe:test:67112960"));
}

fn report(root: &str, states: &str) -> Element {
    let text = format!(
        "<m:{root} xmlns:m='{MESSAGE}' xmlns:p='{PARTICIPANT}' \
         xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'>{states}</m:{root}>"
    );
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
    let mapped = Device::new().report(&body).mapped;
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
    let reasons: Vec<_> = mapped
        .troubles
        .iter()
        .map(|trouble| trouble.reason)
        .collect();
    assert_eq!(reasons, ["sdc_value", "sdc_no_descriptor"]);
}

#[test]
fn a_waveform_is_one_element_a_stretch() {
    let body = report(
        "WaveformStream",
        "<m:State DescriptorHandle='ecg_lead_2'>
           <p:MetricValue DeterminationTime='5' Samples='0.1 0.2 -0.3'><p:MetricQuality Validity='Vld'/></p:MetricValue>
         </m:State>",
    );
    let mapped = Device::new().report(&body).mapped;
    let start = Timestamp(5_000_000);
    let samples = Samples {
        start,
        period_ns: 5_000_000,
        values: vec![0.1, 0.2, -0.3],
    };
    assert_eq!(mapped.elements[0].1.values, [Value::Samples(samples)]);
}

#[test]
fn other_messages_are_reported() {
    let body = Element::new(Name::new(MESSAGE, "SystemErrorReport"));
    let mut device = Device::new();
    assert_eq!(
        device.report(&body).mapped.troubles[0].reason,
        "sdc_unknown_report"
    );
    assert!(device.mapping.read(&body, &mut device.offers).is_err());
    assert_eq!(
        device.names().len(),
        4,
        "an answer without a description changes nothing"
    );
}

const SEQUENCE: &str = "urn:uuid:6f1a1c1e-3d67-4f3e-9a44-0a6a2b0b5a10";

/// A report of the sample's sequence.
fn versioned(root: &str, version: u64, content: &str) -> Element {
    let mut body = report(root, content);
    for (name, value) in [
        ("MdibVersion", version.to_string()),
        ("SequenceId", SEQUENCE.into()),
    ] {
        body.attributes.push((Name::local(name), value.into()));
    }
    body
}

/// A report of values, each with its handle and the version of its state.
fn values(version: u64, states: &[(&str, u64, &str)]) -> Element {
    let state = |(handle, version, value): &(&str, u64, &str)| {
        format!(
            "<m:MetricState DescriptorHandle='{handle}' StateVersion='{version}'>
               <p:MetricValue Value='{value}'/></m:MetricState>"
        )
    };
    let states: String = states.iter().map(state).collect();
    versioned(
        "EpisodicMetricReport",
        version,
        &format!("<m:ReportPart>{states}</m:ReportPart>"),
    )
}

/// A change of a numeric metric in the first channel.
fn change(version: u64, kind: &str, handle: &str, unit: u32) -> Element {
    let content = format!(
        "<m:ReportPart ModificationType='{kind}' ParentDescriptor='ch0'>
           <m:Descriptor xsi:type='p:NumericMetricDescriptor' Handle='{handle}'>
             <p:Type Code='1'/><p:Unit Code='{unit}'/></m:Descriptor>
         </m:ReportPart>"
    );
    versioned("DescriptionModificationReport", version, &content)
}

#[test]
fn a_description_changes_by_reports() {
    let mut device = Device::new();
    assert!(
        device
            .report(&change(2, "Crt", "added", 262_656))
            .offers_changed
    );
    let mapped = device.report(&values(3, &[("added", 1, "5")])).mapped;
    assert_eq!(
        device.summary(&mapped),
        (vec![("added".into(), Value::Double(5.0))], vec![])
    );
    // A change that does not affect the stream.
    let upper =
        "<m:ReportPart><m:Descriptor xsi:type='p:ChannelDescriptor' Handle='ch0'/></m:ReportPart>";
    let upper = versioned("DescriptionModificationReport", 4, upper);
    assert!(!device.report(&upper).offers_changed);
    assert!(
        device
            .report(&change(5, "Upt", "added", 262_688))
            .offers_changed
    );
    assert_eq!(device.field("added").unit.as_deref(), Some("%"));
    assert!(
        !device.report(&change(5, "Del", "added", 0)).offers_changed,
        "it is not newer"
    );
    assert!(device.report(&change(6, "Del", "added", 0)).offers_changed);
    assert_eq!(device.names().len(), 4);
    // A container is removed with all its descendants.
    assert!(device.report(&change(7, "Del", "vmd0", 0)).offers_changed);
    assert!(device.offers.is_empty());
}

#[test]
fn reports_from_before_a_change_use_the_earlier_description() {
    let mut device = Device::new();
    device.report(&change(5, "Del", "heart_rate", 0));
    let before = device.report(&values(4, &[("heart_rate", 1, "60")])).mapped;
    assert_eq!(
        device.summary(&before).0,
        [("heart_rate".into(), Value::Double(60.0))]
    );
    let after = device.report(&values(5, &[("heart_rate", 2, "61")])).mapped;
    assert_eq!(device.summary(&after), (vec![], vec!["sdc_no_descriptor"]));
    device.report(&change(6, "Upt", "body_temperature", 268_224));
    let other_unit = device
        .report(&values(5, &[("body_temperature", 1, "36")]))
        .mapped;
    assert_eq!(
        device.summary(&other_unit),
        (vec![], vec!["sdc_late_state"])
    );
}

#[test]
fn each_state_is_mapped_once_and_gaps_are_reported() {
    let mut device = Device::new();
    let mut summary = |version, state| {
        let outcome = device.report(&values(version, &[("heart_rate", state, "60")]));
        let (elements, reasons) = device.summary(&outcome.mapped);
        (elements.len(), reasons, outcome.missed_reports)
    };
    assert_eq!(summary(2, 1), (1, vec![], false));
    assert_eq!(summary(2, 1), (0, vec!["sdc_state_not_newer"], false));
    assert_eq!(summary(3, 3), (1, vec!["sdc_states_missed"], false));
    assert_eq!(summary(9, 4), (1, vec!["sdc_reports_missed"], true));
    // The state arrived by a report; its description was read later.
    let answer = String::from_utf8(MDIB.to_vec()).unwrap();
    let state = "DescriptorHandle=\"heart_rate\" DescriptorVersion=\"1\"";
    let with_value =
        format!("{state} StateVersion=\"4\"><pm:MetricValue Value=\"60\"/></pm:State>");
    let answer = answer.replace(&format!("{state}/>"), &with_value);
    let answer = Element::parse(answer.as_bytes()).unwrap();
    assert!(
        !device
            .mapping
            .read(&answer, &mut device.offers)
            .unwrap()
            .offers_changed
    );
    assert_eq!(device.mapping.current(&answer, RECEIVED), Mapped::default());
    // After a restart versions start again.
    let answer = answer.to_text().replace(SEQUENCE, "urn:uuid:another");
    let answer = Element::parse(answer.as_bytes()).unwrap();
    device.mapping.read(&answer, &mut device.offers).unwrap();
    assert_eq!(device.mapping.current(&answer, RECEIVED).elements.len(), 1);
}

#[test]
fn a_report_that_needs_a_description_is_counted_without_one() {
    let mut device = Device::new();
    let unknown = values(2, &[("unknown", 1, "1"), ("heart_rate", 1, "60")]);
    let trouble = device.needs(&unknown);
    assert_eq!(trouble.reason, "sdc_no_descriptor");
    let mapped = device.mapping.report_without(&unknown, RECEIVED, &trouble);
    assert_eq!(device.summary(&mapped).0.len(), 1);
    assert_eq!(device.summary(&mapped).1, ["sdc_no_descriptor"]);
    // It is not requested again.
    let mapped = device.report(&values(3, &[("unknown", 2, "1")])).mapped;
    assert_eq!(device.summary(&mapped), (vec![], vec!["sdc_no_descriptor"]));
    let other = values(4, &[("heart_rate", 2, "60")])
        .to_text()
        .replace(SEQUENCE, "urn:uuid:other");
    let other = Element::parse(other.as_bytes()).unwrap();
    let trouble = device.needs(&other);
    assert_eq!(trouble.reason, "sdc_other_sequence");
    let mapped = device.mapping.report_without(&other, RECEIVED, &trouble);
    assert_eq!(
        device.summary(&mapped),
        (vec![], vec!["sdc_other_sequence"])
    );
}

#[test]
fn a_distribution_is_an_element_with_its_range() {
    let mut device = Device::new();
    let content = "<m:ReportPart ModificationType='Crt' ParentDescriptor='ch0'>
           <m:Descriptor xsi:type='p:DistributionSampleArrayMetricDescriptor' Handle='spectrum'>
             <p:Type Code='1'/><p:Unit Code='266418'/><p:DomainUnit Code='264608'/>
             <p:DistributionRange Lower='0.5' Upper='30'/></m:Descriptor>
           <m:State DescriptorHandle='spectrum' StateVersion='1'>
             <p:MetricValue Samples='1 2 4' DeterminationTime='5'/></m:State>
         </m:ReportPart>";
    let outcome = device.report(&versioned("DescriptionModificationReport", 2, content));
    let (_, element) = &outcome.mapped.elements[0];
    let samples = Samples {
        start: Timestamp(5_000_000),
        period_ns: 0,
        values: vec![1.0, 2.0, 4.0],
    };
    let range = [0.5, 30.0].map(Value::Double);
    assert_eq!(element.values[0], Value::Samples(samples));
    assert_eq!(element.values[1..], range);
    let offer = device
        .offers
        .iter()
        .find(|(_, offer)| offer.name == "spectrum")
        .unwrap()
        .1;
    assert!(offer.schema.check(element).is_ok() && offer.schema.check_names().is_ok());
    let units: Vec<_> = offer
        .schema
        .fields
        .iter()
        .map(|field| field.unit.as_deref())
        .collect();
    assert_eq!(units, [Some("mV"), Some("Hz"), Some("Hz")]);
    let without_range = content
        .replace("DistributionRange", "Range")
        .replace("spectrum", "other");
    let outcome = device.report(&versioned(
        "DescriptionModificationReport",
        3,
        &without_range,
    ));
    assert_eq!(
        device.summary(&outcome.mapped).1[0],
        "sdc_no_distribution_range"
    );
}

#[test]
fn the_identifiers_of_the_device_are_read() {
    let device = Device::new();
    assert_eq!(device.mapping.meta_data(), None, "the sample has none");
    let text = String::from_utf8(MDIB.to_vec()).expect("it is UTF-8");
    let data = "<pm:MetaData><pm:Udi><pm:DeviceIdentifier> 04012345678901 </pm:DeviceIdentifier>\
                <pm:HumanReadableForm>(01)04012345678901(21)SN-7</pm:HumanReadableForm></pm:Udi>\
                <pm:ModelNumber>7</pm:ModelNumber><pm:SerialNumber>SN-7</pm:SerialNumber></pm:MetaData>";
    let place = "<pm:SystemContext";
    let answer = text.replacen(place, &format!("{data}{place}"), 1);
    let answer = Element::parse(answer.as_bytes()).expect("it is XML");
    let mut mapping = SdcMapping::default();
    mapping.read(&answer, &mut Offers::default()).expect("fits");
    let read = mapping.meta_data().expect("it has some");
    assert_eq!(read.device_identifier.as_deref(), Some("04012345678901"));
    assert_eq!(read.serial_number.as_deref(), Some("SN-7"));
}

/// A report of 4 MiB may hold 40,000 parts, and the device may describe a circular tree.
#[test]
fn many_removals_are_fast() {
    let mut device = Device::new();
    let part = |kind: &str, parent: &str, descriptors: &str| {
        format!(
            "<m:ReportPart ModificationType='{kind}' ParentDescriptor='{parent}'>{descriptors}</m:ReportPart>"
        )
    };
    let mut text = String::new();
    for number in 0..64 {
        let above = format!("c{}", (number + 1) % 64);
        text += &part(
            "Upt",
            &above,
            &format!("<m:Descriptor Handle='c{number}'/>"),
        );
    }
    let metric = |number| {
        format!(
            "<m:Descriptor xsi:type='p:NumericMetricDescriptor' Handle='m{number}'>\
             <p:Unit Code='262656'/></m:Descriptor>"
        )
    };
    text += &part("Crt", "c0", &(0..500).map(metric).collect::<String>());
    let modified = |text: &str, version| {
        let mut report = report("DescriptionModificationReport", text);
        let version = (Name::local("MdibVersion"), format!("{version}").into());
        report.attributes.push(version);
        report
    };
    device.report(&modified(&text, 1_000));
    assert_eq!(device.names().len(), 504);
    let nothing = part("Del", "", "<m:Descriptor Handle='z'/>").repeat(20_000);
    let nothing = modified(&nothing, 1_001);
    let start = std::time::Instant::now();
    assert!(!device.report(&nothing).offers_changed);
    assert!(
        start.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let below = part("Del", "", "<m:Descriptor Handle='c7'/>");
    assert!(device.report(&modified(&below, 1_002)).offers_changed);
    assert_eq!(device.names().len(), 4, "all were its descendants");
}

/// The answer to GetMdib of a device with a descriptor of this handle above `children` metrics.
fn mdib_below(parent: &str, child: &str, children: usize) -> Element {
    let metrics: String = (0..children)
        .map(|number| {
            format!("<q:Metric x:type='q:NumericMetricDescriptor' Handle='{child}{number}'/>")
        })
        .collect();
    let text = format!(
        "<m:GetMdibResponse xmlns:m='{MESSAGE}' xmlns:q='{PARTICIPANT}' \
         xmlns:x='http://www.w3.org/2001/XMLSchema-instance' SequenceId='urn:s' MdibVersion='1'>\
         <m:Mdib><q:MdDescription><q:Mds Handle='{parent}'>{metrics}</q:Mds></q:MdDescription>\
         </m:Mdib></m:GetMdibResponse>"
    );
    Element::parse(text.as_bytes()).expect("it is XML")
}

#[test]
fn an_oversized_handle_is_not_repeated_for_each_descriptor_below_it() {
    let long = "x".repeat(100_000);
    let mut described = description::Descriptors::default();
    described.add(&mdib_below(&long, "m", 20), None);
    assert_eq!((described.metrics.len(), described.parents.len()), (20, 0));
    let mut described = description::Descriptors::default();
    described.add(&mdib_below("mds", "m", 10_000), None);
    assert_eq!(described.parents.len(), tree::DESCRIPTORS_MAX);
    let mut described = description::Descriptors::default();
    described.add(&mdib_below("mds", &long, 2), None);
    assert!(described.metrics.is_empty());
    let reasons = described.troubles.iter().map(|trouble| trouble.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), ["sdc_handle_too_long"; 2]);
}

#[test]
fn oversized_names_in_a_report_are_neither_stored_nor_repeated() {
    let mut device = Device::new();
    let states = |sequence: &str, handle: &str| {
        let states = format!("<m:MetricState DescriptorHandle='{handle}'/>").repeat(50);
        let text = format!(
            "<m:EpisodicMetricReport xmlns:m='{MESSAGE}' SequenceId='{sequence}' MdibVersion='2'>\
             <m:ReportPart>{states}</m:ReportPart></m:EpisodicMetricReport>"
        );
        Element::parse(text.as_bytes()).expect("it is XML")
    };
    let long = "x".repeat(50_000);
    let detail_sizes = |mapped: &Mapped| {
        let details = mapped.troubles.iter().map(|trouble| trouble.detail.len());
        (mapped.troubles.len(), details.sum::<usize>())
    };
    // Another sequence; each trouble names it.
    let other = states("urn:other", "nobody");
    let trouble = device.needs(&other);
    let mapped = device.mapping.report_without(&other, RECEIVED, &trouble);
    assert_eq!(mapped.troubles.len(), 50);
    let trouble = Trouble::new(trouble.reason, format!("a report of {long}"));
    let mapped = device.mapping.report_without(&other, RECEIVED, &trouble);
    let (count, bytes) = detail_sizes(&mapped);
    assert!(count == 50 && bytes <= 50 * 256, "{bytes} bytes of details");
    // An oversized sequence counts as none; no description is awaited for an oversized handle.
    let outcome = device.report(&states(&long, &long));
    let (count, bytes) = detail_sizes(&outcome.mapped);
    assert!(count == 50 && bytes <= 50 * 256, "{bytes} bytes of details");
}
