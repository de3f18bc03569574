//! A device whose services are Rust types: description, start, changes at run time.

mod bench;
mod running;

use std::net::IpAddr;

use chappe_dpws::hosting::HostedService;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_dpws::profile::MAX_FIELD_SIZE;
use chappe_identity::id_of;
use chappe_transport::Drops;
use chappe_transport::tls::Mutual;
use chappe_xml::Name;

use crate::host::{Builder, Operations};
use crate::service::{Outlet, Service};
use crate::{DeviceHost, Error, HostOptions, Key, Selection};

pub use bench::Bench;
pub use running::RunningDevice;

/// A device to be started.
///
/// ```no_run
/// use chappe_device::{Device, Key, Message, Service};
/// #[derive(Message)]
/// struct Temperature { #[unit("Cel")] celsius: f64 }
///
/// # async fn run() -> Result<(), chappe_device::Error> {
/// let mut service = Service::new("https://example.org/thermometer", "Thermometer");
/// let temperature = service.event::<Temperature>("Temperature");
/// let device = Device::new(Key::load("device.key")?).model("Example", "T1")
///     .name("window side").service(service).start().await?;
/// temperature.send(Temperature { celsius: 21.5 }).await?;
/// device.set_name("door side").await?;
/// device.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Device {
    key: Key,
    description: Description,
    options: HostOptions,
    drops: Drops,
}

/// What a device says about itself.
#[derive(Debug, Default)]
struct Description {
    model: ThisModel,
    device: ThisDevice,
    types: Vec<Name>,
    scopes: Vec<String>,
    services: Vec<Service>,
}

/// A checked description.
struct Checked {
    hosted: Vec<HostedService>,
    operations: Operations,
    outlets: Vec<Outlet>,
    /// Differs whenever a client could read something else.
    digest: [u8; 16],
}

impl Device {
    /// A device with this key, and nothing else yet.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            description: Description::default(),
            options: HostOptions::default(),
            drops: Drops::default(),
        }
    }

    /// Sets manufacturer and name of the model.
    pub fn model(mut self, manufacturer: &str, name: &str) -> Self {
        self.description.model.manufacturer = vec![manufacturer.into()];
        self.description.model.model_name = vec![name.into()];
        self
    }

    /// Sets all characteristics of the model.
    pub fn this_model(mut self, model: ThisModel) -> Self {
        self.description.model = model;
        self
    }

    /// Sets the name of this device for its users.
    pub fn name(mut self, name: &str) -> Self {
        self.description.device.friendly_name = vec![name.into()];
        self
    }

    /// Sets the serial number.
    pub fn serial_number(mut self, number: &str) -> Self {
        self.description.device.serial_number = Some(number.to_owned());
        self
    }

    /// Sets the version of the firmware.
    pub fn firmware(mut self, version: &str) -> Self {
        self.description.device.firmware_version = Some(version.to_owned());
        self
    }

    /// Adds types by which it is searched for, besides that of a DPWS device. Without any, the port type
    /// of its first service is its type.
    pub fn types(mut self, types: impl IntoIterator<Item = Name>) -> Self {
        self.description.types.extend(types);
        self
    }

    /// Adds scopes (URIs), such as places, by which it is searched for.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into);
        self.description.scopes.extend(scopes);
        self
    }

    /// Adds a service.
    pub fn service(mut self, service: Service) -> Self {
        self.description.services.push(service);
        self
    }

    /// Sets its options. The version of the description is not taken from them: it is stored beside
    /// the key.
    pub fn options(mut self, options: HostOptions) -> Self {
        self.options = options;
        self
    }

    /// Serves it with TLS alone, and sends its events to https alone. A device that trusts somebody serves only clients
    /// with such a certificate.
    pub fn tls(mut self, tls: &Mutual) -> Self {
        self.options.tls = Some(tls.security());
        self
    }

    /// Serves it at these addresses alone; with none of them, on all networks of the host.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses: Vec<IpAddr> = addresses.into_iter().collect();
        if !addresses.is_empty() {
            self.options.selection = Selection::Addresses(addresses);
        }
        self
    }

    /// Sets where it records what it drops and refuses.
    pub fn drops(mut self, drops: Drops) -> Self {
        self.drops = drops;
        self
    }

    /// Puts the device on the network, and says Hello.
    ///
    /// # Errors
    /// A part of the description is missing or not unique, or the network cannot be used.
    pub async fn start(self) -> Result<RunningDevice, Error> {
        let checked = self.description.check()?;
        let options = HostOptions {
            metadata_version: self.key.version(checked.digest)?,
            ..self.options
        };
        let builder = self.description.builder(&self.key, options, &checked);
        let host = builder.operations(checked.operations).start(self.drops)?;
        connect(&checked.outlets, &host)?;
        Ok(RunningDevice::new(host, self.key, self.description))
    }

    /// The device without the network, on a clock of the caller, to test its services.
    ///
    /// # Errors
    /// A part of the description is missing or not unique.
    pub fn bench(self) -> Result<Bench, Error> {
        let checked = self.description.check()?;
        let builder = self.description.builder(&self.key, self.options, &checked);
        let machine = builder.machine_alone()?;
        Bench::new(
            machine,
            checked.hosted,
            checked.operations,
            &checked.outlets,
        )
    }
}

