//! A medical device of this process on the loopback, whose description and answers a test changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chappe_device::HostOptions;
use chappe_device::host::DeviceHost;
use chappe_device::mapping::sdc::{GET_MDIB, SERVICES};
use chappe_dpws::hosting::HostedService;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_soap::Fault;
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_xml::{Element, Name};

use super::devices::{host_options, unique};

const MESSAGE: &str = "http://standards.ieee.org/downloads/11073/11073-10207-2017/message";
const PARTICIPANT: &str = "http://standards.ieee.org/downloads/11073/11073-10207-2017/participant";
/// The events of each port type.
const EVENTS: [(&str, &[&str]); 3] = [
    ("StateEventService", &["EpisodicMetricReport"]),
    ("WaveformService", &["WaveformStream"]),
    (
        "DescriptionEventService",
        &["DescriptionModificationReport"],
    ),
];

/// The device's answer to GetMdib.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The correct answer.
    Right,
    /// With a fault.
    Fault,
    /// Without its description.
    Half,
    /// The description of another device.
    Other,
}

/// The hosted services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosting {
    /// One for all events.
    Together,
    /// One for each port type: events of different ones may overtake each other.
    Apart,
}

pub(crate) struct Monitor {
    pub(crate) host: DeviceHost,
    pub(crate) name: String,
    mdib: Arc<Mutex<Mdib>>,
}

/// The device's product data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Product {
    pub(crate) name: String,
    pub(crate) model: Option<String>,
    pub(crate) serial_number: Option<String>,
    /// The content of MetaData in its description.
    pub(crate) meta_data: String,
}

/// The device's identity.
struct Mdib {
    sequence: String,
    version: u64,
    metrics: BTreeMap<String, Metric>,
    answer: Answer,
    meta_data: String,
}

#[derive(Clone)]
struct Metric {
    unit: u32,
    property: u32,
    version: u64,
    value: Option<i64>,
}

impl Monitor {
    /// A device at this address of the loopback, with a metric `steady`.
    pub(crate) fn start(address: &str, hosting: Hosting) -> Self {
        let name = format!("monitor-{}", unique());
        let key = chappe_identity::Key::from_seed(chappe_transport::seed().unwrap());
        let endpoint = chappe_device::host::endpoint_of(&key);
        Self::start_as(&endpoint, &name, address, hosting)
    }

    /// The same, as the device of this endpoint and name.
    pub(crate) fn start_as(endpoint: &str, name: &str, address: &str, hosting: Hosting) -> Self {
        let product = Product {
            name: name.to_owned(),
            ..Product::default()
        };
        Self::start_product(endpoint, &product, hosting, host_options(address))
    }

    /// The same, as this product.
    pub(crate) fn start_product(
        endpoint: &str,
        product: &Product,
        hosting: Hosting,
        options: HostOptions,
    ) -> Self {
        Self::try_start(endpoint, product, hosting, options).unwrap()
    }

    /// The same, unless its port is in use.
    pub(crate) fn try_start(
        endpoint: &str,
        product: &Product,
        hosting: Hosting,
        options: HostOptions,
    ) -> Result<Self, chappe_device::Error> {
        let mut metrics = BTreeMap::new();
        metrics.insert("steady".to_owned(), Metric::new(262_656, 1));
        let mdib = Arc::new(Mutex::new(Mdib {
            sequence: format!("urn:uuid:{}", unique()),
            version: 1,
            metrics,
            answer: Answer::Right,
            meta_data: product.meta_data.clone(),
        }));
        let mut builder = DeviceHost::builder(endpoint)
            .model(ThisModel {
                manufacturer: vec!["Example".into()],
                model_name: product.model.iter().map(|name| (&**name).into()).collect(),
                ..ThisModel::default()
            })
            .device(ThisDevice {
                friendly_name: vec![(&*product.name).into()],
                serial_number: product.serial_number.clone(),
                ..ThisDevice::default()
            });
        for service in services(hosting) {
            builder = builder.service(service);
        }
        let shared = Arc::clone(&mdib);
        let host = builder
            .operation(GET_MDIB, move |_| {
                let answer = shared.lock().unwrap().answered();
                async move { answer.map(Some) }
            })
            .options(options)
            .start(Drops::default())?;
        Ok(Self {
            host,
            name: product.name.clone(),
            mdib,
        })
    }

    /// The path in the node's interface.
    pub(crate) fn path(&self) -> String {
        let endpoint = self.host.endpoint().replace(':', "%3A");
        format!("/api/v1/devices/{endpoint}")
    }

    /// The name of the stream of a metric.
    pub(crate) fn stream(&self, handle: &str) -> String {
        format!("{}.{handle}", self.name)
    }

    /// Sets its answer to GetMdib from now on.
    pub(crate) fn answer(&self, answer: Answer) {
        self.mdib.lock().unwrap().answer = answer;
    }

    /// Adds a metric, or changes its unit or property.
    pub(crate) async fn put(&self, handle: &str, unit: u32, property: u32) {
        let report = self.put_silently(handle, unit, property);
        self.notify("DescriptionEventService", report).await;
    }

    /// The same, and its report is lost.
    pub(crate) fn put_silently(&self, handle: &str, unit: u32, property: u32) -> Element {
        let mut mdib = self.mdib.lock().unwrap();
        let kind = match mdib.metrics.contains_key(handle) {
            true => "Upt",
            false => "Crt",
        };
        let metric = mdib.metrics.entry(handle.to_owned());
        let metric = metric.or_insert_with(|| Metric::new(unit, property));
        (metric.unit, metric.property) = (unit, property);
        let descriptor = metric.descriptor("m:Descriptor", handle);
        mdib.change(kind, &descriptor)
    }

    /// Removes a metric.
    pub(crate) async fn remove(&self, handle: &str) {
        let report = {
            let mut mdib = self.mdib.lock().unwrap();
            let metric = mdib.metrics.remove(handle).expect("it is there");
            let descriptor = metric.descriptor("m:Descriptor", handle);
            mdib.change("Del", &descriptor)
        };
        self.notify("DescriptionEventService", report).await;
    }

    /// A metric has a value.
    pub(crate) async fn set(&self, handle: &str, value: i64) {
        let report = self.valued(handle, value);
        self.notify("StateEventService", report).await;
    }

    /// A metric has a value, and its report is lost.
    pub(crate) fn valued(&self, handle: &str, value: i64) -> Element {
        let mut mdib = self.mdib.lock().unwrap();
        let metric = mdib.metrics.get_mut(handle).expect("it is there");
        metric.version += 1;
        metric.value = Some(value);
        let state = metric.state("m:MetricState", handle);
        mdib.report(
            "EpisodicMetricReport",
            &format!("<m:ReportPart>{state}</m:ReportPart>"),
        )
    }

    /// All metrics have this value, in one report.
    pub(crate) async fn set_all(&self, value: i64) {
        let report = {
            let mut mdib = self.mdib.lock().unwrap();
            let mut states = String::new();
            for (handle, metric) in &mut mdib.metrics {
                metric.version += 1;
                metric.value = Some(value);
                states += &metric.state("m:MetricState", handle);
            }
            mdib.report(
                "EpisodicMetricReport",
                &format!("<m:ReportPart>{states}</m:ReportPart>"),
            )
        };
        self.notify("StateEventService", report).await;
    }

    async fn notify(&self, service: &str, report: Element) {
        let action = format!("{SERVICES}/{service}/{}", report.name.local);
        self.host.notify(action, report).await.unwrap();
    }
}

impl Mdib {
    fn answered(&mut self) -> Result<Element, Fault> {
        let metric = |(handle, metric): (&String, &Metric)| {
            let descriptor = metric.descriptor("p:Metric", handle);
            (descriptor, metric.state("p:State", handle))
        };
        let (descriptors, states): (Vec<_>, Vec<_>) = self.metrics.iter().map(metric).unzip();
        let (descriptors, states) = (descriptors.concat(), states.concat());
        let meta_data = match &*self.meta_data {
            "" => String::new(),
            some => format!("<p:MetaData>{some}</p:MetaData>"),
        };
        let description = format!(
            "<p:MdDescription><p:Mds Handle='mds'>{meta_data}<p:Vmd Handle='vmd'><p:Channel Handle='channel'>\
             {descriptors}</p:Channel></p:Vmd></p:Mds></p:MdDescription>"
        );
        let state = format!("<p:MdState>{states}</p:MdState>");
        let (sequence, content) = match self.answer {
            Answer::Right => (&*self.sequence, description + &state),
            Answer::Other => ("urn:uuid:another", description.replace("steady", "foreign")),
            Answer::Half => (&*self.sequence, state),
            Answer::Fault => {
                let subcode = Name::new(SERVICES, "NotReady");
                return Err(Fault::receiver(subcode, "it is starting"));
            }
        };
        let content = format!("<m:Mdib>{content}</m:Mdib>");
        Ok(element("GetMdibResponse", sequence, self.version, &content))
    }