/// Connects the events of services to a host.
fn connect(outlets: &[Outlet], host: &DeviceHost) -> Result<(), Error> {
    for outlet in outlets {
        if !outlet.connect(host.inputs()) {
            return Err(Error::Misuse("a service is in two devices".into()));
        }
    }
    Ok(())
}

impl Description {
    fn builder(&self, key: &Key, options: HostOptions, checked: &Checked) -> Builder {
        let builder = DeviceHost::builder(key.endpoint())
            .model(self.model.clone())
            .device(self.device.clone())
            .types(self.all_types(checked))
            .scopes(self.scopes.iter().cloned())
            .options(options);
        let hosted = checked.hosted.iter().cloned();
        hosted.fold(builder, Builder::service)
    }

    /// Its types, without that of a DPWS device.
    fn all_types(&self, checked: &Checked) -> Vec<Name> {
        match (self.types.as_slice(), checked.hosted.first()) {
            ([], Some(first)) => first.types().into_iter().take(1).collect(),
            (types, _) => types.to_vec(),
        }
    }

    fn check(&self) -> Result<Checked, Error> {
        let missing = |what: &str| Err(Error::Misuse(format!("the device has no {what}")));
        if self.model.manufacturer.is_empty() || self.model.model_name.is_empty() {
            return missing("model: add `.model(\"manufacturer\", \"name\")`");
        }
        if self.device.friendly_name.is_empty() {
            return missing("name: add `.name(\"…\")`");
        }
        let names = [
            &self.model.manufacturer,
            &self.model.model_name,
            &self.device.friendly_name,
        ];
        for name in names.into_iter().flatten() {
            let characters = name.text.chars().count();
            if name.text.trim().is_empty() || characters >= MAX_FIELD_SIZE {
                let what = "has 1 to 255 characters: choose another";
                return Err(Error::Misuse(format!("a name {what} than {:?}", name.text)));
            }
        }
        let mut checked = Checked {
            hosted: Vec::new(),
            operations: Operations::new(),
            outlets: Vec::new(),
            digest: [0; 16],
        };
        for service in &self.services {
            let described = service.described()?;
            let path = &described.hosted.path;
            if checked.hosted.iter().any(|known| known.path == *path) {
                let name = service.name();
                let what = format!("two services have the name {name}: rename one");
                return Err(Error::Misuse(what));
            }
            checked.hosted.push(described.hosted);
            checked.operations.extend(described.operations);
            checked.outlets.push(described.outlet);
        }
        let plain = format!(
            "{:?}",
            (&self.model, &self.device, &self.types, &self.scopes)
        );
        let documents = checked.hosted.iter();
        let documents: Vec<String> = documents.map(|hosted| hosted.wsdl.to_text()).collect();
        let texts = std::iter::once(&*plain).chain(documents.iter().map(String::as_str));
        checked.digest = id_of(&texts.collect::<Vec<_>>());
        Ok(checked)
    }
}