    fn report(&mut self, root: &str, content: &str) -> Element {
        self.version += 1;
        element(root, &self.sequence, self.version, content)
    }

    fn change(&mut self, kind: &str, descriptor: &str) -> Element {
        let part = format!(
            "<m:ReportPart ModificationType='{kind}' ParentDescriptor='channel'>{descriptor}\
             </m:ReportPart>"
        );
        self.report("DescriptionModificationReport", &part)
    }
}

impl Metric {
    fn new(unit: u32, property: u32) -> Self {
        Self {
            unit,
            property,
            version: 0,
            value: None,
        }
    }

    fn descriptor(&self, name: &str, handle: &str) -> String {
        let Self { unit, property, .. } = self;
        format!(
            "<{name} xsi:type='p:NumericMetricDescriptor' Handle='{handle}'>\
             <p:Type Code='{property}'/><p:Unit Code='{unit}'/></{name}>"
        )
    }

    fn state(&self, name: &str, handle: &str) -> String {
        // A value has the time of itself, so that one that comes again is known.
        let value = self.value.map_or(String::new(), |value| {
            format!("<p:MetricValue Value='{value}' DeterminationTime='{value}'/>")
        });
        let version = self.version;
        format!("<{name} DescriptorHandle='{handle}' StateVersion='{version}'>{value}</{name}>")
    }
}

/// Whether each value sent is stored once, in order with one exception: the answer to GetMdib holds
/// the newest state, and a report that was sent before the answer may arrive after it.
pub(crate) fn are_all_once(held: &[i64], sent: impl Iterator<Item = i64>) -> bool {
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    let rises_without = |one: usize| {
        let others = held.iter().enumerate().filter(|(index, _)| *index != one);
        others.map(|(_, value)| value).is_sorted()
    };
    sorted.into_iter().eq(sent) && (0..held.len()).any(rises_without)
}

fn element(root: &str, sequence: &str, version: u64, content: &str) -> Element {
    let text = format!(
        "<m:{root} xmlns:m='{MESSAGE}' xmlns:p='{PARTICIPANT}' \
         xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' \
         SequenceId='{sequence}' MdibVersion='{version}'>{content}</m:{root}>"
    );
    Element::parse(text.as_bytes()).expect("it is XML")
}

fn services(hosting: Hosting) -> Vec<HostedService> {
    let wsdl = |name: &str, operations| {
        let service = Service {
            target_namespace: SERVICES.into(),
            name: name.into(),
            operations,
            schemas: Vec::new(),
            address: None,
        };
        service.to_wsdl()
    };
    let name = |local: &str| Name::owned(MESSAGE.to_owned(), local.to_owned());
    let get = ServiceOperation {
        input_action: Some(GET_MDIB.to_owned()),
        ..ServiceOperation::request("GetMdib", name("GetMdib"), name("GetMdibResponse"))
    };
    let mut services = vec![("Get", wsdl("GetService", vec![get]))];
    for (port_type, events) in EVENTS {
        let events = events.iter();
        let events = events.map(|event| ServiceOperation::event(event, name(event)));
        let wsdl = wsdl(port_type, events.collect());
        match (hosting, services.get_mut(1)) {
            (Hosting::Together, Some((_, all))) => all.merge(wsdl).expect("fits"),
            _ => services.push((port_type, wsdl)),
        }
    }
    let hosted = services.into_iter().map(|(name, wsdl)| {
        let id = format!("https://example.org/monitor/{name}");
        HostedService::new(id, format!("/{name}"), wsdl)
    });
    hosted.collect()
}
